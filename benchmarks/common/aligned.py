"""The whole alignment in one process."""

import os
from collections.abc import Iterable, Mapping

from understudy.ground.errors import AlignmentError
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
