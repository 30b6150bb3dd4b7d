"""Poisson sampling: who takes part in a step is drawn person by person, which is what amplifies privacy."""

import math

import torch
from torch import Tensor

from understudy.ground.check import in_range
from understudy.privacy.noise.rng import Rng


def poisson_samples(rng: Rng, n: int, rate: float, times: int) -> list[Tensor]:
    """Each of n people, independently, with probability `rate`, so many times over: each time the drawn, ascending.

    All n · times yes/no draws form one sequence, and the gaps between two yes are geometric: as many random
    numbers are needed as people are drawn, not as there are people (Fan, Muller, Rezucha 1962).
    Guarantee: people are drawn independently of one another and of all rows (the Poisson sampling that
    amplifies); the rate holds to 2⁻⁵³.
    Edges: rate 0 draws nobody, rate 1 everybody. The number drawn is as secret as the rows.
    """
    in_range(0, 1, rate=rate)
    length = n * times
    if rate in (0, 1):
        return [torch.arange(n) if rate else torch.arange(0) for _ in range(times)]
    room = math.ceil(length * rate + 8 * math.sqrt(length * rate) + 8)
    drawn = torch.tensor([-1])
    while int(drawn[-1]) < length - 1:
        # 1 − u is exact, as u is a multiple of 2⁻⁵³: log1p would gain nothing and is not vectorised.
        gaps = (1 - rng.uniform(room)).log_().div_(math.log1p(-rate)).clamp_(max=length).long() + 1
        drawn = torch.cat([drawn, drawn[-1] + gaps.cumsum(0)])
    drawn = drawn[1 : int(torch.searchsorted(drawn, length))]
    bounds = torch.searchsorted(drawn, torch.arange(1, times) * n)
    return [part % n for part in torch.tensor_split(drawn, bounds)] if n else [drawn] * times
