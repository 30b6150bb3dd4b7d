"""The server's end: `GrpcParties`, the parties of one signed contract behind one port."""

import asyncio
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from grpc import aio

from understudy.check import positive
from understudy.errors import ConfigError, MessageError, PartyAway, PartyError
from understudy.protocols.base import Ask, Message, Reply
from understudy.runtime.audit_log import AuditLog
from understudy.runtime.authority import Authority
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.frames import METHOD, SILENCE, TEXT, expect, receive, send, within
from understudy.runtime.grpc.links import Link, Open, Turn
from understudy.runtime.grpc.loop import drive, loop, run
from understudy.runtime.grpc.port import SERVER_OPTIONS, why_not
from understudy.runtime.identity import ServerIdentity, common_name, fingerprint, verify
from understudy.runtime.journal import Answer
from understudy.runtime.local import Transcript, addressed
from understudy.runtime.refusals import refusal
from understudy.runtime.wire import decode, encode


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a peer may do. `hello`: seconds to introduce itself. `joins`: streams opened by one party in a minute.
    `silence`: seconds for which nothing may be heard of a party that was asked, before its line is taken to be dead.
    """

    hello: float = 10.0
    joins: int = 60
    silence: float = SILENCE

    def __post_init__(self) -> None:
        positive(hello=self.hello, joins=self.joins, silence=self.silence)


class GrpcParties:
    """The parties of one contract, behind one port. A context manager; `close` sends them home.

    `kinds` are the messages of the protocol (its party's `messages`), `listen` the address to bind (the roster's
    by default), `patience` the seconds that an answer may take, with all interruptions, before PartyError, `linger`
    those for which `close` waits for a party that is away, to tell it that the run is over.
    """

    def __init__(
        self,
        contract: Contract,
        identity: ServerIdentity,
        *,
        kinds: tuple[type[Message], ...],
        listen: str | None = None,
        patience: float = 3600.0,
        linger: float = 10.0,
        limits: Limits | None = None,
        log: AuditLog | None = None,
    ) -> None:
        positive(patience=patience, linger=linger)
        if contract.federation != identity.roster.name:
            raise ConfigError(f"The contract is of {contract.federation}, not of {identity.roster.name}.")
        if strange := [name for name in contract.parties if name not in identity.roster.parties]:
            raise ConfigError(f"{strange[0]} has no invitation to {contract.federation}. Nothing was sent.")
        self.contract, self.identity, self.patience, self.linger = contract, identity, patience, linger
        self.limits, self.log = limits or Limits(), log or AuditLog(None)
        self.transcript = Transcript()
        self._kinds, self._session = kinds, uuid.uuid4().hex
        self._ended, self._over, self._started = False, False, time.time()
        self._links = {name: Link(name) for name in contract.parties}
        self._visits: dict[str, deque[float]] = defaultdict(deque)  # of names on the roster alone
        self.port = run(self._start(listen or identity.roster.address))
        self.log.write("started", run=contract.run, contract=contract.digest, parties=list(contract.parties))

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in the contract's order."""
        return self.contract.parties

    def ask(self, message: Ask | Mapping[str, Ask], *, at_least: int | None = None) -> dict[str, Any]:
        """Ask all the same, or each named party its own, at once; the replies in the order of the asks.

        A party that is away is waited for, `patience` seconds: then PartyAway, or where `at_least` of the asked have
        answered, their replies alone. If one refuses, the others have still been asked, and may have paid.
        """
        asks = addressed(message, self.names)
        different = {id(ask): ask for ask in asks.values()}  # the same to all is encoded once
        bodies = {key: encode(ask, limit=self.contract.message) for key, ask in different.items()}
        asked = {name: bodies[id(ask)] for name, ask in asks.items()}
        answers = self._present(drive(self._ask_all(asks, asked, hasty=at_least is None)), at_least)
        for name, answer in answers.items():
            if answer.status == "refusal":
                self._links[name].counts["refusals"] += 1
                raise refusal(name, answer.body)
        replies = {}
        for name, answer in answers.items():
            replies[name] = reply = self._decoded(name, answer.body)
            down, up = len(asked[name]), len(answer.body)
            self.transcript.record(name, asks[name], reply, down=down, up=up)
            self.log.write("answer", party=name, ask=asks[name].kind(), down=down, up=up)
        return replies

    def wait(self, timeout: float, *, at_least: int | None = None) -> None:
        """Until every party has signed the contract. PartyError names who is missing, or why one refused.

        With `at_least` so many suffice once the time is over, or nobody else is to be waited for.
        """
        until, enough = time.monotonic() + timeout, len(self._links) if at_least is None else at_least
        while missing := [link for link in self._links.values() if not link.signed]:
            refused = [link.refusal for link in missing if link.refusal]
            if len(self._links) - len(refused) < enough:
                raise PartyError(refused[0])
            if len(refused) == len(missing):
                return
            if time.monotonic() > until:
                if len(self._links) - len(missing) >= enough:
                    return
                names = ", ".join(link.name for link in missing)
                raise PartyAway(f"{names} did not join within {timeout:g} s. Nothing was sent.")
            time.sleep(0.02)

    def status(self) -> dict[str, Any]:
        """What a live view may show: who is there, how much went to and fro. No figure of any row."""
        return {
            "federation": self.contract.federation,
            "run": self.contract.run,
            "protocol": self.contract.protocol,
            "contract": self.contract.digest,
            "port": self.port,
            "started": self._started,
            "parties": {
                link.name: {
                    "connected": link.stream is not None,
                    "signed": bool(link.signed),
                    "refusal": link.refusal,
                    "since": link.since,
                    "waiting": link.open is not None,
                    "left_out": link.left_out,
                    **link.counts,
                }
                for link in self._links.values()
            },
        }

    def close(self, *, over: bool = True) -> None:
        """Tell every party that the run is over, and give the port back.

        Without `over` they are told nothing and wait: a server may come back and go on.
        """
        if self._ended:
            return
        self._ended, self._over = True, over
        run(self._finish())
        self.log.write("ended" if over else "stopped", run=self.contract.run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(over=error is None)

    def _present(
        self, outcomes: Mapping[str, Answer | PartyError], at_least: int | None
    ) -> dict[str, Answer]:
        """The answers, if they are enough to go on without the others."""
        away = {name: said for name, said in outcomes.items() if isinstance(said, PartyError)}
        if away and (at_least is None or len(outcomes) - len(away) < at_least):
            raise next(iter(away.values()))
        for name, why in away.items():
            self._links[name].left_out = True
            self.log.write("left out", party=name, why=str(why))
        return {name: said for name, said in outcomes.items() if isinstance(said, Answer)}

    def _decoded(self, name: str, body: bytes | bytearray) -> Reply:
        try:
            reply = decode(body, self._kinds, limit=self.contract.message)
        except MessageError as error:
            raise MessageError(f"{name}: {error}") from None
        if not isinstance(reply, Reply):
            raise MessageError(f"{name}: {reply.kind()} is not a reply.")
        return reply

    # Below, everything runs in the loop's thread.

    async def _start(self, listen: str) -> int:
        self._server = aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=4 * len(self._links) + 16)
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        _, service, method = METHOD.split("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        identity = self.identity
        credentials = grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)], identity.authority, require_client_auth=True
        )
        try:
            port = int(self._server.add_secure_port(listen, credentials))
        except RuntimeError:
            raise ConfigError(
                f"{listen} cannot be listened on: {why_not(listen)}. Nothing was sent."
            ) from None
        await self._server.start()
        return port

    async def _finish(self) -> None:
        for link in self._links.values():
            link.rouse()
        until = time.monotonic() + (self.linger if self._over else 0.0)
        while time.monotonic() < until and any(
            link.signed and not link.told for link in self._links.values()
        ):
            await asyncio.sleep(0.02)
        await self._server.stop(grace=1)

    async def _ask_all(
        self, asks: Mapping[str, Ask], asked: Mapping[str, bytes], *, hasty: bool
    ) -> dict[str, Answer | PartyError]:
        """What comes of each ask, in their order; after `patience` seconds also that nothing came."""
        turn = Turn(asked, time.monotonic() + self.patience, hasty=hasty)
        for name, body in asked.items():
            self._open(self._links[name], asks[name].kind(), body, turn)
        try:
            async with asyncio.timeout(self.patience):
                await turn.over
        except TimeoutError:
            for name in asked:
                away = "has not answered" if self._links[name].stream is not None else "is not connected"
                why = f"{name} {away} for {self.patience:g} s. The ask was given up."
                turn.outcomes.setdefault(name, PartyAway(why))
        finally:  # an answer that comes later is not taken for that of the next ask
            for name in asked:
                link = self._links[name]
                if link.open is not None and link.open.turn is turn:
                    link.open = None
        return {name: turn.outcomes[name] for name in asked if name in turn.outcomes}

    def _open(self, link: Link, kind: str, body: bytes, turn: Turn) -> None:
        if link.refusal:
            turn.settle(link.name, PartyError(link.refusal))
            return
        link.number += 1
        link.counts["asks"] += 1
        link.open = Open(link.number, kind, body, turn)
        link.rouse()

    async def _join(self, _: Any, context: Any) -> None:
        """One stream of one party, from its hello to its end."""
        name = "?"
        try:
            name, pem = self._known(context)
            head, body = await asyncio.wait_for(receive(context.read, limit=TEXT), self.limits.hello)
            if expect(head, "hello", "enrol") == "enrol":
                await self._enrol(name, pem, bytes(body), context)
                return
            link = self._admitted(name, pem)
            read = within(context.read, self.limits.silence)  # one for the stream, and so one timer
            await self._sign(link, pem, context, read)
            await self._attend(link, pem, context, read)
        except _Denied as denied:
            self.log.write("refused", party=name, why=str(denied))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(denied))
        except _Slow:
            self.log.write("refused", party=name, why="too many streams")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams in a minute")
        except (MessageError, TimeoutError) as error:
            self.log.write("dropped", party=name, why=type(error).__name__)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "outside the protocol")
        except _Silent:
            self.log.write("left", party=name, why="nothing was heard of it")
            await context.abort(grpc.StatusCode.UNAVAILABLE, "nothing was heard")
        except EOFError:
            self.log.write("left", party=name)
        except asyncio.CancelledError:
            self.log.write("left", party=name)
            if name not in self._links or self._links[name].stream in (None, asyncio.current_task()):
                raise  # the peer is gone
            await context.abort(grpc.StatusCode.ABORTED, "another stream of this party came after")

    def _known(self, context: Any) -> tuple[str, bytes]:
        """Who shows a certificate that is on the roster, before a byte of theirs is read."""
        (pem,) = context.auth_context().get("x509_pem_cert", [b""])
        name, roster = common_name(pem), self.identity.roster
        if (why := roster.refusal(name, pem)) and not roster.may_enrol(name, pem):
            raise _Denied(why)
        visits, now = self._visits[name], time.monotonic()
        visits.append(now)
        while visits[0] < now - 60:
            visits.popleft()
        if len(visits) > self.limits.joins:
            raise _Slow
        return name, pem

    def _admitted(self, name: str, pem: bytes) -> Link:
        if why := self.identity.roster.refusal(name, pem):
            raise _Denied(why)
        if (link := self._links.get(name)) is None:
            raise _Denied("this party does not take part in the run")
        return link

    async def _enrol(self, name: str, pem: bytes, request: bytes, context: Any) -> None:
        """Exchange an invitation; the stream is over then, and the party comes back as itself."""
        try:
            certificate = Authority(self.identity.folder).enrol(name, pem, request)
        except (PartyError, ConfigError) as error:
            raise _Denied(str(error)) from None
        self.log.write("enrolled", party=name, certificate=fingerprint(certificate))
        await send(context.write, {"type": "certificate"}, certificate)

    async def _sign(self, link: Link, pem: bytes, context: Any, read: within) -> None:
        """Offer the contract; the party signs it with the key of its certificate."""
        text = self.contract.text.encode()
        await send(context.write, {"type": "contract", "session": self._session}, text)
        async with asyncio.timeout(self.patience):
            head, body = await self._heard(read, TEXT)
        if expect(head, "signature", "refusal") == "refusal":
            link.refusal = str(refusal(link.name, body))
            self.log.write("contract refused", party=link.name, why=link.refusal)
            if link.open is not None:
                ask, link.open = link.open, None
                ask.turn.settle(link.name, PartyError(link.refusal))
            raise EOFError
        if not verify(pem, bytes(body), text):
            raise MessageError("The signature is not of this contract.")
        before, link.stream = link.stream, asyncio.current_task()
        if before is not None:
            before.cancel()  # a half-dead stream of the same party: the new one counts
        link.signed, link.refusal, link.since = body.hex(), "", time.time()
        link.counts["joins"] += 1
        self.log.write("joined", party=link.name, certificate=fingerprint(pem), signature=link.signed)

    async def _attend(self, link: Link, pem: bytes, context: Any, read: within) -> None:
        """Put the open ask, take its answer, until the run ends or the stream breaks."""
        try:
            while not self._ended:
                if (ask := link.open) is None:
                    await self._idle(link, context)
                    continue
                if why := self.identity.roster.refusal(link.name, pem):
                    link.signed = ""
                    raise _Denied(why)
                await self._put(link, ask, context, read)
            if not self._over:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the server has stopped, and may come back")
            await send(context.write, {"type": "end"})
            async with asyncio.timeout(self.limits.hello):
                link.told = await context.read() is aio.EOF  # it hangs up when it has heard
        finally:
            if link.stream is asyncio.current_task():
                link.stream, link.since = None, time.time()

    async def _idle(self, link: Link, context: Any) -> None:
        """Until there is something to ask; now and then the party hears that we are here."""
        link.roused = roused = loop().create_future()
        timer = loop().call_later(self.limits.silence / 3, link.rouse)
        try:
            await roused
        finally:
            timer.cancel()
        if link.open is None and not self._ended:
            await send(context.write, {"type": "beat"})

    async def _heard(self, read: within, limit: int) -> tuple[dict[str, Any], bytes | bytearray]:
        """What a party says when it has worked; while it works it says that it is there, and not too often."""
        begin, beats = time.monotonic(), 0
        while True:
            try:
                head, body = await receive(read, limit=limit)
            except TimeoutError:
                raise _Silent from None
            if head["type"] != "beat":
                return head, body
            beats += 1
            if body or beats > 10 * (1 + (time.monotonic() - begin) / self.limits.silence):
                raise MessageError("More signs of life than a party has to give.")

    async def _put(self, link: Link, ask: Open, context: Any, read: within) -> None:
        left = max(0.0, ask.turn.expires - time.monotonic())
        head = {"type": "ask", "number": ask.number, "seconds": left, "kind": ask.kind}
        await send(context.write, head, ask.body)
        head, body = await self._heard(read, self.contract.message)
        status = expect(head, "reply", "refusal")
        if head.get("number") != ask.number:
            raise MessageError("An answer to another ask.")
        link.counts["answers"] += 1
        link.counts["down"] += len(ask.body)
        link.counts["up"] += len(body)
        if link.open is ask:
            link.open = None
            ask.turn.settle(link.name, Answer(status, body))


class _Denied(Exception):  # noqa: N818
    """This peer may not be here."""


class _Silent(Exception):  # noqa: N818
    """This peer's line is dead."""


class _Slow(Exception):  # noqa: N818
    """This peer comes too often."""
