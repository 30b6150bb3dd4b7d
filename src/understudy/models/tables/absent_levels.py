"""Which levels of columns are never drawn, as nobody seems to have them.

A schema says which values are possible, not which occur: a column may be without
missing values, without "(other)", and without the outer levels of a bought range. A fit
would follow the noise of such levels. So a level is never sampled where its noisy count
is likelier with nobody in it.

For missing values and "(other)", the noisy count is weighed against all true counts
that it may have, each order of magnitude as likely as any other, and against the share
of columns that have some at all (`likely_nobody`; empirical Bayes for an atom at zero:
Johnstone and Silverman, Ann. Statist. 2004). In a table where many cells are missing, a
column with 2 % missing is believed.

Guarantee: reads released tables and the public schema alone, so that all who know them
choose the same.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from understudy.data.column import OTHER, Boolean, Categorical, Integer
from understudy.data.schema import Schema, was_bought

if TYPE_CHECKING:
    from understudy.models.tables.mixture import MixtureOfProducts

# in log-odds, below any other level: e⁻⁸⁰ is drawn by nobody, and single precision
# holds it
NEVER = 80.0


def all_that_was_counted(
    gram: Tensor,
    noise: Tensor,
    sizes: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """The people of each level by its one-way table and by the sums of its pairs, and
    the deviation of that mean.

    `noise` (width, width) is infinite where nothing was released.
    """
    column = torch.repeat_interleave(torch.tensor(sizes))
    columns = torch.nn.functional.one_hot(column).double().to(gram.device)
    variance = noise.double().square()
    is_heard = variance.isfinite()
    sums = torch.where(is_heard, gram.double(), 0) @ columns
    spread = torch.where(is_heard, variance, 0) @ columns
    # pairs that were released as a whole
    heard_levels = is_heard.double() @ columns
    is_whole = (heard_levels == columns.sum(0)) & (columns == 0)
    weight = torch.where(is_whole, 1 / spread.clamp(min=1e-9), 0)
    own_weight = 1 / variance.diagonal().clamp(min=1e-9)
    total = own_weight + weight.sum(1)
    by_pairs = (weight * sums).sum(1)
    mean = (own_weight * gram.diagonal() + by_pairs) / total
    return mean, total.rsqrt()


def likely_nobody(
    counts: Tensor,
    deviations: Tensor,
    people: float,
    *,
    columns_before: tuple[float, float] = (0.5, 1.0),
) -> Tensor:
    """Of one level of each column, whether that nobody has it is likelier than that
    some do: (columns,).

    A count is N(m, σ²) with m = 0, or log m even between one person and all of them.
    The share of columns with m > 0 is the one under which all counts are likeliest,
    beside `columns_before` anything was counted, half a column with such people and one
    without: a single column needs odds of 2 : 1, and of many their own counts decide.
    """
    log_people = math.log(max(people, 2.0))
    places = torch.linspace(0, log_people, 128, dtype=torch.float64)
    sigma = deviations.double().clamp(min=0.5)
    count = counts.double()
    gaps = count[:, None] - places.exp()
    exponents = -(gaps**2) / (2 * sigma[:, None] ** 2)
    some = exponents.logsumexp(1) - math.log(len(places))
    none = -(count**2) / (2 * sigma**2)
    odds = some - none

    with_some, without = columns_before
    share = torch.tensor(0.5, dtype=torch.float64)
    for _ in range(12):  # expectation and maximisation
        likely = torch.sigmoid(odds + torch.logit(share))
        columns = len(odds) + with_some + without
        share = (likely.sum() + with_some) / columns
    return odds + torch.logit(share) <= 0


def levels_of_none(
    schema: Schema,
    sizes: Sequence[int],
    counts: Tensor,
    deviations: Tensor,
    *,
    none: float = 2.0,
    chance: float = 0.02,
) -> list[list[int]]:
    """Of each column the levels with nobody: missing, "(other)", and where the schema
    was bought, "yes" or "no", and whole numbers beyond the first and the last that were
    seen. `counts` and `deviations` are (width,).

    `none`: a count no more deviations above 0 is consistent with nobody; noise alone is
    above once in 44 levels. `chance`: that of all columns of a table one is drawn as
    "yes" or "no" by noise alone. A half of it moves the line by .2 σ.
    """
    absent = []
    bought = was_bought(schema)
    surely = NormalDist().inv_cdf(1 - chance / (2 * len(sizes)))
    surely = max(none, surely)
    unlike = _unlike_levels(schema, sizes, counts, deviations)
    start = 0
    for column, size in zip(schema.columns, sizes, strict=True):
        count = counts[start : start + size]
        sigma = deviations[start : start + size]
        is_none = (count <= none * sigma).tolist()
        levels = [level for level in range(size) if start + level in unlike]
        if bought and isinstance(column, Boolean):
            is_surely_none = (count <= surely * sigma).tolist()
            levels += [level for level in range(column.levels) if is_surely_none[level]]
        is_single = size == column.size  # a level each: none was merged
        if is_single and bought and isinstance(column, Integer):
            seen = [level for level in range(column.levels) if not is_none[level]]
            if seen:
                levels += range(seen[0])
                levels += range(seen[-1] + 1, column.levels)
        others = [level for level in range(size) if level not in levels]
        has_some = any(not is_none[level] for level in others)
        absent.append(levels if has_some else [])
        start += size
    return absent


def _unlike_levels(
    schema: Schema,
    sizes: Sequence[int],
    counts: Tensor,
    deviations: Tensor,
) -> set[int]:
    """The places, in a row of all levels, of missing values and "(other)" that likely
    nobody has.
    """
    last = torch.tensor(sizes).cumsum(0)
    people = float(counts.clamp(min=0).sum()) / len(sizes)
    unlike = set[int]()
    for places in (_missing_levels(schema, last), _other_levels(schema, sizes, last)):
        if places:
            at = torch.tensor(places)
            empty = likely_nobody(counts[at].cpu(), deviations[at].cpu(), people)
            unlike |= set(at[empty].tolist())
    return unlike


def _missing_levels(schema: Schema, last: Tensor) -> list[int]:
    """Where those without a value stand in a row of all levels."""
    ends = zip(schema.columns, last.tolist(), strict=True)
    return [end - 1 for column, end in ends if column.nullable]


def _other_levels(schema: Schema, sizes: Sequence[int], last: Tensor) -> list[int]:
    """Where "(other)" stands, of columns whose levels were not merged."""
    places = []
    for column, size, end in zip(schema.columns, sizes, last.tolist(), strict=True):
        is_single = size == column.size
        if is_single and isinstance(column, Categorical):
            categories = column.categories
            if OTHER in categories:
                places.append(end - size + categories.index(OTHER))
    return places


@torch.no_grad()
def never_drawn(
    network: "MixtureOfProducts", levels: Sequence[Sequence[int]]
) -> "MixtureOfProducts":
    """The same mixture, changed in place, which draws none of these levels of each
    column.
    """
    start = 0
    for column, (size, none) in enumerate(zip(network.sizes, levels, strict=True)):
        if none:
            places = list(none)
            block = network.logits[:, start : start + size]
            highest = block.max(1, keepdim=True).values
            block[:, places] = highest - NEVER
            if column == network.target and network.effects is not None:
                network.effects[:, places] -= NEVER
        start += size
    return network
