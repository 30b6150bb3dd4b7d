"""Rows of other shares: the model's law, weighted so that some columns have shares that
are asked for.

Of all laws with these shares, the one that is nearest to the model (in relative
entropy) multiplies each row's probability by a factor for each of these columns; the
factors are found by going round the columns and scaling each to its shares. Deming,
Stephan, "On a least squares adjustment of a sampled frequency table" (1940); Csiszár,
"I-divergence geometry of probability distributions" (1975) for the convergence.

Edges: a share of what the model (or the condition) holds to be impossible, or shares
that contradict each other → ConfigError, and nothing is drawn.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.completing import known_cells
from understudy.answers.products import Products
from understudy.answers.question import Levels
from understudy.data.conditions import Missing, OneOf, Test
from understudy.data.encoding.values import Pieced, Pieces
from understudy.data.rules import holds
from understudy.ground.errors import ConfigError, Effect

_MOST_ROUNDS = 2_000
_NEAR = 1e-9  # what a share may miss
# of all: shares that contradict each other drive what they cannot have below any bound
_NOTHING = 1e-60

Weights = Mapping[str, Mapping[Any, float]]


@dataclass(frozen=True, eq=False)
class TargetShares:
    """The share that each group of a column's pieces is to have: `group` (pieces,),
    `share` (groups,).
    """

    group: NDArray[np.int64]
    share: NDArray[np.float64]

    def missed(self, mass: NDArray[np.float64]) -> float:
        groups = np.bincount(self.group, mass, minlength=len(self.share))
        return float(np.abs(groups / groups.sum() - self.share).max())

    def scaled(self, mass: NDArray[np.float64], name: str) -> Tensor:
        """The factor of each piece that makes the shares right."""
        groups = np.bincount(self.group, mass, minlength=len(self.share))
        impossible = (self.share > 0) & (groups <= _NOTHING * groups.sum())
        if impossible.any():
            raise ConfigError(
                f'column "{name}": a share of {self.share[impossible][0]:.3g} is '
                "asked for what has no probability "
                "together with the rest.",
                effect=Effect.NOTHING_SAMPLED,
            )
        scale = np.divide(
            self.share,
            groups,
            out=np.zeros_like(groups),
            where=self.share > 0,
        )
        return torch.from_numpy(scale[self.group])


def tests_of(weights: Weights, levels: Levels) -> dict[int, dict[Test, float]]:
    """The shares that are asked for, by column, each as a test. Checked against the
    schema.
    """
    schema = levels.schema
    shares_by_column = dict[int, dict[Test, float]]()
    for name, shares_of_values in weights.items():
        plain = {
            value.item() if isinstance(value, np.generic) else value: share
            for value, share in shares_of_values.items()
        }
        shares_of_tests = shares_by_column.setdefault(
            schema.columns.index(schema.column(name)),
            {},
        )
        for value, share in plain.items():
            shares_of_tests[
                Missing(name) if value is None else OneOf(name, (value,))
            ] = share
    return shares_by_column


def by_value(shares_by_test: Mapping[Test, float], pieces: Pieces) -> TargetShares:
    """Shares of single values. Values that are not named keep their proportions and
    share what is left.
    """
    group = np.full(len(pieces.level), -1, dtype=np.int64)
    shares = list(shares_by_test.values())
    for number, (test, share) in enumerate(shares_by_test.items()):
        if (
            isinstance(share, bool)
            or not isinstance(share, int | float)
            or not 0 <= share <= 1
        ):
            raise pieces.column.error(
                f"a share lies between 0 and 1, not {share!r}.",
                effect=Effect.NOTHING_SAMPLED,
            )
        group[holds(test, pieces)] = number
    remainder = 1 - math.fsum(shares)
    others = bool((group < 0).any())
    if remainder < -_NEAR or (remainder > _NEAR and not others):
        raise pieces.column.error(
            f"the shares that are asked for sum to {1 - remainder:.6g}, not to 1.",
            effect=Effect.NOTHING_SAMPLED,
        )
    group[group < 0] = len(shares)
    return TargetShares(
        group,
        np.array([*shares, *([max(0.0, remainder)] if others else [])]),
    )


def like(
    frame: pd.DataFrame,
    levels: Levels,
    pieces: Pieced,
) -> dict[int, TargetShares]:
    """The shares of the levels of all columns that a public frame has."""
    if not len(frame):
        raise ConfigError(
            "the frame has no rows, and so no shares.",
            effect=Effect.NOTHING_SAMPLED,
        )
    targets = {}
    for j, codes in known_cells(frame, levels).items():
        column_pieces = pieces[j]
        if (codes < 0).any() and not column_pieces.column.nullable:
            raise column_pieces.column.error(
                "the frame has a gap where nothing may be missing.",
                effect=Effect.NOTHING_SAMPLED,
            )
        codes = np.where(codes < 0, column_pieces.level[-1], codes)
        targets[j] = TargetShares(
            column_pieces.level.astype(np.int64),
            np.bincount(codes, minlength=levels.sizes[j]) / len(frame),
        )
    return targets


def rake(
    products: Products,
    targets: Mapping[int, TargetShares],
    names: tuple[str, ...],
) -> dict[int, Tensor]:
    """A factor for each piece of each column, under which the columns have the shares
    that are asked for.
    """
    factor = {
        j: torch.ones(len(target.group), dtype=torch.float64)
        for j, target in targets.items()
    }
    mass = {j: products.probabilities[j] @ factor[j] for j in targets}  # (products,)
    missed = dict.fromkeys(targets, 0.0)
    for _ in range(_MOST_ROUNDS):
        for j, target in targets.items():
            others = [mass[i] for i in targets if i != j]
            weight = torch.stack([products.weight, *others]).prod(0)
            # (pieces,), without this column's factor
            now = (weight @ products.probabilities[j]).numpy()
            missed[j] = target.missed(now * factor[j].numpy())
            factor[j] = target.scaled(now, names[j])
            mass[j] = products.probabilities[j] @ factor[j]
        if max(missed.values()) <= _NEAR:
            return factor
    if max(missed.values()) <= math.sqrt(_NEAR):
        return factor
    worst = max(missed, key=missed.__getitem__)
    raise ConfigError(
        f'no weighting of the model\'s rows has these shares: column "{names[worst]}" '
        "stays off by "
        f"{missed[worst]:.2g}.",
        effect=Effect.NOTHING_SAMPLED,
    )
