"""The parties' streams at the server, in the loop's thread: who may come in, what is
said, and what is kept of each.
"""

import asyncio
import time
import uuid
import weakref
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio

from understudy.ground.check import positive
from understudy.ground.errors import ConfigError, MessageError, PartyAway, PartyError
from understudy.runtime.certificates import common_name, fingerprint, verify
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.frames import (
    SILENCE,
    TEXT,
    Read,
    expect,
    loop,
    receive,
    send,
    within,
)
from understudy.runtime.identity import Authority, ServerIdentity
from understudy.runtime.journal import Answer, AuditLog
from understudy.runtime.wire import refusal

_STOPPED = "the server has stopped, and may come back"
_HELD = "the run waits, since its contract was refused:"


class PendingAsks:
    """Asks that were put at once, and what has come of them."""

    def __init__(self, bodies: Mapping[str, bytes], expires: float) -> None:
        self.asked = bodies
        self.expires = expires
        self.outcomes: dict[str, Answer | PartyError] = {}
        self.over = loop().create_future()
        if not bodies:
            self.over.set_result(None)

    def settle(self, name: str, outcome: Answer | PartyError) -> None:
        """What has come of one ask. A contract that is refused ends the turn: nobody
        goes on without its party.
        """
        self.outcomes[name] = outcome
        refused = isinstance(outcome, PartyError) and not isinstance(outcome, PartyAway)
        done = len(self.outcomes) == len(self.asked) or refused
        if done and not self.over.done():
            self.over.set_result(None)

    def give_up(self, name: str, why: str) -> None:
        self.settle(name, PartyAway(f"{name} {why}. The ask was given up."))


@dataclass
class Open:
    number: int
    kind: str
    body: bytes
    turn: PendingAsks


