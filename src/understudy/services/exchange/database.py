"""What the exchange knows, in SQLite or, given its URL, PostgreSQL.

Times are text (UTC, ISO 8601) and structured values JSON text, so that both databases
hold the same. A SQLite write begins with the write lock (no upgrade, so no lost race)
and is synced before it is acknowledged.

Tokens, `usx_<id>_<secret>`, are shown once and kept as a hash. The secret has 256
random bits, so that a plain SHA-256 keeps it: there is nothing to guess. The id finds
the row, a comparison in constant time decides.
"""

import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    ForeignKey,
    Select,
    create_engine,
    delete,
    event,
    func,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from understudy.data.reading.sources import without
from understudy.ground.check import one_of
from understudy.ground.durable import own_database, own_file, own_folder
from understudy.ground.errors import ArtefactError, ConfigError, Effect, ExchangeError
from understudy.services.web.limits import Limits, Rate

VERSION = 1


class Base(DeclarativeBase):
    """The tables."""


Row = TypeVar("Row", bound=Base)


class Version(Base):
    __tablename__ = "exchange"
    version: Mapped[int] = mapped_column(primary_key=True)


class Pool(Base):
    """Generators for one purpose, and what each must fulfil. Requirements never change:
    a new set is a new pool.
    """

    __tablename__ = "pool"
    name: Mapped[str] = mapped_column(primary_key=True)
    requirements: Mapped[str]
    created: Mapped[str]


class Token(Base):
    __tablename__ = "token"
    id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    silo: Mapped[str]
    role: Mapped[str]
    pool: Mapped[str | None] = mapped_column(ForeignKey("pool.name"))
    created: Mapped[str]
    revoked: Mapped[str | None]


class Member(Base):
    __tablename__ = "member"
    pool: Mapped[str] = mapped_column(ForeignKey("pool.name"), primary_key=True)
    silo: Mapped[str] = mapped_column(primary_key=True)
    since: Mapped[str]


