"""The mean of all series out of noisy coefficients, frequency after frequency, all channels of one together.

Of a few hundred people's series the noise on the mean is larger than most of what is true of it, and series lie nearer
to each other than that: what is noise has to go.

- Swings: a mean over many series hardly swings. A coefficient is shrunk towards none by the mean square of its
  neighbours, a frequency on either side, as far as that is above what noise alone would have; one by itself has to be
  above the largest that noise alone would show among all, σ√(2 ln d) (Donoho, Johnstone 1994).
- Levels: channels often have one level (prices of a day), and are then fused: of all ways to put them in groups
  of one level each, the one with the least squared distance, in units of the noise, and a price for each group.

Guarantee: reads released numbers alone.
"""

import math

import torch
from torch import Tensor

_PRICE = 2.0  # of a group of levels beside 2 ln(channels)


def series_mean(values: Tensor, noise: float, channels: int) -> Tensor:
    """Coefficients (frequencies · channels,) under noise of this deviation, without it as far as they can be told."""
    if not noise:
        return values
    return torch.cat([fused(values[:channels], noise), _swings(values[channels:], noise, channels)])


def _swings(values: Tensor, noise: float, channels: int) -> Tensor:
    if not len(values):
        return values
    width = min(channels, len(values) - 1)
    squares, largest = values.square(), 2 * math.log(len(values) + channels) * noise**2
    padded = torch.cat([squares[:1].expand(width), squares, squares[-1:].expand(width)]).clamp(max=largest)
    around = padded.unfold(0, 2 * width + 1, 1).mean(1)
    signal = (around - (1 + math.sqrt(2 / (2 * width + 1))) * noise**2).clamp(min=0)
    signal = torch.maximum(signal, squares - largest)
    return values * signal / (signal + noise**2)


def fused(values: Tensor, noise: float) -> Tensor:
    """Values of which those that noise alone may keep apart are one.

    Of a sorted list all groups are neighbours, and the best cut before each place follows from those before it.
    """
    order = values.argsort()
    price = 2 * math.log(len(values)) + _PRICE
    zero = values.new_zeros(1)
    total, squares = (torch.cat([zero, some.cumsum(0)]) for some in (values[order], values[order].square()))
    best, cuts = zero, [0]
    for end in range(1, len(values) + 1):
        sums = total[end] - total[:end]
        apart = squares[end] - squares[:end] - sums.square() / torch.arange(end, 0, -1)
        costs = best + apart / noise**2 + price
        cuts.append(int(costs.argmin()))
        best = torch.cat([best, costs.amin()[None]])
    found, end = torch.empty_like(values), len(values)
    while end:
        first = cuts[end]
        found[order[first:end]] = (total[end] - total[first]) / (end - first)
        end = first
    return found
