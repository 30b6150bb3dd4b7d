"""Series of several channels: what is public about them, and how tables of them are
read (docs/moments.md has the keys of a file). A row of the table is one step. Times are
numbers, or ISO dates and times, which count in seconds.

What is protected? The one whom `person` names, with all series and windows; without it
each series, with all its windows (overlapping windows share values, so they can never
be people of their own), who is one person where `rows_are_people = true` declares it;
and where the table names neither, it is one long series. `windows_are_people = true`
says otherwise, for windows that do not overlap: then a guarantee covers one window, a
stretch of time, and not the person behind all of them.

Guarantee: bounds, length and cuts are public; nothing is fitted on rows, so a channel
may as well never move.
Edges: a series of another length, a time that does not increase, a value outside its
bounds or missing → SchemaError that names the file, and the series or the row. A gap is
refused, or, where series are cut, no window goes across it; what is left of a stretch
after its last whole window is not used.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.array_folder import beside_readers, read_arrays
from understudy.data.arrays import ArraySchema, ArrayTable, Codes
from understudy.data.column import Categorical, Real
from understudy.data.encoding.values import Cells
from understudy.data.reading.cells import Fault, days, floats
from understudy.data.reading.files import Source
from understudy.data.reading.judged import Reader, cell_reader, id_reader, read_columns
from understudy.data.schema import each_by_itself
from understudy.ground.check import positive, repeated
from understudy.ground.errors import Effect, SchemaError

_MOST_VALUES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SeriesSchema(ArraySchema):
    """The channels, the length, and the columns that say which row belongs where."""

    kind: ClassVar[str] = "series"
    array: ClassVar[str] = "series"
    sides: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("length", "channels")
    channels: tuple[Real, ...]
    length: int
    series: str | None = None
    time: str | None = None
    step: float | None = None
    stride: int | None = None
    windows_are_people: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        self.settle()
        if not self.channels or not all(
            isinstance(channel, Real) for channel in self.channels
        ):
            raise SchemaError(
                "a series needs at least one channel, with the bounds low and high."
            )
        for name in ("series", "time", "person"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise SchemaError(f"{name} must name a column, not {value!r}.")
        columns = [
            *self.names,
            *filter(None, (self.person, *self._places)),
            *(target.name for target in self.targets),
        ]
        twice = repeated(columns)
        if twice:
            raise SchemaError(f'"{twice[0]}" has two meanings: every column has one.')
        for name, minimum in (("length", 2), ("stride", 1)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < minimum):
                raise SchemaError(
                    f"{name} must be a whole number of at least {minimum}, not "
                    f"{value!r}."
                )
        if self.length * len(self.channels) > _MOST_VALUES:
            raise SchemaError(
                f"a series has at most {_MOST_VALUES:,} values, not {self.length} × "
                f"{len(self.channels)}."
            )
        if self.step is not None:
            positive(step=self.step)
            if self.time is None:
                raise SchemaError(
                    "step is the distance of two times, and no column holds the time."
                )
        if not isinstance(self.windows_are_people, bool) or not isinstance(
            self.note, str
        ):
            raise SchemaError("windows_are_people is true or false, and note is text.")
        of_series = self.person or self.rows_are_people
        if self.windows_are_people and (
            of_series or (self.stride or self.length) < self.length
        ):
            raise SchemaError(
                "windows_are_people goes with windows that do not overlap (stride ≥ "
                "length), without a person and without rows_are_people."
            )

    @property
    def unit(self) -> str:
        return "window" if self.windows_are_people else super().unit

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    @property
    def shape(self) -> tuple[int, int]:
        return self.length, len(self.channels)

    @property
    def _places(self) -> tuple[str, str]:
        return self.series or "series", self.time or "time"

    @property
    def flat_names(self) -> list[str]:
        return [
            f"{channel}.{step}" for step in range(self.length) for channel in self.names
        ]

    def as_drawn(self) -> Self:
        series, time = self._places
        of_series = replace(
            self, series=series, time=time, stride=None, windows_are_people=False
        )
        return replace(of_series, person=None, rows_are_people=True)

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = np.array(
            [(channel.low, channel.high) for channel in self.channels]
        ).T
        return low, high

    def read(self, source: Any, name: str | None = None) -> "Series":
        return read_series(source, self, name)

    def where(self, position: tuple[int, ...], value: str) -> str:
        row, step, channel = position
        return (
            f'channel "{self.names[channel]}": {value} at step {step + 1} of series '
            f"{row + 1:,}"
        )

    def frame(
        self, values: NDArray[np.floating[Any]], classes: Codes | None = None
    ) -> pd.DataFrame:
        """A tidy table: series, time, channels, classes; a row for each step."""
        count, (length, width) = len(values), self.shape
        steps = (
            np.arange(length) if self.step is None else np.arange(length) * self.step
        )
        index_columns = np.repeat(np.arange(count), length), np.tile(steps, count)
        flat = self.unscaled(values).reshape(count * length, width)
        channels = {
            channel.name: _written(channel, flat[:, j])
            for j, channel in enumerate(self.channels)
        }
        frame = pd.DataFrame(
            dict(zip(self._places, index_columns, strict=True)) | channels
        )
        if classes is not None:
            for label, named in self.class_table(classes).items():
                frame[label] = np.repeat(named, length)
        return frame

    def to_dict(self) -> dict[str, Any]:
        defaults = {field.name: field.default for field in fields(self)}
        declared = {
            key: value
            for key, value in self.stated().items()
            if value not in (defaults[key], [])
        }
        del declared["channels"]  # which come last
        return (
            {"kind": self.kind}
            | declared
            | {
                "channels": {
                    channel.name: _stated(channel) for channel in self.channels
                }
            }
        )

    def __str__(self) -> str:
        width = max(map(len, self.names))
        head = (
            f"series of {self.length} steps, {len(self.channels)} channels, "
            f"{self.one_person}"
        )
        return "\n".join(
            (
                head,
                *(
                    f"  {c.name:<{width}}  {c.low:g} to {c.high:g}"
                    for c in self.channels
                ),
            )
        )

    @property
    def gap(self) -> str:
        """What is said of a step without a value."""
        cut = self.step is not None and self.stride is not None
        other = (
            "leave that row out: no window goes across it"
            if cut
            else "leave its whole series out"
        )
        return (
            f"has no value, and a series has one at every step: fill it in, or {other}."
        )

    @property
    def one_person(self) -> str:
        if self.windows_are_people:
            return "each window a person"
        if self.person is None and (self.series or self.stride is None):
            return each_by_itself("series", self.rows_are_people)
        if self.person is None:
            return "all rows one person"
        return f"person {self.person}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        channels = data.get("channels", {})
        if not isinstance(channels, Mapping):
            raise SchemaError("channels are names, each with low and high.")
        for name, bounds in channels.items():
            if not isinstance(bounds, Mapping) or bounds.keys() - {"decimals"} != {
                "low",
                "high",
            }:
                raise SchemaError(
                    f'channel "{name}" needs low and high, may have decimals, and has '
                    "nothing else."
                )
        declared = tuple(Real(name=name, **bounds) for name, bounds in channels.items())
        return super().from_dict(
            {**data, "channels": declared} if "channels" in data else data
        )


Series = ArrayTable[SeriesSchema]


def _stated(channel: Real) -> dict[str, Any]:
    stated: dict[str, Any] = {"low": channel.low, "high": channel.high}
    if channel.decimals is not None:
        stated["decimals"] = channel.decimals
    return stated


def _written(
    channel: Real, values: NDArray[np.floating[Any]]
) -> NDArray[np.floating[Any]]:
    """Values with the channel's decimals, the nearest of those that lie within its
    bounds.
    """
    if channel.decimals is None:
        return values
    unit = 10.0**channel.decimals
    steps = np.rint(values.astype(np.float64) * unit)
    return np.asarray(
        steps.clip(math.ceil(channel.low * unit), math.floor(channel.high * unit))
        / unit
    )


def read_series(
    source: Source | NDArray[Any], schema: SeriesSchema, name: str | None = None
) -> Series:
    """Read a .csv, .csv.gz or .parquet file, or a DataFrame, and check every cell
    against the schema; or an array (series, steps, channels) that is cut already, or
    what holds such arrays. Edges: windows of arrays whose persons nobody names →
    SchemaError, as one series may have several of them.
    """
    arrays = read_arrays(source, schema, name)
    if arrays is not None:
        if (
            schema.stride is not None
            and schema.person is None
            and not schema.windows_are_people
        ):
            raise SchemaError(
                "an array does not say which windows are of one series, and so of one "
                "person: the schema has to name "
                "the person, or windows_are_people.",
                effect=Effect.NOTHING_CHARGED,
            )
        return arrays
    if schema.series is None and schema.person is None and schema.stride is None:
        raise SchemaError(
            "without a series column, rows are one long series to be cut into "
            "windows: say its stride."
        )
    readers = {
        channel.name: cell_reader(channel, schema.gap) for channel in schema.channels
    } | beside_readers(schema)
    if schema.series is not None:
        readers[schema.series] = id_reader(schema.series, one_row_each=False)
    if schema.time is not None:
        readers[schema.time] = Reader(True, partial(_read_times, schema.time))
    assert not isinstance(source, np.ndarray)  # which is read above
    raw, cells = read_columns(source, readers, name)
    rows = _Rows.in_order(schema, cells, raw.name)
    first = rows.windows()
    # (windows, L): rows of the table
    steps = rows.order[first[:, None] + np.arange(schema.length)]
    values = np.stack([cells[channel].to_numpy() for channel in schema.names], axis=1)[
        steps
    ]
    owner, ids = rows.people(cells, first)
    codes = [
        rows.classes(target, cells[target.name], steps, first)
        for target in schema.targets
    ]
    classes = schema.combined(codes) if codes else None
    return Series.grouped(
        schema.scaled(values, raw.name), owner, ids, schema, raw.name, classes
    )


@dataclass(frozen=True, kw_only=True)
class _Rows:
    schema: SeriesSchema
    source: str
    order: NDArray[np.intp]  # the rows of the table
    series: NDArray[np.intp]  # which series each is of, (rows,), in that order
    ids: NDArray[Any]  # the ids of the series
    # true where a new stretch begins: a series, or what follows a gap
    fresh: NDArray[np.bool_]

    @classmethod
    def in_order(
        cls, schema: SeriesSchema, cells: Mapping[str, Cells], source: str
    ) -> Self:
        count = len(cells[schema.names[0]])
        # Without a series column, a person's rows are one long series.
        column = schema.series or schema.person
        which, ids = pd.factorize(
            cells[column] if column else np.zeros(count, dtype=np.int64)
        )
        order = np.argsort(which, kind="stable")
        series = which[order]
        fresh = np.concatenate([[True], series[1:] != series[:-1]])
        rows = cls(
            schema=schema,
            source=source,
            order=order,
            series=series,
            ids=np.asarray(ids),
            fresh=fresh,
        )
        if schema.time is not None:
            rows.mark_gaps(cells[schema.time].to_numpy()[order])
        return rows

    def mark_gaps(self, times: NDArray[np.float64]) -> None:
        """See that time increases, and begin a stretch after each gap."""
        distance = np.diff(times, prepend=times[0])
        distance[self.fresh] = self.schema.step or 1
        back = ~(distance > 0)
        if back.any():
            raise self.error(int(back.argmax()), "the time does not increase")
        if self.schema.step is None:
            return
        gaps = np.abs(distance - self.schema.step) > 1e-6 * self.schema.step
        if gaps.any() and self.schema.stride is None:
            position = int(gaps.argmax())
            raise self.error(
                position,
                f"a step of {distance[position]:g} instead of {self.schema.step:g}, so "
                "there is a gap",
            )
        self.fresh[gaps] = True

    def windows(self) -> NDArray[np.intp]:
        """In the order of `order`: (windows,)."""
        starts = np.flatnonzero(self.fresh)
        length = self.schema.length
        stride = self.schema.stride
        sizes = np.diff(np.append(starts, len(self.order)))
        if stride is None:
            wrong = sizes != length
            if wrong.any():
                index = int(wrong.argmax())
                raise self.error(
                    int(starts[index]),
                    f"it has {sizes[index]:,} steps, and the schema says {length:,}",
                    row=False,
                )
            return starts
        counts = np.maximum(0, (sizes - length) // stride + 1)
        if not counts.any():
            raise SchemaError(
                f"{self.source}: no stretch without a gap has {length:,} steps; the "
                f"longest has {sizes.max():,}.",
                effect=Effect.NOTHING_READ_FURTHER,
            )
        ends = np.cumsum(counts)
        # 0, 1, 2, … in each stretch
        number = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        return np.asarray(np.repeat(starts, counts) + stride * number)

    def people(
        self, cells: Mapping[str, Cells], first: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Whose each window is, as a place among the ids of all people, also of those
        without a window.
        """
        if self.schema.windows_are_people:
            return np.arange(len(first)), np.arange(len(first))
        if self.schema.person is None or self.schema.series is None:
            return self.series[first], self.ids
        person_of_row, ids = pd.factorize(cells[self.schema.person])
        person_of_row = person_of_row[self.order]
        other = (person_of_row[1:] != person_of_row[:-1]) & (
            self.series[1:] == self.series[:-1]
        )
        if other.any():
            raise self.error(int(other.argmax()) + 1, "it changes the person")
        return person_of_row[first], np.asarray(ids)

    def classes(
        self,
        target: Categorical,
        cells: Cells,
        steps: NDArray[np.intp],
        first: NDArray[np.intp],
    ) -> Codes:
        """The class of each window in one column, as a place among the declared
        ones.
        """
        # (windows, L)
        codes = pd.Index(target.categories).get_indexer(pd.Index(cells.to_numpy()))[
            steps
        ]
        other = (codes != codes[:, :1]).any(1)
        if other.any():
            raise self.error(
                int(first[other.argmax()]), f"{target.name} changes within one window"
            )
        return np.asarray(codes[:, 0], dtype=np.int64)

    def error(self, position: int, problem: str, *, row: bool = True) -> SchemaError:
        where = f" at row {self.order[position] + 1:,}" if row else ""
        return SchemaError(
            f'{self.source}, series "{self.ids[self.series[position]]}"{where}: '
            f"{problem}.",
            effect=Effect.NOTHING_READ_FURTHER,
        )


def _read_times(
    name: str, cells: Cells, numbers: NDArray[np.int64]
) -> tuple[Cells, list[Fault]]:
    """Times as numbers: as they are, or seconds since 1970 where they are dates."""
    if cells.dtype.kind == "M":
        stamps = cells if cells.dt.tz is None else cells.dt.tz_convert(None)
        times = days(stamps) * 86400
    else:
        times = min(
            (floats(cells), days(cells) * 86400),
            key=lambda read: int(np.isnan(read).sum()),
        )
    wrong = ~np.isfinite(times)
    if not wrong.any():
        return pd.Series(times), []
    reason = "is neither a number nor an ISO date or time."
    return cells, [
        Fault(
            column=name,
            rows=numbers[wrong],
            values=cells[wrong].to_numpy(),
            reason=reason,
        )
    ]
