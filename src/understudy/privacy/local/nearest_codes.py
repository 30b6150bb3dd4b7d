"""Nearest codes: of K random codewords a person names one, and it is near the person's own vector more often than not.

Isik, Chen, Özgür, Weissman, No, "Exact optimality of communication-privacy-utility tradeoffs in distributed mean
estimation" (NeurIPS 2023), §4: k-closest encoding with a random code, which estimates the mean of vectors of length 1
with the least squared error that ε allows, as PrivUnit does (Bhowmick et al. 2018). Paper → code: M → codes, k → near,
r_k → `length`.
Differs from the paper: codewords are normal in every direction (`Codebook`) and not the corners of a simplex, which for
many dimensions is the same; and the share of reports that name a near one is a whole number of 2⁻⁶², rounded down.

Which codewords are near follows from the vector by arithmetic whose rounding does not matter to privacy: whatever set
of `near` of them it is, each is named with the same chance, and each other one with e^−ε of it.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtr, ndtr, ndtri
from torch import Tensor

from understudy.ground.check import in_range, whole
from understudy.privacy.local.reporter import GRAIN, NamingMechanism, check_epsilon
from understudy.privacy.noise import Rng
from understudy.privacy.noise.ciphers import BLOCK, keystream, keystream_at

MOST_CODES = 1 << 10
STEP = BLOCK // 2  # a codeword's dimensions are a multiple of it: they are two bytes each
_NEARLY = 0.97

Array = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class NearestCodes(NamingMechanism):
    """A report names one of `codes` codewords, of which `near` are nearest to a person's vector.

    Guarantee: ε-LDP: whatever other vector stood in its place, no report is more than e^ε times likelier (`odds` is
    the exact figure, at most e^ε). All randomness is whole numbers.
    Edges: nobody → no reports; scores that are not numbers count as the lowest.
    """

    codes: int
    near: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(codes=self.codes, near=self.near)
        in_range(2, MOST_CODES, codes=self.codes)
        in_range(1, self.codes - 1, near=self.near)

    @classmethod
    @cache
    def best(cls, epsilon: float) -> "NearestCodes":
        """The fewest codewords, and as many near ones, as tell nearly all that a report can at this ε."""
        check_epsilon(epsilon)
        sizes = [(1 << bits, near) for bits in range(4, 11) for near in _steps((1 << bits) // 2)]
        tried = [cls(codes=codes, near=near, epsilon=epsilon) for codes, near in sizes]
        most = max(one.length for one in tried)
        return next(one for one in tried if one.length >= _NEARLY * most)

    @property
    def favoured(self) -> tuple[int, int]:
        return self.near, self.codes

    @cached_property
    def length(self) -> float:
        """How long the named codeword is, on the mean, along the person's own vector of length 1."""
        named = self.kept_reports / GRAIN
        return _largest(self.codes, self.near) * (named - (1 - named) * self.near / (self.codes - self.near))

    def __call__(self, scores: Tensor, rng: Rng) -> Tensor:
        """The codeword that each report names: int64 (n,), for the codewords' scores (n, codes)."""
        if scores.ndim != 2 or scores.shape[1] != self.codes:
            raise ValueError(f"scores must be those of {self.codes} codewords. Nothing was drawn.")
        n = len(scores)
        order = torch.nan_to_num(scores, nan=-torch.inf).argsort(dim=1, descending=True, stable=True)
        hit = rng.integers(GRAIN, n) < self.kept_reports
        near, far = rng.integers(self.near, n), self.near + rng.integers(self.codes - self.near, n)
        return order[torch.arange(n), torch.where(hit, near, far)]


@dataclass(frozen=True)
class Codebook:
    """Public codewords of each of many people: normal numbers, in `blocks` of `width` each. They follow from a text
    that everybody knows and from the person's place, so that an aggregate of many people's reports has no bias of one
    codebook. A person needs one block of all codewords, the reader all blocks of one.
    """

    about: str
    codes: int
    blocks: int
    width: int

    @cached_property
    def _key(self) -> bytes:
        return hashlib.sha256(b"understudy codes " + self.about.encode()).digest()

    def block(self, place: int, number: int) -> Array:
        """One block of all codewords of a person: (codes, width)."""
        first = number * self.codes * self.width // STEP
        drawn = keystream(self._key, (place << 64) + first, 2 * self.codes * self.width)
        return _normal(drawn).reshape(self.codes, self.width)

    def words(self, places: NDArray[np.int64], codes: NDArray[np.int64]) -> Array:
        """One codeword of each of these people: (people, blocks, width)."""
        step = self.width // STEP
        first = (np.arange(self.blocks) * self.codes + codes[:, None]) * step
        counters = np.empty((*first.shape, step, 2), np.uint64)
        counters[..., 0] = places[:, None, None]
        counters[..., 1] = first[..., None] + np.arange(step)
        return _normal(keystream_at(self._key, counters)).reshape(len(places), self.blocks, self.width)


@cache
def _largest(codes: int, near: int) -> float:
    """Of K normal numbers the largest k are on the mean (K/k) ∫ x φ(x) P(at most k − 1 of the others are larger)."""
    grid = np.linspace(-9, 9, 2001)
    density = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    fewer = bdtr(near - 1, codes - 1, ndtr(-grid))
    return float((grid * density * fewer).sum() * (grid[1] - grid[0]) * codes / near)


@cache
def _quantiles() -> Array:
    return np.asarray(ndtri((np.arange(1 << 16) + 0.5) / (1 << 16)), dtype=np.float32)


def _normal(drawn: NDArray[np.uint8]) -> Array:
    """Two bytes each."""
    return np.asarray(_quantiles()[drawn.view("<u2")])


def _steps(most: int) -> list[int]:
    """Whole numbers up to `most`, each about a fifth above the one before."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(1.2 * found[-1]))))
    return found
