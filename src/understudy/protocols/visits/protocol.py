"""Visits: holders of people and their events release tables of both, once, privately, and chains are fitted to them.

What Gram is for people with one row, this is for people with many: visits, purchases, readings. Counted are one- and
two-way tables of people's columns, the number of events among them; of the columns of events, and of people's and
events' columns together; and of consecutive events. In each a person with all events weighs 1
(`data/visits/counts.py`), so that what a person did often counts no more than what another did once, and noise does not
grow with `most_events`. Everything after the one release is free (`models/visits`).

Sources: noise by Canonne, Kamath, Steinke 2020, priced as in `privacy/secure/moments.py`; sums by Bonawitz et al. 2017
(`privacy/secure/sums.py`). What is released is our own.

Holders have people of their own under one schema (over rows); or one holder or more have events of the same people, and
others tables of them (over columns), and tables across holders are products of their people's vectors, by Beaver 1991
(`privacy/secure/product.py`); or both (a grid): holders of the same columns have people of their own, each of whom is
with one holder of all other columns, too, and what they count is added up.

Guarantee: over rows (ε, δ)-DP for a person with all rows in both tables at a holder (or at up to `most_holders` of
them), against the server, an outsider, and up to `colluding` other holders, who may pool what they know with the
server. Over columns for a person with all rows at all parties, in one price, against the server, any party, and an
outsider; the server deals the masks, so it must not pool what it knows with a holder. Over a grid the same against up
to `colluding` of the holders.
Edges: levels and bounds are those of the schema; how many events count (`most_events`) is public.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.column import Column
from understudy.data.encoding.codec import Codec
from understudy.data.rules import about, read_rules
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitLayout, VisitSchema
from understudy.data.visits.frames import number_bounds
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import a_seed, positive, whole
from understudy.ground.errors import ConfigError
from understudy.models.device import pick_device
from understudy.models.tables.given_rules import Tie
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.fit import fit_together, fit_visits
from understudy.models.visits.tables import VisitTies
from understudy.models.visits.together import ChainsTogether
from understudy.privacy.accounts.accounting import Spend, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.statement import OUTSIDE, PrivacyStatement
from understudy.privacy.secure.moments import moments_event, needed_multipliers
from understudy.protocols.core import Parties, Watcher, settled
from understudy.protocols.core.agreeing import stated_prices
from understudy.protocols.core.checkpoint import Checkpoint
from understudy.protocols.core.forecast import Error, Forecast, Stage
from understudy.protocols.core.loop import two_steps
from understudy.protocols.core.outcome import Outcome
from understudy.protocols.gram.party import DEALT
from understudy.protocols.gram.protocol import OUTSIDE_GRID
from understudy.protocols.protocol import Protocol, agree_on
from understudy.protocols.visits.messages import Begin
from understudy.protocols.visits.party import VisitsParty
from understudy.protocols.visits.releases import Released, release
from understudy.protocols.visits.terms import SETTLED, Holders
from understudy.protocols.visits.wide import wide_columns

OUTSIDE_ROWS = (
    "the schema: columns, levels, bounds, and how many events of a person count at most, are public",
    "the size and the timing of messages; the number of people is counted within ε",
)
OUTSIDE_COLUMNS = (*OUTSIDE[:2], OUTSIDE_ROWS[0], OUTSIDE[3])
OUTSIDE_OF = {
    "rows": OUTSIDE_ROWS,
    "columns": OUTSIDE_COLUMNS,
    "grid": (*OUTSIDE_COLUMNS, OUTSIDE_GRID[-1]),
}
SAVED = "released"
FITTED = ("kinds", "chains", "states", "steps", "rate", "seed")
COUNTED = {
    "person": "a count of people",
    "event": "a count of people by an average event",
    "across": "a count of people by themselves and an average event",
    "next": "a count of people by two events that follow one another",
    "later": "a count of people by two events with one between",
    "between": "a count of people by average events of two holders",
}
_FEW = 4  # so many deviations of its noise: people who are no more than that cannot be told from it


@dataclass(frozen=True, kw_only=True)
class Config:
    """`kinds`: how many kinds of people the fit may tell apart; `chains`: how many chains of events these share;
    `states`: kinds of events of each chain.

    `steps` and `rate` are the fit's.
    `rules`: what every event keeps with its person, besides the rules of the schemas (`data/rules.py`), where columns
    are split. Nothing is measured for it: the fit knows what they forbid, and what is drawn keeps them.
    `most_holders`: how many holders may hold the same person; the noise hides such a person, too.
    ε holds when up to `colluding` of the holders pool what they know. The run continues without parties that go away
    before the release, over rows, as long as `at_least` are left (None: all must stay). `chunk`: people per message,
    where columns are split.
    """

    kinds: int = 256
    chains: int = 256
    states: int = 6
    steps: int = 1200
    rate: float = 0.2
    rules: tuple[dict[str, Any], ...] = ()
    colluding: int = 1
    at_least: int | None = None
    most_holders: int = 1
    chunk: int = 1 << 15
    private: bool = True
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        whole(kinds=self.kinds, chains=self.chains, states=self.states, steps=self.steps)
        whole(colluding=self.colluding, most_holders=self.most_holders, chunk=self.chunk)
        positive(rate=self.rate)
        object.__setattr__(self, "rules", tuple(rule.to_dict() for rule in read_rules(self.rules)))
        a_seed(seed=self.seed)
        if self.at_least is not None:
            whole(at_least=self.at_least)
        if type(self.private) is not bool:
            raise ConfigError(f"private is true or false, not {self.private!r}.")


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Release the tables, and fit a mixture of chains to them.

    With a `checkpoint` folder the release is saved before anything is fitted, and `resume=True` continues from there:
    nothing is measured, or charged, twice.
    """
    schemas = {name: schemas[name] for name in parties.names}
    holders, device = Holders.of(schemas), pick_device(config.device)
    schema = with_rules(holders.schema, config.rules)
    _check_fit(config, schema)
    told = json.loads(json.dumps({key: getattr(config, key) for key in SETTLED}))
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    saved = store.measured(SAVED, told) if store is not None and resume else None
    if saved is not None:
        done = Released(**saved)
    else:
        begin = Begin(
            config=asdict(config), schemas={name: schema.to_dict() for name, schema in schemas.items()}
        )
        done = release(
            parties,
            holders,
            begin,
            chunk=config.chunk,
            at_least=config.at_least,
            secret=None if store is None else store.secret(resume=resume),
        )
        if store is not None:
            store.note(SAVED, dict(vars(done)) | {"plan": told})
    spends = settled(parties, list(done.begun), at_least=config.at_least)
    privacy = _statement(done, spends, holders, config.most_holders)
    look = two_steps(watch, privacy.per_party)
    look(1)
    tables = done.tables(holders)
    settings: dict[str, Any] = {key: getattr(config, key) for key in FITTED}
    settings |= {"device": device, "watch": lambda step, residual: look(1)}
    network: MixtureOfChains | ChainsTogether
    bounds, ties = zip(
        *((number_bounds(part), fitted_ties(schema, part)) for part in schema.parts), strict=True
    )
    if isinstance(schema, SeveralVisits):
        network = fit_together(tables, bounds, ties=ties, **settings)
    else:
        network = fit_visits(tables, bounds[0], ties=ties[0], **settings)
    look(2)
    people = max(1, round(tables.people)) if done.people is None else done.people
    noise = max(tables.noise.values())
    card: dict[str, Any] = {
        "protocol": "visits",
        "config": asdict(config),
        "partition": holders.partition,
        "rounds": 1,
        "ended": "after the one release",
        "left_out": [name for name in parties.names if name not in done.begun],
        "people": people,
        "events": {part.title: {"most": part.most_events, "cut": part.cut} for part in schema.parts},
        "tables": len(tables.layout.blocks),
        "noise": {"people in a cell": noise},
        "privacy": privacy.to_dict(),
    }
    if holders.split is not None:
        counted = [name for part in schema.parts for name in part.person_schema.names]
        card["owners"] = dict(zip(counted, map(holders.split.first, holders.split.owners), strict=True))
        for part, name in zip(schema.parts, map(holders.split.first, holders.split.events), strict=True):
            card["owners"] |= dict.fromkeys((*part.events.names, *part.event_schema.names), name)
    if people <= _FEW * noise:
        card["warning"] = (
            f"{people:,} people, and noise of {noise:.4g} on every count: what is drawn here tells little of them. "
            "More people, or a larger budget, would."
        )
    return Outcome(GeneratorParts(network.cpu().eval(), schema, card), privacy, people)


