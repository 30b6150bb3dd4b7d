"""From levels back to two tables: people, and their events in order, with keys that fit."""

from itertools import pairwise

import numpy as np
import pandas as pd

from understudy.data.codec import Codec, Uniform
from understudy.data.column import Column
from understudy.data.dtypes import typed
from understudy.data.values import Codes, numbers_of
from understudy.data.visits.codes import Places, VisitCodes
from understudy.data.visits.schema import VisitSchema


def visit_frames(
    codes: VisitCodes, schema: VisitSchema, rng: Uniform, *, people: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of people and the table of events, in the schema's columns and dtypes; people are numbered from 0.

    A number is drawn evenly inside its bin, and so are the time of a person's first event and the times between two.
    `people`: their columns as `person_schema` has them, where these have been drawn already.
    Edges: an event that would come after the last time that the schema declares comes at that time. Without declared
    columns of people their table has the key alone.
    """
    own = Codec(schema.person_schema).decode(codes.people, rng) if people is None else people
    declared = () if schema.people is None else schema.people.names
    people = own[list(declared)]
    people.insert(0, schema.person, np.arange(len(own)))
    events = Codec(schema.event_schema).decode(codes.events, rng)
    if (clock := schema.clock) is not None:
        column = schema.person_schema.columns[-2]
        first = np.nan_to_num(numbers_of(column, own[column.name])).astype(
            np.int64
        )  # who has none has no events
        since = np.cumsum(_steps(schema.event_schema.columns[-1], codes.events[:, -1], rng))
        before = np.append(since, 0)[codes.starts[:-1]]  # a first event has no gap: what others' add up to
        times = np.minimum((first - before)[codes.owner] + since, clock.edges[-1] - 1)
        events[clock.name] = typed(clock, times, np.zeros(len(times), dtype=bool))
    events = events[list(schema.events.names)]
    events.insert(0, schema.person, codes.owner)
    return people, events


def number_bounds(schema: VisitSchema) -> list[tuple[int, int]]:
    """The least and the largest number of events that each level of their number stands for."""
    edges: Places = schema.person_schema.columns[-1].edges  # type: ignore[attr-defined]
    return [(int(low), int(after) - 1) for low, after in pairwise(edges)]


def _steps(column: Column, levels: Codes, rng: Uniform) -> Places:
    """A whole number inside each bin, 0 for a level that is missing."""
    edges: Places = column.edges  # type: ignore[attr-defined]
    missing = levels == len(edges) - 1
    known = np.where(missing, 0, levels)
    low, width = edges[known], np.diff(edges)[known]
    inside = np.floor(rng.uniform(len(levels)).cpu().numpy() * width).astype(np.int64)
    return np.where(missing, 0, low + np.minimum(inside, width - 1))
