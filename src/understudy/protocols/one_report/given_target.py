"""From reports about a column and the target to a distribution: columns that depend on
each other by the target alone.

At a small ε people are asked about one column each, or about one and the target. Of all
laws with such tables, the one of largest entropy has independent columns given the
target. What is unknown is then small: for each column the shift D = P − w πᵀ of its
table with the target from the product of the one-way tables.

- What reports say of D is their likelihood near D = 0: a slope, and a curvature that
  knows what a report about each cell is worth.
- Before, D has the law N(0, τ² A ⊗ Q) with A = diag(w) − w wᵀ and Q = diag(π) − π πᵀ:
  all directions alike by the measure of χ². Levels in order are alike where they are
  near. In axes in which that law and the curvature are both diagonal, what reports make
  of D is a shrinkage of each number by itself (Efron, "Large-scale inference", 2010,
  §1).
- How large τ is, one table hardly says. All columns together say how τ is spread over
  columns (the likeliest law on a grid, by turns of expectation and maximisation), and
  then each its own. A column that tells nothing is left alone.

What shrinkage leaves has the right order, but is too little for a model that learns
from drawn rows. So its direction is kept, and its length, one number for all columns,
is the likeliest one, at most `_LARGER` times as large. All shifts together are weighed
by how likely it is, given all reports, that any column depends on the target: where
reports are as likely without, columns are nearly independent (Hoeting, Madigan,
Raftery, Volinsky, Statistical Science 1999).

Guarantee: reads reports alone, so the law has the privacy of the reports.
Edges: a column that nobody was asked about together with the target, or not about all
cells, is independent of all others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.models.tables.mixture import MixtureOfProducts
from understudy.protocols.one_report.fit import Heard

_SIZES = torch.logspace(
    -5,
    0.5,
    28,
    dtype=torch.float64,
)  # of τ²
_TURNS = 50  # for the law of τ²
_NEAR = 0.5  # of the people between two levels in order: then they are alike by 1/e
_LARGER = 3.0
# By so much must the reports' log-likelihood rise for dependence to be as likely as
# none. Never weighed, independent columns came out 5 % farther off; by 1 and by 2 it is
# 2 % and 1 %, and AUC of boosting fell from .62 to .60 and .58 (bank, 5,000 people).
_DOUBT = 1.0
_LEAST = 0.05  # of what a cell would be, were the columns independent
_RAKED = 50
_RAREST = 1e-6  # least probability of a level
_NOTHING = 1e-12
_AT_ONCE = 1 << 22  # numbers: so much of the reports is looked at together


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
    """Independent columns given the target, with these one-way tables. `ordered`: how
    many levels have an order.
    """
    above = [way.double().clamp(min=_RAREST) for way in ways]
    ways = [way / way.sum() for way in above]
    pairs = [
        one
        for one in all_heard
        if one.reports and len(one.about.columns) == 2 and one.about.listed is None
    ]
    shifts = [
        _Shift.from_reports(
            one,
            ways,
            target,
            ordered,
            liars,
        )
        for one in pairs
        if target in one.about.columns
    ]
    classes = _parts(ways[target], components)  # (components, classes)
    odds = [way.expand(components, -1) for way in ways]
    odds[target] = classes
    for shift, mean in zip(shifts, _shrunk(shifts), strict=True):
        odds[shift.column] = classes @ shift.table_given_target(
            mean, ways[shift.column], ways[target]
        )
    mixture = MixtureOfProducts(levels, components)
    with torch.no_grad():
        mixture.logits.copy_(torch.cat(odds, 1).clamp(min=_NOTHING).log())
    return mixture.requires_grad_(False)


def slope_and_curvature(
    heard: Heard,
    table: Tensor,
    moves: Tensor,
    liars: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Of the reports' likelihood at a table (cells,), along `moves` (cells, ways):
    (ways,), and (ways, ways) ≥ 0.
    """
    lift = heard.assumed_lift(liars)
    ways = moves.shape[1]
    slope = torch.zeros(ways, dtype=table.dtype)
    curvature = torch.zeros(ways, ways, dtype=table.dtype)
    batch = max(1, _AT_ONCE // max(1, ways * heard.mechanism.size))
    for named, times in zip(
        torch.split(heard.named, batch),
        torch.split(heard.times.double(), batch),
        strict=True,
    ):
        # log(1 + lift·P(Z)) rises by lift/(1 + lift·P(Z)) times what moves into Z.
        rises = moves[named].sum(1) * (lift / (1 + lift * table[named].sum(1)))[:, None]
        slope += times @ rises
        curvature += (times[:, None] * rises).T @ rises
    return slope, curvature


@dataclass(frozen=True, eq=False)
class _Shift:
    """A column's shift with the target, in `axes` apart; `slope`, `curvature` (ways,);
    `back`: to levels.
    """

    column: int
    slope: Tensor
    curvature: Tensor
    axes: Tensor
    back: tuple[Tensor, Tensor]

    @classmethod
    def from_reports(
        cls,
        heard: Heard,
        ways: Sequence[Tensor],
        target: int,
        ordered: Sequence[int],
        liars: float,
    ) -> "_Shift":
        about = heard.about
        order = (0, 1) if about.columns[1] == target else (1, 0)
        one, other = (
            _Side.from_table(
                ways[about.columns[k]],
                about.groups[k],
                ordered[about.columns[k]] if k == order[0] else 0,
            )
            for k in order
        )
        # cells come in the order of the set's columns, ways in that of the two sides
        cells = torch.arange(about.cells).view(about.sizes).permute(order).flatten()
        table = torch.outer(one.way, other.way).flatten()
        moves = torch.kron(one.moves, other.moves)
        inverse = torch.argsort(cells)
        slope, curvature = slope_and_curvature(
            heard,
            table[inverse],
            moves[inverse],
            liars,
        )
        sizes, axes = torch.linalg.eigh(curvature)
        return cls(
            about.columns[order[0]],
            axes.T @ slope,
            sizes.clamp(min=0),
            axes,
            (one.back, other.back),
        )

    def table_given_target(
        self,
        mean: Tensor,
        way: Tensor,
        target: Tensor,
    ) -> Tensor:
        """The column's table for each level of the target, by the shift in its axes:
        (levels of the target, levels).
        """
        even = torch.outer(way, target)
        left, right = self.back
        parts = (self.axes @ mean).view(left.shape[1], right.shape[1])
        shift = left @ parts @ right.T
        table = torch.maximum(even + shift, _LEAST * even)
        for _ in range(_RAKED):
            table = table * (way / table.sum(1))[:, None]
            table = table * (target / table.sum(0))
        return (table / target).T


@dataclass(frozen=True, eq=False)
class _Side:
    """A column: its groups' `way`, `moves` (groups, ways) of each free way for τ = 1,
    and `back` (levels, ways).
    """

    way: Tensor
    moves: Tensor
    back: Tensor

    @classmethod
    def from_table(
        cls,
        way: Tensor,
        group: Tensor,
        ordered: int,
    ) -> "_Side":
        to_groups = torch.nn.functional.one_hot(group).double().T  # (groups, levels)
        law = _law(way, ordered)
        law_of_groups = to_groups @ law @ to_groups.T
        spread, axes = torch.linalg.eigh(law_of_groups)
        free = spread > _NOTHING
        root = spread[free].sqrt()
        axes = axes[:, free]
        return cls(to_groups @ way, axes * root, law @ to_groups.T @ axes / root)


def _shrunk(shifts: Sequence[_Shift]) -> list[Tensor]:
    """Each shift's mean given its reports, over the likeliest law of τ² for all of them
    together, made longer.
    """
    if not shifts:
        return []
    sizes = _SIZES[:, None]
    # variances given the reports
    variances = [sizes / (1 + sizes * one.curvature) for one in shifts]
    each = zip(variances, shifts, strict=True)
    logs = torch.stack(
        [
            (one.slope**2 * variance - torch.log1p(sizes * one.curvature)).sum(1) / 2
            for variance, one in each
        ]
    )
    most = logs.amax(1, keepdim=True)
    likely = (logs - most).exp()  # (columns, sizes)
    law = likeliest_law(likely, _TURNS)
    posterior = posterior_of(likely, law)
    means = [
        weights @ variance * one.slope
        for weights, variance, one in zip(
            posterior,
            variances,
            shifts,
            strict=True,
        )
    ]
    along = sum(
        float(one.slope @ mean) for one, mean in zip(shifts, means, strict=True)
    )
    square = sum(
        float(one.curvature @ mean**2) for one, mean in zip(shifts, means, strict=True)
    )
    longer = min(along / square, _LARGER) if square > 0 else 1.0
    # how much likelier reports are under this law than under independent columns
    evidence = float((most[:, 0] + (likely @ law).log()).sum())
    trust = 1 / (1 + math.exp(min(_DOUBT - evidence, 500.0)))
    return [trust * longer * mean for mean in means]


def likeliest_law(likely: Tensor, turns: int) -> Tensor:
    """The law of columns' sizes under which all columns together are likeliest, by so
    many turns of EM (Laird, JASA 1978) and a prior of one even column: (sizes,), from
    each column's likelihood (columns, sizes).
    """
    columns, sizes = likely.shape
    even = 1 / sizes
    law = torch.full((sizes,), even, dtype=torch.float64)
    for _ in range(turns):
        expected = posterior_of(likely, law).sum(0)
        law = (expected + even) / (columns + 1)
    return law


def posterior_of(likely: Tensor, law: Tensor) -> Tensor:
    """Each column's odds of the sizes, given its reports: (columns, sizes)."""
    joint = likely * law
    return joint / (likely @ law)[:, None]


def _law(way: Tensor, ordered: int) -> Tensor:
    """The covariance of a shift along one side for τ = 1, (levels, levels); its mean
    variance by χ² is 1.
    """
    if ordered <= 2:
        return way.diag() - torch.outer(way, way)
    levels = len(way)
    midranks = (way.cumsum(0) - way / 2)[:ordered]
    distance = (midranks[:, None] - midranks).abs()
    kernel = torch.eye(levels, dtype=way.dtype)  # a missing value is like no other
    kernel[:ordered, :ordered] = torch.exp(-distance / _NEAR)
    free = torch.eye(levels, dtype=way.dtype) - way  # takes the mean off
    kernel = free @ kernel @ free.T
    variance = (kernel.diagonal() * way).sum()
    covariance = way[:, None] * kernel * way
    return covariance * ((levels - 1) / variance)


def _parts(way: Tensor, components: int) -> Tensor:
    """Each component's odds of the target's levels, which together have this table:
    (components, levels).
    """
    ends = way.cumsum(0) / way.sum() * components
    starts = torch.arange(components, dtype=way.dtype)[:, None]
    below = (ends - starts).clamp(0, 1)
    return torch.cat([below[:, :1], below.diff(dim=1)], 1)
