"""Who is who: what a party shows, what the server shows, and the roster by which the
server knows the parties.

A party is its name *and* its fingerprint: the authority's signature alone admits
nobody, so that a certificate which was replaced or revoked is refused although it has
not expired. Revoking takes effect on a running server.

The federation's authority founds it, invites parties, exchanges invitations for
certificates, and revokes. A federation is a folder at the server:

    ca.key, ca.pem            the authority; the key is needed to invite, enrol and
                              renew, and may then go offline
    server.key, server.pem    what the server shows
    federation.toml           its name, its address, and each party with the fingerprint
                              of its certificate
    invitations/NAME.toml     to be handed to NAME over a channel that both trust, and
                              then deleted

An invitation is a short-lived certificate with its key, on the roster as "once". The
party makes a key of its own, which is never anywhere else, shows the invitation, and
sends a signing request; what it gets back is on the roster from then on, and the
invitation is worth nothing. So whoever made or copied an invitation can at most be
first, and the party, refused, will notice. A party whose connection broke before it had
its certificate may ask again, with the same key.

Guarantee: private keys are written readable by their owner alone; nothing here touches
a row.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from understudy.ground.check import plain_name, plain_names, whole
from understudy.ground.durable import load_toml, own_file, own_folder, replace
from understudy.ground.errors import ArtefactError, ConfigError, Effect, PartyError
from understudy.runtime import AUTHORITY_DAYS, DAYS, INVITED_DAYS, certificates
from understudy.runtime.certificates import (
    FOR_PARTY,
    FOR_SERVER,
    SERVER,
    PublicKey,
    common_name,
    fingerprint,
)


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """A party's certificate, key and whom to dial, in one secret file; with `once` an
    invitation, to be exchanged.
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
        """Read an invitation, or a party's own identity. ConfigError if it is
        neither.
        """
        values = load_toml(Path(path), "the invitation")
        kinds = {
            name: bool if name == "once" else str for name in cls.__dataclass_fields__
        }
        if values.keys() != kinds.keys() or any(
            type(values[name]) is not kinds[name] for name in kinds
        ):
            raise ConfigError(f"{Path(path).name} is not an invitation.")
        # The party's name becomes that of its folder and its ledger, and whoever wrote
        # this file chose it.
        plain_name(
            party=values["party"],
            federation=values["federation"],
            effect=Effect.NOTHING_SENT,
        )
        return cls(**values)

    def save(self, path: str | Path) -> Path:
        return replace(Path(path), tomli_w.dumps(asdict(self)).encode())

    @property
    def expires(self) -> datetime:
        return certificates.load(self.certificate).not_valid_after_utc

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate)

    def sign(self, data: bytes) -> bytes:
        return certificates.sign(self.key.encode(), data)

    def check_time(self, now: datetime | None = None) -> None:
        """ConfigError if by this machine's clock the certificate has not begun, or has
        ended.
        """
        whose = f"{self.party}'s {'invitation' if self.once else 'certificate'}"
        then = (
            "ask the operator for a new invitation (`understudy federation renew "
            f"{self.party}`)"
        )
        check_time(whose, self.certificate, then, now)


@dataclass(frozen=True, kw_only=True)
class ServerIdentity:
    """What the server shows, and by what it knows the parties. `folder` is the
    federation's.
    """

    authority: bytes
    certificate: bytes
    key: bytes
    roster: "Roster"
    folder: Path


