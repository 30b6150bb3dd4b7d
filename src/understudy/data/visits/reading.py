"""Tables of people and of their events, read by the public schema, each person's events
brought together; and back (docs/visits.md says what a holder brings).

Guarantee: `Visits.codes` depends, person by person, on that person's rows and the
schema alone (and, where events are drawn, on randomness of the holder's own): of nobody
more than `most_events` events count.
Edges: a person without events has none; two events at one time stay in the order of the
file; an event whose person is not among the people, an id that comes twice among
people, a table without rows, a cell that does not fit (a time that is no date) →
SchemaError, nothing is read further. Messages quote values and are for the holder of
the rows alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Column, is_unbounded
from understudy.data.encoding.values import (
    Codes,
    Floats,
    Places,
    codes_of,
    numbers_of,
    starts_of,
    take_people,
    typed,
)
from understudy.data.reading.files import Source
from understudy.data.reading.judged import id_reader, read_columns
from understudy.data.reading.sources import SUFFIX, TableSource
from understudy.data.table import Table, open_table
from understudy.data.visits.counts import VisitCodes
from understudy.data.visits.schema import VisitSchema
from understudy.ground.check import known_keys
from understudy.ground.errors import ConfigError, Effect, SchemaError

if TYPE_CHECKING:
    from understudy.data.encoding.codec import Uniform  # which loads torch
    from understudy.data.visits.schema import SeveralVisits

TwoSources = Mapping[str, Source]  # "people" and "events"
_LOOK = 1 << 18  # events whose ids are looked up together
_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".xlsx", ".parquet", SUFFIX)


@dataclass(frozen=True, eq=False)
class Visits:
    """People in the order of their table, and each one's events in order. Its repr
    shows no rows. What is held of a column are levels, and where no bins are declared
    fine cells (`VisitSchema.fine`).
    """

    person_codes: Codes = field(repr=False)  # (people, declared columns of people)
    # (events, declared columns of events without the time)
    events: Codes = field(repr=False)
    times: Places | None = field(repr=False)  # (events,), in steps of the time column
    # (people + 1,): person i has the events starts[i] … starts[i + 1]
    starts: Places = field(repr=False)
    people: NDArray[Any] = field(repr=False)  # the ids
    schema: VisitSchema = field(repr=False)
    source: str
    # columns without bounds, NaN where missing
    loose: Mapping[str, Floats] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> int:
        return len(self.people)

    @cached_property
    def numbers(self) -> Places:
        """How many events each person has, before any are cut."""
        return np.diff(self.starts)

    def take(self, people: Places) -> "Visits":
        starts, event_rows = take_people(self.starts, people)
        times = None if self.times is None else self.times[event_rows]
        person_codes = self.person_codes[people]
        events = self.events[event_rows]
        ids = self.people[people]
        rows_by_column = {
            name: event_rows if name in self.schema.events.names else people
            for name in self.loose
        }
        loose = {name: self.loose[name][rows] for name, rows in rows_by_column.items()}
        return replace(
            self,
            person_codes=person_codes,
            events=events,
            times=times,
            starts=starts,
            people=ids,
            loose=loose,
        )

    def among(self, people: NDArray[Any]) -> "Visits":
        """These people, in this order, by their ids: who is none of them has no events
        and no columns here.
        """
        index = pd.Index(self.people.astype(str)).get_indexer(
            pd.Index(people.astype(str))
        )
        selected = self.take(index[index >= 0])
        numbers = np.zeros(len(people), dtype=np.int64)
        numbers[index >= 0] = selected.numbers
        none = np.zeros((len(people), 0), dtype=np.int32)
        return replace(
            selected, person_codes=none, starts=starts_of(numbers), people=people
        )

    def codes(
        self, rng: "Uniform | None" = None, within: VisitSchema | None = None
    ) -> VisitCodes:
        """What counts of them: of each person `most_events` events at most, by the
        schema's rule. `rng` is what events are drawn by. `within`: the schema with
        bounds in every column, outside of which numbers count in the first or the last
        cell; without it columns without bounds are in public cells, and the time, if it
        is one, comes last.
        Edges: the rule draws and there is no `rng` → ConfigError.
        """
        counted = self.counted_events(rng)
        numbers = np.bincount(
            np.repeat(np.arange(self.rows), self.numbers)[counted], minlength=self.rows
        )
        starts = starts_of(numbers)
        schema = (self.schema if within is None else within).fine
        columns = [self.person_codes.copy()]
        events = [self.events[counted]]
        for cells, table_schema, rows in (
            (columns, schema.person_schema, slice(None)),
            (events, schema.event_schema, counted),
        ):
            for position, column in enumerate(table_schema.columns):
                values = self.loose.get(column.name)
                if values is not None:
                    cells[0][:, [position]] = _levels(
                        column, values[rows], np.isnan(values[rows])
                    )
        if self.times is not None and schema.clock is not None:
            first, gaps, is_first = first_and_gaps(self.times[counted], starts)
            columns.append(
                _levels(schema.person_schema.columns[-2], first, numbers == 0)
            )
            events.append(_levels(schema.event_schema.columns[-1], gaps, is_first))
            if (
                within is None
                and self.schema.clock is not None
                and self.schema.clock.unbounded
            ):
                events.append(
                    _levels(
                        schema.clock,
                        self.times[counted],
                        np.zeros(len(counted), dtype=bool),
                    )
                )
        columns.append(
            _levels(
                schema.person_schema.columns[-1],
                numbers,
                np.zeros(self.rows, dtype=bool),
            )
        )
        return VisitCodes(
            np.concatenate(columns, axis=1), np.concatenate(events, axis=1), starts
        )

    def counted_events(self, rng: "Uniform | None") -> Places:
        """The events that count, as places among all, in their order."""
        limit = self.schema.most_events
        numbers = self.numbers
        if (numbers <= limit).all():
            return np.arange(len(self.events))
        owner = np.repeat(np.arange(self.rows), numbers)
        order = np.arange(len(self.events))
        if self.schema.cut == "draw":
            if rng is None:
                raise ConfigError(
                    "events are drawn by the holder's randomness, and there is none "
                    "here."
                )
            # still person by person
            order = np.lexsort((rng.uniform(len(self.events)).cpu().numpy(), owner))
        rank = np.arange(len(order)) - np.repeat(self.starts[:-1], numbers)
        return np.sort(order[rank < limit])


def read_visits(
    source: Source | TwoSources, schema: VisitSchema, name: str | None = None
) -> Visits:
    """Read both tables, or the one of events, and check every cell against the schema.
    Of long ones only the levels, times and owners of events are held.
    """
    tables = two_sources(source, schema)
    titles = {
        part: name if name is None or len(tables) == 1 else f"{name}, {part}"
        for part in tables
    }
    events = open_table(
        tables["events"], schema.events, titles["events"], one_row_each=False
    )
    fine = schema.fine.tables
    loose = dict[str, Floats]()
    if schema.people is not None:
        people = open_table(tables["people"], schema.people, titles["people"])
        columns = fine["people"].columns
        ids = people.people
        owner = _owners(events, ids, people.source)
        person_codes, loose = _encoded(
            people, columns, [c for c in schema.people.columns if is_unbounded(c)]
        )
    else:
        if "people" in tables:
            ids, origin = listed_people(
                tables["people"], schema.person, titles["people"]
            )
            owner = _owners(events, ids, origin)
        else:
            owner, ids = pd.factorize(events.people)
        person_codes = np.zeros((len(ids), 0), dtype=np.int32)
    declared = [c for c in fine["events"].columns if c.name != schema.time]
    numeric_columns = [
        c for c in schema.events.columns if c.name == schema.time or is_unbounded(c)
    ]
    codes, numbers = _encoded(events, declared, numeric_columns)
    times = None if schema.time is None else numbers.pop(schema.time).astype(np.int64)
    # both keep the file's order
    order = np.lexsort((owner,)) if times is None else np.lexsort((times, owner))
    starts = starts_of(np.bincount(owner, minlength=len(ids)))
    ids = np.asarray(ids, dtype=None if ids.dtype == np.int64 else object)
    times = None if times is None else times[order]
    loose |= {column: values[order] for column, values in numbers.items()}
    return Visits(
        person_codes,
        codes[order],
        times,
        starts,
        ids,
        schema,
        name or events.source,
        loose,
    )


def listed_people(
    source: Source, person: str, name: str | None = None
) -> tuple[NDArray[Any], str]:
    """The ids in a table of people of which no column is declared, and what the table
    is called.
    """
    raw, cells = read_columns(
        source, {person: id_reader(person, one_row_each=True)}, name
    )
    return cells[person].to_numpy(), raw.name


def _encoded(
    table: Table, columns: Iterable[Column], numeric_columns: Iterable[Column]
) -> tuple[Codes, dict[str, Floats]]:
    """The levels of some columns, and the numbers of others."""
    parts: dict[str, list[Floats]] = {column.name: [] for column in numeric_columns}

    def levels(rows: Any) -> Codes:
        for column in numeric_columns:
            parts[column.name].append(numbers_of(column, rows[column.name]))
        none = np.zeros((len(rows), 0), dtype=np.int32)
        return np.column_stack(
            [none, *(codes_of(column, rows[column.name]) for column in columns)]
        )

    return table.encoded(levels), {
        name: np.concatenate(batches) for name, batches in parts.items()
    }


def _owners(events: Table, ids: NDArray[Any], source: str) -> Places:
    owner_ids = events.people
    if owner_ids.dtype != ids.dtype:  # whole numbers in one table, text in the other
        owner_ids, ids = (
            ids_of_table.astype(np.dtypes.StringDType())
            for ids_of_table in (owner_ids, ids)
        )
    index = pd.Index(ids)
    starts = range(0, len(owner_ids), _LOOK)
    owner = np.concatenate(
        [
            index.get_indexer(pd.Index(owner_ids[start : start + _LOOK]))
            for start in starts
        ]
    )
    nobody = owner < 0
    if nobody.any():
        row = int(nobody.argmax())
        count = int(nobody.sum())
        more = f" (and {count - 1:,} more)" if count > 1 else ""
        raise SchemaError(
            f'{events.source}, column "{events.schema.person}": "{owner_ids[row]}" at '
            "row "
            f"{row + 1:,} is nobody in "
            f"{source}{more}: every event is a person's.",
            effect=Effect.NOTHING_READ_FURTHER,
        )
    return np.asarray(owner, dtype=np.int64)


def first_and_gaps(
    times: Places, starts: Places
) -> tuple[Places, Places, NDArray[np.bool_]]:
    """Each person's first time, 0 without one; each event's time since the one before,
    0 of a first; which are.
    """
    some = np.diff(starts) > 0
    first = np.zeros(len(some), dtype=np.int64)
    fresh = np.zeros(len(times), dtype=bool)
    first[some] = times[starts[:-1][some]]
    fresh[starts[:-1][some]] = True
    return first, np.where(fresh, 0, np.diff(times, prepend=0)).astype(np.int64), fresh


def _levels(
    column: Column, values: Places | Floats, missing: NDArray[np.bool_]
) -> Codes:
    """Numbers in the column's own steps as its levels, (rows, 1)."""
    edges: Places = column.edges  # type: ignore[attr-defined]
    codes = np.searchsorted(edges[1:-1], values, side="right")
    return np.where(missing, column.levels, codes).astype(np.int32)[:, None]


