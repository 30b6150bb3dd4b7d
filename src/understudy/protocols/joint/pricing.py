"""What a release costs, and which noise it has: two ways to price sums, of which a
study takes one.

`VectorPricing`: all blocks of a release are one Gaussian mechanism. A release's noise
is its multiplier z; block b, which a person moves by Δ_b, has σ_b = Δ_b·z/√w_b with
weights that add up to 1 (`privacy.secure.tied`), never below 16, where whole-number
noise is as good as continuous (`privacy.secure.moments`).

`CellPricing`: every cell that a person moves by 1 is one use of the discrete Gaussian,
of any σ (`secure.counts`). A release's noise is its σ; block b has σ times its
`factor`. What is paid is fixed before the server chooses.

Whoever has a part in a block adds a share of its noise (`privacy.secure.sums`): paid is
what `max_colluding` others leave.
Guarantee: noise of a larger number is never less noise, and never costs more.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from understudy.data.schema import Block as Groups
from understudy.data.schema import Grid
from understudy.ground.check import in_range
from understudy.ground.errors import Effect, PrivacyError
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.gaussian import SMOOTHING_VARIANCE
from understudy.privacy.noise import DiscreteGaussianNoise, Rng
from understudy.privacy.secure.counts import (
    Moved,
    composed,
    noise_on,
    scaled,
    shared_noise,
    spend_of,
)
from understudy.privacy.secure.moments import (
    LARGEST,
    block_multipliers,
    doubled,
    moments_event,
    needed_multipliers,
    noise_for,
)
from understudy.privacy.secure.sums import noise_share


def finest_scale(
    scales: Sequence[int],
    noise: float,
    sensitivity: Callable[[int], float],
    *,
    max_holders_per_person: int = 1,
) -> int:
    """What a vector's bound becomes in whole numbers: the finest of these scales, from
    fine to coarse, at which noise of this multiplier can be drawn. Noise grows with the
    scale, and what can be drawn is bounded (`secure.moments.LARGEST`); a coarser
    scale costs accuracy alone.
    Edges: noise that can be drawn at none of them → the coarsest, and `Pricing.check`
    refuses it.
    """
    largest = (
        LARGEST / 1.5 / 1.03 / max_holders_per_person
    )  # room for a diagonal and for shares
    return next(
        (scale for scale in scales if noise * sensitivity(scale) <= largest),
        scales[-1],
    )


# of ε, for answers under encryption: they cost a millionth of that each, and one that
# is asked for again is paid again
_FOR_ANSWERS = 2.0**-12


def without_answers(budget: Budget) -> Budget:
    """What is left for releases where rows are multiplied under encryption."""
    return replace(budget, epsilon=budget.epsilon * (1 - _FOR_ANSWERS))


@dataclass(frozen=True)
class BlockSpec:
    """One block of a stage: what it is of, and by how much one person moves it,
    whatever the rows and terms are. `groups`: the two groups of holders whose vectors
    it multiplies, the lower first, or twice the same. `sensitivity`: in L2, in terms of
    σ, where the cells that `diagonal` marks have √2·σ. `weight`: its weight in a
    release's price (`VectorPricing`); `factor`: its σ over the release's
    (`CellPricing`).
    """

    groups: Groups
    shape: tuple[int, ...]
    sensitivity: float
    weight: float = 1.0
    factor: float = 1.0
    diagonal: Tensor | None = None


@dataclass(frozen=True)
class Pricing(ABC):
    """See the module. `moves`: with how many holders of the same columns a person may
    be, and count at each.
    """

    max_colluding: int = 1
    moves: int = 1

    @abstractmethod
    def needed(self, budget: Budget, people: int | None) -> list[float]:
        """The noise of every release that this budget needs; `people`: how many are
        shared, where all know it.
        """

    @abstractmethod
    def spend(self, release: int, noise: float) -> Counter[DpEvent]:
        """What a release of this noise costs."""

    @abstractmethod
    def sigmas(
        self, release: int, blocks: Mapping[str, BlockSpec], noise: float
    ) -> dict[str, float]:
        """The scale of noise that has to be left in each block, so that the release
        costs that.
        Edges: more noise than can be drawn → ConfigError.
        """

    def check_parties(self, parties: int) -> None:
        """ConfigError unless, of so many, somebody is left whose noise hides the
        others.
        """
        if parties > 1:
            in_range(1, parties - 1, max_colluding=self.max_colluding)

    def event(self, release: int, noise: float) -> DpEvent:
        """The same as one event."""
        return composed(self.spend(release, noise))

    def share(self, sigma: float | Fraction, holders: int) -> Fraction:
        """The scale of one holder's noise, of so many who have a part in a block."""
        max_colluding = min(self.max_colluding, max(1, holders - 1))
        return noise_share(Fraction(sigma), holders, max_colluding=max_colluding)

    def deviation(self, sigma: float, holders: int) -> float:
        """The standard deviation of all their noise together, beside a diagonal; 0 for
        none.
        """
        share = self.share(sigma, holders)
        return (
            math.sqrt(holders * DiscreteGaussianNoise(share).variance) if share else 0.0
        )

    def noise(self, block: BlockSpec, sigma: float, holders: int, rng: Rng) -> Tensor:
        """One holder's noise on a block: int64, of its shape."""
        diagonal = (
            torch.zeros(block.shape, dtype=torch.bool)
            if block.diagonal is None
            else block.diagonal
        )
        beside = noise_on(~diagonal, self.share(sigma, holders), rng)
        return beside + noise_on(diagonal, self.share(doubled(sigma), holders), rng)

    def check(
        self,
        release: int,
        blocks: Mapping[str, BlockSpec],
        noise: float,
        grid: Grid,
        parties: int,
    ) -> None:
        """Refuse noise that cannot be drawn, in every share that so many parties may
        have of it.
        """
        for name, sigma in self.sigmas(release, blocks, noise).items():
            holders = min(parties, len(grid.holders(blocks[name].groups)))
            for scale in {Fraction(sigma), self.share(sigma, holders)} - {Fraction(0)}:
                DiscreteGaussianNoise(scale)


