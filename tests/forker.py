"""Programs as processes of their own, forked from one that has its imports behind it.

To import what a command needs takes seconds; a fork takes none. The tests of one
session share one such program, with however many workers they run. With workers it is
forked itself, from the process that has collected the tests; else whoever needs it
first starts it. It ends with the last that is connected.

An order (JSON: argv, folder, to, program, hold, light, environment) starts a process,
with its output in the file `to`.out and its errors in `to`.err; the answer is its
process id. When it ends, its exit code goes into `to`.code. Without a `program` (a
Python file) it is the `understudy` command. What it is to `hold` (module:function) it
does not begin before it is told, the first time: so a test meets it at a point that
would be over in no time. With `light`, ids are masked as by the fixture `light_masks`.
"""

import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nursery import bear

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def until(
    true: Callable[[], bool], seconds: float, what: Callable[[], str] = lambda: ""
) -> None:
    """Wait for a condition; AssertionError says `what` when it does not come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what()
        time.sleep(0.005)


@dataclass
class Terminal:
    """A command that runs, or has ended."""

    process: int
    to: Path

    @property
    def out(self) -> str:
        return self.to.with_suffix(".out").read_text()

    @property
    def err(self) -> str:
        return self.to.with_suffix(".err").read_text()

    def end(self, seconds: float = 240.0) -> int:
        """Its exit code."""
        until(
            lambda: self.to.with_suffix(".code").exists(),
            seconds,
            lambda: self.out + self.err,
        )
        return int(self.to.with_suffix(".code").read_text())

    def says(self, words: str, seconds: float = 240.0) -> None:
        until(
            lambda: words in self.out + self.err,
            seconds,
            lambda: f"{words!r} in {self.out}{self.err}",
        )

    def holds(self, seconds: float = 240.0) -> None:
        """Wait until it has come to where it is held."""
        until(
            lambda: self.to.with_suffix(".held").exists(),
            seconds,
            lambda: self.out + self.err,
        )

    def go_on(self) -> None:
        """It was held for long enough."""
        self.to.with_suffix(".held").unlink()

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        self.end()


class Forker:
    """The way to the program that forks: the one of this session that has its socket in
    `place`.
    """

    def __init__(self, place: Path) -> None:
        with (place / "forker.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            line = _dialled(place / "forker")
            if line is None:
                _start(place)
                line = _dialled(place / "forker")
        assert line is not None, (place / "forker.err").read_text()
        self.place = place
        self._line = line

    def run(
        self,
        *argv: object,
        folder: Path,
        to: Path,
        program: Path | None = None,
        hold: str = "",
        light: bool = False,
        **environment: str,
    ) -> Terminal:
        """Start a process; it may still be running when this returns."""
        order = {
            "argv": [str(word) for word in argv],
            "folder": str(folder),
            "to": str(to),
        }
        order |= {
            "program": program and str(program),
            "hold": hold,
            "light": light,
            "environment": environment,
        }
        self._line.sendall(json.dumps(order).encode() + b"\n")
        process = int(self._line.recv(64))
        until(lambda: to.with_suffix(".err").exists(), 240)
        return Terminal(process, to)

    def close(self) -> None:
        self._line.close()


def stand_by(place: Path) -> socket.socket:
    """Fork the program from this process; it is there for as long as the line to it is
    open.
    """
    load()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "forker"))
        listener.listen(16)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            # of several threads; those that libraries keep for themselves stay behind
            child = os.fork()
        if child == 0:
            os.setsid()
            os.environ |= ENVIRONMENT
            try:
                serve(listener)
            finally:
                os._exit(0)
    line = _dialled(place / "forker")
    assert line is not None
    return line


def _start(place: Path) -> None:
    (place / "forker").unlink(missing_ok=True)
    program = [sys.executable, __file__, str(place / "forker")]
    environment = os.environ | ENVIRONMENT
    with (place / "forker.err").open("w") as said:
        subprocess.run(
            program,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
        )


def _dialled(path: Path) -> socket.socket | None:
    """A connection that was taken, if anybody listens there."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(str(path))
        if line.recv(64):
            return line
    except OSError:
        pass
    line.close()
    return None


