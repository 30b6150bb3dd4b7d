"""A mixture over the union of two holders' people, of whom each holder has a part.

What is measured (`protocols.gram.stages`): tables within a holder over all of its own
people, tables across over people at both, and the one-way tables among people at both
with their number. Two steps make one law of it:

- *People at both* (`among_both`). Which share of a level's people is at both varies
  about that of all by τ², of each column the likeliest (empirical Bayes: Efron and
  Morris, JASA 1973): at τ² = 0 the holder's own one-way tables measure those among
  people at both as well, and better. A table within a holder is scaled to these, cell
  by cell, by iterative proportional fitting (Deming, Stephan 1940): F(i, j) = u(i)·v(j)
  on a smoothed law, applied to the noisy counts. Their noise is scaled by F's mean
  square, since `priors` smooths a column only if its tables have one noise each; who of
  a cell's people is at both, as if by chance, adds to it. So the matrix that comes out
  is about people at both throughout, and a mixture is fitted to it as to that of an
  intersection (`fit_gram`). Tables of a holder with many more people than are shared
  have less noise there than an intersection's.
- *People at one holder* (`united`). What their holder's one-way tables have beyond
  those of people at both is theirs. The mixture's products are tilted to these, level
  by level: p_k(i)·m(i), with a component's weight, by iterative proportional fitting
  again.

The mixture of the union has components of people at both, of people at the first holder
and of people at the second, as many as there are people. Columns of a holder that does
not have the person have their level of no value, and a column `at_HOLDER` for each
holder says whether it has.

Assumes that, given its one-way tables, being at both holders does not depend on two
columns of a holder together: P(at both | x) is a product over x's levels. Where it does
depend on them, tables within a holder among people at both are off by that, whatever ε.
Guarantee: reads released numbers alone.
Edges: nobody at both, or nobody at one holder alone, as far as noise shows → a single
person, or no component.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from understudy.data.column import Boolean
from understudy.data.encoding.codec import Levels
from understudy.data.schema import Schema
from understudy.models.simplex import to_simplex
from understudy.models.tables.absent_levels import NEVER
from understudy.models.tables.given_rules import TINY, blocks_of
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import NoisyMarginals, one_way, read_tables
from understudy.models.tables.priors import with_margins

# of what independent columns would give: so much a smoothed law has in each cell, and
# no cell is scaled by less of the mean factor, as noise alone may say that nobody is
# there
_LEAST_SHARE = 1e-3
# of proportional fitting: margins are met to a thousandth by then
_TURNS = 40
# of the union, whose components are those of people at both and as many again for each
# person at one holder alone: with a hundred columns of 16 levels they take 50 MB
MOST_COMPONENTS = 1 << 13


def presence_name(holder: str) -> str:
    """What the column is called that says whether this holder has a person."""
    return f"at_{holder}"


@dataclass(frozen=True)
class Present:
    """How many people are at both holders, and at each; and one-way tables in shares:
    among people at both, (width,), and each holder's own.
    """

    both: float
    own: tuple[float, float]
    ways: Tensor
    own_ways: tuple[Tensor, Tensor]

    @property
    def alone(self) -> tuple[float, float]:
        """How many people each holder has alone."""
        first, second = self.own
        return max(0.0, first - self.both), max(0.0, second - self.both)

    @property
    def people(self) -> float:
        """How many any holder has."""
        return self.both + sum(self.alone)


@dataclass(frozen=True)
class AmongBoth:
    """The Gram matrix of people at both, and the deviation of its noise."""

    gram: Tensor
    noise: Tensor
    present: Present
    triples: list[Triple]


def among_both(
    gram: Tensor,
    noise: Tensor,
    sizes: Sequence[Sequence[int]],
    both: Tensor,
    both_noise: float,
    triples: Sequence[Triple] = (),
) -> AmongBoth:
    """The matrix `gram` (width, width), within a holder over its own people, as one of
    people at both. `sizes`: the levels of each holder's columns; `both` (width + 1,):
    the one-way tables among people at both, and their number; noise is infinite where
    nothing was measured.
    """
    flat = [*sizes[0], *sizes[1]]
    behind = sum(sizes[0])
    groups = (slice(0, behind), slice(behind, sum(flat)))
    gram = gram.double()
    noise = noise.double()
    n_both, ways, ways_variance = _one_way_of_both(
        gram,
        noise,
        flat,
        groups,
        both,
        both_noise,
    )
    made = gram.clone()
    deviation = noise.clone()
    holders = []
    for own, own_sizes in zip(groups, sizes, strict=True):
        cells = own, own
        holder = read_tables(gram[cells], own_sizes, noise=noise[cells])
        ways[own], ways_variance[own] = _with_own_people(
            holder,
            n_both,
            ways[own],
            ways_variance[own],
            own_sizes,
        )
        factor, spread = _raked(holder, n_both, ways[own], noise[cells])
        made[cells] = gram[cells] * factor
        deviation[cells] = spread
        holders.append(holder)
    made.diagonal().copy_(ways)
    deviation.diagonal().copy_(ways_variance.sqrt())

    first, second = holders
    present = Present(
        both=n_both,
        own=(max(first.people, n_both), max(second.people, n_both)),
        ways=ways / n_both,
        own_ways=(first.ways, second.ways),
    )
    scaled = [_triple_among_both(one, flat, behind, present) for one in triples]
    return AmongBoth(made, deviation, present, scaled)


def _one_way_of_both(
    gram: Tensor,
    noise: Tensor,
    sizes: Sequence[int],
    groups: Sequence[slice],
    both: Tensor,
    both_noise: float,
) -> tuple[float, Tensor, Tensor]:
    """How many people are at both holders, their one-way tables (width,) and the
    variances of these: by what was counted of them, and by all tables across.
    """
    across = noise.clone()
    for own in groups:
        across[own, own] = torch.inf
    across.fill_diagonal_(both_noise)
    # their number as one more column, of a single level
    counted = torch.zeros(len(both), len(both), dtype=torch.float64)
    counted[:-1, :-1] = gram
    counted.diagonal().copy_(both)
    spread = torch.full_like(counted, torch.inf)
    spread[:-1, :-1] = across
    spread[-1, -1] = both_noise
    people, ways, variance = one_way(counted, [*sizes, 1], spread)
    return people, ways[:-1].clone(), variance[:-1].clone()


def _with_own_people(
    holder: NoisyMarginals,
    n_both: float,
    ways: Tensor,
    variance: Tensor,
    sizes: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """A holder's one-way tables among people at both, in counts, and the variance of
    their noise: from `ways`, of these people, and from what its own people say if all
    levels of a column are shared alike. How far they are not, τ², is the likeliest by
    the gaps between the two.
    """
    columns = holder.columns
    alike = holder.ways * n_both
    share = min(1.0, n_both / holder.people)
    # who of a level's people is at both, as if drawn
    drawn = alike * (1 - share) * (1 - holder.ways)
    alike_variance = n_both**2 / holder.ways_precision + drawn
    squares = alike.square()
    gaps = (ways - alike).square()
    noise = variance + alike_variance
    moment = ((gaps - noise) * squares) @ columns
    moment = (moment / (squares.square() @ columns).clamp(min=TINY)).clamp(min=0)
    departure = torch.zeros_like(moment)
    likeliest = torch.full_like(moment, -torch.inf)
    for multiple in (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0):  # as `priors._likeliest`
        total = (columns @ (multiple * moment) * squares + noise).clamp(min=TINY)
        likelihood = -(total.log() + gaps / total) @ columns
        better = likelihood > likeliest
        departure = torch.where(better, multiple * moment, departure)
        likeliest = torch.maximum(likelihood, likeliest)

    first = variance.clamp(min=TINY)
    second = (alike_variance + columns @ departure * squares).clamp(min=TINY)
    weight = second / (first + second)
    mean = weight * ways + (1 - weight) * alike
    total_people = mean.new_tensor([n_both])
    whole = [
        to_simplex(mean[block][None], total_people)[0] for block in blocks_of(sizes)
    ]
    return torch.cat(whole), first * weight


def _raked(
    holder: NoisyMarginals,
    n_both: float,
    ways: Tensor,
    noise: Tensor,
) -> tuple[Tensor, Tensor]:
    """What a holder's cells are multiplied by so that they have the one-way tables
    `ways` among people at both, and the deviation of their `noise` then.
    """
    columns = holder.columns
    beside = 1 - columns @ columns.T
    independent = torch.outer(holder.ways, holder.ways)
    estimated = holder.plain(holder.target)
    law = torch.where(estimated > 0, estimated, 0)
    law = law + _LEAST_SHARE * independent
    law = with_margins(law * beside, holder.ways[:, None], columns, _TURNS)
    law = law * holder.people
    raked = with_margins(law, ways[:, None], columns, _TURNS)
    share = min(1.0, n_both / holder.people)
    factor = (raked / law.clamp(min=TINY)).clamp(_LEAST_SHARE * share, 1.0)
    is_pair = (beside > 0) & noise.isfinite()
    factor = torch.where(is_pair, factor, 1.0)
    # who of a cell's people is at both, as if drawn
    variance = (noise * factor).square() + raked * (1 - share)
    deviation = _table_means(torch.where(is_pair, variance, 0.0), columns).sqrt()
    return factor, torch.where(is_pair, deviation, torch.inf)


def _table_means(cells: Tensor, columns: Tensor) -> Tensor:
    """Each cell as the mean of its table."""
    sizes = columns.sum(0)
    means = columns.T @ cells @ columns / torch.outer(sizes, sizes)
    return columns @ means @ columns.T


def _triple_among_both(
    triple: Triple,
    sizes: Sequence[int],
    behind: int,
    present: Present,
) -> Triple:
    """A three-way table within a holder as one of people at both; others are that
    already.
    """
    starts = [*accumulate(sizes, initial=0)]
    groups = {int(starts[column] >= behind) for column in triple.columns}
    if len(groups) > 1:
        return triple
    group = groups.pop()
    margins = [
        present.ways[starts[column] : starts[column + 1]] for column in triple.columns
    ]
    counts = triple.table.double()
    law = counts.clamp(min=0)
    somebody = law.mean().clamp(min=TINY)
    law = (law + _LEAST_SHARE * somebody) / law.sum().clamp(min=1)
    raked = law.clone()
    for _ in range(_TURNS):
        for axis, margin in enumerate(margins):
            others = tuple(other for other in range(3) if other != axis)
            shape = [1, 1, 1]
            shape[axis] = -1
            found = raked.sum(others).clamp(min=TINY)
            raked = raked * (margin / found).reshape(shape)
    share = present.both / present.own[group]
    factor = raked / law * share
    factor = factor.clamp(_LEAST_SHARE * share, 1.0)
    root_mean_square = float(factor.square().mean().sqrt())
    return Triple(
        columns=triple.columns,
        table=counts * factor,
        noise=triple.noise * root_mean_square,
    )


def tilted(odds: Tensor, sizes: Sequence[int], ways: Tensor) -> tuple[Tensor, Tensor]:
    """The products `odds` (components, width) with m(i) on each level, such that all
    together have these one-way tables in shares: the components' weights, which add up
    to 1, and their odds.
    Edges: a level that no component has stays at 0.
    """
    blocks = blocks_of(sizes)
    factors = torch.ones_like(ways)
    norms = torch.ones(len(odds), len(sizes), dtype=odds.dtype)
    for _ in range(_TURNS):
        for number, block in enumerate(blocks):
            weights = _weights_of(norms)
            table = odds[:, block] * factors[block]
            table = table / norms[:, [number]].clamp(min=TINY)
            law = weights @ table
            factors[block] *= ways[block] / law.clamp(min=TINY)
            norms[:, number] = odds[:, block] @ factors[block]
    made = odds * factors
    for number, block in enumerate(blocks):
        made[:, block] /= norms[:, [number]].clamp(min=TINY)
    return _weights_of(norms), made


def _weights_of(norms: Tensor) -> Tensor:
    """Components' weights, in proportion to the product of their columns' norms."""
    log_norms = norms.clamp(min=TINY).log()
    return torch.softmax(log_norms.sum(1), 0)


def united(
    mixture: MixtureOfProducts,
    present: Present,
    schema: Schema,
    holders: Sequence[tuple[str, int]],
) -> tuple[MixtureOfProducts, Schema]:
    """The mixture of the union from that of people at both, and its schema. `holders`:
    what each of the two is called, and how many columns it has; `schema`: of all of
    them side by side.
    """
    n_first = holders[0][1]
    counts = _components(mixture.components, present)
    rows = _rows_of_union(mixture, present, n_first, counts)
    nullable = [column.nullable for column in schema.columns]
    of_group = [0] * n_first + [1] * (len(nullable) - n_first)
    sizes = [
        size if has_none else size + 1
        for size, has_none in zip(mixture.sizes, nullable, strict=True)
    ]
    made = MixtureOfProducts(
        [*sizes, 2, 2],
        sum(counts),
        mixture.target,
        mixture.together,
    )
    logits = _logits_of_union(
        mixture.sizes,
        made.sizes,
        rows,
        counts,
        of_group,
    )
    state = {"logits": logits.float()}
    if mixture.effects is not None and mixture.target is not None:
        both = rows[: counts[0]]
        target_group = of_group[mixture.target]
        state["effects"] = _effects(
            mixture,
            made,
            both,
            nullable,
            target_group,
        )
    made.load_state_dict(state)
    presence = [Boolean(name=presence_name(holder)) for holder, _ in holders]
    columns = [replace(column, nullable=True) for column in schema.columns]
    united_schema = replace(schema, columns=(*columns, *presence))
    return made.requires_grad_(False), united_schema


def _rows_of_union(
    mixture: MixtureOfProducts,
    present: Present,
    n_first: int,
    counts: Sequence[int],
) -> Tensor:
    """The odds of all components, 0 in the columns of a holder that does not have
    them: of people at both, at the first holder alone, and at the second, so many each
    as `counts` says.
    """
    odds = mixture.odds().detach().cpu().double()
    sizes = (mixture.sizes[:n_first], mixture.sizes[n_first:])
    behind = sum(sizes[0])
    groups = (slice(0, behind), slice(behind, mixture.width))
    alike = torch.ones(len(odds))
    parts = [odds[_evenly(alike, counts[0])]]
    for number, (group, own_sizes) in enumerate(zip(groups, sizes, strict=True)):
        people = present.alone[number]
        at_holder = present.own[number] * present.own_ways[number]
        alone = at_holder - present.both * present.ways[group]
        total = alone.new_tensor([people])
        tables = [
            to_simplex(alone[block][None], total)[0] for block in blocks_of(own_sizes)
        ]
        ways = torch.cat(tables) / max(people, TINY)
        weights, own = tilted(odds[:, group], own_sizes, ways)
        pick = _evenly(weights, counts[1 + number])
        part = torch.zeros(len(pick), mixture.width, dtype=torch.float64)
        part[:, group] = own[pick]
        parts.append(part)
    return torch.cat(parts)


def _logits_of_union(
    old_sizes: Sequence[int],
    new_sizes: Sequence[int],
    rows: Tensor,
    counts: Sequence[int],
    of_group: Sequence[int],
) -> Tensor:
    """Those odds as logits, with no value in a column where its holder lacks the
    person, and presence in the last two columns.
    """
    logits = torch.full((len(rows), sum(new_sizes)), -NEVER, dtype=torch.float64)
    kinds = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    at_first = kinds != 2
    at_second = kinds != 1
    presence = (at_first, at_second)
    old_blocks = blocks_of(old_sizes)
    new_blocks = blocks_of(new_sizes)
    for column, block in enumerate(old_blocks):
        at = presence[of_group[column]]
        odds = rows[at][:, block].clamp(min=TINY)
        own = odds.log().clamp(min=-NEVER)
        begin = new_blocks[column].start
        logits[at, begin : begin + own.shape[1]] = own
        no_value = new_blocks[column].stop - 1
        logits[~at, no_value] = 0.0
    every = torch.arange(len(rows))
    for block, at in zip(new_blocks[len(old_blocks) :], presence, strict=True):
        logits[every, block.start + at.long()] = 0.0
    return logits


def _components(components: int, present: Present) -> list[int]:
    """How many components people at both, and at one holder alone, have."""
    people = torch.tensor([present.both, *present.alone], dtype=torch.float64)
    each = components * people / present.both
    each = each * min(1.0, MOST_COMPONENTS / float(each.sum()))
    both, *alone = (int(one) for one in each.round())
    return [max(1, both), *alone]


def _evenly(weights: Tensor, count: int) -> Tensor:
    """So many components, each as often as its weight says, but for one."""
    cumulated = weights.double().cumsum(0)
    middles = (torch.arange(count) + 0.5) / max(count, 1)
    picked = torch.searchsorted(cumulated, middles * cumulated[-1])
    return picked.clamp(max=len(cumulated) - 1)


def _effects(
    mixture: MixtureOfProducts,
    made: MixtureOfProducts,
    both: Tensor,
    nullable: Sequence[bool],
    target_group: int,
) -> Tensor:
    """What the columns' levels say of the target in the union: of a column that the
    other holder lacks the mean over its levels; without the target's holder no value.
    """
    assert mixture.effects is not None
    assert mixture.target is not None
    assert made.effects is not None
    target = mixture.target
    size = mixture.sizes[target]
    old_effects = mixture.effects.detach().cpu().double()
    ways = both.mean(0)
    effects = torch.zeros(made.effects.shape, dtype=torch.float64)
    old_blocks = blocks_of(mixture.sizes)
    new_blocks = blocks_of(made.sizes)
    for old, new in zip(old_blocks, new_blocks, strict=False):
        levels = old.stop - old.start
        own = old_effects[old]
        effects[new.start : new.start + levels, :size] = own
        if new.stop - new.start > levels:
            effects[new.stop - 1, :size] = ways[old] @ own

    old_start = mixture.width
    new_start = made.width
    for one, other in mixture.together:
        old_shape = (mixture.sizes[one], mixture.sizes[other])
        new_shape = (made.sizes[one], made.sizes[other])
        old_stop = old_start + math.prod(old_shape)
        new_stop = new_start + math.prod(new_shape)
        own = old_effects[old_start:old_stop].reshape(*old_shape, -1)
        table = torch.zeros(*new_shape, made.sizes[target], dtype=torch.float64)
        table[: old_shape[0], : old_shape[1], :size] = own
        effects[new_start:new_stop] = table.flatten(0, 1)
        old_start = old_stop
        new_start = new_stop

    presence = new_blocks[len(old_blocks) + target_group]
    absent = presence.start
    effects[absent, -1] = 4 * NEVER
    if not nullable[target]:
        effects[absent + 1, -1] = -4 * NEVER
    return effects.float()


def united_levels(
    levels: Levels,
    schema: Schema,
    present: Present,
    columns: int,
) -> Levels:
    """Levels that were bought, with one of no value in every column, and presence.
    `columns`: how many the first holder has.
    """
    groups = []
    weights = []
    first, second = present.alone
    each = zip(levels.schema.columns, levels.groups, levels.weights, strict=True)
    for number, (column, group, weight) in enumerate(each):
        lacking = second if number < columns else first
        if column.nullable:
            people = np.append(weight[:-1], weight[-1] + lacking)
        else:
            group = np.append(group, group.max() + 1).astype(np.int32)
            people = np.append(weight, lacking)
        groups.append(group)
        weights.append(people)
    for lacking in (second, first):
        groups.append(np.arange(2, dtype=np.int32))
        weights.append(np.array([lacking, present.people - lacking]))
    ends = dict(levels.ends)
    spikes = dict(levels.spikes)
    return Levels(
        schema,
        groups,
        weights,
        ends,
        spikes,
        dict(levels.inner),
    )
