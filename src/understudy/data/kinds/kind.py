"""What every kind of rows can do, and how one is told from another; tables, images and
series.

A schema says its kind (`schema.kind`). Whatever is done in another way for another kind
is a method of that kind's object, and nobody else asks which it is; layers above have
tables of their own by `kind.name`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.arrays import ArraySchema, ArrayTable
from understudy.data.column import Integer
from understudy.data.images import ImageSchema
from understudy.data.reading.judged import Violation
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema
from understudy.data.table import Table, check_table, open_table
from understudy.data.visits import Visits, VisitSchema
from understudy.ground.errors import Effect, PartyError, SchemaError

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import TypeIs

    from understudy.data.encoding.codec import Codec, Uniform

AnySchema = Schema | ArraySchema
Rows = Table | ArrayTable[SeriesSchema] | ArrayTable[ImageSchema]
PublicSchema = AnySchema | VisitSchema  # of whatever a holder may bring
AnyRows = Rows | Visits
S = TypeVar("S")
R = TypeVar("R")
_PLACE = "row"


@dataclass(frozen=True)
class NoRows:
    """In the place of rows, at a party that holds nobody: an aggregator of others'
    shares, or who collects them.
    """

    schema: AnySchema
    # of its own key, where that lasts longer than a run
    secret: bytes | None = field(default=None, repr=False)
    # that people put their uploads into, at a party that collects them
    box: Any = field(default=None, repr=False)
    rows = people = 0


def one_label(schema: Any, learner: str) -> None:
    """SchemaError where rows have several columns of classes, and `learner` learns
    one.
    """
    names = [column.name for column in getattr(schema, "targets", ())]
    if len(names) > 1:
        raise SchemaError(
            f"{learner} learns one column of classes, and the schema declares "
            f"{' and '.join(names)}: leave one of them "
            "with label and classes, or use moments.",
            effect=Effect.NOTHING_CHARGED,
        )


class Family(Generic[S, R]):
    """Schemas S and rows R that are told from all others: one kind, or several that are
    handled alike.
    """

    def __init__(self, schema: Any, rows: Any) -> None:
        self.schema = schema
        self.rows = rows

    def describes(self, schema: object) -> "TypeIs[S]":
        return isinstance(schema, self.schema)

    def holds(self, rows: object) -> "TypeIs[R]":
        return isinstance(rows, self.rows) and self.describes(rows.schema)

    def among(self, schemas: Mapping[str, Any]) -> dict[str, S]:
        return {
            name: schema for name, schema in schemas.items() if self.describes(schema)
        }


class Kind(Family[S, R], ABC):
    """One kind of rows that a holder may bring."""

    name: str  # as a schema says it
    plural: str = "rows"  # what such rows are called
    nobody: str = "These people do not exist."  # of those that are drawn

    @abstractmethod
    def read(
        self,
        source: Any,
        schema: S,
        name: str | None = None,
        *,
        one_row_each: bool = True,
    ) -> R:
        """Rows from wherever they lie, checked against the schema."""

    def check(self, source: Any, schema: S) -> tuple[list[Violation], list[str]]:
        """What keeps rows from fitting, and what is worth saying, for their holder;
        else the first → SchemaError.
        """
        self.read(source, schema)
        return [], []

    @abstractmethod
    def roster(self, rows: R, *, several: bool = False) -> Table:
        """Who has a row, as a table of places that is aligned; of a table itself.
        `several`: a person may have more than one series or image, and a place is that
        of the person among those who have any. Guarantee: nobody has two places, so
        that a place is no less than a person. Edges: without `several` such a person →
        PartyError, since a row would then be less than a person.
        """

    @abstractmethod
    def sizes(self, schema: S) -> tuple[int, ...]:
        """What a row has: the levels of each column of a table, the sides of series and
        images.
        """

    @abstractmethod
    def made_up(self, schema: S, people: int, canary: int | None = 0) -> R:
        """People, each with one row: all alike but one, if there is one, who differs
        from the others in everything.
        """


class Flat(Kind[S, R]):
    """A kind in which a row is as many numbers as any other."""

    def shape(self, schema: S) -> tuple[int, ...]:
        return self.sizes(schema)

    def width(self, schema: S) -> int:
        return math.prod(self.shape(schema))

    @abstractmethod
    def encode(self, rows: R, aligned: Table, device: Any = "cpu") -> "Tensor":
        """The rows that are left of the roster after alignment, in its order, as
        numbers in [0, 1]: (people, width).
        """

    @abstractmethod
    def decode(
        self, schema: S, numbers: "Tensor", rng: "Uniform", draw: str
    ) -> pd.DataFrame | NDArray[Any]:
        """A frame of a table, an (n, *shape) array of series or images; `draw` is as of
        `Generator.sample`.
        """

    @abstractmethod
    def names(self, schema: S, party: str) -> list[str]:
        """The columns of a row beside those of other parties."""


def placed(people: NDArray[Any], person: str | None, source: str) -> Table:
    """A roster: these ids, with their places."""
    frame = pd.DataFrame({_PLACE: np.arange(len(people))})
    if person is not None:
        frame.insert(0, person, people)
    position = Integer(name=_PLACE, low=0, high=len(people), bins=1)
    return Table(
        frame=frame, schema=Schema(columns=(position,), person=person), source=source
    )


def places(aligned: Table) -> NDArray[np.int64]:
    """Of all but tables: which rows are left of the roster after alignment, in its
    order.
    """
    return np.asarray(aligned.frame[_PLACE].to_numpy(), dtype=np.int64)


class TableKind(Flat[Schema, Table]):
    name = Schema.kind

    def read(
        self,
        source: Any,
        schema: Schema,
        name: str | None = None,
        *,
        one_row_each: bool = True,
    ) -> Table:
        return open_table(source, schema, name, one_row_each=one_row_each)

    def check(self, source: Any, schema: Schema) -> tuple[list[Violation], list[str]]:
        return check_table(source, schema), []

    def roster(self, rows: Table, *, several: bool = False) -> Table:
        return rows

    def sizes(self, schema: Schema) -> tuple[int, ...]:
        return tuple(column.size for column in schema.columns)

    def shape(self, schema: Schema) -> tuple[int, ...]:
        return (sum(self.sizes(schema)),)

    def encode(self, rows: Table, aligned: Table, device: Any = "cpu") -> "Tensor":
        return _codec(rows.schema).encode(aligned.frame, device)

    def decode(
        self, schema: Schema, numbers: "Tensor", rng: "Uniform", draw: str
    ) -> pd.DataFrame:
        codec = _codec(schema)
        return codec.decode(
            codec.sample_codes(numbers, rng) if draw == "sample" else numbers, rng
        )

    def names(self, schema: Schema, party: str) -> list[str]:
        return list(schema.names)

    def made_up(self, schema: Schema, people: int, canary: int | None = 0) -> Table:
        is_canary = np.arange(people) == (-1 if canary is None else canary)
        codes = np.where(
            is_canary[:, None], np.array(self.sizes(schema), np.int32) - 1, np.int32(0)
        )
        made_up = schema if schema.person is None else schema.as_drawn()
        return Table(_codec(schema).decode(codes), made_up, "made-up rows")


def _codec(schema: Schema) -> "Codec":
    from understudy.data.encoding.codec import Codec  # which loads torch

    return Codec(schema)


TABLE = TableKind(Schema, Table)


A = TypeVar("A", bound=ArraySchema)
ARRAYS: Family[ArraySchema, ArrayTable[Any]] = Family(ArraySchema, ArrayTable)


class ArrayKind(Flat[A, ArrayTable[A]]):
    def __init__(self, schema: type[A], plural: str) -> None:
        super().__init__(schema, ArrayTable)
        self.name = schema.kind
        self.plural = plural
        self.nobody = f"Nobody's {schema.kind} is among them."

    def names(self, schema: A, party: str) -> list[str]:
        return [f"{party}.{name}" for name in schema.flat_names]

    def read(
        self,
        source: Any,
        schema: A,
        name: str | None = None,
        *,
        one_row_each: bool = True,
    ) -> ArrayTable[A]:
        return schema.read(source, name)

    def roster(self, rows: ArrayTable[A], *, several: bool = False) -> Table:
        if not several and (np.diff(rows.starts) > 1).any():
            raise PartyError(
                f"{rows.source} has {rows.rows:,} rows of {len(rows.ids):,} people, "
                "and where parties hold the same "
                "people each has one row of every person.",
                effect=Effect.NOTHING_CHARGED,
            )
        return placed(
            rows.ids[np.diff(rows.starts) > 0], rows.schema.person, rows.source
        )

    def sizes(self, schema: A) -> tuple[int, ...]:
        return schema.shape

    def encode(
        self, rows: ArrayTable[A], aligned: Table, device: Any = "cpu"
    ) -> "Tensor":
        from torch import from_numpy

        return from_numpy(rows.values[places(aligned)]).flatten(1).to(device)

    def decode(
        self, schema: A, numbers: "Tensor", rng: "Uniform", draw: str
    ) -> NDArray[Any]:
        return schema.unscaled(numbers.reshape(-1, *schema.shape).numpy())

    def made_up(self, schema: A, people: int, canary: int | None = 0) -> ArrayTable[A]:
        is_canary = np.arange(people) == (-1 if canary is None else canary)
        values = np.full((people, *schema.shape), 0.5, dtype=np.float32)
        values[is_canary] = 1.0
        classes = (
            np.where(is_canary, math.prod(schema.label_sizes) - 1, 0)
            if schema.targets
            else None
        )
        return ArrayTable(
            values,
            np.arange(people),
            np.arange(people + 1),
            schema,
            "made-up rows",
            classes,
        )


IMAGES = ArrayKind(ImageSchema, "images")
SERIES = ArrayKind(SeriesSchema, "series")
