"""Small federations for the tests of gram, and a server that remembers, or changes, all
that passes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from understudy.data.column import Binned
from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.data.schema import Schema
from understudy.data.table import Table, read_table
from understudy.ground.errors import PartyAway
from understudy.privacy.accounts.accounting import DiscreteGaussian
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.core.base import Ask, Reply
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.fit import MeasuredGram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.messages import Begin, Release
from understudy.protocols.joint.party import AlignedJointParty
from understudy.protocols.joint.server import measure
from understudy.runtime.local import LocalParties, addressed


@dataclass(frozen=True, kw_only=True)
class Plan(gram.Config):
    """Levels as declared, no search and masks that are dealt, unless said."""

    products: str = "dealt"
    fine: float = 0.0
    searched_triples: int | None = 0


OPEN = Plan(private=False)
BUDGET = Budget(epsilon=2.0, delta=1e-5)
FREE = Budget(epsilon=math.inf, delta=0.0)
FRAME, SCHEMA = toy(rows=30, seed=3)
SCHEMA = replace(  # of all kinds, and of few levels
    SCHEMA,
    columns=tuple(
        replace(c, bins=3) if isinstance(c, Binned) else c for c in SCHEMA.columns
    ),
)
SMALL: dict[str, Any] = {"components": 8, "steps": 5, "device": "cpu"}

Schemas = dict[str, Schema]
Parts = dict[str, pd.DataFrame]
READ: dict[int, tuple[pd.DataFrame, Table]] = {}


def kept(
    cut: Callable[..., tuple[Parts, Schemas]],
) -> Callable[..., tuple[Parts, Schemas]]:
    """The same frames again, in dicts of their own, unless the frame to cut is the
    caller's.
    """
    known = cache(cut)

    @wraps(cut)
    def parts(*args: Any, **more: Any) -> tuple[Parts, Schemas]:
        theirs = any(isinstance(one, pd.DataFrame) for one in (*args, *more.values()))
        tables, schemas = (cut if theirs else known)(*args, **more)
        return dict(tables), dict(schemas)

    return parts


@kept
def by_columns(parties: int, frame: pd.DataFrame = FRAME) -> tuple[Parts, Schemas]:
    names = [f"holder {n}" for n in range(parties)]
    columns = {name: SCHEMA.names[n::parties] for n, name in enumerate(names)}
    tables = {
        name: frame.sample(frac=1, random_state=n)[["id", *columns[name]]]
        for n, name in enumerate(names)
    }
    return tables, {name: SCHEMA.select(columns[name]) for name in names}


@kept
def by_rows(parties: int, frame: pd.DataFrame = FRAME) -> tuple[Parts, Schemas]:
    names = [f"host {n}" for n in range(parties)]
    return {
        name: frame.iloc[n::parties] for n, name in enumerate(names)
    }, dict.fromkeys(names, SCHEMA)


@kept
def by_grid(
    frame: pd.DataFrame = FRAME, *, firsts: int = 2, seconds: int = 1
) -> tuple[Parts, Schemas]:
    """`firsts` holders of three columns, `seconds` of two others, one of the rest: each
    group has all people.
    """
    groups = {
        "a": (firsts, SCHEMA.names[:3]),
        "b": (seconds, SCHEMA.names[3:5]),
        "c": (1, SCHEMA.names[5:]),
    }
    tables = Parts()
    schemas = Schemas()
    for place, (letter, (holders, columns)) in enumerate(groups.items()):
        for n in range(holders):
            mine = frame.sample(frac=1, random_state=place).iloc[n::holders]
            tables[f"{letter}{n}"], schemas[f"{letter}{n}"] = (
                mine[["id", *columns]],
                SCHEMA.select(columns),
            )
    return tables, schemas


def table(frame: pd.DataFrame, schema: Schema, name: str) -> Table:
    """The frame as a table; to read one takes longer than most of what is asked of its
    holder.
    """
    _, found = READ.get(id(frame), (None, None))
    if found is None or (found.schema, found.source) != (schema, name):
        found = read_table(frame, schema, name=name)
        READ[id(frame)] = frame, found  # held, so that its id stays its own
    return found


def party(
    name: str,
    tables: Parts,
    schemas: Schemas,
    *,
    budget: Budget = BUDGET,
    seed: int | None = 1,
    ledger: Ledger | None = None,
    **more: Any,
) -> AlignedJointParty:
    place = list(tables).index(name)
    return gram.PROTOCOL.build(
        name,
        table(tables[name], schemas[name], name),
        ledger or Ledger.rehearsal(holder=name, budget=budget),
        run="r",
        budget=budget,
        rng=None if seed is None else SecureRng.from_seed(100 * seed + place),
        **more,
    )


def all_parties(
    tables: Parts, schemas: Schemas, **more: Any
) -> dict[str, AlignedJointParty]:
    return {name: party(name, tables, schemas, **more) for name in tables}


def true_gram(schema: Schema, frame: pd.DataFrame = FRAME) -> Tensor:
    rows = Codec(schema).encode(frame).double()
    return (rows.T @ rows).long()


def joined(schemas: Schemas) -> Schema:
    return SCHEMA.select(name for schema in schemas.values() for name in schema.names)


def cells(m: int = len(SCHEMA.columns)) -> int:
    return m * (m + 1) // 2


def kinds(schemas: Schemas) -> tuple[int, int]:
    """The cells that a person moves within holders of columns, and across them."""
    within = sum(cells(len(schema.columns)) for schema in schemas.values())
    return within, cells() - within


def less(sigma: float, ratio: float) -> float:
    """σ·ratio^(−¼), rounded up at the eleventh binary digit."""
    unit = 2.0 ** (math.floor(math.log2(sigma * ratio**-0.25)) - 10)
    return math.ceil(sigma * ratio**-0.25 / unit) * unit


def column_price(schemas: Schemas, sigma: float) -> dict[DiscreteGaussian, int]:
    """What one release over columns costs, σ being the noise within holders."""
    within, across = kinds(schemas)
    return {DiscreteGaussian(sigma): within, DiscreteGaussian(less(sigma, 2)): across}


class Seen(LocalParties):
    """Parties of which the server remembers every ask and reply; `meddle` may change
    either, or raise PartyAway.
    """

    def __init__(
        self,
        parties: Mapping[str, AlignedJointParty],
        meddle: Callable[[str, Any], Any] = lambda name, message: message,
    ) -> None:
        super().__init__(parties)
        self.meddle = meddle
        self.log = list[tuple[str, Ask, Reply]]()

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks: dict[str, Ask] = {}
        away: list[PartyAway] = []
        for name, ask in addressed(message, self.names).items():
            try:
                asks[name] = self.meddle(name, ask)
            except PartyAway as error:
                away.append(error)
        if away and (min_holders is None or len(asks) < min_holders):
            raise away[0]
        replies = {
            name: self.meddle(name, reply) for name, reply in super().ask(asks).items()
        }
        self.log += [(name, asks[name], reply) for name, reply in replies.items()]
        return replies

    def replies(self, kind: type[Ask]) -> list[tuple[str, Any]]:
        return [(name, reply) for name, ask, reply in self.log if isinstance(ask, kind)]


@dataclass(frozen=True)
class Chosen:
    """Chooses as told, in place of a fit."""

    choose: Callable[[Any, Tensor], Tensor] | None
    choose_triples: Callable[[Any, Tensor, int, float], Tensor] | None
    found: Any

    def pairs(self, besides: Tensor, wanted: int) -> Tensor:
        assert self.choose is not None
        return self.choose(self.found, besides)

    def tables(self, among: Tensor, most: int, noise: float) -> Tensor:
        if self.choose_triples is None:
            return torch.empty(0, 2, dtype=torch.int64)
        return self.choose_triples(self.found, among, most, noise)


class Released:
    """What was measured, with what is on record of it."""

    def __init__(self, measurements: Measurements) -> None:
        self.record = measurements.record
        self.partition = measurements.study.grid.partition
        self.sigmas = measurements.record.noise
        self.n_released = measurements.record.n_released
        self.measure = MeasuredGram.from_releases(measurements)

    def __getattr__(self, name: str) -> Any:
        return getattr(
            self.measure if hasattr(self.measure, name) else self.record, name
        )


def release(
    parties: Any,
    schemas: Mapping[str, Schema],
    plan: Plan | None = None,
    *,
    choose: Any = None,
    choose_triples: Any = None,
    chunk: int = 1 << 15,
    secret: bytes | None = None,
    study: type[Gram] = Gram,
    **settings: Any,
) -> Released:
    """All releases of the plan."""
    config = replace(plan or Plan(), **settings)
    made = study(config, {name: schemas[name] for name in parties.names})
    if choose or choose_triples:
        made.chooser = partial(Chosen, choose, choose_triples)  # type: ignore[method-assign]
    return Released(
        measure(
            made, parties, min_holders=config.min_holders, chunk=chunk, secret=secret
        )
    )


def told(message: Any, **settings: Any) -> Any:
    """The opening with other settings, and whatever else as it is."""
    return (
        replace(message, config=message.config | settings)
        if isinstance(message, Begin)
        else message
    )


def asked(message: Any, stage: str, kind: type[Ask] = Release) -> bool:
    """Whether it is this ask, for this stage."""
    return isinstance(message, kind) and getattr(message, "stage", "") == stage


def due(stage: str, **more: Any) -> Release:
    return Release(stage=stage, **{"inbox": {}, "corrections": {}} | more)


def measured(
    tables: Parts, schemas: Schemas, plan: Plan | None = None, **more: Any
) -> Released:
    keep = {
        key: more.pop(key)
        for key in ("chunk", "max_colluding", "min_holders", "choose")
        if key in more
    }
    budget = more.pop("budget", BUDGET if plan is None or plan.private else FREE)
    parties = LocalParties(all_parties(tables, schemas, budget=budget, **more))
    return release(parties, schemas, plan, **keep)


TRIPLE = (SCHEMA.names[0], SCHEMA.names[1], SCHEMA.names[2])
PAIRS = torch.tensor([[0, 1], [0, 7], [2, 5]])


def pick(found: Released, chosen: Tensor) -> Tensor:
    return PAIRS


def triple_counts(frame: pd.DataFrame = FRAME) -> Tensor:
    codec = Codec(SCHEMA.select(TRIPLE))
    rows = codec.encode(frame).double()
    a, b, c = (rows[:, block] for block in codec.blocks)
    return torch.einsum("na,nb,nc->abc", a, b, c).long()


def upper(matrix: Tensor) -> Tensor:
    return torch.ones_like(matrix, dtype=torch.bool).triu()


def all_sizes() -> tuple[int, ...]:
    return Codec(SCHEMA).sizes
