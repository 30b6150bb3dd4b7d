"""The whole alignment in one process, and one that costs next to nothing."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from understudy.ground.errors import AlignmentError
from understudy.privacy.noise import Rng
from understudy.privacy.secure import private_union, set_intersection
from understudy.privacy.secure.set_intersection import (
    SALT_BYTES,
    IdMask,
    Masked,
    Rows,
    agree_on_kind,
    match_grid,
    ring,
)


def match(sets: Mapping[str, Masked]) -> dict[str, Rows]:
    """Where in each party's complete set the people stand whom all hold."""
    return match_grid(sets, [(name,) for name in sets])[0]


def align(ids: Mapping[str, Iterable[object]]) -> dict[str, Rows]:
    """The whole alignment in one process: each party's rows of the shared people, in
    one common order.
    """
    salt = os.urandom(SALT_BYTES)
    masks = {}
    for name, held in ids.items():
        try:
            masks[name] = IdMask(held, salt=salt)
        except AlignmentError as error:
            raise AlignmentError(f"{name}: {error}") from error
    agree_on_kind({name: mask.kind for name, mask in masks.items()})
    sets = {name: mask.mask_ids() for name, mask in masks.items()}
    for hop in ring(tuple(masks)):
        sets = {name: masks[peer].remask(sets[name]) for name, peer in hop.items()}
    return {
        name: masks[name].positions_to_rows(positions)
        for name, positions in match(sets).items()
    }


@dataclass(frozen=True)
class United:
    """Where each holder's rows are in a union, how many places that has, and what a
    holder sent, in bytes of points: the mean of both.
    """

    places: dict[str, Rows]
    people: int
    sent_bytes: float


def unite(
    ids: Mapping[str, Iterable[object]], padding: private_union.Padding, rng: Rng
) -> United:
    """The whole alignment of two holders to a union, in one process."""
    salt = os.urandom(SALT_BYTES)
    first, second = (
        private_union.UnionMask(
            held,
            number=number,
            salt=salt,
            padding=padding,
            drawn=padding.draw(rng),
        )
        for number, held in enumerate(ids.values(), 1)
    )
    own = first.mask_ids(), second.mask_ids()
    twice = second.remask(own[0]), first.remask(own[1])
    alone = first.others(twice[0]), second.others(twice[1])
    places, people = first.places(alone[1])
    others, _ = second.places(alone[0])
    sets = (*own, *twice, *alone)
    return United(
        dict(zip(ids, (places, others), strict=True)),
        people,
        sum(one.nbytes for one in sets) / 2,
    )


@contextmanager
def without_curve() -> Iterator[None]:
    """Hashes and exclusive or in the place of the curve: the same people are found, and
    nothing is protected.
    """
    with ExitStack() as stack:
        for module in (set_intersection, private_union):
            stack.enter_context(patch.object(module, "hash_to_curve", _hashed))
        stack.enter_context(patch.object(set_intersection, "crypto_scalarmult", _xor))
        yield


def _hashed(prefix: bytes, ids: list[bytes]) -> list[bytes]:
    return [hashlib.sha256(prefix + one).digest()[:31] + b"\0" for one in ids]


def _xor(key: bytes, point: bytes) -> bytes:
    """What commutes as masks do, of 31 bytes."""
    mixed = int.from_bytes(key[:31], "little") ^ int.from_bytes(point, "little")
    return mixed.to_bytes(32, "little")
