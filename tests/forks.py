"""Work in a process of its own, which a test may kill."""

import os
from collections.abc import Callable


def fork(work: Callable[[], None]) -> int:
    """The number of a process that does the work, and ends with 0 or 1."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    return child
