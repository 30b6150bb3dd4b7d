"""How tight a claim is: what one person moves it by, over the noise that is really there.

The auditor runs the real parties and the real server twice with the same noise, once with the
worst-case person, so that the difference is exactly what that person moves; and it knows all other rows, so that what
is left of a release is its noise, thousands of draws in one run. What a person moves, over the deviation of the noise,
is μ: how far apart the two worlds lie as normal laws do (Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022).

A person who moves less than is paid for hides noise that is as much too small, so the noise alone is compared as well
with what was stated: the sum of all squares, each over its stated variance.

Guarantee: where noise is independent between cells and of one scale within a block, the true μ lies between `least` and
`most`, and the noise is not below `noise` where that is true of what was stated, with the stated confidence together.
Edges: noise that differs with the rows counts as what the person moves. The server asks the same in both worlds, as one
that departs can. Whoever colludes knows its own noise: of equal parts, those of the others are left.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from dp_accounting import GaussianDpEvent
from numpy.typing import NDArray
from scipy.stats import chi2
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import DiscreteGaussian, Spend, epsilon, flatten
from understudy.protocols.joint.found import Found

Key = tuple[str, str] | float  # a stage and one of its blocks, or the noise of a block
WIDTH = 1.05  # how far apart the ends of an interval may be
_ROUNDED = 1e-3  # a σ is rounded up to a part of 1/64


class NoGaussianError(ConfigError):
    """A release by another noise than Gaussian."""


class Block(NamedTuple):
    """Numbers with noise of one scale: what the person moves each by, its noise, and the noise's stated variance."""

    moved: NDArray[Any]
    noise: NDArray[Any]
    variance: float


@dataclass(frozen=True)
class Tightness:
    """μ as claimed, and the least and the most that it is, from so many draws of noise. `noise`: the most that the
    deviation of the noise can be, over what was stated.
    """

    claimed: float
    least: float
    most: float
    draws: int
    noise: float

    @property
    def broken(self) -> bool:
        """Whether more is told than was claimed, or noise is less than was stated."""
        return self.least > self.claimed * (1 + _ROUNDED) or self.noise < 1 - _ROUNDED

    def observed(self, delta: float) -> float:
        """The least μ as an ε."""
        return epsilon({GaussianDpEvent(1 / self.least): 1}, delta) if self.least else 0.0

    def __str__(self) -> str:
        share = f"{self.least / self.claimed:.0%} to {self.most / self.claimed:.0%}"
        return (
            f"whoever knows everybody else: μ between {self.least:.3f} and {self.most:.3f}, {share} of the "
            f"{self.claimed:.3f} that is claimed; {self.draws:,} draws of noise, which is at most "
            f"{self.noise:.1%} of what was stated"
        )


def claimed_mu(spend: Spend) -> float:
    """μ of Gaussian uses together. NoGaussianError for any other."""
    total = 0.0
    for event, count in spend.items():
        for one, times in flatten(event, count).items():
            if isinstance(one, GaussianDpEvent):
                total += times / one.noise_multiplier**2
            elif isinstance(one, DiscreteGaussian):
                total += times * (one.sensitivity / one.sigma) ** 2
            else:
                raise NoGaussianError(f"{one!r} is no Gaussian noise, so it has no μ.")
    return math.sqrt(total)


def tightness(
    look: Callable[[int], tuple[Mapping[Key, Block], Spend]],
    *,
    confidence: float = 0.999,
    seconds: float = 30.0,
    most_runs: int = 400,
) -> Tightness:
    """Measure what one person moves, of all runs the most, and the noise, until the two ends are near each other.
    `look(trial)`: the blocks of a run with and without the person, by the same noise, and what the ledger holds.
    """
    moves, noises, begun = list[dict[Key, float]](), dict[Key, list[NDArray[Any]]](), time.monotonic()
    squares = 0.0  # of the noise, over its variance as stated
    while True:
        blocks, spend = look(len(moves))
        moves.append({key: float(np.square(block.moved).sum()) for key, block in blocks.items()})
        for key, block in blocks.items():
            noises.setdefault(key, []).append(block.noise)
            squares += float(np.square(block.noise).sum()) / block.variance
        many = {key: sum(map(len, parts)) for key, parts in noises.items()}
        weights = {key: moves[-1][key] / block.variance for key, block in blocks.items()}
        doubt = (1 - confidence) / (2 * len(many) + 1)
        ends = [{key: float(quantile(doubt, n)) for key, n in many.items()} for quantile in (chi2.ppf, chi2.isf)]
        low, high = (sum(w * end[key] / many[key] for key, w in weights.items()) for end in ends)
        if high <= WIDTH**2 * low or len(moves) >= most_runs or time.monotonic() > begun + seconds:
            break
    noise = {key: float(np.square(np.concatenate(parts)).sum()) for key, parts in noises.items()}
    least, most = (
        max(sum(square * end[key] / noise[key] for key, square in one.items()) for one in moves) for end in ends
    )
    draws = sum(many.values())
    loudest = math.sqrt(squares / float(chi2.ppf(doubt, draws)))
    return Tightness(claimed_mu(spend), math.sqrt(least), math.sqrt(most), draws, loudest)


def blocks_of_release(
    without: Found, with_person: Found, others: Mapping[str, Mapping[str, Tensor]]
) -> dict[Key, Block]:
    """Those of a joint release. `others`: what everybody else adds to every block."""
    blocks: dict[Key, Block] = {}
    for name in without:
        for key, spec in without.stage(name).blocks.items():
            unit = torch.ones(spec.shape, dtype=torch.float64)
            unit += 0 if spec.diagonal is None else (math.sqrt(2) - 1) * spec.diagonal
            sums, left = without.record.sums[name][key].double(), _left(without, name, key)
            moved, noise = with_person.record.sums[name][key] - sums, sums - others[name][key].double()
            blocks[name, key] = Block(
                (moved / unit).numpy().ravel(),
                math.sqrt(left) * (noise / unit).numpy().ravel(),
                without.deviations(name)[key] ** 2 * left,
            )
    return blocks


def _left(found: Found, name: str, key: str) -> float:
    """The share of the noise's variance that those who collude do not know."""
    holders = len(found.holders(found.stage(name).blocks[key]))
    return (holders - min(found.study.pricing.colluding, holders - 1)) / holders
