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
from understudy.data.encoding.values import (
    Places,
    numbers_of,
    starts_of,
    take_people,
    typed,
)
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

    def take(self, people: Places) -> "Drawn":
        events = []
        begins = []
        for frame, event_starts in zip(self.events, self.starts, strict=True):
            starts, rows = take_people(event_starts, people)
            events.append(frame.iloc[rows].reset_index(drop=True))
            begins.append(starts)
        taken = self.people.iloc[people].reset_index(drop=True)
        return Drawn(taken, tuple(events), tuple(begins))

    def with_(self, other: "Drawn") -> "Drawn":
        """These people, and the others behind them."""
        people = pd.concat((self.people, other.people), ignore_index=True)
        events = []
        for frame, more in zip(self.events, other.events, strict=True):
            events.append(pd.concat((frame, more), ignore_index=True))
        starts = []
        for begins, more_begins in zip(self.starts, other.starts, strict=True):
            following = begins[-1] + more_begins[1:]
            starts.append(np.concatenate([begins, following]))
        return Drawn(people, tuple(events), tuple(starts))

    def owners(self, kind: int) -> Places:
        n_events = np.diff(self.starts[kind])
        return np.repeat(np.arange(len(self.people)), n_events)


def as_drawn(frames: Mapping[str, pd.DataFrame], schema: VisitSchema) -> Drawn:
    """A holder's own tables, with their keys, as people who could have been drawn,
    whatever was cut of their events.
    """
    key = schema.person
    events = frames["events"]
    people = frames["people"] if "people" in frames else events[[key]].drop_duplicates()
    people = people.reset_index(drop=True)
    person_keys = pd.Index(people[key].astype(str))
    owner = person_keys.get_indexer(pd.Index(events[key].astype(str)))
    clock = schema.clock
    if clock is None:
        times = np.zeros(len(events))
    else:
        times = numbers_of(clock, events[clock.name])
    order = np.lexsort((times, owner))
    events = events.iloc[order].reset_index(drop=True)
    numbers = np.bincount(owner, minlength=len(people))
    starts = starts_of(numbers)
    if clock is not None:
        first = schema.person_schema.columns[-2]
        gap = schema.event_schema.columns[-1]
        ordered_times = times[order].astype(np.int64)
        begin, steps, is_first = first_and_gaps(ordered_times, starts)
        is_missing = numbers == 0
        people[first.name] = typed(first, begin, is_missing)
        events[gap.name] = typed(gap, steps, is_first)
    number_column = schema.person_schema.columns[-1]
    people[number_column.name] = np.minimum(numbers, schema.most_events)
    return Drawn(people, (events,), (starts,))


def broken(sampled: Drawn, schema: VisitSchema) -> list[int]:
    """How many people break each rule, by themselves or by an event. It comes from
    rows: for their holder alone.
    """
    n_broken = []
    for rule in schema.rules:
        one_rule = Split(replace(schema, rules=(rule,)), None)
        keeps = meets(sampled, one_rule)
        n_broken.append(int((~keeps).sum()))
    return n_broken


def meets(sampled: Drawn, split: Split) -> NDArray[np.bool_]:
    """Which people meet the condition, and keep all rules with all their events."""
    schema = split.schema
    row_columns = {column.name: column for column in schema.row_schema.columns}
    good = np.ones(len(sampled.people), dtype=np.bool_)
    person_rules = about(schema.rules, schema.person_schema.names)
    for rule in person_rules:
        good &= rule.rows_that_keep(sampled.people, row_columns)
    other_rules = [rule for rule in schema.rules if rule not in person_rules]
    for kind, part in enumerate(schema.parts):
        names = [column.name for column in part.event_columns]
        own_names = set(names)
        event_rules = [
            rule for rule in other_rules if not own_names.isdisjoint(rule.columns)
        ]
        if not event_rules:
            continue
        owner = sampled.owners(kind)
        people = sampled.people.iloc[owner].reset_index(drop=True)
        events = sampled.events[kind][names]
        rows = pd.concat([people, events], axis=1)
        for rule in event_rules:
            keeps = rule.rows_that_keep(rows, row_columns)
            good[owner[~keeps]] = False
    if split.condition is not None:
        good &= _meet(split.condition, sampled, split)
    return good


def _meet(
    condition: Condition,
    sampled: Drawn,
    split: Split,
) -> NDArray[np.bool_]:
    """Who meets the condition: by an event of each kind; of a kind that they lack,
    whatever one would be like.
    """
    schema = split.schema
    row_columns = {column.name: column for column in schema.row_schema.columns}
    distinct_tests = dict.fromkeys(tests(condition))
    condition_tests = [test for test in distinct_tests if not isinstance(test, Order)]
    n_people = len(sampled.people)
    person_way, person_truths = _ways(condition_tests, sampled.people, row_columns)
    ways = pd.DataFrame({"person": np.arange(n_people), "person_way": person_way})
    tables = {"person_way": person_truths}
    for kind, part in enumerate(schema.parts):
        names = {column.name for column in part.event_columns}
        event_tests = [test for test in condition_tests if test.column in names]
        if not event_tests:
            continue
        name = f"way {kind}"
        way, truths = _ways(event_tests, sampled.events[kind], row_columns)
        tables[name] = truths
        event_ways = pd.DataFrame({"person": sampled.owners(kind), name: way})
        distinct_ways = event_ways.drop_duplicates()
        ways = ways.merge(distinct_ways, on="person", how="left")
    ways = ways.fillna(-1).astype(np.int64)  # −1: the person has no such event
    good = np.zeros(n_people, dtype=np.bool_)
    for _, alike in ways.groupby(list(tables)):
        truth: dict[Test | Order, bool] = {}
        for name, truths in tables.items():
            index = int(alike[name].iloc[0])
            if index >= 0:
                truth |= truths[index]
        undecided = left_of(condition, truth)
        if whatever(undecided, schema):
            good[alike["person"]] = True
    return good


def _ways(
    condition_tests: Sequence[Test],
    frame: pd.DataFrame,
    columns: Mapping[str, Column],
) -> tuple[Places, list[dict[Test | Order, bool]]]:
    """The way in which the tests on a frame's columns turn out in each row, and what
    each way is.
    """
    frame_tests = [test for test in condition_tests if test.column in frame]
    outcomes = [met(test, frame, columns) for test in frame_tests]
    shape = len(frame_tests), len(frame)
    outcome_table = np.array(outcomes, dtype=bool).reshape(shape)
    ways, way = np.unique(outcome_table, axis=1, return_inverse=True)
    truths: list[dict[Test | Order, bool]] = []
    for outcome in ways.T.tolist():
        truths.append(dict(zip(frame_tests, outcome, strict=True)))
    return way.ravel(), truths
