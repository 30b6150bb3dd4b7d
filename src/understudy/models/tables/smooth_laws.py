"""Smooth laws of ordered columns: what noisy counts of a tree say where no single count
stands out.

Far out a cell holds fewer people than its noise hides, and so does every cell beside
it; but laws hardly bend there. On the scale of asinh((x − c)/s), which is even within s
of c and logarithmic beyond, with c the median or zero, or on the scale of x itself, the
logarithm f of the density is a number for each of some even bins, and what is least is

    Σ over all counts of (count − people by f)² / 2σ²
    + κ Σ log(1 + (f″/τ)²)
    + ε Σ (1 − exp(−people of a bin / σ))

The second term lets f be a line nearly everywhere, as of a Pareto tail, and bend where
that pays (Student's law of what bends); by the third a bin with hardly anybody in it
has nobody. A leaf that stands out by far is a spike, and has its people by itself: they
are known as well as one count is, and so is whatever is left of a node beside them.

*Ends.* Ages, rates and codes end all at once. Past an end nobody is drawn: with P
people past it by the law, and B within a bin before it, these P are put among B, and by
all counts that is less likely by a factor of exp(s − log⁺(P/ρB)) at most: what does not
fall steeply needs evidence, and so do more than θ of what B go on to. Of such ends the
innermost is taken that is nearly as likely (s) as the likeliest. Zero, as an end of
counts, and powers of ten from 1 on, as of rates, have a larger s; where many are
shortly before one, so that no tail begins there, or by themselves on it, it is an end
wherever counts past it are as likely (s) with nobody there. Between its ends a law is
fitted anew, so that no bin lies across one; then ends are looked for once more.

All columns' laws are fitted together, step by step, and all places of a column are
tried as ends at once.

Guarantee: reads released counts alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.simplex import to_simplex

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

# deviations by which one count stands out of its noise, here and in all other files:
# noise alone does once in 740 counts. With 2.5 it widens columns by a dozen cells
# (tests/models/test_atoms.py)
CLEAR = 3.0


@dataclass(frozen=True)
class LawSettings:
    """The likelihood of a law and of its spikes; σ is the noise of one count. Values
    were chosen on further draws of the columns in `benchmarks/numbers/tails.py`, but
    where another source is named.

    bends, bend: κ and τ, Student's law of what bends. nobody: ε, what people in a bin
    cost, as far as there are σ of them. bin_length: on a scale. even_margin: by so much
    more log-likelihood even bins are taken, as these have no long tails.

    peak: σ by which a first spike stands out of the leaves around it; a law fitted to
    thousands of people in one leaf does not come back (`days_since` of
    benchmarks/strangers, 31 σ off). alone: σ more for a spike where nobody else is.
    spared: with fewer deviations of people besides spikes, all are in these. beside:
    likewise, with fewer σ, where counts of these spikes alone leave no more.

    tail_people, tail_exponent: with fewer σ of people beyond, the exponent of a tail is
    so much at least: above 1, so that it has a mean. total: σ; so well the number of
    people is known, at best.
    """

    bends: float = 1.5
    bend: float = 0.3
    nobody: float = 0.5
    bin_length: float = 0.25
    even_margin: float = 3.0
    peak: float = 8.0
    alone: float = 1.2
    spared: float = 2.0
    beside: float = 2.5
    tail_people: float = 1.5
    tail_exponent: float = 1.35
    total: float = 0.3


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
    less likely than the likeliest an end may be that is further in.
    """

    window: float = 15.0
    rises: tuple[float, ...] = (0.0, 0.7)
    past: float = 2.0
    past_share: float = 0.05
    tail: float = 2.0
    slack: float = 1.2


_LAW = LawSettings()
_ENDS = EndSettings()
_SHARP = SharpEndSettings()


class Counted(NamedTuple):
    """People between leaves: from each of `places` (n + 1,) to the next; `noise` is its
    deviation, (n,) or one.
    """

    places: Tensor
    counts: Tensor
    noise: Tensor | float


def _variance(one: Counted) -> Floats:
    return torch.as_tensor(one.noise, dtype=torch.float64).square().numpy()


