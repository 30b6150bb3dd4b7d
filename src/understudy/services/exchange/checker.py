"""Look at offers in processes of their own, which can be ended.

Guarantee: a file of n bytes has `MEMORY + FACTOR · n` bytes and `seconds` to be looked at, whatever it says; then it is
refused, and the process is ended. The caller's own process reads nothing of the file.
Edges: a process is kept for the next file, and replaced after `_JOBS` of them or when it was ended; all are forked from
one that has imported what they need, so that a file which ends its process costs a fork and not the seconds of a start.
There are at most `most` at once; who comes later waits. Without /proc memory is not limited.
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

import understudy
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    DraftSchemaError,
    PrivacyError,
    SchemaError,
    UnderstudyError,
)
from understudy.protocols.sgde.offer import Requirements

MEMORY, FACTOR = 192 << 20, 16  # bytes for any file, and for each byte of it
SECONDS = 20.0
PROCESSES = 2
_JOBS = 256
_START = 120.0  # seconds to import what is needed, on a machine that is busy
_MOST_ANSWER = 1 << 25
_ERRORS: dict[str, type[UnderstudyError]] = {
    kind.__name__: kind for kind in (ArtefactError, ConfigError, PrivacyError, SchemaError, DraftSchemaError)
}


def allowed(size: int) -> int:
    return MEMORY + FACTOR * size


@dataclass(frozen=True)
class Checked:
    """An offer that fits the pool: its card, the bytes of its file, a few rows, and what looking took."""

    card: dict[str, Any]
    size: int
    preview: dict[str, Any] | None
    peak: int  # bytes more than before, in the process that looked


class Checkers:
    """Up to `most` processes that look at offers. For any thread."""

    def __init__(self, most: int = PROCESSES) -> None:
        self._free, self._lock = threading.BoundedSemaphore(most), threading.Lock()
        self._idle: list[_Worker] = []
        self._nursery: _Nursery | None = None
        self._lost: list[object] = []

    def check(
        self, path: str | Path, required: Requirements, *, seed: int | None = None, seconds: float = SECONDS
    ) -> Checked:
        """Look at a file; with a `seed`, draw a preview. Raises what the checks raise, ArtefactError beyond limits."""
        answer = self.look(path, required, seed=seed, seconds=seconds)
        return _checked(answer, Path(path).stat().st_size, seconds)

    def look(
        self, path: str | Path, required: Requirements, *, seed: int | None = None, seconds: float = SECONDS
    ) -> dict[str, Any]:
        """What the process answers, refusals too, and the `peak` of its memory in bytes."""
        job = {
            "path": str(Path(path).absolute()), "requirements": required.to_dict(), "seed": seed,
            "memory": allowed(Path(path).stat().st_size), "seconds": seconds,
        }  # fmt: skip
        with self._free:
            worker = self._take()
            try:
                if not worker.started():  # what it was to be forked from is gone: from another one
                    worker.end()
                    worker = self._take()
                answer = worker.ask(job, seconds)
            except BaseException:
                worker.end()
                raise
            if "spent" in answer or worker.jobs >= _JOBS:
                worker.end()
            else:
                with self._lock:
                    self._idle.append(worker)
        return answer

    def warm(self) -> None:
        with self._lock:
            if not self._idle:
                self._idle.append(self._born())

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().end()
            if self._nursery is not None:
                self._nursery.close()
                self._nursery = None

    def _forked(self) -> None:
        """In a copy of this process: the workers are the other's."""
        self._free, self._lock = threading.BoundedSemaphore(PROCESSES), threading.Lock()
        self._lost += [*self._idle, self._nursery]
        self._idle, self._nursery = [], None

    def _take(self) -> "_Worker":
        with self._lock:
            while self._idle:
                if (worker := self._idle.pop()).alive:
                    return worker
                worker.end()
            return self._born()

    def _born(self) -> "_Worker":
        """A new one. The lock is held."""
        if self._nursery is not None and self._nursery.alive:
            with contextlib.suppress(OSError):  # it was ended this moment
                return _Worker(self._nursery)
        if self._nursery is not None:
            self._nursery.close()
        self._nursery = _Nursery()
        return _Worker(self._nursery)


@cache
def checkers() -> Checkers:
    made = Checkers()
    atexit.register(made.close)
    os.register_at_fork(after_in_child=made._forked)
    return made


class _Nursery:
    """The process that others are forked from: it imports what they need, reads no file, and ends with its input."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.line, theirs = socket.socketpair()
        with theirs:
            self.process = _started(theirs)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def bear(self, line: socket.socket) -> None:
        with self._lock:
            socket.send_fds(self.line, [b"+"], [line.fileno()])

    def end(self, worker: int) -> None:
        """End one by its process id, which nobody else has before this was said."""
        with self._lock:
            self.line.sendall(b"-" + worker.to_bytes(8, "big"))

    def close(self) -> None:
        self.line.close()
        self.process.kill()
        self.process.wait()


def _started(line: socket.socket) -> subprocess.Popen[bytes]:
    """The process that forks, with this line as its input."""
    here = str(Path(understudy.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "understudy.services.exchange.check_worker"], stdin=line.fileno(),
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )  # fmt: skip


class _Worker:
    """One process. It ends when its line does, and so with this one, however that ends."""

    def __init__(self, nursery: _Nursery) -> None:
        self._nursery, self.process, self.jobs = nursery, 0, 0
        self._line, theirs = socket.socketpair()
        try:
            nursery.bear(theirs)
        except OSError:
            self._line.close()
            raise
        finally:
            theirs.close()

    @property
    def alive(self) -> bool:
        """Whether it still listens: it says nothing before it is asked but that it is ready."""
        return not self.process or not self._heard(0.0)

    def _heard(self, seconds: float) -> bool:
        """Whether there is something to read, or its line has ended, within this time."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def started(self) -> bool:
        if not self.process:
            self.process = int(self._answer(_START).get("ready", 0))
        return bool(self.process)

    def ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Its answer; {"spent": "time"} when none comes in time, {"spent": "process"} when it died of the job."""
        if not self.started():
            raise ArtefactError("the process that checks offers does not start. Nothing was exchanged.")
        self.jobs += 1
        try:
            self._line.sendall(json.dumps(job).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return {"spent": "process"}
        return self._answer(seconds)

    def end(self) -> None:
        if self.process:
            # where the nursery is gone, the limit of its processor time ends it
            with contextlib.suppress(OSError):
                self._nursery.end(self.process)
        self._line.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        line, until = bytearray(), time.monotonic() + seconds
        while not line.endswith(b"\n"):
            if not self._heard(until - time.monotonic()):
                return {"spent": "time"}
            try:
                chunk = self._line.recv(1 << 16)
            except ConnectionResetError:
                chunk = b""
            if not chunk or len(line) > _MOST_ANSWER:
                return {"spent": "process"}
            line += chunk
        answer: dict[str, Any] = json.loads(line)
        return answer


def _checked(answer: dict[str, Any], size: int, seconds: float) -> Checked:
    if "refused" in answer:
        raise _ERRORS.get(answer["refused"], ArtefactError)(answer["said"])
    if "spent" in answer:
        what = {
            "time": f"takes more than {seconds:g} s",
            "memory": f"takes more than {allowed(size):,} bytes of memory",
            "process": "ended the process that checks it",
        }
        raise ArtefactError(f"to check this offer {what[answer['spent']]}. Nothing was exchanged.")
    return Checked(answer["card"], answer["size"], answer["preview"], answer["peak"])
