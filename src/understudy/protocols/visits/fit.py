"""What is fitted to released tables of people and events: a mixture of chains, with
what public rules leave of it; and what a forecast says of them. `study` is the
`VisitStudy` of the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.column import Column
from understudy.data.encoding.codec import Codec
from understudy.data.rules import about
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitLayout, VisitSchema
from understudy.data.visits.reading import number_bounds
from understudy.generators.parts import GeneratorParts
from understudy.models.network import pick_device
from understudy.models.tables.given_rules import Tie
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.fit import VisitTables, VisitTies, fit_visits, seconds_of
from understudy.models.visits.together import ChainsTogether
from understudy.protocols.core.forecast import (
    BASE,
    DRAW,
    READ,
    TREE,
    Error,
    Forecast,
    Stage,
    alignment_seconds,
)
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.visits.fine import fine_tables, nodes_moved
from understudy.protocols.visits.wide import wide_columns

Events = VisitSchema | SeveralVisits
Mixtures = MixtureOfChains | ChainsTogether
# so many deviations of its noise: people who are no more than that cannot be told from
# it
FEW = 4
_EVENTS = 8  # of a person, about: nobody knows yet
# bytes of memory for a cell of a joint matrix that is fitted, and for a value of an
# event
_CELL = 1000
_EVENT = 40
FITTED = ("kinds", "chains", "states", "steps", "rate", "seed")


def fit_tables(
    config: Any,
    schema: Events,
    tables: VisitTables,
    look: Callable[[], None],
) -> Mixtures:
    """Of one kind of events a mixture of chains, of several such mixtures that share
    their people.
    """
    settings: dict[str, Any] = {key: getattr(config, key) for key in FITTED}
    settings |= {
        "device": pick_device(config.device),
        "watch": lambda step, residual: look(),
    }
    ties = tuple(fitted_ties(schema, part) for part in schema.parts)
    return fit_visits(
        tables,
        [*map(number_bounds, schema.parts)],
        ties=ties,
        **settings,
    )


def fitted_ties(schema: Events, part: VisitSchema) -> VisitTies:
    """What rules leave of people's columns and those of one kind of events; those on
    the time itself are left to drawing.
    """

    def ties_among(columns: Sequence[Column]) -> tuple[Tie, ...]:
        rules = about(schema.rules, [column.name for column in columns])
        return (
            tuple(rule_ties(Codec(Schema(columns=tuple(columns), rules=rules))))
            if rules
            else ()
        )

    people = schema.person_schema.columns
    events = part.event_schema.columns
    declared = () if part.people is None else part.people.columns
    return VisitTies(
        both=ties_among((*people, *events)),
        people=ties_among(declared),
        events=ties_among(events),
    )


def check_fit(study: Any) -> Events:
    """The schema with all rules, unless the fit would refuse it: too few states, or too
    much memory.
    """
    config = study.config
    schema: Events = with_rules(study.schema, config.rules)
    for part in schema.parts:
        layout = VisitLayout.from_schema(part)
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
    pick_device(config.device)
    return schema


def fitted(
    study: Any,
    measurements: Measurements,
    look: Callable[[], None],
) -> tuple[GeneratorParts, int]:
    """The mixture, and how many people there are."""
    tables = measurements["tables"]
    stage = measurements.stage("tables")
    schema = with_rules(stage.split.schema, study.config.rules)  # type: ignore[attr-defined]
    network = fit_tables(study.config, schema, tables, look).cpu().eval()
    if study.bought:
        network, schema = drawn_finely(study, measurements, network, schema)
    people = (
        max(1, round(tables.people))
        if measurements.record.people is None
        else measurements.record.people
    )
    noise = max(tables.noise.values())
    card: dict[str, Any] = {
        "events": {
            part.title: {"most": part.most_events, "cut": part.cut}
            for part in schema.parts
        },
        "tables": len(tables.layout.blocks),
        "noise": {"people in a cell": noise},
    }
    split = study.split
    if len(split.grid.groups) > 1:
        counted = [name for part in schema.parts for name in part.person_schema.names]
        card["owners"] = dict(zip(counted, map(split.first, split.owners), strict=True))
        for part, name in zip(
            schema.parts,
            map(split.first, split.events),
            strict=True,
        ):
            card["owners"] |= dict.fromkeys(
                (*part.events.names, *part.event_schema.names),
                name,
            )
    if people <= FEW * noise:
        warning = (
            f"{people:,} people, and noise of {noise:.4g} on every count: what is "
            "drawn here tells little of them."
        )
        card["warning"] = f"{warning} More people, or a larger budget, would."
    return GeneratorParts(network, schema, card), people


def drawn_finely(
    study: Any,
    measurements: Measurements,
    network: Mixtures,
    schema: Events,
) -> tuple[Mixtures, Events]:
    """The same where levels that were bought are parted into bins, as the fine tables
    say.
    """
    tables = fine_tables(measurements)
    bought = measurements.stage("tables").bought  # type: ignore[attr-defined]
    finer = {name: one.finer(tables[name]) for name, one in bought.items()}

    def parts_of(column: Column) -> tuple[torch.Tensor, torch.Tensor]:
        one = bought.get(column.name)
        if one is None:
            return torch.arange(column.size), torch.zeros(column.size)
        return one.parted(finer[column.name], tables[column.name])  # type: ignore[no-any-return]

    within = measurements.stage("fine").within  # type: ignore[attr-defined]
    sampled = replace(within.on_bins(finer).schema, rules=schema.rules)
    members = [
        member.parted(
            [*map(parts_of, part.person_schema.columns)],
            [*map(parts_of, part.event_schema.columns)],
            number_bounds(own),
        )
        for member, part, own in zip(
            network.mixtures,
            schema.parts,
            sampled.parts,
            strict=True,
        )
    ]
    return members[0] if len(members) == 1 else ChainsTogether(members), sampled


COUNTED = {
    "person": "a count of people",
    "event": "a count of people by an average event",
    "across": "a count of people by themselves and an average event",
    "next": "a count of people by two events that follow one another",
    "later": "a count of people by two events with one between",
    "far": "a count of people by two events with three between",
    "between": "a count of people by average events of two holders",
}


def foreseen(
    study: Any,
    ahead: Measurements,
    forecast: Forecast,
) -> dict[str, Any]:
    """What a forecast says of the tables, and how uncertain they will be."""
    schema = check_fit(study)
    people = forecast.people
    noises = dict[str, list[float]]()
    cells = study.cell_noise(ahead, study.widest)
    for (kind, *_), deviations in cells.items():
        first, *titles = kind.split()
        words = COUNTED[first] + (f" ({' and '.join(titles)})" if titles else "")
        noises.setdefault(words, []).append(deviations)
    smallest = min(cells.values())
    noise = max(cells.values())
    warnings: list[str] = []
    if people is not None:
        hidden = (
            f"{people:,} people are no more than noise of {noise:.4g} on every count "
            "hides."
        )
        warnings += (
            [hidden]
            if people <= FEW * noise
            else wide_columns(schema, study.layout, cells, people)
        )
    tables = len(study.layout.blocks)
    shares = study.pricing.shares
    stages = [
        Stage(
            what="all tables",
            share=shares[-1],
            moved=tables,
            noise={"least": smallest, "largest": noise},
        )
    ]
    facts = [
        f"{tables:,} tables of people's columns, of events' and of both, in each of "
        "which a person weighs 1"
    ]
    for part in schema.parts:
        which = "the first" if part.cut == "first" else "drawn by chance"
        facts.append(
            f"at most {part.most_events:,} {part.title} of a person count, {which}"
        )
    single = [
        ("reach", "public cells", study.public),
        ("fine", "fine cells", study.bought),
    ]
    for number, (name, what, columns) in enumerate(one for one in single if one[-1]):
        facts.append(
            f"{'then' if number else 'first'} {study.releases[name]}: "
            f"{', '.join(columns)}"
        )
        deviations = study.cells(ahead.noise(name), columns, study.widest)
        of_a_count = {
            "a count": max(ahead.deviations_of(name, deviations.blocks).values())
            / deviations.unit
        }
        stages.insert(
            number,
            Stage(
                what=what,
                share=shares[number],
                moved=nodes_moved(columns),
                noise=of_a_count,
            ),
        )
    columns = [
        *schema.person_schema.columns,
        *(one for part in schema.parts for one in part.event_schema.columns),
    ]
    levels = {
        name: study.most
        if people is None
        else one.level_count(people, noise, study.most)
        for name, one in study.bought.items()
    }
    width = sum(levels.get(one.name, one.size) for one in columns)
    longest = sum(part.most_events for part in schema.parts)
    values = (people or 0) * min(longest, _EVENTS) * len(columns)
    counting = (
        TREE * len(study.bought)
        + study.layout.size * len(forecast.budgets) * DRAW
        + READ * values
    )
    takes = {"counting": counting}
    if forecast.partition != "horizontal" and people:
        takes["alignment"] = alignment_seconds(people, len(forecast.budgets))
    if study.encrypted and people:
        from understudy.protocols.joint.encrypted import seconds_each

        product = study.tables(ahead.noise("tables"), study.widest, {}).product
        bits = study.ring(people, ahead.record.noise).bits
        takes["encryption"] = people * seconds_each(product, bits)
    takes["the fit"] = seconds_of(
        width,
        longest,
        study.config.steps,
        bought=bool(study.bought),
    )
    return {
        "facts": tuple(facts),
        "takes": takes,
        "memory": BASE + _CELL * width**2 + _EVENT * values,
        "stages": tuple(stages),
        "errors": tuple(
            Error(what=what, least=min(deviations), largest=max(deviations))
            for what, deviations in noises.items()
        ),
        "warnings": tuple(warnings),
    }