@dataclass(eq=False)
class Ordered:
    """One column's counts: of its tree, `layers` from the top, and `also` others.
    `total` people, but for a deviation `sure`; `edges` (leaves + 1,): the values
    between which leaves lie.
    """

    layers: Sequence[Tensor]
    fan: int
    noise: float
    total: float
    sure: float
    edges: Floats
    also: Sequence[Counted] = ()
    # places, counts, variances
    counted: list[tuple[Places, Floats, Floats]] = field(init=False)
    last: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.sure = max(self.sure, _LAW.total * self.noise)
        self.last = self.layers[-1].double().numpy()
        trees = []
        for depth, layer in enumerate(self.layers):
            places = torch.arange(len(layer) + 1) * self.fan ** (
                len(self.layers) - 1 - depth
            )
            # a layer of more says little about a smooth law
            if len(layer) <= 8192:
                trees.append(
                    Counted(places.clamp(max=len(self.last)), layer, self.noise)
                )
        self.counted = [
            (
                one.places.numpy(),
                one.counts.double().numpy(),
                np.broadcast_to(_variance(one), one.counts.shape),
            )
            for one in (*self.also, *trees)
        ]

    def peaks(self) -> Floats:
        """By how many people those leaves that stand out exceed all others around."""
        second_largest = np.sort(neighbours(self.last), axis=1)[:, -2]
        more = self.last - second_largest
        return np.where(more > _LAW.peak * self.noise, more, 0.0)

    def scales(self) -> tuple[Floats, Floats, Floats]:
        """Where the edges lie on the scales that are tried: about the median, about
        zero, and even.
        """
        layers = self.layers
        edges = self.edges
        depth = max(
            (d for d, layer in enumerate(layers) if len(layer) <= 2 * self.fan**2),
            default=0,
        )
        nodes = np.arange(len(layers[depth])) * self.fan ** (len(layers) - 1 - depth)
        rough = to_simplex(
            layers[depth].double()[None],
            torch.tensor([self.total], dtype=torch.float64),
        )[0].numpy()
        below = np.append(0, np.cumsum(rough)) / max(rough.sum(), 1e-9)
        at = edges[np.append(nodes, len(edges) - 1)]
        tenth, quarter, middle, three, last = np.interp(
            (0.1, 0.25, 0.5, 0.75, 0.9),
            below,
            at,
        )
        least = max(float(np.diff(edges).min()), 1e-9 * (edges[-1] - edges[0]))
        about = max(three - middle, middle - quarter, least) / 2
        small = max(
            min(abs(tenth), abs(last), abs(middle)) / 2,
            least,
            1e-6 * abs(middle),
        )
        return (
            np.arcsinh((edges - middle) / about),
            np.arcsinh(edges / small),
            edges / about,
        )


