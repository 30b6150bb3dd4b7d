"""From levels back to two tables: people, and their events in order, with keys that fit."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from understudy.data.arrays import Places
from understudy.data.column import Column
from understudy.data.encoding.codec import Codec, Uniform
from understudy.data.encoding.values import numbers_of, typed
from understudy.data.visits.counts import VisitCodes
from understudy.data.visits.schema import VisitSchema


def visit_frames(codes: VisitCodes, schema: VisitSchema, rng: Uniform) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of people and the table of events, in the schema's columns and dtypes; people are numbered from 0.

    A number is drawn evenly inside its bin, and so are the time of a person's first event and the times between two.
    Edges: an event that would come after the last time that the schema declares comes at that time. Without declared
    columns of people their table has the key alone.
    """
    people = Codec(schema.person_schema).decode(codes.people, rng)
    events = Codec(schema.event_schema).decode(codes.events, rng)
    return declared(people, timed(people, events, codes.starts, schema), codes.starts, schema)


def timed(people: pd.DataFrame, events: pd.DataFrame, starts: Places, schema: VisitSchema) -> pd.DataFrame:
    """Events, in columns of `event_schema`, with their time: a person's first, and the gaps added to it.

    Edges: as of `visit_frames`; a gap that ends at the last time is as short as that makes it.
    """
    if (clock := schema.clock) is None:
        return events
    column, gap = schema.person_schema.columns[-2], schema.event_schema.columns[-1]
    numbers = np.diff(starts)
    owner = np.repeat(np.arange(len(people)), numbers)
    first = _whole(column, people[column.name])  # who has no events has none
    since = np.cumsum(_whole(gap, events[gap.name]))
    before = np.append(since, 0)[starts[:-1]]  # a first event has no gap: what others' add up to
    times = np.minimum((first - before)[owner] + since, clock.edges[-1] - 1)
    fresh = np.zeros(len(times), dtype=bool)
    fresh[starts[:-1][numbers > 0]] = True
    none = np.zeros(len(times), dtype=bool)
    return events.assign(
        **{
            gap.name: typed(gap, np.where(fresh, 0, np.diff(times, prepend=0)), fresh),
            clock.name: typed(clock, times, none),
        }
    )


def declared(
    people: pd.DataFrame, events: pd.DataFrame, starts: Places, schema: VisitSchema
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of people and of events with their time the columns that the schema declares, and keys."""
    own = people[list(() if schema.people is None else schema.people.names)]
    own.insert(0, schema.person, np.arange(len(people)))
    theirs = events[list(schema.events.names)]
    theirs.insert(0, schema.person, np.repeat(np.arange(len(people)), np.diff(starts)))
    return own, theirs


def number_bounds(schema: VisitSchema) -> list[tuple[int, int]]:
    """The least and the largest number of events that each level of their number stands for."""
    edges: Places = schema.person_schema.columns[-1].edges  # type: ignore[attr-defined]
    return [(int(low), int(after) - 1) for low, after in pairwise(edges)]


def _whole(column: Column, values: "pd.Series[Any]") -> Places:
    """A time's numbers, 0 where it is missing."""
    return np.nan_to_num(numbers_of(column, values)).astype(np.int64)
