"""What is public about rows, whatever they are: tables, series, images, or people with many events.

A schema file says its kind at the top: `kind = "series"`, `"image"` or `"visits"`; without one it describes a table.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import pandas as pd

from understudy.data.arrays import ArrayTable
from understudy.data.document import read
from understudy.data.images import ImageSchema, read_images
from understudy.data.reading.files import Source
from understudy.data.reading.streamed import open_table
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema, read_series
from understudy.data.table import Table
from understudy.data.visits import TwoSources, Visits, VisitSchema, read_visits
from understudy.ground.check import nearest
from understudy.ground.errors import SchemaError

AnySchema = Schema | SeriesSchema | ImageSchema
ArraySchema = SeriesSchema | ImageSchema
Rows = Table | ArrayTable[SeriesSchema] | ArrayTable[ImageSchema]
PublicSchema = AnySchema | VisitSchema  # of whatever a holder may bring
AnyRows = Rows | Visits

KINDS: dict[str, type[SeriesSchema] | type[ImageSchema] | type[VisitSchema]] = {
    "series": SeriesSchema,
    "image": ImageSchema,
    "visits": VisitSchema,
}


def load_schema(path: str | Path) -> PublicSchema:
    """Read a schema of any kind from a .toml or .json file."""
    return read(path, schema_from)


def schema_from(data: dict[str, Any]) -> PublicSchema:
    """The schema that `to_dict` wrote down, of whichever kind."""
    if (kind := data.get("kind")) is None:
        return Schema.from_dict(data)
    if kind not in KINDS:
        raise SchemaError(
            f"kind must be {' or '.join(KINDS)}, or left out for a table, not {kind!r}.{nearest(kind, KINDS)}"
        )
    return KINDS[kind].from_dict(data)


def one_kind_of_row(schema: PublicSchema) -> AnySchema:
    """The schema, where people with many events are out of place. SchemaError where it describes these."""
    if isinstance(schema, VisitSchema):
        raise SchemaError(
            'this schema describes rows of the kind "visits", and one table, series or images are needed here.'
        )
    return schema


def public_of(schema: PublicSchema) -> dict[str, Any]:
    """What of a schema of images or series has to be alike at all holders: not how each reads its own file."""
    sizes = ("height", "width", "length", "channels")
    alike = ("kind", *sizes, "low", "high", "label", "classes", "labels", "norm")
    return {key: value for key, value in schema.to_dict().items() if key in alike}


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
    if isinstance(schema, VisitSchema):
        return read_visits(source, schema, name)
    if isinstance(source, Mapping) and not isinstance(source, pd.DataFrame):
        raise SchemaError('two tables are read by a schema of the kind "visits". Nothing was read.')
    if isinstance(schema, SeriesSchema):
        return read_series(source, schema, name)
    if isinstance(schema, ImageSchema):
        return read_images(source, schema, name)
    return open_table(source, schema, name, one_row_each=one_row_each)
