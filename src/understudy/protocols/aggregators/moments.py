"""Shared moments: images or series of people of whom nobody sees a row, and Gaussians
fitted to their moments.

The level of trust of `two-aggregators` for what has no columns. Each person splits
their class, their row in the public frame as a vector of whole numbers, and the
products of its entries into two shares (`secure.moment_shares`), one for the server,
one for a second aggregator that does not collude with it. Sources: as of
`two-aggregators`; what is fitted is that of `moments` (`models/moments/fit.py`),
without histograms, and without cells of a class.

Guarantee: that of `two-aggregators`. A liar moves the sums by no more than an honest
person can (`secure.sketch`).
Edges: of several rows a person uploads one that is drawn in secret, without rows no
class and zeros. More people than the sums can hold → ConfigError, before anybody is
charged.

One release of counts and means of the classes and of second moments. A row is a vector
q of whole numbers in the public frame of `moments`, ‖q‖ ≤ R. A person moves a count by
1 and a mean by q, and a count is released `weight` times: together by √(R² + weight²).
The person moves second moments by R²/√2 in terms of σ, where the diagonal has √2·σ
(`secure.moments`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.frame import MOST_FEATURES, Frame, on_diagonal
from understudy.data.encoding.population import Population
from understudy.data.kinds import ARRAYS, ArraySchema, Family, one_label
from understudy.generators.parts import GeneratorParts
from understudy.ground.settings import TRUTH, between, setting, whole_to
from understudy.models.moments.fit import fit_one_release
from understudy.models.moments.released import (
    Released,
    moments_sensitivity,
    read_moments,
)
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import noise_on
from understudy.privacy.secure.moment_shares import Vectors
from understudy.privacy.secure.moments import (
    bounded,
    doubled,
    noise_for,
)
from understudy.privacy.secure.sketch import MomentSketch
from understudy.protocols.aggregators.first import protocol_of
from understudy.protocols.aggregators.terms import Look, Settings, Terms
from understudy.protocols.aggregators.upload import Form, MomentFormat
from understudy.protocols.joint.pricing import VectorPricing


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The longest row has a norm of 2^(bits−1) − 1. What `share` leaves of the budget
    is second moments'.
    """

    features: int = setting(
        64,
        whole_to(MOST_FEATURES),
        "coefficients of the frame for a row, the slowest first",
    )
    bits: int = setting(
        7,
        whole_to(9, lowest=3),
        "bits of each number; more are more exact, and uploads longer",
    )
    by_class: bool = setting(
        False,
        TRUTH,
        "second moments of each class, not of all together; makes uploads longer",
    )
    share: float = setting(
        0.25,
        between(0.05, 0.95),
        "share of the budget for counts and means of the classes",
    )


class MomentsPlan(Terms):
    config: Config
    schema: ArraySchema
    protocol: ClassVar[str] = "shared-moments"
    settings: ClassVar[type[Settings]] = Config
    family: ClassVar[Family[Any, Any]] = ARRAYS
    rows_are: ClassVar[str] = "images or series; two-aggregators is for tables"
    form: ClassVar[type[Form]] = MomentFormat
    sketched = MomentSketch

    @staticmethod
    def bare(config: Config, schema: ArraySchema) -> ArraySchema:
        one_label(schema, "shared-moments")
        unannotated: ArraySchema = replace(schema, note="")
        return unannotated

    def lines_of(
        self, data: Any, population: Population, places: Tensor, some: Tensor
    ) -> Tensor:
        """Class and vector of a row, within the priced norm: int64, (people, 1 +
        features); of nobody −1 and zeros.
        """
        indices = places.numpy()
        has_row = some.numpy()
        q = bounded(
            self.frame.coefficients(data.values[indices]),
            float(self.frame.reach),
            self.cells.radius,
        )
        classes = (
            np.zeros(len(indices), np.int64)
            if data.classes is None
            else data.classes[indices]
        )
        q = np.where(has_row[:, None], q, 0)
        classes = np.where(has_row, classes, -1)
        return torch.from_numpy(np.hstack([classes[:, None], q]).astype(np.int64))

    @cached_property
    def frame(self) -> Frame:
        return Frame.declared(self.schema, self.config.features)

    @cached_property
    def cells(self) -> Vectors:
        config = self.config
        return Vectors(
            math.prod(self.schema.label_sizes or (1,)),
            self.frame.features,
            config.bits,
            config.by_class,
        )

    @cached_property
    def pricing(self) -> VectorPricing:
        config = self.config
        return VectorPricing(
            moves=config.max_holders_per_person,
            shares=(config.share, 1 - config.share),
        )

    @cached_property
    def sigmas(self) -> tuple[float, float]:
        """The noise that each aggregator adds to counts and means, and to second
        moments beside the diagonal.
        """
        radius = self.cells.radius
        holders = self.config.max_holders_per_person
        first = math.hypot(radius, self.weight) * (1 + 2.0**-40)
        one, other = self.noises
        return noise_for(one, holders * first), noise_for(
            other, holders * moments_sensitivity(radius)
        )

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
        return int(
            (self.field.prime // 2 - 40 * 2 * max(self.sigmas)) // self.cells.radius**2
        )

    @cached_property
    def scales(self) -> NDArray[np.float64]:
        first, second = self.sigmas
        second_scales = np.where(self._diagonal.numpy(), math.sqrt(2) * second, second)
        return np.concatenate([np.full(self._head, first), second_scales])

    def noise(self, rng: Rng) -> Tensor:
        first, second = self.sigmas
        diagonal = self._diagonal
        first_noise = noise_on(
            torch.ones(self._head, dtype=torch.bool), Fraction(first), rng
        )
        second_noise = noise_on(diagonal, doubled(second), rng) + noise_on(
            ~diagonal, Fraction(second), rng
        )
        return torch.cat([first_noise, second_noise])

    def read(self, total: Tensor) -> tuple[Released, Released]:
        """What the sums say, in steps of the frame: counts, means and energy, and
        second moments about the middle.
        """
        cells = self.cells
        reach = self.frame.reach
        (first, second), step = (
            (math.sqrt(2) * sigma for sigma in self.sigmas),
            reach / cells.radius,
        )
        triangles = total[self._head :].view(cells.triangles, -1)
        moments = read_moments(triangles, cells.features, reach, cells.radius, second)
        noise = moments["moments_noise"]
        return {
            "people": total[: cells.classes].double() / self.weight,
            "people_noise": torch.tensor(first / self.weight),
            "sums": total[cells.classes : self._head].double().view(cells.classes, -1)
            * step,
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

    def fit(
        self, saved: Mapping[str, Any], card: dict[str, Any], schema: Any, look: Look
    ) -> GeneratorParts:
        network = fit_one_release(self.frame, *self.read(saved["sums"]))
        noise = zip(
            ("of counts and means", "of second moments"), self.sigmas, strict=True
        )
        card["noise"] = {f"of each aggregator, {what}": sigma for what, sigma in noise}
        card["directions"] = network.directions
        return GeneratorParts(network.eval(), self.schema, card)


PROTOCOL = protocol_of(MomentsPlan, paper=__doc__, kinds=("image", "series"))
train = PROTOCOL.train