class Law:
    """The law of one column on one scale between two leaves: `logs` of the people in
    each bin, besides `spikes`.
    """

    def __init__(
        self,
        column: Ordered,
        scale: Floats,
        near: Floats,
        start: int,
        stop: int,
        spikes: Floats,
    ) -> None:
        self.column = column
        self.scale = scale
        self.near = near
        self.start = start
        self.stop = stop
        first = float(scale[start])
        last = float(scale[stop])
        bins = min(max(8, math.ceil((last - first) / _LAW.bin_length)), 96)
        self.bins = np.linspace(first, last, bins + 1)
        self.logs = np.zeros(bins)
        self.parts = [self._shares(places) for places, _, _ in column.counted]
        self.left = math.inf  # of all three terms, once fitted
        self.with_spikes(spikes)
        self.start_flat()

    def start_flat(self) -> None:
        """Spread the people besides spikes over all bins.

        Where a fit has left nobody its gradient vanishes, and it cannot come back.
        """
        others = max(self.column.total - self.spikes.sum(), 1.0)
        self.logs = np.full(len(self.logs), math.log(others / len(self.logs)))

    def _shares(self, places: Places) -> "csr_array":
        """The share of each bin that lies from each of these places to the next:
        (nodes, bins).
        """
        # which the process that checks offers does without
        from scipy.sparse import csr_array

        nodes = np.clip(self.scale[places], self.bins[0], self.bins[-1])
        cuts = np.sort(np.concatenate([nodes, self.bins]))
        length = np.diff(cuts)
        there = length > 0
        length, middle = length[there], cuts[:-1][there] + length[there] / 2
        rows = np.searchsorted(nodes, middle, side="right") - 1
        inside = (rows >= 0) & (rows < len(nodes) - 1)
        columns = np.clip(
            np.searchsorted(self.bins, middle, side="right") - 1,
            0,
            len(self.logs) - 1,
        )
        share = length / (self.bins[1] - self.bins[0])
        shape = (len(nodes) - 1, len(self.logs))
        return csr_array((share[inside], (rows[inside], columns[inside])), shape=shape)

    def within(
        self,
        start: int,
        stop: int,
        scale: Floats,
        near: Floats,
    ) -> "Law":
        """The same between these leaves, on another scale, to be fitted."""
        spikes = np.zeros_like(self.spikes)
        spikes[start:stop] = self.spikes[start:stop]
        fresh = Law(self.column, scale, near, start, stop, spikes)
        places = np.interp(
            np.interp(fresh.bins, scale, self.column.edges),
            self.column.edges,
            self.scale,
        )
        people = np.diff(
            np.interp(places, self.bins, np.append(0, np.cumsum(np.exp(self.logs))))
        )
        fresh.logs = np.log(np.maximum(people, 1e-3))
        return fresh

    def with_spikes(self, spikes: Floats) -> None:
        """What counts say of all others: these are known beside spikes as well as those
        are.
        """
        column = self.column
        self.spikes = spikes
        variance = column.noise**2
        below, many = (np.append(0, np.cumsum(part)) for part in (spikes, spikes > 0))
        rest = column.sure**2 + many[-1] * variance
        self.spared = _LAW.spared * math.sqrt(rest) if many[-1] else 0.0
        self.square = np.full((len(self.logs), len(self.logs)), 1 / rest)
        self.linear = np.full(len(self.logs), (column.total - below[-1]) / rest)
        for share, (places, counts, noise) in zip(
            self.parts,
            column.counted,
            strict=True,
        ):
            heard = 1 / (noise + np.diff(many[places]) * variance)
            self.square += (share.T @ share.multiply(heard[:, None])).toarray()
            self.linear += share.T @ (heard * (counts - np.diff(below[places])))

    def leaves(self) -> Floats:
        """The people of each leaf that is no spike."""
        below = np.append(0, np.cumsum(np.exp(self.logs)))
        return np.diff(np.interp(self.scale, self.bins, below))

    def people(self) -> Floats:
        """The people of each leaf, `total` in all."""
        others = self.leaves()
        alone = np.where(self.spikes > 0, self.column.last, 0.0)
        found = others + self.spikes
        if others.sum() < self.spared:
            found = self.spikes
        elif self.column.total - alone.sum() < min(
            self.spared,
            _LAW.beside * self.column.noise,
        ):
            found = alone
        scaled: Floats = found * (self.column.total / max(found.sum(), 1e-9))
        return scaled

    def standing_out(self) -> Floats:
        more = self.column.last - self.leaves()
        middle = (self.scale[:-1] + self.scale[1:]) / 2
        about = np.clip(np.searchsorted(self.bins, middle) - 1, 0, len(self.logs) - 1)
        alone = np.exp(self.logs)[about] < self.column.noise
        clear = clearly(len(more)) + np.where(alone, _LAW.alone, 0)
        return np.where(more > clear * self.column.noise, more, 0.0)

    def fall(self) -> None:
        """Far out, where hardly more people are left than the noise hides, the law
        falls outwards.
        """
        edges = self.column.edges
        for side in (1, -1):
            # towards zero there is no tail
            if side * edges[-1 if side > 0 else 0] <= 0:
                continue
            logs = self.logs[::side]
            middle = side * self.bins[1:-1][::side]
            beyond = np.exp(logs)[::-1].cumsum()[::-1]
            near = np.flatnonzero(
                (beyond[1:] >= _LAW.tail_people * self.column.noise) | (middle < 1)
            )
            far = int(near[-1]) if len(near) else 0
            least = (
                _LAW.tail_exponent
                * float(self.bins[1] - self.bins[0])
                * np.arange(len(logs))
            )
            fallen = np.minimum.accumulate((logs + least)[far:]) - least[far:]
            self.logs = np.concatenate([logs[:far], fallen])[::side]

    def end(self, side: int, again: bool) -> int:
        """Before which leaf nobody is any more to this side; all are before the last
        one's end where there is none. `again`: another end was found before, and a
        better one needs evidence.
        """
        column = self.column
        leaves = len(self.spikes)
        people = self.people()[::side]
        spikes = (self.spikes > 0)[::side]
        held, smooth = (
            np.append(0, np.cumsum(part))
            for part in (people, np.where(spikes, 0, people))
        )
        near = side * self.near[::side]
        values = side * column.edges[::side]
        past = held[-1] - held
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = np.log10(values)
            tens = (values == 0) | (np.abs(powers - np.rint(powers)) < 1e-9) & (
                powers > -0.5
            )
        if side > 0:
            tens = np.append(False, tens[:-1])  # the last cell within is that number
        ends = np.flatnonzero(
            (past > 1e-9)
            & (past < np.where(tens, 2 * _ENDS.past, _ENDS.past) * held[-1])
        )
        ends = ends[ends > 0]
        if not len(ends):
            return leaves
        begin = np.minimum(
            np.searchsorted(near, near[ends] - _LAW.bin_length),
            ends - 2,
        ).clip(min=0)
        past = past[ends]
        before = held[ends] - held[begin]
        gain, outside = self._gains(side, held, smooth, ends, begin)
        with np.errstate(divide="ignore"):
            steep = past / before.clip(min=1e-9)
            tens = tens[ends]
            thin = tens | (
                past * (near[ends] - near[begin])
                < _ENDS.thin * before * (near[-1] - near[ends])
            )
            slack = (
                np.full(len(ends), -_ENDS.slack)
                if again
                else np.where(tens, _ENDS.round_slack, _ENDS.slack)
            )
            likely = (steep < 1) & (past < _ENDS.past * held[-1])
            likely &= gain > np.log(steep / _ENDS.steep).clip(min=0) - np.where(
                thin,
                slack,
                -np.abs(slack),
            )
        inside = smooth[ends] - smooth[begin]
        spike = np.where(spikes[ends - 1], people[ends - 1], 0)
        highest = (
            np.exp(self.logs) / np.diff(np.interp(self.bins, self.scale, column.edges))
        ).max()
        many = inside > _ENDS.flat * highest * (values[ends] - values[begin])
        sharp = tens & (not again) & (many | (spike > past)) & (outside > -_ENDS.slack)
        # 0 and 1 tell nothing of who is above
        sharp &= (ends > _ENDS.cells) & (values[ends - 1] != 0)
        likely |= sharp
        if not likely.any():
            return leaves
        likely &= sharp | (gain >= gain[likely].max() - slack.clip(min=0))
        return int(ends[likely].min())

    def _gains(
        self,
        side: int,
        held: Floats,
        smooth: Floats,
        ends: Places,
        begin: Places,
    ) -> tuple[Floats, Floats]:
        """By how much likelier all counts are if those past an end are among those
        shortly before it, but no spikes unless there is little else; and what the
        counts say that lie past it.
        """
        past = held[-1] - held[ends]
        gain = np.zeros(len(ends))
        outside = np.zeros(len(ends))
        others = past < smooth[ends] - smooth[begin]
        room = np.where(others, smooth[ends] - smooth[begin], held[ends] - held[begin])
        ratio = past / room.clip(min=1e-9)

        def among(at: Places) -> Floats:
            return np.where(others, smooth[at], held[at])

        for places, counts, noise in self.column.counted:
            nodes = places if side > 0 else len(held) - 1 - places[::-1]
            heard = 1 / noise[::side]
            here = np.diff(held[nodes])
            off = counts[::side] - here
            beyond = np.append(
                np.cumsum((-heard * here * (off + here / 2))[::-1])[::-1],
                0,
            )
            # in which an end lies, or begins
            node = np.searchsorted(nodes, ends, side="right") - 1
            within = node < len(here)
            cut = within & (nodes[node] < ends)
            node_of = np.minimum(node, len(here) - 1)
            gain += beyond[node + cut]
            outside += beyond[node + cut]
            # the first node that lies between begin and end
            first = np.searchsorted(nodes, begin)
            sums = []
            for law in (smooth, held):
                moved = np.diff(law[nodes])
                sums.append(
                    [
                        np.append(0, np.cumsum(heard * part))
                        for part in (moved * off, moved**2)
                    ]
                )
            some = first < node
            for part, weight in ((0, ratio), (1, -(ratio**2) / 2)):
                each = [
                    one[part][node] - one[part][np.minimum(first, node)] for one in sums
                ]
                gain += np.where(some, weight * np.where(others, *each), 0)
            inner = np.maximum(nodes[node_of], begin)
            moved = ratio * (among(ends) - among(inner)) - (
                held[nodes[node_of + 1]] - held[ends]
            )
            gain += np.where(
                cut,
                heard[node_of] * moved * (off[node_of] - moved / 2),
                0,
            )
            head = (
                (first > 0)
                & (nodes[first - 1] < begin)
                & (nodes[first] <= ends)
                & (nodes[first] > begin)
            )
            head &= ~(cut & (first - 1 == node))
            moved = ratio * (
                among(np.minimum(nodes[np.minimum(first, len(here))], ends))
                - among(begin)
            )
            at = (first - 1).clip(min=0)
            gain += np.where(head, heard[at] * moved * (off[at] - moved / 2), 0)
        return gain, outside

    def sharp_end(self, side: int) -> int:
        """Before which leaf all are to this side, if the law does not fall towards its
        end: the innermost place that counts do not speak against. Where a tail is
        likelier, where the law ends already.
        """
        column = self.column
        leaves = len(self.spikes)
        stop = self.stop if side > 0 else leaves - self.start
        people = self.people()[::side]
        spikes = (self.spikes > 0)[::side]
        held = np.append(0, np.cumsum(people))
        window = min(_SHARP.window * column.noise, held[-1] / 2)
        least = held[-1] - min(_SHARP.past * column.noise, _SHARP.past_share * held[-1])
        inner = np.flatnonzero(spikes)
        first = max(
            int(inner[-1]) + 1 if len(inner) else 0,
            int(np.searchsorted(held, least)),
        )
        begin = int(np.searchsorted(held, held[-1] - window, side="right")) - 1
        begin = max(min(begin, stop - 2), 0)
        first = max(first, begin + 1)
        ends = np.unique(np.linspace(first, stop, 200).astype(np.int64))
        if first >= stop:
            return stop

        own = ~spikes
        own[:begin] = False
        own[stop:] = False
        length = np.where(own, np.diff(column.edges)[::side], 0.0)
        length = length / max(length.sum(), 1e-300)
        inside = np.cumsum(length) - length / 2
        smooth = np.append(0, np.cumsum(np.where(own, people, 0.0)))
        known, many = (
            np.append(0, np.cumsum(part))
            for part in (np.where(own, 0.0, people), spikes)
        )
        shapes = [
            np.append(0, np.cumsum(length * np.exp(rise * inside)))
            for rise in _SHARP.rises
        ]
        ends = ends[shapes[0][ends] > 1e-6]
        if not len(ends):
            return stop
        likely = np.zeros((len(shapes), len(ends)))
        by_law = 0.0
        for places, counts, noise in column.counted:
            nodes = places if side > 0 else leaves - places[::-1]
            lowest = int(np.searchsorted(nodes, begin, side="right")) - 1
            highest = int(np.searchsorted(nodes, stop, side="right")) + 1
            nodes = nodes[lowest:highest]
            some = slice(lowest, lowest + len(nodes) - 1)
            heard = 1 / (noise[::side][some] + np.diff(many[nodes]) * column.noise**2)
            rest = counts[::side][some] - np.diff(known[nodes])
            expected = np.diff(smooth[nodes])
            by_law += float((heard * expected * (rest - expected / 2)).sum())
            # in which an end lies, or begins
            node = np.searchsorted(nodes, ends, side="right") - 1
            cut = np.minimum(node, len(rest) - 1)
            for shape, sums in zip(shapes, likely, strict=True):
                scale = smooth[-1] / shape[ends]
                part = np.diff(shape[nodes])
                product, square = (
                    np.append(0, np.cumsum(heard * one))
                    for one in (part * rest, part**2)
                )
                last = scale * (shape[ends] - shape[nodes[node]])
                sums += scale * product[node] - scale**2 / 2 * square[node]
                sums += heard[cut] * last * (rest[cut] - last / 2)
        best = likely.max(0)
        if best.max() < by_law - _SHARP.tail:
            return stop
        likeliest = best >= best.max() - _SHARP.slack
        if stop == leaves and likeliest[-1]:  # a bound is as good an end
            return stop
        return int(ends[likeliest].min())


