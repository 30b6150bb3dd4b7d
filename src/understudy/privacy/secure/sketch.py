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
from typing import Any, NamedTuple

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

_CHUNK_PEOPLE = 64  # a strip of theirs stays near the processor


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
        dealt = share.dealt
        prime = np.uint64(self.field.prime)
        z = np.empty((len(share), self.cells.blocks, REPEATS), np.uint64)
        y = np.empty_like(z)
        total = np.zeros(self.cells.count, np.uint64)
        for start in range(0, len(share), _CHUNK_PEOPLE):
            chunk = slice(start, start + _CHUNK_PEOPLE)
            people = share.select(chunk)
            z[chunk], y[chunk] = self._squares(people, total)
        masked_z = (z + dealt.a) % prime
        masked_y = (y + dealt.b) % prime
        sum_share = self._signed(share, total % prime)
        return masked_z, masked_y, sum_share

    def judge(
        self,
        share: Uploads,
        z: Numbers,
        y: Numbers,
    ) -> Numbers:
        """This side's share of σ, from Z and Y that are both sides' together."""
        field = self.field
        dealt = share.dealt
        prime = np.uint64(field.prime)
        double_a = (dealt.a + dealt.a) % prime
        slope = field.minus(dealt.kappa, double_a)
        sigma = field.times(slope, z) + dealt.c
        if share.first:  # what both know is added by one
            z_squared = field.times(z, z)
            sigma += field.minus(z_squared, y)
        return sigma % prime

    def passed(self, first: Numbers, second: Numbers) -> NDArray[np.bool_]:
        """Who passes, by both shares of σ: (n,)."""
        sigma = (first + second) % np.uint64(self.field.prime)
        is_zero = sigma == 0
        return np.asarray(is_zero.all(axis=(1, 2)))


@dataclass(frozen=True)
class Sketch(Judging):
    """Of tables, with r from `coin`: 32 bytes that no person knows."""

    cells: Cells
    coin: bytes
    field: Field = FIELD

    def _squares(self, part: Share, total: Numbers) -> tuple[Numbers, Numbers]:
        n = len(part)
        dots = np.empty((n, self.cells.blocks, 2, REPEATS), np.uint64)
        for strip, planes in part.expand(self.cells, self.field):
            # the cells without κ, into the sum of all: below 2⁶⁴ for 2³² people
            sums = planes[:, :, 0].sum(axis=0, dtype=np.uint64)
            total[strip.cell_range] += sums.reshape(-1)
            for block, columns, matrix in self._matrices[strip.column]:
                table = planes[..., columns].reshape(n, -1)
                products = self.field.dot(table, matrix)
                dots[:, block] = products.reshape(n, 2, REPEATS)
        signed = self._signed(part, dots)
        return signed[:, :, 0], signed[:, :, 1]

    def _signed(self, share: Share, numbers: Numbers) -> Numbers:
        if share.first:
            return self.field.minus(np.zeros_like(numbers), numbers)
        return numbers

    @cached_property
    def _matrices(self) -> dict[int, list[tuple[int, slice, Words]]]:
        """Of every strip its tables, each with what turns its cells, and κ times them,
        into z and y of each repeat.
        """
        matrices = {}
        for strip in self.cells.strips:
            shape = (REPEATS, strip.levels, strip.width)
            r = self.field.uniform(self.coin, strip.column, *shape)
            tables = []
            for block, (_, columns) in enumerate(strip.others, strip.block):
                matrix = self._matrix(r[:, :, columns])
                tables.append((block, columns, matrix))
            matrices[strip.column] = tables
        return matrices

    def _matrix(self, r: Numbers) -> Words:
        """Of one table: r is (repeats, levels, columns)."""
        squared = self.field.times(r, r)
        _, levels, columns = r.shape
        matrix = np.zeros((levels, PLANES, columns, 2, REPEATS), np.uint32)
        for repeat in range(REPEATS):
            matrix[:, 0, :, 0, repeat] = r[repeat]
            matrix[:, 0, :, 1, repeat] = squared[repeat]
            matrix[:, 1 + repeat, :, 1, repeat] = r[repeat]
        return matrix.reshape(-1, 2 * REPEATS)


class _Coins(NamedTuple):
    """The public randomness of one repetition of `MomentSketch`."""

    r: Numbers  # of the entries of the large square
    counted: Numbers  # what r makes of the counted words
    bits: Numbers  # r of the bits: (groups, GROUP)
    pairs: Numbers  # what that makes of their products: (groups, pairs)


@dataclass(frozen=True)
class MomentSketch(Judging):
    """Of a class, a vector and their products."""

    cells: Vectors
    coin: bytes
    field: Field = FIELD

    def _squares(self, part: MomentShare, total: Numbers) -> tuple[Numbers, Numbers]:
        cells = self.cells
        field = self.field
        n = len(part)
        words = part.words.astype(np.uint64)
        counted = words[:, : cells.count]
        total += counted.sum(axis=0)
        entries, bits = cells.squared(words, first=part.first, field=field)
        *_, products, kappa_entries, kappa_bits = cells.cut(words)
        by_group = (n, cells.groups, -1)
        bits = bits.reshape(by_group)
        products = products.reshape(by_group)
        kappa_entries = kappa_entries.reshape(n, REPEATS, -1)
        kappa_bits = kappa_bits.reshape(n, REPEATS, cells.groups, -1)
        z = np.empty((n, cells.blocks, REPEATS), np.uint64)
        y = np.empty_like(z)
        for repeat, coins in enumerate(self._coins):
            # the large square
            r = coins.r[:, None]
            of_counted = field.dot(counted, coins.counted[:, None])
            of_kappa = field.dot(kappa_entries[:, repeat], r)
            z[:, :1, repeat] = field.dot(entries, r)
            y[:, :1, repeat] = of_counted + of_kappa
            # those of groups of bits
            r_squared = field.times(coins.bits, coins.bits)
            terms = (
                field.times(bits, r_squared),
                field.times(products, coins.pairs),
                field.times(kappa_bits[:, repeat], coins.bits),
            )
            z[:, 1:, repeat] = field.times(bits, coins.bits).sum(2)
            y[:, 1:, repeat] = np.concatenate(terms, axis=2).sum(2)
        prime = np.uint64(field.prime)
        return z % prime, y % prime

    @cached_property
    def _coins(self) -> list[_Coins]:
        """The public randomness of every repetition."""
        groups = self.cells.groups
        field = self.field
        two = np.uint64(2)
        first, second = np.transpose(PAIRS)
        coins = []
        for repeat in range(REPEATS):
            r = field.uniform(self.coin, 2 * repeat, self.cells.entries)
            bits = field.uniform(self.coin, 2 * repeat + 1, groups, GROUP)
            products = field.times(bits[:, first], bits[:, second])
            pairs = field.times(products, two)
            coins.append(_Coins(r, self._counted_coins(r), bits, pairs))
        return coins

    def _counted_coins(self, r: Numbers) -> Numbers:
        """(2 − [i = j]) r_i r_j for every counted word, by the r of the entries."""
        cells = self.cells
        field = self.field
        two = np.uint64(2)
        e = r[: cells.classes]
        q = r[cells.classes :].reshape(cells.triangles, -1)
        lines = np.broadcast_to(q, (cells.classes, cells.features))
        m = field.times(field.times(e[:, None], lines), two)
        i, j = cells.upper
        multiplicity = np.where(i == j, np.uint64(1), two)
        products = field.times(q[:, i], q[:, j])
        s = field.times(products, multiplicity)
        squares = field.times(e, e)
        return np.concatenate([squares, m.ravel(), s.ravel()])
