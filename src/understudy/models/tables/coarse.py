"""A wide Gram matrix on fewer levels, and a mixture on those as one on all levels.

A fit's time grows with the square of the width. But where columns have thousands of levels together, hardly any pair of
them holds enough people to be told from noise. So neighbouring levels are one while the tables are fitted, as few
people as possible in each (`bought_levels.merged_neighbours`: a level with many stays alone), and afterwards the people
of such a group are parted among its levels as its one-way table says.

Guarantee: reads the released matrix alone, so that it is post-processing.
Edges: a column keeps `_FEWEST` levels, and all that it has in a three-way table.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.models.tables.bought_levels import merged_neighbours
from understudy.models.tables.given_rules import Tie, blocks_of
from understudy.models.tables.mixture import MixtureOfProducts

FITTED = 768  # levels of all columns together
_FEWEST = 16  # levels that a column keeps
_RAREST = 1e-6  # of a group's people, in a level that nobody seems to have


@dataclass(frozen=True)
class Coarse:
    """The group of every level, and the share of its group's people that it has: both (width,)."""

    sizes: tuple[int, ...]
    all_sizes: tuple[int, ...]
    group: Tensor
    share: Tensor

    @classmethod
    def of(cls, ways: Tensor, sizes: Sequence[int], whole: Collection[int] = ()) -> "Coarse | None":
        """By one-way tables (width,), in counts; columns in `whole` stay as they are. None where all levels are fitted.

        Edges: counts below 0, or not measured, are none.
        """
        kept = dict.fromkeys(whole, max(sizes))
        most = _levels_each([size for column, size in enumerate(sizes) if column not in kept], sum(sizes))
        known = torch.where(ways.isfinite(), ways, 0).clamp(min=0).cpu().double()
        parts = torch.split(known, list(sizes))
        groups, first = [], 0
        for column, own in enumerate(parts):
            limit = kept.get(column, most)
            one = merged_neighbours(own, limit) if len(own) > limit else range(len(own))
            groups.append(torch.as_tensor(one, dtype=torch.int64) + first)
            first = int(groups[-1][-1]) + 1
        if first == sum(sizes):
            return None
        group, own = torch.cat(groups), torch.cat(parts)
        own = own + _RAREST * torch.zeros(first, dtype=own.dtype).index_add_(0, group, own)[group] + _RAREST
        share = own / torch.zeros(first, dtype=own.dtype).index_add_(0, group, own)[group]
        fitted = tuple(int(one[-1] - one[0]) + 1 for one in groups)
        return cls(fitted, tuple(sizes), group.to(ways.device), share.to(ways.device))

    def merged(self, counts: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Counts and the variances of their noise, both (width, width) and symmetric, on the fewer levels.

        A cell of which a part was not measured, with infinite variance, was not measured.
        """
        found = []
        column = torch.repeat_interleave(torch.tensor(self.sizes, device=counts.device))
        same = column[:, None] == column
        for matrix, within in ((counts, 0.0), (variance, torch.inf)):
            sums = torch.where(same, within, self._summed(self._summed(matrix).T))
            found.append(sums.diagonal_scatter(self._summed(matrix.diagonal())))
        return found[0], found[1]

    def merged_tie(self, tie: Tie) -> Tie:
        """Rules on the fewer levels: a group is allowed as far as its people's levels are."""
        blocks, fewer = blocks_of(self.all_sizes), blocks_of(self.sizes)
        allowed = []
        for column, mask in zip(tie.columns, tie.allowed, strict=True):
            group, share = self.group[blocks[column]] - fewer[column].start, self.share[blocks[column]]
            sums = mask.new_zeros(len(mask), self.sizes[column])
            allowed.append(sums.index_add_(1, group, mask * share))
        return Tie(tie.columns, tuple(allowed))

    def _summed(self, matrix: Tensor) -> Tensor:
        """Over the levels of each group, along the first dimension."""
        return matrix.new_zeros(sum(self.sizes), *matrix.shape[1:]).index_add_(0, self.group, matrix)

    def parted(self, mixture: MixtureOfProducts) -> MixtureOfProducts:
        """The mixture on all levels."""
        own = (self.all_sizes, mixture.components, mixture.target, mixture.together)
        full = MixtureOfProducts(*own).to(self.share.device)
        with torch.no_grad():
            full.logits.copy_(mixture.logits[:, self.group] + self.share.log())
            if full.effects is not None and mixture.effects is not None:  # columns together keep their levels
                two = mixture.effects[mixture.width :]
                full.effects.copy_(torch.cat([mixture.effects[self.group], two]))
        return full.requires_grad_(False)


def fitted_width(sizes: Sequence[int]) -> int:
    """How many levels are fitted of columns with so many."""
    most = _levels_each(sizes, sum(sizes))
    return sum(min(size, most) for size in sizes)


def _levels_each(sizes: Sequence[int], width: int) -> int:
    """The most levels that each of these columns may have, so that all columns have no more than are fitted."""
    room, most = FITTED - (width - sum(sizes)), max(sizes, default=0)
    while most > _FEWEST and sum(min(size, most) for size in sizes) > room:
        most -= 1
    return max(most, _FEWEST)
