"""Prices that another worker, or an earlier run of the tests, worked out: the
accountant is an eighth of their time.

A price is a pure function of the uses, δ and the method. It is kept in pytest's cache,
in a file named after all that it follows from: the sources of the accountant and of its
events, and the versions of what is below them. So whoever changes the accountant starts
an empty file. Tests of the accountant itself are never shown it; a test that changes
parts of the accountant belongs among them.
"""

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from understudy.privacy.accounts import accounting, events, losses

OF_THE_ACCOUNTANT = {
    "test_accounting.py",
    "test_second_accountant.py",
    "test_known_prices.py",
}


def follows_from(*sources: str | None) -> str:
    """A name for these sources and for the libraries that they call."""
    below = [platform.machine(), platform.python_version()]
    below += [version(name) for name in ("dp-accounting", "numpy", "scipy")]
    texts = [Path(str(source)).read_bytes() for source in sources]
    return hashlib.sha256(b"\0".join([*texts, *map(str.encode, below)])).hexdigest()[
        :16
    ]


class KnownPrices:
    """`accounting._epsilon`, with a memory in a file that several processes add to."""

    def __init__(self, folder: Path) -> None:
        sources = (part.__file__ for part in (accounting, events, losses))
        self.file = folder / f"{follows_from(*sources)}.jsonl"
        self.work_out = accounting._epsilon
        # here before: no name is formed to look it up
        self.asked: dict[tuple[Any, ...], float] = {}
        self.prices: dict[str, float] = {}
        self.read = 0

    def __call__(self, *asked: Any) -> float:
        if asked not in self.asked:
            self.asked[asked] = self._found(*asked)
        return self.asked[asked]

    def _found(
        self, uses: frozenset[tuple[Any, int]], delta: float, method: str
    ) -> float:
        key = hashlib.sha256(
            repr((sorted(map(repr, uses)), delta, method)).encode()
        ).hexdigest()
        if key not in self.prices:
            self._look()
        if key not in self.prices:
            self.prices[key] = price = self.work_out(uses, delta, method)
            with self.file.open("ab") as file:  # a short line is appended whole
                file.write(json.dumps([key, price]).encode() + b"\n")
        return self.prices[key]

    def _look(self) -> None:
        """Read what has been added since the last look. Threads may look at the same
        time, and read a line twice.
        """
        start = self.read
        if not self.file.exists() or os.path.getsize(self.file) == start:
            return
        with self.file.open("rb") as file:
            file.seek(start)
            whole, _, _ = file.read().rpartition(b"\n")
        self.read = start + len(whole) + 1 if whole else start
        self.prices.update(map(json.loads, whole.splitlines()))
