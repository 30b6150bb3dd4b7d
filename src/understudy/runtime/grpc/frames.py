"""Messages ↔ frames, the same at both ends of a stream.

A message is a run of frames: the first holds a short JSON head and the beginning of the body, the others more of
the body. A frame is sent when the one before was taken, so that a slow reader slows its writer down.

Guarantee: what is not exactly such a run is refused (MessageError) before its body is looked at.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from understudy.ground.errors import MessageError

FRAME = 1 << 21  # bytes
TEXT = 1 << 20  # bytes of a message that is neither ask nor answer
METHOD = "/understudy.Federation/Join"
SILENCE = 45.0  # seconds without a frame after which a line is taken to be dead; who waits says so three times in it
_HEAD = 1 << 14
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", FRAME),
    ("grpc.max_metadata_size", 8192),
    ("grpc.keepalive_time_ms", 20_000),  # finds a dead peer, and keeps a firewall's table warm
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
]


async def send(
    write: Callable[[bytes], Awaitable[None]], head: Mapping[str, Any], body: bytes | bytearray = b""
) -> None:
    """One message as frames. Each waits until the transport has taken the one before."""
    text = json.dumps(dict(head) | {"size": len(body)}).encode()
    room = FRAME - 4 - len(text)
    view = memoryview(body)
    await write(b"".join((len(text).to_bytes(4, "big"), text, view[:room])))
    for start in range(room, len(body), FRAME):
        await write(bytes(view[start : start + FRAME]))


async def receive(
    read: Callable[[], Awaitable[Any]], *, limit: int
) -> tuple[dict[str, Any], bytes | bytearray]:
    """The next message. MessageError for what is not one; EOFError when the stream is over.

    Memory grows with what has arrived, not with what a head promises. A body of many frames is a bytearray, whose
    memory the tensors in it may share.
    """
    frame = await read()
    if not isinstance(frame, bytes):
        raise EOFError
    head, first = parse(frame, limit)
    if len(first) == head["size"]:
        return head, first
    parts, left = [first], head["size"] - len(first)
    while left > 0:
        frame = await read()
        if not isinstance(frame, bytes):
            raise EOFError
        if not 0 < len(frame) <= left:
            raise MessageError("A message does not keep to the size that it stated.")
        parts.append(frame)
        left -= len(frame)
    return head, bytearray().join(parts)


class within:  # noqa: N801  (used as a function)
    """The same reads, with TimeoutError when nothing comes for so long: half-open lines are found here, not by TCP.

    gRPC's own pings do not find them all: while one is on its way it sends no other, and one that is lost is
    waited for. There is one timer for a stream, which looks when the last read began, and not one for each read.
    """

    def __init__(self, read: Callable[[], Awaitable[Any]], seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._since, self._silent = 0.0, False
        self._reader: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self) -> Any:
        loop = asyncio.get_running_loop()
        self._reader, self._since = asyncio.current_task(), loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)
        frame = None
        try:
            frame = await self._read()
            return frame
        except asyncio.CancelledError:
            if self._silent:
                raise TimeoutError from None
            raise
        finally:
            self._reader = None
            if not isinstance(frame, bytes) and self._timer is not None:  # the stream is over
                self._timer.cancel()
                self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, left = None, self._since + self._seconds - loop.time()
        if self._reader is None:
            return  # the next read sets it again
        if left > 0:
            self._timer = loop.call_later(left, self._look)
        else:
            self._silent = True
            self._reader.cancel()


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
        raise MessageError(f"A message of {size:,} bytes is above the limit of {limit:,}.")
    if len(first := frame[cut:]) > size or (not first and size):
        raise MessageError("A message does not keep to the size that it stated.")
    return head, first


def expect(head: Mapping[str, Any], *types: str) -> str:
    if (found := str(head["type"])) not in types:
        raise MessageError(f"A message of type {found[:40]!r} was not expected here.")
    return found
