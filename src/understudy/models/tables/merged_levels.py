"""Which levels of columns are measured, which are fitted as one, and which are never
drawn: by released tables alone.

*Bought* (`bought_levels`). A cell of a two-way table has noise of a known size σ. With
L levels of about equal weight in both columns it has n/L² people, and fewer than σ of
them tell nothing: so there are L = √(n/σ) levels. Neighbouring fine cells of
ordered columns are merged until they hold n/L people; one that holds as many (zero, 40
h) is a level by itself. So are all categories together with fewer than `_RARE` σ people
each, and last those missing.

*Fitted* (`Coarse`). A fit's time grows with the square of the width, and of thousands
of levels hardly any pair can be told from noise. So neighbouring levels are one while
the tables are fitted, as few people as possible in each, and are parted afterwards as
the one-way table says.

*Never drawn* (`levels_of_none`). A schema says what may be, not what is: values may
lack, or be none of the categories, and of bought columns lie beyond all that were seen.
A fit follows the noise of such levels; where that nobody is there is likelier than what
was counted, nobody is drawn there. Of missing values and "(other)" a count is held
against all numbers that may stand behind it, each power of them as likely as any other,
and against how many columns have some at all (`likely_nobody`): of a table in which
many cells lack, 2 % that lack in one more are believed.

Guarantee: reads released tables and the public schema alone, so that all who know them
choose the same.
Edges: two levels at least where there are two cells; noise 0 → as many as there may be.
All columns together have up to `MOST_WIDTH` levels, or two each; in a fit `_FEWEST`
each, and all that are in a three-way table.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import OTHER, Boolean, Categorical, Column, Integer, Real
from understudy.data.encoding.fine import has_many_bins, is_bought, is_tree
from understudy.data.schema import Schema, was_bought
from understudy.models.tables.given_rules import Tie, blocks_of

if TYPE_CHECKING:
    from understudy.models.tables.mixture import MixtureOfProducts

Groups = NDArray[np.int32]  # the level of each fine cell

# levels of a column with many declared bins, before it is known how many there will be
_FEW = 8
_SMALL = 0.25  # of n/L: with fewer people than this, neighbours are one level
# deviations of a level's people by its pairs: what it holds at least, far out
_THIN = 2.5
_RARE = 2.0  # σ: what a category must hold to be a level of its own
_MOST_LEVELS = 128  # of one column
MOST_WIDTH = 2048  # of all columns whose levels are bought
MOST_CELLS = 4096  # of a three-way table


def most_width(columns: int) -> int:
    return max(MOST_WIDTH, 3 * columns)


def most_levels(columns: Sequence[Column]) -> int:
    """How many levels each of those that are bought may have, without the missing
    one.
    """
    many = sum(map(is_bought, columns))
    return max(2, min(_MOST_LEVELS, MOST_WIDTH // max(many, 1) - 1))


def bought_levels(
    columns: Sequence[Column],
    tables: Sequence[Tensor],
    *,
    people: float,
    noise: float,
) -> list[Groups]:
    """The level of each fine cell of each column, by its fine table (the missing one
    last) and a pair's `noise`.
    """
    most = most_levels(columns)
    levels = level_count(people, noise, most)
    groups = []
    # what a level's pairs say together
    least = _THIN * noise * math.sqrt(levels / max(len(columns) - 1, 1))
    for column, table in zip(columns, tables, strict=True):
        if not is_bought(column) or (has_many_bins(column) and column.levels <= levels):
            groups.append(np.arange(len(table), dtype=np.int32))
            continue
        held = table[: len(table) - column.nullable]
        if is_tree(column):
            # far below zero may be a tail
            below = isinstance(column, Integer | Real) and column.low < 0
            own = _with_thin_ends(
                merged_neighbours(held, levels),
                held.double().numpy(),
                least,
                most,
                below,
            )
        else:
            own = merged_rare(held, noise, most)
        groups.append(
            np.append(own, own.max() + 1).astype(np.int32) if column.nullable else own
        )
    return groups


def is_worth_buying(columns: Sequence[Column], share: float) -> bool:
    """Whether fine tables are, at this share of the budget: always where levels have to
    be chosen, and else where pairs have fewer cells by more than that share, if columns
    with many bins are cut to a few levels.
    """
    chosen, many = (list(map(test, columns)) for test in (is_bought, has_many_bins))
    if not share or chosen != many:
        return share > 0
    sizes = np.array([column.size for column in columns])
    fewer = np.where(many, _FEW, sizes)
    before, after = (each.sum() ** 2 - (each**2).sum() for each in (sizes, fewer))
    return bool(after < (1 - share) * before)


def most_bins(columns: Sequence[Column]) -> int:
    """The most declared bins of a column, where levels are chosen of these alone; else
    0.
    """
    chosen = [column for column in columns if is_bought(column)]
    return (
        max((column.levels for column in chosen), default=0)
        if all(map(has_many_bins, chosen))
        else 0
    )


def level_count(people: float, noise: float, most: int = _MOST_LEVELS) -> int:
    """L: how many levels an ordered column is cut into."""
    if not noise > 0:
        return most
    return int(min(max(2.0, math.sqrt(max(people, 1.0) / noise)), most))


def merged_neighbours(table: Tensor, levels: int) -> Groups:
    """At most so many levels of the cells of an ordered column: neighbours together,
    spikes alone.
    """
    weights = table.double().numpy()
    share = max(float(weights.sum()), 1.0) / levels
    spike = weights >= share
    # A spike ends what is before it and begins what is after it; between spikes a level
    # ends when it is full.
    run = (
        np.cumsum(spike | np.roll(spike, 1))
        if len(weights) > 1
        else np.zeros(1, dtype=np.int64)
    )
    starts = np.flatnonzero(np.diff(run, prepend=run[0] - 1))
    before = np.concatenate([[0.0], np.cumsum(weights)])[starts]
    inside = (
        np.cumsum(weights)
        - before[np.searchsorted(starts, np.arange(len(weights)), side="right") - 1]
    )
    turn = np.where(spike, 0, np.floor((inside - weights / 2) / share))
    both = np.stack([run, turn.clip(min=0)])
    change = (np.diff(both, axis=1, prepend=both[:, :1]) != 0).any(axis=0)
    return _without_small(np.cumsum(change), weights, share * _SMALL, levels)


def _with_thin_ends(
    groups: Groups,
    weights: NDArray[np.float64],
    least: float,
    most: int,
    below: bool,
) -> Groups:
    """The last level, and the first where a tail is `below`, halved, the outer half
    again, while each holds so many.
    """
    starts = np.diff(groups, prepend=0) > 0
    for side in (1, -1) if below else (1,):
        cells = np.flatnonzero(groups == (groups[-1] if side > 0 else 0))[::side]
        while (
            least > 0 and starts.sum() + 2 <= most and weights[cells].sum() >= 2 * least
        ):
            cut = (
                int(
                    np.searchsorted(np.cumsum(weights[cells]), weights[cells].sum() / 2)
                )
                + 1
            )
            if not weights[cells[cut:]].sum() >= least:
                break
            starts[cells[cut] if side > 0 else cells[cut] + 1] = True
            cells = cells[cut:]
    return np.cumsum(starts, dtype=np.int32)


def _without_small(
    groups: NDArray[np.int64],
    weights: NDArray[np.float64],
    least: float,
    most: int,
) -> Groups:
    """Levels with fewer people, or too many of them, join a neighbour; two are left
    where there are two cells.
    """
    held: list[float] = np.bincount(groups, weights=weights).tolist()
    first: list[int] = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    while len(held) > 2 and (min(held) < least or len(held) > most):
        small = int(np.argmin(held))
        left = small > 0 and (
            small == len(held) - 1 or held[small - 1] <= held[small + 1]
        )
        into = small - 1 if left else small
        held[into : into + 2] = [held[into] + held[into + 1]]
        del first[into + 1]
    if len(held) == 1 and len(weights) > 1:  # all in one cell, by what was released
        first.append(max(1, int(weights.argmax())))
    starts = np.zeros(len(weights), dtype=np.int32)
    starts[first[1:]] = 1
    return np.cumsum(starts, dtype=np.int32)


def merged_rare(table: Tensor, noise: float, most: int) -> Groups:
    """A level for each category with enough people, in the order of the list, and one
    for all others together.
    """
    weights = table.double().numpy()
    if len(weights) <= 2:
        return np.arange(len(weights), dtype=np.int32)
    order = np.argsort(-weights, kind="stable")
    kept = np.zeros(len(weights), dtype=bool)
    kept[order[: most - 1]] = True
    kept &= weights >= _RARE * noise
    kept[order[0]] = True  # two levels at least
    if len(weights) - kept.sum() < 2:
        return np.arange(len(weights), dtype=np.int32)
    groups = np.cumsum(kept).astype(np.int32) - 1
    groups[~kept] = kept.sum()
    return groups


FITTED = 768  # levels of all columns together
_FEWEST = 16  # levels that a column keeps
RAREST = 1e-6  # of a group's people, in a level that nobody seems to have


@dataclass(frozen=True)
class Coarse:
    """The group of every level, and the share of its group's people that it has: both
    (width,).
    """

    sizes: tuple[int, ...]
    all_sizes: tuple[int, ...]
    group: Tensor
    share: Tensor

    @classmethod
    def from_one_way(
        cls,
        ways: Tensor,
        sizes: Sequence[int],
        whole: Collection[int] = (),
        most: int = 0,
    ) -> "Coarse | None":
        """By one-way tables (width,), with `most` levels each; columns in `whole` stay.
        None where all levels do.
        """
        kept = dict.fromkeys(whole, max(sizes))
        most = most or _levels_each(
            [size for column, size in enumerate(sizes) if column not in kept],
            sum(sizes),
        )
        known = torch.where(ways.isfinite(), ways, 0).clamp(min=0).cpu().double()
        parts = torch.split(known, list(sizes))
        groups = []
        first = 0
        for column, own in enumerate(parts):
            limit = kept.get(column, most)
            one = merged_neighbours(own, limit) if len(own) > limit else range(len(own))
            groups.append(torch.as_tensor(one, dtype=torch.int64) + first)
            first = int(groups[-1][-1]) + 1
        if first == sum(sizes):
            return None
        group = torch.cat(groups)
        own = torch.cat(parts)
        own = (
            own
            + RAREST
            * torch.zeros(first, dtype=own.dtype).index_add_(0, group, own)[group]
            + RAREST
        )
        share = (
            own / torch.zeros(first, dtype=own.dtype).index_add_(0, group, own)[group]
        )
        fitted = tuple(int(one[-1] - one[0]) + 1 for one in groups)
        return cls(fitted, tuple(sizes), group.to(ways.device), share.to(ways.device))

    def merged(self, counts: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Counts and the variances of their noise on the fewer levels; infinite where a
        part was not measured.
        """
        column = torch.repeat_interleave(torch.tensor(self.sizes, device=counts.device))
        same = column[:, None] == column

        def summed(matrix: Tensor, within: float) -> Tensor:
            sums = torch.where(same, within, self._summed(self._summed(matrix).T))
            return sums.diagonal_scatter(self._summed(matrix.diagonal()))

        return summed(counts, 0.0), summed(variance, torch.inf)

    def merged_tie(self, tie: Tie) -> Tie:
        """Rules on the fewer levels: a group is allowed as far as its people's levels
        are.
        """
        blocks = blocks_of(self.all_sizes)
        fewer = blocks_of(self.sizes)
        allowed = []
        for column, mask in zip(tie.columns, tie.allowed, strict=True):
            group = self.group[blocks[column]] - fewer[column].start
            share = self.share[blocks[column]]
            sums = mask.new_zeros(len(mask), self.sizes[column])
            allowed.append(sums.index_add_(1, group, mask * share))
        return Tie(tie.columns, tuple(allowed))

    def _summed(self, matrix: Tensor) -> Tensor:
        """Over the levels of each group, along the first dimension."""
        return matrix.new_zeros(sum(self.sizes), *matrix.shape[1:]).index_add_(
            0,
            self.group,
            matrix,
        )

    def parted(self, mixture: "MixtureOfProducts") -> "MixtureOfProducts":
        own = (self.all_sizes, mixture.components, mixture.target, mixture.together)
        full = type(mixture)(*own).to(self.share.device)
        with torch.no_grad():
            full.logits.copy_(mixture.logits[:, self.group] + self.share.log())
            # columns together keep their levels
            if full.effects is not None and mixture.effects is not None:
                two = mixture.effects[mixture.width :]
                full.effects.copy_(torch.cat([mixture.effects[self.group], two]))
        return full.requires_grad_(False)


