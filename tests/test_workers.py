"""Tests in several processes say what they would say in one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOME = """
import os
import pytest

@pytest.fixture(scope="module")
def made(tmp_path_factory):
    yield tmp_path_factory.mktemp("made")
    print("taken down")

@pytest.mark.parametrize("number", range(40))
def test_passes(number, made):
    assert made.exists()

def test_fails(made):
    print("said before")
    assert [1, 2] == [1, 3]

def test_is_skipped():
    pytest.skip("not here")

def test_kills_its_process():
    os._exit(7)

def test_passes_after_that(made):
    assert made.exists()

@pytest.fixture
def broken():
    raise RuntimeError("no such thing")

def test_is_not_reached(broken):
    pass
"""


def said(folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of the tests in `folder`."""
    here = {
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "workers",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-rA", *options, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | here,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_some.py").write_text(SOME)
    (tmp_path / "pytest.ini").touch()
    return tmp_path


def test_every_test_is_run_once_and_a_process_that_dies_fails_the_test_it_was_at(
    folder: Path,
) -> None:
    code, out = said(folder, "--workers", "3")
    assert code == 1, out
    assert re.search(r"2 failed, 41 passed, 1 skipped, 1 error", out), out
    assert len(set(re.findall(r"PASSED test_some.py::(\S+)", out))) == 41
    assert "At index 1 diff: 2 != 3" in out
    assert "said before" in out
    assert "The process of this test ended with 7." in out
    assert "no such thing" in out


def test_the_first_failure_stops_all_where_that_is_asked_for(folder: Path) -> None:
    code, out = said(folder, "--workers", "2", "-x")
    assert code == 1, out
    assert re.search(r"1 (failed|error)", out), out  # whichever worker comes first
    assert "stopping after 1 failures" in out


def test_what_cannot_be_collected_is_said_before_any_test_runs(folder: Path) -> None:
    (folder / "test_other.py").write_text("import no_such_module")
    code, out = said(folder, "--workers", "2")
    assert code == 2, out
    assert "no_such_module" in out
    assert "passed" not in out
