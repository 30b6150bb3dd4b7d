"""Moments as they are released, in whole numbers, and what they say in steps of the frame.

The first release has, class by class, a count and the sum of the rows' coefficients; then the energy of all rows and
histograms of their values. A row counts `COUNT` there, its coefficients are of a norm of at most `SCALE`, its energy
is at most `ENERGY` and its histograms are of a norm of at most `SHADES`. Second moments are triangles of q qᵀ with
‖q‖ ≤ scale, where `radius` steps became `scale`, under noise of σ beside the diagonal and √2·σ on it.

Of several labels with many combinations (`labels`) the first release has, level by level of every label, the sum of the
coefficients, and of every two labels the table of how many rows have which levels; then energy and histograms alike.

Where a bound on norms is bought, a release before these has, of `CELLS` even cells of norms, `COUNT` for each row
(`bought_norm`).

Guarantee: reads released numbers alone.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame, unpacked

if TYPE_CHECKING:
    from understudy.models.moments.labels import Labels

SCALE = 1 << 12  # of the means: the norm that the longest row has in whole numbers
CELLS = 32  # of norms, where a bound on them is bought
COUNT = ENERGY = SHADES = SCALE // 4  # what a row counts, and adds at most to energy and histograms
FIRST = math.sqrt(SCALE**2 + COUNT**2 + ENERGY**2 + SHADES**2) * (1 + 2.0**-40)  # what a person moves of it

MOST_OFFERED = 512  # features of sums that a silo offers

Released = dict[str, Tensor]


def bins_of(frame: Frame) -> int:
    return 32 if frame.channels <= 3 else 16


def first_size(frame: Frame, classes: int) -> int:
    return classes * (1 + frame.features) + 1 + frame.channels * bins_of(frame)


def levels_size(frame: Frame, labels: "Labels") -> int:
    tables = sum(labels.sizes[a] * labels.sizes[b] for a, b in labels.pairs)
    return labels.levels * frame.features + tables + 1 + frame.channels * bins_of(frame)


def levels_sensitivity(labels: "Labels") -> float:
    """By how much a person moves it: with the coefficients once for every label, and once in every table."""
    coefficients, counts = len(labels.sizes) * SCALE**2, len(labels.pairs) * COUNT**2
    return math.sqrt(coefficients + counts + ENERGY**2 + SHADES**2) * (1 + 2.0**-40)


def moments_sensitivity(scale: int) -> float:
    """By how much a person moves second moments, in terms of σ."""
    return scale**2 / math.sqrt(2) * (1 + 2.0**-40)


def read_lengths(total: Tensor, noise: Tensor) -> Released:
    """`people` of each cell of norms, and the deviation of their noise."""
    return {"people": total.double() / COUNT, "people_noise": noise[0].double() / COUNT}


def read_first(frame: Frame, classes: int, total: Tensor, noise: Tensor) -> Released:
    """`people` of each class, `sums` of coefficients, `energy` of all, `shades` (channels, bins), with their noise."""
    step, at = _step(frame), classes * (1 + frame.features)
    units = torch.tensor([1 / COUNT] + [step] * frame.features, dtype=torch.float64)
    table, beside = (part[:at].double().view(classes, -1) * units for part in (total, noise))
    return {
        "people": table[:, 0].clone(),
        "people_noise": beside[0, 0].clone(),
        "sums": table[:, 1:].clone(),
        "sums_noise": beside[0, 1].clone(),
    } | _of_all(frame, total[at:], noise[at:])


def read_levels(frame: Frame, labels: "Labels", total: Tensor, noise: Tensor) -> Released:
    """`sums` of every level (levels, features), `pairs` of people by two levels; energy, shades as of `read_first`."""
    at = labels.levels * frame.features
    pairs = torch.zeros(labels.levels, labels.levels, dtype=torch.float64)
    sums = total[:at].double().view(labels.levels, -1) * _step(frame)
    found = {"sums": sums, "sums_noise": noise[0].double() * _step(frame)}
    for place in labels.tables:
        size = pairs[place].numel()
        pairs[place] = total[at : at + size].double().view_as(pairs[place]) / COUNT
        at += size
    found |= {"pairs": pairs, "pairs_noise": noise[0].double() / COUNT}
    return found | _of_all(frame, total[at:], noise[at:])


def _step(frame: Frame) -> float:
    return frame.reach / SCALE


def _of_all(frame: Frame, total: Tensor, noise: Tensor) -> Released:
    """Energy and shades, with which every first release ends."""
    squared, share = _step(frame) ** 2 * SCALE**2 / ENERGY, math.sqrt(frame.channels) / SHADES
    return {
        "energy": total[0].double() * squared,
        "energy_noise": noise[0].double() * squared,
        "shades": total[1:].double().view(frame.channels, bins_of(frame)) * share,
        "shades_noise": noise[1].double() * share,
    }


def read_moments(triangles: Tensor, d: int, radius: float, scale: int, sigma: float) -> Released:
    """`moments`, the sums over people in squared steps, (…, d, d); the deviation of their noise beside the diagonal."""
    squared = (radius / scale) ** 2
    return {
        "moments": unpacked(triangles.double(), d) * squared,
        "moments_noise": torch.tensor(sigma * squared, dtype=torch.float64),
    }


SHRUNK = 0.3


def bought_norm(lengths: Released, *, numbers: int, classes: int, noise: float) -> float:
    """The bound on norms, as a part of what the cells go up to: above 0, at most 1.

    Every row adds to the sums of its class at most the bound b, and so the noise on their squared distance is that of
    `numbers` numbers of (b · noise)² each. Rows that are longer are pulled in, and the sums move by no more than what
    they are longer by, all together; evenly over classes that is excess²/classes. The bound is where both together are
    least. Means are shrunk by what in them is noise afterwards: so noise weighs `SHRUNK`, chosen on USPS, Sine and
    Energy. The excess is taken to be larger than it seems by one deviation of its own noise: where few people or a
    small share leave it uncertain, the bound stays where it was. `numbers`: of all classes' sums together; `noise`: the
    deviation on each, as a part of what a row may add.
    """
    bounds = torch.arange(1, CELLS + 1, dtype=torch.float64) / CELLS
    # (bound, cell): by how much the longest rows of a cell are longer
    over = (bounds - bounds[:, None]).clamp(min=0)
    excess = (over @ lengths["people"]).clamp(min=0) + lengths["people_noise"] * over.square().sum(1).sqrt()
    lost = SHRUNK * numbers * (noise * bounds).square() + excess.square() / classes
    return float(bounds[lost.argmin()])
