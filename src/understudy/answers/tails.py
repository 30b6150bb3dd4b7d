"""The mean of each level of a bought column, among the people who were found in it, and
how well it is known.

A level of which a share r of the people is noise, and s the spread inside, has a mean
that is off by about r·s; of n of its N people, drawn without return, the mean is off by
s²(1/n − 1/N) in the square besides.

The first and the last level may be long, and fine cells far out hold fewer people than
their noise hides: what was counted there does not say where they are. But beyond a
threshold u nearly every law is a generalized Pareto law, S(x) = (1 + ξ(x −
u)/β)^(−1/ξ): ξ = −1 for even values, 0 for an exponential tail, 1/a for Pareto's
exponent a (Balkema, de Haan 1974; Pickands 1975). All (ξ, β) of a grid are weighed by
their likelihood given what was released: the levels from u on, and inside the last one
the nodes of its tree. Of some of the people, by a condition, the tail is S^(1 − b): all
b of a grid are weighed by the levels in which these people were found. Each law of the
grid is one part of a `Mixture`: how many people there are by the law and by their
count, and the mean of so many who are drawn from it, given where the largest of them
is, which decides of a heavy tail. An interval of the mixture's quantiles is as lopsided
as what is known. A number that many share, as the end of a scale, is no part of a tail:
it counts by itself.

Edges: no tail is heavier than ξ = 0.96 (a Pareto exponent of 1.04). Beyond a declared
bound there is nobody; bounds that were found hold nobody back: whoever lies beyond them
was counted in the last cell. But a column that was found on one side of zero is taken
to stay there. Without fine tables the value that stands for a level is taken as it is.
"""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.answers.completing import number_bounds
from understudy.answers.release import Noisy, Numbers, TableRelease
from understudy.data.column import Integer, Real

_SHAPES = np.linspace(-1.4667, 0.9589, 28)[:, None]  # ξ; by no 1 − b it is 0, ½ or 1
_SCALES = np.geomspace(0.02, 20, 100)  # β, in lengths from u to the level
_MORE = 4.0  # times as many people as in the level lie beyond u
# ξ before anything is known of it, and its deviation. Of five laws that
# benchmarks/answers does not report, (0.4, 0.4) put the means of light tails off by a
# quarter more, in intervals 5 % wider, and held them no oftener.
_USUAL = 0.2
_UNUSUAL = 0.5
_LEANS = np.linspace(-1.0, 0.6, 17)  # b
_LEAN = 0.4  # the deviation of b before anything is known of it
_TINY = 1e-12
_HEAVIEST = 0.97  # of some of the people, too: with 1 a law has no mean
# −2 log of the odds against the likeliest law: what is less likely is left out
_HARDLY = 20.0
_STEPS = np.array([0, 0.01, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 1])
# of the largest of some people
_RANKS = (_STEPS[1:] + _STEPS[:-1]) / 2
_CHANCES = np.diff(_STEPS)
_CLEAR = 5.0  # deviations of a cell's noise by which an atom stands out
_OUTSTANDING = 3.0  # times as dense as the next cells outwards is an atom, at least
# deviations: with fewer people besides atoms, and none drawn, there are none
_DOUBT = 2.0
_PARTS = 128  # of a mixture, of which another is added
_FEW_PARTS = 1024  # of a mixture, of which a quantile is asked
_HALVINGS = 60  # of where a quantile may lie

Places = NDArray[np.int64]
# of a release: where each begins, its level, its people
Nodes = tuple[Places, Places, Noisy]


