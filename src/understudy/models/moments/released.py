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
from itertools import accumulate, combinations, pairwise

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
    def classes_per_group(self) -> int:
        return self.combinations // self.sizes[0]

    @property
    def levels(self) -> int:
        return sum(self.sizes)

    @property
    def joint(self) -> bool:
        """Whether combinations are counted themselves."""
        if len(self.sizes) == 1:
            return True
        quiet = _CROWDED * len(self.sizes) * max(self.sizes)
        return self.combinations <= min(quiet, MOST_JOINT)

    @property
    def most_bits(self) -> int:
        """By how many directions' signs classes may be cut; of one label
        `stages.MOST_BITS` alone decides.
        """
        if len(self.sizes) == 1:
            return 64
        cells_per_class = MOST_GAUSSIANS // self.combinations
        return cells_per_class.bit_length() - 1

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        labels = range(len(self.sizes))
        return tuple(combinations(labels, 2))

    @property
    def starts(self) -> tuple[int, ...]:
        return (0, *accumulate(self.sizes))

    @property
    def tables(self) -> tuple[tuple[slice, slice], ...]:
        """Where the table of every two labels stands among all levels."""
        slices = [slice(start, end) for start, end in pairwise(self.starts)]
        return tuple((slices[a], slices[b]) for a, b in self.pairs)

    def one_hot(self) -> Tensor:
        """The levels that each combination has: (combinations, levels)."""
        ranges = [torch.arange(size) for size in self.sizes]
        level = torch.cartesian_prod(*ranges).view(self.combinations, -1)
        positions = level + torch.tensor(self.starts[:-1])
        one_hot = torch.zeros(self.combinations, self.levels, dtype=torch.float64)
        return one_hot.scatter_(1, positions, 1.0)


def bins_of(frame: Frame) -> int:
    return 32 if frame.channels <= 3 else 16


def first_size(frame: Frame, classes: int) -> int:
    of_classes = classes * (1 + frame.features)
    histograms = frame.channels * bins_of(frame)
    return of_classes + 1 + histograms


def moments_sensitivity(scale: int) -> float:
    """By how much a person moves second moments, in terms of σ."""
    return scale**2 / math.sqrt(2) * (1 + 2.0**-40)


def read_first(
    frame: Frame,
    classes: int,
    total: Tensor,
    noise: float,
) -> Released:
    """`people` of each class, `sums` of coefficients, `energy` of all, `shades`
    (channels, bins), with their noise.
    """
    end = classes * (1 + frame.features)
    deviation = torch.tensor(noise, dtype=torch.float64)
    table = total[:end].double().view(classes, -1)
    step = _step(frame)
    of_classes = {
        "people": table[:, 0] * (1 / COUNT),
        "people_noise": deviation * (1 / COUNT),
        "sums": table[:, 1:] * step,
        "sums_noise": deviation * step,
    }
    return of_classes | _read_energy_and_shades(frame, total[end:], deviation)


def read_levels(
    frame: Frame,
    labels: Labels,
    total: Tensor,
    noise: float,
) -> Released:
    """`sums` of every level (levels, features), `pairs` of people by two levels;
    energy, shades as of `read_first`.
    """
    levels = labels.levels
    step = _step(frame)
    deviation = torch.tensor(noise, dtype=torch.float64)
    end = levels * frame.features
    sums = total[:end].double().view(levels, -1)
    pairs = torch.zeros(levels, levels, dtype=torch.float64)
    for slices in labels.tables:
        start = end
        table = pairs[slices]
        end += table.numel()
        counts = total[start:end].double()
        pairs[slices] = counts.view_as(table) / COUNT
    of_levels = {
        "sums": sums * step,
        "sums_noise": deviation * step,
        "pairs": pairs,
        "pairs_noise": deviation / COUNT,
    }
    return of_levels | _read_energy_and_shades(frame, total[end:], deviation)


def _step(frame: Frame) -> float:
    return frame.reach / SCALE


def _read_energy_and_shades(
    frame: Frame,
    total: Tensor,
    deviation: Tensor,
) -> Released:
    """Energy and histograms of values, with which every first release ends."""
    energy = total[0].double()
    shades = total[1:].double().view(frame.channels, bins_of(frame))
    squared_step = _step(frame) ** 2 * SCALE**2 / ENERGY
    share = math.sqrt(frame.channels) / SHADES
    return {
        "energy": energy * squared_step,
        "energy_noise": deviation * squared_step,
        "shades": shades * share,
        "shades_noise": deviation * share,
    }


