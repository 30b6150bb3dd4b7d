"""Who is who: a private authority, a certificate for the server, one invitation for each party.

A federation is a folder at the server:

    ca.key, ca.pem            the authority; the key is needed only to invite and renew, and may be kept offline
    server.key, server.pem    what the server shows
    federation.toml           its name, its address, and each party with the fingerprint of its certificate
    invitations/NAME.toml     to be handed to NAME over a channel that both trust, and then deleted

A party is its name *and* its fingerprint: the authority's signature alone admits nobody, so that a certificate
which was replaced or revoked is refused although it has not expired. Revoking takes effect on a running server.

Guarantee: private keys are written readable by their owner alone; nothing here touches a row.
Edges: whoever makes an invitation holds that party's key until it renews, and could pose as that party to the
server. It could not read the party's rows or spend its budget: those are guarded where they lie.
"""

import ipaddress
import os
import tomllib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tomli_w
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from understudy.check import whole
from understudy.errors import ArtefactError, ConfigError, MessageError

SERVER = "server.understudy"  # every server's name inside its own federation, wherever it listens
DAYS = 365
_AUTHORITY_DAYS = 3650
_SKEW = timedelta(minutes=10)  # clocks of institutions differ


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What a party needs to take part, in one secret file: its certificate and key, and whom to dial."""

    federation: str
    party: str
    address: str
    authority: str
    certificate: str
    key: str

    @classmethod
    def load(cls, path: str | Path) -> "Invitation":
        """Read an invitation. ConfigError if it is not one."""
        values = _read_toml(Path(path), "an invitation")
        if values.keys() != cls.__dataclass_fields__.keys() or not all(
            isinstance(value, str) for value in values.values()
        ):
            raise ConfigError(f"{Path(path).name} is not an invitation.")
        return cls(**values)

    def save(self, path: str | Path) -> Path:
        """Write it, readable by its owner alone."""
        return _write_secret(Path(path), tomli_w.dumps(asdict(self)).encode())

    @property
    def expires(self) -> datetime:
        """When the certificate ends."""
        return _certificate(self.certificate).not_valid_after_utc

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate."""
        return fingerprint(self.certificate)

    def sign(self, data: bytes) -> bytes:
        """ECDSA with SHA-256 under the party's key."""
        key = serialization.load_pem_private_key(self.key.encode(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{self.party}: the key of the invitation is not of the kind that we issue.")
        return key.sign(data, ec.ECDSA(hashes.SHA256()))


@dataclass(frozen=True, kw_only=True)
class ServerIdentity:
    """What the server shows, and by what it knows the parties."""

    authority: bytes
    certificate: bytes
    key: bytes
    roster: "Roster"


class Roster:
    """The federation file: parties with their fingerprints, and what was revoked. Read again when it changes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: tuple[int, int] | None = None
        self._values: dict[str, Any] = {}
        self.read()

    def read(self) -> dict[str, Any]:
        """The file's content, from memory where it has not changed."""
        try:
            stat = self.path.stat()
        except OSError as error:
            raise ConfigError(f"{self.path}: no federation is founded here ({error.strerror}).") from None
        if (seen := (stat.st_mtime_ns, stat.st_ino)) != self._seen:
            self._values, self._seen = _read_toml(self.path, "a federation"), seen
        return self._values

    @property
    def name(self) -> str:
        """The federation's name."""
        return str(self.read()["name"])

    @property
    def address(self) -> str:
        """Where parties dial: HOST:PORT."""
        return str(self.read()["address"])

    @property
    def parties(self) -> tuple[str, ...]:
        """Those who were invited and not revoked."""
        return tuple(self.read()["parties"])

    def refusal(self, party: str, certificate: str | bytes, *, now: datetime | None = None) -> str | None:
        """Why this certificate does not stand for this party; None if it does."""
        values, shown = self.read(), _certificate(certificate)
        now, mark = now or datetime.now(UTC), fingerprint(certificate)
        if _common_name(shown) != party:
            return "the certificate bears another name"
        if mark in values["revoked"]:
            return "the certificate was revoked"
        if party not in values["parties"]:
            return "no such party was invited"
        if values["parties"][party]["fingerprint"] != mark:
            return "the certificate is not the one on the roster"
        if not shown.not_valid_before_utc <= now <= shown.not_valid_after_utc:
            return "the certificate is not valid at this time"
        return None


class Authority:
    """The federation's folder, with the key that signs. `found` makes one."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.roster = Roster(self.folder / "federation.toml")

    @classmethod
    def found(cls, folder: str | Path, *, name: str, address: str, days: int = DAYS) -> "Authority":
        """A new federation, whose parties will dial `address` (HOST:PORT). ArtefactError if one is here."""
        folder = Path(folder)
        _plain(name)
        _host(address)
        if (folder / "federation.toml").exists() or (folder / "ca.key").exists():
            raise ArtefactError(f"{folder} already has a federation in it. Nothing was changed.")
        key = ec.generate_private_key(ec.SECP256R1())
        root = _issue(name, name, key.public_key(), key, None, days=_AUTHORITY_DAYS)
        _write_secret(folder / "ca.key", _pem_key(key))
        (folder / "ca.pem").write_bytes(_pem(root))
        body = {"name": name, "address": address, "revoked": [], "parties": {}}
        _replace(folder / "federation.toml", tomli_w.dumps(body).encode())
        authority = cls(folder)
        authority.renew_server(days=days)
        return authority

    def invite(self, party: str, *, days: int = DAYS) -> Path:
        """A new certificate and key for `party`; one that it had before is refused from now on."""
        _plain(party)
        whole(days=days)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _pem(self._sign(party, key.public_key(), ExtendedKeyUsageOID.CLIENT_AUTH, days))
        invitation = Invitation(
            federation=self.roster.name,
            party=party,
            address=self.roster.address,
            authority=(self.folder / "ca.pem").read_text(),
            certificate=certificate.decode(),
            key=_pem_key(key).decode(),
        )
        path = invitation.save(self.folder / "invitations" / f"{party}.toml")
        entry = {"fingerprint": invitation.fingerprint, "expires": invitation.expires.date().isoformat()}
        self._pin(party, entry)
        return path

    renew = invite  # the same act: a fresh key, a fresh pin, and the old certificate is out

    def revoke(self, party: str) -> None:
        """Refuse the party's certificate from now on, also on a server that is running."""
        if party not in self.roster.parties:
            raise ConfigError(f"{party} is not on the roster of {self.roster.name}. Nothing was changed.")
        self._pin(party, None)

    def renew_server(self, *, days: int = DAYS) -> None:
        """A fresh key and certificate for the server. Invitations stay good: they trust the authority."""
        whole(days=days)
        key = ec.generate_private_key(ec.SECP256R1())
        shown = self._sign(SERVER, key.public_key(), ExtendedKeyUsageOID.SERVER_AUTH, days)
        _write_secret(self.folder / "server.key", _pem_key(key))
        _replace(self.folder / "server.pem", _pem(shown))

    def server(self) -> ServerIdentity:
        """What a server of this federation runs with."""
        return load_server(self.folder)

    def _sign(
        self, name: str, key: ec.EllipticCurvePublicKey, use: x509.ObjectIdentifier, days: int
    ) -> x509.Certificate:
        try:
            signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), password=None)
        except OSError as error:
            raise ConfigError(f"The authority's key is not here ({error.strerror}).") from None
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise ConfigError("ca.key is not of the kind that we make.")
        host = _host(self.roster.address) if use == ExtendedKeyUsageOID.SERVER_AUTH else None
        return _issue(name, self.roster.name, key, signer, use, days=days, host=host)

    def _pin(self, party: str, entry: dict[str, str] | None) -> None:
        values = self.roster.read()
        parties = dict(values["parties"])
        old = parties.pop(party, None)
        revoked = [*values["revoked"], old["fingerprint"]] if old else values["revoked"]
        if entry is not None:
            parties[party] = entry
        body = tomli_w.dumps(values | {"parties": parties, "revoked": revoked})
        _replace(self.roster.path, body.encode())


