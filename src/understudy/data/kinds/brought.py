"""The kinds that a holder may bring. A new kind is a file beside this one, and a name here."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pandas as pd

from understudy.data.arrays import ArrayTable
from understudy.data.described import AnyRows, AnySchema, PublicSchema, Rows
from understudy.data.document import read
from understudy.data.kinds.images import IMAGES
from understudy.data.kinds.kind import Family, Flat, Kind
from understudy.data.kinds.series import SERIES
from understudy.data.kinds.table import TABLE
from understudy.data.kinds.visits import VISITS
from understudy.data.reading.files import Source
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.data.visits import TwoSources
from understudy.ground.check import nearest
from understudy.ground.errors import SchemaError

if TYPE_CHECKING:
    from understudy.data.encoding.population import Population

FLAT: Family[AnySchema, Rows] = Family(AnySchema, Table | ArrayTable)
BROUGHT: dict[str, Kind[Any, Any]] = {kind.name: kind for kind in (TABLE, SERIES, IMAGES, VISITS)}


@overload
def kind_of(schema: AnySchema) -> Flat[Any, Any]: ...


@overload
def kind_of(schema: PublicSchema) -> Kind[Any, Any]: ...


def kind_of(schema: PublicSchema) -> Kind[Any, Any]:
    """The kind of rows that the schema describes."""
    return BROUGHT[schema.kind]


def load_schema(path: str | Path) -> PublicSchema:
    """Read a schema of any kind from a .toml or .json file."""
    return read(path, schema_from)


def schema_from(data: dict[str, Any]) -> PublicSchema:
    """The schema that `to_dict` wrote down, of whichever kind."""
    if (kind := data.get("kind")) is None:
        return Schema.from_dict(data)
    said = [name for name in BROUGHT if name != TABLE.name]
    if kind not in said:
        raise SchemaError(
            f"kind must be {' or '.join(said)}, or left out for a table, not {kind!r}.{nearest(kind, said)}"
        )
    found: PublicSchema = BROUGHT[kind].schema.from_dict(data)
    return found


def one_kind_of_row(schema: PublicSchema) -> AnySchema:
    """The schema, where people with many events are out of place. SchemaError where it describes these."""
    if not FLAT.describes(schema):
        raise SchemaError(
            f'this schema describes rows of the kind "{schema.kind}", and one table, series or images are needed here.'
        )
    return schema


@overload
def read_rows(
    source: Source | TwoSources, schema: AnySchema, name: str | None = None, *, one_row_each: bool = True
) -> Rows: ...


@overload
def read_rows(
    source: Source | TwoSources, schema: PublicSchema, name: str | None = None, *, one_row_each: bool = True
) -> AnyRows: ...


def read_rows(
    source: Source | TwoSources, schema: PublicSchema, name: str | None = None, *, one_row_each: bool = True
) -> AnyRows:
    """Read rows of the schema's kind and check them."""
    several = isinstance(source, Mapping) and not isinstance(source, pd.DataFrame)
    if several and not VISITS.describes(schema):
        raise SchemaError('two tables are read by a schema of the kind "visits". Nothing was read.')
    rows: AnyRows = kind_of(schema).read(source, schema, name, one_row_each=one_row_each)
    return rows


def population_of(rows: "Rows | Population") -> "Population":
    """People, whose rows have no class; those who are people already as they are."""
    schema = getattr(rows, "schema", None)
    return rows if schema is None else kind_of(schema).population(rows)  # type: ignore[return-value]