def fitted_width(sizes: Sequence[int]) -> int:
    most = _levels_each(sizes, sum(sizes))
    return sum(min(size, most) for size in sizes)


def _levels_each(sizes: Sequence[int], width: int) -> int:
    """The most levels that each of these columns may have, so that all columns have no
    more than are fitted.
    """
    room = FITTED - (width - sum(sizes))
    most = max(sizes, default=0)
    while most > _FEWEST and sum(min(size, most) for size in sizes) > room:
        most -= 1
    return max(most, _FEWEST)


# deviations: a count that lies no further above 0 is consistent with nobody
_NONE = 2.0
# that of all columns of a table one is drawn as "yes" or "no" by noise alone
_CHANCE = 0.02
# columns with and without such people, besides those of the table: before anything was
# counted
_FEW_COLUMNS = 0.5, 1.0


def all_that_was_counted(
    gram: Tensor,
    noise: Tensor,
    sizes: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """The people of each level by its one-way table and by the sums of its pairs, and
    the deviation of that mean.

    `noise` (width, width) is infinite where nothing was released.
    """
    columns = (
        torch.nn.functional.one_hot(torch.repeat_interleave(torch.tensor(sizes)))
        .double()
        .to(gram.device)
    )
    variance = noise.double().square()
    heard = variance.isfinite()
    sums, spread = (
        torch.where(heard, cells, 0) @ columns for cells in (gram.double(), variance)
    )
    # pairs that were released
    whole = (heard.double() @ columns == columns.sum(0)) & (columns == 0)
    weight = torch.where(whole, 1 / spread.clamp(min=1e-9), 0)
    own = 1 / variance.diagonal().clamp(min=1e-9)
    total = own + weight.sum(1)
    return (own * gram.diagonal() + (weight * sums).sum(1)) / total, total.rsqrt()


def likely_nobody(counts: Tensor, deviations: Tensor, people: float) -> Tensor:
    """Of one level of each column, whether that nobody has it is likelier than that
    some do: (columns,).

    A count is N(m, σ²) with m = 0, or log m even between one person and all of them.
    The share of columns with m > 0 is the one under which all counts are likeliest.
    """
    places = torch.linspace(0, math.log(max(people, 2.0)), 128, dtype=torch.float64)
    sigma = deviations.double().clamp(min=0.5)[:, None]
    count = counts.double()[:, None]
    some = (-((count - places.exp()) ** 2) / (2 * sigma**2)).logsumexp(1) - math.log(
        len(places)
    )
    none = -(count[:, 0] ** 2) / (2 * sigma[:, 0] ** 2)
    with_some, without = _FEW_COLUMNS
    odds = some - none
    share = torch.tensor(0.5, dtype=torch.float64)
    for _ in range(12):  # expectation and maximisation
        likely = torch.sigmoid(odds + torch.logit(share))
        share = (likely.sum() + with_some) / (len(odds) + with_some + without)
    return odds + torch.logit(share) <= 0


def levels_of_none(
    schema: Schema,
    sizes: Sequence[int],
    counts: Tensor,
    deviations: Tensor,
) -> list[list[int]]:
    """Of each column the levels with nobody: missing, "(other)", and where the schema
    was bought, "yes" or "no", and whole numbers beyond the first and the last that were
    seen. `counts` and `deviations` are (width,).
    """
    found = []
    start = 0
    bought = was_bought(schema)
    surely = max(_NONE, NormalDist().inv_cdf(1 - _CHANCE / (2 * len(sizes))))
    last = torch.tensor(sizes).cumsum(0)
    unlike = dict[int, bool]()
    for places in (_missing_levels(schema, last), _other_levels(schema, sizes, last)):
        if places:
            at = torch.tensor(list(places.values()))
            people = float(counts.clamp(min=0).sum()) / len(sizes)
            empty = likely_nobody(counts[at].cpu(), deviations[at].cpu(), people)
            unlike |= dict(zip(at.tolist(), empty.tolist(), strict=True))
    for column, size in zip(schema.columns, sizes, strict=True):
        count = counts[start : start + size]
        sigma = deviations[start : start + size]
        none = (count <= _NONE * sigma).tolist()
        single = size == column.size  # a level each: none was merged
        nobody = (count <= surely * sigma).tolist()
        levels = [level for level in range(size) if unlike.get(start + level, False)]
        if bought and isinstance(column, Boolean):
            levels += [level for level in range(column.levels) if nobody[level]]
        if single and bought and isinstance(column, Integer):
            seen = [level for level in range(column.levels) if not none[level]]
            if seen:
                levels += [
                    level
                    for level in range(column.levels)
                    if not seen[0] <= level <= seen[-1]
                ]
        rest = [level for level in range(size) if level not in levels]
        found.append(levels if any(not none[level] for level in rest) else [])
        start += size
    return found


def _missing_levels(schema: Schema, last: Tensor) -> dict[str, int]:
    """Where those without a value stand in a row of all levels, by column."""
    every = zip(schema.columns, last.tolist(), strict=True)
    return {column.name: end - 1 for column, end in every if column.nullable}


def _other_levels(schema: Schema, sizes: Sequence[int], last: Tensor) -> dict[str, int]:
    """Where "(other)" stands, of columns whose levels were not merged."""
    found = {}
    for column, size, end in zip(schema.columns, sizes, last.tolist(), strict=True):
        if (
            size == column.size
            and isinstance(column, Categorical)
            and OTHER in column.categories
        ):
            found[column.name] = end - size + column.categories.index(OTHER)
    return found


@torch.no_grad()
def never_drawn(
    network: "MixtureOfProducts",
    levels: Sequence[Sequence[int]],
) -> "MixtureOfProducts":
    """The same mixture, changed in place, which draws none of these levels of each
    column.
    """
    never = 80.0  # in log-odds, as far below any other level: e⁻⁸⁰ is drawn by nobody
    start = 0
    for column, (size, none) in enumerate(zip(network.sizes, levels, strict=True)):
        if none:
            block = network.logits[:, start : start + size]
            block[:, list(none)] = block.max(1, keepdim=True).values - never
            if column == network.target and network.effects is not None:
                network.effects[:, list(none)] -= never
        start += size
    return network
