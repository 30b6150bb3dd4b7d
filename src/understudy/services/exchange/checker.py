"""Look at offers in processes of their own, which can be ended.

Guarantee: a file of n bytes has `MEMORY + FACTOR · n` bytes and `seconds` to be looked
at, whatever it says; then it is refused, and the process ends. The caller's own process
reads nothing of the file. No file is refused for what an earlier one did: if a process
ends that has looked at others, a new one looks at this file alone.
Edges: a process is kept for the next file unless it was ended; all are forked from one
that has imported what they need, so that a file which ends its process costs a fork and
not the seconds of a start. There are at most `PROCESSES` at once; who comes later
waits. Without /proc memory is not limited.
"""

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from understudy.ground.errors import ArtefactError, Effect, UnderstudyError
from understudy.ground.processes import environment
from understudy.protocols.papers.sgde.offer import Requirements

# bytes for any file, and for each byte of it
MEMORY = 192 << 20
FACTOR = 16
SECONDS = 20.0
PROCESSES = 2
_START = 120.0  # seconds to import what is needed, on a machine that is busy
_MOST_ANSWER = 1 << 25
_REFUSALS = (
    "ArtefactError",
    "ConfigError",
    "PrivacyError",
    "SchemaError",
    "DraftSchemaError",
)


def allowed(size: int) -> int:
    return MEMORY + FACTOR * size


@dataclass(frozen=True)
class Checked:
    """An offer that fits the pool: its card, the bytes of its file, a few rows, and
    what looking took.
    """

    card: dict[str, Any]
    size: int
    preview: dict[str, Any] | None
    peak: int  # bytes more than before, in the process that looked


class Checkers:
    """Processes that look at offers. For any thread."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(PROCESSES)
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []  # lines to those that have nothing to do
        self._nursery: _Nursery | None = None
        self._lost: list[object] = []

    def _forked(self) -> None:
        """In a copy of this process: all are the other's."""
        self._lost.append(self._nursery)
        self._free = threading.BoundedSemaphore(PROCESSES)
        self._lock = threading.Lock()
        self._nursery = None
        while self._idle:
            self._idle.pop().close()

    def check(
        self,
        path: str | Path,
        required: Requirements,
        *,
        seed: int | None = None,
        seconds: float = SECONDS,
    ) -> Checked:
        """Look at a file; with a `seed`, draw a preview. Raises what the checks raise,
        ArtefactError beyond limits.
        """
        answer = self.look(path, required, seed=seed, seconds=seconds)
        return _checked(answer, Path(path).stat().st_size, seconds)

    def look(
        self,
        path: str | Path,
        required: Requirements,
        *,
        seed: int | None = None,
        seconds: float = SECONDS,
    ) -> dict[str, Any]:
        """What the process answers, refusals too, and the `peak` of its memory in
        bytes; {"spent": "time"} when no answer comes in time, {"spent": "process"} when
        a process that had no job before died of this one.
        """
        job = {
            "path": str(Path(path).absolute()),
            "requirements": required.to_dict(),
            "seed": seed,
            "memory": allowed(Path(path).stat().st_size),
            "seconds": seconds,
        }
        with self._free:
            used = self._take_idle()
            if used is not None:
                answer = self._ask(used, job)
                if answer.get("spent") != "process":
                    return answer
            return self._ask(self._born(), job)

    def _ask(self, line: socket.socket, job: dict[str, Any]) -> dict[str, Any]:
        """What the process at this line answers. It is kept for the next job unless it
        spent what it had.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(line)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(json.dumps(job).encode() + b"\n")
            answer = _heard(line, job["seconds"])
            if "spent" not in answer:
                stack.pop_all()
                self._idle.append(line)
        return answer

    def warm(self) -> None:
        with self._lock:
            self._living()

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()
            if self._nursery is not None:
                self._nursery.close()
                self._nursery = None

    def _take_idle(self) -> socket.socket | None:
        """One that has nothing to do and still listens: it says nothing before it is
        asked.
        """
        with self._lock:
            while self._idle:
                line = self._idle.pop()
                if not _readable(line, 0.0):
                    return line
                line.close()
        return None

    def _born(self) -> socket.socket:
        """A new one. It ends with its line, and so with this process, however that
        ends.
        """
        gone: _Nursery | None = None
        # what it was to be forked from may be gone: from another one
        for _ in range(2):
            line, theirs = socket.socketpair()
            with theirs, self._lock, contextlib.suppress(OSError):
                gone = self._living(gone)
                gone.bear(theirs)
            if "ready" in _heard(line, _START):
                return line
            line.close()
        raise ArtefactError(
            "the process that checks offers does not start.",
            effect=Effect.NOTHING_EXCHANGED,
        )

    def _living(self, gone: "_Nursery | None" = None) -> "_Nursery":
        """What can be forked from, and is not this one. The lock is held."""
        old = self._nursery
        if old is not None and (old is gone or old.process.poll() is not None):
            old.close()
            self._nursery = None
        self._nursery = self._nursery or _Nursery()
        return self._nursery


@cache
def checkers() -> Checkers:
    shared = Checkers()
    atexit.register(shared.close)
    os.register_at_fork(after_in_child=shared._forked)
    return shared


class _Nursery:
    """The process that others are forked from: it imports what they need, reads no
    file, and ends with its input.
    """

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self.process = _started(theirs)

    def bear(self, line: socket.socket) -> None:
        socket.send_fds(self._line, [b"+"], [line.fileno()])

    def close(self) -> None:
        self._line.close()
        self.process.kill()
        self.process.wait()


def _started(line: socket.socket) -> subprocess.Popen[bytes]:
    """The process that forks, with this line as its input."""
    program = "understudy.services.exchange.check_worker"
    return subprocess.Popen(
        [sys.executable, "-P", "-m", program], stdin=line.fileno(), env=environment()
    )


def _readable(line: socket.socket, seconds: float) -> bool:
    """Whether there is something to read, or the line has ended, within this time."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(1000 * max(0.0, seconds)))


def _heard(line: socket.socket, seconds: float) -> dict[str, Any]:
    """The next line of a process, or what was spent before one came."""
    line_so_far = bytearray()
    until = time.monotonic() + seconds
    while not line_so_far.endswith(b"\n"):
        seconds_left = until - time.monotonic()
        if seconds_left <= 0 or not _readable(line, seconds_left):
            return {"spent": "time"}
        try:
            chunk = line.recv(1 << 16)
        except ConnectionResetError:
            chunk = b""
        # the kernel ends a process soon after its time is over
        if not chunk or len(line_so_far) > _MOST_ANSWER:
            return {"spent": "process" if time.monotonic() < until else "time"}
        line_so_far += chunk
    answer: dict[str, Any] = json.loads(line_so_far)
    return answer


def _checked(answer: dict[str, Any], size: int, seconds: float) -> Checked:
    refused = answer.get("refused")
    if refused is not None:
        error = UnderstudyError.from_dict(refused)
        if type(error).__name__ not in _REFUSALS:
            error = ArtefactError(error.message, effect=error.effect)
        raise error
    if "spent" in answer:
        what = {
            "time": f"takes more than {seconds:g} s",
            "memory": f"takes more than {allowed(size):,} bytes of memory",
            "process": "ended the process that checks it",
        }
        raise ArtefactError(
            f"to check this offer {what[answer['spent']]}.",
            effect=Effect.NOTHING_EXCHANGED,
        )
    return Checked(answer["card"], answer["size"], answer["preview"], answer["peak"])
