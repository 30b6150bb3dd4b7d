"""A person's one- and two-way tables in two short shares, of which either alone tells
nothing.

Boyle, Gilboa, Ishai, "Function secret sharing" (EUROCRYPT 2015), §3.2: the table of a
point needs no share as long as itself. Here a column with K levels and all columns
after it are a strip: K lines, a line for each level of the column, with a cell for
itself and one for every level of the others, W in all. Only the line of the person's
level holds anything. The two aggregators get K seeds and K bits each, equal but for
that one line, and one common line of corrections:

    second: G(s_u) + t_u·c        first: −G(s′_u) − t′_u·c
    together: 0, and on the person's line what it holds

since there s, s′ and t, t′ differ, and c = ±(line − G(s) + G(s′)). All of the second's
seeds and bits follow from 32 bytes. An upload grows with Σ W instead of Σ K·W: on 15
columns with 151 levels 14 kB, where masked cells were 132.
Paper → code: G → `_lines` (the hash of fixed-key AES of Guo, Katz, Wang, Yu, S&P 2020,
§7, under a key that belongs to the upload), t → bits, CW → corrections.

Next to each cell x lie κ₁x and κ₂x, for the check that cells are 0/1 (`sketch`), with a
κ for every table and repetition that neither aggregator knows; a, b and C are what the
check takes besides.

Guarantee: what an aggregator gets is indistinguishable from random, whatever the
person's levels, while AES is an ideal cipher. What two shares add up to is not proven
by anything here: a liar's is any table at all, and `sketch` sees it.
Edges: a level of −1 stands for none, and its tables stay empty.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from understudy.data.encoding.codec import Codes
from understudy.privacy.noise.ciphers import BLOCK, keystream
from understudy.privacy.secure.ring import SEED, Field, Numbers

Bytes = NDArray[np.uint8]
Seeds = NDArray[np.uint64]  # (…, 2): two halves of 16 bytes
Truths = NDArray[np.bool_]
Update = Callable[[memoryview, memoryview], object]  # of a cipher
Words = NDArray[np.uint32]
_T = TypeVar("_T", bound=np.generic)

REPEATS = 2  # of the check: each lets a wrong table pass with 2/p
PLANES = 1 + REPEATS  # a cell, and it times each κ


class Strip(NamedTuple):
    """A column and those after it (`others`, each with its cells on a line); where its
    levels, words, cells and tables begin among all.
    """

    column: int
    levels: int
    width: int
    level: int
    word: int
    cell: int
    block: int
    others: tuple[tuple[int, slice], ...]

    @property
    def words(self) -> int:
        return PLANES * self.width

    @property
    def level_range(self) -> slice:
        """The column's levels among those of all columns."""
        return slice(self.level, self.level + self.levels)

    @property
    def word_range(self) -> slice:
        """The strip's words among all corrections."""
        return slice(self.word, self.word + self.words)

    @property
    def cell_range(self) -> slice:
        """The strip's cells among all cells."""
        return slice(self.cell, self.cell + self.levels * self.width)


@dataclass(frozen=True)
class Cells:
    """All one- and two-way tables of columns with so many levels. Columns of more
    levels come first: it is shorter.
    """

    sizes: tuple[int, ...]

    @cached_property
    def strips(self) -> tuple[Strip, ...]:
        sizes = self.sizes
        order = sorted(range(len(sizes)), key=lambda column: -sizes[column])
        strips = []
        level = 0
        word = 0
        cell = 0
        block = 0
        for index, column in enumerate(order):
            others = [(column, slice(0, 1))]
            width = 1
            for other in order[index + 1 :]:
                others.append((other, slice(width, width + sizes[other])))
                width += sizes[other]
            strip = Strip(
                column=column,
                levels=sizes[column],
                width=width,
                level=level,
                word=word,
                cell=cell,
                block=block,
                others=tuple(others),
            )
            strips.append(strip)
            level = strip.level_range.stop
            word = strip.word_range.stop
            cell = strip.cell_range.stop
            block = block + len(others)
        return tuple(strips)

    @cached_property
    def levels(self) -> int:
        return sum(self.sizes)

    @cached_property
    def words(self) -> int:
        """Of corrections."""
        return sum(strip.words for strip in self.strips)

    @cached_property
    def count(self) -> int:
        """Of cells."""
        return sum(strip.levels * strip.width for strip in self.strips)

    @property
    def blocks(self) -> int:
        """How many tables there are: of each column, and of each pair."""
        return len(self.sizes) * (len(self.sizes) + 1) // 2

    def tables(self, flat: NDArray[_T]) -> Iterator[tuple[int, int, NDArray[_T]]]:
        """Two columns, or one twice, and their table: a view of that part of all
        cells.
        """
        for strip in self.strips:
            cells = flat[strip.cell_range]
            lines = cells.reshape(strip.levels, -1)
            for other, columns in strip.others:
                yield strip.column, other, lines[:, columns]


