"""docs/questions.md runs, and prints what it says: words alike, numbers nearly (other
processors round otherwise).
"""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("light_masks")
PAGE = Path(__file__).parent.parent / "docs" / "questions.md"
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def alike(said: str, printed: str) -> bool:
    """The same words, and numbers within a quarter or 0.11."""
    if NUMBER.sub("#", said).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(said), NUMBER.findall(printed), strict=True)
    return all(
        abs(float(a) - float(b)) <= max(0.11, 0.25 * abs(float(a))) for a, b in pairs
    )


@pytest.mark.long
def test_the_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where it saves
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 7
    names: dict[str, Any] = {}
    for code, said in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102
        assert alike(said, printed.getvalue()), f"{code}\nprints\n{printed.getvalue()}"


@pytest.mark.parametrize("other", ["a 10 b", "a 1.0 c", "a 1.0", "a 1.0 b 2"])
def test_alike_tells_apart(other: str) -> None:
    assert alike("a 1.0 b", "a 1.1  b\n")
    assert not alike("a 1.0 b", other)
