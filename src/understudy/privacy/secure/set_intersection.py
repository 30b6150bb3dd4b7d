"""Private set intersection: find the people whom all parties hold, without showing
anybody's ids.

Meadows, "A more efficient cryptographic matchmaking protocol" (IEEE S&P 1986), and
Huberman, Franklin, Hogg, "Enhancing privacy and trust in electronic communities" (EC
1999): x is masked as H(x)^k, masks commute, so two sets that carry the same keys can be
compared. Group: the prime-order subgroup of Curve25519 (RFC 7748) through libsodium, in
constant time.
Paper → code: H → `hash_to_curve`, k_i → `IdMask.key`, H(x)^k_i → `IdMask.mask_ids`,
(…)^k_j → `IdMask.remask`.
Differs from the papers: M ≥ 2 parties on a ring. The set of party i goes round i, i+1,
…, so after h < M hops it carries the keys of i … i+h−1 and no two sets carry the same
keys: only complete sets can be compared.

Who learns what, and why, stands in `docs/secure_products.md`: a party which of its own
people all parties hold, and how many people each has; the server, which relays
everything, the number of people of each party and of every overlap, but no id: to test
a guess y it would need H(y)^k_i, which only i can make. Assumes: decisional
Diffie–Hellman in the group, H a random oracle. The intersection is a disclosure that no
ε covers; the ledger names it as such.
"""

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from numbers import Integral
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pandas as pd
from nacl.bindings import crypto_core_ed25519_from_uniform, crypto_scalarmult
from nacl.exceptions import RuntimeError as SodiumError
from numpy.typing import NDArray

from understudy.data.encoding.values import starts_of
from understudy.data.id_form import IdForm
from understudy.ground.errors import AlignmentError, ConfigError, Effect, OwnIdsError

Masked: TypeAlias = NDArray[np.uint8]  # (n, 32): u-coordinates, little-endian
Rows: TypeAlias = NDArray[np.int64]

# a set above this is refused before any work (640 MB of masked ids)
MOST_PEOPLE = 20_000_000
SALT_BYTES = 32

TAG = b"understudy/alignment/v1/curve25519_sha512_elligator2"
_P = 2**255 - 19
AS_THEY_STAND = IdForm()
_BATCH = 1024  # ids that a thread masks at once: a fifth of a second
_CHUNK_IDS = 1 << 16  # ids that are objects of Python at a time


@dataclass(frozen=True, eq=False)
class Ids:
    """Ids of one kind, "integer", "text" or a declared form, as bytes one after the
    other: equal bytes if and only if the same id.
    """

    kind: str
    data: bytes
    starts: Rows  # where each begins, and where all end

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, some: slice | Rows) -> list[bytes]:
        starts = self.starts[:-1][some].tolist()
        stops = self.starts[1:][some].tolist()
        return [
            self.data[start:stop] for start, stop in zip(starts, stops, strict=True)
        ]