@dataclass(frozen=True)
class VectorPricing(Pricing):
    """One Gaussian mechanism for each release; `shares` of the budget, one for each."""

    shares: tuple[float, ...] = (1.0,)

    def needed(self, budget: Budget, people: int | None) -> list[float]:
        return [*needed_multipliers(budget, self.shares)]

    def spend(self, release: int, noise: float) -> Counter[DpEvent]:
        return Counter([moments_event(noise)])

    def sigmas(
        self, release: int, blocks: Mapping[str, BlockSpec], noise: float
    ) -> dict[str, float]:
        each = dict.fromkeys(blocks, noise)
        if len(blocks) > 1:
            each = block_multipliers(
                noise, {name: block.weight for name, block in blocks.items()}
            )
        return {
            name: noise_for(each[name], self.moves * block.sensitivity)
            for name, block in blocks.items()
        }


@dataclass(frozen=True)
class CellPricing(Pricing):
    """One discrete Gaussian for each cell that a person moves; `moved`: those of each
    release, which are paid for.
    """

    moved: tuple[Moved, ...] = ()

    def shares(self, budget: Budget, people: int | None) -> Sequence[float]:
        """Each release's share of the budget; they add up to 1."""
        return [1.0 / len(self.moved)] * len(self.moved)

    def needed(self, budget: Budget, people: int | None) -> list[float]:
        return self.noise_within(budget, self.shares(budget, people))

    def noise_within(self, budget: Budget, shares: Sequence[float]) -> list[float]:
        """The σ of each release, with these shares."""
        return [
            *shared_noise(
                tuple(zip(self.moved, shares, strict=True)), budget, self.moves
            )
        ]

    def spend(self, release: int, noise: float) -> Counter[DpEvent]:
        return spend_of(
            ((scaled(noise, factor), cells) for factor, cells in self.moved[release]),
            self.moves,
        )

    def sigmas(
        self, release: int, blocks: Mapping[str, BlockSpec], noise: float
    ) -> dict[str, float]:
        """Edges: blocks of which a person moves more than is paid for →
        PrivacyError.
        """
        paid = math.fsum(cells / factor**2 for factor, cells in self.moved[release])
        if math.fsum(
            (each.sensitivity / each.factor) ** 2 for each in blocks.values()
        ) > paid * (1 + 1e-9):
            raise PrivacyError(
                "more would be released than was agreed on.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        return {name: scaled(noise, block.factor) for name, block in blocks.items()}


@dataclass(frozen=True)
class NoiseAllocation:
    """How a release's noise is spread: each block's σ over the release's, and the cells
    that a person moves. *Blocks differ in σ.* Every holder of a block adds noise, so
    that σ is left against those who pool theirs: with M holders of whom up to t do,
    what is released has the variance r·σ², r = M/(M − t) or M (`secure.sums`). A person
    moves n_b cells of block b, and pays Σ n_b/σ_b², whatever the r_b. At that price the
    variance of all that is released, Σ n_b·r_b·σ_b², is least for σ_b ∝ r_b^(−¼)
    (Lagrange: n_b·r_b·σ_b ∝ n_b/σ_b³): across two holders of columns σ is 2^(−¼) of
    that within one, and the released deviation 2^¼ of it. With one r, as in a
    horizontal partition, this is one σ.
    """

    factors: Mapping[Groups, float]
    moved: Moved

    @classmethod
    def least(
        cls, grid: Grid, cells: Counter[Groups], max_colluding: int
    ) -> "NoiseAllocation":
        """The least noise in all for a person who moves so many cells of each block;
        the largest factor is 1.
        """
        shares = {block: len(grid.holders(block)) for block in grid.blocks}
        # r
        ratio = {
            block: count / max(1, count - max_colluding)
            for block, count in shares.items()
        }
        least_ratio = min(ratio[block] for block in +cells)
        # Two square roots: the same to the last bit on every machine, as a power need
        # not be.
        factors = {
            block: math.sqrt(math.sqrt(least_ratio / r)) for block, r in ratio.items()
        }
        moved = Counter[float]()
        for block, count in (+cells).items():
            moved[factors[block]] += count
        return cls(factors, tuple(sorted(moved.items())))

    def with_room(self, share: float) -> "NoiseAllocation":
        """And room for cells that are chosen later (`in_place`): together they cost so
        much of what the others do.
        """
        paid = share * math.fsum(cells / factor**2 for factor, cells in self.moved)
        return (
            replace(self, moved=(*self.moved, (1 / math.sqrt(paid), 1)))
            if share
            else self
        )

    @classmethod
    def even(cls, grid: Grid, cells: int) -> "NoiseAllocation":
        """The same noise everywhere: for what is chosen after the price was
        agreed on.
        """
        return cls(dict.fromkeys(grid.blocks, 1.0), ((1.0, cells),))

    def in_place(self, cells: int, noise: float) -> "NoiseAllocation":
        """For `cells` in place of the last n that were agreed on in a release of this
        σ: at no higher price.
        Guarantee: of cells with noise s one makes those with continuous noise √(s² +
        9), for s of 3 or above, and of these at √(s² − 9) those with s
        (`privacy.secure.moments`). So at s² = 9 + (σ² + 9)·cells/n they are made of
        continuous noise that costs no more than what is paid for; σ counts as 3 at
        least, which costs less.
        """
        agreed_factor, agreed = self.moved[-1]
        agreed_variance = max(scaled(noise, agreed_factor) ** 2, SMOOTHING_VARIANCE)
        needed_noise = math.sqrt(
            SMOOTHING_VARIANCE + (agreed_variance + SMOOTHING_VARIANCE) * cells / agreed
        )
        factor = (
            needed_noise / noise if noise else agreed_factor * math.sqrt(cells / agreed)
        )
        factor = factor if cells > agreed else min(agreed_factor, factor)
        return NoiseAllocation(dict.fromkeys(self.factors, factor), self.moved)