def two_sources(
    source: Source | TwoSources, schema: "VisitSchema | SeveralVisits"
) -> dict[str, Source]:
    """The tables that the schema describes, from whatever the holder brought, and
    people where it brought some.
    """
    wanted = tuple(schema.tables)
    # people who may have no event
    read = ("people", *wanted) if wanted == ("events",) else wanted
    if isinstance(source, Mapping) and not isinstance(source, pd.DataFrame):
        known_keys(
            source,
            dict.fromkeys(("people", *wanted)),
            "a holder's tables",
            raised=SchemaError,
        )
        tables = dict(source)
    elif (folder := _folder(source)) is None:
        tables = {"events": source}
    else:
        tables = {
            part: path for part in read if (path := file_of(folder, part)) is not None
        }
        if isinstance(source, TableSource):
            tables = {
                part: replace(source, table=str(path)) for part, path in tables.items()
            }
    lacking = [part for part in wanted if part not in tables]
    if lacking:
        raise SchemaError(
            f"the schema describes {' and '.join(wanted)}, and there is no table of "
            f"{lacking[0]}: bring {'both' if len(wanted) == 2 else 'all'}, as "
            f"{{{', '.join(f'{part} = …' for part in wanted)}}}, or as a folder with a "
            f"file {' and a file '.join(wanted)}.",
            effect=Effect.NOTHING_READ,
        )
    extra = [part for part in tables if part not in read]
    if extra:
        raise SchemaError(
            f"the schema describes no {extra[0]}, and there is a table of them.",
            effect=Effect.NOTHING_READ,
        )
    return tables


