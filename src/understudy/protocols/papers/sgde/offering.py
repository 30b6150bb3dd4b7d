"""How a silo of SGDE makes its offers, within what a pool requires, which is its own
choice: what each will be and what it costs, before a row is read; then the offer.

    beta-vae    the paper's: a decoder for each class, trained under noise (`training`)
    marginals   one-way tables of each class, as decoders without hidden layers, for
                silos of some hundred rows: a decoder's bias is the logarithm of noisy
                shares. Columns are independent within a class, and who learns from such
                rows learns what a naive Bayes classifier would
    gram        all pairs of a table's columns, one offer for all classes
    moments     counts and means of classes and second moments in a public frame, of
                images or series, likewise

The last three are not in the paper; the last two stand in `counted`.

Guarantee, for add/remove one person. A person is one row, the first, of one class.
Marginals: 1 in one cell for each of m columns, so m uses of `release_event(σ)`.
Edges: a class without rows is noise alone; no count divides anything. A kind that is
not for such rows → ConfigError.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar

import torch
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from torch import Tensor, nn

from understudy.data.kinds import IMAGES, SERIES, TABLE
from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError, Effect
from understudy.ground.settings import (
    TRUTH,
    Declared,
    between,
    choice,
    setting,
    whole_to,
)
from understudy.models.moments.released import MOST_OFFERED
from understudy.models.plan import plan_of
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.limits import LAYERS, within_limits
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import needed_noise, noise, spend_of
from understudy.protocols.core import settings as usual
from understudy.protocols.papers.sgde.kinds import pooled
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.protocols.papers.sgde.sums import (
    ADDED,
    MAX_FIGURE_EPSILON,
    MIN_FIGURE_EPSILON,
)

# Kind → where the class is, in this package: one is loaded when a silo makes such
# offers.
OFFERINGS = {
    "beta-vae": "training.Networks",
    "marginals": "offering.Marginals",
    "moments": "counted.MomentSums",
    "gram": "counted.PairCounts",
}
_MIN_COUNT = (
    0.2  # of σ: what a level has that nobody was counted at, so that no share is 0
)
CHANNELS = (32, 64, 128)  # Table II, image data, divided by four


@dataclass(frozen=True, kw_only=True)
class Recipe(Declared):
    """How a silo trains. `rate` is a row's chance to be in a step's batch; it and
    `steps` are public.
    """

    kind: str = setting(
        "beta-vae",
        choice(*OFFERINGS),
        "networks or tables of each class, or sums that a pool adds",
    )
    latent: int = setting(
        4,
        within_limits("latent"),
        "size of the latent space; the paper tunes it for each dataset",
    )
    channels: tuple[int, ...] = setting(
        CHANNELS, LAYERS, "channels of the layers for images"
    )
    beta: float = setting(
        1.0, within_limits("beta"), "weight of the latent term of the loss"
    )
    steps: int = setting(100, within_limits("steps"), "training steps of a generator")
    rate: float = setting(
        0.25, within_limits("rate"), "probability that a row is used in a step"
    )
    clip_norm: float = setting(
        1.0, within_limits("clip_norm"), "the longest gradient of one person"
    )
    learning_rate: float = setting(
        0.01, within_limits("learning_rate"), "learning rate of a generator"
    )
    features: int = setting(
        128,
        whole_to(MOST_OFFERED),
        "kind moments: the most coefficients, slowest first",
    )
    upright: bool = setting(
        False, TRUTH, "kind moments: images are first turned upright"
    )
    quality_epsilon: float | None = setting(
        None,
        between(MIN_FIGURE_EPSILON, MAX_FIGURE_EPSILON),
        "kinds gram, moments: ε of a quality figure",
    )
    private: bool = usual.private()
    device: str = usual.device()
    seed: int = usual.seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.upright and self.kind != "moments":
            raise ConfigError(
                f'upright is for kind="moments" alone, not for kind="{self.kind}".',
                effect=Effect.NOTHING_CHARGED,
            )
        if self.quality_epsilon is not None and (
            self.kind not in ADDED or not self.private
        ):
            raise ConfigError(
                'a figure of quality is paid for under noise, and is for kind="gram" '
                'or kind="moments" alone: '
                "without quality_epsilon there is none.",
                effect=Effect.NOTHING_CHARGED,
            )

    def spend(self, noise_multiplier: float) -> Counter[DpEvent]:
        """What a silo's networks cost together: every step, the person of a row."""
        if not noise_multiplier:
            return Counter({NonPrivateDpEvent(): self.steps})
        return Counter(
            {
                PoissonSampledDpEvent(
                    self.rate, GaussianDpEvent(noise_multiplier)
                ): self.steps
            }
        )


