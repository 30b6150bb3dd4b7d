"""Where the tail of a fine table ends: people whom noise has put far out are put back.

Consider the two distances along a tail in which the number of people further out
halves, and halves again. Their ratio determines the rest of the tail (Pickands,
"Statistical inference using extreme order statistics", Ann. Statist. 1975): it is 1/2
for an even density, 1 for an exponential one, and larger for a power law. It also says
where the tail ends. The few people whom noise puts further out are moved to shortly
before that position.

Guarantee: reads released counts alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class TailSettings:
    """How far out a law goes by its last halves, and how many people are put back; σ is
    the noise of a count. All were chosen together on 443 columns of numbers
    (benchmarks/strangers/NOTES.md, "Ends, tried"): 48 have more than .1 % of the people
    outside of their real range, of 87 without this.
    """

    # σ of people in the tail of which halves are taken, at most: with 60 flat laws lose
    # more, with 36 more is left that noise puts far out
    most: float = 45.0
    # and at least: the last quarter of fewer is one σ
    fewest: float = 4.0
    # σ of people, down to which halves are extrapolated
    last_half: float = 0.5
    # of the ratio of two halves, as noise makes tails longer
    shrunk: float = 0.85
    # of the last half that was seen: an end no further out is as good
    near: float = 0.6
    # σ of people cut off at an end: at most, where halves have a ratio of `shrinks`,
    # and at least; in between by a `power` of it. Twice as many took a fifth off p99 of
    # log-normal numbers of 5,000 people
    most_cut: float = 2.5
    shrinks: float = 0.65
    power: float = 6.0
    least_cut: float = 0.3
    # of all people, cut off at most: tables of 500 people are hardly cut
    share_cut: float = 0.02
    # σ of people, as rounding leaves them
    nobody: float = 1e-6
    # times those cut off: among so many before the end they are put
    among: float = 2.0


_TAIL = TailSettings()


def without_ends(leaves: Tensor, edges: Tensor, noise: float) -> Tensor:
    """The same people without the first and the last leaves in which so few of them are
    as noise may have put there, further out than the law goes before them.
    """
    upwards = _without_last(leaves, edges, noise)
    return _without_last(upwards.flip(0), -edges.flip(0), noise).flip(0)


def _without_last(leaves: Tensor, edges: Tensor, noise: float) -> Tensor:
    """The same people without those past the end that the law has by its last halves.

    The less steps shrink, the fewer are cut off. They are put shortly before the end.
    What lies within a number that half of all people share tells nothing.
    """
    above = leaves.flip(0).cumsum(0).flip(0)
    above = torch.cat([above, leaves.new_zeros(1)]) / noise
    last = int((above > _TAIL.nobody).sum())
    is_inside = torch.arange(len(leaves)) < last
    leaves = torch.where(is_inside, leaves, 0)
    middle = int((above > above[0] / 2).sum())
    tail_people = min(_TAIL.most, float(above[middle]))
    if tail_people < _TAIL.fewest:
        return leaves
    quarter = tail_people / 4
    first, second, third = np.interp(
        (-tail_people, -tail_people / 2, -quarter),
        -above.numpy(),
        edges.numpy(),
    )
    if second <= first:
        return leaves
    last_step = third - second
    ratio = last_step / (second - first)
    end = third + _further(last_step, ratio, quarter)
    if float(edges[last]) <= end + _TAIL.near * last_step:
        return leaves

    within = int((edges <= end).sum())
    fewer = int((above > _people_cut(ratio, float(above[0]))).sum())
    stop = max(within, fewer)
    if stop >= last:
        return leaves
    past = float(above[stop])
    start = int((above > min(_TAIL.among * past, quarter)).sum()) - 1
    shortened = leaves.clone()
    shortened[stop:] = 0
    weights = shortened[start:stop].clamp(max=noise)
    shortened[start:stop] += weights * (past * noise / weights.sum())
    return shortened


def _further(last_step: float, ratio: float, quarter: float) -> float:
    """How much further out the law goes than its last `quarter`, by steps that go on
    with this ratio.
    """
    halves = math.ceil(math.log2(quarter / _TAIL.last_half))
    powers = np.arange(1, halves + 1)
    steps = last_step * (_TAIL.shrunk * ratio) ** powers
    return float(steps.sum())


def _people_cut(ratio: float, people: float) -> float:
    """How many of so many `people` are cut off at most, in σ."""
    shrinks = _TAIL.shrinks / max(ratio, 1e-9)
    cut: float = _TAIL.most_cut * min(1.0, shrinks**_TAIL.power)
    most: float = _TAIL.share_cut * people
    return min(max(cut, _TAIL.least_cut), most)
