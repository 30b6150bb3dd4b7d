"""What a person sends: one upload of a fixed length, of which a part is for each
aggregator. docs/people.md draws it.

    16 bytes   key: random, public, names the upload
    4·w        corrections: for both (w words below 2³² − 5, least byte first)
    80         sealed for the second aggregator: its 32-byte seed, bound to the run, the
               key and the corrections
    32         the first aggregator's seed
    16·l       its seeds, one for each of the l levels of all columns
    ⌈l/8⌉      its bits, highest first
    8·t        its share of C: two words for each of the t tables

Guarantee: the second aggregator's part opens only in the run that it was made for, with
the settings, the schemas and the key that the person was told (`context`): noise that a
server states to people and not to the aggregator, or a replay in another run, ends in
uploads that do not open.
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
from understudy.privacy.secure import moment_shares, table_shares
from understudy.privacy.secure.ring import Field
from understudy.privacy.secure.sums import OVERHEAD, KeyPair, seal, unseal
from understudy.privacy.secure.table_shares import REPEATS, Bytes, Truths, Words

KEY = 16
SEED = 32
_PEOPLE = 256  # split at a time


@dataclass(frozen=True)
class Form(ABC):
    """Uploads as rows of bytes, in parts: first what the second aggregator gets, from
    the key to what is sealed.
    """

    cells: Any
    field: Field

    @property
    @abstractmethod
    def parts(self) -> tuple[int, ...]:
        """The length of each part, in order: the key, what is for both, what is sealed,
        the first aggregator's.
        """

    @property
    @abstractmethod
    def randomness(self) -> int:
        """How many secret random bytes an upload takes."""

    @abstractmethod
    def split(
        self, lines: Any, random: Bytes
    ) -> tuple[Bytes, Bytes, Bytes, list[Bytes]]:
        """Keys, what is for both, the second aggregator's seeds, and the first one's
        parts, of such people.
        """

    @abstractmethod
    def second_share(self, keys: Bytes, both: Bytes, seeds: Bytes) -> Any:
        """The second aggregator's share of well-formed uploads."""

    @property
    def head(self) -> int:
        """Of what the second aggregator gets of an upload, in bytes."""
        return sum(self.parts[:3])

    @property
    def size(self) -> int:
        return sum(self.parts)

    def checked(self, uploads: Any, people: int, size: int) -> Bytes:
        """Rows of bytes of that shape. Edges: anything else → MessageError."""
        if (
            not isinstance(uploads, Tensor)
            or uploads.dtype != torch.uint8
            or uploads.shape != (people, size)
        ):
            raise MessageError(
                f"uploads are not {people:,} times {size:,} bytes. They were discarded."
            )
        return uploads.numpy()

    def keys(self, rows: Bytes) -> Bytes:
        return rows[:, :KEY]

    def in_field(self, words: Bytes) -> Words:
        return as_words(words) % np.uint32(self.field.prime)

    def good(self, *words: Bytes) -> Truths:
        """Whose words are numbers of the field, which anybody can see: (n,)."""
        return np.asarray(
            np.all(
                np.hstack([as_words(part) for part in words]) < self.field.prime, axis=1
            )
        )

    def cut(self, rows: Bytes) -> list[Bytes]:
        ends = [
            end for end in accumulate(self.parts, initial=0) if end <= rows.shape[1]
        ]
        return [rows[:, a:b] for a, b in pairwise(ends)]

    def write(self, lines: Any, random: Bytes, public: bytes, context: bytes) -> Tensor:
        """Uploads of people with such rows, sealed to this key: uint8, (n, size).
        `random`: for that alone.
        """
        rows = np.empty((len(lines), self.size), np.uint8)
        for start in range(0, len(lines), _PEOPLE):
            batch = slice(start, start + _PEOPLE)
            keys, both, seconds, firsts = self.split(
                lines[batch], random[batch, :-SEED]
            )
            each = zip(keys, both, seconds, random[batch, -SEED:], strict=True)
            sealed = [
                seal(public, s.tobytes(), _bound(context, key, line), r.tobytes())
                for key, line, s, r in each
            ]
            second = np.frombuffer(b"".join(sealed), np.uint8).reshape(len(keys), -1)
            rows[batch] = np.hstack([keys, both, second, *firsts])
        return torch.from_numpy(rows)

    def second(self, rows: Bytes, pair: KeyPair, context: bytes) -> tuple[Any, Truths]:
        """The second aggregator's share, and who is in it: uploads that open and are
        well formed; else zeros' seed.
        """
        keys, both, sealed = self.cut(rows)
        opened = self.good(both)
        seeds = np.zeros((len(keys), SEED), np.uint8)
        for index in np.flatnonzero(opened):
            try:
                seed = unseal(
                    pair,
                    sealed[index].tobytes(),
                    _bound(context, keys[index], both[index]),
                )
                seeds[index] = np.frombuffer(seed, np.uint8)
            except MessageError:
                opened[index] = False
        return self.second_share(keys, both, seeds), opened


