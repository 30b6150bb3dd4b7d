"""A mixture's distribution given public rules: rows that a rule forbids have
probability 0.

Rules over columns are written as boxes that do not overlap (`Tie`). Within a component
of the mixture columns are independent, so the probability of a box is a product over
its columns. Let z be the probability of all boxes of a tie under a component. Then,
given the rules, the component's weight is proportional to the product of its z over all
ties; the probabilities of a column, and the joint ones of columns of one tie, are sums
over boxes divided by z; columns of different ties stay independent.

So all marginals given the rules are those of a mixture with probabilities `own` and
weights `share`, except 2-way marginals of columns of one tie, which `tied` has. All of
it is differentiable. Ties of two columns, which most are, are computed together: with R
(levels × levels) how far two levels are allowed together, z = p R qᵀ, and their joint
table is R ∘ pᵀq / z.

Source: sums of products over disjoint boxes are weighted model counting in a
deterministic and decomposable form (Darwiche, "Decomposable negation normal form", JACM
2001). A mixture of products makes it exact and cheap.
Guarantee: a combination of levels in no box has probability 0, and no gradient.
Edges: a component of which the rules leave nothing has weight 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

# a divisor, or a probability, in place of 0: its square is still a number in double
# precision, and itself in single
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Tie:
    """Columns that rules tie, by number, as boxes that do not overlap.

    `allowed` has for each column how far each box allows each of its levels: (boxes,
    levels), 0 to 1.
    """

    columns: tuple[int, ...]
    allowed: tuple[Tensor, ...]
    # the answers of `within`
    masks: dict[tuple[int, ...], Tensor] = field(default_factory=dict, repr=False)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Tie":
        return Tie(self.columns, tuple(mask.to(device, dtype) for mask in self.allowed))

    def within(self, columns: Sequence[int]) -> Tensor:
        """How far boxes allow combinations of some columns' levels, (boxes, …); of all
        columns together: (1, …).
        """
        known = self.masks.get(tuple(columns))
        if known is not None:
            return known
        places = [self.columns.index(column) for column in columns]
        allowed = _combined([self.allowed[place] for place in places])
        if len(columns) == len(self.columns):
            allowed = allowed.sum(0, keepdim=True)
        self.masks[tuple(columns)] = allowed
        return allowed


@dataclass(frozen=True, eq=False)
class _Couples:
    """Ties of two columns side by side, 1.8 times as fast for one, 3.1 for five; `one`,
    `other`: whose a level is.
    """

    ties: tuple[Tie, ...]
    first: Tensor
    second: Tensor
    allowed: Tensor
    one: Tensor
    other: Tensor

    @classmethod
    def from_ties(cls, ties: Sequence[Tie], sizes: Sequence[int]) -> "_Couples":
        like = ties[0].allowed[0]
        first = _levels_of([tie.columns[0] for tie in ties], sizes)
        second = _levels_of([tie.columns[1] for tie in ties], sizes)
        allowed = like.new_zeros(len(first), len(second))
        one = like.new_zeros(len(first), len(ties))
        other = like.new_zeros(len(second), len(ties))
        row = column = 0
        for place, tie in enumerate(ties):
            height, width = (sizes[number] for number in tie.columns)
            rows = slice(row, row + height)
            columns = slice(column, column + width)
            allowed[rows, columns] = tie.within(tie.columns).reshape(height, width)
            one[rows, place] = 1
            other[columns, place] = 1
            row = rows.stop
            column = columns.stop
        return cls(
            tuple(ties),
            first.to(like.device),
            second.to(like.device),
            allowed,
            one,
            other,
        )


class _Two(NamedTuple):
    """Two columns of each tie under a component: `one` and `other` have their
    probabilities (components, levels), `to_one` how far the other allows the one's
    levels, `inverse` 1/z, and `given` is `one` over z.
    """

    one: Tensor
    other: Tensor
    to_one: Tensor
    inverse: Tensor
    given: Tensor


@dataclass(frozen=True, eq=False)
class Rules:
    """Ties between columns with so many levels."""

    sizes: tuple[int, ...]
    ties: tuple[Tie, ...]

    @cached_property
    def couples(self) -> _Couples | None:
        two = [tie for tie in self.ties if len(tie.columns) == 2]
        return _Couples.from_ties(two, self.sizes) if two else None

    @cached_property
    def others(self) -> list[Tie]:
        return [tie for tie in self.ties if len(tie.columns) != 2]

    @cached_property
    def tied(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Whose tables `Ruled.tied` has: levels, other levels, and which pairs of them
        are of two columns of a tie.
        """
        tied = []
        couples = self.couples
        if couples is not None:
            is_pair = couples.one @ couples.other.T > 0
            tied.append((couples.first, couples.second, is_pair))
        for tie in self.others:
            if len(tie.columns) > 1:
                device = tie.allowed[0].device
                levels = _levels_of(tie.columns, self.sizes).to(device)
                sizes = torch.tensor([self.sizes[column] for column in tie.columns])
                column = torch.repeat_interleave(sizes)
                is_pair = (column[:, None] < column).to(device)
                tied.append((levels, levels, is_pair))
        return tied

    def law_of(self, odds: Tensor) -> "Ruled":
        return Ruled(odds, self)


