"""The kinds of offers that a silo makes: what each will be and what it costs, before a row is read; then the offer.

    beta-vae    the paper's: a decoder for each class, trained under noise (`training`)
    marginals   one-way tables of each class, as decoders without hidden layers, for silos of some hundred rows: a
                decoder's bias is the logarithm of noisy shares. Columns are independent within a class, and who learns
                from such rows learns what a naive Bayes classifier would
    gram        all pairs of a table's columns, one offer for all classes
    moments     counts and means of classes and second moments in a public frame, of images or series, likewise

The last three are not in the paper; the last two stand in `counted`.

Guarantee, for add/remove one person. A person is one row, the first, of one class. Networks: that of `training`.
Marginals: 1 in one cell for each of m columns, so m uses of `release_event(σ)`.
Edges: a class without rows is noise alone; no count divides anything. A kind that is not for such rows → ConfigError.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from understudy.data.kinds import TABLE
from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError
from understudy.models.plan import plan_of
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import needed_noise, noise, spend_of
from understudy.protocols.sgde.kinds import pooled
from understudy.protocols.sgde.offer import Requirements
from understudy.protocols.sgde.recipe import Recipe, needed_multiplier

_LEAST = 0.2  # of σ: what a level has that nobody was counted at, so that no share is 0


class Offering(ABC):
    """An offer by a recipe within `budget`; None: without noise. `figure`: the σ of a figure of quality; 0: none."""

    words: ClassVar[str]  # what of each class a ledger says it is
    # Whether it is for tables alone, or for images and series; None: for all.
    for_tables: ClassVar[bool | None] = None
    said: ClassVar[str] = ""  # where rows are none of these
    figure: float = 0.0

    def __init__(self, requirements: Requirements, recipe: Recipe, budget: Budget | None) -> None:
        self.requirements, self.recipe, self.budget = requirements, recipe, budget
        self.schema: Any = requirements.schema
        if self.for_tables not in (None, TABLE.describes(self.schema)):
            raise ConfigError(f'kind="{recipe.kind}" is for {self.said}. Nothing was charged.')
        self.pooled = pooled(self.schema)

    @property
    @abstractmethod
    def spend(self) -> Counter[DpEvent]:
        """What it costs, without a figure."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The network, as far as it is known before it is paid for. ConfigError where it is not for such rows."""

    @abstractmethod
    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        """The networks: of each class, or one of all. They have been paid for."""

    def require_offerable(self) -> None:
        """ConfigError where it could be made, and then be offered to nobody."""
        required, description = self.requirements, self.describe()
        one_of(required.networks, **{"a network of this pool": str(description["kind"])})
        plan = plan_of(description)
        size = sum(math.prod(shape) for shape in plan.tensors.values()) * plan.dtype.itemsize
        if size > required.largest:
            raise ConfigError(
                f"an offer would have {size:,} bytes, and this pool takes {required.largest:,}. Nothing was charged."
            )


class Networks(Offering):
    words = "a generator for each"

    @cached_property
    def multiplier(self) -> float:
        return 0.0 if self.budget is None else needed_multiplier(self.recipe, self.budget)

    @property
    def spend(self) -> Counter[DpEvent]:
        return self.recipe.spend(self.multiplier)

    def describe(self) -> dict[str, Any]:
        recipe = self.recipe
        return self.pooled.decoder(self.schema, self.requirements.target, recipe.latent, channels=recipe.channels)

    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        from understudy.models.network import pick_device
        from understudy.protocols.sgde.training import fit

        recipe, target, device = self.recipe, self.requirements.target, pick_device(self.recipe.device)
        first, codes = self.pooled.first_rows(rows, self.schema, target)
        vae = self.pooled.vae(
            self.schema, target, len(self.requirements.labels), recipe.latent, channels=recipe.channels,
            seed=recipe.seed,
        ).to(device)  # fmt: skip
        fit(vae, first.to(device), codes, recipe, self.multiplier, rng)
        return self.pooled.decoders(vae.to(torch.device("cpu")), self.schema, target)


class Marginals(Offering):
    words = "counts of levels for each"
    for_tables, said = True, "tables: images have no levels"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.columns = len(self.schema.columns) - 1
        self.sigma = 0.0 if self.budget is None else needed_noise(self.columns, self.budget)

    @property
    def spend(self) -> Counter[DpEvent]:
        return spend_of([(self.sigma, self.columns)])

    def describe(self) -> dict[str, Any]:
        return self.pooled.decoder(self.schema, self.requirements.target, 1, hidden=())

    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        from understudy.models.nets.beta_vae import ClassDecoder

        classes, place = len(self.requirements.labels), self.schema.names.index(self.requirements.target)
        first, codes = self.pooled.first_rows(rows, self.schema, self.requirements.target)
        made = []
        for number, shares in enumerate(levels(first, codes, classes, self.sigma, rng)):
            decoder = ClassDecoder(1, (), TABLE.sizes(self.schema), (place, number))
            weight, bias = decoder.parameters()
            weight.zero_()
            bias.copy_(shares.log())  # the softmax over a column's levels makes shares of them
            made.append(decoder)
        return made


def levels(rows: Tensor, codes: Tensor, classes: int, sigma: float, rng: Rng) -> Tensor:
    """How many of each class have each level, of one-hot rows, under noise and above 0: (classes, width)."""
    counts = torch.zeros(classes, rows.shape[1], dtype=torch.int64).index_add_(0, codes, rows.cpu().long())
    noisy = counts + noise(Fraction(sigma), rng, *counts.shape)
    return noisy.clamp_(min=0).double() + _LEAST * max(sigma, 1.0)


# Kind → where the class is, in `understudy.protocols.sgde`: one is loaded when a silo makes such offers.
OFFERINGS = {
    "beta-vae": "offering.Networks", "marginals": "offering.Marginals",
    "gram": "counted.PairCounts", "moments": "counted.MomentSums",
}  # fmt: skip


def offering_class(kind: str) -> type[Offering]:
    module, _, name = OFFERINGS[kind].partition(".")
    found: type[Offering] = getattr(import_module(f"understudy.protocols.sgde.{module}"), name)
    return found
