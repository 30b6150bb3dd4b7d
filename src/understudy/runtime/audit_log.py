"""The audit log: one JSON line for each message exchanged or refused, at both ends.

Lines are chained: each carries a digest over its own text and the line before, so that a line which was changed
or taken out shows (`verify`); cutting off the end does not. No row, no path and no text of a peer's choosing
goes in unescaped; message digests do, so that two ends can compare what they saw.
"""

import hashlib
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from understudy.ground.durable import own_file
from understudy.ground.errors import ArtefactError

_START = "0" * 64


class AuditLog:
    """Appends to one file; None for one that keeps nothing. A half line that a power cut left is dropped."""

    def __init__(self, path: str | Path | None) -> None:
        self._lock, self._last = threading.Lock(), _START
        self._file = None
        if path is None:
            return
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = own_file(path, os.O_RDWR | os.O_APPEND)
        whole = path.read_bytes()
        lines = whole[: whole.rfind(b"\n") + 1]
        os.truncate(handle, len(lines))
        if lines:
            self._last = str(json.loads(lines.splitlines()[-1])["chain"])
        self._file = os.fdopen(handle, "a", encoding="utf-8")

    def write(self, event: str, **facts: Any) -> None:
        """One line. It is with the operating system on return."""
        if self._file is None:
            return
        with self._lock:
            if self._file.closed:
                return
            line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
            text = json.dumps(line)
            self._last = _link(self._last, text)
            self._file.write(f'{text[:-1]}, "chain": "{self._last}"}}\n')
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with self._lock:
                self._file.close()


def verify(path: str | Path) -> int:
    """How many lines stand unbroken. ArtefactError names the first that does not follow from the one before."""
    last, number = _START, 0
    for number, text in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            chain = line.pop("chain")
        except (ValueError, KeyError, AttributeError):
            raise ArtefactError(f"{Path(path).name}: line {number} is not a line of an audit log.") from None
        if chain != (last := _link(last, json.dumps(line))):
            raise ArtefactError(f"{Path(path).name}: line {number} was changed, or one before it taken out.")
    return number


def _link(last: str, text: str) -> str:
    return hashlib.sha256((last + text).encode()).hexdigest()
