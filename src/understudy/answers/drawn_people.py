"""People who were drawn with their events, held against rules and a condition, by their values.

Guarantee: what the rules and the condition mean for people with events stands here (and in words in `cases`): it does
not depend on how anybody was drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.answers.cases import Split
from understudy.answers.question import left_of
from understudy.data.conditions import Condition, Order, tests
from understudy.data.dtypes import typed
from understudy.data.rules import met
from understudy.data.values import numbers_of
from understudy.data.visits import VisitSchema
from understudy.data.visits.codes import Places


@dataclass(frozen=True, eq=False)
class Drawn:
    """People in columns of `person_schema`, their events in those of `event_schema` and the time."""

    people: pd.DataFrame
    events: pd.DataFrame
    starts: Places

    def take(self, who: Places) -> "Drawn":
        """These people, in this order, with all their events."""
        numbers = np.diff(self.starts)[who]
        starts = starts_of(numbers)
        at = np.arange(starts[-1]) + np.repeat(self.starts[who] - starts[:-1], numbers)
        own, theirs = (frame.iloc[rows] for frame, rows in ((self.people, who), (self.events, at)))
        return Drawn(own.reset_index(drop=True), theirs.reset_index(drop=True), starts)

    def with_(self, other: "Drawn") -> "Drawn":
        both = [
            pd.concat(pair, ignore_index=True)
            for pair in ((self.people, other.people), (self.events, other.events))
        ]
        return Drawn(both[0], both[1], np.concatenate([self.starts, self.starts[-1] + other.starts[1:]]))


def starts_of(numbers: Places) -> Places:
    """Where each person's events begin, and where all end."""
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)


def as_drawn(frames: Mapping[str, pd.DataFrame], schema: VisitSchema) -> Drawn:
    """A holder's own tables, with their keys, as people who could have been drawn, whatever was cut of their events."""
    key, events = schema.person, frames["events"]
    people = frames["people"] if "people" in frames else events[[key]].drop_duplicates()
    people = people.reset_index(drop=True)
    owner = pd.Index(people[key].astype(str)).get_indexer(pd.Index(events[key].astype(str)))
    clock = schema.clock
    times = np.zeros(len(events)) if clock is None else numbers_of(clock, events[clock.name])
    order = np.lexsort((times, owner))
    events, owner, times = events.iloc[order].reset_index(drop=True), owner[order], times[order]
    numbers = np.bincount(owner, minlength=len(people))
    starts, some = starts_of(numbers), numbers > 0
    if clock is not None:
        first, gap = schema.person_schema.columns[-2], schema.event_schema.columns[-1]
        begin = np.zeros(len(people), dtype=np.int64)
        begin[some] = times[starts[:-1][some]]
        fresh = np.zeros(len(events), dtype=np.bool_)
        fresh[starts[:-1][some]] = True
        steps = np.where(fresh, 0, np.diff(times, prepend=0)).astype(np.int64)
        people = people.assign(**{first.name: typed(first, begin, ~some)})
        events = events.assign(**{gap.name: typed(gap, steps, fresh)})
    number = schema.person_schema.columns[-1].name
    return Drawn(people.assign(**{number: np.minimum(numbers, schema.most_events)}), events, starts)


def broken(drawn: Drawn, schema: VisitSchema) -> list[int]:
    """How many people break each rule, by themselves or by an event. It comes from rows: for their holder alone."""
    return [int((~meets(drawn, Split(replace(schema, rules=(rule,)), None))).sum()) for rule in schema.rules]


def meets(drawn: Drawn, split: Split) -> NDArray[np.bool_]:
    """Which people meet the condition, and keep all rules with all their events."""
    schema = split.schema
    owner = np.repeat(np.arange(len(drawn.people)), np.diff(drawn.starts))
    rows = pd.concat(
        [drawn.people.iloc[owner].reset_index(drop=True), _but(drawn.events, schema.person)], axis=1
    )
    own, every = set(schema.person_schema.names), {c.name: c for c in schema.row_schema.columns}
    good = np.ones(len(drawn.people), dtype=np.bool_)
    for rule in schema.rules:
        if own.issuperset(rule.columns):
            good &= rule.kept(drawn.people, every)
        else:
            good[owner[~rule.kept(rows, every)]] = False
    if split.condition is not None:
        good &= _meet(split.condition, drawn, split, rows, owner)
    return good


def _but(events: pd.DataFrame, person: str) -> pd.DataFrame:
    return events.drop(columns=person, errors="ignore")


def _meet(
    condition: Condition, drawn: Drawn, split: Split, rows: pd.DataFrame, owner: Places
) -> NDArray[np.bool_]:
    """Which people meet the condition: by an event, or whatever an event would be like."""
    every = {column.name: column for column in split.schema.row_schema.columns}
    own = set(split.schema.person_schema.names)
    said = [
        test for test in dict.fromkeys(tests(condition)) if not isinstance(test, Order) and test.column in own
    ]
    found = np.zeros(len(drawn.people), dtype=np.bool_)
    found[owner[met(condition, rows, every)]] = True
    truth = np.array([met(test, drawn.people, every) for test in said], dtype=bool).reshape(
        len(said), len(found)
    )
    ways, way = np.unique(truth, axis=1, return_inverse=True)
    for place, so in enumerate(ways.T.tolist()):
        left = left_of(condition, dict(zip(said, so, strict=True)))
        if split.whatever(left):
            found[way.ravel() == place] = True
    return found