class Offer(Base):
    """A generator in a pool. `label`, `card` and `preview` are JSON."""

    __tablename__ = "offer"
    pool: Mapped[str] = mapped_column(ForeignKey("pool.name"), primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    silo: Mapped[str]
    label: Mapped[str]
    epsilon: Mapped[float]
    delta: Mapped[float]
    network: Mapped[str]
    bytes: Mapped[int]
    created: Mapped[str]
    withdrawn: Mapped[str | None]
    card: Mapped[str]
    preview: Mapped[str]


class Event(Base):
    """A line of the audit log: a push, the first pull of a day, a change of tokens or
    pools, done or refused.
    """

    __tablename__ = "event"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[str]
    action: Mapped[str]
    status: Mapped[int]
    silo: Mapped[str]
    token: Mapped[str]
    pool: Mapped[str | None]
    digest: Mapped[str | None]
    bytes: Mapped[int | None]


class Database:
    """A database of the exchange: `read` for one look, `write` for all or nothing."""

    def __init__(self, url: str) -> None:
        try:
            self._engine = create_engine(
                url,
                pool_size=16,
                max_overflow=48,
                pool_pre_ping=not url.startswith("sqlite"),
            )
        except (ArgumentError, ModuleNotFoundError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the database {_without_secrets(url, error, 'used')}"
            ) from None
        # Writers of a SQLite file that find it locked sleep and look again, and some
        # starve: ours queue instead.
        self._turn: AbstractContextManager[Any] = nullcontext()
        if self._engine.dialect.name == "sqlite":
            file = self._engine.url.database
            if file and file != ":memory:":
                _close_to_others(Path(file))
            self._turn = threading.Lock()
            event.listen(self._engine, "connect", _durable)
            event.listen(self._engine, "begin", _take_the_lock)
        self._reader = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        try:
            Base.metadata.create_all(self._engine)
            with self.write() as session:
                version = session.query(Version).one_or_none()
                if version is None:
                    session.add(Version(version=VERSION))
                elif (form := version.version) != VERSION:
                    raise ArtefactError(
                        f"this database has form {form}; this version reads form "
                        f"{VERSION}."
                    )
        except SQLAlchemyError as error:
            raise ArtefactError(
                f"the database {_without_secrets(url, error, 'opened')}"
            ) from None

    @classmethod
    def in_folder(cls, folder: str | Path) -> "Database":
        return cls(
            f"sqlite:///{own_folder(Path(folder)).resolve() / 'exchange.sqlite'}"
        )

    def read(self) -> Session:
        """Look without holding a lock."""
        return Session(self._reader, expire_on_commit=False)

    def select_all(self, query: Select[Row]) -> Sequence[Row]:
        with self.read() as session:
            return session.scalars(query).all()

    def get(self, table: type[Row], key: Any) -> Row | None:
        with self.read() as session:
            return session.get(table, key)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """All that happens inside is written as a whole, durably, or not at all."""
        with (
            self._turn,
            Session(self._engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def close(self) -> None:
        self._engine.dispose()


def _close_to_others(path: Path) -> None:
    """The file before SQLite makes it: it holds the hashes of tokens, and who did
    what.
    """
    try:
        os.close(own_file(path, os.O_RDWR))
        own_database(path)
    except OSError as error:
        raise ArtefactError(
            f"the database {path} cannot be opened ({error.strerror})."
        ) from None


def _durable(connection: Any, _: Any) -> None:
    # SQLAlchemy says when a transaction begins, not the driver
    connection.isolation_level = None
    pragmas = (
        "journal_mode=WAL synchronous=FULL fullfsync=ON foreign_keys=ON "
        "busy_timeout=30000"
    )
    for setting in pragmas.split():
        connection.execute(f"PRAGMA {setting}")


def _take_the_lock(connection: Any) -> None:
    if connection.get_isolation_level() != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _without_secrets(url: str, error: Exception, done: str) -> str:
    """What cannot be done with this database and why, without the password, wherever in
    the URL it stands.
    """
    try:
        parts = make_url(url)
    except (ArgumentError, ValueError):
        return f"(not a database URL) cannot be {done}."
    why = str(error)
    for value in (
        parts.password,
        *chain.from_iterable(parts.normalized_query.values()),
    ):
        why = without(str(value or ""), why)
    return (
        f"{parts.set(query={}).render_as_string(hide_password=True)} cannot be "
        f"{done}: {why}"
    )


ADMIN = "admin"
MEMBER = "member"
ROLES = (ADMIN, MEMBER)
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"  # of a silo or a pool
PULL = "pull"  # in the audit log
_DAY = timedelta(days=1)
_DATE = len("2026-01-01")  # of a stored time
_REFUSED = Event.status >= 400
_FORM = re.compile(r"usx_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Caller:
    """Whoever holds a valid token: a silo in one pool, or an administrator."""

    token: str
    silo: str
    role: str
    pool: str | None

    @property
    def admin(self) -> bool:
        return self.role == ADMIN


def issue(
    database: Database, silo: str, *, role: str = MEMBER, pool: str | None = None
) -> str:
    """A new token for this silo. It is nowhere to be read again."""
    one_of(ROLES, role=role)
    if not re.fullmatch(NAME, silo):
        raise ConfigError(
            "a silo's name is made of up to 64 letters, digits, dots, dashes and "
            f"underscores, not {silo!r}."
        )
    if (role == MEMBER) != (pool is not None):
        raise ConfigError("a member belongs to one pool, an administrator to none.")
    id = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    with database.write() as session:
        session.add(
            Token(
                id=id,
                digest=_digest(secret),
                silo=silo,
                role=role,
                pool=pool,
                created=now(),
                revoked=None,
            )
        )
    return f"usx_{id}_{secret}"


def authenticate(database: Database, token: str) -> Caller | None:
    """Whose token this is; None if it is nobody's or was revoked."""
    parts = _FORM.fullmatch(token)
    if parts is None:
        return None
    row = database.get(Token, parts[1])
    digest = row.digest if row is not None else _digest("")
    same = hmac.compare_digest(digest, _digest(parts[2]))
    if row is None or not same or row.revoked is not None:
        return None
    return Caller(row.id, row.silo, row.role, row.pool)


def now() -> str:
    """The time as it is stored: UTC, to the second, in an order that text keeps."""
    return as_stored(datetime.now(UTC))


def as_stored(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Refusals:
    """How many refusals the audit log takes: of one token in a day, and in all.
    `lines`: how many there are.

    Guarantee: whoever is refused too often is sent away before anything is looked at,
    without a line; so nothing happens that the log does not show. Other tokens are
    served as before.
    Edges: counts of a token survive a restart; in all, the oldest refusals go first.
    What was done is never dropped.
    """

    def __init__(self, database: Database, limits: Limits) -> None:
        self._limits = limits
        self._rate = Rate(limits.refusals / _DAY.total_seconds(), limits.refusals)
        lately = _REFUSED & (Event.at >= as_stored(datetime.now(UTC) - _DAY))
        with database.read() as session:
            self.lines = session.scalar(select(func.count()).where(_REFUSED)) or 0
            for token, count in session.execute(
                select(Event.token, func.count()).where(lately).group_by(Event.token)
            ):
                self._rate.spend(token, count)

    def require_room(self, token: str) -> None:
        """429 where this token was refused too often."""
        wait = self._rate.wait(token)
        if wait:
            raise ExchangeError(
                429,
                f"This token was refused {self._limits.refusals:,} times in a day, "
                "the most: mend what is sent, and "
                f"try again in {wait:.0f} s.",
                retry_after=wait,
                effect=Effect.NOTHING_STORED,
            )

    def note(self, session: Session, token: str) -> None:
        """One more line of this token; the oldest of all go where there are too
        many.
        """
        self._rate.spend(token)
        self.lines += 1
        if self.lines > (most := self._limits.refusals_in_all):
            n_removed = self.lines - most + most // 10  # so that it is seldom done
            oldest = session.scalars(
                select(Event.id).where(_REFUSED).order_by(Event.id).limit(n_removed)
            ).all()
            session.execute(delete(Event).where(_REFUSED, Event.id <= oldest[-1]))
            self.lines -= len(oldest)


class Pulls:
    """Which pulls stand in the audit log today (UTC): of each token, pool and offer
    one.

    Guarantee: nothing is pulled before the log has a line of it for this day. A silo
    that pulls an offer again on the same day has it already, and adds no line: the log
    grows with the offers, not with the requests.
    Edges: lines of today survive a restart; several processes at one database may write
    one line each.
    """

    def __init__(self, database: Database) -> None:
        self._lock = threading.Lock()
        self._day = now()[:_DATE]
        done = (Event.action == PULL) & (Event.status < 400) & (Event.at >= self._day)
        with database.read() as session:
            lines = session.execute(
                select(Event.token, Event.pool, Event.digest).where(done)
            )
            self._noted = {
                (str(token), str(pool), str(digest)) for token, pool, digest in lines
            }

    def note(
        self, token: str, pool: str, digest: str, at: str, write: Callable[[], None]
    ) -> None:
        """Have a line of this pull at this time written, unless there is one of the
        day.
        """
        line = (token, pool, digest)
        with self._lock:
            if at[:_DATE] != self._day:
                self._day = at[:_DATE]
                self._noted.clear()
            if line not in self._noted:
                write()
                self._noted.add(line)
