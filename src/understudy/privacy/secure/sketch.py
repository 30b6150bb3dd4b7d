"""Is every table of an upload empty but for one 1? Two aggregators check it on their
shares, and learn nothing else.

Boneh, Boyle, Corrigan-Gibbs, Gilboa, Ishai, "Lightweight techniques for private heavy
hitters" (S&P 2021), §4: with r that the person does not know, z = ⟨r, x⟩ and z* = ⟨r²,
x⟩, every x with a single 1, or with none, has z² = z*; of any other x, z² − z* is a
polynomial of degree 2 in r that is not zero, and is zero at a random r with 2/p at
most. Against an aggregator that departs, the paper's second check, on κx: κz = ⟨r, κx⟩.
Both together are one,

    z² + κz = y,   y = ⟨r², x⟩ + ⟨r, κx⟩.

The person deals a, b and C = a² − κa + b in shares. The aggregators tell each other Z =
z + a and Y = y + b, uniform both, and then their shares of

    σ = Z² + (κ − 2a) Z + C − Y = z² + κz − y,

which is 0 for an honest person. Paper → code: r² → `squared`, (κ, κ²) → κ for every
table and repetition, dealt.
Differs from the paper: κ and a, b, C are those of one table and one repetition, so that
no two σ share any of them.

Guarantee, against people: whatever was dealt, σ as a polynomial in r has the part ⟨r,
x⟩² − ⟨r², x⟩ of degree 2, since a, b, C, κ and κx do not follow r. So a table that
holds anything but one 1 passes one repetition with 2/p, and both with (2/p)² < 2⁻⁶¹.
Guarantee, against one aggregator: whatever it says instead of its Z and Y, off by δ and
η, what it hears is uniform and independent of the person: Z and Y by a and b; and σ is
δ(2z + δ + κ) − η, uniform where δ ≠ 0 since κ is, and −η where it is not. So it learns
only that people whom it spoiled fail. Nor does it learn more by asking again with
another δ: what it hears is linear in it, and the two numbers that it finds go with
every person alike.
Edges: that a person's tables agree with each other is not proven: a liar may be in one
cell of each.

*One class, one short vector, and their products* (`moment_shares`): the same check of v
in shares, and of numbers w_ij that are said to be v_i·v_j,

    z = ⟨r, v⟩,   z² + κz = y,   y = Σ_{i≤j} (2 − [i = j]) r_i r_j w_ij + ⟨r, κv⟩.

z² − Σ… is a polynomial of degree 2 in r. It is zero for every r only if w_ij = v_i·v_j
for all i and j; else it is zero with 2/p at most. Where a w_ij is taken from v itself,
or is left out, that is what is proven of v:

- the large square, v = (e, q) with q the sum of the lines m: w of e and e is e itself,
  w of two different classes is left out, w of e and q is m, w of q and q is s. So e
  holds 0 and 1 alone, and a single 1 or none; m is q in the line of the class, and s is
  q qᵀ. Without a class all is zero. With `by_class`, v = (e, m), line by line, and w of
  two different lines is left out; s is q qᵀ in the line of the class.
- of each group of bits, w of a bit with itself is the bit: 0 or 1.

Then the entries of q are from −2^(bits−1) to 2^(bits−1) − 1, since the bits are what
they are written in, so that ‖q‖² is far below p, and R² − ‖q‖², which is written in
bits as well, is no number that went below zero.

Who uploads anything else has at least one square wrong, so that a liar moves the sums
by no more than an honest person can. Every square has a κ, a, b and C of its own.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.privacy.secure.moment_shares import GROUP, PAIRS, MomentShare, Vectors
from understudy.privacy.secure.ring import FIELD, Field, Numbers
from understudy.privacy.secure.table_shares import (
    PLANES,
    REPEATS,
    Cells,
    Share,
    Uploads,
    Words,
)

_PEOPLE = 64  # at a time: a strip of theirs stays near the processor


class Judging(ABC):
    """One side of a batch's check. An upload may be checked under one coin alone: two
    would show two different sums.
    """

    cells: Cells | Vectors
    field: Field

    @abstractmethod
    def _squares(self, part: Any, total: Numbers) -> tuple[Numbers, Numbers]:
        """z and y of some people, (n, blocks, repeats); what is counted of them goes
        into the total.
        """

    def _signed(self, share: Any, numbers: Numbers) -> Numbers:
        return numbers

    def look(self, share: Uploads) -> tuple[Numbers, Numbers, Numbers]:
        """This side's Z and Y, (n, blocks, repeats), and its share of the sum over
        these people.
        """
        shape = (len(share), self.cells.blocks, REPEATS)
        prime = np.uint64(self.field.prime)
        z, y = (np.empty(shape, np.uint64) for _ in range(2))
        total = np.zeros(self.cells.count, np.uint64)
        for start in range(0, len(share), _PEOPLE):
            some = slice(start, start + _PEOPLE)
            z[some], y[some] = self._squares(share.only(some), total)
        return (
            (z + share.dealt.a) % prime,
            (y + share.dealt.b) % prime,
            self._signed(share, total % prime),
        )

    def judge(self, share: Uploads, z: Numbers, y: Numbers) -> Numbers:
        """This side's share of σ, from Z and Y that are both sides' together."""
        field = self.field
        dealt = share.dealt
        slope = field.minus(dealt.kappa, (dealt.a + dealt.a) % np.uint64(field.prime))
        sigma = field.times(slope, z) + dealt.c
        if share.first:  # what both know is added by one
            sigma += field.minus(field.times(z, z), y)
        return sigma % np.uint64(field.prime)

    def passed(self, first: Numbers, second: Numbers) -> NDArray[np.bool_]:
        """Who passes, by both shares of σ: (n,)."""
        return np.asarray(
            ((first + second) % np.uint64(self.field.prime) == 0).all(axis=(1, 2))
        )


@dataclass(frozen=True)
class Sketch(Judging):
    """Of tables, with r from `coin`: 32 bytes that no person knows."""

    cells: Cells
    coin: bytes
    field: Field = FIELD

    def _squares(self, part: Share, total: Numbers) -> tuple[Numbers, Numbers]:
        said = np.empty((len(part), self.cells.blocks, 2, REPEATS), np.uint64)
        for strip, words in part.expand(self.cells, self.field):
            # the cells without κ, into the sum of all: below 2⁶⁴ for 2³² people
            here = slice(strip.cell, strip.cell + strip.levels * strip.width)
            total[here] += words[:, :, 0].sum(axis=0, dtype=np.uint64).reshape(-1)
            for block, place, matrix in self._matrices[strip.column]:
                table = words[..., place].reshape(len(part), -1)
                said[:, block] = self.field.dot(table, matrix).reshape(
                    len(part), 2, REPEATS
                )
        return self._signed(part, said[:, :, 0]), self._signed(part, said[:, :, 1])

    def _signed(self, share: Share, numbers: Numbers) -> Numbers:
        return (
            self.field.minus(np.zeros_like(numbers), numbers)
            if share.first
            else numbers
        )

    @cached_property
    def _matrices(self) -> dict[int, list[tuple[int, slice, Words]]]:
        """Of every strip its tables, each with what turns its cells, and κ times them,
        into z and y of each repeat.
        """
        matrices = {}
        for strip in self.cells.strips:
            r = self.field.uniform(
                self.coin, strip.column, REPEATS, strip.levels, strip.width
            )
            squared = self.field.times(r, r)
            found = []
            for number, (_, place) in enumerate(strip.others):
                matrix = np.zeros(
                    (strip.levels, PLANES, place.stop - place.start, 2, REPEATS),
                    np.uint32,
                )
                for repeat in range(REPEATS):
                    matrix[:, 0, :, 0, repeat] = r[repeat][:, place]
                    matrix[:, 0, :, 1, repeat] = squared[repeat][:, place]
                    matrix[:, 1 + repeat, :, 1, repeat] = r[repeat][:, place]
                found.append(
                    (strip.block + number, place, matrix.reshape(-1, 2 * REPEATS))
                )
            matrices[strip.column] = found
        return matrices


@dataclass(frozen=True)
class MomentSketch(Judging):
    """Of a class, a vector and their products."""

    cells: Vectors
    coin: bytes
    field: Field = FIELD

    def _squares(self, part: MomentShare, total: Numbers) -> tuple[Numbers, Numbers]:
        total += part.words[:, : self.cells.count].sum(axis=0, dtype=np.uint64)
        cells = self.cells
        field = self.field
        n = len(part)
        words = part.words.astype(np.uint64)
        entries, bits = cells.squared(words, first=part.first, field=field)
        *_, products, times, bit_times = cells.cut(words)
        shape = (n, cells.groups, -1)
        prime = np.uint64(field.prime)
        z = []
        y = []
        for j, (r, products_of, groups, pairs) in enumerate(self._random):
            kappa_entries = times.reshape(n, REPEATS, -1)[:, j]
            z.append([field.dot(entries, r[:, None])])
            counted = field.dot(words[:, : cells.count], products_of[:, None])
            y.append([counted + field.dot(kappa_entries, r[:, None])])
            own = bits.reshape(shape)
            kappa_own = bit_times.reshape(n, REPEATS, -1)[:, j].reshape(shape)
            z[-1].append(field.times(own, groups).sum(2) % prime)
            squares = field.times(own, field.times(groups, groups))
            parts = (
                squares,
                field.times(products.reshape(shape), pairs),
                field.times(kappa_own, groups),
            )
            y[-1].append(np.concatenate(parts, axis=2).sum(2))
        stacked = (
            np.stack([np.hstack(one) for one in each], axis=2) % prime
            for each in (z, y)
        )
        return next(stacked), next(stacked)

    @cached_property
    def _random(self) -> list[tuple[Numbers, Numbers, Numbers, Numbers]]:
        """Of every repetition r of the entries, what it makes of the counted words; r
        of the bits, and of pairs.
        """
        cells = self.cells
        field = self.field
        two = np.uint64(2)
        classes, (i, j) = cells.classes, cells.upper
        twice = np.where(i == j, np.uint64(1), two)
        found = []
        for repeat in range(REPEATS):
            r = field.uniform(self.coin, 2 * repeat, cells.entries)
            e = r[:classes]
            q = r[classes:].reshape(cells.triangles, -1)
            lines = np.broadcast_to(q, (classes, cells.features))
            m = field.times(field.times(e[:, None], lines), np.full((1, 1), two))
            s = field.times(field.times(q[:, i], q[:, j]), twice)
            groups = field.uniform(self.coin, 2 * repeat + 1, cells.groups, GROUP)
            pairs = [
                field.times(field.times(groups[:, a], groups[:, b]), np.full(1, two))
                for a, b in PAIRS
            ]
            counted = np.concatenate([field.times(e, e), m.ravel(), s.ravel()])
            found.append((r, counted, groups, np.stack(pairs, axis=1)))
        return found
