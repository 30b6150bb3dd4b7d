"""Keys, requests and certificates: elliptic curves (P-256) with SHA-256, in PEM."""

import hashlib
import ipaddress
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from understudy.ground.errors import ConfigError, MessageError

# every server's name inside its own federation, wherever it listens
SERVER = "server.understudy"
SKEW = timedelta(minutes=10)  # clocks of institutions differ
FOR_PARTY = ExtendedKeyUsageOID.CLIENT_AUTH
FOR_SERVER = ExtendedKeyUsageOID.SERVER_AUTH

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_key(pem: bytes) -> PrivateKey:
    """The inverse of `key_pem`. ConfigError for any other kind of key."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, PrivateKey):
        raise ConfigError("This is not a key of the kind that we make.")
    return key


def sign(key: bytes, data: bytes) -> bytes:
    return load_key(key).sign(data, ec.ECDSA(hashes.SHA256()))


def verify(certificate: str | bytes, signature: bytes, data: bytes) -> bool:
    key = load(certificate).public_key()
    if not isinstance(key, PublicKey):
        return False
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def request(key: PrivateKey, name: str) -> bytes:
    """A request to certify this key under this name, signed with the key itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(key, hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def requested_key(pem: bytes) -> PublicKey:
    """The key of a request whose sender has its private half. MessageError for anything
    else.
    """
    try:
        signing_request = x509.load_pem_x509_csr(pem)
        key = signing_request.public_key()
        sound = (
            signing_request.is_signature_valid
            and isinstance(key, PublicKey)
            and key.curve.name == "secp256r1"
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        sound = False
    if not sound:
        raise MessageError("This is not a request for a certificate.")
    assert isinstance(key, PublicKey)
    return key


def key_mark(key: PublicKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return (
        "sha256:"
        + hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()
    )


def issue(
    name: str,
    federation: str,
    key: PublicKey,
    signer: PrivateKey,
    use: x509.ObjectIdentifier | None,
    *,
    days: int,
    host: x509.GeneralName | None = None,
) -> bytes:
    """A certificate; with no `use` it is the authority's own."""
    now = datetime.now(UTC)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
        ]
    )
    # X.509 counts bytes
    authority = f"authority of {federation}".encode()[:64].decode(errors="ignore")
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, authority)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(issuer if use is None else subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(
                ca=use is None, path_length=0 if use is None else None
            ),
            True,
        )
    )
    if use is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=True)
    if host is not None:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(SERVER), host]), False
        )
    return builder.sign(signer, hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )


@lru_cache(maxsize=256)  # a server looks at the same few for every ask
def load(pem: str | bytes) -> x509.Certificate:
    """The certificate. MessageError for anything else."""
    try:
        return x509.load_pem_x509_certificate(
            pem.encode() if isinstance(pem, str) else pem
        )
    except ValueError:
        raise MessageError("This is not a certificate.") from None


@lru_cache(maxsize=256)
def fingerprint(certificate: str | bytes) -> str:
    return "sha256:" + load(certificate).fingerprint(hashes.SHA256()).hex()


@lru_cache(maxsize=256)
def common_name(certificate: str | bytes) -> str:
    names = load(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def valid(certificate: str | bytes, now: datetime | None = None) -> bool:
    parsed = load(certificate)
    return (
        parsed.not_valid_before_utc
        <= (now or datetime.now(UTC))
        <= parsed.not_valid_after_utc
    )


def host_of(address: str) -> x509.GeneralName:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"address must be HOST:PORT, not {address!r}.")
    host = host.strip("[]")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
