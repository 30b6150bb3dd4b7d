"""A mixture of products: K kinds of rows, each with its own odds for every column.

A row is drawn by picking a component at random and then each column by itself from the component's odds, so
that all dependence between columns lies in the choice of the component. With P (K, D) the odds side by side,
the expected one- and two-way tables are one product, PᵀP/K: cheap to compare with measured tables, and cheap
to differentiate.

Aydore et al., "Differentially private query release through adaptive projection" (ICML 2021), §3: the
"relaxed" synthetic dataset, with one softmax per column (their §4) in place of the box [0, 1].
Paper → code: n′ relaxed rows → `components`, one-hot dimension d′ → width.

Rows are drawn by Latin hypercubes, one for each component (McKay, Beckman, Conover, Technometrics 1979): n rows fall on
all components alike, and within one on all n_k quantiles of every column. Every single row has the mixture's law; all
together have its one- and two-way tables with less of a sampling error than independent ones.

A column to predict may be drawn last, by the row's other columns (`main_effects`): the two-way tables stay those of the
mixture, tables of three columns with it do not. All that is asked of the mixture in closed form is the mixture's own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from understudy.check import whole
from understudy.errors import ConfigError
from understudy.models.nets import BlockSoftmax

_MOST_PARAMETERS = 1 << 28  # 1 GiB: a description from elsewhere cannot ask for more
MOST_COMPONENTS = 1 << 20  # beyond it a float32 latent no longer reaches every component evenly
_LAST = 1 - 2.0**-30  # of [0, 1): a component's number may be added without rounding up to the next
_GOLDEN = 0.5 * (5**0.5 - 1)


class MixtureOfProducts(nn.Module):
    """`components` equally likely kinds of rows; `sizes` are the levels of each column.

    `logits` (components, width) are the parameters, and with a `target` (its number) the `effects` of all other levels
    on its log-odds (width, its levels), by which `levels` draws it. The latent is one number: the normal distribution
    function turns z ~ N(0, 1) into a uniform number, and that into a component.
    """

    latent = 1

    def __init__(self, sizes: Sequence[int], components: int, target: int | None = None) -> None:
        super().__init__()
        whole(components=components, columns=len(sizes))
        for size in sizes:
            whole(sizes=size)
        if target is not None and (type(target) is not int or not 0 <= target < len(sizes)):
            raise ConfigError(f"of {len(sizes)} columns none is number {target!r}.")
        self.sizes, self.components, self.width = tuple(sizes), components, sum(sizes)
        self.target, levels = target, 0 if target is None else self.sizes[target]
        if components > MOST_COMPONENTS or (components + levels) * self.width > _MOST_PARAMETERS:
            raise ConfigError(
                f"a mixture of {components:,} components of width {self.width:,} is larger than "
                f"{MOST_COMPONENTS:,} components or {_MOST_PARAMETERS:,} weights."
            )
        self.logits = nn.Parameter(torch.zeros(components, self.width))
        self.effects = None if target is None else nn.Parameter(torch.zeros(self.width, levels))
        self.softmax = BlockSoftmax(self.sizes)

    def odds(self) -> Tensor:
        """Each component's probabilities, one softmax per column: (components, width)."""
        odds: Tensor = self.softmax(self.logits)
        return odds

    def rows(self, z: Tensor) -> Tensor:
        """Standard normal latents (n, 1) → the odds of the components that they pick (n, width)."""
        pick = torch.special.ndtr(z[:, 0].double()).mul(self.components).long()
        return self.odds()[pick.clamp(max=self.components - 1)]

    def forward(self, z: Tensor) -> Tensor:
        """As `rows`."""
        return self.rows(z)

    def levels(self, n: int, uniform: Callable[[int], Tensor]) -> Tensor:
        """Draw `n` rows of levels, int32 (n, columns). `uniform(k)` gives k independent numbers from [0, 1), float64.

        Edges: fewer rows than components → all of different ones; a level of probability 0 is never drawn.
        """
        order = torch.argsort(uniform(self.components))
        pick = order[torch.arange(n) % self.components].sort().values  # (n,), rising
        odds = torch.split(self.odds().detach().cpu().double(), list(self.sizes), 1)
        levels = latin(pick, odds, uniform)
        if self.target is not None and self.effects is not None:
            effects = self.effects.detach().cpu().double()
            levels[:, self.target] = told(levels, self.sizes, self.target, effects, uniform)
        return levels[torch.argsort(uniform(n))]

    def gram(self) -> Tensor:
        """Expected x xᵀ of a one-hot row x: one-way tables on the diagonal, two-way beside it (width, width)."""
        odds = self.odds()
        column = torch.repeat_interleave(torch.tensor(self.sizes, device=odds.device))
        across = column[:, None] != column
        return odds.T @ odds / self.components * across + odds.mean(0).diag()

    def describe(self) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network."""
        said: dict[str, Any] = {
            "kind": "mixture",
            "components": self.components,
            "sizes": list(self.sizes),
        }
        return said if self.target is None else said | {"target": self.target}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "MixtureOfProducts":
        """The network that `describe` described, with fresh weights. ConfigError for anything else."""
        try:
            kind, components, sizes = (description[key] for key in ("kind", "components", "sizes"))
        except (KeyError, TypeError) as error:
            raise ConfigError(f"this describes no mixture of products: {error!r}.") from None
        if kind != "mixture" or not isinstance(sizes, list | tuple):
            raise ConfigError(f"this describes no mixture of products: kind {kind!r}, sizes {sizes!r}.")
        return cls(sizes, components, description.get("target"))


def latin(pick: Tensor, odds: Sequence[Tensor], uniform: Callable[[int], Tensor]) -> Tensor:
    """Levels of rows of the components in `pick` (n,), rising: a Latin hypercube for each, int32 (n, columns).

    `odds` has one table for each column, (components, size), float64. Rows need not sum to 1.
    Edges: a level of odds 0 is never drawn; a component that is picked has odds above 0 in every column.
    """
    n, components = len(pick), len(odds[0])
    share = torch.bincount(pick, minlength=components)
    before = (share.cumsum(0) - share)[pick]
    levels = torch.empty(n, len(odds), dtype=torch.int32)
    for column, own in enumerate(odds):
        heap = own.cumsum(1)
        heap = heap / heap[:, -1:] + torch.arange(components)[:, None]  # rises over all components
        place = torch.empty(n, dtype=torch.int64)
        place[torch.argsort(pick + uniform(n))] = torch.arange(n)  # in a random order within each component
        draw = ((place - before + uniform(n)) / share[pick]).clamp(max=_LAST)
        found = torch.searchsorted(heap.flatten(), pick + draw, right=True)
        levels[:, column] = (found - pick * own.shape[1]).clamp(0, own.shape[1] - 1)
    return levels


def told(
    levels: Tensor, sizes: Sequence[int], target: int, effects: Tensor, uniform: Callable[[int], Tensor]
) -> Tensor:
    """The target's level in each row (n, columns), by the `effects` of its other columns' levels: int32 (n,).

    Every single row has these odds; rows in the order of their odds take numbers that are spread evenly over [0, 1)
    wherever a run of them begins and ends (multiples of the golden section), so that all together are near them.
    """
    ends = torch.tensor(sizes).cumsum(0)
    scores = effects.new_zeros(len(levels), sizes[target])
    for column, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        if column != target:
            scores += effects[levels[:, column].long() + end - size]
    odds = torch.softmax(scores, 1)
    draw = torch.empty(len(levels), dtype=torch.float64)
    draw[torch.argsort(odds[:, -1])] = (torch.arange(len(levels)) * _GOLDEN + uniform(1)) % 1
    return (odds.cumsum(1)[:, :-1] <= draw[:, None]).sum(1).int()
