"""From reports about a column and the target to a distribution: columns that depend on each other by the target alone.

At a small ε people are asked about one column each, or about one and the target. Of all laws with such tables, the one
of largest entropy has independent columns given the target. What is unknown is then small: for each column the shift
D = P − w πᵀ of its table with the target from the product of the one-way tables.

- Reports give an unbiased P. D has sums of 0, so that what is heard of them is taken off; what is left has noise of one
  size, known beforehand, in every direction.
- Before, D has the law N(0, τ² A ⊗ Q) with A = diag(w) − w wᵀ and Q = diag(π) − π πᵀ: all directions alike by the
  measure of χ². Levels in order are alike where they are near. In the axes of A and Q, what reports make of it is a
  shrinkage of each number by itself (Efron, "Large-scale inference", 2010, §1).
- How large τ is, one table hardly says. All columns together say how τ is spread over columns (the likeliest law on a
  grid, by turns of expectation and maximisation), and then each its own. A column that tells nothing is left alone.

What shrinkage leaves has the right order, but is too little for a model that learns from drawn rows. So its direction
is kept, and its length, one number for all columns, is the likeliest one, at most `_LARGER` times as large.

Guarantee: reads reports alone, so the law has the privacy of the reports.
Edges: a column that nobody was asked about together with the target, or not about all cells, is independent of all
others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.models.tables import MixtureOfProducts
from understudy.protocols.people.one_report.fit import Heard

_SIZES = torch.logspace(-5, 0.5, 28, dtype=torch.float64)  # of τ²
_TURNS = 50  # for the law of τ²
_NEAR = 0.5  # of the people between two levels in order: then they are alike by 1/e
_LARGER = 3.0
_LEAST = 0.05  # of what a cell would be, were the columns independent
_RAKED = 50
_RAREST = 1e-6  # least probability of a level
_NOTHING = 1e-12


def fit_given_target(
    all_heard: Sequence[Heard],
    levels: Sequence[int],
    ways: Sequence[Tensor],
    *,
    target: int,
    ordered: Sequence[int],
    components: int,
    liars: float = 0.0,
) -> MixtureOfProducts:
    """Independent columns given the target, with these one-way tables, as a mixture.

    `ordered`: how many levels of each column, from the first, have an order. The components are equal parts of all
    people in the order of their target, so that nearly all are of one class.
    """
    ways = [_positive(way) for way in ways]
    shifts = [
        _Shift.of(one, ways, target, ordered, liars)
        for one in all_heard
        if one.reports
        and len(one.about.columns) == 2
        and target in one.about.columns
        and one.about.listed is None
    ]
    classes = _parts(ways[target], components)  # (components, classes)
    odds = [way.expand(components, -1) for way in ways]
    odds[target] = classes
    for shift, found in zip(shifts, _shrunk(shifts), strict=True):
        odds[shift.column] = classes @ shift.given(found, ways[shift.column], ways[target])
    mixture = MixtureOfProducts(levels, components)
    with torch.no_grad():
        mixture.logits.copy_(torch.cat(odds, 1).clamp(min=_NOTHING).log())
    return mixture.requires_grad_(False)


def unbiased(heard: Heard, liars: float = 0.0) -> tuple[Tensor, float]:
    """A set's cells as its reports tell of them, and their noise: covariance `noise`·(I − 1/cells) near even tables."""
    mechanism, cells = heard.mechanism, heard.about.cells
    weight, size = mechanism.most_weight, mechanism.size
    own = size / cells + (1 - 1 / cells) / weight  # P(in | own); for another cell it is 1/weight less
    counts = torch.zeros(cells, dtype=torch.float64)
    counts.index_add_(0, heard.named.flatten(), heard.times.double().repeat_interleave(size))
    told = (counts / heard.reports - (own - 1 / weight)) * weight
    noise = size / cells * (1 - size / cells) * weight**2 / heard.reports * cells / (cells - 1)
    return (told - liars / cells) / (1 - liars), noise / (1 - liars) ** 2


