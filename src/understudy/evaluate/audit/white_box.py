"""How tight the claim of a joint release is: what one person moves it by, over the noise that is really there.

An audit by guesses needs thousands of runs to say much. Here the auditor sees more: it runs the real parties and the
real server twice with the same noise, once with the worst-case person, so that the difference is exactly what that
person moves; and it knows all other rows, so that what is left of a release is its noise, thousands of draws in one
run. What a person moves, over the deviation of the noise, is μ: how far apart the two worlds lie as normal laws do
(Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022).

Guarantee: where noise is independent between cells and of one scale within a block, the true μ lies between `least` and
`most` with the stated confidence.
Edges: noise that differs with the rows counts as what the person moves. The server asks the same in both worlds, as one
that departs can. Whoever colludes knows its own noise: of equal parts, those of the others are left.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from dp_accounting import GaussianDpEvent
from numpy.typing import NDArray
from scipy.stats import chi2

from understudy.evaluate.audit.joint_canary import JointAudit, counted
from understudy.evaluate.audit.transcript import Seen
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import DiscreteGaussian, Spend, flatten
from understudy.protocols.joint.found import Found
from understudy.protocols.joint.server import measure

Key = tuple[str, str]  # a stage and one of its blocks


@dataclass(frozen=True)
class Tightness:
    """μ as claimed, and the least and the most that it is."""

    claimed: float
    least: float
    most: float
    draws: int

    @property
    def broken(self) -> bool:
        """Whether more is told than was claimed."""
        return self.least > self.claimed * (1 + 1e-3)  # a σ is rounded up to 1/64 at the most

    def __str__(self) -> str:
        share = f"{self.least / self.claimed:.0%} to {self.most / self.claimed:.0%}"
        return f"μ between {self.least:.3f} and {self.most:.3f} of {self.claimed:.3f} claimed ({share}; {self.draws:,} draws)"


def claimed_mu(spend: Spend) -> float:
    """μ of Gaussian uses together. ConfigError for any other."""
    total = 0.0
    for event, count in spend.items():
        for one, times in flatten(event, count).items():
            if isinstance(one, GaussianDpEvent):
                total += times / one.noise_multiplier**2
            elif isinstance(one, DiscreteGaussian):
                total += times * (one.sensitivity / one.sigma) ** 2
            else:
                raise ConfigError(f"{one!r} is no Gaussian noise.")
    return math.sqrt(total)


def tightness(audit: JointAudit, *, runs: int = 8, confidence: float = 0.999, seed: int = 0) -> Tightness:
    """Measure what the worst-case person of an audit moves, and the noise, in so many runs; of moves the largest."""
    case, known = audit.case(), audit.others()
    moves, noises, left = list[dict[Key, float]](), dict[Key, list[NDArray[Any]]](), dict[Key, float]()
    for trial in range(seed * runs, (seed + 1) * runs):
        gone, parties = audit.made(), case.parties(False, trial)
        without = measure(gone, Seen(parties))
        there = audit.made()
        there.terms = lambda name, found, told=without: told.record.terms[name]  # type: ignore[method-assign, misc]
        with_person = measure(there, Seen(case.parties(True, trial)))
        rest = counted(without, known, audit.people - 1)
        moves.append({})
        for name in without:
            for block, spec in without.stage(name).blocks.items():
                key, unit = (name, block), torch.ones(spec.shape, dtype=torch.float64)
                unit += 0 if spec.diagonal is None else (math.sqrt(2) - 1) * spec.diagonal
                sums = without.record.sums[name][block].double()
                moves[-1][key] = float(((with_person.record.sums[name][block] - sums) / unit).square().sum())
                noises.setdefault(key, []).append(
                    ((sums - rest[name][block].double()) / unit).numpy().ravel()
                )
                left[key] = _left(without, name, block)
    spend = parties[audit.target].ledger.spend()
    doubt = (1 - confidence) / (2 * len(noises))
    draws = {key: np.concatenate(parts) for key, parts in noises.items()}
    least, most = (
        max(
            sum(
                move * bound(len(draws[key])) / (left[key] * float(np.square(draws[key]).sum()))
                for key, move in one.items()
            )
            for one in moves
        )
        for bound in (lambda many: chi2.ppf(doubt, many), lambda many: chi2.isf(doubt, many))
    )
    return Tightness(claimed_mu(spend), math.sqrt(least), math.sqrt(most), sum(map(len, draws.values())))


def _left(found: Found, name: str, key: str) -> float:
    """The share of the noise's variance that those who collude do not know."""
    holders = len(found.holders(found.stage(name).blocks[key]))
    return (holders - min(found.study.pricing.colluding, holders - 1)) / holders
