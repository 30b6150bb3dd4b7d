"""The law of a mixture given public rules: no row that a rule forbids has any of it.

Rules over columns that they tie together are boxes that do not overlap (`Tie`). Within a component columns are
independent, so a box has the product of its columns' parts, and given the rules columns of different ties are
independent still. With z the probability of a tie's boxes under a component, the component's share is in proportion to
the product of all z; a column's odds, and the joint odds of columns of one tie, are sums over boxes divided by z.

So all tables given the rules are those of a mixture with `own` odds and `share`s, but for pairs of columns of one tie,
which have their own: `table`. All of it is differentiable, and costs little more than without rules.

Guarantee: a combination of levels that no box holds has probability 0, and no gradient.
Edges: a component that the rules leave nothing has share 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import accumulate

import torch
from torch import Tensor

_TINY = 1e-30  # in place of 0: what the rules leave of a component
_AT_ONCE = 1 << 12  # boxes times levels of a tie, of one component, at a time


@dataclass(frozen=True, eq=False)
class Tie:
    """Columns that rules tie, by number, as boxes that do not overlap.

    `allowed` has for each column how far each box allows each of its levels: (boxes, levels), 0 to 1.
    """

    columns: tuple[int, ...]
    allowed: tuple[Tensor, ...]
    found: dict[tuple[int, ...], Tensor] = field(default_factory=dict, repr=False)  # by `within`

    def to(self, device: torch.device, dtype: torch.dtype) -> "Tie":
        return Tie(self.columns, tuple(mask.to(device, dtype) for mask in self.allowed))

    def within(self, columns: Sequence[int]) -> Tensor:
        """How far each box allows each combination of levels of some of its columns: (boxes, combinations).

        Of all its columns, how far all boxes together do: (1, combinations).
        """
        if (known := self.found.get(tuple(columns))) is not None:
            return known
        first, *others = (self.allowed[self.columns.index(column)] for column in columns)
        for other in others:
            first = (first[:, :, None] * other[:, None, :]).flatten(1)
        self.found[tuple(columns)] = first = (
            first.sum(0, keepdim=True) if len(columns) == len(self.columns) else first
        )
        return first

    @property
    def pair(self) -> Tensor:
        """Of two columns: how far their levels go together, (levels, levels)."""
        return self.within(self.columns).reshape(self.allowed[0].shape[1], -1)


@dataclass(frozen=True, eq=False)
class Ruled:
    """A mixture's `odds` (components, width) given ties: its `own` odds, and each component's `share`, with mean 1."""

    odds: Tensor
    sizes: tuple[int, ...]
    ties: tuple[Tie, ...]

    @classmethod
    def of(cls, odds: Tensor, sizes: Sequence[int], ties: Sequence[Tie] = ()) -> "Ruled":
        return cls(odds, tuple(sizes), tuple(ties))

    @cached_property
    def own(self) -> Tensor:
        """(components, width)."""
        if not self.ties:
            return self.odds
        return torch.cat([self._joint((column,)) for column in range(len(self.sizes))], 1)

    @cached_property
    def share(self) -> Tensor | None:
        """(components,). None without rules."""
        return None if self.left is None else len(self.left) * torch.softmax(self.left, 0)

    @cached_property
    def left(self) -> Tensor | None:
        """The logarithm of what the rules leave of each component: (components,). None without rules."""
        return torch.stack([z.log() for z in self._left.values()]).sum(0) if self.ties else None

    def weighed(self, rows: Tensor) -> Tensor:
        """Rows (components, …) by their components' shares."""
        return rows if self.share is None else rows * self.share[:, None]

    def table(self, columns: Sequence[int]) -> Tensor:
        """The joint probabilities of these columns' levels, one axis for each."""
        groups: dict[object, list[int]] = {}
        for column in columns:
            groups.setdefault(self._tie.get(column, column), []).append(column)
        *first, last = map(self._joint, groups.values())
        rows = self.odds.new_ones(len(self.odds), 1)
        for other in first:
            rows = (rows[:, :, None] * other[:, None, :]).flatten(1)
        found = self.weighed(rows).T @ last / len(rows)
        order = [column for group in groups.values() for column in group]
        found = found.reshape([self.sizes[column] for column in order])
        return found.permute([order.index(column) for column in columns])

    def tied(self) -> list[Tensor]:
        """The two-way tables of each of `tying`: (levels, levels) of its `levels_of`, 0 within a column."""
        return [self._tied(tie) for tie in tying(self.ties)]

    def gram(self) -> Tensor:
        """Expected x xᵀ of a one-hot row x given the rules: (width, width)."""
        gram = self.weighed(self.own).T @ self.own / len(self.own)
        for tie, tables in zip(tying(self.ties), self.tied(), strict=True):
            levels = levels_of(tie, self.sizes).to(gram.device)
            gram[levels[:, None], levels] = tables
        column = torch.repeat_interleave(torch.tensor(self.sizes, device=gram.device))
        return gram * (column[:, None] != column) + self.weighed(self.own).mean(0).diag()

    @cached_property
    def _by_column(self) -> tuple[Tensor, ...]:
        return torch.split(self.odds, list(self.sizes), 1)

    @cached_property
    def _tie(self) -> dict[int, Tie]:
        return {column: tie for tie in self.ties for column in tie.columns}

    @cached_property
    def _parts(self) -> dict[int, Tensor]:
        """The probability of each box in each tied column: (components, boxes)."""
        tied = (
            (column, mask) for tie in self.ties for column, mask in zip(tie.columns, tie.allowed, strict=True)
        )
        return {column: self._by_column[column] @ mask.T for column, mask in tied}

    @cached_property
    def _across(self) -> dict[int, Tensor]:
        """Of ties of two columns: how far the other column allows each level of the one, (components, levels)."""
        found: dict[int, Tensor] = {}
        for tie in self.ties:
            if len(tie.columns) == 2:
                (a, b), allowed = tie.columns, tie.pair
                found |= {a: self._by_column[b] @ allowed.T, b: self._by_column[a] @ allowed}
        return found

    @cached_property
    def _left(self) -> dict[Tie, Tensor]:
        """z of each tie: (components,)."""
        found: dict[Tie, Tensor] = {}
        for tie in self.ties:
            first = tie.columns[0]
            inside = (
                self._across[first] * self._by_column[first]
                if first in self._across
                else self._besides(tie, ())
            )
            found[tie] = inside.sum(1).clamp(min=_TINY)
        return found

    def _besides(self, tie: Tie, columns: Sequence[int]) -> Tensor:
        """The probability of each box in the tie's other columns: (components, boxes), or 1 where none are."""
        others = [self._parts[column] for column in tie.columns if column not in columns]
        return reduce(torch.mul, others, tie.allowed[0].new_ones(1, 1))

    def _tied(self, tie: Tie) -> Tensor:
        """Of two columns by their table; of more by one product, since within a box columns are independent."""
        sizes = [self.sizes[column] for column in tie.columns]
        if len(sizes) == 2:
            one, other = (self._by_column[column] for column in tie.columns)
            table = tie.pair * ((self.weighed(one) / self._left[tie][:, None]).T @ other) / len(one)
            above = torch.cat([table.new_zeros(sizes[0], sizes[0]), table], 1)
            return torch.cat([above, torch.cat([table.T, table.new_zeros(sizes[1], sizes[1])], 1)])
        gram = self.odds.new_zeros(sum(sizes), sum(sizes))
        column = torch.repeat_interleave(torch.tensor(sizes, device=gram.device))
        share = self.weighed(self._besides(tie, ()) / self._left[tie][:, None]) / len(self.odds)
        for some in torch.split(torch.arange(len(tie.allowed[0])), max(1, _AT_ONCE // sum(sizes))):
            cut = [
                self._by_column[j][:, None, :] * mask[some] / self._parts[j][:, some, None].clamp(min=_TINY)
                for j, mask in zip(tie.columns, tie.allowed, strict=True)
            ]
            rows = torch.cat(cut, 2).flatten(0, 1)  # (components · boxes, levels)
            gram = gram + (rows * share[:, some].reshape(-1, 1)).T @ rows
        return gram * (column[:, None] != column)

    def _joint(self, columns: Sequence[int]) -> Tensor:
        """Of columns of one tie, or of one column: the odds of their combinations of levels, (components, …)."""
        odds, *others = (self._by_column[column] for column in columns)
        for other in others:
            odds = (odds[:, :, None] * other[:, None, :]).flatten(1)
        if (tie := self._tie.get(columns[0])) is None:
            return odds
        if len(columns) == 1 and columns[0] in self._across:
            return odds * (self._across[columns[0]] / self._left[tie][:, None])
        return odds * (self._besides(tie, columns) @ tie.within(columns)) / self._left[tie][:, None]


def tying(ties: Sequence[Tie]) -> list[Tie]:
    """Those of several columns."""
    return [tie for tie in ties if len(tie.columns) > 1]


def levels_of(tie: Tie, sizes: Sequence[int]) -> Tensor:
    """Where the levels of a tie's columns lie in a row of all levels."""
    blocks = blocks_of(sizes)
    return torch.cat([torch.arange(blocks[j].start, blocks[j].stop) for j in tie.columns])


def blocks_of(sizes: Sequence[int]) -> list[slice]:
    """Where each column lies in a row of all levels."""
    return [slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]
