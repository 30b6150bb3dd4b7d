"""Who is who: what a party shows, what the server shows, and the roster by which the server knows the parties.

A party is its name *and* its fingerprint: the authority's signature alone admits nobody, so that a certificate
which was replaced or revoked is refused although it has not expired. Revoking takes effect on a running server.

An invitation is good for one thing: to be exchanged, once, for a certificate whose key the party made itself
(`runtime.authority`). The key that a party works with has never been anywhere else.

Guarantee: private keys are written readable by their owner alone; nothing here touches a row.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from understudy.ground.bounded import load_toml
from understudy.ground.check import plain_name
from understudy.ground.durable import replace
from understudy.ground.errors import ConfigError
from understudy.runtime import certificates
from understudy.runtime.certificates import SERVER, common_name, fingerprint, verify

__all__ = [
    "SERVER",
    "Invitation",
    "Roster",
    "ServerIdentity",
    "common_name",
    "fingerprint",
    "load_server",
    "verify",
]


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What a party shows, in one secret file: certificate and key, and whom to dial.

    With `once` it is an invitation to be exchanged; without, it is the party's own, and `invitation` is the
    fingerprint of the one that it came from.
    """

    federation: str
    party: str
    address: str
    authority: str
    certificate: str
    key: str
    once: bool = False
    invitation: str = ""

    @classmethod
    def load(cls, path: str | Path) -> "Invitation":
        """Read an invitation, or a party's own identity. ConfigError if it is neither."""
        values = load_toml(Path(path), "the invitation")
        kinds = {name: bool if name == "once" else str for name in cls.__dataclass_fields__}
        if values.keys() != kinds.keys() or any(type(values[name]) is not kinds[name] for name in kinds):
            raise ConfigError(f"{Path(path).name} is not an invitation.")
        # The party's name becomes that of its folder and its ledger, and whoever wrote this file chose it.
        plain_name(party=values["party"], federation=values["federation"], nothing="Nothing was sent.")
        return cls(**values)

    def save(self, path: str | Path) -> Path:
        """Write it, readable by its owner alone."""
        return replace(Path(path), tomli_w.dumps(asdict(self)).encode())

    @property
    def expires(self) -> datetime:
        """When the certificate ends."""
        return certificates.load(self.certificate).not_valid_after_utc

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate."""
        return fingerprint(self.certificate)

    def sign(self, data: bytes) -> bytes:
        """ECDSA with SHA-256 under the party's key."""
        return certificates.sign(self.key.encode(), data)

    def check_time(self, now: datetime | None = None) -> None:
        """ConfigError if by this machine's clock the certificate has not begun, or has ended."""
        whose = f"{self.party}'s {'invitation' if self.once else 'certificate'}"
        then = f"ask the operator for a new invitation (`understudy federation renew {self.party}`)"
        check_time(whose, self.certificate, then, now)


@dataclass(frozen=True, kw_only=True)
class ServerIdentity:
    """What the server shows, and by what it knows the parties. `folder` is the federation's."""

    authority: bytes
    certificate: bytes
    key: bytes
    roster: "Roster"
    folder: Path


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
            raise ConfigError(
                f"{self.path}: there is no federation here ({error.strerror}). "
                "`understudy federation init` creates one."
            ) from None
        if (seen := (stat.st_mtime_ns, stat.st_ino)) != self._seen:
            values = load_toml(self.path, "the federation file")
            if not {"name", "address", "days", "revoked", "parties"} <= values.keys():
                raise ConfigError(f"{self.path.name} is not a federation file.")
            self._values, self._seen = values, seen
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
        values, mark = self.read(), fingerprint(certificate)
        entry = values["parties"].get(party)
        if common_name(certificate) != party:
            return "the certificate has another name"
        if mark in values["revoked"]:
            return "the certificate was revoked"
        if entry is None:
            return "no such party was invited"
        if mark == entry.get("invitation"):
            return "the invitation was exchanged already, and not for this certificate"
        if entry["fingerprint"] != mark:
            return "the certificate is not the one on the roster"
        if not certificates.valid(certificate, now):
            return "the certificate is not valid at this time"
        if entry.get("once"):
            return "this is an invitation, which must be exchanged first"
        return None

    def may_enrol(self, party: str, certificate: str | bytes) -> bool:
        """Whether this is an invitation that can be exchanged: unused, or used by the same key before."""
        entry, mark = self.read()["parties"].get(party), fingerprint(certificate)
        if entry is None or common_name(certificate) != party or not certificates.valid(certificate):
            return False
        return bool(mark == (entry["fingerprint"] if entry.get("once") else entry.get("invitation")))


def load_server(folder: str | Path) -> ServerIdentity:
    """A server's identity from the federation's folder; the authority's key is not needed."""
    folder = Path(folder)
    roster = Roster(folder / "federation.toml")
    try:
        parts = {name: (folder / name).read_bytes() for name in ("ca.pem", "server.pem", "server.key")}
    except OSError as error:
        raise ConfigError(f"{folder}: the server's identity cannot be read ({error.strerror}).") from None
    for what, name in (("authority's", "ca.pem"), ("server's", "server.pem")):
        check_time(
            f"The {what} certificate", parts[name], "`understudy federation renew --server` makes a new one"
        )
    return ServerIdentity(
        authority=parts["ca.pem"],
        certificate=parts["server.pem"],
        key=parts["server.key"],
        roster=roster,
        folder=folder,
    )


def check_time(whose: str, certificate: str | bytes, then: str, now: datetime | None = None) -> None:
    """ConfigError if a certificate has not begun or has ended by this machine's clock, and what to do then."""
    if certificates.valid(certificate, now := now or datetime.now(UTC)):
        return
    shown = certificates.load(certificate)
    early = now < shown.not_valid_before_utc
    raise ConfigError(
        f"{whose} {'begins' if early else 'ended'} on "
        f"{shown.not_valid_before_utc if early else shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, and this machine's "
        f"clock says {now:%Y-%m-%d %H:%M} UTC. If the clock is wrong, set it; if it is right, {then}. Nothing was sent."
    )