def neighbours(leaves: Floats, each_side: int = 4) -> Floats:
    """Each leaf's people amid those of so many leaves to each side: (leaves, …)."""
    padded = np.pad(leaves, each_side)
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * each_side + 1)


def clearly(nodes: int) -> float:
    """How many deviations of noise one of so many nodes must stand out by."""
    return math.sqrt(2 * math.log(max(nodes, 2)))


def smooth_laws(
    columns: Sequence[Ordered],
    *,
    looks: int = 3,
) -> list[tuple[Floats, Floats]]:
    """The people of each leaf of each column, `total` in all, and in spikes alone.

    Spikes are looked for in three fits, ends in so many `looks`.
    """
    scales = [column.scales() for column in columns]
    whole = [
        [Law(one, scale, scale, 0, len(one.last), one.peaks()) for scale in own[:2]]
        for one, own in zip(columns, scales, strict=True)
    ]
    fit([law for laws in whole for law in laws])
    best = [min(laws, key=lambda law: law.left) for laws in whole]
    for _ in range(3):
        changed = []
        for law in best:
            spikes = law.standing_out()
            if not np.array_equal(spikes > 0, law.spikes > 0):
                law.with_spikes(spikes)
                law.start_flat()
                changed.append(law)
        fit(changed)
    for law in best:
        law.fall()
    for turn in range(looks):
        fresh: dict[int, list[Law]] = {}
        for j, law in enumerate(best):
            start, stop = _support(law, again=turn > 0)
            if turn and (start, stop) == (law.start, law.stop):
                continue
            tried = (law.scale,) if turn else scales[j]
            near = [scales[j][0] if scale is scales[j][2] else scale for scale in tried]
            fresh[j] = [
                law.within(start, stop, *pair) for pair in zip(tried, near, strict=True)
            ]
        fit([law for laws in fresh.values() for law in laws])
        for j, laws in fresh.items():
            best[j] = min(
                laws,
                key=lambda law: (
                    law.left + _LAW.even_margin * (law.scale is scales[j][2])
                ),
            )
            best[j].fall()
    inward: dict[int, Law] = {}
    for j, law in enumerate(best):
        start = len(law.spikes) - law.sharp_end(-1)
        stop = law.sharp_end(1)
        if start < stop and (start, stop) != (law.start, law.stop):
            inward[j] = law.within(start, stop, law.scale, law.near)
    fit([*inward.values()])
    for j, law in inward.items():
        law.fall()
        best[j] = law
    return [(law.people(), law.spikes) for law in best]


