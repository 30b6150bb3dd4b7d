"""Gram: holders measure all two-way tables of their joint data once, privately, and a generator is fitted to them.

One-hot rows x ∈ {0,1}ᴰ of m columns. The Gram matrix G = Σ x xᵀ holds every one-way table (on its diagonal) and every
two-way table, across holders too. Over rows it adds up; over columns its blocks are products X_iᵀX_k; where both are
split (`data.grid`) its blocks are sums of products. It is released once, under whole-number noise, and everything
after that is free: `models/tables/fit_gram.py` fits a mixture to it.

Sources: the measurements of McKenna, Miklau, Sheldon, "Winning the NIST contest" (JPC 2021), all pairs at once;
products by Beaver 1991 (`privacy/secure/product.py`), sums by Bonawitz et al. 2017 (`privacy/secure/sums.py`), noise by
Canonne, Kamath, Steinke 2020. The protocol that joins them is our own.

Guarantee: (ε, δ)-DP for a person with all their columns at all parties, in one price, against the server, against any
party, and against an outsider. Each party's ledger is charged that whole price; a person pays it once.
Edges: the server deals the masks of products, so where columns are split it must not pool what it knows with a holder;
over rows it may, with up to `colluding` of them. docs/secure_products.md says who sees what.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy.answers.release import Release
from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.levels import Levels
from understudy.data.grid import Grid
from understudy.data.rules import read_rules
from understudy.data.schema import Schema
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import a_seed, in_range, not_negative, positive, whole
from understudy.ground.errors import ConfigError
from understudy.models.device import pick_device
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noise_alone import levels_of_none, never_drawn
from understudy.models.tables.noisy_tables import Tables, read_tables
from understudy.models.tables.strongest_pairs import strongest_pairs
from understudy.models.tables.strongest_triples import strongest_triples
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.statement import OUTSIDE, PrivacyStatement
from understudy.privacy.secure.counts import spend_of
from understudy.protocols.core import Parties, Watcher, settled
from understudy.protocols.core.agreeing import stated_prices
from understudy.protocols.core.checkpoint import Checkpoint
from understudy.protocols.core.loop import two_steps
from understudy.protocols.core.outcome import Outcome
from understudy.protocols.gram.forecast import expectation
from understudy.protocols.gram.forecast import forecast as forecast
from understudy.protocols.gram.layout import LEAST_FINE, MOST_FINE
from understudy.protocols.gram.party import DEALT, GramParty
from understudy.protocols.gram.releases import Plan, Released, release
from understudy.protocols.gram.terms import tables_to_choose
from understudy.protocols.protocol import Protocol

OUTSIDE_ROWS = (
    "the schema: columns, levels and bounds are public",
    "the size and the timing of messages; the number of people is counted within ε",
)
FIRST, BOTH = "first-release", "released"  # what is saved
OUTSIDE_GRID = (
    *OUTSIDE,
    "which parties hold a person: alignment reveals it to the parties that hold this person, and to the server how "
    "many people each combination of parties has",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """`components`, `steps` and `rate` are the fit's.

    `fine`: where a number has no declared bins, or a list of categories is long, this share of the budget buys fine
    tables of all columns, and by them the levels on which pairs are measured (`data/encoding/fine.py`,
    `tables/bought_levels.py`). Bounds may then be far too wide. 0: levels as the schema has them, which are
    even bins where it declares none.
    `target`: the column to predict from the others, if there is one. All pairs with it are measured a
    second time, so that both together have less noise; `scouting` is the share of the budget that the first release, of
    all pairs, takes then. What a classifier learns gains much by it, most on wide tables, and the distance of other
    pairs hardly suffers (benchmarks/joint). The fit is drawn to tables of three columns with it that have no more than
    the pairs say (`tables/with_target.py`), and rows draw it by their other columns (`tables/target_effects.py`).
    By default `scouting` is .8, and less where people are few beside the noise (`terms.again_share`). How many there
    are is known where columns are split; elsewhere `public_people` says it, if it is public: about so many, or a bound.
    `refined`: so many other pairs, the strongest by the first release (`tables/strongest_pairs.py`), are measured once
    more, too. By default none are, however wide the table: the fit reads wide tables by what their pairs share
    (`tables/low_rank.py`), and of tables with up to 561 columns a choice of pairs gained an eighth on one and lost
    on the others.
    `triples`: three-way tables to measure besides, each of three columns of one holder (or of one group of holders);
    where pairs are measured twice they share the second release's part of the budget.
    `chosen_triples`: with a target, up to so many three-way tables of it and two other columns, the strongest by the
    first release (`tables/strongest_triples.py`), in the second release: of one holder's columns, or of two holders'
    (`gram/across.py`), for which pairs of levels are multiplied as all levels were before. By default four where
    `public_people` says that there are 10,000 or more, and else none: they make all of that release noisier, by a sixth
    with 13 columns, and where people are few that costs more than it tells.
    `rules`: what every row keeps across holders, besides the rules of their schemas (`data/rules.py`). Nothing is
    measured for it: what is fitted is the law given the rules, and what is drawn keeps them.
    `most_holders`: over rows, how many holders may hold a person. Nobody can check it without an alignment, so the
    holders state it; noise is for a person who moves every count by so much. Over a grid alignment refuses such people,
    and the setting is for holders who fear a server that departs from the protocol.
    ε holds when up to `colluding` of the holders of a block pool what they know. Over rows the run continues without
    parties that go away early as long as `at_least` are left (None: all must stay). `chunk`: people per message.
    """

    components: int = 512
    steps: int = 1200
    rate: float = 0.2
    fine: float = 0.2
    target: str | None = None
    refined: int = 0
    scouting: float | None = None
    public_people: int | None = None
    triples: tuple[tuple[str, str, str], ...] = ()
    chosen_triples: int | None = None
    rules: tuple[dict[str, Any], ...] = ()
    colluding: int = 1
    at_least: int | None = None
    most_holders: int = 1
    chunk: int = 1 << 15
    private: bool = True
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        whole(components=self.components, steps=self.steps, colluding=self.colluding, chunk=self.chunk)
        whole(most_holders=self.most_holders)
        if self.at_least is not None:
            whole(at_least=self.at_least)
        positive(rate=self.rate)
        a_seed(seed=self.seed)
        not_negative(refined=self.refined)
        if self.chosen_triples is not None:
            not_negative(chosen_triples=self.chosen_triples)
        if self.public_people is not None:
            whole(public_people=self.public_people)
        if self.scouting is not None:
            in_range(0.05, 0.95, scouting=self.scouting)
        if self.fine:
            in_range(LEAST_FINE, MOST_FINE, fine=self.fine)
        triples = tuple(tuple(names) for names in self.triples)
        if any(len(names) != 3 or len(set(names)) != 3 for names in triples) or len(set(triples)) < len(
            triples
        ):
            raise ConfigError("triples must be different sets of three columns.")
        object.__setattr__(self, "triples", triples)
        object.__setattr__(self, "rules", tuple(rule.to_dict() for rule in read_rules(self.rules)))

    @property
    def plan(self) -> Plan:
        """What is released."""
        twice = self.target is not None or self.refined
        return Plan(
            private=self.private,
            fine=self.fine,
            target=self.target,
            refined=self.refined,
            scouting=self.scouting if twice else 1.0,
            public_people=self.public_people,
            triples=self.triples,
            chosen_triples=tables_to_choose(self.chosen_triples, self.target, self.public_people),
            most_holders=self.most_holders,
        )


def _agreed(config: Config) -> dict[str, Any]:
    """What a holder who knows the settings agrees to: what is released, and against how many."""
    return {"agreed": asdict(config.plan) | {"colluding": config.colluding}}


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

    With a `checkpoint` folder each release is saved before anything else is asked or fitted; `resume=True` continues
    from there: nothing is measured, or charged, twice. Where a second release was due and does not take place, the
    first is what is fitted, and card and statement say so.
    """
    schemas = {name: schemas[name] for name in parties.names}
    grid = Grid.of(schemas)
    schema, device = with_rules(grid.join(schemas), config.rules), pick_device(config.device)

    def fit(released: Released, **more: Any) -> MixtureOfProducts:
        noise, codec = torch.where(released.measured, released.noise, torch.inf), _codec(released, schema)
        return fit_gram(
            released.gram.to(device),
            codec.sizes,
            noise=noise.to(device),
            people=released.people,
            ties=rule_ties(codec),
            target=None if config.target is None else schema.names.index(config.target),
            components=config.components,
            steps=config.steps,
            rate=config.rate,
            seed=config.seed,
            **more,
        )

    def choose(released: Released, chosen: Tensor) -> Tensor:
        ties = rule_ties(_codec(released, schema))
        return strongest_pairs(fit(released), config.refined, besides=chosen, ties=ties)

    def choose_triples(released: Released, beside: Tensor, most: int, noise: float) -> Tensor:
        tables, codec = _tables(released, schema), _codec(released, schema)
        place = schema.names.index(config.target or "")
        listed = [frozenset(map(schema.names.index, names)) for names in config.triples]
        among = beside.tolist()
        return strongest_triples(tables, codec.sizes, place, most, among=among, noise=noise, besides=listed)

    told = json.loads(json.dumps(asdict(config.plan)))
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    done, first = (_released(store, name, told) if store and resume else None for name in (BOTH, FIRST))
    measured = done or release(
        parties,
        schemas,
        config.plan,
        choose=choose,
        choose_triples=choose_triples,
        chunk=config.chunk,
        colluding=config.colluding,
        at_least=config.at_least,
        config=asdict(config),
        secret=None if store is None else store.secret(resume=resume),
        first=first,
        keep=lambda one: None if store is None else store.note(FIRST, dict(vars(one)) | {"plan": told}),
    )
    if store is not None and done is None:
        store.note(BOTH, dict(vars(measured)) | {"plan": told})
        store.over(FIRST)
    there = [name for name in measured.begun if name not in measured.gone]
    spends = settled(parties, there, at_least=config.at_least)
    privacy = _statement(measured, spends, config.most_holders)
    look = two_steps(watch, privacy.per_party)
    look(1)
    network = fit(
        measured,
        triples=[Triple(**{**one, "table": one["table"].to(device)}) for one in measured.triples],
        watch=lambda step, residual: look(1),
    )
    look(2)
    people, codec = _people(measured, len(schema.columns)), _codec(measured, schema)
    never_drawn(
        network, levels_of_none(schema, codec.sizes, measured.gram.diagonal(), measured.noise.diagonal())
    )
    card: dict[str, Any] = {
        "protocol": "gram",
        "config": asdict(config),
        "partition": measured.partition,
        "rounds": 1,
        "ended": _ended(measured),
        "left_out": [name for name in parties.names if name not in measured.begun],
        "people": people,
        "releases": measured.releases,
        "noise": _noise(measured),
        "levels": dict(zip(schema.names, codec.sizes, strict=True)),
        "privacy": privacy.to_dict(),
    }
    card |= expectation(
        schema, people, privacy.epsilon(), measured.sigmas[: measured.made], bool(measured.levels)
    )
    if measured.partition != "rows":
        card["owners"] = {
            column: name for name, held in grid.one_each(schemas).items() for column in held.names
        }
    bought = codec if isinstance(codec, Levels) else None
    found = _release(measured, codec, card)
    if found is not None:
        card["release"] = found.card
    return Outcome(GeneratorParts(network.cpu().eval(), schema, card, bought, found), privacy, people)


