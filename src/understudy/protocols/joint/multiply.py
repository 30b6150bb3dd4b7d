"""Products between holders, for a stage: a holder's side and the server's, by masks that the server deals.

This is all that the engine knows of how products are made. Another way to make them (rows under encryption, with nobody
who deals) would have the same three parts: what a holder sends chunk by chunk and ends with (`Products`), what the
server sends with `Agree` (`seeds_for`), and its relay (`multiply`).

Guarantee: masks follow from the seeds that were dealt, all keys, how people are cut into messages, and what the stage
is (`stage.digest`): no two messages to one holder differ by rows alone, whatever a server tells in between.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.grid import Block as Groups
from understudy.data.grid import Grid
from understudy.privacy.secure.channel import Channel
from understudy.privacy.secure.product import Factor
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core import Parties
from understudy.protocols.core.agreeing import Inboxes
from understudy.protocols.core.products import (
    Cells,
    Dealing,
    Products,
    Swap,
    cells_of,
    chunks_of,
    cut_as,
    mask_seed,
    relayed,
)
from understudy.protocols.joint.messages import Agree
from understudy.protocols.joint.stage import Product

DEALT = (
    "rows against the server together with a holder: the server deals the masks, so together they could remove them",
)
_MESSAGE = 1 << 27  # bytes, at most


def step_of(product: Product, grid: Grid, most: int, ring: Ring) -> int:
    """How many people go into one message: as many as fit, and no more than `most`."""
    row = max(product.widths.values()) * ring.dtype.itemsize * max(1, len(grid.groups) - 1)
    return max(1, min(most, _MESSAGE // max(1, row)))


def products_of(
    name: str,
    grid: Grid,
    agree: Agree,
    channels: Mapping[str, Channel],
    product: Product,
    vectors: Callable[[int, int], NDArray[Any]],
    people: int,
    about: bytes,
) -> Products:
    """A holder's side of a product: with whoever holds some of its people in a group that its own multiplies with."""
    ring, own = Ring(agree.bits), grid.group_of(name)
    step = step_of(product, grid, agree.chunk, ring)

    def meets(peer: str) -> bool:
        return _groups(grid, name, peer) in product.pairs

    cut = chunks_of(name, grid.groups, agree.cells, step, people)
    chunks = [(start, stop, tuple(filter(meets, peers))) for start, stop, peers in cut]
    chunks = [chunk for chunk in chunks if chunk[2]]
    told = cut_as(agree.bits, agree.chunk, agree.cells) + about
    factors = {
        peer: Factor(
            ring,
            mask_seed(agree.seeds[peer], agree.keys, told),
            first=own < grid.group_of(peer),
            width=product.widths[own],
            peer_width=product.widths[grid.group_of(peer)],
        )
        for peer in agree.keys
        if any(peer in peers for _, _, peers in chunks)
    }

    def rows(start: int, stop: int) -> Any:
        if start == stop:
            return np.zeros((0, product.widths.get(own, 0)), dtype=np.bool_)
        made = vectors(start, stop)
        return made if made.dtype == np.bool_ else ring.words(made)

    return Products(ring, channels, factors, rows, chunks)


def shares_of(
    name: str, grid: Grid, products: Products, inbox: Mapping[str, Tensor], corrections: Mapping[str, Tensor]
) -> dict[Groups, Tensor]:
    """What a holder's side ends with: its share of Σ v_g v_hᵀ with each other group, over all its holders."""
    found: dict[Groups, Tensor] = {}
    for peer, share in products.shares(inbox, corrections).items():
        groups, part = _groups(grid, name, peer), products.ring.signed(share)
        found[groups] = found[groups] + part if groups in found else part
    return found


# The server's side


def seeds_for(
    names: Sequence[str], cells: Cells, keys: Mapping[str, bytes], secret: bytes
) -> dict[str, dict[str, bytes]]:
    """What is dealt to each holder for its masks, for all products of a session."""
    dealing = Dealing(Ring(64), dict.fromkeys(names, 0), cells, keys=keys, secret=secret)
    return {name: dealing.seeds(name) for name in names}


def multiply(
    parties: Parties,
    grid: Grid,
    product: Product,
    cells: Cells,
    agree: Mapping[str, Agree],
    secret: bytes,
    about: bytes,
    words: Inboxes,
) -> tuple[Inboxes, dict[str, dict[str, Tensor]]]:
    """Relay what the holders of each cell send each other, chunk by chunk, and deal their masks.

    `words` come with the first ask of each holder. Returned are inboxes and corrections for the ask that is due next.
    """
    first = next(iter(agree.values()))
    ring = Ring(first.bits)
    step = step_of(product, grid, first.chunk, ring)
    told = {name: cut_as(one.bits, one.chunk, one.cells) + about for name, one in agree.items()}
    widths = {name: product.widths.get(grid.group_of(name), 0) for name in agree}
    pairs = {
        cell: [two for two in combinations(cell, 2) if _groups(grid, *two) in product.pairs] for cell in cells
    }
    dealt = [two for some in pairs.values() for two in some]
    dealing = Dealing(ring, widths, dealt, keys=first.keys, secret=secret, about=told)
    inbox = {name: dict(words.get(name, {})) for name in agree}
    swapped = dict.fromkeys(agree, 0)
    for cell, people in cells.items():
        active = [name for name in cell if any(name in two for two in pairs[cell])]
        for start in range(0, people if active else 0, step):
            replies = parties.ask({name: Swap(chunk=swapped[name], inbox=inbox[name]) for name in active})
            for name in active:
                inbox[name], swapped[name] = {}, swapped[name] + 1
            for two in pairs[cell]:
                for name, box in relayed({one: replies[one].outbox for one in two}, two).items():
                    inbox[name] |= box
                dealing.deal(min(step, people - start), two)
    return inbox, {name: dealing.corrections(name) for name in agree}


def _groups(grid: Grid, one: str, other: str) -> Groups:
    """Of two holders, the lower group first."""
    a, b = grid.group_of(one), grid.group_of(other)
    return min(a, b), max(a, b)


__all__ = ["DEALT", "cells_of", "multiply", "products_of", "seeds_for", "shares_of", "step_of"]
