"""The command starts without the libraries that only work needs, and every public name is there when asked for."""

import subprocess
import sys

import pytest

import understudy

HEAVY = {"torch", "pandas", "scipy", "sklearn", "dp_accounting", "grpc", "cryptography"}


def loaded_by(program: str) -> set[str]:
    """The heavy libraries that a fresh interpreter holds after this program."""
    program += "\nimport sys\nprint('\\n', *sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return HEAVY & set(said.splitlines()[-1].split())


def command(*words: str) -> str:
    return f"from understudy.cli import app\napp({words!r}, standalone_mode=False)"


@pytest.mark.parametrize(
    "program",
    ["import understudy\nunderstudy.__version__, dir(understudy)", "import understudy.cli",
     command("--help"), command("exchange", "train", "--help"), command("run", "--example"), command("version")],
    ids=["package", "cli", "help", "help of a command", "example", "version"],
)  # fmt: skip
def test_starting_loads_no_heavy_library(program: str) -> None:
    assert loaded_by(program) == set()


def test_a_ledger_loads_the_accountant_and_no_networks() -> None:
    assert loaded_by("from understudy import Ledger") == {"dp_accounting", "scipy"}


def test_a_table_is_checked_without_networks() -> None:
    assert loaded_by("import understudy.data.described, understudy.data.infer") == {"pandas"}


@pytest.mark.parametrize("name", understudy.__all__)
def test_every_public_name_is_what_it_says(name: str) -> None:
    assert name in dir(understudy)
    assert callable(getattr(understudy, name))
    assert getattr(understudy, name).__name__.removeprefix("understudy.") == name


def test_another_name_is_missed_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'understudy' has no attribute 'trian'"):
        _ = understudy.trian  # type: ignore[attr-defined]