def load_server(folder: str | Path) -> ServerIdentity:
    """A server's identity from the federation's folder; the authority's key is not needed."""
    folder = Path(folder)
    roster = Roster(folder / "federation.toml")
    try:
        parts = {name: (folder / name).read_bytes() for name in ("ca.pem", "server.pem", "server.key")}
    except OSError as error:
        raise ConfigError(f"{folder}: the server's identity cannot be read ({error.strerror}).") from None
    return ServerIdentity(
        authority=parts["ca.pem"], certificate=parts["server.pem"], key=parts["server.key"], roster=roster
    )


def fingerprint(certificate: str | bytes) -> str:
    """SHA-256 of a certificate, as the federation file has it."""
    return "sha256:" + _certificate(certificate).fingerprint(hashes.SHA256()).hex()


def verify(certificate: str | bytes, signature: bytes, data: bytes) -> bool:
    """Whether the holder of this certificate signed these bytes."""
    key = _certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def common_name(certificate: str | bytes) -> str:
    """The name that a certificate bears."""
    return _common_name(_certificate(certificate))


def _issue(
    name: str,
    federation: str,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    use: x509.ObjectIdentifier | None,
    *,
    days: int,
    host: x509.GeneralName | None = None,
) -> x509.Certificate:
    """A certificate; with no `use` it is the authority's own."""
    now = datetime.now(UTC)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
        ]
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {federation}"[:64])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(issuer if use is None else subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=use is None, path_length=0 if use is None else None), True)
    )
    if use is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=True)
    if host is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER), host]), False)
    return builder.sign(signer, hashes.SHA256())


def _certificate(pem: str | bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem.encode() if isinstance(pem, str) else pem)
    except ValueError:
        raise MessageError("This is not a certificate.") from None


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _host(address: str) -> x509.GeneralName:
    """The host of HOST:PORT as a certificate names it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"address must be HOST:PORT, not {address!r}.")
    host = host.strip("[]")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _plain(name: str) -> None:
    """A name stands in certificates, file names and error texts."""
    if not 0 < len(name) <= 48 or not name.isprintable() or name[0] == "." or set(name) & set('/\\:"'):
        raise ConfigError(
            f'name must be 1 to 48 plain characters without / \\ : " and no dot first, not {name!r}.'
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_secret(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(".part")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    return draft.replace(path)


def _replace(path: Path, data: bytes) -> None:
    (draft := path.with_suffix(".part")).write_bytes(data)
    draft.replace(path)


def _read_toml(path: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError:
        raise ConfigError(f"{path.name} is not {what}: not a valid TOML file.") from None
