"""Work in several processes of this machine: functions of this package, from bytes to
bytes.

Each process is an interpreter of its own, started by name and not by a fork, so that a
script, a notebook or a server with threads can have them without a word about it in its
own code. They wait for work a while and end by themselves, and with the one that
started them. `UNDERSTUDY_PROCESSES` says how many there are; as many as cores unless it
is set.

Edges: an error of this package comes back as it is; any other, or a process that dies →
PartyError.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError, Effect, PartyError, UnderstudyError

VARIABLE = "UNDERSTUDY_PROCESSES"
_IDLE = 60.0  # seconds without work after which processes end
_START = "from understudy.ground.processes import serve; serve()"


def process_count() -> int:
    setting = os.environ.get(VARIABLE, "")
    if not setting:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not setting.isdecimal():
        raise ConfigError(f"{VARIABLE} must be a whole number, not {setting[:40]!r}.")
    whole(**{VARIABLE: int(setting)})
    return int(setting)


def environment() -> dict[str, str]:
    """What a process of this package is started with: its libraries have one thread."""
    path = os.pathsep.join(
        filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
    )
    return os.environ | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def in_processes(work: str, asks: Sequence[bytes]) -> Iterator[bytes]:
    """What `work`, "module:function" of this package, makes of each; as many at a time
    as there may be processes.
    """
    with _LOCK:
        yield from _Workers.shared().map(work, asks)


class _Workers:
    # by whom, since a fork's are not its own
    held: "tuple[int, _Workers] | None" = None

    def __init__(self) -> None:
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._end: threading.Timer | None = None

    @classmethod
    def shared(cls) -> "_Workers":
        if cls.held is None or cls.held[0] != os.getpid():
            cls.held = os.getpid(), cls()
        return cls.held[1]

    def map(self, work: str, asks: Sequence[bytes]) -> Iterator[bytes]:
        if self._end is not None:
            self._end.cancel()
        try:
            with ThreadPoolExecutor(max(1, min(process_count(), len(asks)))) as threads:
                yield from threads.map(lambda ask: self._answer(work, ask), asks)
        finally:
            self._end = threading.Timer(_IDLE, self.close)
            self._end.daemon = True
            self._end.start()

    def close(self) -> None:
        """End those that have nothing to do."""
        with suppress(Empty):
            while True:
                _ended(self._idle.get_nowait())

    def _answer(self, work: str, ask: bytes) -> bytes:
        try:
            process = self._idle.get_nowait()
        except Empty:
            command = [sys.executable, "-c", _START]
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, env=environment()
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, work.encode(), ask)
            kind = _read(process.stdout)
            answer = _read(process.stdout)
        except (OSError, EOFError):
            process.kill()
            _ended(process)
            raise PartyError(
                f"a process that counted rows ended by itself ({process.returncode}): "
                "too little memory, perhaps. "
                f"{VARIABLE}=1 counts in one.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            ) from None
        self._idle.put(process)
        if kind == b"answer":
            return answer
        raise UnderstudyError.from_dict(json.loads(answer))


_LOCK = threading.Lock()  # one piece of work at a time has all cores


def _ended(process: "subprocess.Popen[bytes]") -> None:
    """It hears no more, and so it ends."""
    with suppress(OSError), process:
        pass


@atexit.register
def _end_all() -> None:
    if _Workers.held is not None and _Workers.held[0] == os.getpid():
        _Workers.held[1].close()


def serve() -> None:
    """Work until nobody asks any more. What is printed meanwhile goes where
    errors go.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asks = sys.stdin.buffer
    while True:
        try:
            work = _read(asks).decode()
            ask = _read(asks)
        except (EOFError, OSError):
            return
        module, function = work.split(":")
        try:
            if not module.startswith("understudy."):
                raise PartyError(f"{json.dumps(module)} is not of this package.")
            _write(answers, b"answer", getattr(import_module(module), function)(ask))
        except UnderstudyError as error:
            _write(answers, b"error", json.dumps(error.to_dict()).encode())
        except Exception as error:  # its text may quote rows, and is not repeated
            failed = PartyError(
                f"a part could not be counted ({type(error).__name__})."
            )
            _write(answers, b"error", json.dumps(failed.to_dict()).encode())


def _write(file: IO[bytes], *parts: bytes) -> None:
    for part in parts:
        file.write(len(part).to_bytes(8, "big"))
        file.write(part)
    file.flush()


def _read(file: IO[bytes]) -> bytes:
    size = file.read(8)
    data = file.read(int.from_bytes(size, "big")) if len(size) == 8 else b""
    if len(size) < 8 or len(data) < int.from_bytes(size, "big"):
        raise EOFError
    return data
