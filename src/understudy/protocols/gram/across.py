"""Three-way tables with a target whose columns are with two groups of holders.

Of three columns in two groups, two are with one of them. A holder of these forms one column of them, of all pairs of
their levels, and multiplies its 0/1 rows with the third column of a holder of the other group, in shares
(`core.products`): what is left is a part of the table at each. All tables of a run go in one product, of which the
parts of each table alone are released.

Guarantee: what crosses is masked by masks that follow from the seeds that were dealt and from the tables that were
proposed, so that no mask is used for other tables, whatever a server asks for; a share leaves its holder only with the
noise and the pads of a release.
Edges: a group without a column in them has rows of no width, and swaps nothing but empty messages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.codec import Codes
from understudy.privacy.secure.counts import one_hot
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.protocols.gram.layout import Layout, Place


@dataclass(frozen=True)
class Across:
    """The tables of a layout that lie across two groups."""

    layout: Layout

    @cached_property
    def places(self) -> dict[int, Place]:
        """Where each is counted, by its number among the layout's three-way tables."""
        found = {number: self.layout.place(names) for number, names in enumerate(self.layout.triples)}
        return {number: place for number, place in found.items() if place is not None and place.across}

    def __bool__(self) -> bool:
        return bool(self.places)

    @property
    def widths(self) -> list[int]:
        """The length of each group's rows."""
        return [sum(self._sizes(group).values()) for group in range(len(self.layout.widths))]

    def bits(self, codes: Codes, group: int) -> Bits:
        """A group's rows: of each table the pair of levels, or the level, as 0/1."""
        sizes = self._sizes(group)
        columns = [
            np.ravel_multi_index(
                tuple(
                    codes[:, self.places[number].columns[axis][1]] for axis in self.places[number].axes(group)
                ),
                self._shape(number, group),
            )
            for number in sizes
        ]
        if not columns:
            return np.zeros((len(codes), 0), dtype=np.bool_)
        return one_hot(np.stack(columns, axis=1), list(sizes.values()))

    def parts(self, group: int, shares: Mapping[str, Words], ring: Ring) -> dict[int, Tensor]:
        """A holder's part of each table of its group, by the table's number, from its shares with each other holder."""
        grid, found = self.layout.grid, dict[int, Tensor]()
        for number, place in self.places.items():
            if group not in place.block:
                continue
            low, high = (self._spans(side)[number] for side in place.block)
            axes = [axis for side in place.block for axis in place.axes(side)]
            shape = [self.layout.shape_of(place)[axis] for axis in axes]
            total = torch.zeros(low.stop - low.start, high.stop - high.start, dtype=torch.int64)
            for peer, share in shares.items():
                if grid.group_of(peer) in place.block:
                    total += ring.signed(np.ascontiguousarray(share[low, high]))
            found[number] = total.reshape(shape).permute(*map(axes.index, range(3))).contiguous()
        return found

    def _shape(self, number: int, group: int) -> Sequence[int]:
        place = self.places[number]
        return tuple(self.layout.shape_of(place)[axis] for axis in place.axes(group))

    def _sizes(self, group: int) -> dict[int, int]:
        """How many levels, or pairs of them, the group's part of each table has."""
        own = (number for number, place in self.places.items() if group in place.block)
        return {number: math.prod(self._shape(number, group)) for number in own}

    def _spans(self, group: int) -> dict[int, slice]:
        sizes = self._sizes(group)
        ends = accumulate(sizes.values())
        return {
            number: slice(end - size, end) for (number, size), end in zip(sizes.items(), ends, strict=True)
        }
