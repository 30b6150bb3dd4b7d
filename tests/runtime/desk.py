"""People's files and terminals on one machine; every command that others meet is a
process of its own.
"""

import sys
import tomllib
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
import tomli_w

from forker import Forker, Terminal
from understudy import cli
from understudy.cli.hub import init

COLUMNS = {
    "clinic": ["colour", "smoker", "age"],
    "insurer": ["grade", "treated", "income"],
}
# where a server is held after a round of VertiGAN
SAVE = "understudy.protocols.papers.vertical_gans.server:GanServer._save"
POLICY = {
    "protocols": ["verti-gan"],
    "epsilon_run": 3.0,
    "epsilon_total": 8.0,
    "delta": 1e-4,
    "people": 20,
    "accept": "always",
    "partners": ["clinic", "insurer"],
}


@dataclass
class Desk:
    """Three people's files on one machine."""

    folder: Path
    forker: Forker
    port: int
    opened: int = 0

    def run(self, *argv: object, hold: str = "") -> Terminal:
        """Start a command; it may still be running when this returns."""
        self.opened += 1
        to = self.folder / f"terminal-{self.opened}"
        return self.forker.run(*argv, folder=self.folder, to=to, hold=hold)

    def done(self, *argv: object) -> str:
        """Run a command to its good end; what it printed."""
        code, out, err = self._ended(*argv)
        assert code == 0, err
        return out

    def fails(self, *argv: object) -> str:
        """Run a command that ends with an error; its words."""
        code, out, err = self._ended(*argv)
        assert code == 1, out + err
        return " ".join(err.split())

    def _ended(self, *argv: object) -> tuple[int, str, str]:
        """Exit code, output and errors: of a process, where a port is opened, else of
        the command in this one.
        """
        if argv[0] == "serve":
            terminal = self.run(*argv)
            return terminal.end(), terminal.out, terminal.err
        code = 0
        out = StringIO()
        err = StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            chdir(self.folder),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            patch.setattr(sys, "argv", ["understudy", *map(str, argv)])
            patch.setenv("COLUMNS", "200")
            try:
                cli.main()
            except SystemExit as stop:
                code = int(stop.code or 0)
        return code, out.getvalue(), err.getvalue()

    def found(self, *names: str) -> None:
        """As `understudy federation init` does, but in this process."""
        init(
            "joint study",
            f"127.0.0.1:{self.port}",
            list(names or COLUMNS),
            self.folder / "federation",
        )

    def join(self, name: str, *, hold: str = "", **more: object) -> Terminal:
        options = {
            "table": f"{name}.csv",
            "schema": f"{name}-schema.toml",
            "policy": "policy.toml",
        } | more
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        invitation = f"federation/invitations/{name}.toml"
        return self.run("join", invitation, *words, hold=hold)

    def serve(self, *more: object, hold: str = "") -> Terminal:
        return self.run(
            "serve", "federation/federation.toml", "run.toml", *more, hold=hold
        )

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
