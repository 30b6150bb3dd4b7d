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


class MixtureOfProducts(nn.Module):
    """`components` equally likely kinds of rows; `sizes` are the levels of each column.

    `logits` (components, width) are the only parameters. The latent is one number: the normal distribution
    function turns z ~ N(0, 1) into a uniform number, and that into a component.
    """

    latent = 1

    def __init__(self, sizes: Sequence[int], components: int) -> None:
        super().__init__()
        whole(components=components, columns=len(sizes))
        for size in sizes:
            whole(sizes=size)
        self.sizes, self.components, self.width = tuple(sizes), components, sum(sizes)
        if components > MOST_COMPONENTS or components * self.width > _MOST_PARAMETERS:
            raise ConfigError(
                f"a mixture of {components:,} components of width {self.width:,} is larger than "
                f"{MOST_COMPONENTS:,} components or {_MOST_PARAMETERS:,} weights."
            )
        self.logits = nn.Parameter(torch.zeros(components, self.width))
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
        return latin(pick, odds, uniform)[torch.argsort(uniform(n))]

    def gram(self) -> Tensor:
        """Expected x xᵀ of a one-hot row x: one-way tables on the diagonal, two-way beside it (width, width)."""
        odds = self.odds()
        column = torch.repeat_interleave(torch.tensor(self.sizes, device=odds.device))
        across = column[:, None] != column
        return odds.T @ odds / self.components * across + odds.mean(0).diag()

    def describe(self) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network."""
        return {"kind": "mixture", "components": self.components, "sizes": list(self.sizes)}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "MixtureOfProducts":
        """The network that `describe` described, with fresh weights. ConfigError for anything else."""
        try:
            kind, components, sizes = (description[key] for key in ("kind", "components", "sizes"))
        except (KeyError, TypeError) as error:
            raise ConfigError(f"this describes no mixture of products: {error!r}.") from None
        if kind != "mixture" or not isinstance(sizes, list | tuple):
            raise ConfigError(f"this describes no mixture of products: kind {kind!r}, sizes {sizes!r}.")
        return cls(sizes, components)


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
