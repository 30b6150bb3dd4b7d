"""How many refusals the audit log takes: of one token in a day, and in all.

Guarantee: whoever is refused too often is sent away before anything is looked at, without a line; so nothing happens
that the log does not show. Other tokens are served as before.
Edges: counts of a token survive a restart; in all, the oldest refusals go first. What was done is never dropped.
"""

from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from understudy.ground.errors import ExchangeError
from understudy.services.exchange.database import Database, Event
from understudy.services.exchange.tokens import as_stored
from understudy.services.web.limits import Limits, Rate

_DAY = timedelta(days=1)
_REFUSED = Event.status >= 400


class Refusals:
    """What the log has of refusals, and for whom it has room. `lines`: how many there are."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._limits, self._rate = limits, Rate(limits.refusals / _DAY.total_seconds(), limits.refusals)
        lately = _REFUSED & (Event.at >= as_stored(datetime.now(UTC) - _DAY))
        with database.read() as session:
            self.lines = session.scalar(select(func.count()).where(_REFUSED)) or 0
            for token, count in session.execute(
                select(Event.token, func.count()).where(lately).group_by(Event.token)
            ):
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
