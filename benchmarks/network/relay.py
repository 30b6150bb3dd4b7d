"""A line between two programs on one machine: everything that passes is late, and no
faster than the line.

For kernels without netem. A connection to the relay's port is carried on to another
port; each direction of each connection is a line of its own, with its own delay and
rate. What a loopback cannot show is not here: lost packets, and the slow start of a
long line.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

CHUNK = 1 << 16
# seconds of data that may wait at the line's near end: more stays with the sender
AHEAD = 0.1


@dataclass
class Line:
    """One direction: so many seconds from end to end, and bytes a second."""

    delay: float
    rate: float
    carried: int = 0
    free: float = field(default=0.0)

    def due(self, now: float, size: int) -> float:
        """When the last of these bytes is there, if they come to the near end now."""
        self.free = max(self.free, now) + size / self.rate
        self.carried += size
        return self.free + self.delay


async def relay(
    target: int,
    *,
    delay: float,
    rate: float,
    ready: Callable[[int], None],
    over: Awaitable[object],
) -> dict[str, int]:
    """Carry connections to a port of this machine until `over`; the bytes that went
    there, and that came back.
    """
    lines: list[tuple[Line, Line]] = []
    tasks: set[asyncio.Task[None]] = set()

    async def carry(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line
    ) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        delivery = asyncio.create_task(deliver())
        try:
            while data := await reader.read(CHUNK):
                waiting.put_nowait((line.due(time.monotonic(), len(data)), data))
                await asyncio.sleep(max(0.0, line.free - time.monotonic() - AHEAD))
            waiting.put_nowait((time.monotonic() + line.delay, b""))
            await delivery
            if writer.can_write_eof():
                writer.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            delivery.cancel()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there = Line(delay, rate)
        back = Line(delay, rate)
        lines.append((there, back))
        ends = [writer]
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            on_reader, on_writer = await asyncio.open_connection("127.0.0.1", target)
            ends.append(on_writer)
            await asyncio.gather(
                carry(reader, on_writer, there), carry(on_reader, writer, back)
            )
        except (ConnectionError, asyncio.CancelledError):
            # nobody is there, or all is over
            pass
        for end in ends:
            end.close()
        await asyncio.gather(
            *(end.wait_closed() for end in ends), return_exceptions=True
        )

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    ready(server.sockets[0].getsockname()[1])
    await over
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks)
    return {
        "there": sum(one.carried for one, _ in lines),
        "back": sum(one.carried for _, one in lines),
    }