def _release(measured: Released, codec: Codec | Levels, card: Mapping[str, Any]) -> Release | None:
    """All counts as they were released, with what they cost. None of a run that was begun before they were kept."""
    if not measured.kept:
        return None
    about = {
        "adjacency": card["privacy"]["adjacency"],
        "epsilon": card["privacy"]["person"]["epsilon"]["outsider"],
        "delta": card["privacy"]["person"]["delta"],
    } | {key: card[key] for key in ("releases", "partition", "people")}
    sizes = torch.tensor(codec.sizes, dtype=torch.int32)
    return Release.from_tensors(codec, measured.kept | {"sizes": sizes}, about)


def _codec(released: Released, schema: Schema) -> Codec | Levels:
    """The levels of all columns, bought or as declared."""
    return Levels.from_tensors(schema, released.levels) if released.levels else Codec(schema)


def _tables(released: Released, schema: Schema) -> Tables:
    """What was released, as estimates."""
    codec, noise = _codec(released, schema), torch.where(released.measured, released.noise, torch.inf)
    return read_tables(released.gram, codec.sizes, noise=noise, people=released.people, ties=rule_ties(codec))


def _released(store: Checkpoint, name: str, told: Mapping[str, Any]) -> Released | None:
    """What was saved under that name, if it was measured as these settings say."""
    saved = store.measured(name, told)
    return None if saved is None else Released(**saved)


