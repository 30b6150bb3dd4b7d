"""One object for each kind of rows: tables, images, series, people with events; and of
generators what these are side by side.

A new kind is a class here and a name in `BROUGHT`, and above an entry under its name:
how it is read (`encoding.features`), drawn (`generators.samplers`), compared
(`report.compared`), measured for a page (`report.measure`) and pooled
(`protocols.papers.sgde.kinds`), as far as it is.

A mixed schema has `kind = "mixed"` at the top and a table of `parts`: each party's
schema, as it is kept by itself. A row of it is one person. As a table it has the
columns of the tables as they are, `radiology.pixel_0_0`, … for images, and
`monitor.heart_rate.0`, … for the steps of a series.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.arrays import ArraySchema as ArraySchema
from understudy.data.arrays import ArrayTable
from understudy.data.encoding.values import starts_of
from understudy.data.kinds.kind import ARRAYS as ARRAYS
from understudy.data.kinds.kind import IMAGES as IMAGES
from understudy.data.kinds.kind import SERIES as SERIES
from understudy.data.kinds.kind import TABLE as TABLE
from understudy.data.kinds.kind import AnyRows as AnyRows
from understudy.data.kinds.kind import AnySchema as AnySchema
from understudy.data.kinds.kind import Family as Family
from understudy.data.kinds.kind import Flat as Flat
from understudy.data.kinds.kind import Kind as Kind
from understudy.data.kinds.kind import NoRows as NoRows
from understudy.data.kinds.kind import PublicSchema as PublicSchema
from understudy.data.kinds.kind import Rows as Rows
from understudy.data.kinds.kind import one_label as one_label
from understudy.data.kinds.kind import placed
from understudy.data.kinds.kind import places as places
from understudy.data.reading.files import Source
from understudy.data.reading.judged import Violation
from understudy.data.schema import Document, Grid, OneOf, Schema, join, read
from understudy.data.table import Table
from understudy.data.visits import (
    SeveralVisits,
    TwoSources,
    Visits,
    VisitSchema,
    read_visits,
)
from understudy.data.visits.reading import number_bounds, two_sources
from understudy.ground.check import known_keys, nearest, repeated
from understudy.ground.errors import Effect, SchemaError, UtilityWarning

From = Source | TwoSources
_MORE = 5  # events of the person who is made up to have more than count


class VisitKind(Kind[VisitSchema, Visits]):
    name = VisitSchema.kind
    plural = "people with events"

    def read(
        self,
        source: Any,
        schema: VisitSchema,
        name: str | None = None,
        *,
        one_row_each: bool = True,
    ) -> Visits:
        rows = read_visits(source, schema, name)
        if "people" not in two_sources(source, schema):
            warnings.warn(
                f"{rows.source}: there is no table of people beside the events, so "
                "people without an event cannot be "
                f'counted. One with the column "{schema.person}" alone is enough.',
                UtilityWarning,
                stacklevel=2,
            )
        return rows

    def check(
        self, source: Any, schema: VisitSchema
    ) -> tuple[list[Violation], list[str]]:
        rows = self.read(source, schema)
        max_events = schema.most_events
        notes = [
            f"{rows.rows:,} people, {int((rows.numbers == 0).sum()):,} of them "
            "without events."
        ]
        more = int((rows.numbers > max_events).sum())
        if more:
            counted = (
                f"the first {max_events:,}"
                if schema.cut == "first"
                else f"{max_events:,}, drawn by chance,"
            )
            notes.append(
                f"{more:,} have more than {max_events:,} events, of which {counted} "
                "count."
            )
        return [], notes

    def roster(self, rows: Visits, *, several: bool = False) -> Table:
        return placed(rows.people, rows.schema.person, rows.source)

    def sizes(self, schema: VisitSchema) -> tuple[int, ...]:
        """The levels of both, the bounds of each level of the number of events, and
        whether they have an order.
        """
        bounds = (bound for pair in number_bounds(schema) for bound in pair)
        columns = (*schema.person_schema.columns, *schema.event_schema.columns)
        return (*(column.size for column in columns), *bounds, schema.ordered)

    def made_up(
        self, schema: VisitSchema, people: int, canary: int | None = 0
    ) -> Visits:
        tables = schema.fine.tables
        person_codes, events = (
            np.array(
                [
                    [
                        c.levels - 1 or c.size - 1
                        for c in columns
                        if c.name != schema.time
                    ]
                ],
                dtype=np.int32,
            )
            for columns in (
                tables["people"].columns if "people" in tables else (),
                tables["events"].columns,
            )
        )
        is_canary = np.arange(people) == (-1 if canary is None else canary)
        numbers = np.where(is_canary, schema.most_events + _MORE, 1)
        clock = schema.clock
        return Visits(
            person_codes=np.where(is_canary[:, None], person_codes, 0).astype(np.int32),
            events=np.where(np.repeat(is_canary, numbers)[:, None], events, 0).astype(
                np.int32
            ),
            times=None
            if clock is None
            else np.full(numbers.sum(), int(clock.edges[0]), dtype=np.int64),
            starts=starts_of(numbers),
            people=np.arange(people),
            schema=schema,
            source="made-up rows",
        )


VISITS = VisitKind(VisitSchema, Visits)
EVENTS: Family[VisitSchema | SeveralVisits, Visits] = Family(
    VisitSchema | SeveralVisits, Visits
)
FLAT: Family[AnySchema, Rows] = Family(AnySchema, Table | ArrayTable)
BROUGHT: dict[str, Kind[Any, Any]] = {
    kind.name: kind for kind in (TABLE, SERIES, IMAGES, VISITS)
}


@overload
def kind_of(schema: AnySchema) -> Flat[Any, Any]: ...


@overload
def kind_of(schema: PublicSchema) -> Kind[Any, Any]: ...


def kind_of(schema: PublicSchema) -> Kind[Any, Any]:
    return BROUGHT[schema.kind]


def load_schema(path: str | Path) -> PublicSchema:
    return read(path, schema_from)


def schema_from(data: dict[str, Any]) -> PublicSchema:
    """The schema that `to_dict` wrote down, of whichever kind."""
    kind = data.get("kind")
    if kind is None:
        return Schema.from_dict(data)
    kinds = [name for name in BROUGHT if name != TABLE.name]
    if kind not in kinds:
        raise SchemaError(
            f"kind must be {' or '.join(kinds)}, or left out for a table, not "
            f"{kind!r}.{nearest(kind, kinds)}"
        )
    schema: PublicSchema = BROUGHT[kind].schema.from_dict(data)
    return schema


def one_kind_of_row(schema: PublicSchema) -> AnySchema:
    """The schema, where people with many events are out of place. SchemaError where it
    describes these.
    """
    if not FLAT.describes(schema):
        raise SchemaError(
            f'this schema describes rows of the kind "{schema.kind}", and one table, '
            "series or images are needed here."
        )
    return schema


@overload
def read_rows(
    source: From,
    schema: AnySchema,
    name: str | None = None,
    *,
    one_row_each: bool = True,
) -> Rows: ...


@overload
def read_rows(
    source: From,
    schema: PublicSchema,
    name: str | None = None,
    *,
    one_row_each: bool = True,
) -> AnyRows: ...


def read_rows(
    source: From,
    schema: PublicSchema,
    name: str | None = None,
    *,
    one_row_each: bool = True,
) -> AnyRows:
    several = isinstance(source, Mapping) and not isinstance(source, pd.DataFrame)
    if several and not VISITS.describes(schema):
        raise SchemaError(
            'two tables are read by a schema of the kind "visits".',
            effect=Effect.NOTHING_READ,
        )
    rows: AnyRows = kind_of(schema).read(
        source, schema, name, one_row_each=one_row_each
    )
    return rows


@dataclass(frozen=True, kw_only=True)
class MixedSchema(Document):
    kind: ClassVar[str] = "mixed"
    parts: Mapping[str, AnySchema]

    def __post_init__(self) -> None:
        if not self.parts:
            raise SchemaError("a mixed schema needs at least one part.")
        tables = TABLE.among(self.parts)
        if tables:
            groups = [c.name for c in join(tables).columns if isinstance(c, OneOf)]
            if groups:
                raise SchemaError(
                    f'"{groups[0]}" is a group of which one is 1, which is for '
                    "holders of tables alone."
                )
        twice = repeated(self.names)
        if twice:
            raise SchemaError(
                f'column "{twice[0]}" has two meanings: rename a column or a party.'
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(
            column for name, part in self.parts.items() for column in _names(name, part)
        )

    @property
    def owners(self) -> dict[str, str]:
        return {
            column: name
            for name, part in self.parts.items()
            for column in _names(name, part)
        }

    def frame(self, sampled: Mapping[str, pd.DataFrame | NDArray[Any]]) -> pd.DataFrame:
        """One table from each party's: frames of tables, (n, *shape) arrays of series
        and images.
        """
        frames = []
        for name, part in self.parts.items():
            rows = sampled[name]
            if not isinstance(rows, pd.DataFrame):
                rows = pd.DataFrame(
                    rows.reshape(len(rows), -1), columns=_names(name, part)
                )
            frames.append(rows)
        return pd.concat(frames, axis=1)

    def require_public(self, which: str = "this schema") -> None:
        for name, part in self.parts.items():
            part.require_public(f"{which}, {name},")

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "parts": {name: part.to_dict() for name, part in self.parts.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        known_keys(data, ("kind", "parts"), "a mixed schema", raised=SchemaError)
        parts = data.get("parts")
        if not isinstance(parts, Mapping) or not all(
            isinstance(part, Mapping) for part in parts.values()
        ):
            raise SchemaError(
                "a mixed schema needs parts, a table of keys for each party."
            )
        return cls(
            parts={
                name: one_kind_of_row(schema_from(dict(part)))
                for name, part in parts.items()
            }
        )


def protected_unit(schemas: Mapping[str, Any]) -> str:
    """What a run in a horizontal partition of these descriptions protects: a person
    where it does at every holder, else less.
    """
    units = {
        getattr(getattr(description, "schema", description), "unit", "person")
        for description in schemas.values()
    }
    less = units - {"person"}
    if not less:
        return "person"
    return less.pop() if len(less) == 1 else "row"


def distinct(parts: Mapping[str, AnySchema]) -> dict[str, AnySchema]:
    """One holder for each set of columns; whatever is no table stays as it is."""
    tables = TABLE.among(parts)
    first = {group[0] for group in Grid.from_schemas(tables).groups}
    return {
        name: part
        for name, part in parts.items()
        if name in first or name not in tables
    }


def side_by_side(parts: Mapping[str, AnySchema]) -> AnySchema | MixedSchema:
    """What parties' rows about the same people are together: one table where all have
    tables.
    """
    if len(parts) == 1:
        return next(iter(parts.values()))
    tables = TABLE.among(parts)
    return join(tables) if len(tables) == len(parts) else MixedSchema(parts=dict(parts))


def sizes_of(schema: PublicSchema | MixedSchema | SeveralVisits) -> tuple[int, ...]:
    """What a row has (`Kind.sizes`), part after part."""
    parts: Any = getattr(schema, "parts", (schema,))
    all_parts = parts.values() if isinstance(parts, Mapping) else parts
    return tuple(size for part in all_parts for size in kind_of(part).sizes(part))


def load_any(path: str | Path) -> PublicSchema | MixedSchema | SeveralVisits:
    """Read the schema of a generator, of whichever kind, from a .toml or .json file."""
    joint: dict[Any, type[MixedSchema] | type[SeveralVisits]] = {
        schema_class.kind: schema_class for schema_class in (MixedSchema, SeveralVisits)
    }

    def build(data: dict[str, Any]) -> PublicSchema | MixedSchema | SeveralVisits:
        kind = data.get("kind")
        return (
            joint[kind].from_dict(data)
            if isinstance(kind, str) and kind in joint
            else schema_from(data)
        )

    return read(path, build)


def _names(party: str, part: AnySchema) -> list[str]:
    return kind_of(part).names(part, party)
