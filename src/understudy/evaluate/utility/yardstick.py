"""A scale that the number of rows cannot bend: what a perfect table of the same size would reach.

A bootstrap of the real rows (the floor of `marginals`) repeats cells of the very table it is held against, so with
many levels and few rows it stands well below every fresh sample, and a perfect generator looks poor beside it.
Here one half of the real rows is the truth, and three tables of one size are held against it: rows of the
synthetic table (value), the other half (floor: what a perfect generator reaches), and the other half with its
columns shuffled apart (ceiling: the same without any joint structure). With held-out rows these are the other
half, and all real rows the truth. For single columns the ceiling is a table with all levels equally often: the
public schema alone, which costs nobody anything.

Guarantee: none. A figure is a function of real rows, meant for their holder. Edges: no rows, or too few columns
for a figure → the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from understudy.data.schema import Schema
from understudy.evaluate.utility.correlation import correlations
from understudy.evaluate.utility.marginals import SCOPES, Codes, Figure, Marginals, shuffled


@dataclass(frozen=True, kw_only=True, eq=False)
class Yardstick:
    """The truth and the tables that are held against it: value, floor and ceiling."""

    schema: Schema
    truth: Codes
    tables: tuple[Codes, Codes, Codes]
    owners: Mapping[str, str] | None
    seed: int

    @classmethod
    def of(
        cls,
        schema: Schema,
        real: Codes,
        synthetic: Codes,
        holdout: Codes | None = None,
        *,
        owners: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> "Yardstick":
        """Draw the halves, and cut the tables to one size."""
        rng = np.random.default_rng([seed, 3])
        truth, fresh = (real, holdout) if holdout is not None else np.array_split(rng.permutation(real), 2)
        size = min(len(fresh), len(synthetic))
        fresh, drawn = rng.permutation(fresh)[:size], rng.permutation(synthetic)[:size]
        tables = (drawn, fresh, shuffled(fresh, size, rng))
        return cls(schema=schema, truth=truth, tables=tables, owners=owners, seed=seed)

    def figures(self, ways: Sequence[int] = (1, 2, 3, 4)) -> tuple[Figure, ...]:
        """k-way marginals and correlations, each between its ends; named as in `fidelity`."""
        found = [self._measured(table, ways) for table in self.tables]
        joined = tuple(_between(*three) for three in zip(*found, strict=True))
        columns = [figure.ceiling for figure in self.columns().values() if figure.ceiling is not None]
        even = float(np.mean(columns)) if columns else None
        return tuple(
            replace(f, ceiling=even) if f.name == "avd1" and f.value is not None else f for f in joined
        )

    def columns(self) -> dict[str, Figure]:
        """The distance of each single column."""
        if not len(self.truth) or not len(self.tables[0]):
            return {}
        return {c.name: self._column(j, c.name, c.size) for j, c in enumerate(self.schema.columns)}

    def _column(self, place: int, name: str, size: int) -> Figure:
        real, fake, fresh = (_shares(codes[:, place], size) for codes in (self.truth, *self.tables[:2]))
        value, floor, ceiling = (float(np.abs(real - other).sum() / 2) for other in (fake, fresh, 1 / size))
        return Figure(name=name, value=value, floor=floor, ceiling=ceiling)

    def _measured(self, table: Codes, ways: Sequence[int]) -> list[Figure]:
        sizes, names = [column.size for column in self.schema.columns], self.schema.names
        parties = None if self.owners is None else [self.owners[name] for name in names]
        pair = Marginals(self.truth, table, sizes, owners=parties, seed=self.seed, references=False)
        scopes = SCOPES if parties else SCOPES[:1]
        figures = [pair.avd(k, scope=scope) for k in ways for scope in scopes if k > 1 or scope == "all"]
        linear = correlations(self.truth, table, sizes, names=names, owners=parties, seed=self.seed)
        return [*figures, *linear.figures]


def _between(value: Figure, floor: Figure, ceiling: Figure) -> Figure:
    if value.value is None:
        return value
    return replace(value, floor=floor.value, ceiling=ceiling.value)


def _shares(codes: Codes, size: int) -> NDArray[np.float64]:
    return np.bincount(codes, minlength=size) / len(codes)
