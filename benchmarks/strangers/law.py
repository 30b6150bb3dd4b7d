"""What a generated table's columns are made from: ranks that hang together, and laws
that are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

SHARED = 0.5  # of each rank's variance: what the columns have in common


class Law:
    """Ranks that hang together by one hidden number, from which a generated table's
    columns are made.
    """

    def __init__(self, people: int, seed: int) -> None:
        self.people = people
        self.rng = np.random.default_rng([seed, 37])
        self.hidden = self.rng.normal(size=people)

    def rank(self, shared: float = SHARED) -> NDArray[np.float64]:
        """Uniform in (0, 1). The normal scores of two ranks have the correlation
        `shared`.
        """
        return ndtr(
            np.sqrt(shared) * self.hidden
            + np.sqrt(1 - shared) * self.rng.normal(size=self.people)
        )

    def outcome(self, *words: object) -> NDArray[np.object_]:
        """One of two words, the second for those whose hidden number is large."""
        large = self.rng.random(self.people) < 1 / (1 + np.exp(-2 * self.hidden))
        return np.array(words, dtype=object)[large.astype(int)]

    def skewed(
        self, middle: float, spread: float, zeros: float = 0.0
    ) -> NDArray[np.float64]:
        """A log-normal number, 0 for a share of people."""
        rank = self.rank()
        normal = np.clip((rank - zeros) / (1 - zeros), 1e-6, 1 - 1e-6)
        return np.where(rank < zeros, 0.0, middle * np.exp(spread * ndtri(normal)))

    def pareto(self, least: float, power: float, zeros: float) -> NDArray[np.float64]:
        """A number whose tail falls by this power, 0 for a share of people."""
        rank = self.rank()
        above = np.clip((rank - zeros) / (1 - zeros), 0, 1 - 1e-6)
        return np.where(rank < zeros, 0.0, least * (1 - above) ** (-1 / power))

    def word(self, words: Sequence[str], power: float = 1.0) -> NDArray[np.object_]:
        """One of many words, the first most often."""
        weights = np.arange(1, len(words) + 1) ** -power
        ends = np.cumsum(weights / weights.sum())
        return np.array(words, dtype=object)[
            np.searchsorted(ends, self.rank() * ends[-1])
        ]

    def atoms(self, shares: Mapping[float, float]) -> NDArray[np.float64]:
        """Few numbers with these shares, the smallest at low ranks."""
        values = np.array(sorted(shares))
        ends = np.cumsum([shares[value] for value in values])
        return values[np.searchsorted(ends[:-1] / ends[-1], self.rank())]

    def some_atoms(self, count: int, low: float, high: float) -> NDArray[np.float64]:
        """So many different numbers with one decimal, with unequal shares of which some
        are small.
        """
        tenths = np.arange(round(10 * low), round(10 * high) + 1)
        values = self.rng.choice(tenths, count, replace=False) / 10
        shares = self.rng.dirichlet(np.full(count, 0.6))
        return self.atoms(dict(zip(values.tolist(), shares.tolist(), strict=True)))

    def whole(self, low: int, high: int, power: float = 1.0) -> NDArray[np.int64]:
        """A whole number from `low` to `high`. A power above 1 moves people to low
        ones.
        """
        return low + np.floor((high + 1 - low) * self.rank() ** power).astype(np.int64)

    def correlated(
        self, with_: NDArray[np.float64], correlation: float
    ) -> NDArray[np.float64]:
        """A normal number with this correlation to another number, whatever that one's
        law.
        """
        scaled = (with_ - with_.mean()) / with_.std()
        return correlation * scaled + np.sqrt(1 - correlation**2) * self.rng.normal(
            size=self.people
        )

    def one_hot(
        self, stem: str, weights: Sequence[float]
    ) -> dict[str, NDArray[np.int64]]:
        """Columns stem1, stem2, … of 0 and 1, of which each person has exactly
        one 1.
        """
        ends = np.cumsum(weights) / np.sum(weights)
        level = np.searchsorted(ends[:-1], self.rank())
        return {
            f"{stem}{k + 1}": (level == k).astype(np.int64) for k in range(len(weights))
        }

    def missing(self, cells: NDArray[Any], share: float) -> NDArray[Any]:
        """The same cells with this share of them missing, at random."""
        gone = self.rng.random(self.people) < share
        empty = None if cells.dtype == object else np.nan
        return np.where(gone, empty, cells)