@dataclass(frozen=True, eq=False)
class _Shift:
    """The shift of a column's table with the target: `told` (groups, groups) by reports, in the axes of both sides.

    `spread`: its variance there before, for τ = 1; `noise`: the variance of what was told. `back`: from the axes of a
    side to its levels, (levels, groups).
    """

    column: int
    told: Tensor
    spread: Tensor
    noise: float
    back: tuple[Tensor, Tensor]

    @classmethod
    def of(
        cls, heard: Heard, ways: Sequence[Tensor], target: int, ordered: Sequence[int], liars: float
    ) -> "_Shift":
        about = heard.about
        order = (0, 1) if about.columns[1] == target else (1, 0)
        one, other = (
            _Side.of(
                ways[about.columns[k]], about.groups[k], ordered[about.columns[k]] if k == order[0] else 0
            )
            for k in order
        )
        cells, noise = unbiased(heard, liars)
        told = cells.view(about.sizes).permute(order) - torch.outer(one.way, other.way)
        told = told - told.mean(0) - told.mean(1, keepdim=True) + told.mean()
        return cls(
            about.columns[order[0]], one.axes.T @ told @ other.axes, torch.outer(one.spread, other.spread), noise,
            (one.back, other.back),
        )  # fmt: skip

    def given(self, found: Tensor, way: Tensor, target: Tensor) -> Tensor:
        """The column's table for each level of the target, by the shift in its axes: (levels of the target, levels)."""
        even = torch.outer(way, target)
        table = torch.maximum(even + self.back[0] @ found @ self.back[1].T, _LEAST * even)
        for _ in range(_RAKED):
            table = table * (way / table.sum(1))[:, None]
            table = table * (target / table.sum(0))
        return (table / target).T


@dataclass(frozen=True, eq=False)
class _Side:
    """A column of a table: the `way` of its groups, the axes of a shift along it, and its variances there."""

    way: Tensor
    axes: Tensor
    spread: Tensor
    back: Tensor

    @classmethod
    def of(cls, way: Tensor, group: Tensor, ordered: int) -> "_Side":
        to_groups = torch.nn.functional.one_hot(group).double().T  # (groups, levels)
        law = _law(way, ordered)
        spread, axes = torch.linalg.eigh(to_groups @ law @ to_groups.T)
        free = spread > _NOTHING
        back = law @ to_groups.T @ axes * torch.where(free, 1 / spread, 0.0)
        return cls(to_groups @ way, axes, torch.where(free, spread, 0.0), back)


def _shrunk(shifts: Sequence[_Shift]) -> list[Tensor]:
    """Each shift's mean given its reports, over the likeliest law of τ² for all of them together, made longer."""
    if not shifts:
        return []
    kept = [_SIZES[:, None, None] * one.spread for one in shifts]
    whole = [size + one.noise for size, one in zip(kept, shifts, strict=True)]
    logs = torch.stack(
        [-(law.log() + one.told**2 / law).sum((1, 2)) / 2 for law, one in zip(whole, shifts, strict=True)]
    )
    likely = (logs - logs.amax(1, keepdim=True)).exp()  # (columns, sizes)
    law = torch.full((len(_SIZES),), 1 / len(_SIZES), dtype=torch.float64)
    for _ in range(_TURNS):
        own = likely * law / (likely @ law)[:, None]
        law = (own.sum(0) + 1 / len(_SIZES)) / (len(shifts) + 1)
    own = likely * law / (likely @ law)[:, None]
    found = [
        (weights[:, None, None] * size / law * one.told).sum(0)
        for weights, size, law, one in zip(own, kept, whole, shifts, strict=True)
    ]
    along, square = (
        sum(
            float((part * mean).sum()) / one.noise
            for part, mean, one in zip(parts, found, shifts, strict=True)
        )
        for parts in ([one.told for one in shifts], found)
    )
    longer = min(along / square, _LARGER) if square > 0 else 1.0
    return [longer * mean for mean in found]


def _law(way: Tensor, ordered: int) -> Tensor:
    """The covariance of a shift along one side for τ = 1, (levels, levels); its mean variance by χ² is 1."""
    if ordered <= 2:
        return way.diag() - torch.outer(way, way)
    place = (way.cumsum(0) - way / 2)[:ordered]
    alike = torch.eye(len(way), dtype=way.dtype)  # a missing value is like no other
    alike[:ordered, :ordered] = torch.exp(-(place[:, None] - place).abs() / _NEAR)
    free = torch.eye(len(way), dtype=way.dtype) - way  # takes the mean off
    alike = free @ alike @ free.T
    return way[:, None] * alike * way * ((len(way) - 1) / (alike.diagonal() * way).sum())


def _parts(way: Tensor, components: int) -> Tensor:
    """Each component's odds of the target's levels, which together have this table: (components, levels)."""
    ends = way.cumsum(0) / way.sum() * components
    place = torch.arange(components, dtype=way.dtype)[:, None]
    below = (ends - place).clamp(0, 1)
    return torch.cat([below[:, :1], below.diff(dim=1)], 1)


def _positive(way: Tensor) -> Tensor:
    way = way.double().clamp(min=_RAREST)
    return way / way.sum()