@dataclass(frozen=True, eq=False)
class Ruled:
    """A mixture's `odds` (components, width) given rules: its `own` odds, and each
    component's `share`, with mean 1.
    """

    odds: Tensor
    rules: Rules

    @classmethod
    def from_ties(
        cls,
        odds: Tensor,
        sizes: Sequence[int],
        ties: Sequence[Tie] = (),
    ) -> "Ruled":
        return cls(odds, Rules(tuple(sizes), tuple(ties)))

    @cached_property
    def own(self) -> Tensor:
        """(components, width)."""
        levels = []
        parts = []
        couples = self.rules.couples
        if couples is not None:
            two = self._two
            other = two.other * (two.one @ couples.allowed)
            parts += [
                two.given * two.to_one,
                other * (two.inverse @ couples.other.T),
            ]
            levels += [couples.first, couples.second]
        for tie in self.rules.others:
            by_box = ((box[:, :, None] * rows).sum(1) for box, rows in self._boxes(tie))
            parts.append(reduce(torch.add, by_box))
            levels.append(_levels_of(tie.columns, self.rules.sizes))
        if not parts:
            return self.odds
        places = torch.cat([one.to(self.odds.device) for one in levels])
        return self.odds.index_copy(1, places, torch.cat(parts, 1))

    @cached_property
    def share(self) -> Tensor | None:
        """(components,). None without rules."""
        logs = self.log_remainder
        if logs is None:
            return None
        return len(logs) * torch.softmax(logs, 0)

    @cached_property
    def log_remainder(self) -> Tensor | None:
        """The logarithm of what the rules leave of each component: (components,). None
        without rules.
        """
        logs = [self._remainder(tie).log() for tie in self.rules.others]
        if self.rules.couples is not None:
            logs.append(-self._two.inverse.log().sum(1))
        return torch.stack(logs).sum(0) if logs else None

    def weighed(self, rows: Tensor, share: Tensor | None = None) -> Tensor:
        """Rows (components, …) by their components' shares, or by these."""
        share = self.share if share is None else share
        return rows if share is None else rows * share[:, None]

    def table(self, columns: Sequence[int]) -> Tensor:
        """The joint probabilities of these columns' levels, one axis for each."""
        groups: dict[object, list[int]] = {}
        for column in columns:
            tie = self._tie.get(column, column)
            groups.setdefault(tie, []).append(column)
        *first, last = map(self._joint, groups.values())
        rows = self.odds.new_ones(len(self.odds), 1)
        for other in first:
            rows = _outer(rows, other)
        table = self.weighed(rows).T @ last / len(rows)
        order = [column for group in groups.values() for column in group]
        table = table.reshape([self.rules.sizes[column] for column in order])
        return table.permute([order.index(column) for column in columns])

    def tied(self, share: Tensor | None = None) -> list[Tensor]:
        """Two-way tables of columns of one tie, as `Rules.tied` has them; by these
        `share`s of components, if any.
        """
        tables = []
        couples = self.rules.couples
        if couples is not None:
            table = self.weighed(self._two.given, share).T @ self._two.other
            tables.append(couples.allowed * table / len(self.odds))
        for tie in self.rules.others:
            if len(tie.columns) > 1:
                tables.append(self._tied(tie, share))
        return tables

    def gram(self) -> Tensor:
        """Expected x xᵀ of a one-hot row x given the rules: (width, width)."""
        weighed = self.weighed(self.own)
        gram = weighed.T @ self.own / len(self.own)
        for (a, b, cells), table in zip(self.rules.tied, self.tied(), strict=True):
            put(
                gram,
                a,
                b,
                cells,
                table,
            )
        sizes = torch.tensor(self.rules.sizes, device=gram.device)
        column = torch.repeat_interleave(sizes)
        is_apart = column[:, None] != column
        return gram * is_apart + weighed.mean(0).diag()

    @cached_property
    def _two(self) -> "_Two":
        couples = self.rules.couples
        assert couples is not None
        one = self.odds.index_select(1, couples.first)
        other = self.odds.index_select(1, couples.second)
        to_one = other @ couples.allowed.T
        probability = (one * to_one) @ couples.one
        inverse = 1 / probability.clamp(min=TINY)
        given = one * (inverse @ couples.one.T)
        return _Two(
            one,
            other,
            to_one,
            inverse,
            given,
        )

    @cached_property
    def _by_column(self) -> tuple[Tensor, ...]:
        return torch.split(self.odds, list(self.rules.sizes), 1)

    @cached_property
    def _tie(self) -> dict[int, Tie]:
        return {column: tie for tie in self.rules.ties for column in tie.columns}

    @cached_property
    def _parts(self) -> dict[tuple[Tie, int | None], Tensor]:
        return {}

    def _part(self, tie: Tie, column: int) -> Tensor:
        """The probability of each of a tie's boxes in a column: (components, boxes)."""
        if (tie, column) not in self._parts:
            mask = tie.allowed[tie.columns.index(column)]
            self._parts[tie, column] = self._by_column[column] @ mask.T
        return self._parts[tie, column]

    def _remainder(self, tie: Tie) -> Tensor:
        """z of a tie: (components,)."""
        if (tie, None) not in self._parts:
            self._parts[tie, None] = self._besides(tie, ()).sum(1).clamp(min=TINY)
        return self._parts[tie, None]

    def _besides(self, tie: Tie, columns: Sequence[int]) -> Tensor:
        """The probability of each box in the tie's other columns: (components, boxes),
        or 1 where none are.
        """
        others = [
            self._part(tie, column) for column in tie.columns if column not in columns
        ]
        return reduce(torch.mul, others, tie.allowed[0].new_ones(1, 1))

    def _boxes(self, tie: Tie) -> Iterator[tuple[Tensor, Tensor]]:
        """Some of a tie's boxes at a time: their odds given the rules (components,
        boxes), and (…, levels) in each.
        """
        inside = self._besides(tie, ()) / self._remainder(tie)[:, None]
        levels = sum(self.rules.sizes[column] for column in tie.columns)
        at_once = max(1, 4096 // levels)  # so that memory does not grow with them
        for some in torch.split(torch.arange(len(tie.allowed[0])), at_once):
            cut = []
            for column, mask in zip(tie.columns, tie.allowed, strict=True):
                part = self._part(tie, column)[:, some, None]
                odds = self._by_column[column][:, None, :] * mask[some]
                cut.append(odds / part.clamp(min=TINY))
            yield inside[:, some], torch.cat(cut, 2)

    def _tied(self, tie: Tie, share: Tensor | None) -> Tensor:
        """By one product of all boxes."""
        levels = sum(self.rules.sizes[column] for column in tie.columns)
        gram = self.odds.new_zeros(levels, levels)
        for box, rows in self._boxes(tie):
            weighed = rows * self.weighed(box, share)[:, :, None]
            gram = gram + weighed.flatten(0, 1).T @ rows.flatten(0, 1)
        return gram / len(self.odds)

    def _joint(self, columns: Sequence[int]) -> Tensor:
        """Of columns of one tie, or of one column: the odds of their combinations of
        levels, (components, …).
        """
        odds = _combined([self._by_column[column] for column in columns])
        tie = self._tie.get(columns[0])
        if tie is None:
            return odds
        allowed = self._besides(tie, columns) @ tie.within(columns)
        return odds * allowed / self._remainder(tie)[:, None]


def put(gram: Tensor, a: Tensor, b: Tensor, cells: Tensor, table: Tensor) -> None:
    """Put some cells of a table of levels `a` by levels `b` into a symmetric matrix, in
    place.
    """
    rows = a[:, None]
    gram[rows, b] = torch.where(cells, table, gram[rows, b])
    columns = b[:, None]
    gram[columns, a] = torch.where(cells.T, table.T, gram[columns, a])


def blocks_of(sizes: Sequence[int]) -> list[slice]:
    """Where each column lies in a row of all levels."""
    ends = accumulate(sizes)
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _levels_of(columns: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The places of these columns' levels in a row of all levels."""
    blocks = [blocks_of(sizes)[column] for column in columns]
    return torch.cat([torch.arange(block.start, block.stop) for block in blocks])


def _outer(rows: Tensor, other: Tensor) -> Tensor:
    """Of each row all products of its numbers and the other's: (n, a·b)."""
    return (rows[:, :, None] * other[:, None, :]).flatten(1)


def _combined(tables: Sequence[Tensor]) -> Tensor:
    """The same of several tables, (n, a), (n, b), …"""
    return reduce(_outer, tables)
