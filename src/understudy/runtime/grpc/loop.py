"""One event loop for all of a process's streams, run by a thread of its own or by whoever waits for an answer.

grpc.aio polls once for the whole process and wakes every loop that uses it; with a second loop, each takes the
other's wake-ups and complains. So servers and parties of one process share this one.

A server that asks has nothing else to do until the answers are there. So it runs the loop itself as long (`drive`):
a change of thread and back would cost a small ask more than its transport. In between, the thread of its own sees
to the streams; it waits a moment first, since asks come one after the other.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
_MOMENT = 0.02  # seconds


class _Driven:
    """A loop, and who runs it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._running = threading.Lock()  # whoever holds it runs the loop
        self._asking = threading.Lock()  # so that one thread at a time takes it from the thread of its own
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
            # not while somebody is about to take it, who has told it to stop once and for all
            with self._asking:
                self._running.acquire()
            try:
                self.loop.run_forever()
            finally:
                self._running.release()
            seen = -1
            while seen != self._drives:
                seen = self._drives
                time.sleep(_MOMENT)


@cache
def _driven() -> _Driven:
    return _Driven()


def loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use. Its thread ends with the process."""
    return _driven().loop


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Do this in the loop, which runs in the calling thread until it is done. Not from the loop itself."""
    return _driven().drive(work)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do this in the loop and wait for it, however long. Ctrl-C here cancels it there."""
    future = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
