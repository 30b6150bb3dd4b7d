"""What all sides of a run about images or series compute from its settings and schemas: noise, price and form.

One release of counts and means of the classes and of second moments. A row is a vector q of whole numbers in the public
frame of `moments`, ‖q‖ ≤ R. A person moves a count by 1 and a mean by q, and a count is released `weight` times:
together by √(R² + weight²). The person moves second moments by R²/√2 in terms of σ, where the diagonal has √2·σ
(`secure.moments`). Where `most_holders` hosts may hold a person, it is that many times as much. Each aggregator adds
discrete Gaussian noise to every number, the least that (ε, δ) needs.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.classes import one_label
from understudy.data.described import AnySchema, ArraySchema, public_of
from understudy.data.encoding.frame import MOST_FEATURES, Frame, on_diagonal
from understudy.data.kinds import TABLE, schema_from
from understudy.ground.errors import ConfigError, SchemaError
from understudy.ground.settings import TRUTH, between, setting, whole_to
from understudy.models.moments.released import Released, moments_sensitivity, read_moments
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import noise_on
from understudy.privacy.secure.moment_shares import Vectors
from understudy.privacy.secure.moments import doubled, moments_event, needed_multipliers, noise_for
from understudy.privacy.secure.sketch import MomentSketch
from understudy.protocols.aggregators.terms import Settings, Terms, require_seats
from understudy.protocols.aggregators.upload import MomentFormat
from understudy.protocols.moments.settings import labels_of

KINDS = ("image", "series")


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The longest row has a norm of 2^(bits−1) − 1. What `share` leaves of the budget is second moments'."""

    features: int = setting(
        64,
        whole_to(MOST_FEATURES),
        "how many coefficients of the frame describe a row, from the lowest frequency on",
    )
    bits: int = setting(
        7,
        whole_to(9, least=3),
        "bits of each number in a row's vector; more are more exact, and make uploads longer",
    )
    by_class: bool = setting(
        False, TRUTH, "second moments of each class, not of all rows together; makes uploads longer"
    )
    share: float = setting(
        0.25, between(0.05, 0.95), "share of the budget for counts and means of the classes"
    )


@dataclass(frozen=True)
class MomentsPlan(Terms):
    """A run's settings with the rows that they are about."""

    config: Config
    schema: ArraySchema

    @classmethod
    def of(
        cls, config: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], name: str, own: AnySchema
    ) -> Self:
        told = {party: schema_from(dict(schema)) for party, schema in schemas.items()}
        if name not in told or TABLE.describes(own) or public_of(told[name]) != public_of(own):
            raise SchemaError(f"{name}: the run is about another schema. Nothing was charged or sent.")
        return cls.joint(Config(**config), told)

    @classmethod
    def joint(cls, config: Config, schemas: Mapping[str, Any]) -> Self:
        """The plan of all parties. Edges: no aggregator, no host, other rows at one of them → ConfigError."""
        require_seats(config, schemas)
        (first, schema), *others = schemas.items()
        for name, other in schemas.items():
            if getattr(other, "kind", "table") not in KINDS:
                raise ConfigError(
                    f"{name} has no images and no series, and shared-moments takes nothing else: two-aggregators is "
                    "for tables. Nothing was charged."
                )
        for name, other in others:
            if public_of(other) != public_of(schema):
                raise ConfigError(
                    f"{first} and {name} describe their rows differently: all hosts and the aggregator have the same "
                    "shape, bounds and classes. Nothing was charged."
                )
        one_label(schema, "shared-moments")
        return cls(config, replace(schema, note=""))

    @cached_property
    def frame(self) -> Frame:
        return Frame.declared(self.schema, self.config.features)

    @cached_property
    def cells(self) -> Vectors:
        config = self.config
        return Vectors(labels_of(self.schema).combinations, self.frame.features, config.bits, config.by_class)

    @cached_property
    def format(self) -> MomentFormat:
        return MomentFormat(self.cells, self.field)

    def sketch(self, coin: bytes) -> MomentSketch:
        return MomentSketch(self.cells, coin, self.field)

    @cached_property
    def multipliers(self) -> tuple[float, ...]:
        """Of the noise of counts and means, and of second moments."""
        config = self.config
        return needed_multipliers(Budget(config.epsilon, config.delta), (config.share, 1 - config.share))

    @cached_property
    def price(self) -> Spend:
        return Counter(map(moments_event, self.multipliers))

    @cached_property
    def sigmas(self) -> tuple[float, float]:
        """The noise that each aggregator adds to counts and means, and to second moments beside the diagonal."""
        radius, holders = self.cells.radius, self.config.most_holders
        first = math.hypot(radius, self.weight) * (1 + 2.0**-40)
        one, other = self.multipliers
        return noise_for(one, holders * first), noise_for(other, holders * moments_sensitivity(radius))

    @property
    def weight(self) -> int:
        """How often a count is released: a quarter of the longest vector."""
        return max(1, self.cells.radius // 4)

    @cached_property
    def weights(self) -> Tensor:
        weights = torch.ones(self.cells.count, dtype=torch.int64)
        weights[: self.cells.classes] = self.weight
        return weights

    @property
    def most_people(self) -> int:
        """So many that no sum, with 40 deviations of noise, is half of the prime."""
        return int((self.field.prime // 2 - 40 * 2 * max(self.sigmas)) // self.cells.radius**2)

    @cached_property
    def scales(self) -> NDArray[np.float64]:
        """The noise that each aggregator adds to each number, (numbers,)."""
        first, second = self.sigmas
        beside = np.where(self._diagonal.numpy(), math.sqrt(2) * second, second)
        return np.concatenate([np.full(self._head, first), beside])

    def noise(self, rng: Rng) -> Tensor:
        first, second = self.sigmas
        ones = self._diagonal
        own = noise_on(torch.ones(self._head, dtype=torch.bool), Fraction(first), rng)
        drawn = noise_on(ones, doubled(second), rng) + noise_on(~ones, Fraction(second), rng)
        return torch.cat([own, drawn])

    def read(self, total: Tensor) -> tuple[Released, Released]:
        """What the sums say, in steps of the frame: counts, means and energy, and second moments about the middle."""
        cells, reach = self.cells, self.frame.reach
        (first, second), step = (math.sqrt(2) * sigma for sigma in self.sigmas), reach / cells.radius
        triangles = total[self._head :].view(cells.triangles, -1)
        moments = read_moments(triangles, cells.features, reach, cells.radius, second)
        noise = moments["moments_noise"]
        return {
            "people": total[: cells.classes].double() / self.weight,
            "people_noise": torch.tensor(first / self.weight),
            "sums": total[cells.classes : self._head].double().view(cells.classes, -1) * step,
            "sums_noise": torch.tensor(first * step, dtype=torch.float64),
            "energy": moments["moments"].diagonal(dim1=1, dim2=2).sum(),
            "energy_noise": noise * math.sqrt(2 * cells.features * cells.triangles),
        }, moments

    @property
    def _head(self) -> int:
        return self.cells.classes * (1 + self.cells.features)

    @cached_property
    def _diagonal(self) -> Tensor:
        return on_diagonal(self.cells.features).repeat(self.cells.triangles)
