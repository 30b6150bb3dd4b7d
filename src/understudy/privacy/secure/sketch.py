"""Is every table of an upload empty but for one 1? Two aggregators check it on their shares, and learn nothing else.

Boneh, Boyle, Corrigan-Gibbs, Gilboa, Ishai, "Lightweight techniques for private heavy hitters" (S&P 2021), §4: with r
that the person does not know, z = ⟨r, x⟩ and z* = ⟨r², x⟩, every x with a single 1, or with none, has z² = z*; of any
other x, z² − z* is a polynomial of degree 2 in r that is not zero, and is zero at a random r with 2/p at most.
Against an aggregator that departs, the paper's second check, on κx: κz = ⟨r, κx⟩. Both together are one,

    z² + κz = y,   y = ⟨r², x⟩ + ⟨r, κx⟩.

The person deals a, b and C = a² − κa + b in shares. The aggregators tell each other Z = z + a and Y = y + b, uniform
both, and then their shares of

    σ = Z² + (κ − 2a) Z + C − Y = z² + κz − y,

which is 0 for an honest person. Paper → code: r² → `squared`, (κ, κ²) → κ for every table and repetition, dealt.
Differs from the paper: κ and a, b, C are those of one table and one repetition, so that no two σ share any of them.

Guarantee, against people: whatever was dealt, σ as a polynomial in r has the part ⟨r, x⟩² − ⟨r², x⟩ of degree 2, since
a, b, C, κ and κx do not follow r. So a table that holds anything but one 1 passes one repetition with 2/p, and both
with (2/p)² < 2⁻⁶¹.
Guarantee, against one aggregator: whatever it says instead of its Z and Y, off by δ and η, what it hears is uniform and
independent of the person: Z and Y by a and b; and σ is δ(2z + δ + κ) − η, uniform where δ ≠ 0 since κ is, and −η where
it is not. So it learns only that people whom it spoiled fail. Nor does it learn more by asking again with another δ:
what it hears is linear in it, and the two numbers that it finds go with every person alike.
Edges: that a person's tables agree with each other is not proven: a liar may be in one cell of each.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from understudy.privacy.secure.field import FIELD, Field, Numbers
from understudy.privacy.secure.table_shares import PLANES, REPEATS, Cells, Dealt, Share, Strip, Words

_PEOPLE = 64  # at a time: a strip of theirs stays near the processor


class Dealing(Protocol):
    """One aggregator's side of some people's uploads, as far as the last step of the check goes."""

    @property
    def first(self) -> bool: ...

    @property
    def dealt(self) -> Dealt: ...


class Judging:
    """The last step of the check, whatever z and y are sums of."""

    field: Field

    def judge(self, share: Dealing, z: Numbers, y: Numbers) -> Numbers:
        """This side's share of σ, from Z and Y that are both sides' together."""
        field, dealt = self.field, share.dealt
        slope = field.minus(dealt.kappa, (dealt.a + dealt.a) % np.uint64(field.prime))
        sigma = field.times(slope, z) + dealt.c
        if share.first:  # what both know is added by one
            sigma += field.minus(field.times(z, z), y)
        return sigma % np.uint64(field.prime)

    def passed(self, first: Numbers, second: Numbers) -> NDArray[np.bool_]:
        """Who passes, by both shares of σ: (n,)."""
        zero: NDArray[np.bool_] = ((first + second) % np.uint64(self.field.prime) == 0).all(axis=(1, 2))
        return zero


@dataclass(frozen=True)
class Sketch(Judging):
    """One aggregator's side of the check of a batch, with r from `coin`: 32 bytes that no person knows.

    Edges: an upload may be checked under one coin alone. Under two, its a and b would hide two different sums.
    """

    cells: Cells
    coin: bytes
    field: Field = FIELD

    def look(self, share: Share) -> tuple[Numbers, Numbers, Numbers]:
        """This side's Z and Y, (n, tables, repeats), and its share of the sum of all cells over these people."""
        said, total = [], np.zeros(self.cells.count, np.uint64)
        for start in range(0, len(share), _PEOPLE):
            part = share.only(slice(start, start + _PEOPLE))
            z, y = self._expanded(part, total)
            said.append([z + part.dealt.a, y + part.dealt.b])
        shape = (0, self.cells.blocks, REPEATS)
        z, y = (
            (np.concatenate(one) for one in zip(*said, strict=True))
            if said
            else (np.empty(shape, np.uint64),) * 2
        )
        prime = np.uint64(self.field.prime)
        return z % prime, y % prime, self._sign(share, total % prime)

    def sums(self, share: Share) -> Numbers:
        """This side's share of the sum of all cells over these people."""
        total = np.zeros(self.cells.count, np.uint64)
        for start in range(0, len(share), _PEOPLE):
            for strip, words in share.only(slice(start, start + _PEOPLE)).expand(self.cells, self.field):
                _add(total, strip, words)
        return self._sign(share, total % np.uint64(self.field.prime))

    def _expanded(self, part: Share, total: Numbers) -> tuple[Numbers, Numbers]:
        """z and y of some people; their cells go into the total."""
        said = np.empty((len(part), self.cells.blocks, 2, REPEATS), np.uint64)
        for strip, words in part.expand(self.cells, self.field):
            _add(total, strip, words)
            for block, place, matrix in self._matrices[strip.column]:
                table = words[..., place].reshape(len(part), -1)
                said[:, block] = self.field.dot(table, matrix).reshape(len(part), 2, REPEATS)
        z, y = said[:, :, 0], said[:, :, 1]
        return self._sign(part, z), self._sign(part, y)

    def _sign(self, share: Share, numbers: Numbers) -> Numbers:
        return self.field.minus(np.zeros_like(numbers), numbers) if share.first else numbers

    @cached_property
    def _matrices(self) -> dict[int, list[tuple[int, slice, Words]]]:
        """Of every strip its tables, each with what turns its cells, and κ times them, into z and y of each repeat."""
        matrices = {}
        for strip in self.cells.strips:
            r = self.field.uniform(self.coin, strip.column, REPEATS, strip.levels, strip.width)
            squared, found = self.field.times(r, r), []
            for number, (_, place) in enumerate(strip.others):
                matrix = np.zeros((strip.levels, PLANES, place.stop - place.start, 2, REPEATS), np.uint32)
                for repeat in range(REPEATS):
                    matrix[:, 0, :, 0, repeat] = r[repeat][:, place]
                    matrix[:, 0, :, 1, repeat] = squared[repeat][:, place]
                    matrix[:, 1 + repeat, :, 1, repeat] = r[repeat][:, place]
                found.append((strip.block + number, place, matrix.reshape(-1, 2 * REPEATS)))
            matrices[strip.column] = found
        return matrices


def _add(total: Numbers, strip: Strip, words: Words) -> None:
    """The cells of some people, without κ, into the sum of all: below 2⁶⁴ for 2³² people."""
    here = slice(strip.cell, strip.cell + strip.levels * strip.width)
    total[here] += words[:, :, 0].sum(axis=0, dtype=np.uint64).reshape(-1)
