"""Fewer levels for the fit: which levels of a column are fitted as one, and how a fit
to these is split again.

The time of a fit grows with the square of the number of levels, and of thousands of
levels hardly any pair can be told from noise. So neighbouring levels are merged while
marginals are fitted, with as few people as possible in each group. Afterwards a group
is split by the 1-way marginal: within it, levels are independent of everything else
(`Coarse`).

Source: the domain compression of McKenna, Miklau, Sheldon, "Winning the NIST contest"
(JPC 2021), which merges rare levels in the same way.
Differs from the paper: neighbours are merged until the fit is small enough, and not the
values below a threshold; pairs are measured on the finer levels.
Guarantee: reads released tables and the public schema alone.
Edges: each column keeps some levels however many columns there are, and all levels of a
column in a three-way table.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from understudy.models.tables.given_rules import Tie, blocks_of
from understudy.models.tables.merged_levels import merged_neighbours

if TYPE_CHECKING:
    from understudy.models.tables.mixture import MixtureOfProducts

# levels of all columns together: a step's time grows with the square. 3,000 levels,
# fitted as 768, take 51 CPU seconds for 1,200 steps (benchmarks/joint/speed.csv: codes)
FITTED = 768

# of a group's people, in a level that nobody seems to have: its logarithm stays finite,
# and one in a million rows draws it
RAREST = 1e-6


@dataclass(frozen=True)
class Coarse:
    """The group of every level, and the share of its group's people that it has: both
    (width,).
    """

    sizes: tuple[int, ...]
    all_sizes: tuple[int, ...]
    group: Tensor
    share: Tensor

    @classmethod
    def from_one_way(
        cls,
        ways: Tensor,
        sizes: Sequence[int],
        whole: Collection[int] = (),
        most: int = 0,
    ) -> "Coarse | None":
        """By one-way tables (width,), with `most` levels each; columns in `whole` stay.
        None where all levels do.
        """
        others = [size for column, size in enumerate(sizes) if column not in whole]
        most = most or _levels_each(others, sum(sizes))
        known = torch.where(ways.isfinite(), ways, 0)
        parts = torch.split(known.clamp(min=0).cpu().double(), list(sizes))
        groups = []
        first = 0
        for column, part in enumerate(parts):
            limit = max(sizes) if column in whole else most
            if len(part) > limit:
                levels = torch.as_tensor(merged_neighbours(part, limit))
            else:
                levels = torch.arange(len(part))
            groups.append(levels.to(torch.int64) + first)
            first = int(groups[-1][-1]) + 1
        if first == sum(sizes):
            return None
        group = torch.cat(groups)
        share = _shares_within(torch.cat(parts), group, first)
        fitted = tuple(int(levels[-1] - levels[0]) + 1 for levels in groups)
        return cls(fitted, tuple(sizes), group.to(ways.device), share.to(ways.device))

    def merged(self, counts: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Counts and the variances of their noise on the fewer levels; infinite where a
        part was not measured.
        """
        column = torch.repeat_interleave(torch.tensor(self.sizes, device=counts.device))
        same = column[:, None] == column

        def summed(matrix: Tensor, within: float) -> Tensor:
            both = self._summed(self._summed(matrix).T)
            diagonal = self._summed(matrix.diagonal())
            return torch.where(same, within, both).diagonal_scatter(diagonal)

        return summed(counts, 0.0), summed(variance, torch.inf)

    def merged_tie(self, tie: Tie) -> Tie:
        """Rules on the fewer levels: a group is allowed as far as its people's levels
        are.
        """
        blocks = blocks_of(self.all_sizes)
        fewer = blocks_of(self.sizes)
        allowed = []
        for column, mask in zip(tie.columns, tie.allowed, strict=True):
            group = self.group[blocks[column]] - fewer[column].start
            share = self.share[blocks[column]]
            sums = mask.new_zeros(len(mask), self.sizes[column])
            allowed.append(sums.index_add_(1, group, mask * share))
        return Tie(tie.columns, tuple(allowed))

    def _summed(self, matrix: Tensor) -> Tensor:
        """Over the levels of each group, along the first dimension."""
        sums = matrix.new_zeros(sum(self.sizes), *matrix.shape[1:])
        return sums.index_add_(0, self.group, matrix)

    def parted(self, mixture: "MixtureOfProducts") -> "MixtureOfProducts":
        """The same mixture on all levels."""
        full = type(mixture)(
            self.all_sizes,
            mixture.components,
            mixture.target,
            mixture.together,
        ).to(self.share.device)
        with torch.no_grad():
            full.logits.copy_(mixture.logits[:, self.group] + self.share.log())
            if full.effects is not None and mixture.effects is not None:
                by_level = mixture.effects[self.group]
                # columns together keep their levels
                by_pair = mixture.effects[mixture.width :]
                full.effects.copy_(torch.cat([by_level, by_pair]))
        return full.requires_grad_(False)


def _shares_within(ways: Tensor, group: Tensor, groups: int) -> Tensor:
    """The share of its group's people that each level has."""

    def in_group(counts: Tensor) -> Tensor:
        sums = torch.zeros(groups, dtype=counts.dtype)
        return sums.index_add_(0, group, counts)[group]

    somebody = ways + RAREST * in_group(ways) + RAREST
    return somebody / in_group(somebody)


def fitted_width(sizes: Sequence[int]) -> int:
    """How many levels of all columns together are fitted."""
    most = _levels_each(sizes, sum(sizes))
    return sum(min(size, most) for size in sizes)


def _levels_each(sizes: Sequence[int], width: int, *, fewest: int = 16) -> int:
    """The most levels that each of these columns may have, so that all columns have no
    more than are fitted, but not below the `fewest`: by then 48 columns fill a fit, and
    of more the fit takes longer rather than that columns say nothing.
    """
    room = FITTED - (width - sum(sizes))
    most = max(sizes, default=0)
    while most > fewest and sum(min(size, most) for size in sizes) > room:
        most -= 1
    return max(most, fewest)
