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
(`privacy/secure/sums.py`); or both (a grid): holders of the same columns have people of their own, each of whom is
with one holder of all other columns, too, and what they count is added up.

Guarantee: over rows (ε, δ)-DP for a person with all rows in both tables at a holder (or at up to `most_holders` of
them), against the server, an outsider, and up to `colluding` other holders, who may pool what they know with the
server. Over columns for a person with all rows at all parties, in one price, against the server, any party, and an
outsider; the server deals the masks, so it must not pool what it knows with a holder. Over a grid the same against up
to `colluding` of the holders.
Edges: levels and bounds are those of the schema; how many events count (`most_events`) is public.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from understudy.answers.rules import with_rules
from understudy.generators.parts import GeneratorParts
from understudy.models.device import pick_device
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.loop import Outcome, two_steps
from understudy.protocols.joint.found import ended, statement
from understudy.protocols.joint.party import AlignedJointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.protocol import Protocol, agree_on
from understudy.protocols.visits.fit import FEW, check_fit, fit_tables
from understudy.protocols.visits.forecast import forecast
from understudy.protocols.visits.settings import Config
from understudy.protocols.visits.study import VisitStudy


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
    study = VisitStudy(config, {name: schemas[name] for name in parties.names})
    schema = with_rules(study.schema, config.rules)
    check_fit(config, schema)
    pick_device(config.device)
    found = measure(
        study,
        parties,
        at_least=config.at_least,
        chunk=config.chunk,
        checkpoint=checkpoint,
        resume=resume,
    )
    privacy = statement(found, parties, at_least=config.at_least)
    look = two_steps(watch, privacy.per_party)
    look(1)
    tables = found["tables"]
    network = fit_tables(config, schema, tables, lambda: look(1))
    look(2)
    people = max(1, round(tables.people)) if found.record.people is None else found.record.people
    noise = max(tables.noise.values())
    card: dict[str, Any] = {
        "protocol": "visits",
        "config": asdict(config),
        "partition": study.grid.partition,
        "rounds": 1,
        "ended": ended(found),
        "left_out": [name for name in parties.names if name not in found.record.begun],
        "people": people,
        "events": {part.title: {"most": part.most_events, "cut": part.cut} for part in schema.parts},
        "tables": len(tables.layout.blocks),
        "noise": {"people in a cell": noise},
        "privacy": privacy.to_dict(),
    }
    if (split := study.split) is not None:
        counted = [name for part in schema.parts for name in part.person_schema.names]
        card["owners"] = dict(zip(counted, map(split.first, split.owners), strict=True))
        for part, name in zip(schema.parts, map(split.first, split.events), strict=True):
            card["owners"] |= dict.fromkeys((*part.events.names, *part.event_schema.names), name)
    if people <= FEW * noise:
        card["warning"] = (
            f"{people:,} people, and noise of {noise:.4g} on every count: what is drawn here tells little of them. "
            "More people, or a larger budget, would."
        )
    return Outcome(GeneratorParts(network.cpu().eval(), schema, card), privacy, people)


PROTOCOL = Protocol(
    name="visits",
    paper=__doc__,
    config=Config,
    party=partial(AlignedJointParty, VisitStudy),
    parties=(AlignedJointParty,),
    train=train,
    same_people=None,  # rows of different people, columns of the same ones, or both
    kinds=("visits", "table"),
    agreed=agree_on(VisitStudy.settled),
    forecast=forecast,
    study=VisitStudy,
    audit="joint-alone",
)
