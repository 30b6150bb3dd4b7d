"""RAPPOR bits: a person's row as Bloom filters, one per column, of which every bit may
be flipped.

Erlingsson, Pihur, Korolova, "RAPPOR" (CCS 2014), permanent randomized response (§3.1),
as LoPub uses it for all columns of a row at once (Ren et al., IEEE TIFS 2018; Jiang,
dissertation, TUM 2024, Eq. 4.7).
Paper → code: H → hashes, w → columns of two levels and more, p_f → `flip_rate` (a bit
is kept with probability 1 − p_f and drawn evenly otherwise, so it is flipped with
probability p = p_f/2 = `flips`/2³²).

Price. Eq. 4.7 is ε = 2wH ln((2 − p_f)/p_f): two levels of a column have H bits each, so
a row moves 2wH bits at most, and a bit's answer is (1 − p)/p times likelier at most.
That is reached where two levels share no bit. `tight` is the exact figure: the largest
distance between two signatures of a column takes the place of 2H, since a row's answer
is a product over bits. `bound="exact"` sets p by it, and flips less at the same ε.

Differs from the papers: signatures of one column are drawn until they are linearly
independent, so that the odds of the levels follow from the odds of the bits; their
number is m = ⌈H·levels/ln 2⌉, where a Bloom filter errs least; a column of one level
has no bits, since it tells nothing. Memoised answers and the instantaneous second
response of RAPPOR are for reports that repeat, and are not needed for one.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import not_negative, one_of, positive, whole
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.noise import Rng

BOUNDS = ("paper", "exact")
Bits = NDArray[np.bool_]

_ODDS = 2**32
_DRAWN = 1 << 24  # random words at a time


@dataclass(frozen=True, kw_only=True)
class Rappor:
    """`sizes` are the levels of each column; the seed of the hash functions is public.

    Guarantee: ε-LDP for a row: whatever other row stood in its place, no answer is more
    than e^ε times likelier, and with `bound="exact"` one is so much likelier (up to the
    rounding of p to 2⁻³², which adds privacy).
    Edges: no rows → no bits; codes outside their columns → ValueError before anything
    is drawn.
    """

    sizes: tuple[int, ...]
    epsilon: float
    hashes: int = 4
    bound: str = "paper"
    seed: int = 0

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        not_negative(seed=self.seed)
        whole(
            hashes=self.hashes,
            **{f"sizes[{i}]": size for i, size in enumerate(self.sizes)},
        )
        one_of(BOUNDS, bound=self.bound)
        if max(self.sizes, default=1) < 2:
            raise ConfigError(
                "no column has two levels: there is nothing to report.",
                effect=Effect.NOTHING_CHARGED,
            )
        if self.flips >= _ODDS // 2:
            problem = (
                f"epsilon={self.epsilon:g} over {self.width} bits leaves nothing but "
                "noise"
            )
            raise ConfigError(f"{problem}.", effect=Effect.NOTHING_CHARGED)

    @property
    def event(self) -> DpEvent:
        return PureDp(self.epsilon)

    @cached_property
    def signatures(self) -> tuple[Bits, ...]:
        """For each column, each level's bits: (levels, bits)."""
        return tuple(
            _signatures(size, self.hashes, self.seed, column)
            for column, size in enumerate(self.sizes)
        )

    @property
    def width(self) -> int:
        return sum(signature.shape[1] for signature in self.signatures)

    @cached_property
    def flips(self) -> int:
        """p · 2³², rounded up, so that the price stays below ε."""
        bits_apart = (
            2 * self.hashes * sum(size > 1 for size in self.sizes)
            if self.bound == "paper"
            else self.moved
        )
        fewest = max(
            1,
            math.ceil(_ODDS / (1 + math.exp(min(self.epsilon / bits_apart, 700.0)))),
        )
        return next(
            n for n in count(fewest) if bits_apart * _log_odds(n) <= self.epsilon
        )

    @property
    def flip_rate(self) -> float:
        """p_f of Eq. 4.7."""
        return 2 * self.flips / _ODDS

    @cached_property
    def moved(self) -> int:
        """How many bits two rows differ in at most."""
        # the columns are free of each other
        return sum(
            int((signature[:, None] != signature).sum(-1).max(initial=0))
            for signature in self.signatures
        )

    @property
    def tight(self) -> float:
        """The exact ε: an answer that is e^`tight` times likelier for one row than for
        another exists.
        """
        return self.moved * _log_odds(self.flips)

    def __call__(self, codes: Tensor, rng: Rng) -> Tensor:
        """Reports on rows of codes (n, columns): bool, (n, width)."""
        rows = codes.numpy()
        if (
            rows.ndim != 2
            or rows.shape[1] != len(self.sizes)
            or ((rows < 0) | (rows >= self.sizes)).any()
        ):
            raise ValueError(
                f"codes must be (rows, {len(self.sizes)}) within their levels."
            )
        bits = np.concatenate(
            [signature[rows[:, i]] for i, signature in enumerate(self.signatures)],
            axis=1,
        )
        size = max(1, _DRAWN // self.width)
        for start in range(0, len(bits), size):
            part = bits[start : start + size]
            part ^= (
                np.frombuffer(rng.bytes(4 * part.size), "<u4") < self.flips
            ).reshape(part.shape)
        return torch.from_numpy(bits)

    def unbiased(self, bits: Tensor) -> Tensor:
        """What each bit stood for, on average: float64; bits that were flipped apart
        are independent.
        """
        p = self.flips / _ODDS
        return (bits.double() - p) / (1 - 2 * p)

    @property
    def variance(self) -> float:
        """Of an unbiased bit, by its flips."""
        p = self.flips / _ODDS
        return p * (1 - p) / (1 - 2 * p) ** 2


def _log_odds(flips: int) -> float:
    """ln((1 − p)/p), rounded up."""
    return math.nextafter(math.log1p((_ODDS - 2 * flips) / flips), math.inf)


def _signatures(
    levels: int,
    hashes: int,
    seed: int,
    column: int,
) -> Bits:
    """`hashes` different bits for each level, by SHA-256, so that every party makes the
    same.
    """
    if levels == 1:
        return np.zeros((1, 0), dtype=np.bool_)
    bits = math.ceil(hashes * levels / math.log(2))
    signatures = np.zeros((levels, bits), dtype=np.bool_)
    basis = np.zeros((levels, bits))  # of what the levels so far span
    for level, signature in enumerate(signatures):
        numbers = (_hash(seed, column, level, number) % bits for number in count())
        while not basis[level].any():
            signature[:] = False
            while signature.sum() < hashes:
                signature[next(numbers)] = True
            rest = signature - signature @ basis.T @ basis
            rest -= rest @ basis.T @ basis  # twice is enough (Kahan)
            length = np.linalg.norm(rest)
            if length > 1e-6:
                basis[level] = rest / length
    return signatures


def _hash(*numbers: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "big")