def _support(law: Law, again: bool) -> tuple[int, int]:
    """Between which leaves its people are."""
    leaves = len(law.spikes)
    stop = min(law.end(1, again), law.stop)
    start = max(leaves - law.end(-1, again), law.start)
    return (start, stop) if start < stop else (law.start, law.stop)


def fit(laws: Sequence[Law]) -> None:
    """Newton's method for all of them, step by step shorter where it does not help."""
    order = sorted(laws, key=lambda law: len(law.logs))
    for first in range(0, len(order), 24):
        _fit_some(order[first : first + 24])


def _fit_some(laws: Sequence[Law]) -> None:
    many = len(laws)
    most = max(len(law.logs) for law in laws)
    square = np.zeros((many, most, most))
    linear = np.zeros((many, most))
    logs = np.full((many, most), -60.0)
    bends = np.zeros((many, most - 2))
    for n, law in enumerate(laws):
        size = len(law.logs)
        square[n, :size, :size], linear[n, :size], logs[n, :size] = (
            law.square,
            law.linear,
            law.logs,
        )
        bends[n, : size - 2] = 1
    noise = torch.tensor([law.column.noise for law in laws], dtype=torch.float64)[
        :,
        None,
    ]
    system = _Systems(
        torch.from_numpy(square),
        torch.from_numpy(linear),
        torch.from_numpy(bends),
        noise,
    )
    found, left = system.least(torch.from_numpy(logs))
    for law, own, off in zip(laws, found.numpy(), left.tolist(), strict=True):
        law.logs = own[: len(law.logs)].copy()
        law.left = off


