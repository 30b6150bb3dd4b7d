"""A silo's end of the exchange: subscribe, push, pull.

    with Client("https://exchange.example.org", token) as client:
        requirements = client.subscribe("ward")
        client.push("ward", generator)
        pool = [client.pull("ward", offer["digest"]) for offer in client.offers("ward", epsilon=1.0)]

Guarantee: the server is not trusted. What is pulled has the SHA-256 that was asked for, its network comes from the list
in `generator`, it passes the pool's own checks here too, in a process with a limit on memory and time, and nothing is
executed. What is pushed is checked here first, so that a refusal costs no upload.
Edges: a server that is away, busy or asks to wait is tried again, up to `tries` times; a push that was stored although
its acknowledgement got lost counts as done.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from hashlib import file_digest
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ArtefactError
from understudy.ground.tensors_file import MOST_HEADER
from understudy.protocols.sgde.offer import Requirements
from understudy.services.exchange.checker import checkers
from understudy.services.exchange.offer_file import OfferFile, digest_of, seal
from understudy.services.exchange.transport import Transport, Watch


class Client:
    """A connection to one exchange with one token. `ca` is a file of authorities to trust besides the usual ones.

    `watch` of push and pull is told the bytes so far and the bytes in all.
    """

    def __init__(
        self, address: str, token: str, *, ca: str | Path | None = None, tries: int = 6, seconds: float = 60.0
    ) -> None:
        self._transport = Transport(address, token, ca=ca, tries=tries, seconds=seconds)
        self._requirements: dict[str, Requirements] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    # A silo

    def me(self) -> dict[str, Any]:
        """For whom this token speaks: silo, role and, of a member, the pool."""
        return dict(self._transport.json("GET", "me"))

    def pools(self) -> list[dict[str, Any]]:
        """The pools of this token: name, requirements, created."""
        return list(self._transport.json("GET", "pools"))

    def subscribe(self, pool: str) -> Requirements:
        """Join a pool and learn what it requires. Joining twice changes nothing."""
        answer = self._transport.json("PUT", f"pools/{pool}/subscription")
        self._requirements[pool] = Requirements.from_dict(answer["requirements"])
        return self._requirements[pool]

    def push(self, pool: str, generator: GeneratorParts, *, watch: Watch | None = None) -> dict[str, Any]:
        """Offer a generator; what the exchange then says of it."""
        data = seal(generator)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "offer"
            path.write_bytes(data)
            self._check(pool, path)
        digest = digest_of(data)
        self._transport.upload(f"pools/{pool}/offers/{digest}", data, watch)
        return self.offer(pool, digest)

    def offers(
        self,
        pool: str,
        *,
        labels: Sequence[Any] = (),
        silos: Sequence[str] = (),
        epsilon: float | None = None,
    ) -> list[dict[str, Any]]:
        """What is on offer: of these classes, of these silos, at this ε or less."""
        query: dict[str, Any] = {"label": [json.dumps(label) for label in labels], "silo": list(silos)}
        if epsilon is not None:
            query["epsilon"] = epsilon
        return list(self._transport.json("GET", f"pools/{pool}/offers", params=query))

    def offer(self, pool: str, digest: str) -> dict[str, Any]:
        """One offer with its card and a few of its rows."""
        return dict(self._transport.json("GET", f"pools/{pool}/offers/{digest}"))

    def pull(
        self, pool: str, digest: str, *, to: str | Path | None = None, watch: Watch | None = None
    ) -> Generator:
        """Take a generator; with `to`, it is also saved as that folder, whole or not at all."""
        most = self._required(pool).largest + MOST_HEADER
        checkers().warm()  # while the file is on its way
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "offer"
            self._transport.download(f"pools/{pool}/offers/{digest}/file", path, most, watch)
            with path.open("rb") as file:
                found = file_digest(file, "sha256").hexdigest()
            if found != digest:
                raise ArtefactError(f"{found} arrived, but {digest} was asked for. Nothing was kept.")
            generator = self._check(pool, path)
        if to is not None:
            _save(generator, Path(to))
        return generator

    def withdraw(self, pool: str, digest: str) -> None:
        """Take back an offer of this silo. What others pulled stays with them."""
        self._transport.json("DELETE", f"pools/{pool}/offers/{digest}")

    def _required(self, pool: str) -> Requirements:
        return self._requirements.get(pool) or self.subscribe(pool)

    def _check(self, pool: str, path: Path) -> Generator:
        """The same as the server does, in a process that can be ended; what passes is small enough to be built here."""
        required = self._required(pool)
        checkers().check(path, required)
        return OfferFile.read(path, required).generator()

    # An administrator

    def found(self, pool: str, requirements: Requirements) -> None:
        """Found a pool."""
        self._transport.json("POST", "pools", json={"name": pool, "requirements": requirements.to_dict()})

    def tokens(self) -> list[dict[str, Any]]:
        """All tokens, without their secrets."""
        return list(self._transport.json("GET", "tokens"))

    def issue(self, silo: str, *, pool: str | None = None, role: str = "member") -> str:
        """A new token. It can be read this once."""
        body = {"silo": silo, "role": role, "pool": pool}
        return str(self._transport.json("POST", "tokens", json=body)["token"])

    def revoke(self, id: str) -> dict[str, Any]:
        """End a token, from the next request on."""
        return dict(self._transport.json("DELETE", f"tokens/{id}"))

    def events(self, *, after: int = 0) -> list[dict[str, Any]]:
        """The audit log after this line, oldest first; at most a thousand lines."""
        return list(self._transport.json("GET", "events", params={"after": after}))


def _save(generator: Generator, folder: Path) -> None:
    """Write beside, then rename: the folder is a whole generator or is not there."""
    if folder.exists():
        raise ArtefactError(f"{folder} is there already. Nothing was overwritten.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        generator.save(aside)
        aside.chmod(0o755)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
