"""Discrete distributions over tables: a mixture of products, a Bayesian network, and a
Gaussian copula.

*Mixture of products*: K kinds of rows, each with its own odds for every column. A row
is drawn by picking a component at random and then each column by itself from the
component's odds. With P (K, D) the odds side by side, the expected one- and two-way
tables are one product, PᵀP/K: cheap to compare with measured tables, and to
differentiate. Aydore et al., "Differentially private query release through adaptive
projection" (ICML 2021), §3: the "relaxed" synthetic dataset, with one softmax per
column (their §4) in place of the box [0, 1]. Paper → code: n′ relaxed rows →
`components`, one-hot dimension d′ → width. Rows are drawn by Latin hypercubes, one for
each component (McKay, Beckman, Conover, Technometrics 1979): every single row has the
mixture's law; all together have its one- and two-way tables with less of a sampling
error than independent ones. A column to predict may be drawn last, by the row's other
columns (`target`), in seven rows of ten: effects say too little of rows that are surely
one or the other, components too much. All that is asked of the mixture in closed form
is the mixture's own.

The others are written down as tables and draw by inversion: a standard normal latent
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.network import (
    MOST_COMPONENTS,
    MOST_WEIGHTS,
    BlockSoftmax,
    Network,
    each_whole,
    shapes_only,
)
from understudy.models.tables.given_rules import Ruled

# of [0, 1): a component's number may be added without rounding up to the next
_LAST = 1 - 2.0**-30
_GOLDEN = 0.5 * (5**0.5 - 1)
KEPT = 0.3  # of all rows: so many have the target by the odds of their component


class MixtureOfProducts(Network):
    """`components` equally likely kinds of rows; `sizes` are the levels of each column.

    `logits` (components, width) are the parameters. With a `target` (its number)
    `levels` draws that column last, by `effects` on its log-odds: one row for each
    level of the other columns, then one for each two levels of every two columns in
    `together`. The latent is one number: the normal distribution function turns z ~
    N(0, 1) into a uniform number, and that into a component.
    """

    kind = "mixture"
    keys = ("components", "sizes", "target", "together")
    latent = 1

    def __init__(
        self,
        sizes: Sequence[int],
        components: int,
        target: int | None = None,
        together: Sequence[Sequence[int]] = (),
    ) -> None:
        super().__init__()
        whole(components=components, columns=len(sizes))
        each_whole(sizes=sizes)
        self.sizes = tuple(sizes)
        self.components = components
        self.width = sum(sizes)
        self.target = target
        self.together = tuple(map(tuple, together))
        effects = 0 if target is None else self._effects(target) * self.sizes[target]
        if (
            components > MOST_COMPONENTS
            or components * self.width + effects > MOST_WEIGHTS
        ):
            said = (
                f"a mixture of {components:,} components of width {self.width:,} is "
                "larger than"
            )
            raise ConfigError(
                f"{said} {MOST_COMPONENTS:,} components or {MOST_WEIGHTS:,} weights."
            )
        self.logits = nn.Parameter(torch.zeros(components, self.width))
        self.effects = None
        if target is not None:
            self.effects = nn.Parameter(
                torch.zeros(effects // self.sizes[target], self.sizes[target])
            )
        self.softmax = BlockSoftmax(self.sizes)

    def _effects(self, target: int) -> int:
        """How many rows of effects there are. ConfigError for columns that there are
        not.
        """
        known = set(range(len(self.sizes)))
        for some in ((target,), *((target, *pair) for pair in self.together)):
            if any(type(column) is not int for column in some) or len(
                known & set(some)
            ) < len(some):
                raise ConfigError(
                    f"of {len(known)} columns none are numbers {some}, each another."
                )
        if any(len(pair) != 2 for pair in self.together):
            raise ConfigError(
                "columns have an effect by themselves, or two of them together."
            )
        return self.width + sum(self.sizes[a] * self.sizes[b] for a, b in self.together)

    @property
    def row_numbers(self) -> int:
        return self.width if self.target is None else super().row_numbers

    def odds(self) -> Tensor:
        """Each component's probabilities, one softmax per column: (components,
        width).
        """
        odds: Tensor = self.softmax(self.logits)
        return odds

    def rows(self, z: Tensor) -> Tensor:
        """Standard normal latents (n, 1) → the odds of the components that they pick
        (n, width).
        """
        pick = torch.special.ndtr(z[:, 0].double()).mul(self.components).long()
        return self.odds()[pick.clamp(max=self.components - 1)]

    def levels(self, n: int, uniform: Callable[[int], Tensor]) -> Tensor:
        """Draw `n` rows of levels, int32 (n, columns). `uniform(k)` gives k independent
        numbers from [0, 1), float64.

        Edges: fewer rows than components → all of different ones; a level of
        probability 0 is never drawn.
        """
        order = torch.argsort(uniform(self.components))
        pick = order[torch.arange(n) % self.components].sort().values  # (n,), rising
        odds = torch.split(self.odds().detach().cpu().double(), list(self.sizes), 1)
        levels = latin(pick, odds, uniform)
        if self.target is not None and self.effects is not None:
            own = odds[self.target]
            chance = odds_by_effects(
                self.terms(levels), self.effects.detach().cpu().double()
            )
            # rising with a component's own odds
            kinds = torch.argsort(torch.argsort(own[:, -1]))[pick]
            levels[:, self.target] = evenly(
                KEPT * own[pick] + (1 - KEPT) * chance, kinds, uniform
            )
        return levels[torch.argsort(uniform(n))]

    def terms(self, levels: Tensor) -> Tensor:
        """Which effects say the target of each row (n, columns): their numbers, int64
        (n, terms).
        """
        starts = [0, *accumulate(self.sizes)]
        terms = [
            levels[:, c].long() + starts[c]
            for c in range(len(self.sizes))
            if c != self.target
        ]
        first = self.width
        for a, b in self.together:
            terms.append(
                first + levels[:, a].long() * self.sizes[b] + levels[:, b].long()
            )
            first += self.sizes[a] * self.sizes[b]
        return torch.stack(terms, 1)

    def gram(self) -> Tensor:
        """Expected x xᵀ of a one-hot row x: one-way tables on the diagonal, two-way
        beside it (width, width).
        """
        return Ruled.from_ties(self.odds(), self.sizes).gram()

    def describe(self) -> dict[str, Any]:
        said = super().describe()
        return (
            said
            if self.target is not None
            else {key: said[key] for key in ("kind", "components", "sizes")}
        )

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        return super().arguments({"target": None, "together": (), **description})


def latin(
    pick: Tensor, odds: Sequence[Tensor], uniform: Callable[[int], Tensor]
) -> Tensor:
    """Levels of rows of the components in `pick` (n,), rising: a Latin hypercube for
    each, int32 (n, columns).

    Odds are (components, size) for each column, float64, and need not sum to 1; a level
    of odds 0 is never drawn.
    """
    n = len(pick)
    components = len(odds[0])
    share = torch.bincount(pick, minlength=components)
    before = (share.cumsum(0) - share)[pick]
    levels = torch.empty(n, len(odds), dtype=torch.int32)
    for column, own in enumerate(odds):
        heap = own.cumsum(1)
        # rises over all components
        heap = heap / heap[:, -1:] + torch.arange(components)[:, None]
        place = torch.empty(n, dtype=torch.int64)
        # in a random order within each component
        place[torch.argsort(pick + uniform(n))] = torch.arange(n)
        draw = ((place - before + uniform(n)) / share[pick]).clamp(max=_LAST)
        found = torch.searchsorted(heap.flatten(), pick + draw, right=True)
        levels[:, column] = (found - pick * own.shape[1]).clamp(0, own.shape[1] - 1)
    return levels


def odds_by_effects(terms: Tensor, effects: Tensor) -> Tensor:
    """The odds of the target's levels in each row, by the sum of these of the
    `effects`: (n, terms) → (n, levels).
    """
    scores = effects.new_zeros(len(terms), effects.shape[1])
    for some in terms.T:
        scores += effects[some]
    return torch.softmax(scores, 1)


def evenly(odds: Tensor, kinds: Tensor, uniform: Callable[[int], Tensor]) -> Tensor:
    """A level for each row, by its own odds (n, levels): int32 (n,). Rows, kind by kind
    and in the order of their odds, take multiples of the golden section, spread evenly:
    so each kind, and all together, are near their odds.
    """
    draw = torch.empty(len(odds), dtype=torch.float64)
    order = torch.argsort(kinds + odds[:, -1].clamp(max=_LAST))
    draw[order] = (torch.arange(len(odds)) * _GOLDEN + uniform(1)) % 1
    return (odds.cumsum(1)[:, :-1] <= draw[:, None]).sum(1).int()


# 512 MiB of doubles: a description from elsewhere cannot ask for more
_MOST_PARAMETERS = 1 << 26


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
            _even(zip(cells, self.sizes, strict=True)), requires_grad=False
        )

    def table(self, node: int) -> Tensor:
        """The node's odds, a view that can be written to: (combinations of its parents'
        levels, size).
        """
        return self.odds[self._cuts[node] : self._cuts[node + 1]].view(
            -1, self.sizes[node]
        )

    def rows(self, z: Tensor) -> Tensor:
        """Standard normal latents (n, nodes) → one-hot rows (n, width)."""
        uniform = torch.special.ndtr(z.double())
        values = torch.zeros(z.shape, dtype=torch.int64, device=z.device)
        for node in self.order:
            which = _spell(values, self.parents[node], self.sizes)
            values[:, node] = invert(self.table(node)[which], uniform[:, node])
        codes = torch.zeros(
            len(z), len(self.columns), dtype=torch.int64, device=z.device
        )
        for place, column in enumerate(self.columns):
            number = _spell(values, column.nodes, self.sizes)
            lower = math.prod(self.sizes[node] for node in column.nodes[1:])
            codes[:, place] = torch.where(
                number < column.levels, number, number % lower
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
            columns=len(sizes), **{f"sizes[{i}]": size for i, size in enumerate(sizes)}
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
            _even((size, size) for size in sizes), requires_grad=False
        )

    def rows(self, z: Tensor) -> Tensor:
        """Standard normal latents (n, m) → one-hot rows (n, width)."""
        uniform = torch.special.ndtr(z.double() @ self.factor.T)
        codes = [
            invert(odds, uniform[:, i])
            for i, odds in enumerate(torch.split(self.odds, list(self.sizes)))
        ]
        return one_hot(torch.stack(codes, 1), self.sizes)


def invert(odds: Tensor, uniform: Tensor) -> Tensor:
    """The level that each number in [0, 1] picks: odds (size,) or (n, size), uniform
    (n,) → (n,).

    Edges: odds need not sum to 1; a level of odds 0 is picked only if all are 0: the
    last.
    """
    heap = odds.cumsum(-1)
    total = heap[..., -1:]
    target = torch.minimum(
        uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total))
    )
    return (heap[..., :-1] <= target).sum(-1)


def one_hot(codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Codes (n, columns) as one-hot rows, float32, (n, width)."""
    starts = torch.tensor(
        [*accumulate(sizes, initial=0)][:-1], dtype=torch.int64, device=codes.device
    )
    rows = torch.zeros(len(codes), sum(sizes), device=codes.device)
    return rows.scatter_(1, codes + starts, 1.0)


def _even(tables: Iterable[tuple[int, int]]) -> Tensor:
    """Even odds of tables of so many cells, with so many levels, one after another."""
    tables = list(tables)
    odds = torch.empty(sum(cells for cells, _ in tables), dtype=torch.float64)
    for (cells, size), end in zip(
        tables, accumulate(cells for cells, _ in tables), strict=True
    ):
        odds[end - cells : end] = 1 / size
    return odds


def _spell(values: Tensor, nodes: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The number that these nodes' values spell, the first digit the highest: (n, all
    nodes) → (n,).
    """
    number = torch.zeros(len(values), dtype=torch.int64, device=values.device)
    for node in nodes:
        number = number * sizes[node] + values[:, node]
    return number
