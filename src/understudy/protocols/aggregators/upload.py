"""What a person sends: one upload of a fixed length, of which a part is for each aggregator. docs/people.md draws it.

    16 bytes   key: random, public, names the upload
    4·w        corrections: for both (w words below 2³² − 5, least byte first)
    80         sealed for the second aggregator: its 32-byte seed, bound to the run, the key and the corrections
    32         the first aggregator's seed
    16·l       its seeds, one for each of the l levels of all columns
    ⌈l/8⌉      its bits, highest first
    8·t        its share of C: two words for each of the t tables

Guarantee: the second aggregator's part opens only in the run that it was made for, with the settings, the schemas
and the key that the person was told (`context`): noise that a server states to people and not to the aggregator, or a
replay in another run, ends in uploads that do not open.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codes
from understudy.ground.errors import MessageError
from understudy.privacy.secure.channel import OVERHEAD, KeyPair, seal, unseal
from understudy.privacy.secure.moment_shares import (
    RANDOMNESS,
    MomentShare,
    Vectors,
    first_moments,
    second_moments,
    split_moments,
)
from understudy.privacy.secure.ring import Field
from understudy.privacy.secure.table_shares import (
    REPEATS,
    Bytes,
    Cells,
    Share,
    Truths,
    Words,
    first_share,
    randomness,
    second_share,
    split,
)

KEY, SEED = 16, 32
_PEOPLE = 256  # split at a time


class Form(ABC):
    """Uploads as rows of bytes, in parts: first what the second aggregator gets, from the key to what is sealed."""

    field: Field

    @property
    @abstractmethod
    def parts(self) -> tuple[int, ...]:
        """The length of each part, in order."""

    @property
    @abstractmethod
    def head(self) -> int:
        """Of what the second aggregator gets of an upload, in bytes."""

    @property
    def size(self) -> int:
        """Of an upload, in bytes."""
        return sum(self.parts)

    def checked(self, uploads: Any, people: int, size: int) -> Bytes:
        """Rows of bytes of that shape. Edges: anything else → MessageError."""
        if not isinstance(uploads, Tensor) or uploads.dtype != torch.uint8 or uploads.shape != (people, size):
            raise MessageError(f"uploads are not {people:,} times {size:,} bytes. They were discarded.")
        return uploads.numpy()

    def keys(self, rows: Bytes) -> Bytes:
        return rows[:, :KEY]

    def in_field(self, words: Bytes) -> Words:
        return as_words(words) % np.uint32(self.field.prime)

    def cut(self, rows: Bytes) -> list[Bytes]:
        ends = [end for end in accumulate(self.parts, initial=0) if end <= rows.shape[1]]
        return [rows[:, a:b] for a, b in pairwise(ends)]

    @staticmethod
    def sealed(
        public: bytes, context: bytes, keys: Bytes, also: Bytes, seeds: Bytes, secrets: Bytes
    ) -> Bytes:
        """The second aggregator's seeds, each sealed with a secret of its own, bound to the run, the key, `also`."""
        each = [
            seal(public, seed.tobytes(), _bound(context, key, line), secret.tobytes())
            for key, line, seed, secret in zip(keys, also, seeds, secrets, strict=True)
        ]
        return np.frombuffer(b"".join(each), np.uint8).reshape(len(seeds), -1)

    @staticmethod
    def opened(
        pair: KeyPair, context: bytes, keys: Bytes, also: Bytes, sealed: Bytes, good: Truths
    ) -> tuple[Bytes, Truths]:
        """The seeds, and of the `good` ones whose open; zeros for the others."""
        opened, seeds = good.copy(), np.zeros((len(keys), SEED), np.uint8)
        for place in np.flatnonzero(good):
            try:
                seed = unseal(pair, sealed[place].tobytes(), _bound(context, keys[place], also[place]))
                seeds[place] = np.frombuffer(seed, np.uint8)
            except MessageError:
                opened[place] = False
        return seeds, opened


