"""What `gram` releases of columns alone, simulated: the bounds, the fine tables and the
levels of one holder's numbers, under noise as in a run, without pairs and without a
fit. It takes a fifth of a second a column.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from understudy.data.encoding.codec import merged
from understudy.data.schema import Schema
from understudy.models.tables.trees import TreesRead, levels_counted, runs_of
from understudy.protocols.gram.layout import Layout


class Noise(NamedTuple):
    """The deviation of a count of the trees, and of one of the pairs."""

    trees: float
    pairs: float


def usual_noise(columns: int) -> Noise:
    """As with nothing declared at ε = 1, δ = 10⁻⁶, for one person with so many
    columns.
    """
    return Noise(17.0 * math.sqrt(columns), 1.5 + 3.5 * columns)


def released(
    frame: pd.DataFrame, schema: Schema, noise: Noise, rng: np.random.Generator
) -> tuple[Layout, TreesRead]:
    """The layout on the bounds that were found, and what trees and pairs say
    together.
    """

    def noisy(counts: torch.Tensor) -> torch.Tensor:
        drawn = rng.normal(0, noise.trees, counts.shape)
        return counts.double() + torch.from_numpy(drawn).round()

    layout = Layout({"one": schema}, fine=0.3)
    tops = layout.tops[0]
    counted = noisy(tops.count(tops.cells(frame)))
    layout = layout.on_runs(runs_of([tops], [counted], [noise.trees], None))
    (trees,) = layout.trees
    sums = noisy(trees.count(trees.cells(frame)))
    first = TreesRead.from_sums([trees], [sums], [noise.trees], None)

    levels = first.levels(layout.joint, noise.pairs)
    codes = merged(trees.cells(frame), levels.groups)
    sizes = zip(codes.T, levels.sizes, strict=True)
    held = [np.bincount(own, minlength=size) for own, size in sizes]
    counts = np.concatenate(held).astype(float)
    # a column's level is the sum of a pair's cells
    deviation = noise.pairs * math.sqrt(np.mean(levels.sizes) / 8)
    counts += rng.normal(0, deviation, len(counts))
    also = levels_counted(
        levels, torch.from_numpy(counts), torch.full((len(counts),), deviation)
    )
    return layout, TreesRead.from_sums([trees], [sums], [noise.trees], None, also)