@dataclass(frozen=True, eq=False)
class Mixture:
    """What is known of a number: normal laws, each with its weight (summing to 1), mean
    and variance.
    """

    weight: Numbers
    mean: Numbers
    variance: Numbers

    @property
    def middle(self) -> float:
        return float(self.weight @ self.mean)

    def scaled(self, factor: float) -> "Mixture":
        mean = factor * self.mean
        variance = factor**2 * self.variance
        return Mixture(self.weight, mean, variance)

    def plus(self, other: "Mixture") -> "Mixture":
        """The sum of two independent numbers."""
        left = self.merged(_PARTS)
        right = other.merged(_PARTS)
        weight = np.multiply.outer(left.weight, right.weight)
        mean = np.add.outer(left.mean, right.mean)
        variance = np.add.outer(left.variance, right.variance)
        return Mixture(weight.ravel(), mean.ravel(), variance.ravel())

    def merged(self, parts: int) -> "Mixture":
        """At most so many parts of about equal weight, with the same mean and variance
        as the parts in them.
        """
        order = np.argsort(self.mean, kind="stable")
        weight = self.weight[order]
        mean = self.mean[order]
        variance = self.variance[order]
        middle_of_part = np.cumsum(weight) - weight / 2
        rank = parts * middle_of_part
        group = np.minimum(rank.astype(np.int64), parts - 1)
        merged_weight = np.bincount(group, weight, parts).astype(np.float64)
        occupied = merged_weight > 0
        divisor = np.where(occupied, merged_weight, 1.0)
        merged_mean = np.bincount(group, weight * mean, parts) / divisor
        square = variance + (mean - merged_mean[group]) ** 2
        merged_variance = np.bincount(group, weight * square, parts) / divisor
        return Mixture(
            merged_weight[occupied],
            merged_mean[occupied],
            merged_variance[occupied],
        )

    def quantile(self, probability: float) -> float:
        """Where so much of the mixture lies below, by bisection."""
        from scipy.special import ndtr  # which few answers need

        coarse = self.merged(_FEW_PARTS)
        deviation = np.sqrt(np.maximum(coarse.variance, 0.0))
        far = 10 * deviation + _TINY
        divisor = np.maximum(deviation, 1e-300)
        low = float((coarse.mean - far).min())
        high = float((coarse.mean + far).max())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            apart = middle - coarse.mean
            below = np.where(deviation > 0, ndtr(apart / divisor), apart >= 0)
            if float(coarse.weight @ below) < probability:
                low = middle
            else:
                high = middle
        return (low + high) / 2


@dataclass(frozen=True, eq=False)
class TailLevel:
    """What is known of the people of a long level: for each of some laws its weight
    (summing to 1), how many people follow it, their mean, and the variances of both;
    and besides the people of single numbers that many share.
    """

    weight: Numbers
    people: Numbers
    people_variance: Numbers
    mean: Numbers
    mean_variance: Numbers
    atoms: float = 0.0
    atoms_mean: float = 0.0
    atoms_variance: float = 0.0  # of their number

    def mirrored(self) -> "TailLevel":
        return replace(self, mean=-self.mean, atoms_mean=-self.atoms_mean)

    def above(self, centre: float) -> Mixture:
        """By how much all people of the level lie above `centre`, added up."""
        apart = self.mean - centre
        atoms_apart = self.atoms_mean - centre
        by_number = self.people_variance * apart**2
        by_mean = self.people**2 * self.mean_variance
        variance = by_number + by_mean
        total = self.people * apart + self.atoms * atoms_apart
        return Mixture(
            self.weight,
            total,
            variance + self.atoms_variance * atoms_apart**2,
        )

    @property
    def middle(self) -> float:
        """The mean of all people of the level."""
        people = float(self.weight @ self.people) + self.atoms
        total = self.above(0.0).middle
        return total / max(people, _TINY)


@dataclass(frozen=True, eq=False)
class LevelMeans:
    """The mean of each level and its variance, and all that is known of levels that are
    tails.
    """

    mean: Numbers
    variance: Numbers
    tails: dict[int, TailLevel] = field(default_factory=dict)


def level_means(
    release: TableRelease,
    position: int,
    values: Numbers,
    released: Noisy,
) -> LevelMeans:
    """The mean of each level's people that were `released`; `values` stand for levels
    otherwise.
    """
    nodes = release.nodes(position)
    every = release.joint([position])
    if nodes is None or every is None:
        return LevelMeans(values, np.zeros_like(values))
    size = len(values)
    column = _Column.from_release(
        release,
        position,
        every.first(size),
        nodes,
    )
    chosen = released.first(size)
    is_everybody = np.array_equal(chosen.counts, every.counts[:size])
    means = LevelMeans(values.copy(), column.variance_inside(values, chosen))
    tails = {
        size - 1: column.last_level(chosen, is_everybody),
        0: column.mirrored().last_level(chosen.reversed(), is_everybody),
    }
    for level, tail in tails.items():
        if tail is not None:
            means.tails[level] = tail if level else tail.mirrored()
            means.mean[level] = means.tails[level].middle
    return means