def forecast(
    config: Config, schemas: Mapping[str, Any], budgets: Mapping[str, Budget], people: int | None = None
) -> Forecast:
    """What a run will release, and how uncertain that is. Reads no row."""
    holders = Holders.of(schemas)
    schema, split = with_rules(holders.schema, config.rules), holders.split
    holders.check(asdict(config))
    _check_fit(config, schema)
    needed = [needed_multipliers(budget, (1.0,))[0] for budget in budgets.values()]
    multiplier = max(needed) if config.private else 0.0
    terms = holders.terms(multiplier, config.most_holders)
    layout, noises = holders.layout, dict[str, list[float]]()
    deviations = zip(layout.blocks, holders.noise(terms, config.colluding, len(schemas)), strict=True)
    cells = {block: own / layout.unit_of(block[0], terms.unit) for block, own in deviations}
    for block, own in cells.items():
        noises.setdefault(block[0], []).append(own)
    noise, blocks = max(map(max, noises.values())), len(layout.blocks)
    price = {name: epsilon({moments_event(multiplier): 1}, budget.delta) for name, budget in budgets.items()}
    warnings: tuple[str, ...] = ()
    if people is not None and people <= _FEW * noise:
        warnings = (f"{people:,} people are no more than noise of {noise:.4g} on every count hides.",)
    elif people is not None:
        warnings = tuple(wide_columns(schema, layout, cells, people))
    return Forecast(
        protocol="visits",
        cut=holders.partition,
        budgets=budgets,
        price=price,
        person="A person, with all rows in both tables, pays this once, for all holders together."
        if config.most_holders > 1 or split is not None
        else "A person, with all rows in both tables, pays at the holder who has them.",
        people=people,
        facts=(
            f"{blocks:,} tables of people's columns, of events' and of both, in each of which a person weighs 1",
            *(
                f"at most {part.most_events:,} {part.title} of a person count"
                + (", the first" if part.cut == "first" else ", drawn by chance")
                for part in schema.parts
            ),
        ),
        stages=(
            Stage(
                what="all tables",
                share=1.0,
                moved=blocks,
                noise={"least": min(map(min, noises.values())), "largest": noise},
            ),
        ),
        errors=tuple(
            Error(what=counted(kind), least=min(own), largest=max(own)) for kind, own in noises.items()
        ),
        warnings=warnings,
    )


