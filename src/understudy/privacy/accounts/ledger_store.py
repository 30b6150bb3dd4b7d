"""The file under a ledger: SQLite, durable and atomic. What may be written is decided
in `ledger`.

WAL with synchronous=FULL: a commit is one fsync of the log, a third of what a rollback
journal needs, and it survives a power cut. (A deleted journal may come back after one
and undo a finished charge, unless the folder is synced too.) Copy the file only while
no process has it open: the latest charges may still stand in `-wal`.

A person's uses are kept as counts per event and run, not per entry: enough to price
them, and the file does not say in which round a person took part. Person ids are stored
as text, so that 7 and "7" are one person: to count two people as one overstates a
price, to count one as two would understate it.
"""

import os
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from understudy.ground.durable import own_database, own_file, sync_folder
from understudy.ground.errors import Effect, LedgerError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import event_from_json, event_to_json

_event = lru_cache(event_from_json)
_text = lru_cache(event_to_json)
_MARK = 0x756E6473  # "unds", where SQLite lets a file say whose it is
_VERSION = 1
_SQL = Path(__file__).with_name("ledger.sql").read_text(encoding="utf-8")
_TERMS = next(one for one in _SQL.split(";\n") if " terms (" in one)
_TABLES = f"{_SQL} PRAGMA application_id={_MARK}; PRAGMA user_version={_VERSION};"

_REASONS = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_BUSY": "another process holds it",
    "SQLITE_READONLY": "it cannot be written",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_NOTADB": "it is not a ledger",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_IOERR": "the disk failed",
}


@dataclass(frozen=True)
class Priced:
    """One event as charged so far, and in whose eyes: "outsider", "insider" or
    "both".
    """

    id: int
    event: DpEvent
    view: str
    everyone: int
    peak: int