# The program


def hold(where: str, sign: Path) -> None:
    """Have this function begin, the first time, when the `sign` that it has come to it
    is taken away.
    """
    *way, name = where.partition(":")[2].split(".")
    owner = functools.reduce(
        getattr, way, importlib.import_module(where.partition(":")[0])
    )
    work = getattr(owner, name)

    def held(*args: Any, **more: Any) -> Any:
        setattr(owner, name, work)
        sign.touch()
        until(lambda: not sign.exists(), 240)
        return work(*args, **more)

    setattr(owner, name, held)


def light_product(*factors: bytes) -> bytes:
    """In place of a point of the curve times a number: commutes as that does, and hides
    nothing.
    """
    from understudy.privacy.secure import set_intersection

    key, point = (int.from_bytes(factor, "little") for factor in factors)
    return (key * point % set_intersection._P).to_bytes(32, "little")


def light_point(hash_: bytes) -> bytes:
    """In place of the point of the curve that a hash leads to: the hash."""
    return hash_


def play(order: dict[str, Any]) -> None:
    """A child: never returns."""
    from understudy import cli
    from understudy.privacy.secure import set_intersection

    # also where the tests are a shell's background job
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, end in ((1, "out"), (2, "err")):
        os.dup2(
            os.open(f"{order['to']}.{end}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            number,
        )
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    sys.argv = [order["program"] or "understudy", *order["argv"]]
    if order["light"]:
        set_intersection.crypto_scalarmult = light_product
        set_intersection.crypto_core_ed25519_from_uniform = light_point
    if order["hold"]:
        hold(order["hold"], Path(f"{order['to']}.held"))
    code = 0
    try:
        if order["program"]:
            sys.path.insert(0, str(Path(order["program"]).parent))
            runpy.run_path(order["program"], run_name="__main__")
        else:
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            os.write(2, f"{end.code}\n".encode())
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _order(line: socket.socket) -> bytes:
    """What is said, to the end of its line; nothing where nobody is there any more."""
    said = b""
    while not said.endswith(b"\n") and (more := line.recv(1 << 16)):
        said += more
    return said


def serve(listener: socket.socket) -> None:
    """Until the last who was connected is gone; or nobody came."""
    from understudy.services.exchange import checker

    checker._started = functools.partial(bear, Path(listener.getsockname()).parent)
    lines: list[socket.socket] = []
    children: dict[int, str] = {}
    nobody = time.monotonic() + 60
    while lines or time.monotonic() < nobody:
        ready, _, _ = select.select(
            [listener, *lines], [], [], 0.02 if children else 1.0
        )
        for one in ready:
            if one is listener:
                line = listener.accept()[0]
                lines.append(line)
                line.sendall(b"here")
                nobody = 0.0
            elif text := _order(one):
                child = os.fork()
                if child == 0:
                    for line in (listener, *lines):
                        line.close()
                    play(json.loads(text))
                children[child] = json.loads(text)["to"]
                one.sendall(str(child).encode())
            else:
                lines.remove(one)
                one.close()
        while children and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            file = Path(f"{children.pop(ended[0])}.code")
            draft = file.with_suffix(".part")
            draft.write_text(str(os.waitstatus_to_exitcode(ended[1])))
            draft.replace(file)


def load() -> None:
    """What commands need, and the tree of all commands, which the program builds at
    each start.
    """
    import pydantic.fields  # typer loads these for every command
    import pydantic.type_adapter  # noqa: F401
    import typer.main

    import understudy.api.train
    import understudy.network.holder
    import understudy.network.serve
    import understudy.network.status
    import understudy.report.page
    import understudy.runtime.contract
    import understudy.runtime.identity
    import understudy.services.exchange.checker
    from understudy import cli

    if not hasattr(typer.main.get_command, "cache_info"):
        typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(cli.app)
    understudy.report.page._template()


if __name__ == "__main__":
    load()
    gc.collect()
    gc.freeze()  # no child's search for cycles touches what it shares with all others
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(16)
        if os.fork() == 0:  # whoever started it goes on as soon as it listens
            os.setsid()
            serve(listener)
