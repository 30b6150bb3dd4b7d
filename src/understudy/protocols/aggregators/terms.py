"""What the runs of two aggregators have in common: the settings, and what all sides compute from them.

`plan` has it for tables, `moments_plan` for images and series.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from torch import Tensor

from understudy.data.described import AnySchema
from understudy.ground.check import one_of, plain_name
from understudy.ground.errors import ConfigError
from understudy.ground.settings import POSITIVE, WHOLE, Declared, Takes, setting, whole_to
from understudy.privacy.accounts.accounting import DpEvent, Spend
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.ring import Field, Numbers
from understudy.protocols.core import settings as usual

MOST_BATCH = 1 << 16


def _check_key(key: Any) -> None:
    if not isinstance(key, str) or (key and not re.fullmatch("[0-9a-f]{64}", key)):
        raise ConfigError(f"key must be 32 bytes in hex, not {key!r}. Nothing was charged.")


PARTY = Takes("a party's name", lambda name: plain_name(aggregator=name, nothing="Nothing was charged."))
KEY = Takes("32 bytes in hex", _check_key)


@dataclass(frozen=True, kw_only=True)
class Settings(Declared):
    """Hosts seal to the aggregator's `key` and to no other, whatever a server passes on. Without it the aggregator
    draws a key for the run, which the server passes on. `epsilon` and `delta` are against an outsider, and against
    either aggregator alone.
    """

    aggregator: str = setting(
        "aggregator",
        PARTY,
        "the party that is the second aggregator; it holds no rows, and all others are hosts of people",
    )
    key: str = setting("", KEY, "its public key in hex, as `understudy aggregate` prints it")
    epsilon: float = setting(1.0, POSITIVE, "price of a person's whole report")
    delta: float = setting(1e-6, POSITIVE, "δ of the price")
    least_people: int = setting(100, WHOLE, "if fewer people pass the check, nothing is released")
    batch: int = setting(1000, whole_to(MOST_BATCH), "people whose shares are added up at a time")
    at_least: int | None = usual.at_least()
    most_holders: int = usual.most_holders()
    seed: int = usual.seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        Budget(self.epsilon, self.delta)


class Terms(ABC):
    """A run's settings with what is counted, the noise on it, its price, and the form of an upload."""

    config: Settings

    @classmethod
    @abstractmethod
    def of(
        cls, config: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], name: str, own: AnySchema
    ) -> Self:
        """By what a party was told. Edges: settings that are none, another schema than its own → an error."""

    @property
    def aggregator(self) -> str:
        return self.config.aggregator

    @cached_property
    def field(self) -> Field:
        return Field()

    @property
    @abstractmethod
    def cells(self) -> Any:
        """What is counted: so many numbers (`count`), checked in so many `blocks`."""

    @property
    @abstractmethod
    def format(self) -> Any:
        """Of an upload (`upload`)."""

    @abstractmethod
    def sketch(self, coin: bytes) -> Any:
        """One side of the check."""

    @property
    @abstractmethod
    def price(self) -> Spend:
        """What the release costs a person."""

    @cached_property
    def event(self) -> DpEvent:
        return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in self.price.items()])

    @abstractmethod
    def noise(self, rng: Rng) -> Tensor:
        """One aggregator's noise on all that is released: int64, (count,)."""

    @property
    def weights(self) -> Tensor:
        """What each number that is counted is multiplied by before it is released: int64, (count,), or one for all."""
        return torch.ones(1, dtype=torch.int64)

    def noisy(self, total: Numbers, rng: Rng) -> Numbers:
        """An aggregator's share of what is released, from its share of the sum: with its noise, in full."""
        field = self.field
        drawn = field.numbers(self.noise(rng))
        noisy: Numbers = field.times(total, field.numbers(self.weights)) + drawn
        return noisy % field.prime

    @property
    def most_people(self) -> int | None:
        """How many the sum can hold; None: more than there are."""
        return None


def require_seats(config: Settings, schemas: Mapping[str, Any]) -> None:
    """Refuse a run without the aggregator that it names, or without hosts."""
    one_of(schemas, aggregator=config.aggregator)
    if len(schemas) < 2:
        raise ConfigError("there is an aggregator, and nobody who uploads. Nothing was charged.")
    if config.most_holders >= len(schemas):
        raise ConfigError(
            f"most_holders={config.most_holders}, and there are {len(schemas) - 1} hosts. Nothing was charged."
        )