@dataclass(frozen=True, eq=False)
class _Column:
    """A column's fine cells, nodes and levels, in rising order; mirrored (`sign` −1),
    the last level holds the smallest values. Nodes follow each other and make up all
    cells.
    """

    sign: int
    low: Numbers  # of each cell
    high: Numbers
    bound: tuple[float, float]  # outside of them there is nobody
    share: Numbers  # of each cell in its level
    level: Places  # of each cell
    people: Noisy  # of each level
    node_edges: Places  # the first cell of each node, and the number of cells
    nodes: Noisy

    @classmethod
    def from_release(
        cls,
        release: TableRelease,
        position: int,
        people: Noisy,
        nodes: Nodes,
    ) -> "_Column":
        begin, _, counted = nodes
        pieces = release.levels.cells(position)
        low, high = number_bounds(pieces)
        bound = float(low[0]), float(high[-1])
        # a column that was found on one side of zero is taken to stay there
        if release.has_found_bounds(position):
            column = release.levels.schema.columns[position]
            assert isinstance(column, Integer | Real)
            lower = -math.inf if column.low < 0 else min(bound[0], 0.0)
            upper = math.inf if column.high > 0 else max(bound[1], 0.0)
            bound = lower, upper
        level = pieces.level[: pieces.there].astype(np.int64)
        share = pieces.share[: pieces.there]
        return cls(
            sign=1,
            low=low,
            high=high,
            bound=bound,
            share=share,
            level=level,
            people=people,
            node_edges=np.append(begin, len(low)),
            nodes=counted,
        )

    def mirrored(self) -> "_Column":
        size = len(self.people.counts)
        cells = len(self.low)
        return _Column(
            sign=-self.sign,
            low=-self.high[::-1],
            high=-self.low[::-1],
            bound=(-self.bound[1], -self.bound[0]),
            share=self.share[::-1],
            level=size - 1 - self.level[::-1],
            people=self.people.reversed(),
            node_edges=cells - self.node_edges[::-1],
            nodes=self.nodes.reversed(),
        )

    @property
    def counts(self) -> Numbers:
        """The people of each level, of whom there is one at least."""
        return np.maximum(self.people.counts, 1.0)

    @property
    def noise(self) -> float:
        """The deviation of the noise in one node. Coins of held-out people add little
        to a node of few.
        """
        return math.sqrt(self.nodes.variance.min())

    def variance_inside(self, values: Numbers, some: Noisy) -> Numbers:
        """The variance of each level's mean, of `some` of its people, by the spread of
        what is drawn inside it.
        """
        size = len(values)
        low = self.low
        high = self.high
        # the mean square of a number that is even between two
        squares = (low**2 + low * high + high**2) / 3
        level_squares = np.bincount(self.level, self.share * squares, size)
        spread = np.maximum(level_squares - values**2, 0)
        level_of_node = self.level[self.node_edges[:-1]]
        noise_variance = np.bincount(level_of_node, self.nodes.variance, size)
        noise = noise_variance / self.counts**2
        n_chosen = np.maximum(some.counts, 1.0)
        sampling = 1 / n_chosen - 1 / self.counts
        sampling = np.maximum(sampling, 0)
        part = np.minimum(noise + sampling, 1)
        return np.asarray(spread * part)

    def atoms(self) -> Numbers:
        """The people of each cell that stands out of the noise and of the next cells
        outwards; 0 in all others. Nobody knows where in a last cell without bound they
        are.
        """
        people = self.share * self.counts[self.level]
        density = people / (self.high - self.low)
        padded = np.append(density, np.zeros(2))
        densest_next = np.maximum(padded[1:-1], padded[2:])
        standing = density > _OUTSTANDING * densest_next
        if math.isinf(self.bound[1]):
            standing[-1] = False
        clear = people > _CLEAR * self.noise
        return np.where(standing & clear, people, 0.0)

    def last_level(self, some: Noisy, is_everybody: bool) -> TailLevel | None:
        """What is known of the last level's people among `some` of all; None where it
        is no tail.
        """
        size = len(self.counts)
        first_cells = np.searchsorted(self.level, np.arange(size))
        edges = self.low[first_cells]
        start = self._tail_start()
        level_of_node = self.level[self.node_edges[:-1]]
        inside = np.flatnonzero(level_of_node == size - 1)
        if size < 2 or edges[-1] <= edges[start]:
            return None
        if len(inside) < 2 and math.isfinite(self.bound[1]):
            return None
        noise = self.noise**2
        atoms = self.atoms()
        is_last = self.level == size - 1
        last_atoms = atoms[is_last]
        in_level = np.bincount(self.level, atoms, size).astype(np.float64)
        in_node = np.add.reduceat(atoms, self.node_edges[inside])
        rest = self.counts[-1] - in_level[-1]
        doubtful = _DOUBT * math.sqrt(noise * len(inside))
        beside_atoms = is_last & (atoms == 0)
        if rest < doubtful and not self.share[beside_atoms].any():
            return None  # nobody is left besides atoms
        node_begins = self.low[self.node_edges[inside]]
        last_edge = [self.bound[1]]
        beyond = slice(start, None)
        measured = Tail(
            np.concatenate([edges[start:-1], node_begins, last_edge]),
            self.people.part(beyond).less(in_level[beyond]),
            self.nodes.part(inside).less(in_node),
        )
        if is_everybody:
            tail = tail_beyond(measured)
        else:
            left = 1 - in_level / self.counts
            chosen = some.part(beyond).times(left[beyond])
            tail = tail_beyond(measured, chosen)
        if not in_level[-1]:
            return tail
        double_middles = (self.low + self.high)[is_last]
        double_sum = float(last_atoms @ double_middles)
        part = float(some.counts[-1]) / self.counts[-1]
        n_atoms = float((last_atoms > 0).sum())
        return replace(
            tail,
            atoms=part * in_level[-1],
            atoms_mean=double_sum / (2 * in_level[-1]),
            atoms_variance=part**2 * n_atoms * noise,
        )

    def _tail_start(self) -> int:
        """The last level from which on there are several times as many people as in the
        last.
        """
        from_the_last = np.cumsum(self.counts[::-1])
        beyond = from_the_last[::-1]
        wanted = min(_MORE * beyond[-1], beyond[0])
        enough = np.flatnonzero(beyond[:-1] >= wanted)
        if not len(enough):
            return 0
        return int(enough[-1])


