"""How many released pairs of columns a fit misses: what it says lies outside of what was released and its noise.

A cell is *outside* where the fit's count is not within the cell's own 95 % interval, that of the noise alone. A table
is *missed* where it has so many outside that the truth would have as many in fewer than one table of twenty: the
binomial law, of as many cells as the table has, each with a chance of 5 %. So of the truth one table in twenty is
missed at most, and of a fit, which follows the counts, fewer. More than that, by the same law and less likely than one
in a hundred, is a failure of the fit, and not of the noise.

Guarantee: reads the release and the fit alone.
Edges: a count that is exact, or was not released, is none; without any, there are no tables.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from scipy.special import bdtrc
from torch import Tensor
from torch.nn import functional

from understudy.answers.release import Z

_CHANCE = 0.05  # of a cell of the truth to lie outside, and of a table of the truth to be missed
_ALARM = 0.01  # of as many tables of the truth to be missed, that a warning is given for no reason


@dataclass(frozen=True)
class Missed:
    """Of so many released tables of pairs those that are missed, and of all their cells those that are outside."""

    tables: int
    missed: int
    cells: int
    outside: int

    @classmethod
    def of(cls, fitted: Tensor, released: Tensor, noise: Tensor, sizes: Sequence[int]) -> "Missed":
        """From counts of the fit and of the release, and the deviation of its noise: all (width, width), symmetric."""
        columns = functional.one_hot(torch.repeat_interleave(torch.tensor(sizes))).double()
        heard = (noise.isfinite() & (noise > 0) & (columns @ columns.T == 0)).triu()
        half = (Z * torch.where(heard, noise, 0) - 0.5).ceil().clamp(min=0)  # as `Noisy.half`
        beyond = heard & ((fitted - released).abs() > half)
        cells, outside = (columns.T @ mask.double() @ columns for mask in (heard, beyond))
        each = [(int(n), int(k)) for n, k in zip(cells[cells > 0], outside[cells > 0], strict=True)]
        missed = sum(is_beyond_chance(n, k) for n, k in each)
        return cls(len(each), missed, int(cells.sum()), int(outside.sum()))

    @property
    def card(self) -> dict[str, Any]:
        """What a generator's card says of it, with a warning where it is a failure of the fit; nothing of no tables."""
        if not self.tables:
            return {}
        said = f"The fit misses {self.missed:,} of {self.tables:,} released pairs of columns"
        poor = {}
        if is_beyond_chance(self.tables, self.missed, _ALARM):
            poor = {"warning": f"{said}, and the truth would miss one in twenty at most: do not rely on its pairs."}
        return {"fit": {**asdict(self), "said": f"{said}."}} | poor


def is_beyond_chance(many: int, some: int, level: float = _CHANCE) -> bool:
    """Whether as many of so many, each with a chance of 5 %, or more, are less likely than `level` themselves."""
    return some > 0 and float(bdtrc(some - 1, many, _CHANCE)) < level