class Roster:
    """The federation file: parties with their fingerprints, and what was revoked. Read
    again when it changes.
    """

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
        version = (stat.st_mtime_ns, stat.st_ino)
        if version != self._seen:
            values = load_toml(self.path, "the federation file")
            if not {"name", "address", "days", "revoked", "parties"} <= values.keys():
                raise ConfigError(f"{self.path.name} is not a federation file.")
            self._values = values
            self._seen = version
        return self._values

    @property
    def name(self) -> str:
        return str(self.read()["name"])

    @property
    def address(self) -> str:
        return str(self.read()["address"])

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.read()["parties"])

    def refusal(
        self, party: str, certificate: str | bytes, *, now: datetime | None = None
    ) -> str | None:
        """Why this certificate does not stand for this party; None if it does."""
        values = self.read()
        mark = fingerprint(certificate)
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
        """Whether this is an invitation that can be exchanged: unused, or used by the
        same key before.
        """
        entry = self.read()["parties"].get(party)
        mark = fingerprint(certificate)
        if (
            entry is None
            or common_name(certificate) != party
            or not certificates.valid(certificate)
        ):
            return False
        return bool(
            mark
            == (entry["fingerprint"] if entry.get("once") else entry.get("invitation"))
        )


def load_server(folder: str | Path) -> ServerIdentity:
    """A server's identity from the federation's folder; the authority's key is not
    needed.
    """
    folder = Path(folder)
    roster = Roster(folder / "federation.toml")
    try:
        parts = {
            name: (folder / name).read_bytes()
            for name in ("ca.pem", "server.pem", "server.key")
        }
    except OSError as error:
        raise ConfigError(
            f"{folder}: the server's identity cannot be read ({error.strerror})."
        ) from None
    for what, name in (("authority's", "ca.pem"), ("server's", "server.pem")):
        check_time(
            f"The {what} certificate",
            parts[name],
            "`understudy federation renew --server` makes a new one",
        )
    return ServerIdentity(
        authority=parts["ca.pem"],
        certificate=parts["server.pem"],
        key=parts["server.key"],
        roster=roster,
        folder=folder,
    )


def check_time(
    whose: str, certificate: str | bytes, then: str, now: datetime | None = None
) -> None:
    """ConfigError if a certificate has not begun or has ended by this machine's clock,
    and what to do then.
    """
    if certificates.valid(certificate, now := now or datetime.now(UTC)):
        return
    parsed = certificates.load(certificate)
    early = now < parsed.not_valid_before_utc
    limit = parsed.not_valid_before_utc if early else parsed.not_valid_after_utc
    raise ConfigError(
        f"{whose} {'begins' if early else 'ended'} on {limit:%Y-%m-%d %H:%M} UTC, and "
        f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC. If the clock is wrong, "
        f"set it; if it is right, {then}.",
        effect=Effect.NOTHING_SENT,
    )


