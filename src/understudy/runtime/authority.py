"""The federation's authority: founds it, invites parties, exchanges invitations for certificates, revokes.

A federation is a folder at the server:

    ca.key, ca.pem            the authority; the key is needed to invite, enrol and renew, and may then go offline
    server.key, server.pem    what the server shows
    federation.toml           its name, its address, and each party with the fingerprint of its certificate
    invitations/NAME.toml     to be handed to NAME over a channel that both trust, and then deleted

An invitation is a short-lived certificate with its key, on the roster as "once". The party makes a key of its
own, shows the invitation, and sends a signing request; what it gets back is on the roster from then on, and the
invitation is worth nothing. So whoever made or copied an invitation can at most be first, and the party, refused,
will notice. A party whose connection broke before it had its certificate may ask again, with the same key.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from understudy.ground.check import plain_name, plain_names, whole
from understudy.ground.durable import own_file, own_folder, replace
from understudy.ground.errors import ArtefactError, ConfigError, PartyError
from understudy.runtime import certificates
from understudy.runtime.certificates import FOR_PARTY, FOR_SERVER, SERVER, PublicKey, fingerprint
from understudy.runtime.identity import Invitation, Roster, ServerIdentity, load_server
from understudy.runtime.lifetimes import AUTHORITY_DAYS, DAYS, INVITED_DAYS


class Authority:
    """The federation's folder, with the key that signs. `found` makes one."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.roster = Roster(self.folder / "federation.toml")

    @classmethod
    def found(cls, folder: str | Path, *, name: str, address: str, days: int = DAYS) -> "Authority":
        """A new federation, whose parties will dial `address` (HOST:PORT). ArtefactError if one is here.

        `days` is how long the certificates of the server and the parties are good.
        """
        folder = Path(folder)
        plain_name(name=name)
        certificates.host_of(address)
        whole(days=days)
        if (folder / "federation.toml").exists() or (folder / "ca.key").exists():
            raise ArtefactError(f"{folder} already has a federation in it. Nothing was changed.")
        own_folder(folder)
        key = certificates.new_key()
        root = certificates.issue(name, name, key.public_key(), key, None, days=AUTHORITY_DAYS)
        replace(folder / "ca.key", certificates.key_pem(key))
        replace(folder / "ca.pem", root)
        body = {"name": name, "address": address, "days": days, "revoked": [], "parties": {}}
        replace(folder / "federation.toml", tomli_w.dumps(body).encode())
        authority = cls(folder)
        authority.renew_server()
        return authority

    def invite(self, party: str, *, days: int = INVITED_DAYS) -> Path:
        """An invitation, good for so many days; a certificate that the party had before is refused from now on."""
        invitation = self._made(party, days, once=True)
        return invitation.save(self.folder / "invitations" / f"{party}.toml")

    renew = invite  # the same act: a fresh key, a fresh pin, and the old certificate is out

    def issue(self, party: str, *, days: int | None = None) -> Invitation:
        """A finished identity, for a party that cannot reach a server with the authority's key.

        Edges: whoever runs this holds the party's key, and can pose as that party to the server.
        """
        return self._made(party, days or self.days, once=False)

    def enrol(self, party: str, shown: bytes, request: bytes) -> bytes:
        """Exchange an invitation: the certificate for the key of a signing request. PartyError if it cannot be."""
        key = certificates.requested_key(request)
        mark = certificates.key_mark(key)
        with self._locked():
            entry = self.roster.read()["parties"].get(party)
            used = entry is not None and not entry.get("once") and entry.get("key") != mark
            if used or not self.roster.may_enrol(party, shown):
                raise PartyError("the invitation was exchanged already, or is no longer valid")
            certificate = self._sign(party, key, self.days)
            self._pin(party, certificate, key=mark, invitation=fingerprint(shown))
        return certificate

    def revoke(self, party: str) -> None:
        """Refuse the party's certificate from now on, also on a server that is running."""
        with self._locked():
            if party not in self.roster.parties:
                raise ConfigError(f"{party} is not on the roster of {self.roster.name}. Nothing was changed.")
            self._pin(party, None)

    def renew_server(self, *, days: int | None = None) -> None:
        """A fresh key and certificate for the server. Invitations stay good: they trust the authority."""
        key = certificates.new_key()
        host = certificates.host_of(self.roster.address)
        shown = self._sign(SERVER, key.public_key(), days or self.days, FOR_SERVER, host=host)
        replace(self.folder / "server.key", certificates.key_pem(key))
        replace(self.folder / "server.pem", shown)

    @property
    def days(self) -> int:
        """How long certificates are good here."""
        return int(self.roster.read()["days"])

    def server(self) -> ServerIdentity:
        """What a server of this federation runs with."""
        return load_server(self.folder)

    def _made(self, party: str, days: int, *, once: bool) -> Invitation:
        plain_names({*self.roster.parties, party}, "party", nothing="Nothing was changed.")
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

    def _sign(self, name: str, key: PublicKey, days: int, use: Any = FOR_PARTY, **more: Any) -> bytes:
        try:
            signer = certificates.load_key((self.folder / "ca.key").read_bytes())
        except OSError as error:
            raise ConfigError(
                f"The authority's key is not here ({error.strerror}). Put ca.key back into the federation's folder."
            ) from None
        return certificates.issue(name, self.roster.name, key, signer, use, days=days, **more)

    def _pin(self, party: str, certificate: bytes | None, **facts: Any) -> None:
        """Put the party's certificate on the roster, or take it off; the one before is revoked."""
        values = self.roster.read()
        parties = dict(values["parties"])
        old = parties.pop(party, None)
        spent = {old["fingerprint"], old.get("invitation")} if old else set()
        revoked = values["revoked"] + sorted(spent - {None, facts.get("invitation")})
        if certificate is not None:
            ends = certificates.load(certificate).not_valid_after_utc.date().isoformat()
            parties[party] = {"fingerprint": fingerprint(certificate), "expires": ends, **facts}
        replace(self.roster.path, tomli_w.dumps(values | {"revoked": revoked, "parties": parties}).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer of the roster at a time: a server that enrols, and an operator who invites."""
        with os.fdopen(own_file(self.folder / ".lock", os.O_RDWR), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
