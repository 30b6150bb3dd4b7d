"""Images of one size and series of one length: a row is an array of numbers, by bounds that the schema declares."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.arrays import ArrayTable
from understudy.data.images import ImageSchema
from understudy.data.kinds.kind import Family, Flat, placed, places
from understudy.data.series import SeriesSchema
from understudy.data.table import Table
from understudy.ground.errors import PartyError

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.data.encoding.codec import Uniform
    from understudy.data.encoding.features import DeclaredFeatures, Values
    from understudy.data.encoding.population import Population

A = TypeVar("A", ImageSchema, SeriesSchema)
ARRAYS: Family[ImageSchema | SeriesSchema, ArrayTable[Any]] = Family(ImageSchema | SeriesSchema, ArrayTable)


class ArrayKind(Flat[A, ArrayTable[A]]):
    """Either of them."""

    def read(
        self, source: Any, schema: A, name: str | None = None, *, one_row_each: bool = True
    ) -> ArrayTable[A]:
        return schema.read(source, name)

    def roster(self, rows: ArrayTable[A], *, several: bool = False) -> Table:
        if not several and (np.diff(rows.starts) > 1).any():
            raise PartyError(
                f"{rows.source} has {rows.rows:,} rows of {len(rows.ids):,} people, and where parties hold the same "
                "people each has one row of every person. Nothing was charged."
            )
        return placed(rows.ids[np.diff(rows.starts) > 0], rows.schema.person, rows.source)

    def sizes(self, schema: A) -> tuple[int, ...]:
        return schema.shape

    def shape(self, schema: A) -> tuple[int, ...]:
        return schema.shape

    def encode(self, rows: ArrayTable[A], aligned: pd.DataFrame, device: Any = "cpu") -> "Tensor":
        from torch import from_numpy

        return from_numpy(rows.values[places(aligned)]).flatten(1).to(device)

    def decode(self, schema: A, numbers: "Tensor", rng: "Uniform", draw: str) -> NDArray[Any]:
        return schema.unscaled(numbers.reshape(-1, *schema.shape).numpy())

    def rule(self, schema: A) -> "Values":
        from understudy.data.encoding.features import Values

        return Values(schema)

    def features(self, schema: A, target: str | None) -> "DeclaredFeatures":
        from understudy.data.encoding.features import DeclaredFeatures

        return DeclaredFeatures(schema, target)

    def population(self, rows: ArrayTable[A]) -> "Population":
        from torch import from_numpy

        from understudy.data.encoding.population import Population

        rule = self.rule(rows.schema)
        return Population(rule, rows.ids, rule.rows(rows), rule.codes(rows), from_numpy(rows.starts))

    def made_up(self, schema: A, people: int, canary: int | None = 0) -> ArrayTable[A]:
        here = np.arange(people) == (-1 if canary is None else canary)
        values = np.full((people, *schema.shape), 0.5, dtype=np.float32)
        values[here] = 1.0
        classes = np.where(here, math.prod(schema.label_sizes) - 1, 0) if schema.targets else None
        return ArrayTable(values, np.arange(people), np.arange(people + 1), schema, "made-up rows", classes)


class ImageKind(ArrayKind[ImageSchema]):
    name: ClassVar[str] = ImageSchema.kind
    plural: ClassVar[str] = "images"
    nobody: ClassVar[str] = "Nobody's image is among them."

    def names(self, schema: ImageSchema, party: str) -> list[str]:
        return [f"{party}.{pixel}" for pixel in schema.names]


IMAGES = ImageKind(ImageSchema, ArrayTable)


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
