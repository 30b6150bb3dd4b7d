"""Is an upload one class, one short vector, and their products? Two aggregators check it on shares (`moment_shares`).

The check of `sketch` in another form: of v in shares, and of numbers w_ij that are said to be v_i·v_j, with a random r
that the person does not know,

    z = ⟨r, v⟩,   z² + κz = y,   y = Σ_{i≤j} (2 − [i = j]) r_i r_j w_ij + ⟨r, κv⟩.

z² − Σ… is a polynomial of degree 2 in r. It is zero for every r only if w_ij = v_i·v_j for all i and j; else it is
zero with 2/p at most. Where a w_ij is taken from v itself, or is left out, that is what is proven of v:

- the large square, v = (e, q) with q the sum of the lines m: w of e and e is e itself, w of two different classes is
  left out, w of e and q is m, w of q and q is s. So e holds 0 and 1 alone, and a single 1 or none; m is q in the line
  of the class, and s is q qᵀ. Without a class all is zero. With `by_class`, v = (e, m), line by line, and w of two
  different lines is left out; s is q qᵀ in the line of the class.
- of each group of bits, w of a bit with itself is the bit: 0 or 1.

Then the entries of q are from −2^(bits−1) to 2^(bits−1) − 1, since the bits are what they are written in, so that
‖q‖² is far below p, and R² − ‖q‖², which is written in bits as well, is no number that went below zero.

Guarantee, against people: who uploads anything else has at least one square wrong, which passes one repetition with
2/p and both with (2/p)² < 2⁻⁶¹. A liar moves the sums by no more than an honest person can.
Guarantee, against one aggregator: as of `sketch`, word by word; every square has a κ, a, b and C of its own.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from understudy.privacy.secure.field import FIELD, Field, Numbers
from understudy.privacy.secure.moment_shares import GROUP, PAIRS, MomentShare, Vectors
from understudy.privacy.secure.sketch import Judging
from understudy.privacy.secure.table_shares import REPEATS

_PEOPLE = 64  # at a time


@dataclass(frozen=True)
class MomentSketch(Judging):
    """One aggregator's side of the check of a batch, with r from `coin`: 32 bytes that no person knows.

    Edges: an upload may be checked under one coin alone. Under two, its a and b would hide two different sums.
    """

    cells: Vectors
    coin: bytes
    field: Field = FIELD

    def look(self, share: MomentShare) -> tuple[Numbers, Numbers, Numbers]:
        """This side's Z and Y, (n, blocks, repeats), and its share of the sum over these people."""
        shape, prime = (len(share), self.cells.blocks, REPEATS), np.uint64(self.field.prime)
        z, y = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
        for start in range(0, len(share), _PEOPLE):
            some = slice(start, start + _PEOPLE)
            z[some], y[some] = self._squares(share.only(some))
        return (z + share.dealt.a) % prime, (y + share.dealt.b) % prime, self.sums(share)

    def sums(self, share: MomentShare) -> Numbers:
        """This side's share of the sum over these people: (count,)."""
        total: Numbers = share.words[:, : self.cells.count].sum(axis=0, dtype=np.uint64)
        return total % np.uint64(self.field.prime)

    def _squares(self, part: MomentShare) -> tuple[Numbers, Numbers]:
        """z and y of some people, (n, blocks, repeats)."""
        cells, field, n = self.cells, self.field, len(part)
        words = part.words.astype(np.uint64)
        entries, bits = cells.squared(words, first=part.first, field=field)
        *_, products, times, bit_times = cells.cut(words)
        shape, prime = (n, cells.groups, -1), np.uint64(field.prime)
        z, y = [], []
        for j, (r, products_of, groups, pairs) in enumerate(self._random):
            kappa_entries = times.reshape(n, REPEATS, -1)[:, j]
            z.append([field.dot(entries, r[:, None])])
            y.append(
                [
                    field.dot(words[:, : cells.count], products_of[:, None])
                    + field.dot(kappa_entries, r[:, None])
                ]
            )
            own, kappa_own = bits.reshape(shape), bit_times.reshape(n, REPEATS, -1)[:, j].reshape(shape)
            z[-1].append(field.times(own, groups).sum(2) % prime)
            parts = (
                field.times(own, field.times(groups, groups)),
                field.times(products.reshape(shape), pairs),
                field.times(kappa_own, groups),
            )
            y[-1].append(np.concatenate(parts, axis=2).sum(2))
        found = (np.stack([np.hstack(one) for one in each], axis=2) % prime for each in (z, y))
        first, second = found
        return first, second

    @cached_property
    def _random(self) -> list[tuple[Numbers, Numbers, Numbers, Numbers]]:
        """Of every repetition r of the entries, what it makes of the counted words; r of the bits, and of pairs."""
        cells, field, two = self.cells, self.field, np.uint64(2)
        classes, (i, j) = cells.classes, cells.upper
        twice = np.where(i == j, np.uint64(1), two)
        found = []
        for repeat in range(REPEATS):
            r = field.uniform(self.coin, 2 * repeat, cells.entries)
            e, q = r[:classes], r[classes:].reshape(cells.triangles, -1)
            lines = np.broadcast_to(q, (classes, cells.features))
            m = field.times(field.times(e[:, None], lines), np.full((1, 1), two))
            s = field.times(field.times(q[:, i], q[:, j]), twice)
            groups = field.uniform(self.coin, 2 * repeat + 1, cells.groups, GROUP)
            pairs = [field.times(field.times(groups[:, a], groups[:, b]), np.full(1, two)) for a, b in PAIRS]
            counted = np.concatenate([field.times(e, e), m.ravel(), s.ravel()])
            found.append((r, counted, groups, np.stack(pairs, axis=1)))
        return found
