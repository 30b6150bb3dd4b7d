"""Files that are whole or not there, and what a holder keeps: for its owner alone,
whatever the umask is.

What is kept (ledgers, keys, states, journals, logs, drafts, pages with figures of real
rows) has the mode 0600, from its first moment on, in folders of the mode 0700. What may
go out (weights, cards, synthetic rows, public pages) is written as the umask says, and
not from here.

TOML and JSON that somebody else wrote are looked at before they are parsed: Python's
TOML parser takes time that grows with the square of a dotted key, and either parser
follows brackets until the stack ends.

Guarantee: time and memory are bounded by a multiple of the file's size, and the size by
`MOST`.
Edges: too many bytes, brackets within brackets or dots in one key, or text that is not
UTF-8 → ValueError in words, from a scan that takes one pass. `load_toml` says it to the
person who named the file.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from understudy.ground.errors import ConfigError

MOST = 1 << 23  # bytes
DEPTH = 32  # brackets within brackets
DOTS = 16  # in one key, or one name of a table

# Strings and comments, also ones that never end: each begins where the one before
# ended, so one pass sees all.
_QUIET = re.compile(
    r'"""(?:[^"\\]|\\.?|"(?!""))*+(?:"{3,5})?|'
    r"'''(?:[^']|'(?!''))*+(?:'{3,5})?|"
    r'"(?:[^"\\\n]|\\.?)*+"?|'
    r"'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.?)*+"?', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def replace(path: Path, data: bytes, *, sync: bool = False) -> Path:
    """Write the file in one piece, for its owner alone: a kill leaves the old or the
    new one; `sync`: on the disk.
    """
    _make(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(own_file(draft, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)
    if sync:
        sync_folder(path.parent)
    return path


@contextmanager
def own_temporary(path: Path) -> Iterator[Path]:
    """An empty file for its owner alone, which takes the place of `path` at the end;
    after an error it is gone.
    """
    _make(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    os.close(own_file(draft, os.O_WRONLY | os.O_EXCL))
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """What was renamed or made in the folder (or is in the file) survives a power cut
    from now on.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_json(path: Path, value: Any) -> Path:
    return replace(path, json.dumps(value, indent=1, ensure_ascii=False).encode())


def own_file(path: Path, flags: int) -> int:
    """A handle of the file, made if need be, which its owner alone can read from now
    on.
    """
    handle = os.open(path, flags | os.O_CREAT, 0o600)
    if os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, 0o600)
    return handle


def own_files(*paths: Path) -> None:
    """Those of these files that are there can be read by their owner alone from
    now on.
    """
    for path in paths:
        if path.exists() and path.stat().st_uid == os.geteuid():
            path.chmod(0o600)


def own_database(path: Path) -> None:
    """The same for a SQLite file. What SQLite makes beside it has the file's own
    mode.
    """
    own_files(
        path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
    )


def own_folder(path: Path) -> Path:
    """The folder, made if need be, into which its owner alone can look; others' and
    shared ones stay as they are.
    """
    _make(path)
    about = path.stat()
    if about.st_uid == os.geteuid() and not about.st_mode & stat.S_ISVTX:
        path.chmod(0o700)
    return path


def free_folder(preferred: Path) -> Path:
    """The folder if it is not there, or else the first of that name and a number that
    is not.
    """
    number = 1
    folder = preferred
    while folder.exists():
        number += 1
        folder = preferred.with_name(f"{preferred.name}-{number}")
    return folder


def _make(folder: Path) -> None:
    for missing in reversed(
        [missing for missing in (folder, *folder.parents) if not missing.exists()]
    ):
        missing.mkdir(exist_ok=True, mode=0o700)


def read_text(path: Path, most: int = MOST) -> str:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return data.decode("utf-8")


def read_toml(path: Path) -> dict[str, Any]:
    return parse_toml(read_text(path))


def load_toml(path: Path, what: str) -> dict[str, Any]:
    """The same of a file that somebody named. ConfigError says which, and `what` it
    should have been.
    """
    try:
        return read_toml(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: {what} cannot be read ({error.strerror})."
        ) from None
    except ValueError as error:
        raise ConfigError(
            f"{path.name}: {what} is not a valid TOML file ({error})."
        ) from None


def read_json(path: Path) -> Any:
    return parse_json(read_text(path))


def parse_toml(text: str) -> dict[str, Any]:
    """The values of a TOML text, if it is nested and dotted within bounds."""
    bare = _QUIET.sub("", text)
    _check_depth(bare)
    if any(piece.count(".") > DOTS for piece in re.split(r"[\n=,\[\]{}]", bare)):
        raise ValueError(f"a key in it has more than {DOTS} dots")
    return tomllib.loads(text)


def parse_json(text: str) -> Any:
    _check_depth(_JSON_STRING.sub("", text))
    return json.loads(text)


def _check_depth(bare: str) -> None:
    """Brackets within brackets. One that closes nothing counts for nothing: the parser
    stops at it.
    """
    brackets = re.findall(r"[\[\]{}]", bare)
    deepest = max(
        accumulate(brackets, lambda depth, one: max(0, depth + _STEP[one]), initial=0)
    )
    if deepest > DEPTH:
        raise ValueError(f"it is nested deeper than {DEPTH}")