RECIPES = {  # where a silo says nothing, by the kind of its rows
    TABLE.name: Recipe(),
    IMAGES.name: Recipe(latent=8, steps=200, learning_rate=0.002),
    SERIES.name: Recipe(kind="moments"),
}


class Offering(ABC):
    """An offer by a recipe within `budget`; None: without noise. `figure`: the σ of a
    figure of quality; 0: none.
    """

    words: ClassVar[str]  # what of each class a ledger says it is
    # Whether it is for tables alone, or for images and series; None: for all.
    for_tables: ClassVar[bool | None] = None
    suited_to: ClassVar[str] = ""  # where rows are none of these
    figure: float = 0.0

    def __init__(
        self, requirements: Requirements, recipe: Recipe, budget: Budget | None
    ) -> None:
        self.requirements = requirements
        self.recipe = recipe
        self.budget = budget
        self.schema: Any = requirements.schema
        if self.for_tables not in (None, TABLE.describes(self.schema)):
            raise ConfigError(
                f'kind="{recipe.kind}" is for {self.suited_to}.',
                effect=Effect.NOTHING_CHARGED,
            )
        self.pooled = pooled(self.schema)

    @property
    @abstractmethod
    def spend(self) -> Counter[DpEvent]:
        """What it costs, without a figure."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The network, as far as it is known before it is paid for. ConfigError where
        it is not for such rows.
        """

    @abstractmethod
    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        """The networks: of each class, or one of all. They have been paid for."""

    def require_offerable(self) -> None:
        """ConfigError where it could be made, and then be offered to nobody."""
        required = self.requirements
        description = self.describe()
        one_of(
            required.networks, **{"a network of this pool": str(description["kind"])}
        )
        size = sum(
            dtype.itemsize * math.prod(shape)
            for dtype, shape in plan_of(description).shapes.values()
        )
        if size > required.largest:
            raise ConfigError(
                f"an offer would have {size:,} bytes, and this pool takes "
                f"{required.largest:,}.",
                effect=Effect.NOTHING_CHARGED,
            )


class Marginals(Offering):
    words = "counts of levels for each"
    for_tables = True
    suited_to = "tables: images have no levels"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.columns = len(self.schema.columns) - 1
        self.sigma = (
            0.0 if self.budget is None else needed_noise(self.columns, self.budget)
        )

    @property
    def spend(self) -> Counter[DpEvent]:
        return spend_of([(self.sigma, self.columns)])

    def describe(self) -> dict[str, Any]:
        return self.pooled.decoder(self.schema, self.requirements.target, 1, hidden=())

    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        from understudy.models.nets.beta_vae import ClassDecoder

        classes = len(self.requirements.labels)
        label_index = self.schema.names.index(self.requirements.target)
        first, codes = self.pooled.first_rows(
            rows, self.schema, self.requirements.target
        )
        decoders = []
        for number, shares in enumerate(
            noisy_level_counts(first, codes, classes, self.sigma, rng)
        ):
            decoder = ClassDecoder(
                1, (), TABLE.sizes(self.schema), (label_index, number)
            )
            weight, bias = decoder.parameters()
            weight.zero_()
            # the softmax over a column's levels makes shares of them
            bias.copy_(shares.log())
            decoders.append(decoder)
        return decoders


def noisy_level_counts(
    rows: Tensor, codes: Tensor, classes: int, sigma: float, rng: Rng
) -> Tensor:
    """How many of each class have each level, of one-hot rows, under noise and above 0:
    (classes, width).
    """
    counts = torch.zeros(classes, rows.shape[1], dtype=torch.int64).index_add_(
        0, codes, rows.cpu().long()
    )
    noisy = counts + noise(Fraction(sigma), rng, *counts.shape)
    return noisy.clamp_(min=0).double() + _MIN_COUNT * max(sigma, 1.0)


def offering_class(kind: str) -> type[Offering]:
    module, _, name = OFFERINGS[kind].partition(".")
    offering: type[Offering] = getattr(
        import_module(f"understudy.protocols.papers.sgde.{module}"), name
    )
    return offering
