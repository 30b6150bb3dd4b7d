"""What is taken from people's devices, and what is refused: one upload of each person,
for the run that is on.

A person is known by a code, which the collecting party handed to them. Without codes
anybody may upload, and an upload is known by its own random key.

Guarantee: what is acknowledged is on the disk, and is passed on once. What is not
exactly an upload for this run, by its length, its words and the digest of what its
maker was told, is refused and counted, and nothing of it is kept.
Edges: the same bytes of the same person again are acknowledged again, since an answer
may be lost; others are refused. The sealed part cannot be looked into: whether it opens
is for the second aggregator to say.

The uploads of one run on disk (`UploadStore`), and whether its collection is over: what
was acknowledged, and that it is over, survive a crash and a power cut. A person has one
upload, and an upload one person; their order never changes.
Edges: the disk is full or the file damaged → OSError, and nothing was stored.
"""

import hashlib
import os
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.durable import own_database, own_file, own_folder
from understudy.ground.errors import ConfigError, Effect, ExchangeError, PartyError

# letters: fewer could be guessed
LEAST_CODE = 16
MOST_CODE = 128
MAX_UPLOADS = 1_000_000  # uploads, where neither codes nor the settings say how many
KEY = 16  # bytes at an upload's beginning, by which it is known
_CODE = re.compile(r"[!-~]+")
_OVER = "The collection is over."
_LOOK = 0.2  # seconds between two looks whether it is over