@dataclass
class Link:
    name: str
    stream: "asyncio.Task[Any] | None" = None
    signed: str = ""
    refusal: str = ""
    # a stream on which the contract is being looked at
    reading: "asyncio.Task[Any] | None" = None
    told: bool = False  # that the run is over, or off
    left_out: bool = False  # the run has gone on without it
    missed: bool = False  # it was given up when it was last asked: it had no connection
    open: Open | None = None
    number: int = 0
    since: float = 0.0
    roused: "asyncio.Future[None] | None" = None
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("joins", "asks", "answers", "refusals", "down", "up"), 0
        )
    )

    def status(self) -> dict[str, Any]:
        return {
            "connected": self.stream is not None,
            "signed": bool(self.signed),
            "reading": self.reading is not None,
            "refusal": self.refusal,
            "since": self.since,
            "waiting": self.open is not None,
            "left_out": self.left_out,
            **self.counts,
        }

    def rouse(self) -> None:
        if self.roused is not None and not self.roused.done():
            self.roused.set_result(None)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a peer may do: seconds of `hello`, `joins` in a minute, seconds of `silence`
    before its line is dead.
    """

    hello: float = 10.0
    joins: int = 60
    silence: float = SILENCE

    def __post_init__(self) -> None:
        positive(hello=self.hello, joins=self.joins, silence=self.silence)


class Streams:
    """The streams of one contract's parties: a link for each of them, which outlives
    its stream.

    `patience` is how many seconds a party may think about the contract. Once `ended`,
    parties hear that the run is `over`, or why it is `off`, or else that the server may
    come back. While it is `held`, because one has refused, the others hear why, and
    come back; the one that refused is offered the contract again.
    """

    def __init__(
        self,
        contract: Contract,
        identity: ServerIdentity,
        *,
        patience: float,
        limits: Limits,
        log: AuditLog,
    ) -> None:
        self.contract = contract
        self.identity = identity
        self.patience = patience
        self.limits = limits
        self.log = log
        self.links = {name: Link(name) for name in contract.parties}
        self.ended = False
        self.over = False
        self.off = ""
        self.held = ""
        self._session = uuid.uuid4().hex
        # streams that we ended ourselves
        self._turned: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        # of names on the roster alone
        self._visits: dict[str, deque[float]] = defaultdict(deque)

    async def join(self, _: Any, context: Any) -> None:
        name = "?"
        try:
            name, pem = self._identified(context)
            head, body = await asyncio.wait_for(
                receive(context.read, limit=TEXT), self.limits.hello
            )
            if expect(head, "hello", "enrol") == "enrol":
                await self._enrol(name, pem, bytes(body), context)
                return
            link = self._admitted(name, pem)
            if (self.ended and not (self.over and link.signed)) or (
                self.held and not link.refusal
            ):
                await self._leave(link, context)
            read = within(context.read, self.limits.silence)
            await self._sign(link, pem, context, read)
            await self._attend(link, pem, context, read)
        except _TurnedAway as why:
            self.log.write(why.event, party=name, why=str(why))
            await context.abort(why.status, str(why))
        except (MessageError, TimeoutError) as error:
            self.log.write("dropped", party=name, why=type(error).__name__)
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "outside the protocol"
            )
        except EOFError:
            self.log.write("left", party=name)
        except asyncio.CancelledError:
            self.log.write("left", party=name)
            if asyncio.current_task() in self._turned:
                await self._leave(self.links[name], context)
            if name not in self.links or self.links[name].stream in (
                None,
                asyncio.current_task(),
            ):
                raise  # the peer is gone
            await context.abort(
                grpc.StatusCode.ABORTED, "another stream of this party came after"
            )

    def turn(self) -> None:
        """It has ended, or is held: every party hears so, also one that still looks at
        the contract.
        """
        for link in self.links.values():
            link.rouse()
            if link.reading is not None and not (self.held and link.refusal):
                self._turned.add(link.reading)
                link.reading.cancel()

    def _identified(self, context: Any) -> tuple[str, bytes]:
        """Who shows a certificate that is on the roster, before a byte of theirs is
        read.
        """
        (pem,) = context.auth_context().get("x509_pem_cert", [b""])
        name = common_name(pem)
        roster = self.identity.roster
        why = roster.refusal(name, pem)
        if why and not roster.may_enrol(name, pem):
            raise _TurnedAway(why)
        visits = self._visits[name]
        now = time.monotonic()
        while visits and visits[0] < now - 60:
            visits.popleft()
        if len(visits) >= self.limits.joins:
            raise _TurnedAway(
                "too many streams in a minute", grpc.StatusCode.RESOURCE_EXHAUSTED
            )
        # a refused visit does not count: who keeps knocking gets in again
        visits.append(now)
        return name, pem

    def _admitted(self, name: str, pem: bytes) -> Link:
        why = self.identity.roster.refusal(name, pem)
        if why:
            raise _TurnedAway(why)
        link = self.links.get(name)
        if link is None:
            raise _TurnedAway(
                "this party does not take part in the run", grpc.StatusCode.NOT_FOUND
            )
        return link

    async def _enrol(self, name: str, pem: bytes, request: bytes, context: Any) -> None:
        """Exchange an invitation; the stream is over then, and the party comes back as
        itself.
        """
        try:
            certificate = Authority(self.identity.folder).enrol(name, pem, request)
        except (PartyError, ConfigError) as error:
            raise _TurnedAway(str(error)) from None
        self.log.write("enrolled", party=name, certificate=fingerprint(certificate))
        await send(context.write, {"type": "certificate"}, certificate)

    async def _sign(self, link: Link, pem: bytes, context: Any, read: Read) -> None:
        """Offer the contract; the party signs it with the key of its certificate."""
        text = self.contract.text.encode()
        link.reading = asyncio.current_task()
        try:
            await send(
                context.write, {"type": "contract", "session": self._session}, text
            )
            async with asyncio.timeout(self.patience):
                head, body = await self._heard(read, TEXT)
        finally:
            if link.reading is asyncio.current_task():
                link.reading = None
        if expect(head, "signature", "refusal") == "refusal":
            link.refusal = str(refusal(link.name, body))
            link.told = self.ended
            self.log.write("contract refused", party=link.name, why=link.refusal)
            if link.open is not None:
                ask = link.open
                link.open = None
                ask.turn.settle(link.name, PartyError(link.refusal))
            raise EOFError
        if not verify(pem, bytes(body), text):
            raise MessageError("The signature is not of this contract.")
        before = link.stream
        link.stream = asyncio.current_task()
        if before is not None:
            before.cancel()  # a half-dead stream of the same party: the new one counts
        link.signed = body.hex()
        link.refusal = ""
        link.since = time.time()
        link.counts["joins"] += 1
        self.log.write(
            "joined",
            party=link.name,
            certificate=fingerprint(pem),
            signature=link.signed,
        )

    async def _attend(self, link: Link, pem: bytes, context: Any, read: Read) -> None:
        """Put the open ask, take its answer, until the run ends or the stream
        breaks.
        """
        try:
            while not (self.ended or self.held):
                ask = link.open
                if ask is None:
                    await self._idle(link, context)
                    continue
                why = self.identity.roster.refusal(link.name, pem)
                if why:
                    link.signed = ""
                    raise _TurnedAway(why)
                await self._put(link, ask, context, read)
            if not self.over:
                await self._leave(link, context)
            await send(context.write, {"type": "end"})
            async with asyncio.timeout(self.limits.hello):
                # it hangs up when it has heard
                link.told = await context.read() is aio.EOF
        finally:
            if link.stream is asyncio.current_task():
                link.stream = None
                link.since = time.time()

    async def _leave(self, link: Link, context: Any) -> None:
        """Tell a party why it has nothing to do here: for good, or until it comes
        back.
        """
        if self.ended and (self.over or self.off):
            link.told = True
            why = f"is off: {self.off}" if self.off else "is over, without this party."
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the run {self.contract.run} {why}",
            )
        why = f"{_HELD} {self.held}" if self.held and not self.ended else _STOPPED
        await context.abort(grpc.StatusCode.UNAVAILABLE, why)

    async def _idle(self, link: Link, context: Any) -> None:
        """Until there is something to ask; now and then the party hears that we are
        here.
        """
        link.roused = roused = loop().create_future()
        timer = loop().call_later(self.limits.silence / 3, link.rouse)
        try:
            await roused
        finally:
            timer.cancel()
        if link.open is None and not (self.ended or self.held):
            await send(context.write, {"type": "beat"})

    async def _heard(
        self, read: Read, limit: int
    ) -> tuple[dict[str, Any], bytes | bytearray]:
        """What a party says when it has worked; while it works it says that it is
        there, and not too often.
        """
        begin = time.monotonic()
        beats = 0
        while True:
            try:
                head, body = await receive(read, limit=limit)
            except TimeoutError:
                raise _TurnedAway(
                    "nothing was heard", grpc.StatusCode.UNAVAILABLE, "left"
                ) from None
            if head["type"] != "beat":
                return head, body
            beats += 1
            if body or beats > 10 * (
                1 + (time.monotonic() - begin) / self.limits.silence
            ):
                raise MessageError("Too many signs of life.")

    async def _put(self, link: Link, ask: Open, context: Any, read: Read) -> None:
        remaining = max(0.0, ask.turn.expires - time.monotonic())
        head = {
            "type": "ask",
            "number": ask.number,
            "seconds": remaining,
            "kind": ask.kind,
        }
        await send(context.write, head, ask.body)
        head, body = await self._heard(read, self.contract.message)
        status = expect(head, "reply", "refusal")
        if head.get("number") != ask.number:
            raise MessageError("An answer to another ask.")
        link.counts["answers"] += 1
        link.counts["refusals"] += status == "refusal"
        link.counts["down"] += len(ask.body)
        link.counts["up"] += len(body)
        if link.open is ask:
            link.open = None
            ask.turn.settle(link.name, Answer(status, body))


class _TurnedAway(Exception):  # noqa: N818
    """This peer may not be here, comes too often, or its line is dead."""

    def __init__(
        self,
        why: str,
        status: Any = grpc.StatusCode.PERMISSION_DENIED,
        event: str = "refused",
    ) -> None:
        super().__init__(why)
        self.status = status
        self.event = event
