"""Every command in the documentation is one that there is, with options that it has."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from understudy.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*")),
]
LINE = re.compile(r"^\s*(?:[\w-]*\$ |ExecStart=\S*/)?(understudy [a-z].*)$")


def commands(text: str) -> list[str]:
    """Commands in blocks, not in sentences; those that go on at a backslash as one
    line.
    """
    found = []
    fenced = False
    for line in text.replace("\\\n", " ").splitlines():
        fenced ^= line.startswith("```")
        if (fenced or line.startswith(("    ", "ExecStart="))) and (
            match := LINE.match(line)
        ):
            found.append(match[1])
    return found


@cache
def every_command() -> Any:
    return get_command(app)


def wrong(line: str) -> str | None:
    """What is wrong with a command: its name, or one of its options."""
    words = shlex.split(line.split("  #")[0].split(" | ")[0].split(" > ")[0])[1:]
    command = every_command()
    while words and (within := getattr(command, "commands", None)):
        name = words.pop(0)
        if name not in within:
            return f"there is no command {name}"
        command = within[name]
    known = {
        option
        for param in command.params
        for option in (*param.opts, *param.secondary_opts)
    } | {"--help"}
    used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return f"{command.name} has no {sorted(used - known)}" if used - known else None


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.is_file()], ids=lambda page: page.name
)
def test_every_command_of_a_page_is_there_with_the_options_that_it_names(
    page: Path,
) -> None:
    faults = {
        line: fault for line in commands(page.read_text()) if (fault := wrong(line))
    }
    assert not faults


def test_commands_are_found_and_faults_are_told() -> None:
    text = """
    $ understudy run run.toml --resum
      hub$ understudy serve f run.toml \\
        --linger 5
    understudy fly
    Not understudy x
    """
    assert [wrong(line) for line in commands(text)] == [
        "run has no ['--resum']",
        None,
        "there is no command fly",
    ]
    assert sum(len(commands(page.read_text())) for page in PAGES if page.is_file()) > 60
