"""The first release where several labels have more combinations than can be counted one by one: sums of levels.

Guarantee: `sums` are whole numbers that one person, with all rows, moves by at most `sensitivity`. A row q with ‖q‖ ≤
`SCALE` stands once under its level of every label, `COUNT` in one cell of the table of every two labels, and energy and
histograms beside: the squares of these lengths add up. An average of such rows is no longer than the longest of them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame
from understudy.models.moments.labels import Labels
from understudy.models.moments.released import (
    COUNT,
    SCALE,
    Released,
    levels_sensitivity,
    levels_size,
    read_levels,
)
from understudy.privacy.secure.moments import bounded, cell_sums
from understudy.protocols.moments.rows import Rows, Sums, even, of_all


@dataclass(frozen=True)
class Levels(Sums):
    """Of every label the sums of its levels' rows, of every two the table of their people; energy and values of all."""

    frame: Frame
    labels: Labels

    @property
    def sensitivity(self) -> float:
        return levels_sensitivity(self.labels)

    @property
    def size(self) -> int:
        return levels_size(self.frame, self.labels)

    def _sums_of(self, rows: Rows) -> Tensor:
        q = bounded(rows.coefficients, self.frame.reach, SCALE)
        ones, sizes = np.full((len(q), 1), float(COUNT)), self.labels.sizes
        places = [np.asarray(one, dtype=np.int64) for one in np.unravel_index(rows.classes, sizes)]
        sums = [
            cell_sums(q, place, size, rows.crowd).flatten() for place, size in zip(places, sizes, strict=True)
        ]
        tables = [
            cell_sums(ones, places[a] * sizes[b] + places[b], sizes[a] * sizes[b], rows.crowd).flatten()
            for a, b in self.labels.pairs
        ]
        return torch.cat([*sums, *tables, of_all(self.frame, q, rows)])

    def read_sums(self, total: Tensor, noise: float) -> Released:
        """As `read_levels`."""
        return read_levels(self.frame, self.labels, total, even(noise, total))
