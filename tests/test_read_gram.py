"""docs/design.md lists what must be read to understand gram: files that the README's
call enters, and every one that it enters of gram's rooms.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import understudy as us
from understudy.data.samples import toy

ROOT = Path(us.__file__).parent
REPOSITORY = Path(__file__).parent.parent
ROOMS = ("protocols/gram", "protocols/joint", "models/tables")
MAX_FILES = 35
# Functions are entered where they run: neither what a module runs when it is imported,
# nor what the body of a class does.
TRACED = """
import ast
import importlib
import inspect
import json
import pkgutil
import sys
import threading
from pathlib import Path

import understudy as us
import understudy.api.synthesize

source, *rooms = sys.argv[1:]
for room in rooms:
    package = importlib.import_module("understudy." + room.replace("/", "."))
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

root = Path(us.__file__).parent
entered = set()


def trace(frame, event, argument):
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        entered.add(frame.f_code.co_filename)


program = ast.parse(Path(source).read_text())
imports, calls = program.body[:2], program.body[2:4]
short = ast.parse("f(steps=2, components=8)", mode="eval").body.keywords
calls[0].value.keywords += short
names = {}
exec(compile(ast.Module(imports, []), source, "exec"), names)
threading.settrace(trace)
sys.settrace(trace)
exec(compile(ast.Module(calls, []), source, "exec"), names)
sys.settrace(None)
inside = [Path(file) for file in entered if Path(file).is_relative_to(root)]
print(json.dumps(sorted(file.relative_to(root).as_posix() for file in inside)))
"""


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of the package with a function that `us.synthesize` of the README, and
    the sampling below it, runs.
    """
    folder = tmp_path_factory.mktemp("read_gram")
    frame, _ = toy(rows=1_000, seed=1)
    people = frame.drop(columns=["joined", "treated"]).dropna()
    people.to_csv(folder / "people.csv", index=False)
    block = re.search(
        r"^```python\n(.*?)^```",
        (REPOSITORY / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert block is not None
    (folder / "readme.py").write_text(block[1])
    done = subprocess.run(
        [sys.executable, "-c", TRACED, "readme.py", *ROOMS],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def section() -> str:
    found = re.search(
        r"^## What must be read to understand gram\n(.*?)^## ",
        (REPOSITORY / "docs" / "design.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None
    return found[1]


def listed(section: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def left_out(section: str) -> list[str]:
    """Files that are entered too, each with the reason why it need not be read."""
    return re.findall(r"^- `([^`]+)`:? \w", section, re.MULTILINE)


@pytest.mark.long
def test_every_file_that_the_design_lists_is_entered_by_the_call_of_the_readme(
    entered: set[str], section: str
) -> None:
    files = [*listed(section), *left_out(section)]
    assert len(set(files)) == len(files)
    assert set(files) - entered == set()


@pytest.mark.long
def test_every_file_of_the_rooms_of_gram_that_is_entered_is_one_that_the_design_lists(
    entered: set[str], section: str
) -> None:
    own = {file for file in entered if file.startswith(tuple(f"{r}/" for r in ROOMS))}
    assert len(own) > 20
    assert own - {*listed(section), *left_out(section)} == set()


def test_what_must_be_read_is_few_files(section: str) -> None:
    assert len(listed(section)) <= MAX_FILES
