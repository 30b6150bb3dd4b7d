"""Every library that only a part of the package needs is missed in words that name the
line to type.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from understudy.ground.errors import ConfigError
from understudy.ground.extras import EXTRAS, install_library, install_line, need_extra

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())[
    "project"
]
DECLARED = PROJECT["optional-dependencies"]
# what no command brings with the rest
APART = {"all", "dev", "docs", "flower", "dask", "spark", "ray"}
PACKAGES = {"PIL": "pillow", "yaml": "pyyaml", "grpc": "grpcio"}
HIDING = """
import sys
from importlib.machinery import PathFinder
class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden)
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {hidden!r} else found(name, *more)
from understudy.cli import main
sys.argv = ["understudy", *{words!r}]
main()
"""


def test_every_extra_that_is_missed_in_words_is_declared_with_its_libraries() -> None:
    for extra, libraries in EXTRAS.items():
        declared = " ".join(DECLARED[extra]).lower()
        assert all(
            PACKAGES.get(name, name).lower() in declared for name in libraries
        ), extra


def test_one_extra_brings_all_others_but_those_that_need_an_environment_of_their_own():
    (whole,) = DECLARED["all"]
    named = whole.removeprefix("understudy[").removesuffix("]").split(",")
    assert set(named) == DECLARED.keys() - APART


def test_a_missing_library_is_named_with_its_extra() -> None:
    assert install_library("sqlalchemy.engine") == "pip install 'understudy[databases]'"
    assert install_library("duckdb") == "pip install duckdb"
    with pytest.raises(
        ConfigError,
        match=r"this needs no_such_library: pip install 'understudy\[exchange\]'",
    ):
        need_extra("exchange", "no_such_library")


def hidden(extra: str, *words: str) -> str:
    """What a command says where no library of the extra can be imported."""
    program = HIDING.format(hidden=EXTRAS[extra], words=words)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr, done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("evidence", ("evidence", ".")),
        ("exchange", ("exchange", "serve", "--data", "x")),
        ("exchange", ("exchange", "token", "list", "--at", "http://localhost:1")),
        ("exchange", ("console", ".")),
        ("network", ("serve", ".", "run.toml")),
        ("demo", ("demo",)),
        ("excel", ("schema", "infer", "{book}", "--out", "draft.toml")),
    ],
)
def test_a_command_that_lacks_a_library_names_the_line_that_installs_it(
    extra: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    book = tmp_path / "rows.xlsx"
    book.write_bytes(b"PK")
    said = hidden(extra, *(word.replace("{book}", str(book)) for word in words))
    assert install_line(extra) in said.replace("\n", " "), said
