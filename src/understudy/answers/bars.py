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
from understudy.answers.release import Noisy, Numbers, Release, Z
from understudy.answers.tails import Mixture, level_means
from understudy.data.column import Categorical, Column, Integer, Real
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
    release: Release, places: Sequence[int], boxes: Sequence[Box], pieces: Pieced
) -> Noisy | str:
    """The released counts of these columns where the boxes allow them, or why there are
    none.
    """
    also = [j for j in pieces if j not in places]
    found = release.joint([*places, *also])
    if found is None:
        return "these columns were not measured together"
    mask = np.zeros(found.counts.shape, dtype=np.bool_)
    for box in boxes:
        own = np.ones((), dtype=np.bool_)
        for j in (*places, *also):
            allowed = np.ones(release.levels.sizes[j], bool)
            if j in box:
                inside = np.bincount(pieces[j].level, weights=box[j])
                every = np.bincount(pieces[j].level)
                if ((inside > 0) & (inside < every)).any():
                    return (
                        "the condition cuts a level, and levels are what was measured"
                    )
                allowed = inside > 0
            own = own[..., None] & allowed
        mask |= own
    rest = tuple(range(len(places), len(places) + len(also)))
    return found.where(mask).sum(rest) if rest else found.where(mask)


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
    places: Sequence[int],
    fit: Numbers,
    found: "ReleasedMarginals",
    levels: Levels,
    release: Release | None = None,
) -> list[Figure]:
    """What a table of counts says in single numbers; a mean's interval with the
    `release` has its tails'.
    """
    columns = [levels.schema.columns[place] for place in places]
    there = tuple(
        slice(0, size - column.nullable)
        for size, column in zip(fit.shape, columns, strict=True)
    )
    values = [_level_values(levels, place) for place in places]
    made = [_total(fit, found.total)]
    for axis, (column, own) in enumerate(zip(columns, values, strict=True)):
        if own is not None:
            rest = tuple(other for other in range(len(columns)) if other != axis)
            part = fit.sum(rest)[there[axis]]
            noisy = _part(found.each[axis], (there[axis],))
            low, high = bounds(levels.pieces(places[axis]))
            ends = float(low.min()), float(high.max())
            made.append(
                _mean_figure(
                    f"mean of {column.name}",
                    own,
                    part,
                    noisy,
                    ends,
                    places[axis],
                    release,
                )
            )
            for title, q in _QUANTILES.items():
                made.append(
                    quantile_figure(
                        f"{title} of {column.name}",
                        q,
                        part,
                        noisy,
                        levels,
                        places[axis],
                        release,
                    )
                )
    if len(columns) != 2:
        return made
    part = fit[there]
    noisy = _part(found.table, there)
    both = f"of {columns[0].name} and {columns[1].name}"
    if values[0] is not None and values[1] is not None:
        made.append(
            _figure(
                f"correlation {both}",
                _pearson(values[0], values[1]),
                part,
                noisy,
                np.sum,
                (-1.0, 1.0),
            )
        )
    made.append(_cramer(f"Cramér's V {both}", part, noisy))
    if part.shape == (2, 2):
        made.append(
            _figure(
                f"odds ratio {both}",
                _log_odds,
                part,
                noisy,
                lambda own: own,
                _ANY,
                math.exp,
            )
        )
    return made


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
        release: Release,
        places: Sequence[int],
        boxes: Sequence[Box],
        pieces: Pieced,
    ) -> "ReleasedMarginals":
        wanted = (places, [], *([place] for place in places))
        table, total, *each = (
            released_table(release, some, boxes, pieces) for some in wanted
        )
        return cls(table, each, total)


def _part(found: Noisy | str, there: tuple[slice, ...]) -> Noisy | str:
    if isinstance(found, str):
        return found
    return Noisy(found.counts[there], found.variance[there], found.whole)


def _total(fit: Numbers, found: Noisy | str) -> Figure:
    if isinstance(found, str):
        return Figure("people", float(fit.sum()), why=found)
    count = float(found.counts)
    half = float(found.half)
    return Figure(
        "people",
        float(fit.sum()),
        count,
        float(found.deviation),
        count - half,
        count + half,
    )


