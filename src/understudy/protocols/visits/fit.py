"""What is fitted to released tables of people and events: a mixture of chains, with what public rules leave of it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from understudy.answers.rule_boxes import rule_ties
from understudy.data.column import Column
from understudy.data.encoding.codec import Codec
from understudy.data.rules import about
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitLayout, VisitSchema
from understudy.data.visits.reading import number_bounds
from understudy.models.device import pick_device
from understudy.models.tables.given_rules import Tie
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.fit import VisitTables, VisitTies, fit_visits
from understudy.models.visits.together import ChainsTogether
from understudy.protocols.visits.settings import Config

FEW = 4  # so many deviations of its noise: people who are no more than that cannot be told from it
FITTED = ("kinds", "chains", "states", "steps", "rate", "seed")


def fit_tables(
    config: Config, schema: VisitSchema | SeveralVisits, tables: VisitTables, look: Callable[[], None]
) -> MixtureOfChains | ChainsTogether:
    """Of one kind of events a mixture of chains, of several such mixtures that share their people."""
    settings: dict[str, Any] = {key: getattr(config, key) for key in FITTED}
    settings |= {"device": pick_device(config.device), "watch": lambda step, residual: look()}
    bounds = tuple(map(number_bounds, schema.parts))
    ties = tuple(fitted_ties(schema, part) for part in schema.parts)
    return fit_visits(tables, bounds, ties=ties, **settings)


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


def check_fit(config: Config, schema: VisitSchema | SeveralVisits) -> None:
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
