"""Error bars: what was released of a table, and figures of it, each beside what the fit
says.

The bars are the noise alone (`release.Noisy`); those of a mean of a bought column have
besides what is not known of the values inside its levels (`answers.tails`). Where the
fit's residuals are larger than noise explains, the rest is its own error, and is called
its bias.

A figure (a mean, an odds ratio, a correlation) is a smooth function of counts. Its
deviation is to first order that of the counts times its slope (the delta method). Where
a count that it divides by does not stand out of the noise by `_CLEAR` deviations, a
released figure would be noise, and there is none.

The interval of a quantile is found by asking of every edge between levels, and of every
node of a tree inside them, whether the share q of people may lie below it: C − qN, the
people below less that share of all, is a sum of counts, of which the noise is known.
The interval begins where the first cell does whose upper edge may have so many below
it, and ends where the last one does whose lower edge may have no more. Of some of the
people, by a condition, levels alone were counted; they are no more than all people, of
whom nodes tell how few lie far out.

*Missed pairs.* A cell is *outside* where the fit's count is not within the cell's own
95 % interval, that of the noise alone. A table is *missed* where it has so many outside
that the truth would have as many in fewer than one table of twenty: the binomial law,
of as many cells as the table has, each with a chance of 5 %. So of the truth one table
in twenty is missed at most, and of a fit, which follows the counts, fewer. More than
that, by the same law and less likely than one in a hundred, is a failure of the fit,
and not of the noise. A count that is exact, or was not released, is none; without any,
there are no tables.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.answers.completing import bounds, number_bounds, quantile_of
from understudy.answers.question import Box, Levels
from understudy.answers.release import Noisy, Numbers, TableRelease, Z
from understudy.answers.tails import Mixture, level_means
from understudy.data.column import Categorical, Column, Integer, Real
from understudy.data.encoding.codec import Levels as BoughtLevels
from understudy.data.encoding.values import Pieced

_CLEAR = 3.0
_BELOW = 0.025  # the share of an interval's law that lies below it, and above
# of a cell of the truth to lie outside, and of a table of the truth to be missed
_CHANCE = 0.05
# of as many tables of the truth to be missed, that a warning is given for no reason
_ALARM = 0.01
_Ends = tuple[float, float]
_ANY: _Ends = (-math.inf, math.inf)
_QUANTILES = {"median": 0.5, "95 % quantile": 0.95}
_UNCLEAR = "a count that it divides by does not stand out of the noise"
_NO_SPREAD = "all who were counted are alike in one of the columns"


def released_table(
    release: TableRelease,
    positions: Sequence[int],
    boxes: Sequence[Box],
    pieces: Pieced,
) -> Noisy | str:
    """The released counts of these columns where the boxes allow them, or why there are
    none.
    """
    condition_columns = [j for j in pieces if j not in positions]
    joint = release.joint([*positions, *condition_columns])
    if joint is None:
        return "these columns were not measured together"
    mask = np.zeros(joint.counts.shape, dtype=np.bool_)
    for box in boxes:
        allowed_cells = np.ones((), dtype=np.bool_)
        for j in (*positions, *condition_columns):
            allowed = np.ones(release.levels.sizes[j], bool)
            if j in box:
                inside = np.bincount(pieces[j].level, weights=box[j])
                total_share = np.bincount(pieces[j].level)
                if ((inside > 0) & (inside < total_share)).any():
                    return (
                        "the condition cuts a level, and levels are what was measured"
                    )
                allowed = inside > 0
            allowed_cells = allowed_cells[..., None] & allowed
        mask |= allowed_cells
    rest = tuple(range(len(positions), len(positions) + len(condition_columns)))
    return joint.where(mask).sum(rest) if rest else joint.where(mask)


@dataclass(frozen=True)
class Figure:
    """One figure: by the fit, and as released with its bars; NaN where there is none,
    and then `why`.
    """

    name: str
    fit: float
    released: float = math.nan
    sd: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""


def figures(
    positions: Sequence[int],
    fit: Numbers,
    marginals: "ReleasedMarginals",
    levels: Levels,
    release: TableRelease | None = None,
) -> list[Figure]:
    """What a table of counts says in single numbers; a mean's interval with the
    `release` has its tails'.
    """
    columns = [levels.schema.columns[position] for position in positions]
    present = tuple(
        slice(0, size - column.nullable)
        for size, column in zip(fit.shape, columns, strict=True)
    )
    values = [_level_values(levels, position) for position in positions]
    computed = [_total(fit, marginals.total)]
    for axis, (column, values_of_axis) in enumerate(zip(columns, values, strict=True)):
        if values_of_axis is not None:
            rest = tuple(other for other in range(len(columns)) if other != axis)
            part = fit.sum(rest)[present[axis]]
            noisy = _part(marginals.each[axis], (present[axis],))
            low, high = bounds(levels.pieces(positions[axis]))
            ends = float(low.min()), float(high.max())
            computed.append(
                _mean_figure(
                    f"mean of {column.name}",
                    values_of_axis,
                    part,
                    noisy,
                    ends,
                    positions[axis],
                    release,
                )
            )
            for title, q in _QUANTILES.items():
                computed.append(
                    quantile_figure(
                        f"{title} of {column.name}",
                        q,
                        part,
                        noisy,
                        levels,
                        positions[axis],
                        release,
                    )
                )
    if len(columns) != 2:
        return computed
    part = fit[present]
    noisy = _part(marginals.table, present)
    of_both = f"of {columns[0].name} and {columns[1].name}"
    if values[0] is not None and values[1] is not None:
        computed.append(
            _figure(
                f"correlation {of_both}",
                _pearson(values[0], values[1]),
                part,
                noisy,
                np.sum,
                (-1.0, 1.0),
            )
        )
    computed.append(_cramer(f"Cramér's V {of_both}", part, noisy))
    if part.shape == (2, 2):
        computed.append(
            _figure(
                f"odds ratio {of_both}",
                _log_odds,
                part,
                noisy,
                lambda values_of_axis: values_of_axis,
                _ANY,
                math.exp,
            )
        )
    return computed


@dataclass(frozen=True)
class ReleasedMarginals:
    """What was released: of a table, of each of its columns by itself, and of all
    people who meet the condition.
    """

    table: Noisy | str
    each: Sequence[Noisy | str]
    total: Noisy | str

    @classmethod
    def from_release(
        cls,
        release: TableRelease,
        places: Sequence[int],
        boxes: Sequence[Box],
        pieces: Pieced,
    ) -> "ReleasedMarginals":
        wanted = (places, [], *([place] for place in places))
        table, total, *each = (
            released_table(release, some, boxes, pieces) for some in wanted
        )
        return cls(table, each, total)


def _part(released: Noisy | str, present: tuple[slice, ...]) -> Noisy | str:
    if isinstance(released, str):
        return released
    return Noisy(released.counts[present], released.variance[present], released.whole)


def _total(fit: Numbers, released: Noisy | str) -> Figure:
    if isinstance(released, str):
        return Figure("people", float(fit.sum()), why=released)
    count = float(released.counts)
    half = float(released.half)
    return Figure(
        "people",
        float(fit.sum()),
        count,
        float(released.deviation),
        count - half,
        count + half,
    )


def _figure(
    name: str,
    function: Callable[[Tensor], Tensor],
    fit: Numbers,
    released: Noisy | str,
    divisors: Callable[[Numbers], Any],
    ends: _Ends,
    through: Callable[[float], float] = float,
    alone: Callable[[Tensor, Tensor], Tensor] | None = None,
    more: float = 0.0,
) -> Figure:
    """A function of counts, with its deviation to first order. `divisors` are the
    counts that it divides by. The interval is that of the function, and goes with it
    `through` to the figure. It is cut to what is possible: to between the `ends`.
    `alone` is what noise of this variance adds by itself, cell by cell: it is taken
    away. `more` is variance besides that of the noise.
    """

    def applied(value: float) -> float:
        return through(value) if math.isfinite(value) else math.nan

    fitted = applied(float(function(torch.from_numpy(np.ascontiguousarray(fit)))))
    if isinstance(released, str):
        return Figure(name, fitted, why=released)
    if not (
        divisors(released.counts) > _CLEAR * np.sqrt(divisors(released.variance))
    ).all():
        return Figure(name, fitted, why=_UNCLEAR)
    counts = torch.tensor(released.counts, requires_grad=True)
    noise = torch.from_numpy(released.variance.copy())
    value = function(counts)
    (slope,) = torch.autograd.grad(value, counts)
    value_of_release = float(value.detach())
    variance = float((slope.square() * noise).sum()) + more
    if alone is not None:
        extra = alone(counts.detach(), noise)
        value_of_release = max(0.0, value_of_release - float(extra.sum()))
        variance = variance + 2 * float(extra.square().sum())
    if not math.isfinite(applied(value_of_release)) or not math.isfinite(variance):
        return Figure(name, fitted, why=_NO_SPREAD)
    sd = math.sqrt(variance)
    low, middle, high = (applied(value_of_release + step * sd) for step in (-Z, 0.0, Z))
    low_cut, middle, high_cut = (
        min(max(end, ends[0]), ends[1]) for end in (low, middle, high)
    )
    return Figure(
        name,
        fitted,
        middle,
        (high - low) / (2 * Z),
        low_cut,
        high_cut,
    )


def _mean_figure(
    name: str,
    values: Numbers,
    fit: Numbers,
    released: Noisy | str,
    limits: _Ends,
    position: int,
    release: TableRelease | None,
) -> Figure:
    """A mean: by the fit with the values that it draws, as released with what is known
    of each level's mean.
    """
    if release is None or isinstance(released, str):
        return _figure(
            name,
            _mean(values),
            fit,
            released,
            np.sum,
            limits,
        )
    means = level_means(release, position, values, released)
    if release.has_found_bounds(position):
        limits = _ANY
    figure = _figure(
        name,
        _mean(means.mean),
        fit,
        released,
        np.sum,
        limits,
    )
    figure = replace(
        figure,
        fit=float(_mean(values)(torch.from_numpy(np.ascontiguousarray(fit)))),
    )
    if math.isnan(figure.released):
        return figure
    bought = release.levels
    if isinstance(bought, BoughtLevels) and position in bought.inner:
        return _narrow_mean(figure, bought.inner[position])
    level = np.ones(len(released.counts), dtype=np.bool_)
    level[list(means.tails)] = False
    total = float(released.counts.sum())
    centre = float(released.counts @ means.mean) / total
    apart = means.mean - centre
    variance = (released.variance * apart**2 + released.counts**2 * means.variance)[
        level
    ].sum()
    above = Mixture(
        np.ones(1),
        np.array([(released.counts * apart)[level].sum()]),
        np.array([variance]),
    )
    for tail in means.tails.values():
        above = above.plus(tail.above(centre))
    low, middle, high = (
        centre + above.quantile(q) / total for q in (_BELOW, 0.5, 1 - _BELOW)
    )
    low, middle, high = (
        min(max(end, limits[0]), limits[1]) for end in (low, middle, high)
    )
    return replace(
        figure,
        released=middle,
        sd=(high - low) / (2 * Z),
        low=low,
        high=high,
    )


def _narrow_mean(figure: Figure, law: Numbers) -> Figure:
    """The mean of a narrow column, by its law within its cells, whose noise is not
    known further than to both ends.
    """
    numbers, below = law.T
    middle = np.diff(below) @ (numbers[1:] + numbers[:-1]) / 2
    low, high = numbers[[0, -1]].tolist()
    return replace(
        figure,
        released=float(middle),
        sd=(high - low) / (2 * Z),
        low=low,
        high=high,
    )


def quantile_figure(
    name: str,
    q: float,
    fit: Numbers,
    released: Noisy | str,
    levels: Levels,
    position: int,
    release: TableRelease | None = None,
) -> Figure:
    """A quantile of a numeric column: by the fit, and as released, between the edges
    that the noise leaves possible.
    """
    pieces = levels.pieces(position)
    cells = levels.cells(position)
    low, high = bounds(cells)
    level = cells.level[: cells.there]
    lowest = np.full(len(fit), np.inf)
    highest = np.full(len(fit), -np.inf)
    np.minimum.at(lowest, level, low)
    np.maximum.at(highest, level, high)
    order = np.argsort(lowest)

    def value(counts: Numbers) -> float:
        heap = np.maximum.accumulate(np.cumsum(counts[order]).clip(0, counts.sum()))
        rising = np.empty(len(order))
        rising[order] = np.diff(heap, prepend=0.0) / heap[-1]
        of_pieces = rising[pieces.level[: pieces.there]]
        return float(quantile_of(pieces, of_pieces * pieces.share[: pieces.there], q))

    fitted = value(fit) if fit.sum() > 0 else math.nan
    if isinstance(released, str):
        return Figure(name, fitted, why=released)
    total = released.counts.sum()
    noise = released.variance.sum()
    if not total > _CLEAR * math.sqrt(noise):
        return Figure(name, fitted, why=_UNCLEAR)
    heap = np.cumsum(released.counts[order])
    spread = np.cumsum(released.variance[order])
    square = (1 - q) ** 2 * spread + q**2 * (noise - spread)
    less = heap - q * total
    half = Z * np.sqrt(square)
    lows = lowest[order]
    highs = highest[order]
    upper_excess = less + half
    lower_excess = less - half
    inside = _inside(release, position, released)
    if inside is not None:
        cut_levels, cut_pieces, below, above, is_everybody = inside
        # a node's noise is in its level's too, of which a share is taken away: the sum
        # of both is no less than it is
        up = less[cut_levels] - released.counts[cut_levels] + below.counts
        down = less[cut_levels] - above.counts
        up_half = Z * np.sqrt(
            square[cut_levels]
            + below.variance
            + (2 * q - 1) * released.variance[cut_levels]
        )
        down_half = Z * np.sqrt(square[cut_levels] + above.variance)
        # by the nodes below, or by those above, whichever have less noise
        if is_everybody:
            by = up_half < down_half
            less = np.where(by, up, down)
            half = np.where(by, up_half, down_half)
            more = less + half
            fewer = less - half
        else:
            # no more than all people lie above it; and it lies above the last level's
            # beginning
            more = np.full(len(cut_levels), np.inf)
            has_level_below = len(lower_excess) > 1
            least = lower_excess[-2] if has_level_below else -np.inf
            fewer = np.maximum(down - down_half, least)
        lows = np.sort(np.append(lows, low[cut_pieces]))
        by = np.argsort(np.append(highs, low[cut_pieces]), kind="stable")
        highs, upper_excess, lower_excess = (
            np.append(a, b)[by]
            for a, b in (
                (highs, low[cut_pieces]),
                (upper_excess, more),
                (lower_excess, fewer),
            )
        )
    first = int(np.argmax(upper_excess >= 0))
    last = int(np.flatnonzero(np.append(-1.0, lower_excess[:-1]) <= 0)[-1])
    half_step = (
        0.5 if pieces.edges is not None and pieces.edges.dtype.kind == "i" else 0.0
    )
    limits = float(lows[first]) + half_step, float(highs[last]) - half_step
    middle = min(max(value(released.counts), limits[0]), limits[1])
    return Figure(
        name,
        fitted,
        middle,
        (limits[1] - limits[0]) / (2 * Z),
        *limits,
    )


def _inside(
    release: TableRelease | None,
    position: int,
    released: Noisy,
) -> tuple[Any, Any, Noisy, Noisy, bool] | None:
    """Where nodes of its tree cut a level: the level, the piece, and all people of the
    level below and above. And whether all people were `released`; of some of them
    only the last level is cut.
    """
    if (
        release is None
        or (every := release.joint([position])) is None
        or (nodes := release.nodes(position)) is None
    ):
        return None
    begin, level, counted = nodes
    everybody = np.array_equal(every.counts[: len(released.counts)], released.counts)
    cut = np.flatnonzero(
        (level[1:] == level[:-1]) & (everybody | (level[1:] == level[-1]))
    )
    counts, noise = (
        np.append(0.0, np.cumsum(values))
        for values in (counted.counts, counted.variance)
    )
    start = np.searchsorted(level, level[cut])
    end = np.searchsorted(level, level[cut], side="right")
    sides = ((start, cut + 1), (cut + 1, end))
    below, above = (
        Noisy(counts[b] - counts[a], noise[b] - noise[a], whole=True) for a, b in sides
    )
    return level[cut], begin[cut + 1], below, above, everybody


def _mean(values: Numbers) -> Callable[[Tensor], Tensor]:
    level_values = torch.from_numpy(values)
    return lambda counts: counts @ level_values / counts.sum()


def _pearson(first: Numbers, second: Numbers) -> Callable[[Tensor], Tensor]:
    a = torch.from_numpy(first)
    b = torch.from_numpy(second)

    def correlation(counts: Tensor) -> Tensor:
        share = counts / counts.sum()
        x = a - share.sum(1) @ a
        y = b - share.sum(0) @ b
        spread = (share.sum(1) @ x.square()) * (share.sum(0) @ y.square())
        return x @ share @ y / spread.sqrt()

    return correlation


def _log_odds(counts: Tensor) -> Tensor:
    return (counts[0, 0].log() + counts[1, 1].log()) - (
        counts[0, 1].log() + counts[1, 0].log()
    )


def _square(counts: Tensor) -> Tensor:
    """φ²: the mean square contingency."""
    total = counts.sum()
    even = torch.outer(counts.sum(1), counts.sum(0)) / total
    return ((counts - even).square() / even.clamp(min=1e-300)).sum() / total


def _cramer(
    name: str,
    fit: Numbers,
    released: Noisy | str,
) -> Figure:
    """V without what noise alone adds: on independent columns noise looks like
    dependence. An interval begins at 0.
    """
    fewest = min(fit.shape) - 1

    def through(square: float) -> float:
        return math.sqrt(max(0.0, square) / fewest) if fewest else math.nan

    def sides(counts_by_cell: Numbers) -> Numbers:
        return np.concatenate([counts_by_cell.sum(0), counts_by_cell.sum(1)])

    def alone(counts: Tensor, noise: Tensor) -> Tensor:
        return noise / torch.outer(counts.sum(1), counts.sum(0))

    return _figure(
        name,
        _square,
        fit,
        released,
        sides,
        (0.0, 1.0),
        through,
        alone,
    )


def _level_values(levels: Levels, position: int) -> Numbers | None:
    """The mean value of each level of a numeric column, None for any other."""
    column: Column = levels.schema.columns[position]
    texts = isinstance(column, Categorical) and isinstance(column.categories[0], str)
    if texts or not isinstance(column, Integer | Real | Categorical):
        return None
    pieces = levels.pieces(position)
    low, high = number_bounds(pieces)
    level = pieces.level[: pieces.there]
    share = pieces.share[: pieces.there]
    size = levels.sizes[position] - column.nullable
    return np.bincount(level, weights=share * (low + high) / 2, minlength=size).astype(
        np.float64
    )


@dataclass(frozen=True)
class Missed:
    """Of so many released tables of pairs those that are missed, and of all their cells
    those that are outside.
    """

    tables: int
    missed: int
    cells: int
    outside: int

    @classmethod
    def from_counts(
        cls,
        fitted: Tensor,
        released: Tensor,
        noise: Tensor,
        sizes: Sequence[int],
    ) -> "Missed":
        """From counts of the fit and of the release, and the deviation of its noise:
        all (width, width), symmetric.
        """
        columns = functional.one_hot(
            torch.repeat_interleave(torch.tensor(sizes))
        ).double()
        measured = (noise.isfinite() & (noise > 0) & (columns @ columns.T == 0)).triu()
        # as `Noisy.half`
        half = (Z * torch.where(measured, noise, 0) - 0.5).ceil().clamp(min=0)
        beyond = measured & ((fitted - released).abs() > half)
        cells, outside = (
            columns.T @ mask.double() @ columns for mask in (measured, beyond)
        )
        tables = [
            (int(n), int(k))
            for n, k in zip(cells[cells > 0], outside[cells > 0], strict=True)
        ]
        missed = sum(is_beyond_chance(n, k) for n, k in tables)
        return cls(
            len(tables),
            missed,
            int(cells.sum()),
            int(outside.sum()),
        )

    @property
    def card(self) -> dict[str, Any]:
        """What a generator's card says of it, with a warning where it is a failure of
        the fit; nothing of no tables.
        """
        if not self.tables:
            return {}
        summary = (
            f"The fit misses {self.missed:,} of {self.tables:,} released pairs of "
            "columns"
        )
        poor = {}
        if is_beyond_chance(self.tables, self.missed, _ALARM):
            poor = {
                "warning": (
                    f"{summary}, and the truth would miss one in twenty at most: do "
                    "not rely on its pairs."
                )
            }
        return {"fit": {**asdict(self), "said": f"{summary}."}} | poor


def is_beyond_chance(
    n_cells: int,
    n_outside: int,
    level: float = _CHANCE,
) -> bool:
    """Whether as many of so many, each with a chance of 5 %, or more, are less likely
    than `level` themselves.
    """
    from scipy.special import bdtrc  # which no answer needs

    return n_outside > 0 and float(bdtrc(n_outside - 1, n_cells, _CHANCE)) < level
