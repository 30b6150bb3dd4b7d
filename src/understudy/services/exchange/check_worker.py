"""Processes that look at offers, and the one they are forked from (`python -m …exchange.check_worker`).

`checker` starts that one, with a socket as its input. At a "+" with another socket it forks a process that speaks
there; at a "-" with a number it ends the one that has it. A forked one reads one job a line (JSON), and answers with
one line. Before a job it gives up the right to more memory and processor time than the job may have, so that a file
that asks for more cannot take it from others.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from understudy.ground.errors import UnderstudyError
from understudy.protocols.sgde.offer import Requirements, check_generator
from understudy.services.exchange.offer_file import OfferFile
from understudy.services.exchange.preview import preview_of

_SAID = 1000  # letters of a refusal: it may quote what the file says
_STATM, _STATUS, _REFS = (Path("/proc/self") / name for name in ("statm", "status", "clear_refs"))


def main() -> None:
    """Fork and end processes until nobody asks for them any more."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the process above, which then closes the socket
    torch.set_num_threads(1)
    gc.freeze()  # what was imported stays: no search for cycles looks at it again
    os.dup2(2, 1)  # whatever a library prints goes where errors go
    with socket.socket(fileno=os.dup(0)) as orders:
        while (order := socket.recv_fds(orders, 1, 1))[0]:
            if order[0] == b"-":
                _end(int.from_bytes(orders.recv(8, socket.MSG_WAITALL), "big"))
                continue
            (line,) = order[1]
            if os.fork() == 0:
                orders.close()
                _work(line)
            os.close(line)


def _end(process: int) -> None:
    """Until this was said, nobody else can have its number: it is a child that was not waited for."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _work(handle: int) -> NoReturn:
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with socket.socket(fileno=handle) as line, line.makefile("rb") as jobs:
            _say(line, {"ready": os.getpid()})
            for job in jobs:
                _say(line, _answer(json.loads(job)))
    finally:
        os._exit(0)


def _say(line: socket.socket, value: dict[str, Any]) -> None:
    line.sendall(json.dumps(value).encode() + b"\n")


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    begun = _peak(reset=True)
    try:
        with _limited(job["memory"], job["seconds"]):
            answer = look(job["path"], Requirements.from_dict(job["requirements"]), job["seed"])
    except UnderstudyError as error:
        answer = {"refused": type(error).__name__, "said": _text(error)}
    except MemoryError:
        answer = {"spent": "memory"}
    except (RuntimeError, OverflowError) as error:  # torch's words for the same, or for shapes and numbers
        said = _text(error).partition("\n")[0].rstrip(".")
        answer = {"refused": "ArtefactError", "said": f"this generator cannot be rebuilt: {said}."}
        if "memory" in said:
            answer = {"spent": "memory"}
    return answer | {"peak": max(0, _peak() - begun)}


def _text(error: Exception) -> str:
    return str(error)[:_SAID].encode(errors="replace").decode()


def look(path: str | Path, requirements: Requirements, seed: int | None) -> dict[str, Any]:
    """All that can be checked of a file, in the order of what it costs; with a `seed` a few rows, too."""
    file = OfferFile.read(path, requirements)
    generator = file.generator()
    check_generator(requirements, generator)
    preview = None if seed is None else preview_of(generator, seed=seed)
    return {"card": file.card, "size": file.size, "preview": preview}


@contextlib.contextmanager
def _limited(memory: int, seconds: float) -> Iterator[None]:
    """At most so many bytes more than now, and so many seconds of a processor."""
    space, hard = resource.getrlimit(resource.RLIMIT_AS)
    _, last = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (until if last < 0 else min(until, last), last))
    if _STATM.exists():
        now = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory if hard < 0 else min(now + memory, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (space, hard))


def _peak(*, reset: bool = False) -> int:
    """The most memory that this process held, in bytes; with `reset`, counted from now on."""
    if reset and _REFS.exists():
        _REFS.write_text("5")
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(_STATUS.read_text().partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    main()
