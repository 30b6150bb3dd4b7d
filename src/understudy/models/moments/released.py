"""Moments as they are released, in whole numbers, and what they say in steps of the
frame.

The first release has, class by class, a count and the sum of the rows' coefficients;
then the energy of all rows and histograms of their values. A row counts `COUNT` there,
its coefficients are of a norm of at most `SCALE`, its energy is at most `ENERGY` and
its histograms are of a norm of at most `SHADES`. Second moments are triangles of q qᵀ
with ‖q‖ ≤ scale, where `radius` steps became `scale`, under noise of σ beside the
diagonal and √2·σ on it.

Where a bound on norms is bought, a release before these has, of `CELLS` even cells of
norms, `COUNT` for each row (`bought_norm`).

*Several labels.* A combination has one level of every label; the levels of the first
change slowest, and second moments are kept by them alone (`each` combinations share
them). Where combinations are few, they are the classes. Else the first release has,
level by level of every label, the sum of the coefficients, and of every two labels the
table of how many rows have which levels; then energy and histograms alike. Of m labels,
the noise on the mean of a level of the largest, k, is √(combinations / k) of one
number's in the first case, and about √m of it in the second; the first is taken up to
√2 times as much noise, and up to `MOST_JOINT` combinations.

- *How many people a combination has*: where they were counted, that, shrunk towards
  independent labels by the share of the distance from these that is noise (James, Stein
  1961), and none below 0. Else the fit of tables (`fit_gram`) to pairs of labels.
- *The mean of a combination*: the mean of all, an effect of each level, and, where it
  was measured, one of the combination itself. All are Gaussian with variances of their
  own, for each label and for neighbouring frequencies, fitted to the sums (evidence by
  MacKay's iteration, 1992): what does not stand out of noise goes to 0, and a
  combination that nobody has gets what its levels say.

Guarantee: reads released numbers alone, and is the same for the same numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame, unpacked

SCALE = 1 << 12  # of the means: the norm that the longest row has in whole numbers
CELLS = 32  # of norms, where a bound on them is bought
# what a row counts, and adds at most to energy and histograms
COUNT = ENERGY = SHADES = SCALE // 4
# what a person moves of it
FIRST = math.sqrt(SCALE**2 + COUNT**2 + ENERGY**2 + SHADES**2) * (1 + 2.0**-40)

MOST_OFFERED = 512  # features of sums that a silo offers

MOST_JOINT = 64
# times as much variance, and combinations are no longer counted one by one
_CROWDED = 2
MOST_GAUSSIANS = 1 << 12  # of all combinations of several labels, each cut into cells
_BAND = 10  # frequencies that have the same variances
_ROUNDS = 40
# of the fit of tables, which are small
_COMPONENTS = 64
_STEPS = 200
_NOBODY = 0.5  # people: a combination with fewer says nothing of its mean
# of a variance, and of sums that have no noise, in parts of the largest
_LEAST = 1e-9
_EXACT = 1e-6
_ROUNDED = 1e-12  # of what sums vary by: what rounding may take from it

Released = dict[str, Tensor]


@dataclass(frozen=True)
class Labels:
    """How many levels each label has; rows without a label have one of one level."""

    sizes: tuple[int, ...]

    @property
    def combinations(self) -> int:
        return math.prod(self.sizes)

    @property
    def each(self) -> int:
        return self.combinations // self.sizes[0]

    @property
    def levels(self) -> int:
        return sum(self.sizes)

    @property
    def joint(self) -> bool:
        """Whether combinations are counted themselves."""
        few = self.combinations <= _CROWDED * len(self.sizes) * max(self.sizes)
        return len(self.sizes) == 1 or (few and self.combinations <= MOST_JOINT)

    @property
    def most_bits(self) -> int:
        """By how many directions' signs classes may be cut; of one label
        `stages.MOST_BITS` alone decides.
        """
        return (
            64
            if len(self.sizes) == 1
            else (MOST_GAUSSIANS // self.combinations).bit_length() - 1
        )

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple(combinations(range(len(self.sizes)), 2))

    @property
    def starts(self) -> tuple[int, ...]:
        return (0, *accumulate(self.sizes))

    @property
    def tables(self) -> tuple[tuple[slice, slice], ...]:
        """Where the table of every two labels stands among all levels."""
        places = [
            slice(a, b) for a, b in zip(self.starts, self.starts[1:], strict=False)
        ]
        return tuple((places[a], places[b]) for a, b in self.pairs)

    def one_hot(self) -> Tensor:
        """The levels that each combination has: (combinations, levels)."""
        places = torch.cartesian_prod(
            *(torch.arange(size) for size in self.sizes)
        ).view(self.combinations, -1)
        found = torch.zeros(self.combinations, self.levels, dtype=torch.float64)
        return found.scatter_(1, places + torch.tensor(self.starts[:-1]), 1.0)


def bins_of(frame: Frame) -> int:
    return 32 if frame.channels <= 3 else 16


def first_size(frame: Frame, classes: int) -> int:
    return classes * (1 + frame.features) + 1 + frame.channels * bins_of(frame)


def moments_sensitivity(scale: int) -> float:
    """By how much a person moves second moments, in terms of σ."""
    return scale**2 / math.sqrt(2) * (1 + 2.0**-40)


def read_first(frame: Frame, classes: int, total: Tensor, noise: float) -> Released:
    """`people` of each class, `sums` of coefficients, `energy` of all, `shades`
    (channels, bins), with their noise.
    """
    at = classes * (1 + frame.features)
    loud = torch.tensor(noise, dtype=torch.float64)
    table = total[:at].double().view(classes, -1)
    found = {"people": table[:, 0] * (1 / COUNT), "people_noise": loud * (1 / COUNT)}
    found |= {"sums": table[:, 1:] * _step(frame), "sums_noise": loud * _step(frame)}
    return found | _of_all(frame, total[at:], loud)


def read_levels(frame: Frame, labels: Labels, total: Tensor, noise: float) -> Released:
    """`sums` of every level (levels, features), `pairs` of people by two levels;
    energy, shades as of `read_first`.
    """
    at = labels.levels * frame.features
    loud = torch.tensor(noise, dtype=torch.float64)
    pairs = torch.zeros(labels.levels, labels.levels, dtype=torch.float64)
    sums = total[:at].double().view(labels.levels, -1) * _step(frame)
    found = {"sums": sums, "sums_noise": loud * _step(frame)}
    for place in labels.tables:
        size = pairs[place].numel()
        pairs[place] = total[at : at + size].double().view_as(pairs[place]) / COUNT
        at += size
    found |= {"pairs": pairs, "pairs_noise": loud / COUNT}
    return found | _of_all(frame, total[at:], loud)


def _step(frame: Frame) -> float:
    return frame.reach / SCALE


def _of_all(frame: Frame, total: Tensor, loud: Tensor) -> Released:
    """Energy and shades, with which every first release ends."""
    squared = _step(frame) ** 2 * SCALE**2 / ENERGY
    share = math.sqrt(frame.channels) / SHADES
    shades = total[1:].double().view(frame.channels, bins_of(frame)) * share
    found = {"energy": total[0].double() * squared, "energy_noise": loud * squared}
    return found | {"shades": shades, "shades_noise": loud * share}


def read_moments(
    triangles: Tensor, d: int, radius: float, scale: int, sigma: float
) -> Released:
    """`moments`, the sums over people in squared steps, (…, d, d); the deviation of
    their noise beside the diagonal.
    """
    squared = (radius / scale) ** 2
    noise = torch.tensor(sigma * squared, dtype=torch.float64)
    return {
        "moments": unpacked(triangles.double(), d) * squared,
        "moments_noise": noise,
    }


SHRUNK = 0.3


def bought_norm(
    lengths: Released, *, numbers: int, classes: int, noise: float
) -> float:
    """The bound on norms, as a part of what the cells go up to: above 0, at most 1.

    Every row adds to the sums of its class at most the bound b, and so the noise on
    their squared distance is that of `numbers` numbers of (b · noise)² each. Rows that
    are longer are pulled in, and the sums move by no more than what they are longer by,
    all together; evenly over classes that is excess²/classes. The bound is where both
    together are least. Means are shrunk by what in them is noise afterwards: so noise
    weighs `SHRUNK`, chosen on USPS, Sine and Energy. The excess is taken to be larger
    than it seems by one deviation of its own noise: where few people or a small share
    leave it uncertain, the bound stays where it was. `numbers`: of all classes' sums
    together; `noise`: the deviation on each, as a part of what a row may add.
    """
    bounds = torch.arange(1, CELLS + 1, dtype=torch.float64) / CELLS
    # (bound, cell): by how much the longest rows of a cell are longer
    over = (bounds - bounds[:, None]).clamp(min=0)
    excess = (over @ lengths["people"]).clamp(min=0) + lengths[
        "people_noise"
    ] * over.square().sum(1).sqrt()
    lost = SHRUNK * numbers * (noise * bounds).square() + excess.square() / classes
    return float(bounds[lost.argmin()])


@dataclass(frozen=True)
class ByLabels:
    people: Tensor  # (combinations,)
    whole: Tensor  # (features,): the mean of all rows
    whole_noise: float
    beside: Tensor  # (combinations, features): their means about it


def by_labels(first: Released, labels: Labels) -> ByLabels:
    levels = labels.one_hot()
    noise = float(first["sums_noise"])
    people = _people(first, labels, levels)
    if labels.joint:
        held = people > min(_NOBODY, float(people.max()) / 2)
        counted = torch.where(held, people, 0.0)
        total = float(counted.sum())
        design = torch.cat(
            [levels, torch.eye(labels.combinations, dtype=torch.float64)], 1
        )
        seen = counted[:, None] * design
        expected = counted
        blocks = (*labels.sizes, labels.combinations)
        whole = first["sums"][held].sum(0) / total
        loud = noise * math.sqrt(int(held.sum())) / total
    else:
        total = float(people.sum())
        design = levels
        seen = levels.T @ (people[:, None] * levels)
        blocks = labels.sizes
        expected = seen.diagonal()
        times = len(labels.sizes)
        whole = first["sums"].sum(0) / times / total
        loud = noise * math.sqrt(labels.levels) / times / total
    effects = fitted_effects(
        seen, first["sums"] - expected[:, None] * whole, noise, blocks
    )
    return ByLabels(people, whole, loud, design @ effects)


def fitted_effects(
    seen: Tensor, sums: Tensor, noise: float, blocks: tuple[int, ...]
) -> Tensor:
    """Effects θ (effects, features) of which sums (n, features) = seen (n, effects) · θ
    + noise were released. θ of a block, and of a band of neighbouring features, has one
    variance: the likeliest. A round of the iteration: θ given the variances v; then v
    is Σ θ² of a block over how many of its numbers are told from noise.
    """
    block = torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks))
    features = sums.shape[1]
    bands = -(-sums.shape[1] // _BAND)
    padded = torch.nn.functional.pad(sums, (0, bands * _BAND - features))
    # (bands, n, features of a band)
    banded = padded.view(len(sums), bands, _BAND).transpose(0, 1)
    widths = torch.full((bands, 1), float(_BAND), dtype=torch.float64)
    widths[-1] = features - (bands - 1) * _BAND
    loud = max(noise, _EXACT * float(sums.abs().max()), 1e-150) ** 2
    usual = seen.square().sum(1).mean().clamp(min=1e-300) * len(sums) * widths
    largest = (banded.square().sum((1, 2))[:, None] / usual).clamp(min=1e-300)
    variances = largest.expand(-1, len(blocks))
    right = seen.expand(bands, -1, -1)
    for _ in range(_ROUNDS):
        own = variances[:, block]  # (bands, effects)
        total = (seen * own[:, None, :]) @ seen.T
        total = total + torch.diag_embed(
            loud + _ROUNDED * total.diagonal(dim1=1, dim2=2)
        )
        solved = torch.cholesky_solve(
            torch.cat([banded, right], 2), torch.linalg.cholesky(total)
        )
        effects = own[:, :, None] * (seen.T @ solved[:, :, :_BAND])
        told = own * (seen * solved[:, :, _BAND:]).sum(1) * widths
        none = torch.zeros(bands, len(blocks), dtype=torch.float64)
        told, square = (
            none.index_add(1, block, some) for some in (told, effects.square().sum(2))
        )
        variances = torch.maximum(square / told.clamp(min=1e-300), _LEAST * largest)
    return effects.transpose(0, 1).reshape(len(block), -1)[:, :features]


def _people(first: Released, labels: Labels, levels: Tensor) -> Tensor:
    """How many people have each combination, none below 0: (combinations,)."""
    if not labels.joint:
        return _by_pairs(first["pairs"], float(first["pairs_noise"]), labels)
    found = first["people"]
    noise = float(first["people_noise"])
    total = max(float(found.sum()), 1.0)
    ways = [
        _shares(one / total) for one in torch.split(found @ levels, list(labels.sizes))
    ]
    apart = joint_odds([one[None] for one in ways])
    beside = found / total - apart
    free = labels.combinations - 1 - sum(size - 1 for size in labels.sizes)
    kept = max(
        0.0, 1 - free * (noise / total) ** 2 / max(float(beside.square().sum()), 1e-300)
    )
    return _shares(apart + kept * beside) * total


def _by_pairs(pairs: Tensor, noise: float, labels: Labels) -> Tensor:
    """By the fit of tables to those of every two labels, (levels, levels), under noise
    of this deviation.
    """
    from understudy.models.tables.fit_gram import fit_gram

    deviations = torch.full_like(pairs, math.inf)
    for place in labels.tables:
        deviations[place] = noise
    law = fit_gram(
        pairs,
        labels.sizes,
        noise=deviations,
        components=_COMPONENTS,
        steps=_STEPS,
        seed=0,
    )
    shares = joint_odds(
        torch.split(law.odds().detach().double(), list(labels.sizes), 1)
    )
    totals = [float(pairs[place].sum()) for place in labels.tables]
    return shares * max(sum(totals) / len(totals), 1.0)


def joint_odds(odds: Sequence[Tensor]) -> Tensor:
    """The odds of every combination, of (components, levels) of each label: independent
    in each component.
    """
    found = odds[0]
    for one in odds[1:]:
        found = (found[:, :, None] * one[:, None, :]).flatten(1)
    return found.mean(0)


def _shares(values: Tensor) -> Tensor:
    # which a silo that offers sums does without
    from understudy.models.simplex import to_simplex

    return to_simplex(values[None], values.new_ones(1))[0]
