"""What a holder counts for a joint Gram matrix, and how it leaves: under its share of noise, and under pads.

A holder has a part in every block that its columns are in (`layout`): its own matrix, and its shares of the products
with others. The arithmetic stands in `understudy.privacy.secure`.

Guarantee: to every cell that is released, and to no other, noise is added of the scale that the layout, the release's σ
and the number of holders of the block say; a cell that is not released is 0 under its pads. Each pad is for one message
alone (`Layout.stream`).
Edges: nothing is charged here: whoever sends this has paid for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.data.grid import Block
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import gram_matrix, mirrored, noise_on, triple_table
from understudy.privacy.secure.ring import Ring, Words
from understudy.privacy.secure.sums import blind
from understudy.protocols.gram.across import Across
from understudy.protocols.gram.agreement import Agreement
from understudy.protocols.gram.layout import Layout, Spread
from understudy.protocols.gram.terms import Rows


def parts_of(
    layout: Layout, name: str, rows: Rows, shares: Mapping[str, Words], ring: Ring
) -> dict[int, Tensor]:
    """This holder's part of each block that it has one in, by the block's place, without noise."""
    group = layout.grid.group_of(name)
    parts = {
        block: torch.zeros(layout.shape(block), dtype=torch.int64)
        for block in layout.blocks
        if group in block
    }
    for peer, share in shares.items():
        block = (min(pair := (group, layout.grid.group_of(peer))), max(pair))
        parts[block] += ring.signed(share)
    for codes in rows.code_batches():
        parts[group, group] += gram_matrix(codes, layout.group_sizes[group])
    return {layout.blocks.index(block): part for block, part in parts.items()}


def nodes_of(layout: Layout, name: str, rows: Rows) -> Tensor:
    """The people of every node of the trees of this holder's columns."""
    trees = layout.trees[layout.grid.group_of(name)]
    nodes = torch.zeros(trees.nodes, dtype=torch.int64)
    for cells in rows.cell_batches():
        nodes += trees.count(cells)
    return nodes


def triples_of(
    layout: Layout, name: str, rows: Rows, shares: Mapping[str, Words], ring: Ring
) -> dict[int, Tensor]:
    """The three-way tables of this holder's columns, by their numbers, and its parts of those across holders."""
    own = layout.grid.group_of(name)
    tables = Across(layout).parts(own, shares, ring)
    found = {number: layout.place(names) for number, names in enumerate(layout.triples)}
    held = {number: place for number, place in found.items() if place and place.block == (own, own)}
    for codes in rows.code_batches() if held else ():
        for number, place in held.items():
            columns = [column for _, column in place.columns]
            table = triple_table(codes, layout.group_sizes[own], columns)
            tables[number] = tables[number] + table if number in tables else table
    return tables


@dataclass(frozen=True)
class Blinding:
    """How one release of a holder is made unreadable but for the sum of all holders."""

    name: str
    layout: Layout
    spread: Spread
    agreement: Agreement
    number: int  # of the release
    rng: Rng

    def blocks(self, wanted: Tensor) -> dict[str, Tensor]:
        """The pairs of columns that are wanted, (m, m), of every part."""
        blinded = {}
        for place, part in self.agreement.parts.items():
            block = self.layout.blocks[place]
            blinded[str(place)] = self._blinded(part, self.layout.cells(block, wanted), place, block)
        return blinded

    def fine(self, nodes: Tensor) -> dict[str, Tensor]:
        """The trees of this holder's columns, in the place of its own block."""
        group = self.layout.grid.group_of(self.name)
        block = (group, group)
        place = self.layout.blocks.index(block)
        return {str(place): self._blinded(nodes, torch.ones_like(nodes, dtype=torch.bool), place, block)}

    def triples(self, tables: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """The three-way tables of this holder's columns, by their numbers."""
        blinded = {}
        for number, table in tables.items():
            place = self.layout.place(self.layout.triples[number])
            assert place is not None
            every = torch.ones_like(table, dtype=torch.bool)
            stream = len(self.layout.blocks) + number
            blinded[str(number)] = self._blinded(table, every, stream, place.block)
        return blinded

    def _blinded(self, part: Tensor, cells: Tensor, stream: int, block: Block) -> Tensor:
        """The marked cells of a part with noise, the others empty, under pads with all who have a part in it too."""
        agree, ring = self.agreement.agree, self.agreement.ring
        present = [name for name in self.layout.holders(block) if name in agree.keys]
        scale = self.spread.share(block, len(present), agree.sigmas[self.number])
        noisy = part * cells + noise_on(cells, scale, self.rng)
        if block[0] == block[1] and part.ndim == 2:
            noisy = mirrored(noisy)
        lines = [self.agreement.channels[name] for name in present if name != self.name]
        pad = self.layout.stream(self.number, stream)
        return ring.signed(blind(ring.words(noisy), lines, ring, stream=pad))
