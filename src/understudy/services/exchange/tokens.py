"""Tokens: who is calling, and how often one may be refused. `usx_<id>_<secret>`, shown once, kept as a hash.

The secret has 256 random bits, so that a plain SHA-256 keeps it: there is nothing to guess, and a slow hash would
only let strangers spend our time. The id finds the row, a comparison in constant time decides.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError, ExchangeError
from understudy.services.exchange.database import Database, Event, Token
from understudy.services.web.limits import Limits, Rate

ADMIN, MEMBER = "admin", "member"
ROLES = (ADMIN, MEMBER)
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"  # of a silo or a pool
_DAY = timedelta(days=1)
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


def issue(database: Database, silo: str, *, role: str = MEMBER, pool: str | None = None) -> str:
    """A new token for this silo. It is nowhere to be read again."""
    one_of(ROLES, role=role)
    if not re.fullmatch(NAME, silo):
        raise ConfigError(
            f"a silo's name is made of up to 64 letters, digits, dots, dashes and underscores, not {silo!r}."
        )
    if (role == MEMBER) != (pool is not None):
        raise ConfigError("a member belongs to one pool, an administrator to none.")
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    with database.write() as session:
        session.add(Token(id=id, digest=_digest(secret), silo=silo, role=role, pool=pool, created=now(), revoked=None))
    return f"usx_{id}_{secret}"


def authenticate(database: Database, token: str) -> Caller | None:
    """Whose token this is; None if it is nobody's or was revoked."""
    if (parts := _FORM.fullmatch(token)) is None:
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
    """How many refusals the audit log takes: of one token in a day, and in all. `lines`: how many there are.

    Guarantee: whoever is refused too often is sent away before anything is looked at, without a line; so nothing
    happens that the log does not show. Other tokens are served as before.
    Edges: counts of a token survive a restart; in all, the oldest refusals go first. What was done is never dropped.
    """

    def __init__(self, database: Database, limits: Limits) -> None:
        self._limits, self._rate = limits, Rate(limits.refusals / _DAY.total_seconds(), limits.refusals)
        lately = _REFUSED & (Event.at >= as_stored(datetime.now(UTC) - _DAY))
        with database.read() as session:
            self.lines = session.scalar(select(func.count()).where(_REFUSED)) or 0
            for token, count in session.execute(select(Event.token, func.count()).where(lately).group_by(Event.token)):
                self._rate.spend(token, count)

    def require_room(self, token: str) -> None:
        """429 where this token was refused too often."""
        if wait := self._rate.wait(token):
            raise ExchangeError(
                429,
                f"This token was refused {self._limits.refusals:,} times in a day, the most: mend what is sent, and "
                f"try again in {wait:.0f} s. Nothing was stored or sent.",
                retry_after=wait,
            )

    def note(self, session: Session, token: str) -> None:
        """One more line of this token; the oldest of all go where there are too many."""
        self._rate.spend(token)
        self.lines += 1
        if self.lines > (most := self._limits.refusals_in_all):
            few = self.lines - most + most // 10  # so that it is seldom done
            oldest = session.scalars(select(Event.id).where(_REFUSED).order_by(Event.id).limit(few)).all()
            session.execute(delete(Event).where(_REFUSED, Event.id <= oldest[-1]))
            self.lines -= len(oldest)