def _noise(measured: Released) -> dict[str, float]:
    """σ of each release that took place, by what it was of."""
    names = (["fine tables"] if measured.levels else []) + ["pairs", "pairs once more"]
    return dict(zip(names, measured.sigmas[: measured.made], strict=False))


def _ended(measured: Released) -> str:
    if measured.ended:
        return f"after the {_nth(measured.made, len(measured.sigmas))}: {measured.ended}"
    return ("after the one release", "after both releases", "after all three releases")[measured.made - 1]


def _nth(number: int, count: int) -> str:
    return f"{('first', 'second', 'third')[number - 1]} of {('one', 'two', 'three')[count - 1]} releases"


def _missing(measured: Released) -> tuple[str, ...]:
    """What a privacy statement says of a further release that did not take place."""
    if not measured.ended:
        return ()
    paid = "a party that had answered by then has paid for it; for a party that is gone, the price here counts it"
    return (
        f"the {_nth(measured.made + 1, len(measured.sigmas))}, which did not take place ({measured.ended})"
        + (f": {paid}" if measured.lost else ": nobody was asked for it"),
    )


def _people(measured: Released, columns: int) -> int:
    """Their number: disclosed by alignment, or what the noisy one-way tables say."""
    if measured.people is not None:
        return measured.people
    return max(1, round(float(measured.gram.diagonal().sum()) / columns))


def _statement(
    measured: Released, spends: Mapping[str, Mapping[str, Spend]], most_holders: int
) -> PrivacyStatement:
    """What the run cost, by the parties' ledgers; of a party that went away, the price of all it was asked for."""
    split = measured.partition != "rows"
    paid = (*measured.releases, *measured.lost)
    release = spend_of(((sigma, int(cells)) for sigma, cells in paid), most_holders)
    return PrivacyStatement(
        parties=stated_prices(measured.begun, spends, release),
        same_people=split,
        most_holders=most_holders,
        one_release=split or most_holders > 1,
        outside={"rows": OUTSIDE_ROWS, "columns": OUTSIDE, "grid": OUTSIDE_GRID}[measured.partition]
        + _missing(measured),
        unguarded=DEALT if split else (),
    )


PROTOCOL = Protocol(
    name="gram",
    paper=__doc__,
    config=Config,
    party=GramParty,
    train=train,
    same_people=None,
    agreed=_agreed,
    forecast=forecast,
    audit="gram",
)
