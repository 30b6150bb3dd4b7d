"""What one caller may take: requests a minute, bytes, offers, time; and which caller is
this machine.
"""

import ipaddress
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from understudy.ground.check import positive, whole
from understudy.ground.errors import ExchangeError

_MOST_BUCKETS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one service, the same for all callers. A pool's requirements may ask
    for smaller generators.

    `rate` requests a second, and up to `burst` at once, for each token (a tenth of it
    for each address that fails to authenticate). `seconds` for an upload. `connections`
    for each address; one that asks for nothing is closed (`web.connections`). Of an
    exchange alone: `largest` bytes a generator, `offers` in a pool for each silo,
    `check` of the seconds to look at an upload, `uploads` of a silo that are under way,
    and `refusals` of a token in a day, which the log keeps.
    """

    rate: float = 20.0
    burst: int = 200
    largest: int = 1 << 26
    offers: int = 256
    seconds: float = 300.0
    check: float = 20.0
    connections: int = 128
    uploads: int = 8
    refusals: int = 1000

    def __post_init__(self) -> None:
        positive(rate=self.rate, seconds=self.seconds, check=self.check)
        whole(
            burst=self.burst,
            largest=self.largest,
            offers=self.offers,
            connections=self.connections,
        )
        whole(uploads=self.uploads, refusals=self.refusals)

    @property
    def uploads_in_all(self) -> int:
        return 4 * self.uploads

    @property
    def refusals_in_all(self) -> int:
        """Lines of the log: when there are more, the oldest go."""
        return 100 * self.refusals


def loopback(host: str) -> bool:
    """Whether this is the machine itself, where nobody listens on the way."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Rate:
    """A token bucket for each key: it holds `burst`, and `rate` flow in every
    second.
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, key: str) -> None:
        """One request of this key; 429, with the time to wait, when its bucket is
        empty.
        """
        with self._lock:
            now, level = self._now(key)
            if level < 1:
                wait = (1 - level) / self._rate
                raise ExchangeError(
                    429,
                    f"Too many requests: try again in {wait:.1f} s.",
                    retry_after=wait,
                )
            self._set(key, level - 1, now)

    def wait(self, key: str) -> float:
        """How many seconds until there is one for this key; 0 where there is one
        now.
        """
        with self._lock:
            return max(0.0, (1 - self._now(key)[1]) / self._rate)

    def spend(self, key: str, count: int = 1) -> None:
        """So many at once, whether or not there are as many."""
        with self._lock:
            now, level = self._now(key)
            self._set(key, max(0.0, level - count), now)

    def _now(self, key: str) -> tuple[float, float]:
        """The time, and what is in this key's bucket."""
        now = self._clock()
        level, then = self._buckets.get(key, (float(self._burst), now))
        return now, min(self._burst, level + (now - then) * self._rate)

    def _set(self, key: str, level: float, now: float) -> None:
        self._buckets[key] = (level, now)
        if len(self._buckets) <= _MOST_BUCKETS:
            return
        # Full buckets are as good as none; if all are in use, the fullest half is
        # dropped.
        levels = {
            key: level + (now - then) * self._rate
            for key, (level, then) in self._buckets.items()
        }
        emptiest = sorted(self._buckets, key=levels.__getitem__)[: _MOST_BUCKETS // 2]
        self._buckets = {
            key: self._buckets[key] for key in emptiest if levels[key] < self._burst
        }