class Authority:
    """The federation's folder, with the key that signs. `found` makes one."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.roster = Roster(self.folder / "federation.toml")

    @classmethod
    def create(
        cls, folder: str | Path, *, name: str, address: str, days: int = DAYS
    ) -> "Authority":
        """A new federation: parties will dial `address`, certificates last `days`.
        ArtefactError if one is here.
        """
        folder = Path(folder)
        plain_name(name=name)
        certificates.host_of(address)
        whole(days=days)
        if (folder / "federation.toml").exists() or (folder / "ca.key").exists():
            raise ArtefactError(
                f"{folder} already has a federation in it.",
                effect=Effect.NOTHING_CHANGED,
            )
        own_folder(folder)
        key = certificates.new_key()
        root = certificates.issue(
            name, name, key.public_key(), key, None, days=AUTHORITY_DAYS
        )
        replace(folder / "ca.key", certificates.key_pem(key))
        replace(folder / "ca.pem", root)
        body = {
            "name": name,
            "address": address,
            "days": days,
            "revoked": [],
            "parties": {},
        }
        replace(folder / "federation.toml", tomli_w.dumps(body).encode())
        authority = cls(folder)
        authority.renew_server()
        return authority

    def invite(self, party: str, *, days: int = INVITED_DAYS) -> Path:
        """An invitation, good for so many days; a certificate that the party had before
        is refused from now on.
        """
        return self._new_invitation(party, days, once=True).save(
            self.folder / "invitations" / f"{party}.toml"
        )

    # the same act: a fresh key, a fresh pin, and the old certificate is out
    renew = invite

    def issue(self, party: str, *, days: int | None = None) -> Invitation:
        """An identity for a party that cannot reach the authority's server; who runs
        this can pose as that party.
        """
        return self._new_invitation(party, days or self.days, once=False)

    def enrol(self, party: str, invitation: bytes, request: bytes) -> bytes:
        """Exchange an invitation: the certificate for the key of a signing request.
        PartyError if it cannot be.
        """
        key = certificates.requested_key(request)
        mark = certificates.key_mark(key)
        with self._locked():
            entry = self.roster.read()["parties"].get(party)
            used = (
                entry is not None and not entry.get("once") and entry.get("key") != mark
            )
            if used or not self.roster.may_enrol(party, invitation):
                raise PartyError(
                    "the invitation was exchanged already, or is no longer valid"
                )
            certificate = self._sign(party, key, self.days)
            self._pin(party, certificate, key=mark, invitation=fingerprint(invitation))
        return certificate

    def revoke(self, party: str) -> None:
        """Refuse the party's certificate from now on, also on a server that is
        running.
        """
        with self._locked():
            if party not in self.roster.parties:
                raise ConfigError(
                    f"{party} is not on the roster of {self.roster.name}.",
                    effect=Effect.NOTHING_CHANGED,
                )
            self._pin(party, None)

    def renew_server(self, *, days: int | None = None) -> None:
        """A fresh key and certificate for the server. Invitations stay good: they trust
        the authority.
        """
        key = certificates.new_key()
        host = certificates.host_of(self.roster.address)
        certificate = self._sign(
            SERVER, key.public_key(), days or self.days, FOR_SERVER, host=host
        )
        replace(self.folder / "server.key", certificates.key_pem(key))
        replace(self.folder / "server.pem", certificate)

    @property
    def days(self) -> int:
        return int(self.roster.read()["days"])

    def _new_invitation(self, party: str, days: int, *, once: bool) -> Invitation:
        plain_names(
            {*self.roster.parties, party}, "party", effect=Effect.NOTHING_CHANGED
        )
        whole(days=days)
        own_folder(self.folder / "invitations")
        key = certificates.new_key()
        certificate = self._sign(party, key.public_key(), days)
        with self._locked():
            self._pin(party, certificate, **({"once": True} if once else {}))
        return Invitation(
            federation=self.roster.name,
            party=party,
            address=self.roster.address,
            authority=(self.folder / "ca.pem").read_text(),
            certificate=certificate.decode(),
            key=certificates.key_pem(key).decode(),
            once=once,
        )

    def _sign(
        self, name: str, key: PublicKey, days: int, use: Any = FOR_PARTY, **more: Any
    ) -> bytes:
        try:
            signer = certificates.load_key((self.folder / "ca.key").read_bytes())
        except OSError as error:
            raise ConfigError(
                f"The authority's key is not here ({error.strerror}). Put ca.key back "
                "into the federation's folder."
            ) from None
        return certificates.issue(
            name, self.roster.name, key, signer, use, days=days, **more
        )

    def _pin(self, party: str, certificate: bytes | None, **facts: Any) -> None:
        """Put the party's certificate on the roster, or take it off; the one before is
        revoked.
        """
        values = self.roster.read()
        parties = dict(values["parties"])
        old = parties.pop(party, None)
        spent = {old["fingerprint"], old.get("invitation")} if old else set()
        revoked = values["revoked"] + sorted(spent - {None, facts.get("invitation")})
        if certificate is not None:
            ends = certificates.load(certificate).not_valid_after_utc.date().isoformat()
            parties[party] = {
                "fingerprint": fingerprint(certificate),
                "expires": ends,
                **facts,
            }
        replace(
            self.roster.path,
            tomli_w.dumps(values | {"revoked": revoked, "parties": parties}).encode(),
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer of the roster at a time: a server that enrols, and an operator who
        invites.
        """
        with os.fdopen(own_file(self.folder / ".lock", os.O_RDWR), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
