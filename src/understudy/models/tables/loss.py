"""The loss of `fit_gram` and its gradient: how far a mixture's marginals are from the
measurements and their priors.

Each part is half the sum of squared gaps over their variance, the Gaussian likelihood
of the measurements; for cells that seem empty it is a cost proportional to the people
in them. The sum is multiplied by the number of components. It is a function of the
mixture's probabilities and weights given the rules, and of the tables of tied columns
(`given_rules`). A table far from its noise weighs more, up to a limit (`_look`), so
that many tables without dependence do not outvote a strong one.

Source: squared error by noise variance as in McKenna, Sheldon, Miklau, "Graphical-model
based estimation and inference for differential privacy" (ICML 2019).
Differs from the paper: a mixture takes the place of the graphical model, and priors
enter. Gradients are written out: by autograd a step takes 1.4 to 2.1 times as long.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.given_rules import Ruled, Rules, Tie, blocks_of, put
from understudy.models.tables.noisy_tables import RESOLUTION, NoisyMarginals, most_of


@dataclass(frozen=True)
class Triple:
    """A released three-way table: its columns' numbers, counts by their levels, and the
    noise's standard deviation.
    """

    columns: Sequence[int]
    table: Tensor
    noise: float


class Slope:
    """The gradient in the law's `own` odds, in its `share`s, and in the tables of each
    tie.
    """

    def __init__(
        self,
        law: Ruled,
        rows: Tensor,
        tied: list[Tensor],
    ) -> None:
        """With that of a form of second degree in the odds, whose gradient is `rows`
        (components, width).
        """
        self.law = law
        self.own = law.weighed(rows)
        self.tied = tied
        self.share = None if law.share is None else (law.own * rows).sum(1) / 2

    def add(self, levels: Tensor, rows: Tensor) -> None:
        """The same of some levels' odds."""
        self.own[:, levels] += self.law.weighed(rows)
        if self.share is not None:
            self.share += (self.law.own[:, levels] * rows).sum(1) / 2

    def add_ways(self, ways: Tensor) -> None:
        """That of a function of the one-way tables."""
        self.own += self.law.weighed(ways.expand_as(self.own))
        if self.share is not None:
            self.share += self.law.own @ ways


class _Patience:
    """Whether something came no nearer: it did not fall by a part, `progress`, in so
    many `looks`.
    """

    def __init__(self, progress: float, looks: int) -> None:
        self.progress = progress
        self.looks = looks
        self.least = math.inf
        self.idle = 0

    def look(self, left: float) -> None:
        self.idle += 1
        if left < (1 - self.progress) * self.least:
            self.least = left
            self.idle = 0

    @property
    def is_out(self) -> bool:
        return self.idle > self.looks


@dataclass(frozen=True)
class _Turn:
    """Into a basis that mixes levels of one column, and back; columns that it leaves as
    they are cost nothing.
    """

    blocks: tuple[tuple[slice, Tensor], ...]

    @classmethod
    def from_basis(cls, basis: Tensor, sizes: Sequence[int]) -> "_Turn":
        mixed = []
        for block in blocks_of(sizes):
            axes = basis[block, block].contiguous()
            off_diagonal = axes - axes.diag().diag()
            if bool(off_diagonal.any()):
                mixed.append((block, axes))
        return cls(tuple(mixed))

    def __call__(self, odds: Tensor, *, back: bool = False) -> Tensor:
        turned = odds.clone()
        for part, axes in self.blocks:
            turned[:, part] = odds[:, part] @ (axes.T if back else axes)
        return turned


