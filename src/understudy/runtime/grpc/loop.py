"""One event loop for all of a process's streams, in a thread of its own.

grpc.aio polls once for the whole process and wakes every loop that uses it; with a second loop, each takes the
other's wake-ups and complains. So servers and parties of one process share this one.
"""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use. Its thread ends with the process."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="understudy-grpc", daemon=True).start()
    return made


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do this in the loop and wait for it. Ctrl-C here cancels it there."""
    future = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
