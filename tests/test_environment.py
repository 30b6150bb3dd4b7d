"""The environment of Make (.ci/environment.py): what it made it may change, and nothing
else.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
UV = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a checkout as Make reads, and a `uv` that only notes what it was asked
    for.
    """
    home = tmp_path / "checkout"
    (home / ".ci").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/environment.py"):
        shutil.copy(ROOT / name, home / name)
    (home / "src" / "understudy").mkdir(parents=True)
    (home / "src" / "understudy" / "__init__.py").touch()
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV)
    uv.chmod(0o755)
    return home


def make(
    checkout: Path, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    path = f"{checkout.parent / 'bin'}:{os.environ['PATH']}"
    told = {
        k: v
        for k, v in os.environ.items()
        if k not in ("MAKEFLAGS", "MAKELEVEL", "PYTHONPATH")
    }
    return subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={sys.executable}", *words],
        cwd=checkout,
        env=told | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def asked(checkout: Path) -> list[str]:
    """What was to be installed so far, one line for each time."""
    noted = checkout.parent / "bin" / "asked"
    return noted.read_text().splitlines() if noted.exists() else []


def bare(folder: Path, *, packages: bool = False) -> Path:
    """An environment that somebody made by hand: with nothing in it, or with what this
    one has.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if packages:
        (own,) = folder.glob("lib/python*/site-packages")
        (own / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def everything(folder: Path) -> dict[str, float]:
    return {
        str(path): path.lstat().st_mtime
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def test_an_environment_that_make_did_not_make_is_refused_in_words_and_left_as_it_is(
    checkout: Path,
) -> None:
    theirs = bare(checkout.parent / "theirs")
    before = everything(theirs)
    told = make(checkout, "test", f"VENV={theirs}")
    assert told.returncode != 0
    assert (
        f"{theirs} was not made by Make in this checkout, so nothing is installed "
        "into it"
    ) in told.stderr
    assert all(
        name in told.stderr
        for name in ("understudy itself", "torch>=2.6", "pytest>=8", "statsmodels")
    )
    assert "mkdocs" not in told.stderr
    told = make(checkout, "clean", f"VENV={theirs}")
    assert "left as it is" in told.stderr
    assert everything(theirs) == before
    assert asked(checkout) == []


@pytest.mark.long
def test_an_environment_that_has_what_is_needed_is_used_as_it_is(
    checkout: Path,
) -> None:
    theirs = bare(checkout.parent / "theirs", packages=True)
    before = everything(theirs)
    told = make(
        checkout, "for-tests", f"VENV={theirs}", PYTHONPATH=str(checkout / "src")
    )
    assert (told.returncode, asked(checkout)) == (0, []), told.stderr
    assert "it has what is needed, and is used as it is" in told.stderr
    assert everything(theirs) == before
    # the package itself is not there now
    told = make(checkout, "for-tests", f"VENV={theirs}", PYTHONPATH="")
    assert f"understudy itself, from {checkout}" in told.stderr
    assert told.returncode != 0


def test_what_is_no_environment_is_not_made_one(checkout: Path) -> None:
    folder = checkout.parent / "letters"
    folder.mkdir()
    (folder / "letter.txt").touch()
    told = make(checkout, "demo", f"VENV={folder}")
    assert "is no Python environment. Nothing was changed." in told.stderr
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]


@pytest.mark.long
def test_an_environment_of_make_gets_what_is_asked_for_once_and_again_when_that_changes(
    checkout: Path,
) -> None:
    own = bare(checkout / ".venv")
    (own / ".made-by-make").write_text(f"{checkout}\n")
    told = make(checkout, "for-demo")
    assert "Installing what demo needs into .venv" in told.stderr
    assert make(checkout, "for-demo").stderr == ""
    (first,) = asked(checkout)
    assert first.endswith(f"--editable {checkout}[demo]")
    assert "Installing what tests needs" in make(checkout, "for-tests").stderr
    make(checkout, "for-docs")
    _, second, third = asked(checkout)
    assert " pytest>=8 " in second
    assert not {"torch>=2.6", "mkdocs-material>=9.6"} & set(second.split())
    assert "mkdocs-material>=9.6" in third.split()
    assert "pytest>=8" not in third.split()
    with (checkout / "constraints.txt").open("a") as constraints:
        constraints.write("another==1\n")
    make(checkout, "for-docs")
    assert asked(checkout)[3:] == [first, third]
    make(checkout, "clean")
    assert not own.exists()


def test_an_environment_of_another_checkout_is_not_changed(checkout: Path) -> None:
    theirs = bare(checkout.parent / "theirs")
    (theirs / ".made-by-make").write_text("/another/checkout\n")
    told = make(checkout, "demo", f"VENV={theirs}")
    assert "was not made by Make in this checkout" in told.stderr
    assert asked(checkout) == []


def test_what_was_not_installed_is_tried_again(checkout: Path) -> None:
    own = bare(checkout / ".venv")
    (own / ".made-by-make").write_text(f"{checkout}\n")
    # and there is no pip there
    (checkout.parent / "bin" / "uv").write_text("#!/bin/sh\nexit 1\n")
    told = make(checkout, "for-demo")
    assert "what demo needs could not be installed" in told.stderr
    assert not list(own.glob(".installed-*"))


def test_pandas_3_has_an_environment_of_its_own_with_the_package_and_its_own_version(
    checkout: Path,
) -> None:
    own = bare(checkout / ".venv-pandas3")
    (own / ".made-by-make").write_text(f"{checkout}\n")
    assert "Installing what pandas3 needs" in make(checkout, "for-pandas3").stderr
    (installed,) = asked(checkout)
    versions = (own / ".constraints-pandas3").read_text()
    pinned = (checkout / "constraints.txt").read_text()
    changed = set(versions.splitlines()) - set(pinned.splitlines())
    assert [line.partition(".")[0] for line in changed] == ["pandas==3"]
    assert f"--constraint {own.relative_to(checkout)}/.constraints-pandas3" in installed
    # sdmetrics asks for an older one
    assert "sdmetrics" not in installed
    assert not (checkout / ".venv").exists()


@pytest.mark.long
def test_pandas_3_that_cannot_be_installed_or_is_another_version_ends_in_words(
    checkout: Path,
) -> None:
    own = bare(checkout / ".venv-pandas3", packages=True)
    (own / ".made-by-make").write_text(f"{checkout}\n")
    other = make(checkout, "test-pandas3")
    assert other.returncode != 0
    assert "has pandas 2" in other.stderr
    (own / ".installed-pandas3").unlink()
    (checkout.parent / "bin" / "uv").write_text("#!/bin/sh\nexit 1\n")
    (own / "bin" / "python").unlink()
    (own / "bin" / "python").symlink_to("/bin/false")
    refused = make(checkout, "test-pandas3")
    assert refused.returncode != 0
    assert "what pandas3 needs could not be installed" in refused.stderr
