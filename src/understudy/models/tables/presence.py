"""A mixture over the union of two holders' people, of whom each holder has a part.

What is measured (`protocols.gram.stages`): tables within a holder over all of its own
people, tables across over people at both, and the one-way tables among people at both
with their number. Two steps make one law of it:

- *People at both* (`among_both`). A table within a holder is scaled, cell by cell, to
  the one-way tables among people at both, by iterative proportional fitting (Deming,
  Stephan 1940): F(i, j) = u(i)·v(j) on a smoothed law, applied to the noisy counts and
  to their noise. So the matrix that comes out is about people at both throughout, and a
  mixture is fitted to it as to that of an intersection (`fit_gram`). Tables of a holder
  with many more people than are shared have less noise there than an intersection's.
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
from understudy.models.tables.given_rules import TINY, blocks_of
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import one_way, read_tables
from understudy.models.tables.priors import with_margins

# of the people at both: more in a cell than its holder has are noise, and so is nobody
_LEAST_SHARE = 1e-3
_TURNS = 40  # of proportional fitting: margins are met to a thousandth by then
MOST_COMPONENTS = 1 << 13  # of the union: a hundred columns then take some 50 MB
_NEVER = 80.0  # in log-odds, as `merged_levels.never_drawn`


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
    n_both, ways, ways_variance = one_way(counted, [*flat, 1], spread)
    ways = ways[:-1]
    relative = ways_variance[:-1].clamp(min=0) / ways.clamp(min=1).square()
    made = gram.clone()
    loud = noise.clone()
    people = []
    own_ways = []
    factors = torch.ones_like(gram)
    for own, own_sizes in zip(groups, sizes, strict=True):
        read = read_tables(gram[own, own], own_sizes, noise=noise[own, own])
        people.append(read.people)
        own_ways.append(read.ways)
        columns = read.columns
        beside = 1 - columns @ columns.T
        independent = torch.outer(read.ways, read.ways)
        seen = read.plain(read.target)
        law = torch.where(seen > 0, seen, 0) + _LEAST_SHARE * independent
        law = with_margins(law * beside, read.ways[:, None], columns, _TURNS)
        law = law * read.people
        raked = with_margins(law, ways[own][:, None], columns, _TURNS)
        share = n_both / read.people
        factor = (raked / law.clamp(min=TINY)).clamp(_LEAST_SHARE * share, 1.0)
        factor = torch.where(beside > 0, factor, 1.0)
        factors[own, own] = factor
        margins = (relative[own][:, None] + relative[own][None, :]) * raked.square()
        variance = (noise[own, own] * factor).square() + margins
        made[own, own] = gram[own, own] * factor
        loud[own, own] = torch.where(beside > 0, variance.sqrt(), torch.inf)
    made.diagonal().copy_(both[:-1])
    loud.fill_diagonal_(both_noise)
    first, second = people
    present = Present(
        both=n_both,
        own=(max(first, n_both), max(second, n_both)),
        ways=ways / n_both,
        own_ways=(own_ways[0], own_ways[1]),
    )
    scaled = [_triple_among_both(one, flat, behind, present) for one in triples]
    return AmongBoth(made, loud, present, scaled)


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
    blocks = [slice(starts[c], starts[c + 1]) for c in triple.columns]
    group = groups.pop()
    law = triple.table.double().clamp(min=0)
    law = (law + _LEAST_SHARE * law.mean().clamp(min=TINY)) / law.sum().clamp(min=1)
    raked = law.clone()
    for _ in range(_TURNS):
        for axis, block in enumerate(blocks):
            others = tuple(a for a in range(3) if a != axis)
            shape = [-1 if a == axis else 1 for a in range(3)]
            margin = raked.sum(others).clamp(min=TINY)
            raked = raked * (present.ways[block] / margin).reshape(shape)
    share = present.both / present.own[group]
    factor = (raked / law * share).clamp(_LEAST_SHARE * share, 1.0)
    return Triple(
        columns=triple.columns,
        table=triple.table.double() * factor,
        noise=triple.noise * float(factor.square().mean().sqrt()),
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
            weights = torch.softmax(norms.clamp(min=TINY).log().sum(1), 0)
            table = odds[:, block] * factors[block]
            table = table / norms[:, [number]].clamp(min=TINY)
            law = weights @ table
            factors[block] *= ways[block] / law.clamp(min=TINY)
            norms[:, number] = odds[:, block] @ factors[block]
    weights = torch.softmax(norms.clamp(min=TINY).log().sum(1), 0)
    made = odds * factors
    for number, block in enumerate(blocks):
        made[:, block] /= norms[:, [number]].clamp(min=TINY)
    return weights, made


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
    odds = mixture.odds().detach().cpu().double()
    n_first = holders[0][1]
    behind = sum(mixture.sizes[:n_first])
    sizes = (mixture.sizes[:n_first], mixture.sizes[n_first:])
    groups = (slice(0, behind), slice(behind, mixture.width))
    counts = _components(mixture.components, present)
    parts = [odds[_evenly(torch.ones(len(odds)), counts[0])]]
    for group, own_sizes, number in zip(groups, sizes, (0, 1), strict=True):
        people = present.alone[number]
        left = present.own[number] * present.own_ways[number]
        left = left - present.both * present.ways[group]
        total = left.new_tensor([people])
        ways = torch.cat(
            [to_simplex(left[b][None], total)[0] for b in blocks_of(own_sizes)]
        )
        weights, own = tilted(odds[:, group], own_sizes, ways / max(people, TINY))
        pick = _evenly(weights, counts[1 + number])
        alone = torch.zeros(len(pick), mixture.width, dtype=torch.float64)
        alone[:, group] = own[pick]
        parts.append(alone)
    nullable = [column.nullable for column in schema.columns]
    made = MixtureOfProducts(
        [size + (not has) for size, has in zip(mixture.sizes, nullable, strict=True)]
        + [2, 2],
        sum(counts),
        mixture.target,
        mixture.together,
    )
    of_group = [0] * n_first + [1] * (len(nullable) - n_first)
    logits = torch.full((sum(counts), made.width), -_NEVER, dtype=torch.float64)
    rows = torch.cat(parts)
    kinds = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    there = (kinds != 2, kinds != 1)  # at the first, at the second
    old, new = blocks_of(mixture.sizes), blocks_of(made.sizes)
    for column, block in enumerate(old):
        at = there[of_group[column]]
        begin = new[column].start
        own = rows[at][:, block].clamp(min=TINY).log().clamp(min=-_NEVER)
        logits[at, begin : begin + own.shape[1]] = own
        logits[~at, new[column].stop - 1] = 0.0
    for number, at in enumerate(there):
        block = new[len(old) + number]
        logits[:, block] = -_NEVER
        logits[torch.arange(len(at)), block.start + at.long()] = 0.0
    state = {"logits": logits.float()}
    if mixture.effects is not None and mixture.target is not None:
        state["effects"] = _effects(
            mixture,
            made,
            rows[: counts[0]],
            nullable,
            of_group[mixture.target],
        )
    made.load_state_dict(state)
    names = [Boolean(name=presence_name(holder)) for holder, _ in holders]
    columns = tuple(replace(column, nullable=True) for column in schema.columns)
    return made.requires_grad_(False), replace(schema, columns=(*columns, *names))


def _components(components: int, present: Present) -> list[int]:
    """How many components people at both, and at one holder alone, have."""
    people = torch.tensor([present.both, *present.alone], dtype=torch.float64)
    each = components * people / present.both
    each = each * min(1.0, MOST_COMPONENTS / float(each.sum()))
    counts = [int(one) for one in each.round()]
    return [max(1, counts[0]), *counts[1:]]


def _evenly(weights: Tensor, count: int) -> Tensor:
    """So many components, each as often as its weight says, but for one."""
    heap = weights.double().cumsum(0)
    places = (torch.arange(count) + 0.5) / max(count, 1) * heap[-1]
    return torch.searchsorted(heap, places).clamp(max=len(heap) - 1)


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
    old, new = blocks_of(mixture.sizes), blocks_of(made.sizes)
    for before, after in zip(old, new, strict=False):
        levels = before.stop - before.start
        own = old_effects[before]
        effects[after.start : after.start + levels, :size] = own
        if after.stop - after.start > levels:
            effects[after.stop - 1, :size] = ways[before] @ own
    first_old, first_new = mixture.width, made.width
    for a, b in mixture.together:
        shape, wide = (
            (mixture.sizes[a], mixture.sizes[b]),
            (made.sizes[a], made.sizes[b]),
        )
        own = old_effects[first_old : first_old + shape[0] * shape[1]]
        table = torch.zeros(*wide, made.sizes[target], dtype=torch.float64)
        table[: shape[0], : shape[1], :size] = own.reshape(*shape, -1)
        effects[first_new : first_new + wide[0] * wide[1]] = table.reshape(
            wide[0] * wide[1],
            -1,
        )
        first_old += shape[0] * shape[1]
        first_new += wide[0] * wide[1]
    no, yes = (new[len(old) + target_group].start + level for level in (0, 1))
    effects[no, -1] = 4 * _NEVER
    if not nullable[target]:
        effects[yes, -1] = -4 * _NEVER
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
    for number, (column, group, weight) in enumerate(
        zip(levels.schema.columns, levels.groups, levels.weights, strict=True)
    ):
        lacking = second if number < columns else first
        if column.nullable:
            groups.append(group)
            weights.append(np.append(weight[:-1], weight[-1] + lacking))
        else:
            groups.append(np.append(group, group.max() + 1).astype(np.int32))
            weights.append(np.append(weight, lacking))
    for lacking in (second, first):
        groups.append(np.arange(2, dtype=np.int32))
        weights.append(np.array([lacking, present.people - lacking]))
    return Levels(schema, groups, weights, dict(levels.ends), dict(levels.spikes))
