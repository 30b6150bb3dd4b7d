"""People's files and terminals on one machine; every command is a process of its own."""

import json
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tomli_w

COLUMNS = {"clinic": ["colour", "smoker", "age"], "insurer": ["grade", "treated", "income"]}
POLICY = {
    "protocols": ["verti-gan"], "epsilon_run": 3.0, "epsilon_total": 8.0, "delta": 1e-4, "people": 20,
    "accept": "always", "partners": ["clinic", "insurer"],
}  # fmt: skip


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
        until(lambda: self.to.with_suffix(".code").exists(), seconds, lambda: self.out + self.err)
        return int(self.to.with_suffix(".code").read_text())

    def says(self, words: str, seconds: float = 240.0) -> None:
        until(lambda: words in self.out + self.err, seconds, lambda: f"{words!r} in {self.out}{self.err}")

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        self.end()


def until(true: Callable[[], bool], seconds: float, what: Callable[[], str] = lambda: "") -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what()
        time.sleep(0.005)


@dataclass
class Desk:
    """Three people's files on one machine."""

    folder: Path
    machine: subprocess.Popen[str]
    port: int
    opened: int = 0

    def run(self, *argv: object) -> Terminal:
        """Start a command; it may still be running when this returns."""
        assert self.machine.stdin is not None
        assert self.machine.stdout is not None
        self.opened += 1
        to = self.folder / f"terminal-{self.opened}"
        order = {"argv": [str(word) for word in argv], "folder": str(self.folder), "to": str(to)}
        self.machine.stdin.write(json.dumps(order) + "\n")
        self.machine.stdin.flush()
        process = int(self.machine.stdout.readline())
        until(lambda: to.with_suffix(".err").exists(), 60)
        return Terminal(process, to)

    def done(self, *argv: object) -> str:
        """Run a command to its good end; what it printed."""
        terminal = self.run(*argv)
        assert terminal.end() == 0, terminal.err
        return terminal.out

    def fails(self, *argv: object) -> str:
        """Run a command that ends with an error; its words."""
        terminal = self.run(*argv)
        assert terminal.end() == 1, terminal.out + terminal.err
        return " ".join(terminal.err.split())

    def found(self, *names: str) -> None:
        invited = [word for name in names or COLUMNS for word in ("--party", name)]
        self.done("federation", "init", "joint study", "--at", f"127.0.0.1:{self.port}", *invited)

    def join(self, name: str, **more: object) -> Terminal:
        options = {"table": f"{name}.csv", "schema": f"{name}-schema.toml", "policy": "policy.toml"} | more
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        return self.run("join", f"federation/invitations/{name}.toml", *words)

    def serve(self, *more: object) -> Terminal:
        return self.run("serve", "federation/federation.toml", "run.toml", *more)

    def change(self, file: str, **changes: object) -> None:
        path = self.folder / file
        body = tomllib.loads(path.read_text())
        for key, value in changes.items():
            *way, last = key.split("__")
            place = body
            for step in way:
                place = place[step]
            place[last] = value
        path.write_text(tomli_w.dumps(body))