class Format(Form):
    cells: table_shares.Cells

    @property
    def parts(self) -> tuple[int, ...]:
        cells = self.cells
        first_parts = (
            SEED,
            16 * cells.levels,
            -(-cells.levels // 8),
            4 * cells.blocks * REPEATS,
        )
        return (KEY, 4 * cells.words, SEED + OVERHEAD, *first_parts)

    @property
    def randomness(self) -> int:
        return table_shares.randomness(self.cells) + SEED

    def split(
        self, codes: Codes, random: Bytes
    ) -> tuple[Bytes, Bytes, Bytes, list[Bytes]]:
        share, firsts, seconds = table_shares.split(
            self.cells, codes, random, self.field
        )
        seeds = share.seeds.astype("<u8").reshape(len(codes), -1).view(np.uint8)
        parts = [
            firsts,
            seeds,
            np.packbits(share.bits, axis=1),
            _as_bytes(share.dealt.c),
        ]
        return share.keys, _as_bytes(share.corrections), seconds, parts

    def first(self, rows: Bytes) -> table_shares.Share:
        keys, corrections, _, seeds, lines, bits, c = self.cut(rows)
        n = len(rows)
        levels = self.cells.levels
        levels_seeds = np.ascontiguousarray(lines).view("<u8").reshape(n, levels, 2)
        signs = np.unpackbits(bits, axis=1, count=levels).astype(np.bool_)
        dealt = table_shares.first_dealt(
            seeds, self.in_field(c), self.cells.blocks, self.field
        )
        return table_shares.Share(
            True, dealt, keys, levels_seeds, signs, self.in_field(corrections)
        )

    def second_share(
        self, keys: Bytes, both: Bytes, seeds: Bytes
    ) -> table_shares.Share:
        return table_shares.second_share(
            self.cells, keys, seeds, self.in_field(both), self.field
        )

    def decodes(self, rows: Bytes) -> Truths:
        """Which are uploads, as far as anybody can see."""
        _, corrections, *_, c = self.cut(rows)
        return self.good(corrections, c)


class MomentFormat(Form):
    """Uploads about a class and a vector: key, sealed seed, own seed, words
    (`secure.moment_shares`), share of C.
    """

    cells: moment_shares.Vectors

    @property
    def parts(self) -> tuple[int, ...]:
        return (
            KEY,
            0,
            SEED + OVERHEAD,
            SEED,
            4 * self.cells.words,
            4 * self.cells.blocks * REPEATS,
        )

    @property
    def randomness(self) -> int:
        return moment_shares.RANDOMNESS + SEED

    def split(
        self, lines: NDArray[np.int64], random: Bytes
    ) -> tuple[Bytes, Bytes, Bytes, list[Bytes]]:
        share, keys, firsts, seconds = moment_shares.split_moments(
            self.cells, lines[:, 0], lines[:, 1:], random, self.field
        )
        return (
            keys,
            keys[:, :0],
            seconds,
            [firsts, _as_bytes(share.words), _as_bytes(share.dealt.c)],
        )

    def first(self, rows: Bytes) -> moment_shares.MomentShare:
        _, _, _, seeds, words, c = self.cut(rows)
        dealt = table_shares.first_dealt(
            seeds, self.in_field(c), self.cells.blocks, self.field
        )
        return moment_shares.MomentShare(True, dealt, self.in_field(words))

    def second_share(
        self, keys: Bytes, both: Bytes, seeds: Bytes
    ) -> moment_shares.MomentShare:
        return moment_shares.second_moments(self.cells, seeds, self.field)


def context_of(
    run: str, config: Mapping[str, Any], schemas: Mapping[str, Any], public: bytes
) -> bytes:
    """What a person and the second aggregator must both have been told."""
    context = json.dumps([run, config, schemas, public.hex()], sort_keys=True)
    return hashlib.sha256(b"understudy upload 1 " + context.encode()).digest()


def _bound(context: bytes, key: Bytes, corrections: Bytes) -> bytes:
    return context + key.tobytes() + hashlib.sha256(corrections.tobytes()).digest()


def as_words(rows: Bytes) -> Words:
    return np.ascontiguousarray(rows).view("<u4")


def _as_bytes(words: NDArray[Any]) -> Bytes:
    return words.astype("<u4").reshape(len(words), -1).view(np.uint8)