def _folder(source: object) -> Path | None:
    if isinstance(source, TableSource):
        source = None if source.is_database else source.table
    path = Path(source) if isinstance(source, str | Path) else None
    return path if path is not None and path.is_dir() else None


def file_of(folder: Path, part: str) -> Path | None:
    files = [
        folder / f"{part}{suffix}"
        for suffix in _SUFFIXES
        if (folder / f"{part}{suffix}").exists()
    ]
    if len(files) > 1:
        raise SchemaError(
            f"{folder}: {files[0].name} and {files[1].name}: which one?",
            effect=Effect.NOTHING_READ,
        )
    return files[0] if files else None


def visit_frames(
    codes: VisitCodes, schema: VisitSchema, rng: "Uniform"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of people and the table of events, in the schema's columns and dtypes;
    people are numbered from 0. A number is drawn evenly inside its bin, and so are the
    time of a person's first event and the times between two.
    Edges: an event that would come after the last time that the schema declares comes
    at that time. Without declared columns of people their table has the key alone.
    """
    from understudy.data.encoding.codec import Codec

    people = Codec(schema.person_schema).decode(codes.people, rng)
    events = Codec(schema.event_schema).decode(codes.events, rng)
    return declared(
        people, timed(people, events, codes.starts, schema), codes.starts, schema
    )


def timed(
    people: pd.DataFrame, events: pd.DataFrame, starts: Places, schema: VisitSchema
) -> pd.DataFrame:
    """Events, in columns of `event_schema`, with their time: a person's first, and the
    gaps added to it. Edges: as of `visit_frames`; a gap that ends at the last time is
    as short as that makes it.
    """
    clock = schema.clock
    if clock is None:
        return events
    column = schema.person_schema.columns[-2]
    gap = schema.event_schema.columns[-1]
    owner = np.repeat(np.arange(len(people)), np.diff(starts))
    first = _whole(column, people[column.name])  # who has no events has none
    since = np.cumsum(_whole(gap, events[gap.name]))
    # a first event has no gap: what others' add up to
    before = np.append(since, 0)[starts[:-1]]
    times = np.minimum((first - before)[owner] + since, clock.edges[-1] - 1)
    _, gaps, fresh = first_and_gaps(times, starts)
    none = np.zeros(len(times), dtype=bool)
    return events.assign(
        **{gap.name: typed(gap, gaps, fresh), clock.name: typed(clock, times, none)}
    )


def declared(
    people: pd.DataFrame, events: pd.DataFrame, starts: Places, schema: VisitSchema
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of people and of events with their time the columns that the schema declares, and
    keys.
    """
    person_table = people[list(() if schema.people is None else schema.people.names)]
    person_table.insert(0, schema.person, np.arange(len(people)))
    event_table = events[list(schema.events.names)]
    event_table.insert(
        0, schema.person, np.repeat(np.arange(len(people)), np.diff(starts))
    )
    return person_table, event_table


def number_bounds(schema: VisitSchema) -> list[tuple[int, int]]:
    """The least and the largest number of events that each level of their number stands
    for.
    """
    edges: Places = schema.person_schema.columns[-1].edges  # type: ignore[attr-defined]
    return [(int(low), int(after) - 1) for low, after in pairwise(edges)]


def _whole(column: Column, values: "pd.Series[Any]") -> Places:
    """A time's numbers, 0 where it is missing."""
    return np.nan_to_num(numbers_of(column, values)).astype(np.int64)