@dataclass(frozen=True, eq=False)
class _Systems:
    """Laws of as many bins, at least: those that are none have a constant logarithm,
    and nobody in them.
    """

    square: Tensor
    linear: Tensor
    there: Tensor
    noise: Tensor

    def some(self, which: Tensor) -> "_Systems":
        return _Systems(
            self.square[which],
            self.linear[which],
            self.there[which],
            self.noise[which],
        )

    def off(self, logs: Tensor) -> Tensor:
        """What is left of all three terms."""
        people = logs.exp()
        nobody = (1 - torch.exp(-people / self.noise)).sum(1)
        bends = self.there * logs.diff(n=2, dim=1)
        left = (
            ((self.square @ people[..., None])[..., 0] / 2 - self.linear)
            .mul(people)
            .sum(1)
        )
        return (
            left
            + _LAW.bends * torch.log1p((bends / _LAW.bend) ** 2).sum(1)
            + _LAW.nobody * nobody
        )

    def step(self, logs: Tensor, damp: Tensor) -> Tensor:
        people = logs.exp()
        bends = self.there * logs.diff(n=2, dim=1)
        weight = self.there * 2 * _LAW.bends / (_LAW.bend**2 + bends**2)
        few = people / self.noise
        slope = people * ((self.square @ people[..., None])[..., 0] - self.linear)
        slope = slope + _bent(weight * bends) + _LAW.nobody * few * torch.exp(-few)
        hessian = people[:, :, None] * self.square * people[:, None, :]
        diagonal = hessian.diagonal(dim1=1, dim2=2)
        diagonal += _around(weight, (1.0, 4.0, 1.0))
        for offset, parts in ((1, (-2.0, -2.0)), (2, (1.0,))):
            beside = _around(weight, parts)
            for side in (offset, -offset):
                other = hessian.diagonal(side, 1, 2)
                other += beside
        diagonal *= 1 + damp[:, None]
        diagonal += damp[:, None] * 1e-3 + 1e-12
        factor, wrong = torch.linalg.cholesky_ex(hessian)
        found = torch.cholesky_solve(slope[..., None], factor)[..., 0]
        found = torch.where((wrong == 0)[:, None], found, 0.0)
        return logs - found.clamp(-2, 2)

    def least(
        self,
        logs: Tensor,
        *,
        steps: int = 60,
        tolerance: float = 0.01,
    ) -> tuple[Tensor, Tensor]:
        """The logarithms with the least left, and what is left, after Newton's `steps`
        at most, or once one gains less than the tolerance.
        """
        now = self.off(logs)
        damp = torch.full_like(now, 1e-3)
        tries = torch.zeros_like(now)
        going = torch.arange(len(logs))
        for _ in range(steps):
            own = self.some(going) if len(going) < len(logs) else self
            tried = own.step(logs[going], damp[going])
            off = own.off(tried)
            better = off < now[going]
            gain = now[going] - off
            good = going[better]
            logs[good], now[good] = tried[better], off[better]
            damp[going] = torch.where(
                better,
                (damp[going] / 3).clamp(min=1e-9),
                damp[going] * 4,
            )
            tries[going] = torch.where(better, 0.0, tries[going] + 1)
            done = torch.where(better, gain < tolerance, tries[going] >= 8)
            going = going[~done]
            if not len(going):
                break
        return logs, now


def _around(weight: Tensor, parts: Sequence[float]) -> Tensor:
    """Σ over parts of each part times the weights, moved on by one each time: so much
    longer than these.
    """
    size = weight.shape[1] + len(parts) - 1
    found = weight.new_zeros(len(weight), size)
    for place, part in enumerate(parts):
        found[:, place : place + weight.shape[1]] += part * weight
    return found


def _bent(parts: Tensor) -> Tensor:
    """The transposed second difference."""
    return _around(parts, (1.0, -2.0, 1.0))
