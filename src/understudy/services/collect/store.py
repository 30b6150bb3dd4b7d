"""The uploads of one run on disk, and whether its collection is over.

Guarantee: an upload that was acknowledged, and that the collection is over, survive a crash and a power cut. A person
has one upload, and an upload one person; their order never changes.
Edges: the disk is full or the file damaged → OSError, and nothing was stored.
"""

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.ground.durable import own_database, own_file, own_folder

_TABLES = """
CREATE TABLE IF NOT EXISTS upload (
    place INTEGER PRIMARY KEY, person TEXT NOT NULL UNIQUE, key BLOB NOT NULL UNIQUE, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS refused (why TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS over (place INTEGER PRIMARY KEY);
"""
STORED, REPEATED, TWICE, LATE = "stored", "repeated", "twice", "late"


class Store:
    def __init__(self, path: Path) -> None:
        own_folder(path.parent)
        os.close(own_file(path, os.O_RDWR))
        self.path, self._lock, self._counting = path, threading.Lock(), threading.Lock()
        with _as_os_error():
            self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._sql.execute("PRAGMA journal_mode=WAL")
            self._sql.execute("PRAGMA synchronous=FULL")
            self._sql.executescript(_TABLES)
            own_database(path)
            self.count = int(self._sql.execute("SELECT count(*) FROM upload").fetchone()[0])
            self.over = self._sql.execute("SELECT 1 FROM over").fetchone() is not None
            self.refused: Counter[str] = Counter(dict(self._sql.execute("SELECT why, count FROM refused")))

    def put(self, person: str, key: bytes, data: bytes) -> str:
        """Keep an upload, or say why not: "repeated" (it is here), "twice" (another of that person or key), "late"."""
        with self._writing():
            if self.over:
                return LATE
            found = self._sql.execute(
                "SELECT person, data FROM upload WHERE person = ? OR key = ?", (person, key)
            ).fetchall()
            if found:
                return REPEATED if found == [(person, data)] else TWICE
            self._sql.execute("INSERT INTO upload (person, key, data) VALUES (?, ?, ?)", (person, key, data))
            self._note()
        with self._counting:
            self.count += 1
        return STORED

    def refuse(self, why: str) -> None:
        with self._counting:
            self.refused[why] += 1

    def end(self) -> None:
        with self._writing():
            self._sql.execute("INSERT OR IGNORE INTO over VALUES (1)")
            self._note()
            self.over = True

    def people(self) -> NDArray[np.str_]:
        """Who uploaded, in the order in which they came."""
        with self._lock, _as_os_error():
            found = self._sql.execute("SELECT person FROM upload ORDER BY place").fetchall()
        return np.array([person for (person,) in found], dtype=np.str_)

    def read(self, places: Sequence[int]) -> list[bytes]:
        """The uploads at these places of that order."""
        with self._lock, _as_os_error():
            # Places are 1, 2, 3, … without gaps: nothing is ever deleted.
            return [
                self._sql.execute("SELECT data FROM upload WHERE place = ?", (place + 1,)).fetchone()[0]
                for place in places
            ]

    def close(self) -> None:
        with self._lock:
            self._sql.close()

    def delete(self) -> None:
        self.close()
        for path in (self.path, *self.path.parent.glob(f"{self.path.name}-*")):
            path.unlink(missing_ok=True)

    def _note(self) -> None:
        with self._counting:
            refused = list(self.refused.items())
        for why, count in refused:
            self._sql.execute("INSERT OR REPLACE INTO refused VALUES (?, ?)", (why, count))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, _as_os_error():
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(0, str(error)) from None
