"""The smooth law of one ordered column: a density on one scale, and spikes beside it.

Far out a cell holds fewer people than its noise hides, and so does every cell beside
it; but laws hardly bend there. On the scale of asinh((x − c)/s), which is even within s
of c and logarithmic beyond, with c the median or zero, or on the scale of x itself, the
logarithm of the density is a number for each of some even bins (`law_fit`).

A leaf that stands out by far is a spike, and has its people by itself: they are known
as well as one count is, and so is whatever is left of a node beside them.

Guarantee: reads released counts alone.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from understudy.models.tables.evidence import clear_of
from understudy.models.tables.ordered_counts import (
    Floats,
    Ordered,
    Places,
    Ranges,
    cumulated,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class LawSettings:
    """Bins, spikes and tails of a law; σ is the noise of one count. Values were chosen
    on further draws of the columns in `benchmarks/numbers/tails.py`.

    bin_length: on a scale; fewest_bins, most_bins: a law has, however long it is.
    alone: σ more for a spike where nobody else is. spared: with fewer deviations of
    people besides spikes, all are in these. beside: likewise, with fewer σ, where
    counts of these spikes alone leave no more.
    tail_people, tail_exponent: with fewer σ of people beyond, the exponent of a tail is
    so much at least: above 1, so that it has a mean.
    """

    bin_length: float = 0.25
    fewest_bins: int = 8
    most_bins: int = 96
    alone: float = 1.2
    spared: float = 2.0
    beside: float = 2.5
    tail_people: float = 1.5
    tail_exponent: float = 1.35


LAW = LawSettings()


class Law:
    """The law of one column on one scale between two leaves: `logs` of the people in
    each bin, besides `spikes`. `near` is the scale on which ends are looked for.
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
        wanted = max(LAW.fewest_bins, math.ceil((last - first) / LAW.bin_length))
        count = min(wanted, LAW.most_bins)
        self.bins = np.linspace(first, last, count + 1)
        self.logs = np.zeros(count)
        self.parts = [self._shares(ranges.places) for ranges in column.counted]
        self.loss = math.inf  # all three terms of `law_fit`, once fitted
        self.with_spikes(spikes)
        self.start_flat()

    @property
    def leaves(self) -> int:
        return len(self.spikes)

    @property
    def noise(self) -> float:
        return self.column.noise

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
        is_some = length > 0
        length = length[is_some]
        middle = cuts[:-1][is_some] + length / 2
        rows = np.searchsorted(nodes, middle, side="right") - 1
        is_inside = (rows >= 0) & (rows < len(nodes) - 1)
        share = length / self._bin_length
        return csr_array(
            (share[is_inside], (rows[is_inside], self._bin_of(middle)[is_inside])),
            shape=(len(nodes) - 1, len(self.logs)),
        )

    @property
    def _bin_length(self) -> float:
        return float(self.bins[1] - self.bins[0])

    def _bin_of(self, points: Floats) -> Places:
        """In which bin each point of the scale lies."""
        places = np.searchsorted(self.bins, points, side="right") - 1
        return np.clip(places, 0, len(self.logs) - 1)

    def within(self, start: int, stop: int, scale: Floats, near: Floats) -> "Law":
        """The same between these leaves, on another scale, to be fitted."""
        spikes = np.zeros_like(self.spikes)
        spikes[start:stop] = self.spikes[start:stop]
        fresh = Law(
            self.column,
            scale,
            near,
            start,
            stop,
            spikes,
        )
        edges = self.column.edges
        values = np.interp(fresh.bins, scale, edges)
        places = np.interp(values, edges, self.scale)
        below = np.interp(places, self.bins, self._below)
        fresh.logs = np.log(np.maximum(np.diff(below), 1e-3))
        return fresh

    @property
    def _below(self) -> Floats:
        """The people below each of the bins' bounds, besides spikes."""
        return cumulated(np.exp(self.logs))

    def with_spikes(self, spikes: Floats) -> None:
        """Take these leaves for spikes, and what counts say of all others: these are
        known beside spikes as well as those are.
        """
        column = self.column
        self.spikes = spikes
        below = cumulated(spikes)
        spikes_below = cumulated(spikes > 0)
        rest = column.sure**2 + spikes_below[-1] * column.noise**2
        has_spikes = bool(spikes_below[-1])
        self.spared = LAW.spared * math.sqrt(rest) if has_spikes else 0.0
        size = len(self.logs)
        self.square = np.full((size, size), 1 / rest)
        self.linear = np.full(size, (column.total - below[-1]) / rest)
        for share, ranges in self._counted():
            spikes_within = np.diff(spikes_below[ranges.places])
            precision = 1 / (ranges.variance + spikes_within * column.noise**2)
            others = ranges.counts - np.diff(below[ranges.places])
            weighed = share.multiply(precision[:, None])
            self.square += (share.T @ weighed).toarray()
            self.linear += share.T @ (precision * others)

    def _counted(self) -> Iterator[tuple["csr_array", Ranges]]:
        """What was counted, with the share of each bin in each range."""
        return zip(self.parts, self.column.counted, strict=True)

    def others(self) -> Floats:
        """The people of each leaf besides spikes."""
        return np.diff(np.interp(self.scale, self.bins, self._below))

    def people(self) -> Floats:
        """The people of each leaf, `total` in all."""
        column = self.column
        others = self.others()
        spikes_alone = np.where(self.spikes > 0, column.last, 0.0)
        beside_spikes = column.total - spikes_alone.sum()
        if others.sum() < self.spared:
            people = self.spikes
        elif beside_spikes < min(self.spared, LAW.beside * column.noise):
            people = spikes_alone
        else:
            people = others + self.spikes
        scaled: Floats = people * (column.total / max(people.sum(), 1e-9))
        return scaled

    def standing_out(self) -> Floats:
        """By how many people those leaves exceed the law that stand out of it."""
        more = self.column.last - self.others()
        middle = (self.scale[:-1] + self.scale[1:]) / 2
        bins = np.clip(np.searchsorted(self.bins, middle) - 1, 0, len(self.logs) - 1)
        is_alone = np.exp(self.logs)[bins] < self.column.noise
        deviations = clear_of(len(more)) + np.where(is_alone, LAW.alone, 0)
        return np.where(more > deviations * self.column.noise, more, 0.0)

    def fall(self) -> None:
        """Far out, where hardly more people are left than the noise hides, the law
        falls outwards.
        """
        edges = self.column.edges
        for side in (1, -1):
            outermost = edges[-1] if side > 0 else edges[0]
            # towards zero there is no tail
            if side * outermost > 0:
                self.logs = self._fallen(self.logs[::side], side)[::side]

    def _fallen(self, logs: Floats, side: int) -> Floats:
        """The same from inside out, in a tail no flatter than is allowed there."""
        inner_bounds = side * self.bins[1:-1][::side]
        beyond = np.exp(logs)[::-1].cumsum()[::-1]
        has_people = beyond[1:] >= LAW.tail_people * self.column.noise
        near = np.flatnonzero(has_people | (inner_bounds < 1))
        first = int(near[-1]) if len(near) else 0
        step = LAW.tail_exponent * self._bin_length
        least = step * np.arange(len(logs))
        tail = np.minimum.accumulate((logs + least)[first:]) - least[first:]
        return np.concatenate([logs[:first], tail])