def counted(kind: str) -> str:
    """What a cell of a table of this kind counts, in words."""
    first, *titles = kind.split()
    return COUNTED[first] + (f" ({' and '.join(titles)})" if titles else "")


def fitted_ties(schema: VisitSchema | SeveralVisits, part: VisitSchema) -> VisitTies:
    """What rules leave of people's columns and those of one kind of events; those on the time itself are left to
    drawing.
    """

    def left(columns: Sequence[Column]) -> tuple[Tie, ...]:
        rules = about(schema.rules, [column.name for column in columns])
        return tuple(rule_ties(Codec(Schema(columns=tuple(columns), rules=rules)))) if rules else ()

    people, events = schema.person_schema.columns, part.event_schema.columns
    declared = () if part.people is None else part.people.columns
    return VisitTies(both=left((*people, *events)), people=left(declared), events=left(events))


def _check_fit(config: Config, schema: VisitSchema | SeveralVisits) -> None:
    """Refuse, before anything is paid for, what the fit would refuse: too few states, or too much memory."""
    for part in schema.parts:
        layout = VisitLayout.of(part)
        with torch.device("meta"):
            MixtureOfChains(
                layout.people,
                layout.events,
                number_bounds(part),
                ordered=layout.ordered,
                kinds=config.kinds,
                chains=config.chains,
                states=config.states,
            )


def _statement(
    done: Released, spends: Mapping[str, Mapping[str, Spend]], holders: Holders, most_holders: int
) -> PrivacyStatement:
    """What the run cost, by the parties' ledgers; of a party that went away after the release, its price."""
    split = holders.split is not None
    return PrivacyStatement(
        parties=stated_prices(done.begun, spends, Counter([moments_event(done.multiplier)])),
        same_people=split,
        most_holders=most_holders,
        one_release=split or most_holders > 1,
        outside=OUTSIDE_OF[holders.partition],
        unguarded=DEALT if split else (),
    )


PROTOCOL = Protocol(
    name="visits",
    paper=__doc__,
    config=Config,
    party=VisitsParty,
    train=train,
    same_people=None,
    kinds=("visits", "table"),
    agreed=agree_on(SETTLED),
    forecast=forecast,
    audit="visits",
)
