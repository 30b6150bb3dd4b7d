"""Processes that look at offers, forked from one program that has imported what they
need, and nothing else.

To import it takes seconds, for each process that looks at offers. The tests of one
session share one such program, as they share that of `forker`: whoever needs it first
starts it. It ends with the last process that holds the pipe of who started it: the one
that made this module, and all that were forked from it since.

Run as a program, this file listens at its first argument until its second, the end of a
pipe, is closed. Who connects sends a socket, and is told the number of a process that
has it as its input, as `checker` starts one.
"""

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from functools import cached_property
from pathlib import Path

# who forks after this holds its ends, too
_PIPE = () if __name__ == "__main__" else os.pipe()


class Born:
    """What `checker` needs of a process that it started, which may still have its
    imports before it.
    """

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders

    @cached_property
    def pid(self) -> int:
        with self._orders:
            return int(self._orders.recv(64))

    @cached_property
    def _handle(self) -> int:
        return os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        told = "pid" in self.__dict__ or _ready(self._orders, 0)
        return 0 if told and _ready(self._handle, 0) else None

    def kill(self) -> None:
        if not _ready(self._handle, 0):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> int:
        _ready(self._handle, None)
        os.close(self._handle)
        return 0


def _ready(handle: socket.socket | int, milliseconds: int | None) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(milliseconds))


def bear(place: Path, line: socket.socket) -> Born:
    """A process with this line as its input, forked from the program that listens in
    `place`.
    """
    with (place / "nursery.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        orders = socket.socket(socket.AF_UNIX)
        try:
            orders.connect(str(place / "nursery"))
        except OSError:
            _start(place)
            orders.connect(str(place / "nursery"))
    socket.send_fds(orders, [b"+"], [line.fileno()])
    return Born(orders)


def _start(place: Path) -> None:
    (place / "nursery").unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, sys.path))
    with (place / "nursery.err").open("w") as said:
        subprocess.run(
            [sys.executable, "-P", __file__, str(place / "nursery"), str(_PIPE[0])],
            check=True,
            pass_fds=_PIPE[:1],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=os.environ
            | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )


# The program


def serve(listener: socket.socket, alive: int) -> None:
    from understudy.services.exchange import check_worker

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while listener in select.select([listener, alive], [], [])[0]:
        orders = listener.accept()[0]
        _, (line,), _, _ = socket.recv_fds(orders, 1, 1)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(line, 0)
            for handle in (listener.detach(), orders.detach(), line, alive):
                os.close(handle)
            check_worker.main()
            os._exit(0)
        os.close(line)
        orders.sendall(str(child).encode())
        orders.close()


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(16)
        if os.fork() == 0:  # whoever started it goes on as soon as it listens
            os.setsid()
            serve(listener, int(sys.argv[2]))
            os._exit(0)
