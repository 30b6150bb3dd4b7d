"""What a run of visits fixes before anything is counted: the schema, the tables, and their noise.

Guarantee: made of public schemas, settings and the agreed noise multiplier; every party computes it by itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any

from understudy.data.grid import Grid
from understudy.data.kinds import VISITS
from understudy.data.visits import SeveralLayout, SeveralVisits, VisitLayout, VisitSchema
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.secure.moments import LARGEST, noise_for
from understudy.privacy.secure.sums import noise_share
from understudy.protocols.visits.columns import Split, grid_of

SETTLED = ("colluding", "most_holders", "private")
# What a person weighs in a table, in whole parts: the finest whose noise can be drawn. Divisible by many numbers; where
# tables are products, squares of such.
UNITS = (27_720, 5_040, 2_520, 840, 360, 120, 60, 24, 12, 6, 2, 1)
ROOTS = (180, 120, 84, 60, 36, 24, 12, 6, 4, 2, 1)


@dataclass(frozen=True)
class Holders:
    """Who takes part with what: rows of one schema (`split` is None), other columns of the same people, or both."""

    schema: VisitSchema | SeveralVisits  # of all together
    names: tuple[str, ...]
    split: Split | None

    @classmethod
    def of(cls, schemas: Mapping[str, Any]) -> "Holders":
        """As the schemas show it: all alike, over rows; else over columns, or a grid where some are alike."""
        visits = VISITS.among(schemas)
        if not visits:
            raise ConfigError(
                f"{', '.join(schemas)}: nobody holds people with events, which visits is for: gram is for tables. "
                "Nothing was charged."
            )
        for (one, first), (other, second) in combinations(grid_of(visits).one_each(visits).items(), 2):
            if set(first.names) & set(second.names):
                raise SchemaError(
                    f"{one} and {other} describe their rows differently: holders of the same columns need the same "
                    "schema, and no other holder may have one of its columns. Nothing was charged."
                )
        if len(grid_of(schemas).groups) == 1:
            return cls(next(iter(visits.values())), tuple(schemas), None)
        split = Split.of(schemas)
        return cls(split.schema, tuple(schemas), split)

    @property
    def partition(self) -> str:
        """ "rows", "columns" or "grid"."""
        return "rows" if self.split is None else self.split.grid.partition

    @cached_property
    def layout(self) -> VisitLayout | SeveralLayout:
        if self.split is not None:
            return self.split.layout
        assert VISITS.describes(self.schema)  # over rows
        return VisitLayout.of(self.schema)

    def check(self, config: Mapping[str, Any]) -> None:
        """The settings that a price depends on."""
        whole(colluding=config["colluding"])
        if self.split is not None:
            in_range(1, len(self.names) - 1, colluding=config["colluding"])
        if type(config["private"]) is not bool:
            raise ConfigError(f"private is true or false, not {config['private']!r}. Nothing was charged.")
        grid = Grid((self.names,)) if self.split is None else self.split.grid
        grid.check_most_holders(config["most_holders"])

    def terms(self, multiplier: float, most_holders: int) -> "Terms":
        """Noise of this multiplier for a person who is with so many holders.

        Edges: more noise than can be drawn → ConfigError.
        """
        for unit in UNITS if self.split is None else (root**2 for root in ROOTS):
            if multiplier * most_holders * self.layout.reach(unit) * 1.03 <= LARGEST / 1.5:
                break
        return Terms(unit, noise_for(multiplier, most_holders * self.layout.reach(unit)))

    def noise(self, terms: "Terms", colluding: int, present: int) -> list[float]:
        """The deviation, in parts, of the noise in each table of all who have a part in it; over rows so many do."""
        split = self.split
        if split is None:
            return [terms.deviation(present, colluding)] * len(self.layout.blocks)
        of = {
            groups: terms.deviation(len(split.grid.holders(groups)), split.colluding(groups, colluding))
            for groups in split.grid.blocks
        }
        return [of[split.groups(block)] for block in self.layout.blocks]


@dataclass(frozen=True)
class Terms:
    """The parts in which tables count, and the scale of noise on a cell that has to be left, in these parts."""

    unit: int
    sigma: float

    @property
    def root(self) -> int:
        """Where columns are split: what a person's vector counts in for each column."""
        return math.isqrt(self.unit)

    def share(self, parties: int, colluding: int) -> Fraction:
        """The scale of one holder's noise on what so many have a part in."""
        return noise_share(Fraction(self.sigma), parties, colluding=colluding)

    def deviation(self, parties: int, colluding: int) -> float:
        """Of the noise of all of these together, in parts."""
        return float(self.share(parties, colluding)) * (parties**0.5 if parties > 1 else 1.0)