class LedgerStore:
    """A connection to one ledger file, shared by the threads of one process."""

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self.connection = connection
        self.where = where
        self._lock = threading.RLock()
        self._process = os.getpid()
        with self.transaction(write=False) as sql:
            self.id, self.holder = sql.execute(
                "SELECT id, holder FROM ledger"
            ).fetchone()

    @classmethod
    def memory(cls, holder: str, budget: Budget) -> "LedgerStore":
        connection = sqlite3.connect(
            ":memory:",
            isolation_level=None,
            check_same_thread=False,
        )
        connection.deserialize(_blank())
        _begin(connection, holder, budget)
        return cls(connection, f"{holder}'s rehearsal ledger")

    @staticmethod
    def create(path: Path, holder: str, budget: Budget) -> None:
        """Build the file aside, then link it into place: whole or not at all, and never
        over another.
        """
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with explained(str(path)):
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(own_file(aside, os.O_EXCL))
                with closing(
                    sqlite3.connect(aside, isolation_level=None)
                ) as connection:
                    connection.execute("PRAGMA journal_mode=WAL")
                    connection.executescript(f"BEGIN; {_TABLES}")
                    _begin(connection, holder, budget)
                    connection.execute("COMMIT")
                # another process was faster: its ledger rules
                with suppress(FileExistsError):
                    os.link(aside, path)
                sync_folder(path.parent)
        finally:
            for leftover in path.parent.glob(f"{aside.name}*"):
                leftover.unlink()

    @classmethod
    def open(cls, path: Path, patience: float) -> "LedgerStore":
        with explained(str(path)):
            own_database(path)
            connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=rw",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=patience,
            )
            try:
                fault = _fault(connection)
                if fault:
                    raise LedgerError(
                        f"{path}: {fault}.",
                        effect=Effect.NOTHING_COMPUTED_OR_SENT,
                    )
                for setting in (
                    "synchronous=FULL",
                    "fullfsync=ON",
                    "cache_size=-65536",
                ):
                    connection.execute(f"PRAGMA {setting}")
                return cls(connection, str(path))
            except BaseException:
                connection.close()
                raise

    def close(self) -> None:
        with self._lock:
            self.connection.close()

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """All that happens inside is one consistent view, and is written as a whole or
        not at all.
        """
        if os.getpid() != self._process:
            raise LedgerError(
                f"{self.where}: opened before a fork.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        with self._lock, explained(self.where):
            self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def budget(self) -> Budget:
        query = "SELECT epsilon, delta, against FROM budget ORDER BY entry DESC LIMIT 1"
        return Budget(*self.connection.execute(query).fetchone())

    def priced(self, run: str | None = None) -> list[Priced]:
        """Every event so far; with a run, `everyone` counts only its charges."""
        rows = self.connection.execute(
            "SELECT id, text, view, everyone, peak FROM event"
        ).fetchall()
        if run is not None:
            uses = (
                "SELECT event, SUM(count) FROM line JOIN entry ON entry = id WHERE "
                "run = ? AND people IS NULL"
            )
            of_run = dict(self.connection.execute(f"{uses} GROUP BY event", (run,)))
            rows = [
                (id, text, view, of_run.get(id, 0), peak)
                for id, text, view, _, peak in rows
            ]
        return [Priced(id, _event(text), *rest) for id, text, *rest in rows]

    def distinct_tallies(
        self,
        people: str | None,
        run: str | None = None,
    ) -> list[dict[int, int]]:
        """The distinct tallies (event id → uses) among `people`, a JSON list; among all
        for None.
        """
        charged = [
            id
            for (id,) in self.connection.execute("SELECT id FROM event WHERE peak > 0")
        ]
        columns = ", ".join(f"SUM(count * (event = {id}))" for id in charged)
        condition = "true"
        if people is not None:
            condition = "person IN (SELECT value FROM json_each(:people))"
        query = (
            f"SELECT DISTINCT {columns or 1} FROM tally WHERE {condition} AND "
            "(:run IS NULL OR run = :run)"
        )
        rows = self.connection.execute(
            f"{query} GROUP BY person",
            {"people": people, "run": run},
        )
        return [{}, *(dict(zip(charged, row, strict=False)) for row in rows)]

    def tallies(self, run: str | None = None) -> dict[str, dict[int, int]]:
        """What every charged person has spent alone, in all or in one run: event id →
        uses.
        """
        uses_by_person: dict[str, dict[int, int]] = {}
        query = (
            "SELECT person, event, SUM(count) FROM tally WHERE :run IS NULL OR run = "
            ":run GROUP BY person, event"
        )
        rows = self.connection.execute(query, {"run": run})
        for person, event, uses in rows:
            uses_by_person.setdefault(person, {})[event] = uses
        return uses_by_person

    def has_entry(self, run: str, description: str) -> bool:
        cursor = self.connection.execute(
            "SELECT 1 FROM entry WHERE run = ? AND what = ? LIMIT 1",
            (run, description),
        )
        return cursor.fetchone() is not None

    def add_lines(
        self,
        entry: int,
        run: str,
        lines: Mapping[tuple[DpEvent, str], int],
        people: str | None,
    ) -> None:
        sql = self.connection
        for (event, view), count in lines.items():
            key = (_text(event), view)
            sql.execute("INSERT OR IGNORE INTO event (text, view) VALUES (?, ?)", key)
            (id,) = sql.execute(
                "SELECT id FROM event WHERE text = ? AND view = ?",
                key,
            ).fetchone()
            if people is None:
                sql.execute(
                    "UPDATE event SET everyone = everyone + ? WHERE id = ?",
                    (count, id),
                )
            else:
                sql.execute(
                    "INSERT INTO tally SELECT value, ?, ?, ? FROM json_each(?) WHERE "
                    "true"
                    " ON CONFLICT DO UPDATE SET count = tally.count + excluded.count",
                    (id, run, count, people),
                )
                sql.execute(
                    "UPDATE event SET peak = max(peak, (SELECT ifnull(max((SELECT "
                    "SUM(count) FROM tally WHERE person = value AND event = ?)), 0) "
                    "FROM json_each(?))) WHERE id = ?",
                    (id, people, id),
                )
            sql.execute(
                "INSERT INTO line SELECT ?, id, ?, everyone + peak FROM event "
                "WHERE id = ?",
                (entry, count, id),
            )

    def entries(self) -> Iterator[tuple[Any, ...]]:
        """(entry, at, run, what, people, event id, count, total, ε, δ, against) for
        each line or budget.
        """
        query = (
            "SELECT entry.*, line.event, line.count, line.total, epsilon, delta, "
            "against FROM entry LEFT JOIN line ON line.entry = entry.id LEFT JOIN "
            "budget ON budget.entry = entry.id ORDER BY entry.id, line.event"
        )
        return iter(self.connection.execute(query).fetchall())

    def note_terms(self, run: str, terms: str) -> None:
        """Keep how the price of a run is to be read; files from before there were such
        terms get their table.
        """
        self.connection.execute(_TERMS)
        self.connection.execute(
            "INSERT OR IGNORE INTO terms VALUES (?, ?)",
            (run, terms),
        )

    def terms(self, run: str) -> list[str]:
        cursor = self.connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'terms'"
        )
        if cursor.fetchone() is None:
            return []
        return [
            terms
            for (terms,) in self.connection.execute(
                "SELECT terms FROM terms WHERE run = ?",
                (run,),
            )
        ]

    def runs(self) -> list[str]:
        query = "SELECT run FROM entry WHERE run <> '' GROUP BY run ORDER BY min(id)"
        return [run for (run,) in self.connection.execute(query)]