class TwoWay:
    """All two-way tables, in the basis of their prior; those of columns of one tie are
    the law's own.

    A table weighs as much as it has left: its mean square over the noise's, of
    `residual`, within `stress`. So strong tables are followed down to their noise, and
    those that are there already do not go on into it: a fit takes a fifth to a third
    fewer steps (benchmarks/joint/NOTES.md, "what was tried"). Tables that noise does
    not explain are given up where what they have left beyond it did not fall by a tenth
    in 12 looks, one every five steps.

    *Clear pairs* (`NoisyMarginals.clear_most`) are followed further than that by
    themselves: all others are held where they are, as a descent would take up their
    noise, and a clear pair weighs `boost` as much until it shows no more than its own
    noise, and is held as well (`is_left`). What comes no nearer by a fifth in four
    looks is given up.
    """

    def __init__(
        self,
        tables: NoisyMarginals,
        sizes: Sequence[int],
        scale: float,
        rules: Rules,
        *,
        stress: tuple[float, float] = (0.1, 3.0),
        boost: float = 5.0,
    ) -> None:
        self.stress = stress
        self.boost = boost
        self.target = tables.target.float()
        self.precision = (tables.precision * scale).float()
        self.measured = tables.measured.float()
        self.weight = tables.weight.float()
        self.columns = tables.columns.float()
        self.most = tables.most.float()
        self.clear_most = tables.clear_most.float()
        self.basis = tables.basis.float()
        self.least = tables.least
        self.cells = max(tables.cells, 1)
        self.turn = _Turn.from_basis(self.basis, sizes)
        self.tied = [
            (a, b, cells, self._axes(a), self._axes(b)) for a, b, cells in rules.tied
        ]
        self.column = self.columns.argmax(1)
        is_measured = (self.weight > 0).float()
        self.cells_of_pair = self._summed(is_measured).clamp(min=1)
        self.stressed = self.precision
        self.looks = 0
        self.excess = torch.inf
        self.patience = _Patience(0.1, 12)
        self.is_held: Tensor | None = None  # which pairs, once any is
        self.looks_held = 0
        self.patience_held = _Patience(0.2, 4)

    def _summed(self, cells: Tensor) -> Tensor:
        """Over the cells of every pair: (m, m)."""
        return self.columns.T @ cells @ self.columns

    def _axes(self, levels: Tensor) -> Tensor | None:
        """The basis of some levels, or None where it is their own."""
        axes = self.basis[levels[:, None], levels]
        identity = torch.eye(len(axes), dtype=axes.dtype, device=axes.device)
        return None if torch.equal(axes, identity) else axes

    def pairs(self, law: Ruled, tied: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The odds in the basis (components, width), and the law's tables (width,
        width).
        """
        turned = self.turn(law.own)
        pairs = law.weighed(turned).T @ turned / len(turned)
        for (a, b, cells, one, other), table in zip(self.tied, tied, strict=True):
            if one is not None:
                table = one.T @ table
            if other is not None:
                table = table @ other
            put(
                pairs,
                a,
                b,
                cells,
                table,
            )
        return turned, pairs

    def _of_cells(self, pairs: Tensor) -> Tensor:
        """What every pair has, in each of its cells: (width, width)."""
        return pairs[self.column][:, self.column]

    def _squares(self, pairs: Tensor) -> Tensor:
        """Of every cell's gap, over the noise's."""
        gap = pairs - self.measured
        return gap.square() * self.weight

    def residual(self, pairs: Tensor) -> tuple[float, bool]:
        """The mean square over the noise's, and whether it is no more than noise, in
        all and in every table, or in all and no table comes nearer.
        """
        squares = self._squares(pairs)
        mean = float(squares.sum() / self.cells)
        if self.is_held is not None:
            return mean, True
        looks_closely = self.looks % 5 == 0  # a look at each table costs a product
        self.looks = self.looks + 1
        if looks_closely:
            self._look(self._summed(squares))
        elif mean > self.least:
            return mean, False
        is_still = self.excess == 0 or self.patience.is_out
        return mean, mean <= self.least and is_still

    def _look(self, squares: Tensor) -> None:
        """Weigh every table by its squares, and note whether any came nearer."""
        weight = (squares / self.cells_of_pair).clamp(*self.stress)
        self.stressed = self.precision * self._of_cells(weight)
        beyond_noise = squares / self.most.clamp(min=1) - 1
        self.excess = float(beyond_noise.clamp(min=0).sum())
        self.patience.look(self.excess)

    def is_left(self, pairs: Tensor) -> bool:
        """Whether any clear pair is to be followed further, once nothing else is."""
        if self.is_held is None:
            self.is_held = torch.zeros_like(self.clear_most, dtype=torch.bool)
        if self.looks_held % 5 == 0:
            self._hold(pairs, self.is_held)
        self.looks_held += 1
        return not (bool(self.is_held.all()) or self.patience_held.is_out)

    def _hold(self, pairs: Tensor, is_held: Tensor) -> None:
        """Hold tables that show no more than their noise where they are, and note
        whether any other came nearer.
        """
        squares = self._summed(self._squares(pairs))
        is_noise = squares <= self.clear_most
        is_new = self._of_cells(is_noise & ~is_held)
        self.target = torch.where(is_new, pairs, self.target)
        is_held |= is_noise
        weight = torch.where(is_held, 1.0, self.boost)
        self.stressed = self.precision * self._of_cells(weight)
        beyond_noise = squares / self.clear_most.clamp(min=1) - 1
        self.patience_held.look(float(beyond_noise[~is_held].sum()))

    def slope(self, law: Ruled, turned: Tensor, pairs: Tensor) -> Slope:
        """By hand: the loss is quadratic in `pairs`, which is symmetric, so one product
        is enough.
        """
        gap = (pairs - self.target) * self.stressed
        tied = []
        for a, b, cells, one, other in self.tied:
            gradient = len(turned) * gap[a[:, None], b] * cells
            if one is not None:
                gradient = one @ gradient
            if other is not None:
                gradient = gradient @ other.T
            tied.append(gradient)
            put(
                gap,
                a,
                b,
                cells,
                torch.zeros_like(gradient),
            )
        rows = self.turn(turned @ gap, back=True)
        return Slope(law, rows, tied)


class EmptyCells:
    """The levels of pairs with empty cells, what people in each cost, and which are
    sure; of each tie by itself.
    """

    def __init__(self, tables: NoisyMarginals, scale: float, rules: Rules) -> None:
        # with such a threshold, or a higher one, a cell is surely empty
        is_sure = tables.empty > CLEAR * tables.weight.sqrt()
        sure = is_sure.float()
        cost = (tables.empty * scale).float()
        columns = tables.columns.float()
        self.tied = []
        for a, b, cells in rules.tied:
            at = a[:, None], b
            own_cost = cost[at] * cells
            own_sure = sure[at] * cells
            self.tied.append((own_cost, own_sure, columns[a], columns[b]))
            for whole in (cost, sure):
                put(
                    whole,
                    a,
                    b,
                    cells,
                    torch.zeros_like(own_cost),
                )
        self.levels = cost.any(1).nonzero()[:, 0]
        self.cost = cost[self.levels][:, self.levels]
        self.sure = sure[self.levels][:, self.levels]
        self.columns = columns[self.levels]

    def largest_stray_share(self, law: Ruled, tied: Sequence[Tensor]) -> float:
        """The largest share of people whom a pair has in cells that are surely
        empty.
        """
        shares = [0.0]
        if len(self.levels):
            probabilities = law.own[:, self.levels]
            pairs = law.weighed(probabilities).T @ probabilities / len(probabilities)
            stray = self.columns.T @ (pairs * self.sure) @ self.columns
            shares.append(float(stray.max()))
        for table, (_, sure, one, other) in zip(tied, self.tied, strict=True):
            stray = one.T @ (table * sure) @ other
            shares.append(float(stray.max()))
        return max(shares)

    def add_to(self, slope: Slope) -> None:
        """Add the gradient of what people in empty cells cost."""
        if len(self.levels):
            probabilities = slope.law.own[:, self.levels]
            slope.add(self.levels, probabilities @ self.cost)
        for place, (cost, *_) in enumerate(self.tied):
            slope.tied[place] += len(slope.own) * cost


@dataclass(frozen=True)
class WideTable:
    """A three-way table in frequencies, 0 where rules leave nobody; squares up to
    `most` show no more than noise.
    """

    columns: tuple[int, ...]
    target: Tensor
    precision: float
    most: float

    @classmethod
    def from_triple(
        cls,
        triple: Triple,
        sizes: Sequence[int],
        people: float,
        tables: int,
        ties: Sequence[Tie] = (),
    ) -> "WideTable":
        """One of so many `tables`."""
        shape = tuple(sizes[column] for column in triple.columns)
        if triple.table.shape != shape:
            raise ConfigError(
                f"a three-way table is {tuple(triple.table.shape)}, not {shape}."
            )
        device = triple.table.device
        anything = torch.ones(1, sum(sizes), dtype=torch.float64, device=device)
        law = Ruled.from_ties(anything, sizes, ties)
        is_possible = law.table(triple.columns) > 0
        shares = triple.table.double() / people
        deviation = max(triple.noise / people, RESOLUTION)
        most = most_of(is_possible.sum().double().cpu(), tables)
        return cls(
            tuple(triple.columns),
            torch.where(is_possible, shares, 0).float(),
            1 / deviation**2,
            float(most),
        )

    def is_noise(self, table: Tensor) -> bool:
        squares = float((table - self.target).square().sum())
        return squares * self.precision <= self.most

    def slope(self, table: Tensor, components: int, scale: float) -> Tensor:
        """In the law's own table."""
        weight = components * self.precision * scale
        return (table - self.target) * weight
