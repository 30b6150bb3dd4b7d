"""What is public about rows, whatever they are: tables, series or images.

A schema file says its kind at the top: `kind = "series"` or `kind = "image"`; without one it describes a table.
"""

from pathlib import Path
from typing import Any

from understudy.check import nearest
from understudy.data.arrays import ArrayTable
from understudy.data.document import read
from understudy.data.files import Source
from understudy.data.images import ImageSchema, read_images
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema, read_series
from understudy.data.table import Table, read_table
from understudy.errors import SchemaError

AnySchema = Schema | SeriesSchema | ImageSchema
ArraySchema = SeriesSchema | ImageSchema
Rows = Table | ArrayTable[SeriesSchema] | ArrayTable[ImageSchema]

KINDS: dict[str, type[SeriesSchema] | type[ImageSchema]] = {"series": SeriesSchema, "image": ImageSchema}


def load_schema(path: str | Path) -> AnySchema:
    """Read a schema of any kind from a .toml or .json file."""
    return read(path, schema_from)


def schema_from(data: dict[str, Any]) -> AnySchema:
    """The schema that `to_dict` wrote down, of whichever kind."""
    if (kind := data.get("kind")) is None:
        return Schema.from_dict(data)
    if kind not in KINDS:
        raise SchemaError(
            f"kind must be {' or '.join(KINDS)}, or left out for a table, not {kind!r}.{nearest(kind, KINDS)}"
        )
    return KINDS[kind].from_dict(data)


def read_rows(
    source: Source, schema: AnySchema, name: str | None = None, *, one_row_each: bool = True
) -> Rows:
    """Read rows of the schema's kind and check them."""
    if isinstance(schema, SeriesSchema):
        return read_series(source, schema, name)
    if isinstance(schema, ImageSchema):
        return read_images(source, schema, name)
    return read_table(source, schema, name, one_row_each=one_row_each)
