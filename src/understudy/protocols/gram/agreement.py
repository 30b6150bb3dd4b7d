"""What a holder checks before it takes part in a joint Gram matrix, and what it holds until the last release.

Guarantee: noise that is less than the budget needs, people other than the aligned ones, a key or seed too few or too
many → an error, and nothing is charged or sent.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.ends import end_cells
from understudy.data.encoding.fine import is_bought
from understudy.data.encoding.levels import Levels
from understudy.data.schema import Schema
from understudy.ground.check import in_range
from understudy.ground.errors import MessageError, SchemaError
from understudy.models.tables.bought_levels import most_width
from understudy.privacy.noise import DiscreteGaussianNoise
from understudy.privacy.secure.product import Factor
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core.keyed import Agreement as KeyedAgreement
from understudy.protocols.core.products import Chunk, Products, cut_as, mask_seed
from understudy.protocols.gram.layout import Layout, Spread
from understudy.protocols.gram.messages import Agree
from understudy.protocols.gram.terms import Rows


@dataclass
class Agreement(KeyedAgreement):
    """What a party holds between `Agree` and its last release."""

    rows: Rows = field(kw_only=True)  # on the levels that are counted next
    products: Products | None = None  # None until levels are taken, where they are bought
    parts: dict[int, Tensor] = field(default_factory=dict)  # of each block, without noise; after the products
    proposed: bytes = b""  # the pairs that were confirmed to the other holders, as a hash
    levels: Levels | None = None  # as they were confirmed to the other holders
    chosen: Tensor | None = (
        None  # pairs of the three-way tables for which `products` are, after the first ones
    )

    @property
    def layout(self) -> Layout:
        return self.rows.layout

    @property
    def ring(self) -> Ring:
        return Ring(self.agree.bits)


def check_levels(name: str, schema: Schema, groups: Mapping[str, Tensor]) -> Levels:
    """Levels of all columns that fit the schema and are not too many: refused before anything else is done."""
    due = [str(place) for place in range(len(schema.columns))]
    dtypes = {key: getattr(group, "dtype", None) for key, group in groups.items()}
    if dtypes != dict.fromkeys(due, torch.int32):
        raise MessageError(f"{name}: levels of {len(due)} columns were due. Nothing was charged or sent.")
    cells = [groups[key].numpy() for key in due]
    try:
        ends = {j: np.zeros(many) for j, many in enumerate(map(end_cells, schema.columns)) if many}
        levels = Levels(schema, cells, [np.zeros(part.shape) for part in cells], ends)
    except SchemaError as error:
        raise MessageError(f"{name}: {error} Nothing was charged or sent.") from None
    bought = [size for column, size in zip(schema.columns, levels.sizes, strict=True) if is_bought(column)]
    if sum(bought) > most_width(len(bought)):
        raise MessageError(f"{name}: {sum(bought):,} levels are too many. Nothing was charged or sent.")
    return levels


def levels_word(levels: Levels) -> bytes:
    """What holders say to each other about the levels that they were told."""
    parts = (np.int64(len(group)).tobytes() + group.tobytes() for group in levels.groups)
    return hashlib.sha256(b"understudy levels " + b"".join(parts)).digest()


def pairs_word(wanted: Tensor, layout: Layout) -> bytes:
    """What holders say to each other about the pairs, and the three-way tables, that they are asked for."""
    return hashlib.sha256(
        b"understudy pairs " + wanted.numpy().tobytes() + repr(layout.triples).encode()
    ).digest()


def check_shares(layout: Layout, ask: Agree, spreads: Sequence[Spread]) -> None:
    """Noise that can be drawn, in every share of it: refused before it is paid for."""
    for asked, spread in zip(ask.sigmas, spreads, strict=True):
        sizes = {block: min(len(ask.keys), len(layout.holders(block))) for block in layout.blocks}
        shares = {spread.share(block, size, asked) for block, size in sizes.items()}
        for scale in {Fraction(asked), *shares} - {Fraction(0)}:
            DiscreteGaussianNoise(scale)
    if len(ask.keys) > 1:
        in_range(1, len(ask.keys) - 1, colluding=spreads[0].colluding)


def factors_of(
    name: str,
    layout: Layout,
    ask: Agree,
    chunks: Sequence[Chunk],
    widths: Sequence[int] = (),
    about: bytes = b"",
) -> dict[str, Factor]:
    """This holder's side of the product with each holder that it shares people with.

    `widths` of each group's rows, where they are not those of the layout, and what the product is about, where that was
    told after the keys.
    """
    widths = widths or layout.widths
    peers = {peer for _, _, held in chunks for peer in held}
    known, told = layout.schemas.keys(), ask.keys.keys()
    missing = told != known if layout.grid.partition != "rows" else not told <= known
    if missing or ask.seeds.keys() != peers:
        raise MessageError(f"{name}: a party's key or seed is missing or new. Nothing was sent.")
    group_of = layout.grid.group_of
    own, cut = group_of(name), cut_as(ask.bits, ask.chunk, ask.cells)
    return {
        peer: Factor(
            Ring(ask.bits),
            mask_seed(ask.seeds[peer], ask.keys, cut + about),
            first=own < group_of(peer),
            width=widths[own],
            peer_width=widths[group_of(peer)],
        )
        for peer in known
        if peer in peers
    }
