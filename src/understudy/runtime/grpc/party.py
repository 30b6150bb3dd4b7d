"""A party's end: `join` dials the server, signs, and answers until the run is over."""

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import grpc
from grpc import aio

from understudy.check import positive
from understudy.errors import MessageError, PartyError, UnderstudyError
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.frames import METHOD, OPTIONS, TEXT, expect, receive, send
from understudy.runtime.grpc.loop import run
from understudy.runtime.identity import SERVER
from understudy.runtime.session import Answer, AskId, Seat, Session, spoken

T = TypeVar("T")
_VERSION = 1
_log = logging.getLogger(__name__)


def join(
    seat: Seat,
    *,
    address: str | None = None,
    patience: float = 86_400.0,
    pause: float = 0.5,
    longest_pause: float = 30.0,
) -> Contract:
    """Take part in one run, until the server ends it; the contract that was kept.

    Dials again whenever the stream breaks, after a pause that doubles and is drawn at random, and gives up with
    PartyError when the server could not be reached for `patience` seconds or turns this party away.
    """
    positive(patience=patience, pause=pause, longest_pause=longest_pause)
    attendance = _Attendance(seat, address or seat.invitation.address)
    try:
        return run(attendance.keep(patience, pause, longest_pause))
    finally:
        attendance.close()


class _Attendance:
    """A party's stream, and what outlives it: the session with the party in it."""

    def __init__(self, seat: Seat, address: str) -> None:
        self.seat, self.address = seat, address
        self.session: Session | None = None
        self.contact = time.monotonic()  # when the server was last heard
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="understudy-party")

    def close(self) -> None:
        self._worker.shutdown()
        if self.session is not None:
            self.session.close()

    async def keep(self, patience: float, pause: float, longest: float) -> Contract:
        wait = pause
        while True:
            before = self.contact
            why = await self._once()
            if why is None and self.session is not None:
                self.seat.log.write("ended", run=self.session.contract.run)
                return self.session.contract
            self.seat.log.write("disconnected", why=why)
            if time.monotonic() - self.contact > patience:
                raise PartyError(f"{self.seat.name}: no server at {self.address} for {patience:g} s ({why}).")
            wait = pause if self.contact > before else min(longest, 2 * wait)
            await asyncio.sleep(random.uniform(0.5, 1) * wait)  # not all parties at once

    async def _once(self) -> str | None:
        """One stream; why it broke, or None when the run has ended."""
        invitation = self.seat.invitation
        credentials = grpc.ssl_channel_credentials(
            invitation.authority.encode(), invitation.key.encode(), invitation.certificate.encode()
        )
        options = [*OPTIONS, ("grpc.ssl_target_name_override", SERVER)]
        async with aio.secure_channel(self.address, credentials, options=options) as channel:
            call = channel.stream_stream(METHOD)()
            try:
                return await self._converse(call)
            except aio.AioRpcError as error:
                return self._broken(error.code(), error.details())
            except (EOFError, asyncio.InvalidStateError):  # the latter: written to a stream that is over
                return self._broken(await call.code(), await call.details())
            except (
                MessageError
            ) as error:  # a server that does not keep to the protocol is left, and tried again
                call.cancel()
                return str(error)

    def _broken(self, code: grpc.StatusCode, details: str | None) -> str:
        if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED):
            raise PartyError(
                f"{self.seat.name}: the server turned this party away ({(details or '')[:200]})."
            )
        return f"{code.name}: {(details or '')[:200]}"

    async def _converse(self, call: Any) -> str | None:
        await send(call.write, {"type": "hello", "version": _VERSION})
        head, body = await receive(call.read, limit=TEXT)
        expect(head, "contract")
        session_id = str(head.get("session"))[:64]
        session = await self._signed(call, Contract.from_text(body))
        while True:
            self.contact = time.monotonic()
            head, body = await receive(call.read, limit=session.contract.message)
            if expect(head, "ask", "end") == "end":
                await call.done_writing()
                return None
            number, seconds = head.get("number"), head.get("seconds")
            if type(number) is not int or not isinstance(seconds, int | float):
                raise MessageError("An ask without its number.")
            ask, expires = AskId(session_id, number), time.monotonic() + seconds
            answer = await self._work(partial(_answer, session, ask, body, expires))
            await send(call.write, {"type": answer.status, "number": number}, answer.body)

    async def _signed(self, call: Any, contract: Contract) -> Session:
        if self.session is None or self.session.contract.digest != contract.digest:
            if self.session is not None:
                self.session.close()
                self.session = None
            try:
                self.session = await self._work(partial(self.seat.open, contract))
            except UnderstudyError as error:
                said = json.dumps(spoken(self.seat.name, error)).encode()
                await send(call.write, {"type": "refusal"}, said)
                await call.done_writing()
                raise
        await send(call.write, {"type": "signature"}, self.session.signature)
        return self.session

    async def _work(self, work: Callable[[], T]) -> T:
        """In the one working thread: asks are answered one after the other, and the stream stays alive."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)


def _answer(session: Session, ask: AskId, body: bytes, expires: float) -> Answer:
    try:
        return session.answer(ask, body, expires=expires)
    except Exception as error:  # the record could not be written: nothing of the answer may leave
        _log.exception("%s could not answer", session.seat.name)
        return Answer("refusal", json.dumps(spoken(session.seat.name, error)).encode())