class Tail(NamedTuple):
    """What was counted beyond u: how many in each level, of which the last is the tail,
    and in each node of that. `edges` say where every level but the last, and every
    node, begins, and where the last node ends.
    """

    edges: Numbers
    levels: Noisy
    nodes: Noisy

    @property
    def first(self) -> int:
        """Which of the edges is the last level's."""
        return len(self.levels.counts) - 1


def tail_beyond(tail: Tail, some: Noisy | None = None) -> TailLevel:
    """What is known of the last level's people. `some`: how many of those who are meant
    were found in each level; without, everybody is meant.
    """
    edges = tail.edges
    first = tail.first
    above = edges - edges[0]
    shape, scale = np.broadcast_arrays(_SHAPES, _SCALES * above[first])
    # β of what is beyond each edge
    rest = scale + shape * above[:, None, None]
    rest = np.maximum(rest, 0.0)
    bases = np.maximum(rest, 1e-300) / scale
    beyond = np.where(rest > 0, bases ** (-1 / shape), 0.0)
    level_edges = np.append(np.arange(first + 1), len(edges) - 1)
    at_levels = beyond[level_edges]
    unlikely, expected = _weigh_laws(
        tail,
        shape,
        beyond,
        at_levels,
    )
    if some is None:
        people = tail.levels
        lean = np.zeros(1)
        unlikely = unlikely[None]
        expected = expected[None]
    else:
        people = some
        lean = _LEANS
        leaning_unlikely, expected = _weigh_leans(some, at_levels, first)
        unlikely = unlikely[None] + leaning_unlikely
        unlikely = unlikely + (lean[:, None, None] / _LEAN) ** 2
    leaning_shape = shape / (1 - lean[:, None, None])
    possible = leaning_shape <= _HEAVIEST
    unlikely = np.where(possible, unlikely, np.inf)
    likeliest = unlikely.min()
    likely = np.nonzero(unlikely - likeliest < _HARDLY)
    weight = np.exp((likeliest - unlikely[likely]) / 2)
    # how many there are by the law, as drawn people are, and as they were counted
    expected = np.maximum(expected[likely], 1.0)
    noise = float(people.variance[-1])
    by_count = expected / (expected + noise)
    surplus = people.counts[-1] - expected
    number = expected + by_count * surplus
    number = np.maximum(number, 1.0)
    # where they are, by the law S^(1 − b) beyond the edge `first`
    which_lean, *law_index = likely
    law = tuple(law_index)
    less = 1 - lean[which_lean]
    in_tail = np.maximum(beyond[first][law], 1e-300)
    past_bound = beyond[-1][law] / in_tail
    mean, variance = _mean_of_samples(
        shape=shape[law] / less,
        scale=rest[first][law] / less,
        outside=past_bound**less,
        people=number,
    )

    def for_each_rank(values: Numbers) -> Numbers:
        return np.broadcast_to(values[:, None], mean.shape)

    weights = for_each_rank(weight / weight.sum()) * _CHANCES
    return TailLevel(
        weight=weights.ravel(),
        people=for_each_rank(number).ravel(),
        people_variance=for_each_rank(by_count * noise).ravel(),
        mean=(float(edges[first]) + mean).ravel(),
        mean_variance=variance.ravel(),
    )


