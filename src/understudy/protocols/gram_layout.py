"""The joint Gram matrix as server and holders see it alike: its blocks, who holds them, and what is released of them.

Holders with the same columns are a group (`data.grid`). A block of the matrix belongs to two groups, or to one and the
same: it is a sum of parts, one of every holder in them. Over rows there is one block with all holders in it, over
columns every block has one holder or two.

Noise. Every holder adds noise to its part, so that σ is left against those who pool theirs: with M holders of a block
of whom up to t do, σ/√(M − t), and σ itself where t ≥ M − 1 (`secure.sums`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from understudy.data.codec import Codec
from understudy.data.grid import Grid
from understudy.data.schema import Schema
from understudy.errors import ConfigError, MessageError
from understudy.privacy.laplace import DiscreteGaussianNoise
from understudy.privacy.secure.counts import movable
from understudy.privacy.secure.sums import noise_share

Block = tuple[int, int]  # two groups, the lower number first


@dataclass(frozen=True, eq=False)
class Layout:
    """Blocks of the joint matrix, and the three-way tables (`triples`, by column names) that go with them."""

    schemas: Mapping[str, Schema]
    triples: tuple[tuple[str, str, str], ...] = ()

    @cached_property
    def grid(self) -> Grid:
        return Grid.of(self.schemas)

    @cached_property
    def codecs(self) -> tuple[Codec, ...]:
        """One for each group."""
        return tuple(Codec(schema) for schema in self.grid.one_each(self.schemas).values())

    @cached_property
    def joint(self) -> Schema:
        return self.grid.join(self.schemas)

    @property
    def columns(self) -> int:
        return len(self.joint.columns)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The levels of every column."""
        return tuple(size for codec in self.codecs for size in codec.sizes)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(combinations_with_replacement(range(len(self.codecs)), 2))

    def shape(self, block: Block) -> tuple[int, int]:
        g, h = block
        return self.codecs[g].width, self.codecs[h].width

    def holders(self, block: Block) -> tuple[str, ...]:
        """Who has a part in the block."""
        return tuple(name for group in sorted(set(block)) for name in self.grid.groups[group])

    def share(self, holders: int, sigma: float, colluding: int) -> Fraction:
        """The scale of each holder's noise on what so many of them release together."""
        return noise_share(Fraction(sigma), holders, colluding=min(colluding, max(1, holders - 1)))

    def deviation(self, holders: int, sigma: float, colluding: int) -> float:
        """The standard deviation of all their noise together; 0 for none."""
        share = self.share(holders, sigma, colluding)
        return math.sqrt(holders * DiscreteGaussianNoise(share).variance) if share else 0.0

    def stream(self, release: int, part: int) -> int:
        """The number of a pad: each is for one message alone. Parts are the blocks, then the triples."""
        return release * (len(self.blocks) + len(self.triples)) + part

    # What is released of it

    def everything(self, *, across: bool = False) -> Tensor:
        """All columns and all their pairs, or the pairs `across` groups alone: (m, m), upper triangle."""
        group = torch.repeat_interleave(torch.tensor([len(codec.sizes) for codec in self.codecs]))
        return ((group[:, None] != group) | (not across)).triu()

    def only(self, pairs: Tensor, expected: int) -> Tensor:
        """These pairs of columns: (pairs, 2) → (m, m), upper triangle. MessageError if they are not so many pairs."""
        wanted = torch.zeros(self.columns, self.columns, dtype=torch.bool)
        good = pairs.dtype == torch.int64 and pairs.shape == (expected, 2)
        if good and bool(((pairs >= 0) & (pairs < self.columns)).all()):
            wanted[pairs[:, 0], pairs[:, 1]] = True
        if int(wanted.triu(1).sum()) != expected or not expected:
            raise MessageError(
                f"{expected} different pairs of columns were due, the lower first. Nothing was charged or sent."
            )
        return wanted

    def cells(self, block: Block, wanted: Tensor) -> Tensor:
        """Which cells of the block that is. Within a group: the upper triangle."""
        rows, columns = (torch.repeat_interleave(self._columns_of(group)) for group in block)
        of_group = self._starts[block[0]], self._starts[block[1]]
        marked = wanted[rows[:, None] + of_group[0], columns[None, :] + of_group[1]]
        if block[0] == block[1]:
            return (marked & movable(self.codecs[block[0]])).triu()
        return marked

    def triple(self, names: Sequence[str]) -> tuple[int, tuple[int, ...]]:
        """A three-way table's group, and its columns within it. ConfigError where they are not of one group."""
        schemas = list(self.grid.one_each(self.schemas).values())
        if len(set(names)) == 3:
            for group, schema in enumerate(schemas):
                if set(names) <= set(schema.names):
                    return group, tuple(schema.names.index(name) for name in names)
        raise ConfigError(f"{', '.join(names)} are not three columns of one holder. Nothing was charged.")

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        sizes = [len(codec.sizes) for codec in self.codecs]
        return tuple(sum(sizes[:group]) for group in range(len(sizes)))

    def _columns_of(self, group: int) -> Tensor:
        return torch.tensor(self.codecs[group].sizes)
