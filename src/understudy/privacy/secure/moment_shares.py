"""A person's class, vector and second moments in two shares, of which either alone
tells nothing.

A person has a class and a vector q of whole numbers with ‖q‖ ≤ R = 2^(bits−1) − 1.
Counted over people are

    e     a 1 at the class                                            (classes,)
    m     q in the line of the class, zeros in the others        (classes, features)
    s     the upper triangle of q qᵀ; with `by_class` in the line of the class, zeros in
          the others

The second aggregator's share of all of it is a stream of 32 bytes, the first's what is
left. Beside what is counted lie the words that prove it (`sketch`). Numbers modulo p
have no length, so that an entry of q comes as bits, too,

    q_i + 2^(bits−1) = Σ_b 2^b·bit_ib,        R² − ‖q‖² = Σ_b 2^b·slack_b,

of which the lowest are not uploaded: each is what these lines leave, a linear function
of what is, so that the lines hold by themselves. ‖q‖² is a trace of s. Bits are proven
in groups of four, which takes their products; and everything that is squared in the
check comes once more times each κ. Other groups are longer: four have five words for a
bit.

Guarantee: what an aggregator gets is indistinguishable from random, whatever the
person's row, while AES-256 is a pseudo-random permutation. What two shares add up to is
not proven by anything here: `sketch` does.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.noise.ciphers import BLOCK
from understudy.privacy.secure.ring import FIELD, SEED, Field, Numbers
from understudy.privacy.secure.table_shares import (
    REPEATS,
    Bytes,
    Uploads,
    Words,
    deal_first,
    second_dealt,
)

Whole = NDArray[np.int64]

GROUP = 4  # bits that are proven together
PAIRS = tuple(combinations(range(GROUP), 2))
RANDOMNESS = BLOCK + 2 * SEED  # secret bytes that `split_moments` takes for a person
_MOST_WORDS = 1 << 18
_STREAM = 2  # of a seed: 1 is what is dealt


@dataclass(frozen=True)
class Vectors:
    """What is counted of people with one of so many classes and a vector of so many
    whole numbers, and its words.
    """

    classes: int
    features: int
    bits: int
    by_class: bool = False

    def __post_init__(self) -> None:
        whole(classes=self.classes, features=self.features, bits=self.bits)
        in_range(3, 9, bits=self.bits)
        if self.words > _MOST_WORDS:
            said = (
                f"an upload of {self.words:,} words is longer than {_MOST_WORDS:,}: "
                "take fewer features"
            )
            raise ConfigError(f"{said}. Nothing was charged.")

    @property
    def radius(self) -> int:
        """R, the longest that a vector may be."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def triangle(self) -> int:
        return self.features * (self.features + 1) // 2

    @property
    def triangles(self) -> int:
        return self.classes if self.by_class else 1

    @property
    def count(self) -> int:
        return self.classes * (1 + self.features) + self.triangles * self.triangle

    @property
    def slack(self) -> int:
        """Bits of R² − ‖q‖²; so many more that all bits are whole groups."""
        least = (self.radius**2).bit_length()
        return least + -(least + self.features * self.bits) % GROUP

    @property
    def all_bits(self) -> int:
        return self.slack + self.features * self.bits

    @property
    def groups(self) -> int:
        return self.all_bits // GROUP

    @property
    def blocks(self) -> int:
        """How many squares are checked: of all entries together, and of each group of
        bits.
        """
        return 1 + self.groups

    @property
    def entries(self) -> int:
        """Of the large square."""
        return (
            self.classes * (1 + self.features)
            if self.by_class
            else self.classes + self.features
        )

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """The words of each part: e, m, s; bits, the products of each group's, κ times
        the entries, κ times bits.
        """
        own = (
            self.classes,
            self.classes * self.features,
            self.triangles * self.triangle,
        )
        told = self.all_bits - 1 - self.features
        return (
            *own,
            told,
            self.groups * len(PAIRS),
            REPEATS * self.entries,
            REPEATS * self.all_bits,
        )

    @property
    def words(self) -> int:
        return sum(self.parts)

    def cut(self, words: Numbers) -> list[Numbers]:
        return [words[:, a:b] for a, b in pairwise(accumulate(self.parts, initial=0))]

    @cached_property
    def upper(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The two places of each word of a triangle."""
        return np.triu_indices(self.features)

    def squared(
        self, words: Numbers, *, first: bool, field: Field
    ) -> tuple[Numbers, Numbers]:
        """What is squared in the check, as shares, and all bits; `first`: whether
        constants are this side's to add.
        """
        n = len(words)
        prime = np.uint64(field.prime)
        e, m, s, told, *_ = self.cut(words)
        q = m.reshape(n, self.classes, self.features).sum(1) % prime
        ones = self.upper[0] == self.upper[1]
        length = (
            s.reshape(n, self.triangles, self.triangle)[:, :, ones].sum((1, 2)) % prime
        )
        slack = told[:, : self.slack - 1]
        high = told[:, self.slack - 1 :].reshape(n, self.features, self.bits - 1)
        left = field.minus(
            np.full(n, self.radius**2 if first else 0, np.uint64), length
        )
        left = field.minus(left, _weighed(slack) % prime)
        low = field.minus(
            q + np.uint64(2 ** (self.bits - 1) if first else 0), _weighed(high) % prime
        )
        bits = np.concatenate([low[:, :, None], high], axis=2).reshape(
            n, self.features * self.bits
        )
        entries = np.hstack([e, m if self.by_class else q])
        return entries, np.hstack([left[:, None], slack, bits])

    def counted(self, classes: Whole, q: Whole) -> Whole:
        """What these people add to the sums: (n, count)."""
        n = len(q)
        e = (classes[:, None] == np.arange(self.classes)).astype(np.int64)
        s = q[:, self.upper[0]] * q[:, self.upper[1]]
        m = e[:, :, None] * q[:, None, :]
        if self.by_class:
            s = e[:, :, None] * s[:, None, :]
        return np.hstack([e, m.reshape(n, self.parts[1]), s.reshape(n, self.parts[2])])

    def bits_of(self, q: Whole) -> Whole:
        """All bits of these people, the lowest of each number first: (n, all bits)."""
        slack = self.radius**2 - np.square(q).sum(1)
        own = (q + 2 ** (self.bits - 1))[:, :, None] >> np.arange(self.bits) & 1
        return np.hstack(
            [
                slack[:, None] >> np.arange(self.slack) & 1,
                own.reshape(len(q), self.features * self.bits),
            ]
        )


@dataclass(frozen=True)
class MomentShare(Uploads):
    words: Words  # (n, words)


def split_moments(
    vectors: Vectors, classes: Whole, q: Whole, random: Bytes, field: Field = FIELD
) -> tuple[MomentShare, Bytes, Bytes, Bytes]:
    """The first aggregator's share of some people, their public keys, its 32-byte
    seeds, and the second's. `classes` (n,) and `q` (n, features) are theirs; `random`
    secret bytes of each, (n, `RANDOMNESS`), for one upload alone.
    Edges: a vector that is longer than R makes an upload that fails.
    """
    n = len(q)
    keys, firsts, seconds = (
        np.ascontiguousarray(part)
        for part in np.split(random, np.cumsum([BLOCK, SEED]), axis=1)
    )
    second = second_moments(vectors, seconds, field)
    kappa, dealt = deal_first(firsts, second.dealt, vectors.blocks, field)
    bits = vectors.bits_of(q)
    counted = field.numbers(vectors.counted(classes, q))
    told = np.delete(
        bits, [0, *range(vectors.slack, vectors.all_bits, vectors.bits)], axis=1
    )
    groups = bits.reshape(n, vectors.groups, GROUP)
    products = np.stack([groups[:, :, i] * groups[:, :, j] for i, j in PAIRS], axis=2)
    products = products.reshape(n, vectors.parts[4])
    plain = np.hstack([counted, field.numbers(told), field.numbers(products)])
    blank = np.zeros((n, vectors.words - plain.shape[1]), np.uint64)
    entries, bits_too = vectors.squared(
        np.hstack([plain, blank]), first=True, field=field
    )
    each = np.repeat(kappa[:, 1:], GROUP, axis=1)  # (n, all bits, repeats)
    times = [field.times(kappa[:, 0, j, None], entries) for j in range(REPEATS)]
    times += [field.times(each[:, :, j], bits_too) for j in range(REPEATS)]
    words = field.minus(np.hstack([plain, *times]), second.words.astype(np.uint64))
    return MomentShare(True, dealt, words.astype(np.uint32)), keys, firsts, seconds


def second_moments(vectors: Vectors, seeds: Bytes, field: Field = FIELD) -> MomentShare:
    words = np.empty((len(seeds), vectors.words), np.uint32)
    for row, seed in zip(words, seeds, strict=True):
        row[:] = field.uniform(seed.tobytes(), _STREAM, vectors.words)
    return MomentShare(False, second_dealt(seeds, vectors.blocks, field), words)


def _weighed(bits: Numbers) -> Numbers:
    """Σ 2^b·bit_b over the last side, from b = 1 on."""
    return np.asarray(
        (
            bits * (np.uint64(2) ** np.arange(1, bits.shape[-1] + 1, dtype=np.uint64))
        ).sum(-1)
    )