def _figure(
    name: str,
    function: Callable[[Tensor], Tensor],
    fit: Numbers,
    found: Noisy | str,
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

    said = applied(float(function(torch.from_numpy(np.ascontiguousarray(fit)))))
    if isinstance(found, str):
        return Figure(name, said, why=found)
    if not (divisors(found.counts) > _CLEAR * np.sqrt(divisors(found.variance))).all():
        return Figure(name, said, why=_UNCLEAR)
    counts = torch.tensor(found.counts, requires_grad=True)
    noise = torch.from_numpy(found.variance.copy())
    value = function(counts)
    (slope,) = torch.autograd.grad(value, counts)
    level = float(value.detach())
    variance = float((slope.square() * noise).sum()) + more
    if alone is not None:
        extra = alone(counts.detach(), noise)
        level = max(0.0, level - float(extra.sum()))
        variance = variance + 2 * float(extra.square().sum())
    if not math.isfinite(applied(level)) or not math.isfinite(variance):
        return Figure(name, said, why=_NO_SPREAD)
    sd = math.sqrt(variance)
    low, middle, high = (applied(level + step * sd) for step in (-Z, 0.0, Z))
    low_cut, middle, high_cut = (
        min(max(end, ends[0]), ends[1]) for end in (low, middle, high)
    )
    return Figure(name, said, middle, (high - low) / (2 * Z), low_cut, high_cut)


def _mean_figure(
    name: str,
    values: Numbers,
    fit: Numbers,
    found: Noisy | str,
    ends: _Ends,
    place: int,
    release: Release | None,
) -> Figure:
    """A mean: by the fit with the values that it draws, as released with what is known
    of each level's mean.
    """
    if release is None or isinstance(found, str):
        return _figure(name, _mean(values), fit, found, np.sum, ends)
    known = level_means(release, place, values, found)
    if release.has_found_bounds(place):
        ends = _ANY
    made = _figure(name, _mean(known.mean), fit, found, np.sum, ends)
    made = replace(
        made, fit=float(_mean(values)(torch.from_numpy(np.ascontiguousarray(fit))))
    )
    if math.isnan(made.released):
        return made
    level = np.ones(len(found.counts), dtype=np.bool_)
    level[list(known.tails)] = False
    total = float(found.counts.sum())
    centre = float(found.counts @ known.mean) / total
    apart = known.mean - centre
    variance = (found.variance * apart**2 + found.counts**2 * known.variance)[
        level
    ].sum()
    above = Mixture(
        np.ones(1),
        np.array([(found.counts * apart)[level].sum()]),
        np.array([variance]),
    )
    for tail in known.tails.values():
        above = above.plus(tail.above(centre))
    low, middle, high = (
        centre + above.quantile(q) / total for q in (_BELOW, 0.5, 1 - _BELOW)
    )
    low, middle, high = (min(max(end, ends[0]), ends[1]) for end in (low, middle, high))
    return replace(made, released=middle, sd=(high - low) / (2 * Z), low=low, high=high)


def quantile_figure(
    name: str,
    q: float,
    fit: Numbers,
    found: Noisy | str,
    levels: Levels,
    place: int,
    release: Release | None = None,
) -> Figure:
    """A quantile of a numeric column: by the fit, and as released, between the edges
    that the noise leaves possible.
    """
    pieces = levels.pieces(place)
    low, high = bounds(pieces)
    level = pieces.level[: pieces.there]
    lowest = np.full(len(fit), np.inf)
    highest = np.full(len(fit), -np.inf)
    np.minimum.at(lowest, level, low)
    np.maximum.at(highest, level, high)
    order = np.argsort(lowest)

    def value(counts: Numbers) -> float:
        heap = np.maximum.accumulate(np.cumsum(counts[order]).clip(0, counts.sum()))
        rising = np.empty(len(order))
        rising[order] = np.diff(heap, prepend=0.0) / heap[-1]
        return float(
            quantile_of(pieces, rising[level] * pieces.share[: pieces.there], q)
        )

    said = value(fit) if fit.sum() > 0 else math.nan
    if isinstance(found, str):
        return Figure(name, said, why=found)
    total = found.counts.sum()
    noise = found.variance.sum()
    if not total > _CLEAR * math.sqrt(noise):
        return Figure(name, said, why=_UNCLEAR)
    heap = np.cumsum(found.counts[order])
    spread = np.cumsum(found.variance[order])
    square = (1 - q) ** 2 * spread + q**2 * (noise - spread)
    less = heap - q * total
    half = Z * np.sqrt(square)
    lows = lowest[order]
    highs = highest[order]
    most = less + half
    least = less - half
    inside = _inside(release, place, found)
    if inside is not None:
        own, begin, below, above, everybody = inside
        # a node's noise is in its level's too, of which a share is taken away: the sum
        # of both is no less than it is
        up = less[own] - found.counts[own] + below.counts
        down = less[own] - above.counts
        up_half = Z * np.sqrt(
            square[own] + below.variance + (2 * q - 1) * found.variance[own]
        )
        down_half = Z * np.sqrt(square[own] + above.variance)
        # by the nodes below, or by those above, whichever have less noise
        if everybody:
            by = up_half < down_half
            less = np.where(by, up, down)
            half = np.where(by, up_half, down_half)
            more = less + half
            fewer = less - half
        else:
            # no more than all people lie above it; and it lies above the last level's
            # beginning
            more = np.full(len(own), np.inf)
            fewer = np.maximum(
                down - down_half, least[-2] if len(least) > 1 else -np.inf
            )
        lows = np.sort(np.append(lows, low[begin]))
        by = np.argsort(np.append(highs, low[begin]), kind="stable")
        highs, most, least = (
            np.append(a, b)[by]
            for a, b in ((highs, low[begin]), (most, more), (least, fewer))
        )
    first = int(np.argmax(most >= 0))
    last = int(np.flatnonzero(np.append(-1.0, least[:-1]) <= 0)[-1])
    end = 0.5 if pieces.edges is not None and pieces.edges.dtype.kind == "i" else 0.0
    ends = float(lows[first]) + end, float(highs[last]) - end
    middle = min(max(value(found.counts), ends[0]), ends[1])
    return Figure(name, said, middle, (ends[1] - ends[0]) / (2 * Z), *ends)


def _inside(
    release: Release | None, place: int, found: Noisy
) -> tuple[Any, Any, Noisy, Noisy, bool] | None:
    """Where nodes of its tree cut a level: the level, the piece, and all people of the
    level below and above. And whether all people were `found`; of some of them only the
    last level is cut.
    """
    if (
        release is None
        or (every := release.joint([place])) is None
        or (nodes := release.nodes(place)) is None
    ):
        return None
    begin, level, counted = nodes
    everybody = np.array_equal(every.counts[: len(found.counts)], found.counts)
    cut = np.flatnonzero(
        (level[1:] == level[:-1]) & (everybody | (level[1:] == level[-1]))
    )
    counts, noise = (
        np.append(0.0, np.cumsum(own)) for own in (counted.counts, counted.variance)
    )
    start = np.searchsorted(level, level[cut])
    end = np.searchsorted(level, level[cut], side="right")
    sides = ((start, cut + 1), (cut + 1, end))
    below, above = (
        Noisy(counts[b] - counts[a], noise[b] - noise[a], whole=True) for a, b in sides
    )
    return level[cut], begin[cut + 1], below, above, everybody


def _mean(values: Numbers) -> Callable[[Tensor], Tensor]:
    own = torch.from_numpy(values)
    return lambda counts: counts @ own / counts.sum()


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


def _cramer(name: str, fit: Numbers, found: Noisy | str) -> Figure:
    """V without what noise alone adds: on independent columns noise looks like
    dependence. An interval begins at 0.
    """
    fewest = min(fit.shape) - 1

    def through(square: float) -> float:
        return math.sqrt(max(0.0, square) / fewest) if fewest else math.nan

    def sides(own: Numbers) -> Numbers:
        return np.concatenate([own.sum(0), own.sum(1)])

    def alone(counts: Tensor, noise: Tensor) -> Tensor:
        return noise / torch.outer(counts.sum(1), counts.sum(0))

    return _figure(name, _square, fit, found, sides, (0.0, 1.0), through, alone)


def _level_values(levels: Levels, place: int) -> Numbers | None:
    """The mean value of each level of a numeric column, None for any other."""
    column: Column = levels.schema.columns[place]
    texts = isinstance(column, Categorical) and isinstance(column.categories[0], str)
    if texts or not isinstance(column, Integer | Real | Categorical):
        return None
    pieces = levels.pieces(place)
    low, high = number_bounds(pieces)
    level = pieces.level[: pieces.there]
    share = pieces.share[: pieces.there]
    size = levels.sizes[place] - column.nullable
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
        cls, fitted: Tensor, released: Tensor, noise: Tensor, sizes: Sequence[int]
    ) -> "Missed":
        """From counts of the fit and of the release, and the deviation of its noise:
        all (width, width), symmetric.
        """
        columns = functional.one_hot(
            torch.repeat_interleave(torch.tensor(sizes))
        ).double()
        heard = (noise.isfinite() & (noise > 0) & (columns @ columns.T == 0)).triu()
        # as `Noisy.half`
        half = (Z * torch.where(heard, noise, 0) - 0.5).ceil().clamp(min=0)
        beyond = heard & ((fitted - released).abs() > half)
        cells, outside = (
            columns.T @ mask.double() @ columns for mask in (heard, beyond)
        )
        each = [
            (int(n), int(k))
            for n, k in zip(cells[cells > 0], outside[cells > 0], strict=True)
        ]
        missed = sum(is_beyond_chance(n, k) for n, k in each)
        return cls(len(each), missed, int(cells.sum()), int(outside.sum()))

    @property
    def card(self) -> dict[str, Any]:
        """What a generator's card says of it, with a warning where it is a failure of
        the fit; nothing of no tables.
        """
        if not self.tables:
            return {}
        said = (
            f"The fit misses {self.missed:,} of {self.tables:,} released pairs of "
            "columns"
        )
        poor = {}
        if is_beyond_chance(self.tables, self.missed, _ALARM):
            poor = {
                "warning": (
                    f"{said}, and the truth would miss one in twenty at most: do "
                    "not rely on its pairs."
                )
            }
        return {"fit": {**asdict(self), "said": f"{said}."}} | poor


def is_beyond_chance(many: int, some: int, level: float = _CHANCE) -> bool:
    """Whether as many of so many, each with a chance of 5 %, or more, are less likely
    than `level` themselves.
    """
    from scipy.special import bdtrc  # which no answer needs

    return some > 0 and float(bdtrc(some - 1, many, _CHANCE)) < level
