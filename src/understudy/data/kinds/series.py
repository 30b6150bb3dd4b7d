"""Series of one length, each a row."""

from dataclasses import replace
from typing import ClassVar

from understudy.data.arrays import ArrayTable
from understudy.data.kinds.arrays import ArrayKind
from understudy.data.series import SeriesSchema


class SeriesKind(ArrayKind[SeriesSchema]):
    name: ClassVar[str] = SeriesSchema.kind
    plural: ClassVar[str] = "series"
    nobody: ClassVar[str] = "Nobody's series is among them."

    def as_drawn(self, schema: SeriesSchema) -> SeriesSchema:
        """Series are whole."""
        series, time = schema.series or "series", schema.time or "time"
        return replace(schema, person=None, series=series, time=time, stride=None, windows_are_people=False)

    def names(self, schema: SeriesSchema, party: str) -> list[str]:
        return [f"{party}.{channel}.{step}" for step in range(schema.length) for channel in schema.names]


SERIES = SeriesKind(SeriesSchema, ArrayTable)
