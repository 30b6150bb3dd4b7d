"""One loop, run by a thread of its own or by whoever asks: nobody waits for it
forever.
"""

import threading
import time
from typing import Any

from understudy.runtime.grpc import frames as loop


class Drowsy:
    """A lock that threads other than the loop's own are slow to take, as on a machine
    that is busy.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        if blocking and threading.current_thread().name != "understudy-grpc":
            time.sleep(10 * loop._MOMENT)
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


async def three() -> int:
    return 3


async def made_drowsy(driven: loop._Driven) -> None:
    """By who has the loop, and so the lock."""
    lock = Drowsy()
    lock.acquire(blocking=False)
    driven._running = lock  # type: ignore[assignment]


def test_who_is_slow_to_take_the_loop_gets_it_all_the_same() -> None:
    driven = loop._Driven()
    found = []
    driven.drive(made_drowsy(driven))
    while not driven.loop.is_running():
        time.sleep(loop._MOMENT)
    asking = threading.Thread(
        target=lambda: found.append(driven.drive(three())), daemon=True
    )
    asking.start()
    asking.join(120)
    assert found == [3], (
        "the loop's own thread took it back, and nobody told it again to stop"
    )