def _weigh_laws(
    tail: Tail,
    shape: Numbers,
    beyond: Numbers,
    at_levels: Numbers,
) -> tuple[Numbers, Numbers]:
    """−2 log of each law's odds by all that was counted, and the people that it expects
    in the last level.
    """
    level_shares = _shares(at_levels)
    node_shares = _shares(beyond)[tail.first :]
    counted = Noisy(
        np.append(tail.levels.counts, tail.nodes.counts),
        np.append(tail.levels.variance, tail.nodes.variance),
        whole=False,
    )
    shares = np.concatenate([level_shares, node_shares])
    unlikely, expected = _held_against(counted, shares, tail.first)
    unusual = ((shape - _USUAL) / _UNUSUAL) ** 2
    return unlikely + unusual, expected


def _weigh_leans(
    some: Noisy,
    at_levels: Numbers,
    last: int,
) -> tuple[Numbers, Numbers]:
    """The same of some people, by every b and every law: (b, ξ, β)."""
    unlikely = []
    expected = []
    for lean in _LEANS:
        shares = _shares(at_levels ** (1 - lean))
        unlikely_by_lean, expected_by_lean = _held_against(some, shares, last)
        unlikely.append(unlikely_by_lean)
        expected.append(expected_by_lean)
    return np.stack(unlikely), np.stack(expected)


def _shares(beyond: Numbers) -> Numbers:
    """The share of each bin, where so much of the law lies beyond each edge."""
    inside = beyond[:-1] - beyond[1:]
    total = np.maximum(beyond[0] - beyond[-1], _TINY)
    return np.asarray(inside / total)


def _held_against(
    counted: Noisy,
    shares: Numbers,
    last: int,
) -> tuple[Numbers, Numbers]:
    """−2 log likelihood of counts whose people are drawn by these shares, whatever
    their number, and how many are expected in the bin `last` by the likeliest number.
    """
    counts = counted.counts[:, None, None]
    noise = counted.variance[:, None, None]
    through_last = float(counted.counts[: last + 1].sum())
    total = max(through_last, 1.0)
    spread = noise + total * shares + 1.0
    information = (shares**2 / spread).sum(0)
    information = np.maximum(information, _TINY)
    weighted = (shares * counts / spread).sum(0)
    number = np.maximum(weighted / information, 1.0)
    residuals = counts - number * shares
    squares = residuals**2 / spread
    unlikely = (squares + np.log(spread)).sum(0) + np.log(information)
    return unlikely, number * shares[last]


def _mean_of_samples(
    shape: Numbers,
    scale: Numbers,
    outside: Numbers,
    people: Numbers,
) -> tuple[Numbers, Numbers]:
    """The mean of so many people drawn from each of these laws, of which a share lies
    `outside` of the bound, and the variance of that: for each law, and each place of
    the largest among them, (laws, places). A person lies where a share s of the law
    lies beyond, and s is even between that share and 1.
    """
    shape = shape[:, None]
    scale = scale[:, None]
    outside = outside[:, None]
    people = people[:, None]
    share_of_largest = 1 - (1 - _RANKS) ** (1 / people)
    largest = outside + (1 - outside) * share_of_largest
    factor = scale / shape
    largest_value = factor * (largest**-shape - 1)
    # of the others, who have s above that of the largest
    room = np.maximum(1 - largest, _TINY)
    first = 1 - shape
    second = 1 - 2 * shape
    first_moment = (1 - largest**first) / (first * room)
    second_moment = (1 - largest**second) / (second * room)
    others = people - 1
    others_mean = factor * (first_moment - 1)
    spread = second_moment - first_moment**2
    others_variance = factor**2 * np.maximum(spread, 0)
    mean = (largest_value + others * others_mean) / people
    return mean, others * others_variance / people**2
