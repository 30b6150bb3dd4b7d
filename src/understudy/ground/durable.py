"""Files that are whole or not there, and what a holder keeps: for its owner alone, whatever the umask is.

What is kept (ledgers, keys, states, journals, logs, drafts, pages with figures of real rows) has the mode 0600, from
its first moment on, in folders of the mode 0700. What may go out (weights, cards, synthetic rows, public pages) is
written as the umask says, and not from here.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any


def replace(path: Path, data: bytes, *, sync: bool = False) -> Path:
    """Write the file in one piece, for its owner alone: a kill leaves the old one or the new one.

    With `sync` it is on the disk when this returns.
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


def sync_folder(path: Path) -> None:
    """What was renamed or made in the folder (or is in the file) survives a power cut from now on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """Everything in the folder survives a power cut from now on."""
    for path in (*folder.rglob("*"), folder):
        sync_folder(path)


def replace_json(path: Path, value: Any) -> Path:
    """The same for a JSON value."""
    return replace(path, json.dumps(value, indent=1, ensure_ascii=False).encode())


def own_file(path: Path, flags: int) -> int:
    """A handle of the file, made if need be, which its owner alone can read from now on."""
    handle = os.open(path, flags | os.O_CREAT, 0o600)
    if os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, 0o600)
    return handle


def own_files(*paths: Path) -> None:
    """Those of these files that are there can be read by their owner alone from now on."""
    for path in paths:
        if path.exists() and path.stat().st_uid == os.geteuid():
            path.chmod(0o600)


def own_database(path: Path) -> None:
    """The same for a SQLite file. What SQLite makes beside it has the file's own mode."""
    own_files(path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"))


def own_folder(path: Path) -> Path:
    """The folder, made if need be, into which its owner alone can look from now on.

    Edges: a folder of somebody else's, or one that all share (/tmp), stays as it is; its files are closed one by one.
    """
    _make(path)
    about = path.stat()
    if about.st_uid == os.geteuid() and not about.st_mode & stat.S_ISVTX:
        path.chmod(0o700)
    return path


def free_folder(wanted: Path) -> Path:
    """The folder if it is not there, or else the first of that name and a number that is not."""
    number, folder = 1, wanted
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def _make(folder: Path) -> None:
    """The folder and those above it that are missing, each for its owner alone."""
    for place in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
        place.mkdir(exist_ok=True, mode=0o700)