class IdMask:
    """One party's side: its ids under its secret key, for one alignment.

    `salt` is public and the same for all parties of one alignment. `key` is 32 secret
    bytes, drawn afresh unless given; give one only to resume, for two alignments under
    one key can be linked. `watch` is told after each batch how many more ids were
    masked; what it raises ends the work, and nothing is returned.

    Guarantee: what `mask_ids` and `remask` return tells nothing about an id to anyone
    without the key, beyond equality with other sets that went through the same keys
    (module docstring).
    Edges: no ids, a missing, repeated, fractional or ambiguous id → AlignmentError
    before anything is masked. The message names one such id, so raise it at the holder
    and do not pass it on.
    """

    def __init__(
        self,
        ids: Ids | Iterable[object],
        *,
        salt: bytes,
        key: bytes | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        if len(salt) != SALT_BYTES:
            raise ConfigError(f"salt must be {SALT_BYTES} bytes, not {len(salt)}.")
        if key is not None and len(key) != 32:
            raise ConfigError(f"key must be 32 bytes, not {len(key)}.")
        self._ids = ids if isinstance(ids, Ids) else canonical_ids(ids)
        self.kind, self.people = self._ids.kind, len(self._ids)
        self.salt = salt
        self.key = os.urandom(32) if key is None else key
        self._watch = watch

    def mask_ids(self) -> Masked:
        """This party's ids under its key, sorted by masked value, so that a row's
        position in the table stays here.
        """
        return self._masked_and_order[0]

    def remask(self, masked: Masked, owner: str = "another party") -> Masked:
        """Another party's masked ids, each under this party's key too, in the order
        they came.

        Every canonical 32-byte string is a safe argument of X25519: it makes the key a
        multiple of the cofactor, and the twist is as strong as the curve (RFC 7748,
        section 7), so a hostile set tells no bit of the key.
        Edges: not (n, 32) bytes, too many, repeated, not canonical, of small order →
        AlignmentError.
        """
        points = checked_set(masked, owner)
        return self._mask(
            len(points),
            lambda batch: [point.tobytes() for point in points[batch]],
        )

    def positions_to_rows(self, positions: NDArray[np.integer[Any]]) -> Rows:
        """The rows of the holder's table for positions in `mask_ids()`, in the order of
        the positions.
        """
        is_integer = np.issubdtype(positions.dtype, np.integer)
        if positions.ndim != 1 or not is_integer or not positions.size:
            problem = (
                f"must be a vector of whole numbers, not {positions.dtype} "
                f"{positions.shape}"
            )
        elif positions.min() < 0 or positions.max() >= self.people:
            problem = f"must lie within this party's {self.people:,} people"
        elif np.unique(positions).size != positions.size:
            problem = "must differ, or one person would take two rows"
        else:
            rows: Rows = self._masked_and_order[1][positions]
            return rows
        raise AlignmentError(
            f"The positions of the shared people {problem}. No row was used."
        )

    @cached_property
    def _masked_and_order(self) -> tuple[Masked, Rows]:
        prefix = TAG + self.salt + self.kind.encode() + b":"
        # (n, 32), by row
        masked = self._mask(
            self.people,
            lambda batch: hash_to_curve(prefix, self._ids[batch]),
        )
        order = np.argsort(tags_of(masked))
        return masked[order], order

    def _mask(self, people: int, points: Callable[[slice], list[bytes]]) -> Masked:
        return in_batches(
            people,
            lambda batch: raised(self.key, points(batch)),
            watch=self._watch,
        )


def raised(key: bytes, points: Iterable[bytes]) -> list[bytes]:
    """Every point under this key. Edges: a point of small order → SodiumError."""
    return [crypto_scalarmult(key, point) for point in points]


def in_batches(
    people: int,
    work: Callable[[slice], list[bytes]],
    *,
    sets: int = 1,
    watch: Callable[[int], None] | None = None,
) -> Masked:
    """What `work` makes of all people, batch by batch on every core: `sets` values of
    32 bytes each, (people, 32 · sets). `watch` is told of every batch.
    Edges: a value of small order → AlignmentError.
    """
    batches = [
        slice(start, min(start + _BATCH, people)) for start in range(0, people, _BATCH)
    ]
    width = 32 * sets
    masked = np.empty((people, width), dtype=np.uint8)
    # PyNaCl lets go of the interpreter's lock while libsodium works, so threads use
    # every core.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        run = pool.map if len(batches) > 1 else map
        try:
            for batch, values in zip(batches, run(work, batches), strict=True):
                data = np.frombuffer(b"".join(values), dtype=np.uint8)
                masked[batch] = data.reshape(-1, width)
                if watch is not None:
                    watch(batch.stop - batch.start)
        except SodiumError as error:
            raise AlignmentError(
                "A masked id has small order. The whole set was refused."
            ) from error
        finally:
            # the batches not begun, where one was refused or stopped
            pool.shutdown(cancel_futures=True)
    return masked


def match_grid(
    sets: Mapping[str, Masked],
    groups: Sequence[Sequence[str]],
) -> tuple[dict[str, Rows], dict[tuple[str, ...], int]]:
    """The server's side: where in each party's complete set (under all M keys) the
    shared people stand.

    A group of parties holds people together, each of them other people; a person is
    shared where every group has them. All parties get them in one order, random to each
    of them: people who are with the same parties are a cell of the grid; the order is
    by cell, then by masked value. Besides the positions: how many people each cell has.
    Edges: fewer than two groups, nobody shared, a person with two parties of one group,
    or a party none of whose people is shared → AlignmentError.
    """
    if len(groups) < 2:
        raise AlignmentError(f"Alignment needs two parties or more, not {len(groups)}.")
    common = _common_positions([_group_tags(sets, group) for group in groups])
    if not common.size:
        raise AlignmentError(
            f"No person is held by all of {', '.join(sets)}. No row was used."
        )
    bounds = [[0, *accumulate(len(sets[name]) for name in group)] for group in groups]
    # (groups, people): the number of each person's party in each group
    party = np.stack(
        [
            np.searchsorted(group_bounds[1:], positions, side="right")
            for group_bounds, positions in zip(bounds, common, strict=True)
        ]
    )
    # stable: within a cell the masked values stay in order
    order = np.lexsort(party[::-1])
    common = common[:, order]
    party = party[:, order]
    shared_positions = {}
    for index, group in enumerate(groups):
        for number, name in enumerate(group):
            in_group = common[index, party[index] == number]
            if not in_group.size:
                raise AlignmentError(
                    f"None of the people of {name} is shared. No row was used."
                )
            shared_positions[name] = in_group - bounds[index][number]
    cells, sizes = np.unique(party, axis=1, return_counts=True)
    people_by_cell = {}
    for cell, size in zip(cells.T, sizes, strict=True):
        names = (group[number] for group, number in zip(groups, cell, strict=True))
        people_by_cell[tuple(names)] = int(size)
    return shared_positions, people_by_cell


def _group_tags(sets: Mapping[str, Masked], group: Sequence[str]) -> NDArray[np.bytes_]:
    """The tags of all people of a group's parties, one party after another."""
    tags = [tags_of(checked_set(sets[name], name)) for name in group]
    if len(tags) == 1:
        return tags[0]
    all_tags = np.concatenate(tags)
    if _repeats(all_tags):
        raise AlignmentError(
            f"Two of {', '.join(group)} hold the same person, who would be counted "
            "twice. No row was used."
        )
    return all_tags


def _common_positions(tags_by_group: Sequence[NDArray[np.bytes_]]) -> Rows:
    """Where each person whom every group has is among the people of each group, in the
    order of tags: (groups, people).
    """
    by_tag = np.argsort(tags_by_group[0])
    people = tags_by_group[0][by_tag]
    positions = np.full((len(tags_by_group), len(people)), -1)
    positions[0] = by_tag
    for group, tags in enumerate(tags_by_group[1:], 1):
        person = np.searchsorted(people, tags)
        person[person == len(people)] = 0
        matching = np.flatnonzero(people[person] == tags)
        positions[group, person[matching]] = matching
    return positions[:, (positions >= 0).all(axis=0)]


def ring(names: Sequence[str]) -> list[dict[str, str]]:
    """The M − 1 hops: in hop h the set of party i is remasked by party i + h. Each
    party is busy once a hop.

    >>> ring(["a", "b", "c"])
    [{'a': 'b', 'b': 'c', 'c': 'a'}, {'a': 'c', 'b': 'a', 'c': 'b'}]
    """
    return [
        dict(zip(names, (*names[hop:], *names[:hop]), strict=True))
        for hop in range(1, len(names))
    ]


def agree_on_kind(kinds: Mapping[str, str]) -> None:
    """All parties have ids of one kind, or none of them could ever match."""
    if len(set(kinds.values())) > 1:
        stated = ", ".join(f"{name} has {kind} ids" for name, kind in kinds.items())
        raise AlignmentError(
            f"{stated}: these never match. Give all parties one kind.",
            effect=Effect.NOTHING_SENT,
        )


def canonical_ids(ids: Iterable[object], form: IdForm = AS_THEY_STAND) -> Ids:
    """The ids, of whichever form, as bytes; few of them are objects of Python at a
    time.

    By a declared `form` whole numbers and text are texts that it writes. Without one:

    Integers (Python's or numpy's, of any width) are written in decimal. Text is taken
    as it stands, case and inner spaces and leading zeros included, in Unicode's
    composed form (NFC): "é" is "é" however typed. Nothing is stripped or guessed: what
    two holders could easily write differently is refused.
    """
    parts = list[bytes]()
    sizes = list[Rows]()
    marks = list[Rows]()
    kind_counts = Counter[str]()
    for values in _lists(ids):
        n_before = kind_counts.total()
        kinds = {type_: _kind(type_) for type_ in set(map(type, values))}
        if "" in kinds.values():
            _refuse_first(
                values,
                [kinds[type(value)] == "" for value in values],
                n_before,
            )
        if form:
            values = _written(values, form, n_before)
            kinds = {str: form.kind}
        kind_counts.update(kinds[type(value)] for value in values)
        ambiguous = [isinstance(value, str) and not _plain(value) for value in values]
        if any(ambiguous):
            _refuse_first(values, ambiguous, n_before)
        texts = (
            value if isinstance(value, str) else str(int(value)) for value in values
        )
        written = [unicodedata.normalize("NFC", text).encode() for text in texts]
        parts.append(b"".join(written))
        sizes.append(np.fromiter(map(len, written), np.int64))
        marks.append(np.fromiter(map(hash, written), np.int64))
    if not parts:
        raise OwnIdsError("There are no ids to align.", effect=Effect.NOTHING_SENT)
    if len(kind_counts) > 1:
        raise OwnIdsError(
            f"The ids are of two kinds, {kind_counts['integer']:,} integer and "
            f"{kind_counts['text']:,} text: "
            '7 and "7" never match. Make the column one kind.',
            effect=Effect.NOTHING_SENT,
        )
    kind = next(iter(kind_counts))
    all_ids = Ids(kind, b"".join(parts), starts_of(np.concatenate(sizes)))
    if _repeats(np.concatenate(marks)):  # or two that differ have one mark
        _refuse_repeated(all_ids)
    return all_ids


def _written(
    values: list[Any],
    form: IdForm,
    before: int,
) -> list[str]:
    written = []
    for row, value in enumerate(values, before):
        try:
            text = value if isinstance(value, str) else str(int(value))
            written.append(form.write(text))
        except ValueError as error:
            raise OwnIdsError(
                f"ids[{row}] = {value!r} {error}.",
                effect=Effect.NOTHING_SENT,
            ) from None
    return written


def _refuse_repeated(ids: Ids) -> None:
    counts = Counter(ids[:])
    example, times = counts.most_common(1)[0]
    if times > 1:
        raise OwnIdsError(
            f"{len(ids) - len(counts):,} of {len(ids):,} rows repeat the id of another "
            f"row, for instance {example.decode()}: a person takes one row.",
            effect=Effect.NOTHING_SENT,
        )


def _lists(ids: Iterable[object]) -> Iterator[list[Any]]:
    if isinstance(ids, np.ndarray):
        for start in range(0, len(ids), _CHUNK_IDS):
            yield ids[start : start + _CHUNK_IDS].tolist()
        return
    remaining = iter(ids)
    while values := list(islice(remaining, _CHUNK_IDS)):
        yield values


def _kind(type_: type) -> str:
    """ "text", "integer", or "" for what is no id."""
    if issubclass(type_, str):
        return "text"
    is_integer = issubclass(type_, Integral) and not issubclass(type_, bool)
    return "integer" if is_integer else ""


def _plain(text: str) -> bool:
    return text != "" and text.isprintable() and text == text.strip()


def _refuse_first(
    values: list[Any],
    bad: list[bool],
    before: int,
) -> NoReturn:
    row = before + bad.index(True)
    value = values[bad.index(True)]
    if pd.api.types.is_scalar(value) and pd.isna(value):
        why = "is missing: every person needs an id"
    elif isinstance(value, str):
        why = (
            "is empty, begins or ends with a space, or holds an invisible character: "
            "write it without"
        )
    elif isinstance(value, float):
        why = (
            "is a float, as a column with gaps is read: read it as whole numbers or "
            "as text"
        )
    else:
        why = f"is a {type(value).__name__}: ids are whole numbers or text"
    raise OwnIdsError(f"ids[{row}] = {value!r} {why}.", effect=Effect.NOTHING_SENT)


def hash_to_curve(prefix: bytes, ids: list[bytes]) -> list[bytes]:
    """H: ids → the prime-order subgroup of Curve25519, as u-coordinates.

    SHA-512, Elligator 2 and times the cofactor (`from_uniform`), u = (1 + y)/(1 − y)
    (RFC 7748, section 4.1). The curve and never its twist: a mask keeps a point where
    it is, so a u drawn at large would carry one bit of its id through every mask. One
    Elligator map, not the sum of two as in RFC 9380, misses about half of the points;
    the proof only needs a simulator that samples H(x) = g^r with r known, which it can,
    for Elligator is invertible: draw r until g^r has a preimage.
    """
    hashes = [hashlib.sha512(prefix + id_).digest()[:32] for id_ in ids]
    ys = [
        int.from_bytes(crypto_core_ed25519_from_uniform(hash_), "little") % 2**255
        for hash_ in hashes
    ]
    inverses = _inverses([1 - y for y in ys])
    return [
        ((1 + y) * inverse % _P).to_bytes(32, "little")
        for y, inverse in zip(ys, inverses, strict=True)
    ]


def _inverses(values: list[int]) -> list[int]:
    """1/v mod p for all values with a single inversion (Montgomery's trick)."""
    products = list(accumulate(values, lambda a, b: a * b % _P, initial=1))
    inverse = pow(products[-1], -1, _P)
    inverses = []
    for value, before in zip(reversed(values), reversed(products[:-1]), strict=True):
        inverses.append(inverse * before % _P)
        inverse = inverse * value % _P
    return inverses[::-1]


def checked_set(masked: Masked, owner: str) -> Masked:
    """A set from outside: the right shape, not too large, canonical u-coordinates, each
    once.
    """
    if masked.dtype != np.uint8 or masked.ndim != 2 or masked.shape[1] != 32:
        problem = f"must be bytes of shape (n, 32), not {masked.dtype} {masked.shape}"
    elif not 1 <= len(masked) <= MOST_PEOPLE:
        problem = f"must hold between 1 and {MOST_PEOPLE:,} people, not {len(masked):,}"
    elif _not_canonical(masked).any():
        problem = "hold a value outside the field, which X25519 would read as another"
    elif _repeats(tags_of(masked)):
        problem = "hold a value twice"
    else:
        return masked
    raise AlignmentError(
        f"The masked ids of {owner} {problem}. The whole set was refused."
    )


def _repeats(values: NDArray[Any]) -> bool:
    values = np.sort(values)
    return bool((values[1:] == values[:-1]).any())


def _not_canonical(masked: Masked) -> NDArray[np.bool_]:
    """Which u are 2^255 − 19 or above, in little-endian bytes."""
    low = masked[:, 0] >= 0xED
    middle = (masked[:, 1:31] == 0xFF).all(axis=1)
    top = masked[:, 31]
    return np.asarray((top > 0x7F) | (top == 0x7F) & middle & low)


def tags_of(masked: Masked) -> NDArray[np.bytes_]:
    """One sortable value a row. All have 32 bytes, so that numpy's padding with zeros
    merges none.
    """
    return np.ascontiguousarray(masked).view("S32").ravel()
