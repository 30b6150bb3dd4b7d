"""People who were drawn with their events, held against rules and a condition, by their
values.

Guarantee: what the rules and the condition mean for people with events stands here (and
in words in `cases`): it does not depend on how anybody was drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.answers.cases import Split, whatever
from understudy.answers.question import left_of
from understudy.data.column import Column
from understudy.data.conditions import Condition, Order, Test, tests
from understudy.data.encoding.values import Places, numbers_of, starts_of, taken, typed
from understudy.data.rules import about, met
from understudy.data.visits import VisitSchema
from understudy.data.visits.reading import first_and_gaps


@dataclass(frozen=True, eq=False)
class Drawn:
    """People in columns of `person_schema`, and their events of each kind, in those of
    `event_schema` and the time.
    """

    people: pd.DataFrame
    events: tuple[pd.DataFrame, ...]
    starts: tuple[Places, ...]

    def take(self, who: Places) -> "Drawn":
        events = []
        begins = []
        for frame, own in zip(self.events, self.starts, strict=True):
            starts, at = taken(own, who)
            events.append(frame.iloc[at].reset_index(drop=True))
            begins.append(starts)
        return Drawn(
            self.people.iloc[who].reset_index(drop=True), tuple(events), tuple(begins)
        )

    def with_(self, other: "Drawn") -> "Drawn":
        people, *events = [
            pd.concat(pair, ignore_index=True)
            for pair in zip(
                (self.people, *self.events), (other.people, *other.events), strict=True
            )
        ]
        starts = (
            np.concatenate([a, a[-1] + b[1:]])
            for a, b in zip(self.starts, other.starts, strict=True)
        )
        return Drawn(people, tuple(events), tuple(starts))

    def owners(self, kind: int) -> Places:
        return np.repeat(np.arange(len(self.people)), np.diff(self.starts[kind]))


def as_drawn(frames: Mapping[str, pd.DataFrame], schema: VisitSchema) -> Drawn:
    """A holder's own tables, with their keys, as people who could have been drawn,
    whatever was cut of their events.
    """
    key = schema.person
    events = frames["events"]
    people = frames["people"] if "people" in frames else events[[key]].drop_duplicates()
    people = people.reset_index(drop=True)
    owner = pd.Index(people[key].astype(str)).get_indexer(
        pd.Index(events[key].astype(str))
    )
    clock = schema.clock
    times = (
        np.zeros(len(events))
        if clock is None
        else numbers_of(clock, events[clock.name])
    )
    order = np.lexsort((times, owner))
    events = events.iloc[order].reset_index(drop=True)
    owner = owner[order]
    times = times[order]
    numbers = np.bincount(owner, minlength=len(people))
    starts = starts_of(numbers)
    if clock is not None:
        first = schema.person_schema.columns[-2]
        gap = schema.event_schema.columns[-1]
        begin, steps, fresh = first_and_gaps(times.astype(np.int64), starts)
        people = people.assign(**{first.name: typed(first, begin, numbers == 0)})
        events = events.assign(**{gap.name: typed(gap, steps, fresh)})
    counted = people.assign(
        **{
            schema.person_schema.columns[-1].name: np.minimum(
                numbers, schema.most_events
            )
        }
    )
    return Drawn(counted, (events,), (starts,))


def broken(drawn: Drawn, schema: VisitSchema) -> list[int]:
    """How many people break each rule, by themselves or by an event. It comes from
    rows: for their holder alone.
    """
    return [
        int((~meets(drawn, Split(replace(schema, rules=(rule,)), None))).sum())
        for rule in schema.rules
    ]


def meets(drawn: Drawn, split: Split) -> NDArray[np.bool_]:
    """Which people meet the condition, and keep all rules with all their events."""
    schema = split.schema
    every = {column.name: column for column in schema.row_schema.columns}
    good = np.ones(len(drawn.people), dtype=np.bool_)
    alone = about(schema.rules, schema.person_schema.names)
    for rule in alone:
        good &= rule.rows_that_keep(drawn.people, every)
    for kind, part in enumerate(schema.parts):
        names = [column.name for column in part.event_columns]
        own = [
            rule
            for rule in schema.rules
            if rule not in alone and set(rule.columns) & set(names)
        ]
        if own:
            owner = drawn.owners(kind)
            rows = pd.concat(
                [
                    drawn.people.iloc[owner].reset_index(drop=True),
                    drawn.events[kind][names],
                ],
                axis=1,
            )
            for rule in own:
                good[owner[~rule.rows_that_keep(rows, every)]] = False
    if split.condition is not None:
        good &= _meet(split.condition, drawn, split)
    return good


def _meet(condition: Condition, drawn: Drawn, split: Split) -> NDArray[np.bool_]:
    """Who meets the condition: by an event of each kind; of a kind that they lack,
    whatever one would be like.
    """
    every = {column.name: column for column in split.schema.row_schema.columns}
    said = [
        test for test in dict.fromkeys(tests(condition)) if not isinstance(test, Order)
    ]
    ways = pd.DataFrame({"person": np.arange(len(drawn.people))})
    ways["person_way"], known = _ways(said, drawn.people, every)
    tables = {"person_way": known}
    for kind, part in enumerate(split.schema.parts):
        names = {column.name for column in part.event_columns}
        own = [test for test in said if test.column in names]
        if own:
            way, tables[f"way {kind}"] = _ways(own, drawn.events[kind], every)
            found = pd.DataFrame(
                {"person": drawn.owners(kind), f"way {kind}": way}
            ).drop_duplicates()
            ways = ways.merge(found, on="person", how="left")
    ways = ways.fillna(-1).astype(np.int64)  # −1: the person has no such event
    good = np.zeros(len(drawn.people), dtype=np.bool_)
    for _, some in ways.groupby(list(tables)):
        truth: dict[Test | Order, bool] = {}
        for name, each in tables.items():
            place = int(some[name].iloc[0])
            if place >= 0:
                truth |= each[place]
        if whatever(left_of(condition, truth), split.schema):
            good[some["person"]] = True
    return good


def _ways(
    said: Sequence[Test], frame: pd.DataFrame, every: Mapping[str, Column]
) -> tuple[Places, list[dict[Test | Order, bool]]]:
    """The way in which the tests on a frame's columns turn out in each row, and what
    each way is.
    """
    own = [test for test in said if test.column in frame]
    truth = np.array([met(test, frame, every) for test in own], dtype=bool).reshape(
        len(own), len(frame)
    )
    ways, way = np.unique(truth, axis=1, return_inverse=True)
    return way.ravel(), [dict(zip(own, so, strict=True)) for so in ways.T.tolist()]
