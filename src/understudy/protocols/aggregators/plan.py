"""What all sides of a run compute from its settings and schemas, and hold each other to: noise, price and form.

One release of all one- and two-way tables of m columns: a person moves a cell of each of m(m + 1)/2 tables by 1, or by
`most_holders` where so many hosts may hold them. Each aggregator adds discrete Gaussian noise to every cell, the
least that (ε, δ) needs, so that it is that much against the other one, who can take its own off.

Tables need not have the same noise: of Gaussian noise Σ 1/σ² over the tables is all that counts. Those of a pair with
the target have less. By `gram`'s measure, which takes them a second time for a share of the budget, both measurements
together have the noise that they get here in one. Of the others a table of c cells has noise in proportion to c to
the power −1/8: what is wrong in many cells adds up (benchmarks/aggregators has other powers).
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.described import AnySchema
from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, SchemaError
from understudy.ground.settings import POSITIVE, WHOLE, between, setting
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import DiscreteGaussianNoise, Rng
from understudy.privacy.secure.counts import Moved, noise_on, scaled, shared_noise, spend_of
from understudy.privacy.secure.sketch import Sketch
from understudy.privacy.secure.table_shares import Cells
from understudy.protocols.aggregators.terms import Settings, Terms, require_seats
from understudy.protocols.aggregators.upload import Format
from understudy.protocols.core import settings as usual
from understudy.protocols.gram.settings import again_share

_POWER = 1 / 8


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """All pairs with a `target` have less noise: `scouting` is the share of the budget that all tables take alike, and
    what is left is theirs (`gram.settings.again_share`).
    """

    target: str | None = usual.target()
    scouting: float | None = setting(
        None,
        between(0.05, 0.95),
        "share of the budget for all pairs, where some are measured twice; by default .8, less for few people",
    )
    public_people: int | None = setting(
        None,
        WHOLE,
        "about how many people there are, if that is public; for few, a target's pairs get more budget",
    )
    components: int = setting(512, WHOLE, "products in the mixture that is fitted")
    steps: int = setting(1200, WHOLE, "the most steps of the fit")
    rate: float = setting(0.2, POSITIVE, "learning rate of the fit")
    device: str = usual.device()


@dataclass(frozen=True)
class Plan(Terms):
    """A run's settings with the columns that they are about."""

    config: Config
    schema: Schema

    @classmethod
    def of(
        cls, config: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], name: str, own: AnySchema
    ) -> "Plan":
        """By what a party was told. Edges: settings that are none, other columns than its own → an error."""
        told = {party: Schema.from_dict(dict(schema)) for party, schema in schemas.items()}
        if name not in told or not TABLE.describes(own) or told[name].columns != own.columns:
            raise SchemaError(f"{name}: the run is about another schema. Nothing was charged or sent.")
        return cls.joint(Config(**config), told)

    @classmethod
    def joint(cls, config: Config, schemas: Mapping[str, Schema]) -> "Plan":
        """The plan of all parties. Edges: no aggregator, no host, other columns at one of them → ConfigError."""
        require_seats(config, schemas)
        (first, schema), *others = schemas.items()
        for name, other in others:
            if not TABLE.describes(schema) or not TABLE.describes(other) or other.columns != schema.columns:
                raise ConfigError(
                    f"{first} and {name} do not describe rows of a table in the same way: all hosts and the aggregator "
                    "have the same columns, levels and bounds. Nothing was charged."
                )
        if config.target is not None and config.target not in schema.names:
            raise ConfigError(f'nobody has a column "{config.target}". Nothing was charged.')
        return cls(config, Schema(columns=schema.columns))

    @cached_property
    def cells(self) -> Cells:
        return Cells(Codec(self.schema).sizes)

    @cached_property
    def format(self) -> Format:
        return Format(self.cells, self.field)

    def sketch(self, coin: bytes) -> Sketch:
        return Sketch(self.cells, coin, self.field)

    @cached_property
    def sigma(self) -> float:
        """The noise that each aggregator adds to a cell, without the target, of a table of middling size."""
        return self._sigma(tuple(Counter(self._factors).items()))

    @property
    def target_sigma(self) -> float:
        """That of a cell of a pair with the target."""
        return scaled(self.sigma, self._factor)

    @cached_property
    def kinds(self) -> list[tuple[float, int]]:
        """Each noise, and how many tables have it."""
        return [(scaled(self.sigma, factor), many) for factor, many in Counter(self._factors).items()]

    @cached_property
    def scales(self) -> NDArray[np.float64]:
        """The noise that each aggregator adds to each cell, (cells,)."""
        scales = np.zeros(self.cells.count)
        tables = self.cells.tables(scales)  # parts of it, which are written to
        for (_, _, table), factor in zip(tables, self._factors, strict=True):
            table[:] = scaled(self.sigma, factor)
        return scales

    @cached_property
    def price(self) -> Spend:
        """What the release costs a person: one use for every table."""
        return spend_of(self.kinds, self.config.most_holders)

    def noise(self, rng: Rng) -> Tensor:
        """One aggregator's noise on all cells: int64, (cells,)."""
        drawn = torch.zeros(self.cells.count, dtype=torch.int64)
        for scale in np.unique(self.scales).tolist():
            drawn += noise_on(torch.from_numpy(self.scales == scale), Fraction(scale), rng)
        return drawn

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """The standard deviation of both noises together on each cell, (cells,)."""
        found, place = np.unique(self.scales, return_inverse=True)
        both = [math.sqrt(2 * DiscreteGaussianNoise(Fraction(scale)).variance) for scale in found.tolist()]
        return np.array(both)[place]

    def matrix(self, flat: NDArray[Any]) -> Tensor:
        """What belongs to each cell, as one matrix of all levels: (width, width), upper triangle."""
        blocks = Codec(self.schema).blocks
        gram = torch.zeros(self.cells.levels, self.cells.levels, dtype=torch.from_numpy(flat).dtype)
        for one, other, table in self.cells.tables(flat):
            cells = torch.from_numpy(table)
            if one == other:
                gram[blocks[one], blocks[one]] = cells[:, 0].diag()
            elif one < other:
                gram[blocks[one], blocks[other]] = cells
            else:
                gram[blocks[other], blocks[one]] = cells.T
        return gram

    @cached_property
    def _factors(self) -> list[float]:
        """The noise of each table over `sigma`. Over those without the target the mean of 1/σ² is that of `sigma`."""
        names, target = self.schema.names, self.config.target
        near, power = [], []
        for one, other, table in self.cells.tables(np.zeros(self.cells.count)):
            near.append(one != other and target in (names[one], names[other]))
            power.append(_by_size(table.size))
        far = [each**-2 for each, with_target in zip(power, near, strict=True) if not with_target]
        middle = math.sqrt(math.fsum(far) / len(far))
        return [self._factor if flag else each * middle for each, flag in zip(power, near, strict=True)]

    @property
    def _with_target(self) -> int:
        """How many tables are of a pair with the target."""
        return 0 if self.config.target is None else len(self.schema.names) - 1

    @cached_property
    def _factor(self) -> float:
        """The noise of pairs with the target over that of the others."""
        if not self._with_target:
            return 1.0
        config, again = self.config, 0.2
        if config.scouting is not None:
            again = 1 - config.scouting
        elif config.public_people is not None:
            again = again_share(config.public_people, math.sqrt(2) * self._sigma(((1.0, self.cells.blocks),)))
        # 1/σ² of all tables, and what that of these has besides
        alike, more = (1 - again) / self.cells.blocks, again / self._with_target
        return math.sqrt(alike / (alike + more))

    def _sigma(self, moved: Moved) -> float:
        budget = Budget(self.config.epsilon, self.config.delta)
        return shared_noise(((moved, 1.0),), budget, self.config.most_holders)[0]


def _by_size(cells: int) -> float:
    """The noise of a table of so many cells over that of one cell; few different numbers, the same on every machine."""
    octaves = round(math.log2(cells))
    return round(2**16 * math.exp2(-_POWER * octaves)) / 2**16
