"""What both ends of a stream share: messages ↔ frames, the event loop, the port.

Guarantee: what is not exactly a run of frames (`runtime.grpc`) is refused
(MessageError) before its body is looked at.

All streams of a process share one event loop, run by a thread of its own or by whoever
waits for an answer: grpc.aio polls once for the whole process and wakes every loop that
uses it; with a second loop, each takes the other's wake-ups and complains. A server
that asks runs the loop itself (`drive`): a change of thread would cost a small ask more
than its transport.
"""

import asyncio
import errno
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import wait
from functools import cache
from typing import Any, TypeVar

from understudy.ground.errors import MessageError

T = TypeVar("T")
Read = Callable[[], Awaitable[Any]]
_MOMENT = 0.02  # seconds
_LOOK = 0.2  # seconds after which who waits looks whether a signal came
FRAME = 1 << 21  # bytes
TEXT = 1 << 20  # bytes of a message that is neither ask nor answer
METHOD = "/understudy.Federation/Join"
# seconds without a frame after which a line is taken to be dead; who waits says so
# three times in it
SILENCE = 45.0
_HEAD = 1 << 14
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", FRAME),
    ("grpc.max_metadata_size", 8192),
    # finds a dead peer, and keeps a firewall's table warm
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
]
SERVER_OPTIONS: list[tuple[str, Any]] = [
    *OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # of one connection: a party has one stream, and one that replaces it
    ("grpc.max_concurrent_streams", 2),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),  # a second server on this port is an error, not a lottery
]


async def send(
    write: Callable[[bytes], Awaitable[None]],
    head: Mapping[str, Any],
    body: bytes | bytearray = b"",
) -> None:
    """One message as frames. Each waits until the transport has taken the one
    before.
    """
    text = json.dumps(dict(head) | {"size": len(body)}).encode()
    room = FRAME - 4 - len(text)
    view = memoryview(body)
    await write(b"".join((len(text).to_bytes(4, "big"), text, view[:room])))
    for start in range(room, len(body), FRAME):
        await write(bytes(view[start : start + FRAME]))


async def receive(
    read: Read, *, limit: int
) -> tuple[dict[str, Any], bytes | bytearray]:
    """The next message. MessageError for what is not one; EOFError when the stream is
    over. Memory grows with what has arrived, not with what a head promises. A body of
    many frames is a bytearray, whose memory the tensors in it may share.
    """
    frame = await read()
    if not isinstance(frame, bytes):
        raise EOFError
    head, first = parse(frame, limit)
    if len(first) == head["size"]:
        return head, first
    parts = [first]
    remaining = head["size"] - len(first)
    while remaining > 0:
        frame = await read()
        if not isinstance(frame, bytes):
            raise EOFError
        if not 0 < len(frame) <= remaining:
            raise MessageError("A message does not keep to the size that it stated.")
        parts.append(frame)
        remaining -= len(frame)
    return head, bytearray().join(parts)


def within(read: Read, seconds: float) -> Read:
    """The same reads, with TimeoutError when nothing comes for so long: half-open lines
    are found here, not by TCP. gRPC's own pings do not find them all: while one is on
    its way it sends no other, and one that is lost is waited for.
    """

    async def reading() -> Any:
        async with asyncio.timeout(seconds):
            return await read()

    return reading


def parse(frame: bytes, limit: int) -> tuple[dict[str, Any], bytes]:
    """The head of a message, checked, and the beginning of its body."""
    cut = 4 + int.from_bytes(frame[:4], "big")
    if not 4 < cut <= min(len(frame), _HEAD):
        raise MessageError("These bytes are not a frame.")
    try:
        head = json.loads(frame[4:cut])
    except (ValueError, RecursionError):
        raise MessageError("These bytes are not a frame.") from None
    size = head.get("size") if isinstance(head, dict) else None
    if type(size) is not int or size < 0 or not isinstance(head.get("type"), str):
        raise MessageError("These bytes are not a frame.")
    if size > limit:
        raise MessageError(
            f"A message of {size:,} bytes is above the limit of {limit:,}."
        )
    first = frame[cut:]
    if len(first) > size or (not first and size):
        raise MessageError("A message does not keep to the size that it stated.")
    return head, first


def expect(head: Mapping[str, Any], *types: str) -> str:
    kind = str(head["type"])
    if kind not in types:
        raise MessageError(f"A message of type {kind[:40]!r} was not expected here.")
    return kind


class _Driven:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._running = threading.Lock()  # whoever holds it runs the loop
        # so that one thread at a time takes it from the thread of its own
        self._asking = threading.Lock()
        self._drives = 0
        threading.Thread(target=self._own, name="understudy-grpc", daemon=True).start()

    def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this with the loop in the calling thread."""
        with self._asking:
            if not self._running.acquire(blocking=False):
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._running.acquire()
            try:
                return self.loop.run_until_complete(work)
            finally:
                self._drives += 1
                self._running.release()

    def _own(self) -> None:
        while True:
            # not while somebody is about to take it, who has told it to stop once and
            # for all
            with self._asking:
                self._running.acquire()
            try:
                self.loop.run_forever()
            finally:
                self._running.release()
            drives = -1
            while drives != self._drives:
                drives = self._drives
                time.sleep(_MOMENT)


@cache
def _driven() -> _Driven:
    return _Driven()


def loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use. Its thread ends with the process."""
    return _driven().loop


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Do this in the loop, which runs in the calling thread until it is done. Not from
    the loop itself.
    """
    return _driven().drive(work)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do this in the loop and wait for it, however long. Ctrl-C here cancels it
    there, also one that comes when the wait has not quite begun: the lock beneath it
    would not wake for that.
    """
    future = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        while not wait((future,), timeout=_LOOK).done:
            pass
        return future.result()
    except BaseException:
        future.cancel()
        raise


def why_not(address: str) -> str:
    """Why an address cannot be listened on, and what to do."""
    host, _, port = address.rpartition(":")
    try:
        addresses = socket.getaddrinfo(
            host.strip("[]"),
            int(port),
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        with socket.socket(addresses[0][0]) as probe:
            probe.bind(addresses[0][4])
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                return (
                    "the port is taken. Is another `understudy serve` running? "
                    "Otherwise choose another address"
                )
            case errno.EADDRNOTAVAIL:
                return (
                    "this machine does not have that address. Behind a router, listen "
                    "on 0.0.0.0:PORT"
                )
            case errno.EACCES:
                return "ports below 1024 are for the system. Choose a higher one"
        return error.strerror or type(error).__name__
    except (ValueError, OverflowError):
        return "it is not HOST:PORT"
    return "the port is taken, or was a moment ago"
