"""Tokens: who is calling. `usx_<id>_<secret>`, shown once, kept as a hash.

The secret has 256 random bits, so that a plain SHA-256 keeps it: there is nothing to guess, and a slow hash would
only let strangers spend our time. The id finds the row, a comparison in constant time decides.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError
from understudy.services.exchange.database import Database, Token

ADMIN, MEMBER = "admin", "member"
ROLES = (ADMIN, MEMBER)
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"  # of a silo or a pool
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
        session.add(
            Token(id=id, digest=_digest(secret), silo=silo, role=role, pool=pool, created=now(), revoked=None)
        )
    return f"usx_{id}_{secret}"


def authenticate(database: Database, token: str) -> Caller | None:
    """Whose token this is; None if it is nobody's or was revoked."""
    if (parts := _FORM.fullmatch(token)) is None:
        return None
    with database.read() as session:
        row = session.get(Token, parts[1])
    digest = row.digest if row is not None else _digest("")
    same = hmac.compare_digest(digest, _digest(parts[2]))
    if row is None or not same or row.revoked is not None:
        return None
    return Caller(row.id, row.silo, row.role, row.pool)


def now() -> str:
    """The time as it is stored: UTC, to the second, in an order that text keeps."""
    return as_stored(datetime.now(UTC))


def as_stored(time: datetime) -> str:
    """A time of UTC as it is stored."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