def read_moments(
    triangles: Tensor,
    d: int,
    radius: float,
    scale: int,
    sigma: float,
) -> Released:
    """`moments`, the sums over people in squared steps, (…, d, d); the deviation of
    their noise beside the diagonal.
    """
    squared_step = (radius / scale) ** 2
    moments = unpacked(triangles.double(), d)
    return {
        "moments": moments * squared_step,
        "moments_noise": torch.tensor(sigma * squared_step, dtype=torch.float64),
    }


SHRUNK = 0.3


def bought_norm(
    lengths: Released,
    *,
    numbers: int,
    classes: int,
    noise: float,
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
    estimate = (over @ lengths["people"]).clamp(min=0)
    excess_noise = lengths["people_noise"] * over.square().sum(1).sqrt()
    excess = estimate + excess_noise
    variance = SHRUNK * numbers * (noise * bounds).square()
    squared_bias = excess.square() / classes
    expected_error = variance + squared_bias
    return float(bounds[expected_error.argmin()])


@dataclass(frozen=True)
class ByLabels:
    people: Tensor  # (combinations,)
    whole: Tensor  # (features,): the mean of all rows
    whole_noise: float
    offsets: Tensor  # (combinations, features): their means about it


def by_labels(first: Released, labels: Labels) -> ByLabels:
    """Of every combination its people and its mean about that of all rows."""
    levels = labels.one_hot()
    people = _people(first, labels, levels)
    if labels.joint:
        return _by_combination(first, labels, levels, people)
    return _by_level(first, labels, levels, people)


def _by_combination(
    first: Released,
    labels: Labels,
    levels: Tensor,
    people: Tensor,
) -> ByLabels:
    """Where the sums of combinations were released."""
    noise = float(first["sums_noise"])
    populated = people > min(_NOBODY, float(people.max()) / 2)
    counted = torch.where(populated, people, 0.0)
    total = float(counted.sum())
    whole = first["sums"][populated].sum(0) / total
    of_combinations = torch.eye(labels.combinations, dtype=torch.float64)
    design = torch.cat([levels, of_combinations], 1)
    effects = fitted_effects(
        counted[:, None] * design,
        first["sums"] - counted[:, None] * whole,
        noise,
        (*labels.sizes, labels.combinations),
    )
    return ByLabels(
        people=people,
        whole=whole,
        whole_noise=noise * math.sqrt(int(populated.sum())) / total,
        offsets=design @ effects,
    )


def _by_level(
    first: Released,
    labels: Labels,
    levels: Tensor,
    people: Tensor,
) -> ByLabels:
    """Where the sums of levels were released, each row's once for every label."""
    noise = float(first["sums_noise"])
    total = float(people.sum())
    n_labels = len(labels.sizes)
    whole = first["sums"].sum(0) / n_labels / total
    both_levels = levels.T @ (people[:, None] * levels)
    level_people = both_levels.diagonal()
    effects = fitted_effects(
        both_levels,
        first["sums"] - level_people[:, None] * whole,
        noise,
        labels.sizes,
    )
    return ByLabels(
        people=people,
        whole=whole,
        whole_noise=noise * math.sqrt(labels.levels) / n_labels / total,
        offsets=levels @ effects,
    )


def fitted_effects(
    design: Tensor,
    sums: Tensor,
    noise: float,
    blocks: tuple[int, ...],
) -> Tensor:
    """Effects θ (effects, features) of which sums (n, features) = design (n, effects) ·
    θ + noise were released. θ of a block, and of a band of neighbouring features, has
    one variance: the likeliest. A round of the iteration: θ given the variances v; then
    v is Σ θ² of a block over how many of its numbers are told from noise.
    """
    block = torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks))
    banded, widths = _in_bands(sums)
    bands = len(banded)
    largest_sum = float(sums.abs().max())
    deviation = max(noise, _EXACT * largest_sum, 1e-150)
    noise_variance = deviation**2
    gain = design.square().sum(1).mean()
    energy = banded.square().sum((1, 2))
    amplified = gain.clamp(min=1e-300) * len(sums) * widths
    largest = energy[:, None] / amplified
    largest = largest.clamp(min=1e-300)
    variances = largest.expand(-1, len(blocks))
    right_sides = torch.cat([banded, design.expand(bands, -1, -1)], 2)
    of_blocks = torch.zeros(bands, len(blocks), dtype=torch.float64)
    for _ in range(_ROUNDS):
        prior = variances[:, block]  # (bands, effects)
        scaled_design = design * prior[:, None, :]
        signal = scaled_design @ design.T
        rounding = _ROUNDED * signal.diagonal(dim1=1, dim2=2)
        diagonal = torch.diag_embed(noise_variance + rounding)
        lower = torch.linalg.cholesky(signal + diagonal)
        solved = torch.cholesky_solve(right_sides, lower)
        solved_sums = solved[:, :, :_BAND]
        solved_design = solved[:, :, _BAND:]
        projected_sums = design.T @ solved_sums
        effects = prior[:, :, None] * projected_sums
        # of every effect's numbers how many are told from noise
        precision = (design * solved_design).sum(1)
        degrees = prior * precision * widths
        squares = effects.square().sum(2)
        block_degrees = of_blocks.index_add(1, block, degrees)
        block_squares = of_blocks.index_add(1, block, squares)
        likeliest = block_squares / block_degrees.clamp(min=1e-300)
        variances = torch.maximum(likeliest, _LEAST * largest)
    features = sums.shape[1]
    return effects.transpose(0, 1).reshape(len(block), -1)[:, :features]


