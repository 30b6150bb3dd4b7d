"""The mean of each level of a bought column, among the people who were found in it, and how well it is known.

A level of which a share r of the people is noise, and s the spread inside, has a mean that is off by about r·s; of n
of its N people, drawn without return, the mean is off by s²(1/n − 1/N) in the square besides.

The first and the last level may be long, and fine cells far out hold fewer people than their noise hides: what was
counted there does not say where they are. But beyond a threshold u nearly every law is a generalized Pareto law,
S(x) = (1 + ξ(x − u)/β)^(−1/ξ): ξ = −1 for even values, 0 for an exponential tail, 1/a for Pareto's exponent a (Balkema,
de Haan 1974; Pickands 1975). It is held against what was released: the levels from u on, and inside the last one the
nodes of its tree. All (ξ, β) of a grid are weighed by their likelihood; the level's mean is the mean over them, and its
variance is theirs, and that of so many people drawn from such a law. Where some of the people lean to the far end, by
a condition, their tail is S^(1 − b): b is how their share of the levels grows, and is taken to be known to its half.

Edges: no tail is heavier than ξ = 0.74 (a Pareto exponent of 1.35); beyond the declared bound there is nobody. Without
fine tables the value that stands for a level is taken as it is.
"""

import math

import numpy as np

from understudy.answers.completing import number_bounds
from understudy.answers.release import Noisy, Numbers, Release

_SHAPES = np.linspace(-1.47, 0.74, 25)[:, None]  # ξ, never 0 nor ½, nor 1.5 times that
_SCALES = np.geomspace(0.02, 20, 100)  # β, in lengths from u to the level
_MORE = 4.0  # times as many people as in the level lie beyond u
_LEAN = 0.5  # b, at most
_TINY = 1e-12


def level_means(release: Release, place: int, values: Numbers, found: Noisy) -> tuple[Numbers, Numbers]:
    """The mean of each level's people that were `found`, and its variance; `values` stand for levels otherwise."""
    inside, every = release.nodes(place), release.joint([place])
    if inside is None or every is None:
        return values, np.zeros_like(values)
    cells, level, nodes = inside
    size, pieces = len(values), release.levels.pieces(place)
    low, high = number_bounds(pieces)
    square = pieces.share[: pieces.there] * (low**2 + low * high + high**2) / 3
    spread = np.maximum(np.bincount(pieces.level[: pieces.there], square, size) - values**2, 0)
    all_of, some = (np.maximum(own.counts[:size], 1.0) for own in (every, found))
    noise = np.bincount(level, nodes.variance, size) / all_of**2
    means, variance = values.copy(), spread * np.minimum(noise + np.maximum(1 / some - 1 / all_of, 0), 1)
    begin = np.searchsorted(pieces.level[: pieces.there], np.arange(size))
    for sign in (1, -1):  # the last level; the first one, seen from its other side
        edges = low[begin] if sign > 0 else -high[np.append(begin[1:], len(low)) - 1][::-1]
        own = slice(None, size) if sign > 0 else slice(size - 1, None, -1)
        end = size - 1 if sign > 0 else 0
        within = np.flatnonzero(level == end)[::sign]
        beyond = np.cumsum(all_of[::-sign])[::-1]
        start = int(np.flatnonzero(beyond[: size - 1] >= min(_MORE * beyond[-1], beyond[0]))[-1:].sum())
        if len(within) < 2 or size < 2 or edges[-1] <= edges[start]:
            continue
        last = np.append(np.sort(cells[level == end]), begin[end + 1] if end + 1 < size else len(low))
        tree = low[last[:-1]] if sign > 0 else -high[last[1:] - 1][::-1]
        bound = high[-1] if sign > 0 else -low[0]
        levels = Noisy(every.counts[own][start:-1], every.variance[own][start:-1], every.whole)
        noise_of = np.append(levels.variance, nodes.variance[within])
        counted = Noisy(np.append(levels.counts, nodes.counts[within]), noise_of, False)
        share = all_of[end] / beyond[start]
        lean, doubt = _lean(some[own][start:], found.variance[own][start:], all_of[own][start:], share)
        tail = (np.concatenate([edges[start:-1], tree, [bound]]), counted, size - 1 - start, beyond[start], some[end])
        mean, alone = mean_beyond(*tail, lean)
        means[end] = sign * mean
        aside = lean + doubt if lean + doubt <= _LEAN else lean - doubt  # at 1 there would be no law
        variance[end] = alone + ((mean_beyond(*tail, aside)[0] - mean) ** 2 if doubt else 0.0)
    return means, variance


def _lean(some: Numbers, noise: Numbers, all_of: Numbers, share: float) -> tuple[float, float]:
    """b, from the last level and those before it, and its deviation."""
    if np.array_equal(some, all_of) or share >= 1:
        return 0.0, 0.0
    before = max(float(some[:-1].sum()), 1.0)
    apart = -math.log(share) / (1 - share)  # of the mean −log S of the last level from that of those before it
    ratio = some[-1] / all_of[-1] * all_of[:-1].sum() / before
    lean = float(np.clip(math.log(ratio) / apart, -_LEAN, _LEAN))
    deviation = math.sqrt(noise[-1] / some[-1] ** 2 + float(noise[:-1].sum()) / before**2) / apart
    return lean, min(math.hypot(deviation, lean / 2), _LEAN)


def mean_beyond(
    edges: Numbers, counted: Noisy, first: int, total: float, people: float, lean: float = 0.0
) -> tuple[float, float]:
    """The mean of `people` who lie in the bins from `first` on, and its variance. u is where bins begin. `edges` (bins
    + 1,) say where bins begin and the last ends, `counted` how many of the `total` were counted in each."""
    shape, scale = _SHAPES, _SCALES * (edges[first] - edges[0])
    rest = np.maximum(scale + shape * (edges - edges[0])[:, None, None], 0.0)  # β of what is beyond each edge
    beyond = np.where(rest > 0, (np.maximum(rest, 1e-300) / scale) ** (-1 / shape), 0.0)
    expected = total * (beyond[:-1] - beyond[1:]) / np.maximum(beyond[0] - beyond[-1], _TINY)
    spread = counted.variance[:, None, None] + expected + 1.0
    missed = (counted.counts[:, None, None] - expected) ** 2 / spread + np.log(spread)
    weight = np.exp((missed.sum(0).min() - missed.sum(0)) / 2)
    weight /= weight.sum()
    # those who lean: S^(1 − b) is such a law, too
    shape, rest, beyond = np.minimum(shape / (1 - lean), 0.97), rest / (1 - lean), beyond ** (1 - lean)
    here, last, length = beyond[first], beyond[-1], edges[-1] - edges[first]
    excess = (rest[first] * here - rest[-1] * last) / (1 - shape) - length * last
    excess = np.clip(excess / np.maximum(here - last, _TINY), 0, length)
    # E x², without those of whom less than half a person is expected
    rare = 1 / (2 * people)
    square = (1 - rare ** (1 - 2 * shape)) / (1 - 2 * shape) - 2 * (1 - rare ** (1 - shape)) / (1 - shape) + 1
    drawn = np.clip((rest[first] / shape) ** 2 * square - excess**2, 0, excess * (length - excess)) / people
    mean = float((weight * excess).sum())
    return float(edges[first]) + mean, float((weight * ((excess - mean) ** 2 + drawn)).sum())