class Dealt(NamedTuple):
    """What the check takes besides the cells, of some people: (n, tables, repeats)
    each.
    """

    kappa: Numbers
    a: Numbers
    b: Numbers
    c: Numbers


@dataclass(frozen=True)
class Uploads:
    """One aggregator's side of the uploads of some people, as far as the last step of
    the check goes.
    """

    first: bool
    dealt: Dealt

    def __len__(self) -> int:
        return len(self.dealt.a)

    def select(self, people: NDArray[np.intp] | slice) -> Self:
        """The uploads of these people."""
        dealt = Dealt(*(part[people] for part in self.dealt))
        own_parts = vars(self).keys() - {"first", "dealt"}
        selected = {name: vars(self)[name][people] for name in own_parts}
        return replace(self, dealt=dealt, **selected)


@dataclass(frozen=True)
class Share(Uploads):
    """Of tables. The lines of the `first` count negatively."""

    keys: Bytes  # (n, 16): public, of each upload
    seeds: Seeds  # (n, levels, 2)
    bits: Truths  # (n, levels)
    corrections: Words  # (n, words)

    def expand(self, cells: Cells, field: Field) -> Iterator[tuple[Strip, Words]]:
        """Strip by strip the shares of its cells and of κ times them, with the sign
        left out: (n, K, planes, W).
        """
        prime = np.uint32(field.prime)
        ciphers = [_cipher(key) for key in self.keys]
        for strip in cells.strips:
            seeds = self.seeds[:, strip.level_range]
            bits = self.bits[:, strip.level_range, None]
            corrections = self.corrections[:, None, strip.word_range]
            lines = _lines(ciphers, seeds, strip.words, field)
            # adding c is taking p − c off, and p on again where that was too much: 32
            # bits suffice
            subtrahend = (prime - corrections) * bits
            underflows = lines < subtrahend
            lines -= subtrahend
            np.add(lines, prime, out=lines, where=underflows)
            yield strip, lines.reshape(len(self), strip.levels, PLANES, strip.width)


def randomness(cells: Cells) -> int:
    """How many secret random bytes `split` takes for a person."""
    return BLOCK + 2 * SEED + BLOCK * len(cells.sizes)


def split(
    cells: Cells,
    codes: Codes,
    random: Bytes,
    field: Field | None = None,
) -> tuple[Share, Bytes, Bytes]:
    """The first's share of tables with these levels, its seeds, the second's seeds;
    `random`: for one upload alone.
    """
    n = len(codes)
    field = field or Field()
    parts = np.split(random, np.cumsum([BLOCK, SEED, SEED]), axis=1)
    keys, firsts, seconds, fresh = map(np.ascontiguousarray, parts)
    no_corrections = np.zeros((n, cells.words), np.uint32)
    second = second_share(
        cells,
        keys,
        seconds,
        no_corrections,
        field,
    )
    kappa, dealt = deal_first(firsts, second.dealt, cells.blocks, field)
    seeds = second.seeds.copy()
    bits = second.bits.copy()
    corrections = second.corrections.copy()
    ciphers = [_cipher(key) for key in keys]
    people = np.arange(n)
    fresh_seeds = fresh.view("<u8").reshape(n, len(cells.strips), 2)
    for index, strip in enumerate(cells.strips):
        level = strip.level + np.maximum(codes[:, strip.column], 0)
        second_seeds = seeds[people, level]
        first_seeds = fresh_seeds[:, index]
        line_seeds = np.stack([second_seeds, first_seeds], axis=1)  # (n, 2, 2)
        lines = _lines(ciphers, line_seeds, strip.words, field).astype(np.uint64)
        plain = _line(strip, codes, kappa).reshape(n, strip.words)
        correction = field.minus(plain + lines[:, 1], lines[:, 0])
        is_negated = ~bits[people, level]
        negated = correction[is_negated]
        correction[is_negated] = field.minus(np.zeros_like(negated), negated)
        corrections[:, strip.word_range] = correction
        seeds[people, level] = first_seeds
        bits[people, level] ^= True
    return (
        Share(
            True,
            dealt,
            keys,
            seeds,
            bits,
            corrections,
        ),
        firsts,
        seconds,
    )


