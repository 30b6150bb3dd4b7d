"""What all sides of a run compute from its settings and schemas, and hold each other to: noise, price and form.

One release of all one- and two-way tables of m columns: a person moves a cell of each of m(m + 1)/2 tables by 1, or by
`most_holders` where so many hosts may hold them. Each aggregator adds discrete Gaussian noise of σ to every cell, the
least that (ε, δ) needs, so that it is σ against the other one, who can take its own off.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

from understudy.check import a_seed, in_range, one_of, plain_name, positive, whole
from understudy.data.codec import Codec
from understudy.data.described import AnySchema
from understudy.data.schema import Schema
from understudy.errors import ConfigError, SchemaError
from understudy.privacy.accounts.accounting import DpEvent, Spend
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure import Cells, Field, shared_noise, spend_of
from understudy.protocols.aggregators.upload import Format

MOST_BATCH = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Config:
    """`aggregator`: the party that is the second aggregator; it holds no rows, and all others are hosts of people.

    `key`: its public key in hex, as `understudy aggregate` prints it. Hosts seal to no other then, whatever a server
    passes on. Without it the aggregator draws a key for the run, which the server passes on.
    `epsilon`, `delta`: what an upload costs a person, against an outsider and against either aggregator alone.
    `least_people`: with fewer who pass the check nothing is released. `batch`: people of a host who upload at a time.
    `at_least`: with so many hosts the run goes on when others stay away; None: all have to stay. `most_holders`: with
    how many hosts a person may be, by the hosts' word. `components`, `steps` and `rate` are the fit's.
    """

    aggregator: str = "aggregator"
    key: str = ""
    epsilon: float = 1.0
    delta: float = 1e-6
    least_people: int = 100
    batch: int = 1000
    at_least: int | None = None
    most_holders: int = 1
    components: int = 512
    steps: int = 1200
    rate: float = 0.2
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        plain_name(aggregator=self.aggregator, nothing="Nothing was charged.")
        positive(epsilon=self.epsilon, delta=self.delta, rate=self.rate)
        whole(least_people=self.least_people, batch=self.batch, most_holders=self.most_holders)
        whole(components=self.components, steps=self.steps)
        whole(at_least=1 if self.at_least is None else self.at_least)
        in_range(1, MOST_BATCH, batch=self.batch)
        a_seed(seed=self.seed)
        Budget(self.epsilon, self.delta)
        if self.key and not re.fullmatch("[0-9a-f]{64}", self.key):
            raise ConfigError(f"key must be 32 bytes in hex, not {self.key!r}. Nothing was charged.")


@dataclass(frozen=True)
class Plan:
    """A run's settings with the columns that they are about."""

    config: Config
    schema: Schema

    @classmethod
    def of(
        cls, config: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], name: str, own: AnySchema
    ) -> "Plan":
        """By what a party was told. Edges: settings that are none, other columns than its own → an error."""
        told = {party: Schema.from_dict(dict(schema)) for party, schema in schemas.items()}
        if name not in told or not isinstance(own, Schema) or told[name].columns != own.columns:
            raise SchemaError(f"{name}: the run is about another schema. Nothing was charged or sent.")
        return cls.joint(Config(**config), told)

    @classmethod
    def joint(cls, config: Config, schemas: Mapping[str, Schema]) -> "Plan":
        """The plan of all parties. Edges: no aggregator, no host, other columns at one of them → ConfigError."""
        one_of(schemas, aggregator=config.aggregator)
        if len(schemas) < 2:
            raise ConfigError("there is an aggregator, and nobody who uploads. Nothing was charged.")
        if config.most_holders >= len(schemas):
            raise ConfigError(
                f"most_holders={config.most_holders}, and there are {len(schemas) - 1} hosts. Nothing was charged."
            )
        (first, schema), *others = schemas.items()
        for name, other in others:
            if (
                not isinstance(schema, Schema)
                or not isinstance(other, Schema)
                or other.columns != schema.columns
            ):
                raise ConfigError(
                    f"{first} and {name} do not describe rows of a table in the same way: all hosts and the aggregator "
                    "have the same columns, levels and bounds. Nothing was charged."
                )
        return cls(config, Schema(columns=schema.columns))

    @property
    def aggregator(self) -> str:
        return self.config.aggregator

    @cached_property
    def cells(self) -> Cells:
        return Cells(Codec(self.schema).sizes)

    @cached_property
    def field(self) -> Field:
        return Field()

    @cached_property
    def format(self) -> Format:
        return Format(self.cells, self.field)

    @cached_property
    def sigma(self) -> float:
        """The noise that each aggregator adds to every cell."""
        config = self.config
        moved = (((1.0, self.cells.blocks),), 1.0)
        return shared_noise((moved,), Budget(config.epsilon, config.delta), config.most_holders)[0]

    @cached_property
    def price(self) -> Spend:
        """What the release costs a person: one use for every table."""
        return spend_of([(self.sigma, self.cells.blocks)], self.config.most_holders)

    @cached_property
    def event(self) -> DpEvent:
        return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in self.price.items()])
