"""Released tables of people with many rows: in people, each with the deviation of its noise.

Which tables there are, and what a cell of them means, stands in `data/visits/counts.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.visits import SeveralLayout, VisitCodes, VisitLayout, count_visits
from understudy.data.visits.counts import Block
from understudy.models.tables.given_rules import Tie

_FINE = 27_720  # divisible by every number up to 12


@dataclass(frozen=True, eq=False)
class VisitTies:
    """What public rules leave of columns, by their places.

    `both`, of people's and of events' columns side by side, is what all rules leave; `people`, of people's declared
    ones, and `events`, of an event's, what rules on these alone leave.
    """

    both: tuple[Tie, ...] = ()
    people: tuple[Tie, ...] = ()
    events: tuple[Tie, ...] = ()


@dataclass(frozen=True)
class VisitTables:
    """Every block of the layout as a table of float64, in people, and the deviation of the noise in its cells.

    A person has a mass of 1 in each of them: with one event or more in those of events, with two or more in those of
    consecutive ones, with three in those of events two apart. A table of one column is a vector, one of two a matrix.
    """

    layout: VisitLayout | SeveralLayout
    tables: Mapping[Block, Tensor]
    noise: Mapping[Block, float]

    @classmethod
    def read(
        cls, layout: VisitLayout | SeveralLayout, cells: Tensor, noise: float, unit: int
    ) -> "VisitTables":
        """From all cells one after the other, and the deviation of their noise, in parts of units: (size,)."""
        split = layout.split(cells.double().numpy())
        units = dict(zip(layout.blocks, layout.units(unit), strict=True))
        tables = {block: torch.from_numpy(np.array(table)) / units[block] for block, table in split.items()}
        return cls(layout, tables, {block: noise / own for block, own in units.items()})

    @classmethod
    def exact(cls, codes: VisitCodes, layout: VisitLayout) -> "VisitTables":
        """Of rows, without noise: for tests, and for holders who compare. It must not leave a holder."""
        return cls.read(layout, torch.from_numpy(count_visits(codes, layout, _FINE)), 0.0, _FINE)

    @property
    def people(self) -> float:
        """How many people there are, by the tables of single person columns."""
        found = [self.tables["person", a, a].sum() for a in range(len(self.layout.people))]
        return float(torch.stack(found).mean())
