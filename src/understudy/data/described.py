"""What is public about rows: tables, series, images, people with events (`data.kinds`); a file says its `kind`."""

from dataclasses import dataclass, field
from typing import Any

from understudy.data.arrays import ArraySchema as ArraySchema
from understudy.data.arrays import ArrayTable
from understudy.data.images import ImageSchema
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema
from understudy.data.table import Table
from understudy.data.visits import Visits, VisitSchema
from understudy.ground.errors import SchemaError

AnySchema = Schema | ArraySchema
Rows = Table | ArrayTable[SeriesSchema] | ArrayTable[ImageSchema]
PublicSchema = AnySchema | VisitSchema  # of whatever a holder may bring
AnyRows = Rows | Visits


@dataclass(frozen=True)
class NoRows:
    """In the place of rows, at a party that holds nobody: an aggregator of others' shares, or who collects them."""

    schema: AnySchema
    # of its own key, where that lasts longer than a run
    secret: bytes | None = field(default=None, repr=False)
    # that people put their uploads into, at a party that collects them
    box: Any = field(default=None, repr=False)
    rows = people = 0


def one_label(schema: Any, what: str) -> None:
    """SchemaError where rows have several columns of classes, and `what` learns one."""
    if len(names := [column.name for column in getattr(schema, "targets", ())]) > 1:
        raise SchemaError(
            f"{what} learns one column of classes, and the schema declares {' and '.join(names)}: leave one of them "
            "with label and classes, or use moments. Nothing was charged."
        )
