"""TOML and JSON that somebody else wrote: looked at before they are parsed, so that none costs more than its size.

Python's TOML parser takes time that grows with the square of a dotted key, and either parser follows brackets until the
stack ends. So a text has at most so many bytes, brackets within brackets, and dots in one key.

Guarantee: time and memory are bounded by a multiple of the file's size, and the size by `MOST`.
Edges: anything beyond, or text that is not UTF-8 → ValueError in words, from a scan that takes one pass. `load_toml`
says it to the person who named the file.
"""

import json
import re
import tomllib
from itertools import accumulate
from pathlib import Path
from typing import Any

from understudy.ground.errors import ConfigError

MOST = 1 << 23  # bytes
DEPTH = 32  # brackets within brackets
DOTS = 16  # in one key, or one name of a table

# Strings and comments, also ones that never end: each begins where the one before ended, so one pass sees all.
_QUIET = re.compile(
    r'"""(?:[^"\\]|\\.?|"(?!""))*+(?:"{3,5})?|'
    r"'''(?:[^']|'(?!''))*+(?:'{3,5})?|"
    r'"(?:[^"\\\n]|\\.?)*+"?|'
    r"'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.?)*+"?', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def read_text(path: Path, most: int = MOST) -> str:
    """The text of a file of at most so many bytes."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return data.decode("utf-8")


def read_toml(path: Path, most: int = MOST) -> dict[str, Any]:
    """The values of a TOML file."""
    return parse_toml(read_text(path, most))


def load_toml(path: Path, what: str) -> dict[str, Any]:
    """The same of a file that somebody named. ConfigError says which, and `what` it should have been."""
    try:
        return read_toml(path)
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise ConfigError(f"{path.name}: {what} is not a valid TOML file ({error}).") from None


def read_json(path: Path, most: int = MOST) -> Any:
    """The value of a JSON file."""
    return parse_json(read_text(path, most))


def parse_toml(text: str) -> dict[str, Any]:
    """The values of a TOML text, if it is nested and dotted within bounds."""
    bare = _QUIET.sub("", text)
    _check_depth(bare)
    if any(piece.count(".") > DOTS for piece in re.split(r"[\n=,\[\]{}]", bare)):
        raise ValueError(f"a key in it has more than {DOTS} dots")
    return tomllib.loads(text)


def parse_json(text: str) -> Any:
    """The value of a JSON text, if it is nested within bounds."""
    _check_depth(_JSON_STRING.sub("", text))
    return json.loads(text)


def _check_depth(bare: str) -> None:
    """Brackets within brackets. One that closes nothing counts for nothing: the parser stops at it."""
    brackets = re.findall(r"[\[\]{}]", bare)
    deepest = max(accumulate(brackets, lambda depth, one: max(0, depth + _STEP[one]), initial=0))
    if deepest > DEPTH:
        raise ValueError(f"it is nested deeper than {DEPTH}")
