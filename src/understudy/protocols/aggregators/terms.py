"""What all sides of a run of two aggregators share: settings, what follows from these,
and how hosts are asked.

The server, the first aggregator, says `Open` to the second, `BeginUploads` to the hosts
with its key; batch by batch `Upload` to the hosts, `Take` and `Check` to the second;
`ReleaseSum` to it, once.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.population import Population
from understudy.data.kinds import TABLE, AnySchema, Family, protected_unit, schema_from
from understudy.data.schema import public_of
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import one_of, plain_name
from understudy.ground.errors import ConfigError, Effect, MessageError, SchemaError
from understudy.ground.settings import POSITIVE, WHOLE, Takes, setting, whole_to
from understudy.privacy.accounts.accounting import DpEvent, Spend
from understudy.privacy.accounts.budget import Budget, in_units
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import composed
from understudy.privacy.secure.ring import Field, Numbers
from understudy.protocols.aggregators.upload import Form
from understudy.protocols.core import Assembly
from understudy.protocols.core.common_rule import all_alike
from understudy.protocols.core.settings import PeopleApart
from understudy.protocols.cross_device.host import Call

if TYPE_CHECKING:
    from understudy.protocols.joint.pricing import Pricing

MOST_BATCH = 1 << 16
Look = Callable[[], None]


class BeginUploads(Assembly, kind="aggregators.begin"):
    """The run's settings, every party's schema, and the key that the second
    aggregator's part is to be sealed to.
    """

    key: bytes


class Upload(Call, kind="aggregators.upload"):
    """Which of the party's people are to upload their tables, in two shares: their
    places, (n,).
    """


def _check_key(key: Any) -> None:
    if not isinstance(key, str) or (key and not re.fullmatch("[0-9a-f]{64}", key)):
        raise ConfigError(
            f"key must be 32 bytes in hex, not {key!r}.", effect=Effect.NOTHING_CHARGED
        )


PARTY = Takes(
    "a party's name",
    lambda name: plain_name(aggregator=name, effect=Effect.NOTHING_CHARGED),
)
KEY = Takes("32 bytes in hex", _check_key)


@dataclass(frozen=True, kw_only=True)
class Settings(PeopleApart):
    """Hosts seal to the aggregator's `key` and to no other, whatever a server passes
    on. `epsilon` and `delta` are against an outsider, and against either aggregator
    alone.
    """

    aggregator: str = setting(
        "aggregator",
        PARTY,
        "the second aggregator: it holds no rows, all others host people",
    )
    key: str = setting(
        "", KEY, "its public key in hex, as `understudy aggregate` prints it"
    )
    epsilon: float = setting(1.0, POSITIVE, "price of a person's whole report")
    delta: float = setting(1e-6, POSITIVE, "δ of the price")
    min_people: int = setting(
        100, WHOLE, "if fewer people pass the check, nothing is released"
    )
    batch: int = setting(
        1000, whole_to(MOST_BATCH), "people whose shares are added up at a time"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        Budget(self.epsilon, self.delta)


ADJACENCY = (
    "replace the content of one person's upload by nothing; that the person took part "
    "is public"
)


class Terms(ABC):
    """A run's settings with what is counted (`cells`), the noise on it, its price, and
    the form of an upload.
    """

    protocol: ClassVar[str]
    settings: ClassVar[type[Settings]]
    family: ClassVar[Family[Any, Any]]  # of rows
    rows_are: ClassVar[str]  # in words, and what for others
    form: ClassVar[type[Form]]  # of an upload
    sketched: ClassVar[Callable[..., Any]]  # one side of the check
    cells: Any
    protects: str = "person"  # the unit of the hosts' rows

    def __init__(self, config: Any, schema: Any) -> None:
        self.config = config
        self.schema = schema

    @classmethod
    def as_told(
        cls,
        config: Mapping[str, Any],
        schemas: Mapping[str, Mapping[str, Any]],
        name: str,
        own_schema: AnySchema,
    ) -> Self:
        """By what a party was told. Edges: settings that are none, another schema than
        its own → an error.
        """
        announced: dict[str, Any] = {
            party: schema_from(dict(schema)) for party, schema in schemas.items()
        }
        fits = (
            name in announced
            and cls.family.describes(own_schema)
            and cls.family.describes(announced[name])
        )
        if not fits or _described(announced[name]) != _described(own_schema):
            raise SchemaError(
                f"{name}: the run is about another schema.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        return cls.joint(cls.settings(**config), announced)

    @classmethod
    def joint(cls, config: Any, schemas: Mapping[str, Any]) -> Self:
        """The terms of all parties. Edges: no aggregator, no host, other rows at one of
        them → ConfigError.
        """
        one_of(schemas, aggregator=config.aggregator)
        if len(schemas) < 2:
            raise ConfigError(
                "there is an aggregator, and nobody who uploads.",
                effect=Effect.NOTHING_CHARGED,
            )
        if config.max_holders_per_person >= len(schemas):
            raise ConfigError(
                f"max_holders_per_person={config.max_holders_per_person}, and "
                f"there are {len(schemas) - 1} hosts.",
                effect=Effect.NOTHING_CHARGED,
            )
        for name, schema in schemas.items():
            if not cls.family.describes(schema):
                raise ConfigError(
                    f"{name}: these uploads are of {cls.rows_are}.",
                    effect=Effect.NOTHING_CHARGED,
                )
        all_alike({name: _described(schema) for name, schema in schemas.items()})
        terms = cls(config, cls.bare(config, next(iter(schemas.values()))))
        terms.protects = protected_unit(
            {name: one for name, one in schemas.items() if name != config.aggregator}
        )
        return terms

    def composition(self) -> dict[str, Any]:
        """How the price is to be read (`PriceTerms`): one release, which both
        aggregators together could undo.
        """
        names = f"the server and {self.aggregator}"
        both = (
            f"everything against both aggregators together: {names} could put any "
            "upload together, and so could "
            f"{self.aggregator} with a party that collected it"
        )
        whose = (
            "who the second aggregator is: people seal their part to a key that the "
            "server passes on; ledgers hold its fingerprint"
        )
        return {
            "same_people": False,
            "max_holders_per_person": self.config.max_holders_per_person,
            "one_release": True,
            "adjacency": in_units(ADJACENCY, self.protects),
            "coalition": names,
            "unguarded": (both,) if self.config.key else (both, whose),
        }

    @staticmethod
    @abstractmethod
    def bare(config: Any, schema: Any) -> Any:
        """The schema without what a holder may call or note as it likes. Edges: nothing
        to count → ConfigError.
        """

    @property
    def aggregator(self) -> str:
        return str(self.config.aggregator)

    @cached_property
    def field(self) -> Field:
        return Field()

    @cached_property
    def format(self) -> Any:
        return self.form(self.cells, self.field)

    def sketch(self, coin: bytes) -> Any:
        return self.sketched(self.cells, coin, self.field)

    @abstractmethod
    def lines_of(
        self, data: Any, population: Population, places: Tensor, some: Tensor
    ) -> Tensor:
        """What uploads are about, of people with the rows at these places, if they have
        `some`: a line each.
        """

    @property
    @abstractmethod
    def pricing(self) -> "Pricing":
        """Of a joint release to which both aggregators add noise: what one of the two
        leaves of it is the other's, in full.
        """

    @property
    def budget(self) -> Budget:
        return Budget(self.config.epsilon, self.config.delta)

    @cached_property
    def noises(self) -> list[float]:
        """The noise of each part of the release, as `pricing` measures it."""
        return self.pricing.needed(self.budget, None)

    @cached_property
    def price(self) -> Spend:
        """What the release costs a person."""
        price = Counter[DpEvent]()
        for part, noise in enumerate(self.noises):
            price += self.pricing.spend(part, noise)
        return price

    @cached_property
    def event(self) -> DpEvent:
        return composed(self.price)

    @abstractmethod
    def noise(self, rng: Rng) -> Tensor:
        """One aggregator's noise on all that is released: int64, (count,)."""

    @property
    def weights(self) -> Tensor:
        """What each number that is counted is multiplied by before it is released:
        int64, (count,), or one for all.
        """
        return torch.ones(1, dtype=torch.int64)

    def noisy(self, total: Numbers, rng: Rng) -> Numbers:
        """An aggregator's share of what is released, from its share of the sum: with
        its noise, in full.
        """
        field = self.field
        noise = field.numbers(self.noise(rng))
        noisy: Numbers = field.times(total, field.numbers(self.weights)) + noise
        return noisy % field.prime

    @property
    def most_people(self) -> int | None:
        """How many the sum can hold; None: more than there are."""
        return None

    def numbers(self, part: Any, shape: tuple[int, ...], whose: str) -> Numbers:
        """What the other aggregator said. Edges: not numbers of the field, of that
        shape → MessageError.
        """
        good = (
            isinstance(part, Tensor)
            and part.dtype == torch.int64
            and part.shape == shape
        )
        if not good or bool(((part < 0) | (part >= self.field.prime)).any()):
            raise MessageError(
                f"{whose}: {shape} numbers of the field were due.",
                effect=Effect.NOTHING_COMPUTED,
            )
        return np.asarray(part.numpy().astype(np.uint64))

    def drawn(self, schemas: Mapping[str, Any]) -> Any:
        """The schema of what is drawn. Edges: one that nobody can keep to →
        ConfigError, before anybody is asked.
        """
        return self.schema

    @abstractmethod
    def fit(
        self, saved: Mapping[str, Any], card: dict[str, Any], schema: Any, look: Look
    ) -> GeneratorParts:
        """The generator of what was released; the card gets what else is to be said,
        and `look` is called meanwhile.
        """


def _described(schema: Any) -> Any:
    return schema.columns if TABLE.describes(schema) else public_of(schema)


class Tally:
    """An aggregator's share of the sum over all who passed so far, how many they are,
    and the mark of who.
    """

    def __init__(self, plan: Terms) -> None:
        self.plan = plan
        self.total = np.zeros(plan.cells.count, np.uint64)
        self.mark = bytes(32)
        self.people = 0
        self.batches = 0

    def add(
        self, rows: Any, share: Any, sums: Numbers, sketch: Any, passed: Any
    ) -> None:
        """A batch, of which `sums` is this side's share over all, but for those who did
        not pass.
        """
        field = self.plan.field
        *_, failed = sketch.look(share.select(np.flatnonzero(~passed)))
        self.total = (self.total + field.minus(sums, failed)) % np.uint64(field.prime)
        self.mark = marked(self.mark, self.plan.format.keys(rows)[passed])
        self.people, self.batches = self.people + int(passed.sum()), self.batches + 1


def marked(mark: bytes, keys: Any) -> bytes:
    return hashlib.sha256(mark + keys.tobytes()).digest()


def as_tensor(numbers: Numbers) -> Tensor:
    return torch.from_numpy(numbers.astype(np.int64))
