"""The ends of a column's range: positions past which the counts speak for nobody.

Ages, rates and codes end abruptly. Past an end nobody is sampled. Each candidate is
tested by likelihood: let the fitted density have P people past it and B within a bin
before it. To move these P among the B must make the counts less likely by a factor of
at most exp(s − log⁺(P/ρB)). So a density that does not fall steeply needs more evidence
for an end, and so does one of which more than a share θ of B goes on. Among the
candidates nearly as likely (s) as the likeliest, the innermost is taken. Zero, as an
end of counts, and powers of ten from 1 on, as of rates, have a larger s. Where many
people are shortly before such a number, so that no tail begins there, or on it, it is
an end wherever the counts past it are as likely (s) with nobody there.

A density that does not fall towards its end is tested once more (`sharp_end`): the
innermost position that the counts do not speak against, if the people shortly before it
had an even density, or a rising one.

Source: likelihood ratio tests of the counts under Gaussian noise (Neyman and Pearson,
1933), over all positions at once, as for the change point of a mean (Page, Biometrika
1955).
Guarantee: reads released counts alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.models.tables.ordered_counts import Floats, Places, Ranges, cumulated
from understudy.models.tables.smooth_law import LAW, Law

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class EndSettings:
    """Where a law ends (benchmarks/numbers/NOTES.md: quantiles far out before and after
    ends were found).

    past: of all people, beyond an end at most. steep, thin (ρ, θ): how steeply a law
    falls, and how much of it goes on, where an end needs evidence.
    slack, round_slack (s): in log-likelihood, of any end and of zero and powers of ten.
    flat: of the highest density, shortly before an end at which no tail begins.
    cells: before a round end, which 0 and 1 are not of small counts.
    """

    past: float = 0.1
    steep: float = 0.05
    thin: float = 0.5
    slack: float = 1.5
    round_slack: float = 4.0
    flat: float = 0.2
    cells: int = 8


@dataclass(frozen=True)
class SharpEndSettings:
    """Where a law ends that does not fall towards its end, as of ages and rates
    (benchmarks/strangers/NOTES.md).

    window: σ of people before the end by whom it is found. rises: slopes of the
    logarithm of a density over that window that are tried.
    past, past_share: of the law's people beyond, at most, in σ and of all.
    tail: by so much more log-likelihood a law that falls is believed. slack: how much
    less likely than the likeliest an end may be that is further in. places: so many
    are tried, at most.
    """

    window: float = 15.0
    rises: tuple[float, ...] = (0.0, 0.7)
    past: float = 2.0
    past_share: float = 0.05
    tail: float = 2.0
    slack: float = 1.2
    places: int = 200


_ENDS = EndSettings()
_SHARP = SharpEndSettings()


@dataclass(frozen=True, eq=False)
class _Outward:
    """A law's leaves in the order towards one of its ends: the last one (`side` 1), or
    the first one (−1).
    """

    law: Law
    side: int

    @cached_property
    def people(self) -> Floats:
        return self.law.people()[:: self.side]

    @cached_property
    def is_spike(self) -> Flags:
        return (self.law.spikes > 0)[:: self.side]

    @cached_property
    def people_before(self) -> Floats:
        """The people before each edge."""
        return cumulated(self.people)

    @cached_property
    def smooth(self) -> Floats:
        """Those of them who are in no spike."""
        return cumulated(np.where(self.is_spike, 0, self.people))

    @cached_property
    def values(self) -> Floats:
        return self.side * self.law.column.edges[:: self.side]

    @cached_property
    def near(self) -> Floats:
        """Where the edges lie on the scale of the window before an end."""
        return self.side * self.law.near[:: self.side]

    def counted(self) -> Iterator[Ranges]:
        leaves = self.law.leaves
        for ranges in self.law.column.counted:
            places = ranges.places
            if self.side < 0:
                places = leaves - places[::-1]
            yield Ranges(
                places,
                ranges.counts[:: self.side],
                ranges.variance[:: self.side],
            )


class _Places(NamedTuple):
    """Edges that may be `ends`, each with the edge where the bin before it begins."""

    ends: Places
    begins: Places

    def within(self, below: Floats) -> Floats:
        """What lies in the bin before each end, from what lies below each edge."""
        within: Floats = below[self.ends] - below[self.begins]
        return within


def end(law: Law, side: int, again: bool) -> int:
    """Before which leaf nobody is any more to this side; all are before the last one's
    end where there is none. `again`: another end was found before, and a better one
    needs evidence.
    """
    out = _Outward(law, side)
    total = out.people_before[-1]
    past = total - out.people_before
    is_round = _is_round(out)
    most = np.where(is_round, 2 * _ENDS.past, _ENDS.past) * total
    ends = np.flatnonzero((past > 1e-9) & (past < most))
    ends = ends[ends > 0]
    if not len(ends):
        return law.leaves
    begins = np.searchsorted(out.near, out.near[ends] - LAW.bin_length)
    places = _Places(ends, np.minimum(begins, ends - 2).clip(min=0))
    past = past[ends]
    is_round = is_round[ends]
    before = places.within(out.people_before)
    gain, outside = _gains(out, places)
    if again:
        slack = np.full(len(ends), -_ENDS.slack)
    else:
        slack = np.where(is_round, _ENDS.round_slack, _ENDS.slack)

    goes_on = past * places.within(out.near)
    room = _ENDS.thin * before * (out.near[-1] - out.near[ends])
    allowed = np.where(is_round | (goes_on < room), slack, -np.abs(slack))
    ratio = past / before.clip(min=1e-9)
    with np.errstate(divide="ignore"):
        needed = np.log(ratio / _ENDS.steep).clip(min=0)
    is_likely = (ratio < 1) & (past < _ENDS.past * total)
    is_likely &= gain > needed - allowed
    is_sharp = _is_sharp(out, places, past) & is_round & (outside > -_ENDS.slack)
    if again:
        is_sharp[:] = False
    is_likely |= is_sharp
    if not is_likely.any():
        return law.leaves
    nearly_best = gain >= gain[is_likely].max() - slack.clip(min=0)
    chosen = is_likely & (is_sharp | nearly_best)
    return int(ends[chosen].min())


def _is_round(out: _Outward) -> Flags:
    """Which edges are zero, or powers of ten from 1 on."""
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.log10(out.values)
        is_power = np.abs(powers - np.rint(powers)) < 1e-9
        is_round = (out.values == 0) | is_power & (powers > -0.5)
    if out.side > 0:
        # the last cell within is that number
        return np.append(False, is_round[:-1])
    return np.asarray(is_round)


def _is_sharp(out: _Outward, places: _Places, past: Floats) -> Flags:
    """Before which edges many people are shortly before the end, or on it."""
    law = out.law
    last = places.ends - 1
    spike = np.where(out.is_spike[last], out.people[last], 0)
    lengths = np.diff(np.interp(law.bins, law.scale, law.column.edges))
    highest = (np.exp(law.logs) / lengths).max()
    dense = _ENDS.flat * highest * places.within(out.values)
    is_dense = places.within(out.smooth) > dense
    # 0 and 1 tell nothing of who is above
    is_small = (places.ends <= _ENDS.cells) | (out.values[last] == 0)
    return np.asarray((is_dense | (spike > past)) & ~is_small)


def _gains(out: _Outward, places: _Places) -> tuple[Floats, Floats]:
    """By how much likelier all counts are if those past an end are among those shortly
    before it, but no spikes unless there is little else; and what the counts say that
    lie past it.
    """
    moved = _Moved(out, places)
    gain = np.zeros(len(places.ends))
    outside = np.zeros(len(places.ends))
    for ranges in out.counted():
        nodes = _Nodes(moved, ranges)
        beyond = nodes.beyond()
        gain += beyond
        outside += beyond
        for part in nodes.between():
            gain += part
        gain += nodes.across_end()
        gain += nodes.across_begin()
    return gain, outside


@dataclass(frozen=True, eq=False)
class _Moved:
    """Of each place, the people past it moved into the bin before it: each there
    becomes 1 + `ratio` people.
    """

    out: _Outward
    places: _Places

    @cached_property
    def past(self) -> Floats:
        past: Floats = (
            self.out.people_before[-1] - self.out.people_before[self.places.ends]
        )
        return past

    @cached_property
    def spares_spikes(self) -> Flags:
        """Whether those in no spike are enough to be moved among."""
        return np.asarray(self.past < self.places.within(self.out.smooth))

    @cached_property
    def ratio(self) -> Floats:
        smooth = self.places.within(self.out.smooth)
        people = self.places.within(self.out.people_before)
        room = np.where(self.spares_spikes, smooth, people)
        return np.asarray(self.past / room.clip(min=1e-9))

    def among(self, at: Places) -> Floats:
        """How many of those among whom people are moved are before these edges."""
        return np.where(
            self.spares_spikes, self.out.smooth[at], self.out.people_before[at]
        )


class _Nodes:
    """What the counts of some ranges, `nodes`, say of people moved to before each end,
    in log-likelihood: with `off` the count less the people that were expected, and m
    more people, m · (off − m/2) / σ².
    """

    def __init__(self, moved: _Moved, ranges: Ranges) -> None:
        self.moved = moved
        self.nodes = ranges.places
        self.precision = 1 / ranges.variance
        self.here = np.diff(moved.out.people_before[self.nodes])
        self.off = ranges.counts - self.here
        self.last = len(self.here)
        ends, begins = moved.places
        # in which an end lies, or begins
        self.node = np.searchsorted(self.nodes, ends, side="right") - 1
        self.node_of = np.minimum(self.node, self.last - 1)
        # whether an end cuts it in two
        self.is_cut = (self.node < self.last) & (self.nodes[self.node] < ends)
        # the first node that lies between begin and end
        self.first = np.searchsorted(self.nodes, begins)

    def beyond(self) -> Floats:
        """Of nodes that lie past the end: nobody is left there."""
        emptied = -self.precision * self.here * (self.off + self.here / 2)
        sums = np.append(np.cumsum(emptied[::-1])[::-1], 0)
        beyond: Floats = sums[self.node + self.is_cut]
        return beyond

    def between(self) -> tuple[Floats, Floats]:
        """Of nodes that lie within the bin before the end: in proportion to the people
        moved there, and to their square.
        """
        out = self.moved.out
        ratio = self.moved.ratio
        is_some = self.first < self.node
        first = np.minimum(self.first, self.node)
        linear = np.zeros((2, len(first)))
        square = np.zeros((2, len(first)))
        for number, law in enumerate((out.smooth, out.people_before)):
            people = np.diff(law[self.nodes])
            sums = cumulated(self.precision * (people * self.off))
            squares = cumulated(self.precision * people**2)
            linear[number] = sums[self.node] - sums[first]
            square[number] = squares[self.node] - squares[first]
        spares = self.moved.spares_spikes
        gain = np.where(is_some, ratio * np.where(spares, *linear), 0)
        loss = -(ratio**2) / 2
        return gain, np.where(is_some, loss * np.where(spares, *square), 0)

    def across_end(self) -> Floats:
        """Of the node that the end cuts: some are moved within it."""
        moved = self.moved
        ends, begins = moved.places
        inner = np.maximum(self.nodes[self.node_of], begins)
        entered = moved.ratio * (moved.among(ends) - moved.among(inner))
        departed = (
            moved.out.people_before[self.nodes[self.node_of + 1]]
            - moved.out.people_before[ends]
        )
        return self._gain(self.is_cut, self.node_of, entered - departed)

    def across_begin(self) -> Floats:
        """Of the node in which the bin before the end begins."""
        moved = self.moved
        ends, begins = moved.places
        first = self.nodes[np.minimum(self.first, self.last)]
        starts_before = (self.first > 0) & (self.nodes[self.first - 1] < begins)
        is_head = starts_before & (self.nodes[self.first] <= ends)
        is_head &= self.nodes[self.first] > begins
        is_head &= ~(self.is_cut & (self.first - 1 == self.node))
        inside = moved.among(np.minimum(first, ends)) - moved.among(begins)
        return self._gain(is_head, (self.first - 1).clip(min=0), moved.ratio * inside)

    def _gain(self, which: Flags, node: Places, people: Floats) -> Floats:
        gain = self.precision[node] * people * (self.off[node] - people / 2)
        return np.where(which, gain, 0)


def sharp_end(law: Law, side: int) -> int:
    """Before which leaf all are to this side, if the law does not fall towards its end:
    the innermost place that counts do not speak against. Where a tail is likelier,
    where the law ends already.
    """
    out = _Outward(law, side)
    stop = law.stop if side > 0 else law.leaves - law.start
    begin = _begin_of_window(out, stop)
    first = max(_first_sharp_end(out), begin + 1)
    if first >= stop:
        return stop
    ends = np.unique(np.linspace(first, stop, _SHARP.places).astype(np.int64))
    window = _Window.before(out, begin, stop)
    ends = ends[window.shapes[0][ends] > 1e-6]
    if not len(ends):
        return stop
    likely, by_law = window.likelihoods(ends)
    best = likely.max(0)
    if best.max() < by_law - _SHARP.tail:
        return stop
    is_likely = best >= best.max() - _SHARP.slack
    if stop == law.leaves and is_likely[-1]:  # a bound is as good an end
        return stop
    return int(ends[is_likely].min())


def _begin_of_window(out: _Outward, stop: int) -> int:
    """The edge behind which the people are by whom an end is found."""
    people = out.people_before[-1]
    noise = out.law.column.noise
    window = min(_SHARP.window * noise, people / 2)
    begin = int(np.searchsorted(out.people_before, people - window, side="right")) - 1
    return max(min(begin, stop - 2), 0)


def _first_sharp_end(out: _Outward) -> int:
    """The innermost edge that may be the end: behind all spikes and nearly all
    people.
    """
    people = out.people_before[-1]
    past = min(_SHARP.past * out.law.column.noise, _SHARP.past_share * people)
    behind_people = int(np.searchsorted(out.people_before, people - past))
    spikes = np.flatnonzero(out.is_spike)
    behind_spikes = int(spikes[-1]) + 1 if len(spikes) else 0
    return max(behind_spikes, behind_people)


@dataclass(frozen=True, eq=False)
class _Window:
    """The leaves from edge `begin` to `stop` in which an end is looked for: people
    below each edge by the law (`smooth`) and outside of the window (`known`), `spikes`
    below it, and what each shape has below it.
    """

    out: _Outward
    begin: int
    stop: int
    smooth: Floats
    known: Floats
    spikes: Floats
    shapes: list[Floats]

    @classmethod
    def before(cls, out: _Outward, begin: int, stop: int) -> "_Window":
        is_own = ~out.is_spike
        is_own[:begin] = False
        is_own[stop:] = False
        lengths = np.diff(out.law.column.edges)[:: out.side]
        length = np.where(is_own, lengths, 0.0)
        length = length / max(length.sum(), 1e-300)
        middle = np.cumsum(length) - length / 2
        densities = [np.exp(rise * middle) for rise in _SHARP.rises]
        return cls(
            out,
            begin,
            stop,
            smooth=cumulated(np.where(is_own, out.people, 0.0)),
            known=cumulated(np.where(is_own, 0.0, out.people)),
            spikes=cumulated(out.is_spike),
            shapes=[cumulated(length * density) for density in densities],
        )

    def likelihoods(self, ends: Places) -> tuple[Floats, float]:
        """Log-likelihoods of all counts if the window's people have each of the shapes
        up to each of the `ends`, (shapes, ends), and if they are as the law has them.
        """
        noise = self.out.law.column.noise
        by_shape = np.zeros((len(self.shapes), len(ends)))
        by_law = 0.0
        for ranges in self.out.counted():
            nodes, some = self._inside(ranges.places)
            spikes = np.diff(self.spikes[nodes])
            precision = 1 / (ranges.variance[some] + spikes * noise**2)
            rest = ranges.counts[some] - np.diff(self.known[nodes])
            expected = np.diff(self.smooth[nodes])
            by_law += float((precision * expected * (rest - expected / 2)).sum())
            # in which an end lies, or begins
            node = np.searchsorted(nodes, ends, side="right") - 1
            cut = np.minimum(node, len(rest) - 1)
            for shape, sums in zip(self.shapes, by_shape, strict=True):
                scale = self.smooth[-1] / shape[ends]
                part = np.diff(shape[nodes])
                products = cumulated(precision * (part * rest))
                squares = cumulated(precision * part**2)
                last = scale * (shape[ends] - shape[nodes[node]])
                sums += scale * products[node] - scale**2 / 2 * squares[node]
                sums += precision[cut] * last * (rest[cut] - last / 2)
        return by_shape, by_law

    def _inside(self, nodes: Places) -> tuple[Places, slice]:
        """The nodes that reach into the window, and which of the counts are theirs."""
        lowest = int(np.searchsorted(nodes, self.begin, side="right")) - 1
        highest = int(np.searchsorted(nodes, self.stop, side="right")) + 1
        inside = nodes[lowest:highest]
        return inside, slice(lowest, lowest + len(inside) - 1)