def _in_bands(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Sums (n, features) by bands of neighbouring features, (bands, n, features of a
    band), the last filled with 0; how many features each has, (bands, 1).
    """
    n, features = sums.shape
    bands = -(-features // _BAND)
    padded = torch.nn.functional.pad(sums, (0, bands * _BAND - features))
    widths = torch.full((bands, 1), float(_BAND), dtype=torch.float64)
    widths[-1] = features - (bands - 1) * _BAND
    return padded.view(n, bands, _BAND).transpose(0, 1), widths


def _people(
    first: Released,
    labels: Labels,
    levels: Tensor,
) -> Tensor:
    """How many people have each combination, none below 0: (combinations,)."""
    if not labels.joint:
        return _by_pairs(first["pairs"], float(first["pairs_noise"]), labels)
    noisy_counts = first["people"]
    noise = float(first["people_noise"])
    total = max(float(noisy_counts.sum()), 1.0)
    marginals = torch.split(noisy_counts @ levels, list(labels.sizes))
    shares = [_shares(marginal / total)[None] for marginal in marginals]
    independent = joint_odds(shares)
    interaction = noisy_counts / total - independent
    degrees = labels.combinations - 1 - sum(size - 1 for size in labels.sizes)
    noise_energy = degrees * (noise / total) ** 2
    energy = max(float(interaction.square().sum()), 1e-300)
    shrinkage = max(0.0, 1 - noise_energy / energy)
    return _shares(independent + shrinkage * interaction) * total


def _by_pairs(
    pairs: Tensor,
    noise: float,
    labels: Labels,
) -> Tensor:
    """By the fit of tables to those of every two labels, (levels, levels), under noise
    of this deviation.
    """
    from understudy.models.tables.fit_gram import fit_gram

    deviations = torch.full_like(pairs, math.inf)
    for slices in labels.tables:
        deviations[slices] = noise
    law = fit_gram(
        pairs,
        labels.sizes,
        noise=deviations,
        components=_COMPONENTS,
        steps=_STEPS,
        seed=0,
    )
    odds = law.odds().detach().double()
    shares = joint_odds(torch.split(odds, list(labels.sizes), 1))
    totals = [float(pairs[slices].sum()) for slices in labels.tables]
    people = sum(totals) / len(totals)
    return shares * max(people, 1.0)


def joint_odds(odds: Sequence[Tensor]) -> Tensor:
    """The odds of every combination, of (components, levels) of each label: independent
    in each component.
    """
    joint = odds[0]
    for of_label in odds[1:]:
        outer = joint[:, :, None] * of_label[:, None, :]
        joint = outer.flatten(1)
    return joint.mean(0)


def _shares(values: Tensor) -> Tensor:
    # which a silo that offers sums does without
    from understudy.models.simplex import to_simplex

    rows = to_simplex(values[None], values.new_ones(1))
    return rows[0]
