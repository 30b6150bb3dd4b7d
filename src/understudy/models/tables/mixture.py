"""A mixture of products and its sampler: a distribution over tables that the literature
also calls a latent class model.

There are K kinds of rows (`components`), each with its own probabilities for every
column. A row is drawn by picking a component at random, and then each column by itself
from the component's probabilities (`odds`). With P (K, D) those of all columns side by
side, the expected 1-way and 2-way marginals are one product, PᵀP/K: cheap to compare
with measured ones, and to differentiate.

Source: Aydore et al., "Differentially private query release through adaptive
projection" (ICML 2021), §3: the "relaxed" synthetic dataset, with one softmax per
column (their §4) in place of the box [0, 1].
Paper → code: n′ relaxed rows → `components`, one-hot dimension d′ → width.

*Sampling.* Rows are drawn by Latin hypercubes, one for each component (McKay, Beckman,
Conover, Technometrics 1979). Every single row has the mixture's law, and all together
have its marginals with less of a sampling error than independent ones. A column to
predict may be drawn last, by the row's other columns (`target`), in seven rows of ten:
effects say too little of rows that are surely one or the other, components too much.
All that is asked of the mixture in closed form is the mixture's own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

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
)
from understudy.models.tables.given_rules import Ruled

# of all rows: so many have the target by the odds of their component. Seven of ten by
# effects gain .011 in AUC and .006 in F1 on wide tables; all of them leave a classifier
# less sure than it should be (benchmarks/joint/told.csv)
KEPT = 0.3


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
        shape = (0, 0)
        if target is not None:
            shape = (self._effects(target), self.sizes[target])
        weights = components * self.width + math.prod(shape)
        if components > MOST_COMPONENTS or weights > MOST_WEIGHTS:
            raise ConfigError(
                f"a mixture of {components:,} components of width {self.width:,} is "
                f"larger than {MOST_COMPONENTS:,} components or {MOST_WEIGHTS:,} "
                "weights."
            )
        self.logits = nn.Parameter(torch.zeros(components, self.width))
        self.effects = None
        if target is not None:
            self.effects = nn.Parameter(torch.zeros(shape))
        self.softmax = BlockSoftmax(self.sizes)

    def _effects(self, target: int) -> int:
        """How many rows of effects there are. ConfigError for columns that there are
        not.
        """
        known = set(range(len(self.sizes)))
        for columns in ((target,), *((target, *pair) for pair in self.together)):
            are_whole = all(type(column) is int for column in columns)
            if not are_whole or len(known & set(columns)) < len(columns):
                raise ConfigError(
                    f"of {len(known)} columns none are numbers {columns}, each another."
                )
        if any(len(pair) != 2 for pair in self.together):
            raise ConfigError(
                "columns have an effect by themselves, or two of them together."
            )
        pairs = [self.sizes[one] * self.sizes[other] for one, other in self.together]
        return self.width + sum(pairs)

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
        uniform = torch.special.ndtr(z[:, 0].double())
        pick = uniform.mul(self.components).long()
        return self.odds()[pick.clamp(max=self.components - 1)]

    def levels(self, n: int, uniform: Callable[[int], Tensor]) -> Tensor:
        """Draw `n` rows of levels, int32 (n, columns). `uniform(k)` gives k independent
        numbers from [0, 1), float64.

        Edges: fewer rows than components → all of different ones; a level of
        probability 0 is never drawn.
        """
        order = torch.argsort(uniform(self.components))
        turn = torch.arange(n) % self.components
        pick = order[turn].sort().values  # (n,), rising
        all_odds = self.odds().detach().cpu().double()
        odds = torch.split(all_odds, list(self.sizes), 1)
        levels = latin(pick, odds, uniform)
        if self.target is not None and self.effects is not None:
            own = odds[self.target]
            effects = self.effects.detach().cpu().double()
            by_effects = odds_by_effects(self.terms(levels), effects)
            mixed = KEPT * own[pick] + (1 - KEPT) * by_effects
            # rising with a component's own odds
            kinds = torch.argsort(torch.argsort(own[:, -1]))
            levels[:, self.target] = evenly(mixed, kinds[pick], uniform)
        return levels[torch.argsort(uniform(n))]

    def terms(self, levels: Tensor) -> Tensor:
        """Which effects say the target of each row (n, columns): their numbers, int64
        (n, terms).
        """
        terms = []
        start = 0
        for column, size in enumerate(self.sizes):
            if column != self.target:
                terms.append(levels[:, column].long() + start)
            start += size
        for one, other in self.together:
            rows = levels[:, one].long()
            columns = levels[:, other].long()
            terms.append(start + rows * self.sizes[other] + columns)
            start += self.sizes[one] * self.sizes[other]
        return torch.stack(terms, 1)

    def gram(self) -> Tensor:
        """Expected x xᵀ of a one-hot row x: one-way tables on the diagonal, two-way
        beside it (width, width).
        """
        return Ruled.from_ties(self.odds(), self.sizes).gram()

    def describe(self) -> dict[str, Any]:
        description = super().describe()
        if self.target is not None:
            return description
        return {key: description[key] for key in ("kind", "components", "sizes")}

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        return super().arguments({"target": None, "together": (), **description})


def latin(
    pick: Tensor,
    odds: Sequence[Tensor],
    uniform: Callable[[int], Tensor],
) -> Tensor:
    """Levels of rows of the components in `pick` (n,), rising: a Latin hypercube for
    each, int32 (n, columns).

    Odds are (components, size) for each column, float64, and need not sum to 1; a level
    of odds 0 is never drawn.
    """
    n = len(pick)
    components = len(odds[0])
    numbers = torch.arange(components)[:, None]
    rows = torch.bincount(pick, minlength=components)
    n_before = (rows.cumsum(0) - rows)[pick]
    levels = torch.empty(n, len(odds), dtype=torch.int32)
    for column, own in enumerate(odds):
        size = own.shape[1]
        cumulated = own.cumsum(1)
        # rises over all components
        rising = cumulated / cumulated[:, -1:] + numbers
        # in a random order within each component
        order = torch.argsort(pick + uniform(n))
        place = torch.empty(n, dtype=torch.int64)
        place[order] = torch.arange(n)
        stratum = place - n_before + uniform(n)
        draw = _below_one(stratum / rows[pick])
        cells = torch.searchsorted(rising.flatten(), pick + draw, right=True)
        first = pick * size
        levels[:, column] = (cells - first).clamp(0, size - 1)
    return levels


def odds_by_effects(terms: Tensor, effects: Tensor) -> Tensor:
    """The odds of the target's levels in each row, by the sum of these of the
    `effects`: (n, terms) → (n, levels).
    """
    scores = effects.new_zeros(len(terms), effects.shape[1])
    for some in terms.T:
        scores += effects[some]
    return torch.softmax(scores, 1)


def evenly(
    odds: Tensor,
    kinds: Tensor,
    uniform: Callable[[int], Tensor],
) -> Tensor:
    """A level for each row, by its own odds (n, levels): int32 (n,). Rows, kind by kind
    and in the order of their odds, take multiples of the golden section, spread evenly:
    so each kind, and all together, are near their odds.
    """
    order = torch.argsort(kinds + _below_one(odds[:, -1]))
    golden_section = 0.5 * (5**0.5 - 1)
    multiples = torch.arange(len(odds)) * golden_section
    draw = torch.empty(len(odds), dtype=torch.float64)
    draw[order] = (multiples + uniform(1)) % 1
    is_below = odds.cumsum(1)[:, :-1] <= draw[:, None]
    return is_below.sum(1).int()


def _below_one(numbers: Tensor) -> Tensor:
    """Up to the last number to which a component's number is added without rounding
    up.
    """
    return numbers.clamp(max=1 - 2.0**-30)


def invert(odds: Tensor, uniform: Tensor) -> Tensor:
    """The level that each number in [0, 1] picks: odds (size,) or (n, size), uniform
    (n,) → (n,).

    Edges: odds need not sum to 1; a level of odds 0 is picked only if all are 0: the
    last.
    """
    cumulated = odds.cumsum(-1)
    total = cumulated[..., -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(uniform[:, None] * total, below_total)
    is_below = cumulated[..., :-1] <= target
    return is_below.sum(-1)


def one_hot(codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Codes (n, columns) as one-hot rows, float32, (n, width)."""
    starts = torch.tensor(
        [0, *accumulate(sizes[:-1])],
        dtype=torch.int64,
        device=codes.device,
    )
    rows = torch.zeros(len(codes), sum(sizes), device=codes.device)
    return rows.scatter_(1, codes + starts, 1.0)
