"""The server's end: `GrpcParties`, the parties of one signed contract behind one
port.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import grpc
from grpc import aio

from understudy.ground.check import not_negative, positive
from understudy.ground.errors import (
    ConfigError,
    ContractRefused,
    Effect,
    PartyAway,
    PartyError,
)
from understudy.protocols.core import Ask, Message
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.frames import METHOD, SERVER_OPTIONS, drive, run, why_not
from understudy.runtime.grpc.streams import Limits, Link, Open, PendingAsks, Streams
from understudy.runtime.identity import ServerIdentity
from understudy.runtime.journal import Answer, AuditLog
from understudy.runtime.local import RemoteParties, addressed
from understudy.runtime.wire import encode

_HURRY = 2.0  # seconds in which who is connected hears of the end


class GrpcParties(RemoteParties, AbstractContextManager["GrpcParties"]):
    """The parties of one contract, behind one port. A context manager; `close` sends
    them home.

    `kinds` are the messages of the protocol (its party's `messages`), `listen` the
    address to bind (the roster's by default), `patience` the seconds that an answer may
    take, with all interruptions, before PartyError, `away` those for which a party that
    was asked may be without a connection (as `patience`, unless given), `linger` those
    for which `close` waits for a party that is away, to tell it that the run is over,
    or why it is off; one that was given up because it had no connection is not waited
    for again.
    """

    def __init__(
        self,
        contract: Contract,
        identity: ServerIdentity,
        *,
        kinds: tuple[type[Message], ...],
        listen: str | None = None,
        patience: float = 3600.0,
        away: float | None = None,
        linger: float = 10.0,
        limits: Limits | None = None,
        log: AuditLog | None = None,
    ) -> None:
        positive(patience=patience, away=patience if away is None else away)
        not_negative(linger=linger)
        if contract.federation != identity.roster.name:
            raise ConfigError(
                f"The contract is of {contract.federation}, not of "
                f"{identity.roster.name}."
            )
        strange = [
            name for name in contract.parties if name not in identity.roster.parties
        ]
        if strange:
            raise ConfigError(
                f"{strange[0]} has no invitation to {contract.federation}.",
                effect=Effect.NOTHING_SENT,
            )
        super().__init__(contract, kinds)
        self.identity = identity
        self._started = time.time()
        self.patience = patience
        self.away = away
        self.linger = linger
        self.limits = limits or Limits()
        self.log = log or AuditLog(None)
        self._streams = Streams(
            contract, identity, patience=patience, limits=self.limits, log=self.log
        )
        self._links = self._streams.links
        self.port = run(self._start(listen or identity.roster.address))
        self.log.write(
            "started",
            run=contract.run,
            contract=contract.digest,
            parties=list(contract.parties),
        )

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        """Ask all the same, or each named party its own, at once; the replies in the
        order of the asks.

        A party that is away is waited for, `away` seconds: then PartyAway, or where
        `min_holders` of the asked have answered, their replies alone. If one refuses,
        an ask or the contract, that is raised whatever `min_holders` says; the others
        have still been asked, and may have paid.
        """
        asks = addressed(message, self.names)
        # the same to all is encoded once
        different = {id(ask): ask for ask in asks.values()}
        bodies = {
            key: encode(ask, limit=self.contract.message)
            for key, ask in different.items()
        }
        ask_bodies = {name: bodies[id(ask)] for name, ask in asks.items()}
        answers = self._present(drive(self._ask_all(asks, ask_bodies)), min_holders)
        for name, answer in answers.items():
            if answer.status == "reply":
                down = len(ask_bodies[name])
                up = len(answer.body)
                self.log.write(
                    "answer", party=name, ask=asks[name].kind(), down=down, up=up
                )
        return self._replies(asks, ask_bodies, answers)

    def wait(
        self,
        timeout: float,
        *,
        min_holders: int | None = None,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        """Until every party has signed the contract. PartyAway names who is missing,
        ContractRefused why one refused.

        With `min_holders` so many suffice once the time is over. Who refuses is not
        away, and ends it; or, with `refused`, the run is held: the others are told why
        and come back later, the one that refused may come and sign after all, and
        `refused` is called with the reason, again and again. What it raises ends the
        waiting.
        """
        until = time.monotonic() + timeout
        enough = len(self._links) if min_holders is None else min_holders
        while missing := [link for link in self._links.values() if not link.signed]:
            why = next((link.refusal for link in missing if link.refusal), "")
            if why and refused is None:
                raise ContractRefused(why)
            if why != self._streams.held:
                self._streams.held = why
                run(self._turn())
            if why and refused is not None:
                refused(why)
            if time.monotonic() > until:
                if len(self._links) - len(missing) >= enough:
                    return
                names = ", ".join(link.name for link in missing)
                raise PartyAway(
                    f"{names} did not join within {timeout:g} s.",
                    effect=Effect.NOTHING_SENT,
                )
            time.sleep(0.02)
        self._streams.held = ""

    def status(self) -> dict[str, Any]:
        """What a live view may show: who is there, how much went to and fro. No figure
        of any row.
        """
        facts = {
            name: getattr(self.contract, name)
            for name in ("federation", "run", "protocol")
        }
        facts |= {
            "contract": self.contract.digest,
            "port": self.port,
            "started": self._started,
        }
        return facts | {
            "parties": {link.name: link.status() for link in self._links.values()}
        }

    def close(self, *, over: bool = True, off: str = "", hurry: bool = False) -> None:
        """Tell every party that the run is over, or why it is `off`, and give the port
        back. Without either they are told nothing and wait: a server may come back and
        go on. Ctrl-C ends only the lingering; in a `hurry` only who is there is told.
        """
        if self._streams.ended:
            return
        try:
            self._streams.ended, self._streams.over, self._streams.off = (
                True,
                over and not off,
                off,
            )
            run(self._finish(min(self.linger, _HURRY) if hurry else self.linger))
        except KeyboardInterrupt:
            # whoever is not there yet is not waited for any longer; the outcome stands
            if not (over or off):
                raise
            run(self._server.stop(grace=1))
        event = "ended" if over else "stopped"
        if off:
            event = "off"
        self.log.write(event, run=self.contract.run)

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        # what ended the run, also where an interruption came while it was handled
        refused = error
        while refused is not None and not isinstance(refused, ContractRefused):
            refused = (
                refused.__context__ if isinstance(refused, KeyboardInterrupt) else None
            )
        hurry = refused is not None and refused is not error
        self.close(
            over=error is None, off="" if refused is None else str(refused), hurry=hurry
        )
        # Ctrl-C came after the refusal: that is why it ended, and all are told
        if hurry and refused is not None:
            raise refused from None

    def _present(
        self, outcomes: Mapping[str, Answer | PartyError], min_holders: int | None
    ) -> dict[str, Answer]:
        """The answers, if they are enough to go on without those who are away. Who
        refused the contract is not away.
        """
        for outcome in outcomes.values():
            if isinstance(outcome, PartyError) and not isinstance(outcome, PartyAway):
                raise outcome
        away = {
            name: outcome
            for name, outcome in outcomes.items()
            if isinstance(outcome, PartyAway)
        }
        if away and (min_holders is None or len(outcomes) - len(away) < min_holders):
            raise next(iter(away.values()))
        for name, why in away.items():
            self._links[name].left_out = True
            self.log.write("left out", party=name, why=str(why))
        return {
            name: outcome
            for name, outcome in outcomes.items()
            if isinstance(outcome, Answer)
        }

    # Below, everything runs in the loop's thread.

    async def _start(self, listen: str) -> int:
        self._server = aio.server(
            options=SERVER_OPTIONS, maximum_concurrent_rpcs=4 * len(self._links) + 16
        )
        handler = grpc.stream_stream_rpc_method_handler(self._streams.join)
        _, service, method = METHOD.split("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        identity = self.identity
        credentials = grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)],
            identity.authority,
            require_client_auth=True,
        )
        try:
            port = int(self._server.add_secure_port(listen, credentials))
        except RuntimeError:
            raise ConfigError(
                f"{listen} cannot be used for listening: {why_not(listen)}.",
                effect=Effect.NOTHING_SENT,
            ) from None
        await self._server.start()
        return port

    async def _finish(self, linger: float) -> None:
        self._streams.turn()
        lasting = self._streams.over or self._streams.off
        until = time.monotonic() + (linger if lasting else 0.0)
        while time.monotonic() < until and any(
            map(self._must_hear, self._links.values())
        ):
            await asyncio.sleep(0.02)
        await self._server.stop(grace=1)

    def _must_hear(self, link: Link) -> bool:
        """Whether the end waits for this party: of a run that is off, every one that
        has not refused it itself.
        """
        if link.told:
            return False
        if self._streams.off:
            return not link.refusal
        return bool(link.signed) and not (link.missed and link.stream is None)

    async def _turn(self) -> None:
        self._streams.turn()

    async def _ask_all(
        self, asks: Mapping[str, Ask], ask_bodies: Mapping[str, bytes]
    ) -> dict[str, Answer | PartyError]:
        """What comes of each ask, in their order; of who is not waited for any longer,
        that nothing came.
        """
        turn = PendingAsks(ask_bodies, time.monotonic() + self.patience)
        for name, body in ask_bodies.items():
            self._open(self._links[name], asks[name].kind(), body, turn)
        try:
            await self._await(turn)
        finally:  # an answer that comes later is not taken for that of the next ask
            for name in ask_bodies:
                link = self._links[name]
                if link.open is not None and link.open.turn is turn:
                    link.open = None
        return {
            name: turn.outcomes[name] for name in ask_bodies if name in turn.outcomes
        }

    async def _await(self, turn: PendingAsks) -> None:
        """Until all have answered or are given up: connected or not after `patience`
        seconds, or `away` too long.
        """
        max_away = self.patience if self.away is None else self.away
        lost = dict[str, float]()
        while not turn.over.done():
            remaining = turn.expires - time.monotonic()
            await asyncio.wait(
                [turn.over], timeout=max(0.0, min(remaining, max_away / 4))
            )
            now = time.monotonic()
            for name in turn.asked.keys() - turn.outcomes.keys():
                if self._links[name].stream is not None:
                    lost.pop(name, None)
                elif now - lost.setdefault(name, now) > max_away:
                    self._links[name].missed = True
                    turn.give_up(name, f"is not connected for {max_away:g} s")
            if now >= turn.expires:
                for name in turn.asked.keys() - turn.outcomes.keys():
                    link = self._links[name]
                    link.missed = link.stream is None
                    away = "is not connected" if link.missed else "has not answered"
                    turn.give_up(name, f"{away} for {self.patience:g} s")

    def _open(self, link: Link, kind: str, body: bytes, turn: PendingAsks) -> None:
        if link.refusal:
            turn.settle(link.name, PartyError(link.refusal))
            return
        link.number += 1
        link.counts["asks"] += 1
        link.open = Open(link.number, kind, body, turn)
        link.missed = False
        link.rouse()