@dataclass(frozen=True)
class Format(Form):
    """Uploads about columns of so many levels."""

    cells: Cells
    field: Field

    @property
    def parts(self) -> tuple[int, ...]:
        """The length of each part, in order."""
        cells = self.cells
        bits = -(-cells.levels // 8)
        return (
            KEY,
            4 * cells.words,
            SEED + OVERHEAD,
            SEED,
            16 * cells.levels,
            bits,
            4 * cells.blocks * REPEATS,
        )

    @property
    def head(self) -> int:
        return sum(self.parts[:3])

    @property
    def randomness(self) -> int:
        """How many secret random bytes an upload takes."""
        return randomness(self.cells) + SEED

    def write(self, codes: Codes, random: Bytes, public: bytes, context: bytes) -> Tensor:
        """The uploads of people with these levels, sealed to this key: uint8, (n, size).

        `random`: secret bytes of each, (n, `randomness`). The same ones give the same upload, and are for that alone.
        """
        rows = np.empty((len(codes), self.size), np.uint8)
        for start in range(0, len(codes), _PEOPLE):
            some, drawn = codes[start : start + _PEOPLE], random[start : start + _PEOPLE]
            share, firsts, seconds = split(self.cells, some, drawn[:, :-SEED], self.field)
            corrections, secrets = share.corrections.astype("<u4").view(np.uint8), drawn[:, -SEED:]
            sealed = self.sealed(public, context, share.keys, corrections, seconds, secrets)
            rows[start : start + _PEOPLE] = np.hstack(
                [
                    share.keys,
                    corrections,
                    sealed,
                    firsts,
                    share.seeds.astype("<u8").reshape(len(some), -1).view(np.uint8),
                    np.packbits(share.bits, axis=1),
                    share.dealt.c.astype("<u4").reshape(len(some), -1).view(np.uint8),
                ]
            )
        return torch.from_numpy(rows)

    def first(self, rows: Bytes) -> Share:
        """The first aggregator's share."""
        keys, corrections, _, seeds, lines, bits, c = self.cut(rows)
        n, levels = len(rows), self.cells.levels
        return first_share(
            self.cells,
            keys,
            seeds,
            np.ascontiguousarray(lines).view("<u8").reshape(n, levels, 2),
            np.unpackbits(bits, axis=1, count=levels).astype(np.bool_),
            self.in_field(corrections),
            self.in_field(c),
            self.field,
        )

    def second(self, rows: Bytes, pair: KeyPair, context: bytes) -> tuple[Share, Truths]:
        """The second aggregator's share, and who is in it: uploads that open, and are well formed.

        The others stand in it as what a seed of zeros makes of them, which tells of nobody.
        """
        keys, corrections, sealed = self.cut(rows)
        good: Truths = np.all(as_words(corrections) < self.field.prime, axis=1)
        seeds, opened = self.opened(pair, context, keys, corrections, sealed, good)
        return second_share(self.cells, keys, seeds, self.in_field(corrections), self.field), opened

    def decodes(self, rows: Bytes) -> Truths:
        """Whose words are numbers of the field, which anybody can see: (n,)."""
        _, corrections, *_, c = self.cut(rows)
        words = np.hstack([as_words(corrections), as_words(c)])
        good: Truths = np.all(words < self.field.prime, axis=1)
        return good


@dataclass(frozen=True)
class MomentFormat(Form):
    """Uploads about a class and a vector.

    16 bytes   key
    80         sealed for the second aggregator: its 32-byte seed, bound to the run and the key
    32         the first aggregator's seed
    4·w        its words (`secure.moment_shares`)
    8·t        its share of C: two words for each of the t squares that are checked
    """

    cells: Vectors
    field: Field

    @property
    def parts(self) -> tuple[int, ...]:
        return (KEY, SEED + OVERHEAD, SEED, 4 * self.cells.words, 4 * self.cells.blocks * REPEATS)

    @property
    def head(self) -> int:
        return sum(self.parts[:2])

    @property
    def randomness(self) -> int:
        """How many secret random bytes an upload takes."""
        return RANDOMNESS + SEED

    def write(self, own: NDArray[np.int64], random: Bytes, public: bytes, context: bytes) -> Tensor:
        """The uploads of people with these classes and vectors, (n, 1 + features); otherwise as `Format.write`."""
        rows = np.empty((len(own), self.size), np.uint8)
        for start in range(0, len(own), _PEOPLE):
            here = slice(start, start + _PEOPLE)
            some, drawn = own[here], random[here]
            share, keys, firsts, seconds = split_moments(
                self.cells, some[:, 0], some[:, 1:], drawn[:, :-SEED], self.field
            )
            sealed = self.sealed(public, context, keys, keys[:, :0], seconds, drawn[:, -SEED:])
            words, c = (part.astype("<u4").reshape(len(some), -1) for part in (share.words, share.dealt.c))
            rows[here] = np.hstack([keys, sealed, firsts, words.view(np.uint8), c.view(np.uint8)])
        return torch.from_numpy(rows)

    def first(self, rows: Bytes) -> MomentShare:
        """The first aggregator's share."""
        _, _, seeds, words, c = self.cut(rows)
        return first_moments(self.cells, seeds, self.in_field(words), self.in_field(c), self.field)

    def second(self, rows: Bytes, pair: KeyPair, context: bytes) -> tuple[MomentShare, Truths]:
        """The second aggregator's share, and who is in it: as `Format.second`."""
        keys, sealed = self.cut(rows)
        every = np.ones(len(rows), np.bool_)
        seeds, opened = self.opened(pair, context, keys, keys[:, :0], sealed, every)
        return second_moments(self.cells, seeds, self.field), opened


def context_of(run: str, config: Mapping[str, Any], schemas: Mapping[str, Any], public: bytes) -> bytes:
    """What a person and the second aggregator must have been told alike."""
    told = json.dumps([run, config, schemas, public.hex()], sort_keys=True)
    return hashlib.sha256(b"understudy upload 1 " + told.encode()).digest()


def marked(mark: bytes, keys: Bytes) -> bytes:
    """The mark of who is in a sum, with these uploads more, in their order."""
    return hashlib.sha256(mark + keys.tobytes()).digest()


def _bound(context: bytes, key: Bytes, corrections: Bytes) -> bytes:
    return context + key.tobytes() + hashlib.sha256(corrections.tobytes()).digest()


def as_words(rows: Bytes) -> Words:
    return np.ascontiguousarray(rows).view("<u4")
