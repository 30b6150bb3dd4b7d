"""Levels that noise alone explains: they are taken out of what is drawn.

A schema says what may be, not what is: a column may lack values, hold texts that are none of its categories, and where
its bounds were bought, numbers up to a power of two. Each such level was counted under noise, and a fit follows that
noise: one row in twenty without a value, in a column that has all. Where the released count is consistent with nobody,
nobody is drawn there.

Guarantee: reads released counts and the public schema alone, so it is post-processing.
Edges: people who are fewer than the noise can tell are lost with the noise. A column keeps its other levels, and one of
which nothing else was seen stays as it is.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.data.coarsen import OTHER
from understudy.data.column import Categorical, Integer
from understudy.data.schema import Schema, was_bought
from understudy.models.tables.mixture import MixtureOfProducts

_NONE = 2.0  # deviations: a count that lies no further above 0 is consistent with nobody
_NEVER = 80.0  # so much lower are the log-odds of a level that is not drawn


def levels_of_none(
    schema: Schema, sizes: Sequence[int], counts: Tensor, deviations: Tensor
) -> list[list[int]]:
    """Of each column the levels with nobody: missing, "(other)", and beyond the first and the last that were seen.

    `counts` and their `deviations` are (width,). Ends are cut of whole numbers with a level each, where bounds were
    bought; declared bounds are known.
    """
    found, start, bought = [], 0, was_bought(schema)
    for column, size in zip(schema.columns, sizes, strict=True):
        count, sigma = counts[start : start + size], deviations[start : start + size]
        none = (count <= _NONE * sigma).tolist()
        single = size == column.size  # a level each: none was merged
        levels = [size - 1] if column.nullable and none[-1] else []
        if single and isinstance(column, Categorical) and OTHER in column.categories:
            other = column.categories.index(OTHER)
            levels += [other] * none[other]
        if single and bought and isinstance(column, Integer):
            seen = [level for level in range(column.levels) if not none[level]]
            if seen:
                levels += [level for level in range(column.levels) if not seen[0] <= level <= seen[-1]]
        rest = [level for level in range(size) if level not in levels]
        found.append(levels if any(not none[level] for level in rest) else [])
        start += size
    return found


@torch.no_grad()
def never_drawn(network: MixtureOfProducts, levels: Sequence[Sequence[int]]) -> MixtureOfProducts:
    """The same mixture, changed in place, which draws none of these levels of each column."""
    start = 0
    for column, (size, none) in enumerate(zip(network.sizes, levels, strict=True)):
        if none:
            block = network.logits[:, start : start + size]
            block[:, list(none)] = block.max(1, keepdim=True).values - _NEVER
            if column == network.target and network.effects is not None:
                network.effects[:, list(none)] -= _NEVER
        start += size
    return network