class Form(Protocol):
    @property
    def size(self) -> int:
        """In bytes."""

    def decodes(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which rows of that size could be uploads: (n,)."""


@dataclass(frozen=True)
class Batch:
    """The collection that is on, and its uploads. `among`: whom it is for; None:
    everybody who may upload.
    """

    ticket: Mapping[str, Any]
    context: bytes
    form: Form
    store: "UploadStore"
    among: frozenset[str] | None = None


class Box:
    """`codes` of the people who may upload, or None for anybody. The collection is over
    `until` then (seconds since 1970), or when `max_uploads`, or everybody with a code,
    have uploaded. With fewer than `least` nothing is passed on. A run of reports may
    have a second collection, which is over by `then`, or when everybody whom it is for
    has come.
    """

    def __init__(
        self,
        folder: Path,
        *,
        codes: Collection[str] | None = None,
        until: float | None = None,
        then: float | None = None,
        max_uploads: int = MAX_UPLOADS,
        least: int = 1,
        stopped: threading.Event | None = None,
        watch: Callable[[str, Mapping[str, Any]], None] = lambda event, facts: None,
    ) -> None:
        self._folder = folder
        self._ends = (until, then)
        self._least = least
        self._codes = None if codes is None else {person_of(code) for code in codes}
        self._max_uploads = (
            max_uploads if self._codes is None else min(max_uploads, len(self._codes))
        )
        self._stopped = stopped or threading.Event()
        self._watch = watch
        self._batch: Batch | None = None

    # What the party asks for

    def everybody(self) -> list[str] | None:
        return None if self._codes is None else sorted(self._codes)

    def gather(
        self,
        ticket: Mapping[str, Any],
        context: bytes,
        form: Form,
        *,
        among: Collection[str] | None = None,
        number: int = 1,
    ) -> NDArray[np.str_]:
        """Take uploads for this run until the collection, its first or its second, is
        over; who uploaded. `among`: people whom alone it is for, where it is one of
        several; of these one is enough. Edges: too few → PartyError, and what came is
        kept: the same command with a later end resumes. Stopped → KeyboardInterrupt,
        and so it is.
        """
        if self._batch is None or self._batch.context != context:
            self.close()
            part = "" if among is None else f"{_run_of(ticket)}-"
            limit = (
                self._max_uploads
                if among is None
                else min(self._max_uploads, len(among))
            )
            store = UploadStore(
                self._folder / f"{part}{context.hex()}.uploads", max_uploads=limit
            )
            self._batch = Batch(
                ticket,
                context,
                form,
                store,
                None if among is None else frozenset(among),
            )
        store = self._batch.store
        end = self._ends[min(number, len(self._ends)) - 1]
        if not store.over:
            self._watch("collecting", {"run": ticket["run"], "context": context.hex()})
        while not store.over:
            if self._stopped.wait(_LOOK):
                # no refusal: the server is told nothing, and waits until this is
                # started again
                raise KeyboardInterrupt
            if store.full or (end is not None and time.time() >= end):
                self._end(store, self._least if among is None else 1)
        return store.people()

    def _end(self, store: "UploadStore", least: int = 1) -> None:
        if store.count < least:
            raise PartyError(
                f"{store.count:,} people have uploaded, and {least:,} are the least "
                "here. What came is kept.",
                effect=Effect.NOTHING_SENT,
            )
        store.end()
        self._watch(
            "collected", {"people": store.count, "refused": dict(store.refused)}
        )

    def uploads(self, places: Tensor) -> Tensor:
        """The uploads of those people, in that order: uint8, (n, size)."""
        assert self._batch is not None
        uploads = b"".join(self._batch.store.read(places.tolist()))
        return torch.from_numpy(
            np.frombuffer(uploads, np.uint8).reshape(len(places), -1).copy()
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many were taken and refused so far, for those who look after it."""
        batch = self._batch
        if batch is None:
            return {}
        return {
            "uploads": batch.store.count,
            "refused": sum(batch.store.refused.copy().values()),
        }

    def close(self) -> None:
        if self._batch is not None:
            self._batch.store.close()
            self._batch = None

    def forget(self) -> None:
        if self._batch is not None:
            batch = self._batch
            self._batch = None
            batch.store.delete()
            if batch.among is not None:  # an earlier collection of the run
                for path in self._folder.glob(f"{_run_of(batch.ticket)}-*"):
                    path.unlink(missing_ok=True)

    # What people's devices ask for

    def ticket(self, code: str = "") -> Mapping[str, Any]:
        """What people are told of the run; where a collection is for some of them,
        these alone.
        """
        batch = self._open()
        if batch.among is not None:
            self._require_asked(batch, self.person(code))
        return batch.ticket

    def _require_asked(self, batch: Batch, person: str | None) -> None:
        if batch.among is not None and person not in batch.among:
            self._refuse(
                "another collection",
                409,
                "You are asked in another collection of this run.",
            )

    def person(self, code: str) -> str | None:
        """Whose code it is; None where anybody may upload. 401 for one that was not
        handed out.
        """
        if self._codes is None:
            return None
        person = person_of(code)
        if person not in self._codes:
            self._refuse("no code", 401, "This needs the code that you were given.")
        return person

    def expect(
        self, context: str, length: int | None, person: str | None = None
    ) -> Batch:
        """Whether this person's upload for this run, of that length, is taken now, or
        may be one that was kept before; before any of it is read.
        """
        batch = self._begun()
        self._require_asked(batch, person)
        if context != batch.context.hex():
            self._refuse(
                "another run", 409, "This is for another run, or for other settings."
            )
        if length != batch.form.size:
            self._refuse(
                "length", 422, f"An upload for this run has {batch.form.size:,} bytes."
            )
        return batch

    def take(self, batch: Batch, person: str | None, data: bytes) -> bool:
        """Keep an upload; False if it was kept before. 409 for a second one of this
        person.
        """
        row = np.frombuffer(data, np.uint8)[None]
        if row.shape[1] != batch.form.size or not batch.form.decodes(row)[0]:
            self._refuse(
                "not decodable",
                422,
                "This is no upload: something in it is outside its range.",
            )
        key = data[:KEY]
        try:
            done = batch.store.put(key.hex() if person is None else person, key, data)
        except OSError as error:
            raise ExchangeError(
                507,
                f"The receiver has no room ({error}).",
                effect=Effect.NOTHING_STORED,
            ) from None
        if done == LATE:
            self._refuse("late", 410, _OVER)
        if done == TWICE:
            self._refuse("twice", 409, "There is another upload of yours for this run.")
        return done != REPEATED

    def _begun(self) -> Batch:
        batch = self._batch
        if batch is None:
            raise ExchangeError(
                503,
                "No run has begun here.",
                retry_after=60,
                effect=Effect.NOTHING_STORED,
            )
        return batch

    def _open(self) -> Batch:
        batch = self._begun()
        if batch.store.over:
            self._refuse("late", 410, _OVER)
        return batch

    def _refuse(self, why: str, status: int, text: str) -> NoReturn:
        if self._batch is not None:
            self._batch.store.refuse(why)
        raise ExchangeError(status, text, effect=Effect.NOTHING_STORED)


def _run_of(ticket: Mapping[str, Any]) -> str:
    return hashlib.sha256(str(ticket["run"]).encode()).hexdigest()[:16]


def person_of(code: str) -> str:
    """By what a person stands in files: the code cannot be read from it."""
    return hashlib.sha256(b"understudy person " + code.encode()).hexdigest()[:32]


def read_codes(path: Path) -> list[str]:
    """The codes of a text file, one on each line. Edges: one that could be guessed, or
    twice → ConfigError.
    """
    try:
        codes = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: codes cannot be read ({error}).", effect=Effect.NOTHING_SENT
        ) from None
    for code in codes:
        if not LEAST_CODE <= len(code) <= MOST_CODE or not _CODE.fullmatch(code):
            raise ConfigError(
                f"{path}: a code has {LEAST_CODE} to {MOST_CODE} letters, digits or "
                f"signs, and one has {len(code)}. "
                "`understudy collect --make-codes` prints good ones.",
                effect=Effect.NOTHING_SENT,
            )
    if not codes or len(set(codes)) < len(codes):
        raise ConfigError(
            f"{path}: there is no code in it, or one is there twice.",
            effect=Effect.NOTHING_SENT,
        )
    return codes


