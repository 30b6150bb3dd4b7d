"""A report names one of many options, or some of them, and more often than not what is
the person's own.

*Subset selection*: of K cells a person names s. Ye, Barg, "Optimal schemes for discrete
distribution estimation under locally differential privacy" (IEEE Trans. Inf. Theory
2018), §III: optimal in squared error at every ε. Paper → code: k → cells, d → size, e^ε
d/(e^ε d + k − d) → the share `kept_reports`/2⁶² of reports that hold the person's own
cell. At size 1 it is randomized response over K cells. A report is all subsets of one
size, so that P(report | cell) ∝ 1 + (e^ε − 1)·[cell ∈ report]: a likelihood that any
model of the cells can be fitted to. Sent are the numbers of the cells or a bit for
each, whichever is shorter: at s = 1 one byte for up to 256 cells, two above.

*Nearest codes*: of K random codewords a person names one, often one near the person's
own vector. Isik, Chen, Özgür, Weissman, No, "Exact optimality of
communication-privacy-utility tradeoffs in distributed mean estimation" (NeurIPS 2023),
§4: k-closest encoding with a random code, which estimates the mean of vectors of length
1 with the least squared error that ε allows, as PrivUnit does (Bhowmick et al. 2018).
Paper → code: M → codes, k → near, r_k → `length`. Which codewords are near follows from
the vector by arithmetic whose rounding does not matter to privacy: whatever set of
`near` of them it is, each is named with the same chance, and each other one with e^−ε
of it.

Differs from the papers: the share of reports that name a favoured option is a whole
number of 2⁻⁶², rounded down, so that no float stands between ε and the law; codewords
are normal in every direction (`Codebook`) and not the corners of a simplex, which for
many dimensions is the same.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtr, ndtr, ndtri
from torch import Tensor

from understudy.ground.check import in_range, whole
from understudy.privacy.local.reporter import LocalMechanism, check_epsilon
from understudy.privacy.noise import Rng
from understudy.privacy.noise.ciphers import BLOCK, keystream, keystream_at

GRAIN = 1 << 62  # of a share that no float may stand before
MOST_CELLS = 1 << 16
_DRAWN = 1 << 22  # keys in work at a time
MOST_CODES = 1 << 10
# a codeword's dimensions are a multiple of it: they are two bytes each
STEP = BLOCK // 2
_NEARLY = 0.97

Array = NDArray[np.float32]


class NamingMechanism(LocalMechanism, ABC):
    """A report names one of many options, or some, of which a few are each e^ε times
    likelier than the others.
    """

    @property
    @abstractmethod
    def favoured(self) -> tuple[int, int]:
        """How many are likelier, and of how many."""

    @cached_property
    def kept_reports(self) -> int:
        """How many of 2⁶² reports name a favoured option: rounded down, from two floats
        below `exp`, in case.
        """
        named, options = self.favoured
        below = math.nextafter(math.exp(self.epsilon), 0)
        lift = Fraction(math.nextafter(below, 0))
        share = named * lift / (named * lift + options - named)
        return math.floor(share * GRAIN)

    @property
    def odds(self) -> Fraction:
        """How much likelier a favoured option is than another, exactly: at most e^ε."""
        named, options = self.favoured
        favoured_weight = self.kept_reports * (options - named)
        other_weight = (GRAIN - self.kept_reports) * named
        return Fraction(favoured_weight, other_weight)


@dataclass(frozen=True, kw_only=True)
class SubsetSelection(NamingMechanism):
    """Reports on one of `cells` cells.

    Guarantee: ε-LDP: whatever other cell stood in its place, no report is more than e^ε
    times likelier (`odds` is the exact figure, at most e^ε). All randomness is whole
    numbers; the time a report takes does not depend on the cell.
    Edges: nobody → no reports; a cell outside 0 … cells − 1 → ValueError before
    anything is drawn.
    """

    cells: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(cells=self.cells)
        in_range(2, MOST_CELLS, cells=self.cells)

    @cached_property
    def size(self) -> int:
        """s, the cells that a report names."""
        return max(1, round(self.cells / (1 + math.exp(self.epsilon))))

    @property
    def favoured(self) -> tuple[int, int]:
        return self.size, self.cells

    @property
    def lift(self) -> float:
        """e^ε − 1 as it is drawn: a report that holds a share P of the people is 1 +
        lift·P times likelier.
        """
        return float(self.odds - 1)

    @property
    def most_weight(self) -> float:
        """By how much one report can move the unbiased estimate of a cell's count:
        1/(P(in | own) − P(in | other)).
        """
        p_own = Fraction(self.kept_reports, GRAIN)
        p_other = (self.size - p_own) / (self.cells - 1)
        return float(1 / (p_own - p_other))

    def __call__(self, cells: Tensor, rng: Rng) -> Tensor:
        """The cells that each report names, in rising order: int64, (n, size)."""
        if (
            cells.ndim != 1
            or cells.dtype != torch.int64
            or bool(((cells < 0) | (cells >= self.cells)).any())
        ):
            raise ValueError(f"cells must be whole numbers below {self.cells}.")
        parts = [
            self._sample(part, rng)
            for part in torch.split(cells, max(1, _DRAWN // self.cells))
        ]
        return (
            torch.cat(parts) if parts else torch.zeros(0, self.size, dtype=torch.int64)
        )

    def _sample(self, own_cell: Tensor, rng: Rng) -> Tensor:
        keeps = rng.integers(GRAIN, len(own_cell)) < self.kept_reports
        # numbers among the cells that are not the person's own
        others = self._others(len(own_cell), rng)
        named = others + (others >= own_cell[:, None])
        named[:, -1] = torch.where(keeps, own_cell, named[:, -1])
        return named.sort(1).values

    def _others(self, n: int, rng: Rng) -> Tensor:
        """`size` different numbers below cells − 1 for each report, every set of them
        alike, in a random order.
        """
        if self.size == 1:
            return rng.integers(self.cells - 1, n, 1)
        others = self.cells - 1
        keys = rng.integers(GRAIN, n, others)
        while bool((repeated := _has_repeats(keys)).any()):
            n_repeated = int(repeated.sum())
            keys[repeated] = rng.integers(GRAIN, n_repeated, others)
        return keys.argsort(1)[:, : self.size]

    @property
    def _digits(self) -> int:
        return 1 if self.cells <= 256 else 2

    @property
    def by_number(self) -> bool:
        """Whether cells are sent by their numbers, or as a bit for each cell."""
        return self.size * self._digits < math.ceil(self.cells / 8) or self.size == 1

    @property
    def bytes(self) -> int:
        if self.by_number:
            return self.size * self._digits
        return math.ceil(self.cells / 8)

    def encode(self, named: Tensor) -> Tensor:
        """Reports as bytes: uint8, (n, bytes)."""
        cells = named.numpy()
        n = len(cells)
        if self.by_number:
            big_endian = cells.astype(">u2").view(np.uint8)
            digits = big_endian.reshape(n, self.size, 2)
            sent = digits[:, :, 2 - self._digits :].reshape(n, self.bytes)
        else:
            bits = np.zeros((n, self.cells), dtype=np.bool_)
            np.put_along_axis(bits, cells, True, axis=1)
            sent = np.packbits(bits, axis=1)
        return torch.from_numpy(np.ascontiguousarray(sent))

    def decode(self, sent: Tensor) -> tuple[Tensor, Tensor]:
        """What `encode` wrote, and which are no reports (cells too few or many, twice,
        unknown): 0 … size − 1 there.
        """
        raw = sent.numpy()
        n = len(raw)
        named = np.tile(np.arange(self.size), (n, 1))
        if self.by_number:
            digits = raw.reshape(n, self.size, self._digits).astype(np.int64)
            cells = digits[:, :, 0]
            if self._digits == 2:
                cells = cells * 256 + digits[:, :, 1]
            is_known = (cells < self.cells).all(1)
            is_rising = (np.diff(cells, axis=1) > 0).all(1)
            valid = is_known & is_rising
            named[valid] = cells[valid]
        else:
            bits = np.unpackbits(raw, axis=1)
            has_size = bits.sum(1) == self.size
            valid = has_size & ~bits[:, self.cells :].any(1)
            _, cells = np.nonzero(bits[valid])
            named[valid] = cells.reshape(-1, self.size)
        return torch.from_numpy(named), torch.from_numpy(~valid)


def _has_repeats(keys: Tensor) -> Tensor:
    """Which rows hold a number twice: (n,)."""
    gaps = keys.sort(1).values.diff(dim=1)
    return (gaps == 0).any(1)


@dataclass(frozen=True, kw_only=True)
class NearestCodes(NamingMechanism):
    """A report names one of `codes` codewords, of which `near` are nearest to a
    person's vector.

    Guarantee: ε-LDP: whatever other vector stood in its place, no report is more than
    e^ε times likelier (`odds` is the exact figure, at most e^ε). All randomness is
    whole numbers.
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
        """The fewest codewords, and as many near ones, as tell nearly all that a report
        can at this ε.
        """
        check_epsilon(epsilon)
        sizes = [
            (1 << bits, near)
            for bits in range(4, 11)
            for near in _steps((1 << bits) // 2)
        ]
        candidates = [
            cls(codes=codes, near=near, epsilon=epsilon) for codes, near in sizes
        ]
        max_length = max(candidate.length for candidate in candidates)
        return next(
            candidate
            for candidate in candidates
            if candidate.length >= _NEARLY * max_length
        )

    @property
    def favoured(self) -> tuple[int, int]:
        return self.near, self.codes

    @cached_property
    def length(self) -> float:
        """How long the named codeword is, on the mean, along the person's own vector of
        length 1.
        """
        named = self.kept_reports / GRAIN
        return _largest(self.codes, self.near) * (
            named - (1 - named) * self.near / (self.codes - self.near)
        )

    def __call__(self, scores: Tensor, rng: Rng) -> Tensor:
        """The codeword that each report names: int64 (n,), for the codewords' scores
        (n, codes).
        """
        if scores.ndim != 2 or scores.shape[1] != self.codes:
            raise ValueError(f"scores must be those of {self.codes} codewords.")
        n = len(scores)
        order = torch.nan_to_num(scores, nan=-torch.inf).argsort(
            dim=1,
            descending=True,
            stable=True,
        )
        hit = rng.integers(GRAIN, n) < self.kept_reports
        near = rng.integers(self.near, n)
        far = self.near + rng.integers(self.codes - self.near, n)
        return order[torch.arange(n), torch.where(hit, near, far)]


@dataclass(frozen=True)
class Codebook:
    """Public codewords of each of many people: normal numbers, in `blocks` of `width`
    each. They follow from a text that everybody knows and from the person's place, so
    that an aggregate of many people's reports has no bias of one codebook. A person
    needs one block of all codewords, the reader all blocks of one.
    """

    about: str
    codes: int
    blocks: int
    width: int

    @cached_property
    def _key(self) -> bytes:
        return hashlib.sha256(b"understudy codes " + self.about.encode()).digest()

    def block(self, person: int, number: int) -> Array:
        """One block of all codewords of a person: (codes, width)."""
        first = number * self.codes * self.width // STEP
        stream = keystream(
            self._key,
            (person << 64) + first,
            2 * self.codes * self.width,
        )
        return _normal(stream).reshape(self.codes, self.width)

    def words(self, people: NDArray[np.int64], codes: NDArray[np.int64]) -> Array:
        """One codeword of each of these people: (people, blocks, width)."""
        step = self.width // STEP
        word = np.arange(self.blocks) * self.codes + codes[:, None]
        first = word * step
        counters = np.empty((*first.shape, step, 2), np.uint64)
        counters[..., 0] = people[:, None, None]
        counters[..., 1] = first[..., None] + np.arange(step)
        numbers = _normal(keystream_at(self._key, counters))
        return numbers.reshape(len(people), self.blocks, self.width)


@cache
def _largest(codes: int, near: int) -> float:
    """Of K normal numbers the largest k are on the mean (K/k) ∫ x φ(x) P(at most k − 1
    of the others are larger).
    """
    grid = np.linspace(-9, 9, 2001)
    step = grid[1] - grid[0]
    density = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    few_larger = bdtr(near - 1, codes - 1, ndtr(-grid))
    integral = (grid * density * few_larger).sum() * step
    return float(integral * codes / near)


@cache
def _quantiles() -> Array:
    """Of the normal law, for every number of two bytes."""
    numbers = 1 << 16
    probabilities = (np.arange(numbers) + 0.5) / numbers
    return np.asarray(ndtri(probabilities), dtype=np.float32)


def _normal(stream: NDArray[np.uint8]) -> Array:
    """Two bytes each."""
    return np.asarray(_quantiles()[stream.view("<u2")])


def _steps(limit: int) -> list[int]:
    """Whole numbers up to `limit`, each about a fifth above the one before."""
    steps = [1]
    while steps[-1] < limit:
        steps.append(min(limit, max(steps[-1] + 1, round(1.2 * steps[-1]))))
    return steps
