"""Distributions over tables that are sampled by inversion: a Bayesian network and a
Gaussian copula.

Both are written down as tables and draw by inversion: a standard normal latent
per node, through the normal distribution function, is a uniform number, and that picks
a level by the cumulated odds. So a row follows from its latent point, and comes out as
one-hot. *Bayesian network*: nodes in an order in which parents come first, each with a
table of odds for every combination of its parents' levels (ancestral sampling); a tree
is the case of one parent or none, a junction tree that of parents that are parents of
each other. *Gaussian copula* (Nelsen, "An introduction to copulas", 2006, §2.3): normal
numbers with a given correlation, each then sent through the one-way table of its
column.
"""

import math
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.network import MOST_WEIGHTS, Network, shapes_only
from understudy.models.tables.mixture import invert, one_hot

# 512 MiB of doubles, as others' weights are in single precision: a description from
# elsewhere cannot ask for more
_MOST_PARAMETERS = MOST_WEIGHTS // 4


class Coded(NamedTuple):
    """A column of `levels` levels, whose number is written in the digits of these
    nodes, the highest first.
    """

    levels: int
    nodes: tuple[int, ...]


class BayesNet(Network):
    """`sizes[i]` levels of node i, whose `parents[i]` are other nodes; `columns` says
    how nodes spell columns.

    Without `columns` each node is one. A number beyond a column's levels has its
    highest digit taken off: with binary digits that always leaves a level, since ⌈log₂
    levels⌉ digits are one more than ⌊levels/2⌋ needs. `odds` are the only parameters:
    each node's table (combinations of its parents, size), one after another.
    """

    kind = "bayes-net"
    keys = ("sizes", "parents", "columns")

    def __init__(
        self,
        sizes: Sequence[int],
        parents: Sequence[Sequence[int]],
        columns: Sequence[tuple[int, Sequence[int]]] | None = None,
    ) -> None:
        super().__init__()
        whole(nodes=len(sizes), **{f"sizes[{i}]": size for i, size in enumerate(sizes)})
        self.sizes = tuple(sizes)
        self.parents = tuple(map(tuple, parents))
        spelled = (
            [(size, (i,)) for i, size in enumerate(sizes)]
            if columns is None
            else columns
        )
        self.columns = tuple(Coded(levels, tuple(nodes)) for levels, nodes in spelled)
        self._check()
        self.latent, self.width = (
            len(self.sizes),
            sum(column.levels for column in self.columns),
        )
        self.order = tuple(
            TopologicalSorter(dict(enumerate(self.parents))).static_order()
        )
        each = zip(self.sizes, self.parents, strict=True)
        cells = [
            size * math.prod(self.sizes[parent] for parent in parents)
            for size, parents in each
        ]
        if sum(cells) + self.width > _MOST_PARAMETERS:
            raise ConfigError(
                f"a network of {sum(cells):,} odds is larger than {_MOST_PARAMETERS:,}."
            )
        self._cuts = tuple(accumulate(cells, initial=0))
        self.odds = nn.Parameter(
            _even(zip(cells, self.sizes, strict=True)),
            requires_grad=False,
        )

    def table(self, node: int) -> Tensor:
        """The node's odds, a view that can be written to: (combinations of its parents'
        levels, size).
        """
        return self.odds[self._cuts[node] : self._cuts[node + 1]].view(
            -1,
            self.sizes[node],
        )

    def rows(self, z: Tensor) -> Tensor:
        """Standard normal latents (n, nodes) → one-hot rows (n, width)."""
        uniform = torch.special.ndtr(z.double())
        values = torch.zeros(z.shape, dtype=torch.int64, device=z.device)
        for node in self.order:
            which = _spell(values, self.parents[node], self.sizes)
            values[:, node] = invert(self.table(node)[which], uniform[:, node])
        codes = torch.zeros(
            len(z),
            len(self.columns),
            dtype=torch.int64,
            device=z.device,
        )
        for place, column in enumerate(self.columns):
            number = _spell(values, column.nodes, self.sizes)
            lower = math.prod(self.sizes[node] for node in column.nodes[1:])
            codes[:, place] = torch.where(
                number < column.levels,
                number,
                number % lower,
            )
        return one_hot(codes, [column.levels for column in self.columns])

    def _check(self) -> None:
        nodes = range(len(self.sizes))
        listed = [
            node
            for some in (*self.parents, *(column.nodes for column in self.columns))
            for node in some
        ]
        if len(self.parents) != len(nodes) or any(
            type(node) is not int or node not in nodes for node in listed
        ):
            raise ConfigError(
                f"parents and columns must name nodes below {len(nodes)}, and each "
                "has parents."
            )
        try:
            TopologicalSorter(dict(enumerate(self.parents))).prepare()
        except CycleError:
            raise ConfigError("a node is its own ancestor.") from None
        for levels, digits in self.columns:
            whole(levels=levels)
            room = math.prod(self.sizes[node] for node in digits)
            if not math.prod(self.sizes[node] for node in digits[1:]) <= levels <= room:
                raise ConfigError(
                    f"a column of {levels} levels cannot be spelled with {room} "
                    "numbers."
                )


class GaussianCopula(Network):
    """Columns of `sizes` levels: `factor` F (m, m) has F Fᵀ = the correlation, `odds`
    the one-way tables (width,).
    """

    kind = "copula"
    keys = ("sizes",)

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        whole(
            columns=len(sizes),
            **{f"sizes[{i}]": size for i, size in enumerate(sizes)},
        )
        self.sizes = tuple(sizes)
        self.latent = len(sizes)
        self.width = sum(sizes)
        if self.latent**2 + self.width > _MOST_PARAMETERS:
            raise ConfigError(
                f"a copula of {self.latent:,} columns is larger than "
                f"{_MOST_PARAMETERS:,} numbers."
            )
        factor = torch.zeros(self.latent, self.latent, dtype=torch.float64)
        if not shapes_only():
            factor.fill_diagonal_(1)
        self.factor = nn.Parameter(factor, requires_grad=False)
        self.odds = nn.Parameter(
            _even((size, size) for size in sizes),
            requires_grad=False,
        )

    def rows(self, z: Tensor) -> Tensor:
        """Standard normal latents (n, m) → one-hot rows (n, width)."""
        uniform = torch.special.ndtr(z.double() @ self.factor.T)
        codes = [
            invert(odds, uniform[:, i])
            for i, odds in enumerate(torch.split(self.odds, list(self.sizes)))
        ]
        return one_hot(torch.stack(codes, 1), self.sizes)


def _even(tables: Iterable[tuple[int, int]]) -> Tensor:
    """Even odds of tables of so many cells, with so many levels, one after another."""
    tables = list(tables)
    odds = torch.empty(sum(cells for cells, _ in tables), dtype=torch.float64)
    for (cells, size), end in zip(
        tables,
        accumulate(cells for cells, _ in tables),
        strict=True,
    ):
        odds[end - cells : end] = 1 / size
    return odds


def _spell(
    values: Tensor,
    nodes: Sequence[int],
    sizes: Sequence[int],
) -> Tensor:
    """The number that these nodes' values spell, the first digit the highest: (n, all
    nodes) → (n,).
    """
    number = torch.zeros(len(values), dtype=torch.int64, device=values.device)
    for node in nodes:
        number = number * sizes[node] + values[:, node]
    return number
