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
from understudy.ground.errors import ConfigError, Effect
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
            problem = (
                f"an upload of {self.words:,} words is longer than {_MOST_WORDS:,}: "
                "take fewer features"
            )
            raise ConfigError(f"{problem}.", effect=Effect.NOTHING_CHARGED)

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
        needed_bits = (self.radius**2).bit_length()
        padding = -(needed_bits + self.features * self.bits) % GROUP
        return needed_bits + padding

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
        if self.by_class:
            return self.classes * (1 + self.features)
        return self.classes + self.features

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """The words of each part: e, m, s; bits, the products of each group's, κ times
        the entries, κ times bits.
        """
        counted = (
            self.classes,
            self.classes * self.features,
            self.triangles * self.triangle,
        )
        uploaded_bits = self.all_bits - 1 - self.features
        return (
            *counted,
            uploaded_bits,
            self.groups * len(PAIRS),
            REPEATS * self.entries,
            REPEATS * self.all_bits,
        )

    @property
    def words(self) -> int:
        return sum(self.parts)

    def cut(self, words: Numbers) -> list[Numbers]:
        """An upload's words, part by part."""
        bounds = accumulate(self.parts, initial=0)
        return [words[:, start:stop] for start, stop in pairwise(bounds)]

    @cached_property
    def upper(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The two indices of each word of a triangle."""
        return np.triu_indices(self.features)

    def squared(
        self,
        words: Numbers,
        *,
        first: bool,
        field: Field,
    ) -> tuple[Numbers, Numbers]:
        """What is squared in the check, as shares, and all bits; `first`: whether
        constants are this side's to add.
        """
        n = len(words)
        prime = np.uint64(field.prime)
        squared_radius = np.uint64(self.radius**2 if first else 0)
        offset = np.uint64(2 ** (self.bits - 1) if first else 0)
        e, m, s, uploaded_bits, *_ = self.cut(words)
        lines = m.reshape(n, self.classes, self.features)
        q = lines.sum(1) % prime
        entries = np.hstack([e, m if self.by_class else q])
        n_slack = self.slack - 1
        slack = uploaded_bits[:, :n_slack]
        high = uploaded_bits[:, n_slack:].reshape(n, self.features, self.bits - 1)
        remainder = field.minus(np.full(n, squared_radius), self._traces(s) % prime)
        lowest_slack = field.minus(remainder, _weigh(slack) % prime)
        lowest = field.minus(q + offset, _weigh(high) % prime)
        entry_bits = np.concatenate([lowest[:, :, None], high], axis=2)
        flat_bits = entry_bits.reshape(n, self.features * self.bits)
        return entries, np.hstack([lowest_slack[:, None], slack, flat_bits])

    def _traces(self, s: Numbers) -> Numbers:
        """The sum of each person's triangles' diagonals."""
        i, j = self.upper
        triangles = s.reshape(len(s), self.triangles, self.triangle)
        diagonals = triangles[:, :, i == j]
        return np.asarray(diagonals.sum((1, 2)))

    def counted(self, classes: Whole, q: Whole) -> Whole:
        """What these people add to the sums: (n, count)."""
        n = len(q)
        i, j = self.upper
        is_class = classes[:, None] == np.arange(self.classes)
        e = is_class.astype(np.int64)
        m = e[:, :, None] * q[:, None, :]
        s = q[:, i] * q[:, j]
        if self.by_class:
            s = e[:, :, None] * s[:, None, :]
        _, m_words, s_words, *_ = self.parts
        return np.hstack([e, m.reshape(n, m_words), s.reshape(n, s_words)])

    def bits_of(self, q: Whole) -> Whole:
        """All bits of these people, the lowest of each number first: (n, all bits)."""
        slack = self.radius**2 - np.square(q).sum(1)
        shifted = q + 2 ** (self.bits - 1)
        slack_bits = _binary(slack, self.slack)
        entry_bits = _binary(shifted, self.bits)
        flat_bits = entry_bits.reshape(len(q), self.features * self.bits)
        return np.hstack([slack_bits, flat_bits])

    def upload_of(
        self,
        classes: Whole,
        q: Whole,
        field: Field,
    ) -> Numbers:
        """What these people upload before it is shared: sums, bits without the lowest
        ones, and the products of each group's; zeros for what κ will multiply.
        """
        n = len(q)
        bits = self.bits_of(q)
        lowest = [0, *range(self.slack, self.all_bits, self.bits)]
        uploaded_bits = np.delete(bits, lowest, axis=1)
        groups = bits.reshape(n, self.groups, GROUP)
        first, second = np.transpose(PAIRS)
        products = groups[:, :, first] * groups[:, :, second]
        flat_products = products.reshape(n, self.groups * len(PAIRS))
        parts = [self.counted(classes, q), uploaded_bits, flat_products]
        plain = np.hstack(parts)
        words = np.zeros((n, self.words), np.uint64)
        words[:, : plain.shape[1]] = field.numbers(plain)
        return words


@dataclass(frozen=True)
class MomentShare(Uploads):
    words: Words  # (n, words)


def split_moments(
    vectors: Vectors,
    classes: Whole,
    q: Whole,
    random: Bytes,
    field: Field = FIELD,
) -> tuple[MomentShare, Bytes, Bytes, Bytes]:
    """The first aggregator's share of some people, their public keys, its 32-byte
    seeds, and the second's. `classes` (n,) and `q` (n, features) are theirs; `random`
    secret bytes of each, (n, `RANDOMNESS`), for one upload alone.
    Edges: a vector that is longer than R makes an upload that fails.
    """
    parts = np.split(random, np.cumsum([BLOCK, SEED]), axis=1)
    keys, firsts, seconds = map(np.ascontiguousarray, parts)
    second = second_moments(vectors, seconds, field)
    kappa, dealt = deal_first(firsts, second.dealt, vectors.blocks, field)
    words = vectors.upload_of(classes, q, field)
    entries, bits = vectors.squared(words, first=True, field=field)
    kappa_of_bits = np.repeat(kappa[:, 1:], GROUP, axis=1)  # (n, all bits, repeats)
    kappa_of_entries = kappa[:, :1]  # (n, 1, repeats)
    products = []
    for factors, numbers in ((kappa_of_entries, entries), (kappa_of_bits, bits)):
        for repeat in range(REPEATS):
            products.append(field.times(factors[:, :, repeat], numbers))
    kappa_words = np.hstack(products)
    words[:, -kappa_words.shape[1] :] = kappa_words
    share = field.minus(words, second.words.astype(np.uint64))
    first = MomentShare(True, dealt, share.astype(np.uint32))
    return first, keys, firsts, seconds


def second_moments(
    vectors: Vectors,
    seeds: Bytes,
    field: Field = FIELD,
) -> MomentShare:
    """The second aggregator's share, which follows from its seeds (n, 32)."""
    words = np.empty((len(seeds), vectors.words), np.uint32)
    for row, seed in zip(words, seeds, strict=True):
        row[:] = field.uniform(seed.tobytes(), _STREAM, vectors.words)
    dealt = second_dealt(seeds, vectors.blocks, field)
    return MomentShare(False, dealt, words)


def _binary(numbers: Whole, bits: int) -> Whole:
    """The binary digits of each number, the lowest first: (…, bits)."""
    shifted = numbers[..., None] >> np.arange(bits)
    return np.asarray(shifted & 1)


def _weigh(bits: Numbers) -> Numbers:
    """Σ 2^b·bit_b over the last side, from b = 1 on."""
    exponents = np.arange(1, bits.shape[-1] + 1, dtype=np.uint64)
    weights = np.uint64(2) ** exponents
    return np.asarray((bits * weights).sum(-1))