_TABLES = """
CREATE TABLE IF NOT EXISTS upload (
    place INTEGER PRIMARY KEY,
    person TEXT NOT NULL UNIQUE,
    key BLOB NOT NULL UNIQUE,
    data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS refused (why TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS over (place INTEGER PRIMARY KEY);
"""
STORED = "stored"
REPEATED = "repeated"
TWICE = "twice"
LATE = "late"


class UploadStore:
    def __init__(self, path: Path, *, max_uploads: int) -> None:
        own_folder(path.parent)
        os.close(own_file(path, os.O_RDWR))
        self.path = path
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._max_uploads = max_uploads
        with _as_os_error():
            self._sql = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False
            )
            self._sql.execute("PRAGMA journal_mode=WAL")
            self._sql.execute("PRAGMA synchronous=FULL")
            self._sql.executescript(_TABLES)
            own_database(path)
            self.count = int(
                self._sql.execute("SELECT count(*) FROM upload").fetchone()[0]
            )
            self.over = self._sql.execute("SELECT 1 FROM over").fetchone() is not None
            self.refused: Counter[str] = Counter(
                dict(self._sql.execute("SELECT why, count FROM refused"))
            )

    @property
    def full(self) -> bool:
        return self.count >= self._max_uploads

    def put(self, person: str, key: bytes, data: bytes) -> str:
        """Keep an upload, or say why not: "repeated" (it is here), "twice" (another of
        that person or key), "late".

        Guarantee: no more than `max_uploads` are ever kept, however many come at once:
        the count is read and the upload written in one transaction.
        """
        with self._writing():
            earlier = self._sql.execute(
                "SELECT person, data FROM upload WHERE person = ? OR key = ?",
                (person, key),
            ).fetchall()
            if earlier == [(person, data)]:
                return REPEATED
            if self.over:
                return LATE
            if earlier:
                return TWICE
            # without gaps
            (kept,) = self._sql.execute(
                "SELECT coalesce(max(place), 0) FROM upload"
            ).fetchone()
            if kept >= self._max_uploads:
                return LATE
            self._sql.execute(
                "INSERT INTO upload (person, key, data) VALUES (?, ?, ?)",
                (person, key, data),
            )
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
            rows = self._sql.execute(
                "SELECT person FROM upload ORDER BY place"
            ).fetchall()
        return np.array([person for (person,) in rows], dtype=np.str_)

    def read(self, places: Sequence[int]) -> list[bytes]:
        with self._lock, _as_os_error():
            # Places are 1, 2, 3, … without gaps: nothing is ever deleted.
            return [
                self._sql.execute(
                    "SELECT data FROM upload WHERE place = ?", (place + 1,)
                ).fetchone()[0]
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
            self._sql.execute(
                "INSERT OR REPLACE INTO refused VALUES (?, ?)", (why, count)
            )

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
