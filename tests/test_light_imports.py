"""The command starts without the libraries that only work needs, and every public name
is there when asked for.
"""

import subprocess
import sys

import pytest

import understudy

HEAVY = {"torch", "pandas", "scipy", "sklearn", "dp_accounting", "grpc", "cryptography"}


def loaded_by(*programs: str) -> list[set[str]]:
    """The heavy libraries that a fresh interpreter holds after each of these programs,
    one after the other.
    """
    told = "\nimport sys\nprint('\\nloaded:', *sys.modules)\n"
    program = "".join(program + told for program in programs)
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    return [
        HEAVY & set(line.split())
        for line in said.splitlines()
        if line.startswith("loaded:")
    ]


def command(*words: str) -> str:
    return f"from understudy.cli import app\napp({words!r}, standalone_mode=False)"


LIGHT = {
    "package": "import understudy\nunderstudy.__version__, dir(understudy)",
    "cli": "import understudy.cli",
    "help": command("--help"),
    "help of a command": command("exchange", "train", "--help"),
    "example": command("run", "--example"),
    "version": command("version"),
}
TABLE = "import understudy.data.kinds, understudy.data.infer"


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """By one interpreter, from what needs the least to what needs more."""
    programs = LIGHT | {"table": TABLE}
    return dict(zip(programs, loaded_by(*programs.values()), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("program", LIGHT)
def test_starting_loads_no_heavy_library(
    loaded: dict[str, set[str]], program: str
) -> None:
    assert loaded[program] == set()


def test_a_table_is_checked_without_networks(loaded: dict[str, set[str]]) -> None:
    assert loaded["table"] == {"pandas"}


@pytest.mark.long
def test_a_ledger_loads_the_accountant_and_no_networks() -> None:
    assert loaded_by("from understudy import Ledger") == [{"dp_accounting", "scipy"}]


@pytest.mark.parametrize("name", understudy.__all__)
def test_every_public_name_is_what_it_says(name: str) -> None:
    assert name in dir(understudy)
    assert callable(getattr(understudy, name))
    assert getattr(understudy, name).__name__.removeprefix("understudy.") == name


def test_another_name_is_missed_as_in_any_module() -> None:
    with pytest.raises(
        AttributeError, match="module 'understudy' has no attribute 'trian'"
    ):
        _ = understudy.trian  # type: ignore[attr-defined]
