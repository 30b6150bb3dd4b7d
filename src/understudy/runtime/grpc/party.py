"""A party's end: `enrol` exchanges an invitation, `join` dials the server, signs, and
answers until the run is over.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import grpc
from grpc import aio

from understudy.ground.check import positive
from understudy.ground.errors import Effect, MessageError, PartyError, UnderstudyError
from understudy.runtime import certificates
from understudy.runtime.certificates import SERVER, PrivateKey
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.frames import (
    METHOD,
    OPTIONS,
    SILENCE,
    TEXT,
    expect,
    receive,
    run,
    send,
    within,
)
from understudy.runtime.identity import Invitation
from understudy.runtime.journal import Answer, AskId, AuditLog
from understudy.runtime.session import Participant, Session
from understudy.runtime.wire import spoken_bytes

T = TypeVar("T")
_VERSION = 1
# seconds and bytes of an ask that is answered where it arrives,
_QUICK = 0.01
_SMALL = 1 << 18
# after so many others of its kind, of so many kinds, that were as quick
_AFTER = 4
_KINDS = 64
_log = logging.getLogger(__name__)


def join(
    participant: Participant, *, address: str | None = None, **manners: float
) -> Contract:
    """Take part in one run, until the server ends it; the contract that was kept.
    `manners`: of a `ServerConnection`. PartyError when the server turns this party
    away, or has called the run off. What was recorded is deleted at the end.
    """
    line = ServerConnection(
        participant.invitation,
        address or participant.invitation.address,
        participant.log,
        **manners,
    )
    attendance = _Attendance(participant, line)
    participant.sweep()
    try:
        contract = run(line.keep(attendance.converse))
        attendance.end()
    finally:
        attendance.close()
    participant.log.write("ended", run=contract.run)
    return contract


def enrol(
    invitation: Invitation,
    key: PrivateKey,
    *,
    address: str | None = None,
    log: AuditLog | None = None,
    **manners: float,
) -> Invitation:
    """Exchange an invitation for an identity with this key; again if the answer was
    lost. PartyError: not the first.
    """
    log = log or AuditLog(None)
    line = ServerConnection(invitation, address or invitation.address, log, **manners)
    request = certificates.request(key, invitation.party)

    async def converse(call: Any) -> bytes:
        await send(call.write, {"type": "enrol"}, request)
        head, body = await receive(within(call.read, line.silence), limit=TEXT)
        expect(head, "certificate")
        await call.done_writing()
        return bytes(body)

    certificate = run(line.keep(converse))
    own_mark = certificates.key_mark(key.public_key())
    if certificates.key_mark(certificates.load(certificate).public_key()) != own_mark:  # type: ignore[arg-type]
        raise MessageError(
            f"{invitation.party}: the server certified another key than ours.",
            effect=Effect.NOTHING_STORED,
        )
    log.write("enrolled", certificate=certificates.fingerprint(certificate))
    return replace(
        invitation,
        certificate=certificate.decode(),
        key=certificates.key_pem(key).decode(),
        once=False,
        invitation=invitation.fingerprint,
    )


class _Broken(Exception):  # noqa: N818
    """The stream is over, and the conversation is not."""


@dataclass
class ServerConnection:
    """A party's way to the server: dials until a conversation has come to its end.
    Dials again whenever the stream breaks or nothing is heard for `silence` seconds,
    after a pause that doubles and is drawn at random; PartyError when the server could
    not be reached for `patience` seconds.
    """

    identity: Invitation
    address: str
    log: AuditLog
    patience: float = 86_400.0
    pause: float = 0.5
    longest_pause: float = 30.0
    silence: float = SILENCE
    # when the server was last heard
    contact: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        positive(
            patience=self.patience,
            pause=self.pause,
            longest_pause=self.longest_pause,
            silence=self.silence,
        )

    async def keep(self, converse: Callable[[Any], Awaitable[T]]) -> T:
        wait = self.pause
        name = self.identity.party
        while True:
            before = self.contact
            try:
                return await self._once(converse)
            except _Broken as broken:
                self.log.write("disconnected", why=str(broken))
                if time.monotonic() - self.contact > self.patience:
                    raise PartyError(
                        f"{name}: no server at {self.address} for {self.patience:g} s "
                        f"({broken}). Is it running, "
                        "and may this machine dial that port?"
                    ) from None
            wait = (
                self.pause
                if self.contact > before
                else min(self.longest_pause, 2 * wait)
            )
            # not all parties at once
            await asyncio.sleep(random.uniform(0.5, 1) * wait)

    async def _once(self, converse: Callable[[Any], Awaitable[T]]) -> T:
        identity = self.identity
        credentials = grpc.ssl_channel_credentials(
            identity.authority.encode(),
            identity.key.encode(),
            identity.certificate.encode(),
        )
        options = [*OPTIONS, ("grpc.ssl_target_name_override", SERVER)]
        async with aio.secure_channel(
            self.address, credentials, options=options
        ) as channel:
            call = channel.stream_stream(METHOD)()
            try:
                return await converse(call)
            except aio.AioRpcError as error:
                raise self._broken(error.code(), error.details()) from None
            except (EOFError, asyncio.InvalidStateError):
                # the latter: written to a stream that is over
                raise self._broken(await call.code(), await call.details()) from None
            except TimeoutError:
                call.cancel()
                raise _Broken(f"nothing was heard for {self.silence:g} s") from None
            except MessageError as error:
                # a server outside the protocol is left, and tried again
                call.cancel()
                raise _Broken(str(error)) from None

    def _broken(self, code: grpc.StatusCode, details: str | None) -> Exception:
        reason = "".join(
            letter if letter.isprintable() else " " for letter in (details or "")[:600]
        )
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            return PartyError(f"{self.identity.party}: {reason}")
        refusal = f"{self.identity.party}: the server refused this party ({reason})."
        if code is grpc.StatusCode.NOT_FOUND:  # of this run
            return PartyError(refusal)
        if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED):
            return PartyError(f"{refusal} Ask its operator for a new invitation.")
        return _Broken(_words(code, reason))


class _Attendance:
    """What outlives a stream: the session with the party in it."""

    def __init__(self, participant: Participant, line: ServerConnection) -> None:
        self.participant = participant
        self.line = line
        self.session: Session | None = None
        # The contract that is being looked at, by a policy or a person: that goes on
        # while the line is broken.
        self._opening: tuple[Contract, Future[Session]] | None = None
        # How many answers in a row took no time worth mentioning, by kind of ask.
        self._quick: dict[str, int] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="understudy-party")

    def end(self) -> None:
        if self.session is not None:
            self.session.end()
            self.session = None

    def close(self) -> None:
        self._withdraw()
        self._worker.shutdown()
        if self.session is not None:
            self.session.close()
            self.session = None

    async def converse(self, call: Any) -> Contract:
        read = within(call.read, self.line.silence)
        # also where the dialling itself hangs
        async with asyncio.timeout(self.line.silence):
            await send(call.write, {"type": "hello", "version": _VERSION})
        head, body = await receive(read, limit=TEXT)
        expect(head, "contract")
        session_id = str(head.get("session"))[:64]
        contract = Contract.from_text(bytes(body))
        self.participant.log.write("connected", run=contract.run)
        # heard before, by a process that was killed before it could leave
        if self.participant.ended(contract):
            over = PartyError(
                f"{self.participant.name}: the run {contract.run} is over here."
            )
            await send(
                call.write,
                {"type": "refusal"},
                spoken_bytes(self.participant.name, over),
            )
            await self._hang_up(call)
            return contract
        session = await self._signed(call, contract)
        while True:
            self.line.contact = time.monotonic()
            head, body = await receive(read, limit=session.contract.message)
            kind = expect(head, "ask", "end", "beat")
            if kind == "beat":
                continue
            if kind == "end":
                await self._hang_up(call)
                return session.contract
            number = head.get("number")
            seconds = head.get("seconds")
            if type(number) is not int or not isinstance(seconds, int | float):
                raise MessageError("An ask without its number.")
            ask = AskId(session_id, number)
            expires = time.monotonic() + seconds
            work = partial(_answer, session, ask, body, expires)
            answer = await self._answered(
                call, work, str(head.get("kind"))[:64], len(body)
            )
            await send(
                call.write, {"type": answer.status, "number": number}, answer.body
            )

    async def _answered(
        self, call: Any, work: Callable[[], Answer], kind: str, size: int
    ) -> Answer:
        """The answer, computed here where asks of this kind (the server's word) were
        quick: it saves threads.
        """
        begin = time.monotonic()
        before = self._quick.get(kind, 0)
        answer = (
            work()
            if before >= _AFTER and size < _SMALL
            else await self._work(call, work)
        )
        if kind in self._quick or len(self._quick) < _KINDS:
            self._quick[kind] = before + 1 if time.monotonic() - begin < _QUICK else 0
        return answer

    async def _signed(self, call: Any, contract: Contract) -> Session:
        if self.session is None or self.session.contract.digest != contract.digest:
            if self.session is not None:
                self.session.close()
                self.session = None
            try:
                self.session = await self._opened(call, contract)
            except UnderstudyError as error:
                await send(
                    call.write,
                    {"type": "refusal"},
                    spoken_bytes(self.participant.name, error),
                )
                await self._hang_up(call)
                raise
        await send(call.write, {"type": "signature"}, self.session.signature)
        return self.session

    async def _hang_up(self, call: Any) -> None:
        """Say no more, and leave once the server has read the last word. Closing the
        channel at once cancels the call, and the server may see the cancellation first.
        """
        await call.done_writing()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.line.silence):
                await call.code()

    async def _opened(self, call: Any, contract: Contract) -> Session:
        """The session of a contract. A person who is asked about it is asked once,
        however often the line breaks.
        """
        if self._opening is None or self._opening[0].digest != contract.digest:
            self._withdraw()
            self._opening = (
                contract,
                self._worker.submit(self.participant.open, contract),
            )
        opening = self._opening[1]
        news = asyncio.Event()
        loop = asyncio.get_running_loop()
        opening.add_done_callback(lambda _: loop.call_soon_threadsafe(news.set))
        call.add_done_callback(lambda _: news.set())
        while not opening.done():
            if call.done():
                raise EOFError
            try:
                await asyncio.wait_for(news.wait(), self.line.silence / 3)
            except TimeoutError:
                await send(call.write, {"type": "beat"})
        self._opening = None
        return opening.result()

    def _withdraw(self) -> None:
        """Nobody needs to know any more what is being decided."""
        if self._opening is None:
            return
        (contract, opening), self._opening = self._opening, None
        if self.participant.withdraw is not None:
            self.participant.withdraw(contract)
        opening.cancel()
        opening.add_done_callback(_closed)

    async def _work(self, call: Any, work: Callable[[], T]) -> T:
        """In the one working thread: asks are answered one after the other. The server
        hears that we are there.
        """
        working = asyncio.get_running_loop().run_in_executor(self._worker, work)
        # heard, also after Ctrl-C
        working.add_done_callback(lambda done: done.cancelled() or done.exception())
        while not (await asyncio.wait({working}, timeout=self.line.silence / 3))[0]:
            await send(call.write, {"type": "beat"})
        return working.result()


def _closed(opening: Future[Session]) -> None:
    """A session that nobody waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _answer(
    session: Session, ask: AskId, body: bytes | bytearray, expires: float
) -> Answer:
    try:
        return session.answer(ask, body, expires=expires)
    except Exception as error:
        # the record could not be written: nothing of the answer may leave
        _log.exception("%s could not answer", session.participant.name)
        return Answer("refusal", spoken_bytes(session.participant.name, error))


_WORDS = {
    "Connection refused": "nothing listens there",
    "DNS resolution failed": "its name is not known here",
    "Name or service not known": "its name is not known here",
    "Network is unreachable": "there is no route to it from here",
    "No route to host": "there is no route to it from here",
    "Ssl handshake failed": (
        "TLS failed: the other end is not of this federation, distrusts us, or a "
        "clock is wrong"
    ),
    "Connection timed out": "it does not answer; perhaps a firewall",
    "Cancelling all calls": "the server has stopped, and may come back",
}


def _words(code: grpc.StatusCode, details: str) -> str:
    if details.startswith("the run waits"):
        return details
    return next(
        (words for sign, words in _WORDS.items() if sign in details),
        f"{code.name}: {details[:120]}",
    )