def second_share(
    cells: Cells,
    keys: Bytes,
    seeds: Bytes,
    corrections: Words,
    field: Field,
) -> Share:
    """The second's share, which follows from its seeds (n, 32) and what is common."""
    n = len(keys)
    seed_bytes = BLOCK * cells.levels
    bit_bytes = -(-cells.levels // 8)
    stream = np.empty((n, seed_bytes + bit_bytes), np.uint8)
    for row, seed in zip(stream, seeds, strict=True):
        row[:] = keystream(seed.tobytes(), 0, len(row))
    seed_words = np.ascontiguousarray(stream[:, :seed_bytes]).view("<u8")
    packed_bits = stream[:, seed_bytes:]
    bits = np.unpackbits(packed_bits, axis=1, count=cells.levels)
    return Share(
        first=False,
        dealt=second_dealt(seeds, cells.blocks, field),
        keys=keys,
        seeds=seed_words.reshape(n, cells.levels, 2),
        bits=bits.astype(np.bool_),
        corrections=corrections,
    )


def deal_first(
    seeds: Bytes,
    second: Dealt,
    blocks: int,
    field: Field,
) -> tuple[Numbers, Dealt]:
    """κ, and what the first gets beside what the second has: C = a² − κa + b."""
    prime = np.uint64(field.prime)
    kappa_share, a_share, b_share = _dealt_numbers(seeds, 3, blocks, field)
    kappa = (kappa_share + second.kappa) % prime
    a = (a_share + second.a) % prime
    b = (b_share + second.b) % prime
    c = field.minus(field.times(a, a) + b, field.times(kappa, a))
    c_share = field.minus(c, second.c)
    return kappa, Dealt(kappa_share, a_share, b_share, c_share)


def first_dealt(
    seeds: Bytes,
    c: Words,
    blocks: int,
    field: Field,
) -> Dealt:
    """What the first was dealt, by its seeds and the C that came with them."""
    kappa, a, b = _dealt_numbers(seeds, 3, blocks, field)
    by_block = c.reshape(len(seeds), blocks, REPEATS)
    return Dealt(kappa, a, b, by_block.astype(np.uint64))


def second_dealt(
    seeds: Bytes,
    blocks: int,
    field: Field,
) -> Dealt:
    return Dealt(*_dealt_numbers(seeds, 4, blocks, field))


def _dealt_numbers(
    seeds: Bytes,
    count: int,
    blocks: int,
    field: Field,
) -> Sequence[Numbers]:
    """κ, a, b and, for the second, C: `count` arrays of (n, blocks, repeats); of
    tables, a block is one of them.
    """
    shape = (count, blocks, REPEATS)
    per_person = [field.uniform(seed.tobytes(), 1, *shape) for seed in seeds]
    if not per_person:
        return [np.empty((0, *shape[1:]), np.uint64)] * count
    return list(np.stack(per_person, axis=1))


def _line(
    strip: Strip,
    codes: Codes,
    kappa: Numbers,
) -> Numbers:
    """What the line of each person's own level holds: (n, planes, W)."""
    line = np.zeros((len(codes), PLANES, strip.width), np.uint64)
    is_present = codes >= 0
    for block, (other, columns) in enumerate(strip.others, strip.block):
        both = is_present[:, strip.column] & is_present[:, other]
        people = np.flatnonzero(both)
        cells: NDArray[Any] = np.full(len(people), columns.start)
        if other != strip.column:  # which has one cell on its line
            cells = cells + codes[people, other]
        line[people, 0, cells] = 1
        line[people, 1:, cells] = kappa[people, block]
    return line


def _cipher(key: Bytes) -> Update:
    cipher = Cipher(algorithms.AES(key.tobytes()), modes.ECB())
    return cipher.encryptor().update_into


def _lines(
    ciphers: Sequence[Update],
    seeds: Seeds,
    words: int,
    field: Field,
) -> Words:
    """G: so many numbers of the field from each seed and key: (n, k, 2) → (n, k,
    words); what is none is drawn anew.
    """
    blocks = -(-words // 4)
    counters = np.arange(blocks, dtype=np.uint64)
    hashes = _hash(ciphers, seeds, counters).view("<u4")
    numbers = hashes.reshape(*seeds.shape[:2], 4 * blocks)[:, :, :words]
    for person, line, word in zip(*np.nonzero(numbers >= field.limit), strict=True):
        stream = np.uint64(word // 4)
        seed = seeds[person : person + 1, line : line + 1]
        while numbers[person, line, word] >= field.limit:
            stream += np.uint64(2**32)
            retry = _hash([ciphers[person]], seed, np.array([stream]))
            retried_words = retry.view("<u4").ravel()
            numbers[person, line, word] = retried_words[word % 4]
    if field.prime > 2**31:
        return numbers
    return numbers % np.uint32(field.prime)


def _hash(
    ciphers: Sequence[Update],
    seeds: Seeds,
    counters: Seeds,
) -> Seeds:
    """π(σ(s ⊕ i)) ⊕ σ(s ⊕ i) for every seed and counter, σ(l, h) = (h, h ⊕ l): (n, k,
    blocks, 2).
    """
    inputs = np.empty((*seeds.shape[:2], len(counters), 2), dtype="<u8")
    low = seeds[:, :, None, 0] ^ counters
    high = seeds[:, :, None, 1]
    inputs[..., 0] = high
    inputs[..., 1] = high ^ low
    size = math.prod(inputs.shape[1:]) * 8
    plain = inputs.view(np.uint8).reshape(len(ciphers), size)
    # a block more: the library asks for that room
    out = np.empty(plain.size + BLOCK, np.uint8)
    for person, update in enumerate(ciphers):
        start = person * size
        room = out[start : start + size + BLOCK - 1]
        update(plain[person].data, room.data)
    hashed: Seeds = out[: plain.size].view("<u8").reshape(inputs.shape)
    hashed ^= inputs
    return hashed
