"""Gram: holders measure all two-way tables of their joint data once, privately, and a generator is fitted to them.

One-hot rows x ∈ {0,1}ᴰ of m columns. The Gram matrix G = Σ x xᵀ holds every one-way table (on its diagonal) and every
two-way table, across holders too. Over rows it adds up; over columns its blocks are products X_iᵀX_k. It is released
once, under whole-number noise, and everything after that is free: `models/fit_gram.py` fits a mixture to it.

Sources: the measurements of McKenna, Miklau, Sheldon, "Winning the NIST contest" (JPC 2021), all pairs at once;
products by Beaver 1991 (`privacy/secure/product.py`), sums by Bonawitz et al. 2017 (`privacy/secure/sums.py`), noise by
Canonne, Kamath, Steinke 2020. The protocol that joins them is our own.

Guarantee: (ε, δ)-DP for a person with all their columns at all parties, in one release, against the server, against any
party, and against an outsider. Each party's ledger is charged that whole price; a person pays it once.
Edges: the server deals the masks of products, so over columns it must not pool what it knows with a holder; over rows
it may, with up to `colluding` of them. docs/secure_products.md says who sees what.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from understudy.check import not_negative, one_of, positive, whole
from understudy.data.codec import Codec
from understudy.data.schema import Schema, join
from understudy.data.table import Table
from understudy.errors import ConfigError
from understudy.generator import Generator
from understudy.models.device import pick_device
from understudy.models.fit_gram import fit_gram
from understudy.privacy.budget import Budget
from understudy.privacy.ledger import Ledger
from understudy.privacy.secure.counts import moved_cells, release_event
from understudy.privacy.statement import OUTSIDE, PartyPrivacy, PrivacyStatement
from understudy.protocols.base import Parties, Progress, Watcher
from understudy.protocols.checkpoint import Checkpoint
from understudy.protocols.gram_measure import Measured, measure
from understudy.protocols.gram_party import GramParty

SAME_PEOPLE = None  # columns of the same people, or rows of different ones
PARTITIONS = ("auto", "columns", "rows")
OUTSIDE_ROWS = (
    "the schema: columns, levels and bounds are public",
    "the size and the timing of messages; the number of people is counted within ε",
)
DEALT = (
    "rows against the server together with a holder: the server deals the masks, so the two could take them off",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """`components`, `steps` and `rate` are the fit's. `partition`: the same people's columns, or different people's
    rows; "auto" sees it by the schemas. Over rows, ε holds when up to `colluding` parties pool what they know, and
    the run goes on without parties that go away early as long as `at_least` are left (None: all must stay).
    `chunk`: people per message, at most.
    """

    components: int = 512
    steps: int = 600
    rate: float = 0.2
    partition: str = "auto"
    colluding: int = 1
    at_least: int | None = None
    chunk: int = 1 << 15
    private: bool = True
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        whole(components=self.components, steps=self.steps, colluding=self.colluding, chunk=self.chunk)
        if self.at_least is not None:
            whole(at_least=self.at_least)
        positive(rate=self.rate)
        not_negative(seed=self.seed)
        one_of(PARTITIONS, partition=self.partition)


@dataclass(frozen=True)
class Outcome:
    """What training gives."""

    generator: Generator
    privacy: PrivacyStatement
    people: int


def build_party(name: str, table: Table, ledger: Ledger, **more: Any) -> GramParty:
    """A party of this protocol."""
    return GramParty(name, table, ledger, **more)


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Measure the joint Gram matrix, once, and fit a generator to it.

    With a `checkpoint` folder the released matrix is saved before anything is fitted, and `resume=True` fits again
    from there: nothing is measured, or charged, twice.
    """
    schemas = {name: schemas[name] for name in parties.names}
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    if store is not None and resume and (saved := store.load()) is not None:
        measured = Measured(**saved[1])
    else:
        measured = measure(
            parties,
            schemas,
            partition=_partition(config, schemas),
            private=config.private,
            chunk=config.chunk,
            colluding=config.colluding,
            at_least=config.at_least,
        )
        if store is not None:
            store.save(1, dict(vars(measured)))
    schema = join(schemas) if measured.partition == "columns" else next(iter(schemas.values()))
    privacy = _statement(measured, schema)

    def look(done: int = 1) -> None:
        if watch is not None:
            watch(Progress(done, 2, privacy.per_party))

    look()
    device, sizes = pick_device(config.device), Codec(schema).sizes
    network = fit_gram(
        measured.gram.to(device),
        sizes,
        noise=measured.noise.to(device),
        components=config.components,
        steps=config.steps,
        rate=config.rate,
        seed=config.seed,
        watch=lambda step, residual, expected: look(),
    )
    look(2)
    people = _people(measured, sizes)
    card: dict[str, Any] = {
        "protocol": "gram",
        "config": asdict(config),
        "partition": measured.partition,
        "rounds": 1,
        "ended": "after the one release",
        "left_out": [name for name in parties.names if name not in measured.begun],
        "people": people,
        "sigma": measured.sigma,
        "privacy": privacy.to_dict(),
    }
    if measured.partition == "columns":
        card["owners"] = {column: name for name, held in schemas.items() for column in held.names}
    return Outcome(Generator(network.cpu().eval(), schema, card), privacy, people)


def _partition(config: Config, schemas: Mapping[str, Schema]) -> str:
    """How the table is cut over the parties: as the settings say, or as the schemas show."""
    if config.partition != "auto":
        return config.partition
    first, *rest = schemas.values()
    if all(schema.columns == first.columns for schema in rest):
        return "rows"
    names = [name for schema in schemas.values() for name in schema.names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f'column "{twice[0]}" is with several parties, but their schemas differ: this is neither rows of one '
            "table nor columns of one. Nothing was charged."
        )
    return "columns"


def _people(measured: Measured, sizes: Sequence[int]) -> int:
    """Their number: disclosed by alignment, or what the noisy one-way tables say."""
    disclosed = next(iter(measured.begun.values()))["people"]
    return (
        max(1, round(float(measured.gram.diagonal().sum()) / len(sizes))) if disclosed is None else disclosed
    )


def _statement(measured: Measured, schema: Schema) -> PrivacyStatement:
    """What the one release cost, by what the parties stated when they began."""
    columns = measured.partition == "columns"
    spend = {release_event(measured.sigma): moved_cells(len(schema.columns))}
    parties = tuple(
        PartyPrivacy(
            name=name,
            budget=Budget(math.inf, 0.0) if info["budget"] is None else Budget(**info["budget"]),
            outsider=spend,
            insider=spend,
            noise=info["noise"],
            people=info["people"],
        )
        for name, info in measured.begun.items()
    )
    return PrivacyStatement(
        parties=parties,
        same_people=columns,
        one_release=columns,
        outside=OUTSIDE if columns else OUTSIDE_ROWS,
        unguarded=DEALT if columns and len(parties) > 1 else (),
    )