def _fault(connection: sqlite3.Connection) -> str | None:

    def value(query: str) -> Any:
        return connection.execute(query).fetchone()[0]

    if value("PRAGMA application_id") != _MARK:
        return "it is not a ledger"
    version = value("PRAGMA user_version")
    if version != _VERSION:
        return f"it was written by another version ({version})"
    check_result = value("PRAGMA quick_check(1)")
    if check_result != "ok":
        return f"it is damaged ({check_result.splitlines()[-1]})"
    return None if value("SELECT count(*) FROM budget") else "it has no budget"


def _begin(connection: sqlite3.Connection, holder: str, budget: Budget) -> None:
    connection.execute("INSERT INTO ledger VALUES (?, ?)", (str(uuid.uuid4()), holder))
    add_budget(connection, budget)


@cache
def _blank() -> bytes:
    """The tables without a row: a copy takes a fifth of the time that making them
    takes.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES)
        return connection.serialize()


def add_entry(
    connection: sqlite3.Connection,
    run: str,
    description: str,
    people: int | None,
) -> int:
    values = (datetime.now(UTC).isoformat(timespec="seconds"), run, description, people)
    added = connection.execute(
        "INSERT INTO entry (at, run, what, people) VALUES (?, ?, ?, ?)",
        values,
    )
    return added.lastrowid or 0


def add_budget(
    connection: sqlite3.Connection,
    budget: Budget,
    reason: str = "",
) -> None:
    entry = add_entry(
        connection,
        "",
        f"budget: {budget}" + (f": {reason}" if reason else ""),
        None,
    )
    values = (entry, budget.epsilon, budget.delta, budget.against)
    connection.execute("INSERT INTO budget VALUES (?, ?, ?, ?)", values)


def spend_seen(
    uses: Mapping[int, int],
    priced: list[Priced],
    view: str,
) -> Counter[DpEvent]:
    """What uses by event id cost in the eyes of "outsider" or "insider"."""
    spend: Counter[DpEvent] = Counter()
    for row in priced:
        if row.view in (view, "both"):
            spend[row.event] += uses.get(row.id, 0)
    return +spend


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Whatever SQLite or the disk says becomes a LedgerError that a holder can
    act on.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "")
        reason = next(
            (text for prefix, text in _REASONS.items() if code.startswith(prefix)),
            str(error),
        )
        raise LedgerError(
            f"{where}: {reason}.",
            effect=Effect.NOTHING_COMPUTED_OR_SENT,
        ) from error
    except OSError as error:
        raise LedgerError(
            f"{where}: {error.strerror}.",
            effect=Effect.NOTHING_COMPUTED_OR_SENT,
        ) from error
