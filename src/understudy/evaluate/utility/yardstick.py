"""A scale that the number of rows cannot bend: what a perfect table of the same size would reach.

A bootstrap of the real rows (the floor of `marginals`) repeats cells of the very table it is held against, so with
many levels and few rows it stands well below every fresh sample, and a perfect generator looks poor beside it.
Here one half of the real rows is the truth, and three tables of one size are held against it: rows of the
synthetic table (value), the other half (floor: what a perfect generator reaches), and the other half with its
columns shuffled apart (ceiling: the same without any joint structure). With held-out rows these are the other
half, and all real rows the truth. For single columns the ceiling is a table with all levels equally often: the
public schema alone, which costs nobody anything. The values themselves (`values`, `association`) are measured on the
same rows; for single columns of numbers the floor is the mean of a few such partings, as one alone moves about.

Edges: no rows, or too few columns for a figure → the reason.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.schema import Schema
from understudy.evaluate.figure import SCOPES, Figure, What
from understudy.evaluate.utility.association import Associations, Correlations, associations, correlations
from understudy.evaluate.utility.marginals import Codes, Marginals, shuffled
from understudy.evaluate.utility.values import Numbers, Values, measure_numbers, splits


@dataclass(frozen=True, kw_only=True, eq=False)
class Yardstick:
    schema: Schema
    truth: Codes
    tables: tuple[Codes, Codes, Codes]
    values: tuple[Values, Values, Values, Values]
    owners: Mapping[str, str] | None
    seed: int

    @classmethod
    def of(
        cls, schema: Schema, real: Codes, synthetic: Codes, holdout: Codes | None = None, *,
        values: Sequence[Values] | None = None, owners: Mapping[str, str] | None = None, seed: int = 0,
    ) -> "Yardstick":  # fmt: skip
        """Draw halves, cut the tables to one size. `values`: as `table_values` gives them, or else levels."""
        rng = np.random.default_rng([seed, 3])
        known, unseen = np.arange(len(real)), np.arange(0 if holdout is None else len(holdout))
        if holdout is None:
            known, unseen = np.array_split(rng.permutation(len(real)), 2)
        size = min(len(unseen), len(synthetic))
        unseen, drawn = rng.permutation(unseen)[:size], rng.permutation(len(synthetic))[:size]

        def parts(tables: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
            fresh = tables[0 if holdout is None else 2][unseen]
            return tables[0][known], tables[1][drawn], fresh, shuffled(fresh, size, rng)

        codes = [real, synthetic, *([] if holdout is None else [holdout])]
        truth, *others = parts(codes)
        return cls(
            schema=schema, truth=truth, tables=(others[0], others[1], others[2]),
            values=parts([table.astype(np.float64) for table in codes] if values is None else values), owners=owners,
            seed=seed,
        )  # fmt: skip

    def figures(self, ways: Sequence[int] = (1, 2, 3, 4)) -> tuple[Figure, ...]:
        """k-way marginals and correlations, each between its ends; named as in `fidelity`."""
        figures, _ = level_figures(
            self.truth, self.tables[0], [column.size for column in self.schema.columns], ends=self.tables[1:],
            names=self.schema.names, owners=self._parties, ways=ways, seed=self.seed,
        )  # fmt: skip
        columns = [figure.ceiling for figure in self.columns().values() if figure.ceiling is not None]
        even = float(np.mean(columns)) if columns else None
        return tuple(
            replace(f, ceiling=even) if f.what == What("avd", 1) and f.value is not None else f for f in figures
        )

    def columns(self) -> dict[str, Figure]:
        if not len(self.truth) or not len(self.tables[0]):
            return {}
        found = {}
        for j, column in enumerate(self.schema.columns):
            own, fake, fresh = (
                np.bincount(codes[:, j], minlength=column.size) / len(codes) for codes in (self.truth, *self.tables[:2])
            )
            value, floor, ceiling = (float(np.abs(own - other).sum() / 2) for other in (fake, fresh, 1 / column.size))
            found[column.name] = Figure(What(column.name), value=value, floor=floor, ceiling=ceiling)
        return found

    def numbers(self) -> dict[str, Numbers]:
        truth, drawn, fresh, _ = self.values
        pairs = splits(truth, fresh, np.random.default_rng([self.seed, 6]))
        return measure_numbers(self.schema, truth, drawn, pairs)

    def associations(self) -> Associations:
        return associations(self.schema, self.values[0], self.values[1:], owners=self._parties, seed=self.seed)

    @property
    def _parties(self) -> list[str] | None:
        return None if self.owners is None else [self.owners[name] for name in self.schema.names]


def level_figures(
    real: Codes, synthetic: Codes, sizes: Sequence[int], *, names: Sequence[str], owners: Sequence[Hashable] | None,
    ways: Sequence[int], ends: Sequence[Codes] | None = None, seed: int = 0,
) -> tuple[list[Figure], Correlations]:  # fmt: skip
    """AVD of sets of so many columns and CMD; with `owners` also within and across parties."""
    pair = Marginals(real, synthetic, sizes, owners=owners, ends=ends, seed=seed)
    scopes = SCOPES if owners is not None else SCOPES[:1]
    figures = [pair.avd(k, scope=scope) for k in ways for scope in scopes if k > 1 or scope == "all"]
    linear = correlations(real, synthetic, names=names, owners=owners, ends=ends, seed=seed)
    return [*figures, *linear.figures], linear
