"""Rows to levels and back, by the public schema (`Codec`), or by levels that were
bought (`Levels`): nothing is fitted.

A row becomes one code per column (which level), or a one-hot vector: a block per
column, side by side, the last slot of a nullable one for "missing". Decoding draws a
number or a day evenly inside its bin: encode ∘ decode ∘ encode = encode.

Bought levels have two resolutions (`data.encoding.fine`): rows are encoded by level,
and a drawn level becomes a value by the released fine table within it: a number that
many share where one was read, or one that ends as the table of `ends` says. So a column
by itself is right to its fine cells, however few levels its pairs are measured on;
where a few cells have everybody, it follows a law within these.

Guarantee: the encoding of a row depends on that row and the schema alone, so encoding
costs no privacy and one person moves only the person's own rows. Bought levels, and
their weights, come from what was released.
Edges: a value outside the declared domain, or missing where none may be, is an error;
columns that the schema does not know, and what is finer than a day or a time's
resolution, are dropped. Levels of no weight are drawn evenly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Binned, Categorical, Integer, shorten
from understudy.data.encoding.fine import (
    end_cells,
    fine_schema,
    is_bought,
    is_tree,
    may_spike,
    moved_to_ends,
)
from understudy.data.encoding.values import (
    Cells,
    Floats,
    Pieces,
    codes_of,
    cut,
    labels_of,
    values_of,
)
from understudy.data.encoding.values import Codes as Codes
from understudy.data.schema import Schema
from understudy.ground.errors import Effect, SchemaError

if TYPE_CHECKING:
    from understudy.data.reading.judged import Batch

MOST_SPIKES = 224  # numbers of a column that many share (`models.tables.spikes`)
# numbers of the law of a narrow column: of four cells, 257 each
# (`models.tables.narrow_columns`)
MOST_INNER = 1028


class Uniform(Protocol):
    """A source of numbers in [0, 1): all that decoding needs of a random generator."""

    def uniform(self, *shape: int) -> Tensor: ...


@dataclass(frozen=True)
class Codec:
    schema: Schema

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Levels per column, the missing one included."""
        return tuple(column.size for column in self.schema.columns)

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where each column lies in a one-hot row."""
        return tuple(
            slice(a, b) for a, b in pairwise(accumulate(self.sizes, initial=0))
        )

    @cached_property
    def width(self) -> int:
        return sum(self.sizes)

    def codes(self, frame: "pd.DataFrame | Batch") -> Codes:
        """The level of every cell, (rows, columns); of many rows, one column lies after
        the other.
        """
        codes = self._by_column(frame).T
        return np.ascontiguousarray(codes) if isinstance(frame, pd.DataFrame) else codes

    def _by_column(self, frame: "pd.DataFrame | Batch") -> Codes:
        """The same, (columns, rows): one column after the other is quick to write."""
        absent = [name for name in self.schema.names if name not in frame.columns]
        if absent:
            raise SchemaError(
                f'the table has no column "{absent[0]}".',
                effect=Effect.NOTHING_COMPUTED,
            )
        codes = np.empty((len(self.sizes), len(frame)), dtype=np.int32)
        for j, column in enumerate(self.schema.columns):
            if isinstance(frame, pd.DataFrame):
                codes[j] = codes_of(column, frame[column.name])
            else:
                codes[j] = frame.codes(column)
        return codes

    def known_levels(self, j: int, values: Cells) -> Codes:
        """The level of every value of column `j`, −1 where it is missing, whether or
        not it may be.
        """
        column = replace(self.schema.columns[j], nullable=True)
        codes = codes_of(column, values)
        return np.where(codes == column.levels, np.int32(-1), codes)

    def pieces(self, j: int, cuts: Iterable[float] = ()) -> Pieces:
        """The levels of column `j`, cut at these places besides."""
        return cut(self.schema.columns[j], cuts)

    def cells(self, j: int) -> Pieces:
        return self.pieces(j)

    def labels(self, j: int) -> list[Any]:
        return labels_of(self.schema.columns[j])

    def encode(self, frame: pd.DataFrame, device: torch.device | str = "cpu") -> Tensor:
        if torch.device(device).type == "cpu":
            return self.one_hot(self.codes(frame))
        # a view, which a GPU turns faster
        return self.one_hot(self._by_column(frame).T, device)

    def one_hot(
        self,
        codes: Codes | Tensor,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Codes as one-hot vectors, float32, (rows, width)."""
        codes = self._checked(_array(codes))
        starts = torch.tensor([block.start for block in self.blocks], device=device)
        slots = torch.from_numpy(codes).to(device) + starts  # (n, m), int64
        return torch.zeros(len(codes), self.width, device=device).scatter_(
            1,
            slots,
            1.0,
        )

    def decode(
        self,
        values: Codes | Tensor,
        rng: Uniform | None = None,
    ) -> pd.DataFrame:
        """A table from codes (integers) or from one-hot or probability rows (floats, by
        the largest slot). With `rng` a binned value is drawn evenly inside its bin;
        without, it is the middle of the bin.
        """
        array = _array(values)
        codes = (
            self._checked(array) if array.dtype.kind in "iu" else self._largest(array)
        )
        binned = [isinstance(column, Binned) for column in self.schema.columns]
        inside = np.full(codes.shape, 0.5)
        if rng is not None and any(binned):
            inside[:, binned] = rng.uniform(len(codes), sum(binned)).cpu().numpy()
        every = enumerate(self.schema.columns)
        return pd.DataFrame(
            {
                column.name: values_of(column, codes[:, j], inside[:, j])
                for j, column in every
            }
        )

    def sample_codes(
        self,
        probabilities: NDArray[np.floating] | Tensor,
        rng: Uniform,
    ) -> Codes:
        """One level per column by the weights in its block, which need not sum to 1;
        never one of weight 0.
        """
        rows = self._rows(_array(probabilities))
        if (rows < 0).any():
            raise SchemaError(
                "a probability is below 0.",
                effect=Effect.NOTHING_SAMPLED,
            )
        draws = rng.uniform(len(rows), len(self.blocks)).cpu().numpy()
        codes = np.empty((len(rows), len(self.blocks)), dtype=np.int32)
        for j, block in enumerate(self.blocks):
            heap = np.cumsum(rows[:, block], axis=1, dtype=np.float64)  # (n, size)
            total = heap[:, -1:]
            if not (total > 0).all():
                raise self.schema.columns[j].error(
                    "all probabilities of a row are 0.",
                    effect=Effect.NOTHING_SAMPLED,
                )
            # Rounding could lift draw · total up to total, and so past the last slot.
            target = np.minimum(draws[:, j : j + 1] * total, np.nextafter(total, 0))
            codes[:, j] = (heap <= target).sum(axis=1)
        return codes

    def _largest(self, rows: NDArray[np.floating]) -> Codes:
        rows = self._rows(rows)
        return np.stack(
            [rows[:, block].argmax(axis=1) for block in self.blocks],
            axis=1,
        ).astype(np.int32)

    def _rows(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise SchemaError(
                f"encoded rows have the shape (rows, {self.width}), not {rows.shape}."
            )
        if not np.isfinite(rows).all():
            raise SchemaError(
                "an encoded row holds a value that is not finite.",
                effect=Effect.NOTHING_COMPUTED,
            )
        return rows

    def _checked(self, codes: NDArray[np.integer]) -> Codes:
        if (
            codes.dtype.kind not in "iu"
            or codes.ndim != 2
            or codes.shape[1] != len(self.sizes)
        ):
            shape = f"(rows, {len(self.sizes)})"
            raise SchemaError(
                f"codes are integers of the shape {shape}, not {codes.dtype} "
                f"{codes.shape}."
            )
        low = codes.min(axis=0, initial=0)
        high = codes.max(axis=0, initial=0)
        wrong = (low < 0) | (high >= self.sizes)
        if wrong.any():
            column = self.schema.columns[int(wrong.argmax())]
            raise column.error(f"a code lies outside its {column.size} levels.")
        return codes.astype(np.int32, copy=False)


def _array(values: NDArray[Any] | Tensor) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a table's columns: for each column the level of every fine cell,
    and the cell's weight. Cells are those of `fine_schema`, in order, the missing one
    last where a column is nullable. Where there are some: `ends`, people by end;
    `spikes` (numbers, 3), a fine cell, a number that many share, the share of the cell
    up to it; `inner` (numbers, 2), of a column whose people are in a few cells, numbers
    that rise, and the share of people below each.
    """

    schema: Schema
    groups: Sequence[NDArray[np.int32]]
    weights: Sequence[Floats]
    ends: Mapping[int, Floats] = field(default_factory=dict)
    spikes: Mapping[int, Floats] = field(default_factory=dict)
    inner: Mapping[int, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = self.fine.sizes
        if len(self.groups) != len(sizes) or len(self.weights) != len(sizes):
            raise SchemaError(
                f"levels of {len(self.groups)} columns do not fit a table of "
                f"{len(sizes)}."
            )
        for column, cells, group, weight in zip(
            self.schema.columns,
            sizes,
            self.groups,
            self.weights,
            strict=True,
        ):
            if group.shape != (cells,) or weight.shape != (cells,):
                raise column.error(f"its levels are not for its {cells:,} fine cells.")
            level_numbers = np.unique(group)
            if not np.array_equal(level_numbers, np.arange(len(level_numbers))):
                raise column.error(
                    "its levels are not numbered from 0, each with a cell."
                )
            if not is_bought(column) and not np.array_equal(group, np.arange(cells)):
                raise column.error(
                    "its levels are declared, and none are to be merged."
                )
            if not (np.isfinite(weight).all() and (weight >= 0).all()):
                raise column.error("a weight of a fine cell is below 0 or not finite.")
        for j, table in self.ends.items():
            n_ends = end_cells(self.schema.columns[j])
            if (
                table.shape != (n_ends,)
                or not (table >= 0).all()
                or not np.isfinite(table.sum())
            ):
                raise self.schema.columns[j].error(
                    "its ends are not as many as declared, below 0 or not finite."
                )
        for j, spikes in self.spikes.items():
            column, (cells, numbers, up_to) = self.fine.schema.columns[j], spikes.T
            good = (
                len(cells)
                and (np.diff(cells + up_to) >= 0).all()
                and ((up_to >= 0) & (up_to <= 1)).all()
            )
            if not good or not np.array_equal(
                codes_of(column, pd.Series(numbers)),
                cells,
            ):
                raise column.error(
                    "its numbers that many share are not in their cells, or not of "
                    "their people."
                )
        for j, law in self.inner.items():
            column, (numbers, below) = self.fine.schema.columns[j], law.T
            good = (
                isinstance(column, Binned)
                and column.edges[0] <= numbers[0]
                and numbers[-1] <= column.edges[-1]
                and (np.diff(numbers) > 0).all()
                and (np.diff(below) >= 0).all()
                and (below[0], below[-1]) == (0, 1)
            )
            if not good:
                raise column.error(
                    "its law within its cells does not rise between its bounds."
                )

    @cached_property
    def fine(self) -> Codec:
        return Codec(fine_schema(self.schema))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(int(group.max()) + 1 for group in self.groups)

    @cached_property
    def slots(self) -> Codec:
        """The same levels as those of categories, for one-hot rows and for drawing."""
        columns = zip(self.schema.names, self.sizes, strict=True)
        return Codec(
            Schema(
                columns=tuple(
                    Categorical(name=n, categories=tuple(range(size)))
                    for n, size in columns
                )
            )
        )

    def codes(self, frame: pd.DataFrame) -> Codes:
        return merged(self.fine.codes(frame), self.groups)

    def sample_codes(
        self,
        probabilities: NDArray[np.floating] | Tensor,
        rng: Uniform,
    ) -> Codes:
        return self.slots.sample_codes(probabilities, rng)

    def decode(self, values: Codes | Tensor, rng: Uniform) -> pd.DataFrame:
        """As `Codec.decode`; in each level a fine cell is drawn by weight, and a value
        evenly inside that.
        """
        codes = self.slots.decode(values).to_numpy(np.int32)
        draws = rng.uniform(*codes.shape).cpu().numpy()
        cells = np.empty_like(codes)
        for j in range(len(self.groups)):
            cells[:, j] = self._cells(j, codes[:, j], draws[:, j])
        frame = self.fine.decode(cells, rng)
        for j, table in self.ends.items():
            name = self.schema.names[j]
            draws = rng.uniform(len(frame)).cpu().numpy()
            ends_of_column = (
                self.fine.schema.columns[j],
                self.groups[j],
                self.weights[j],
            )
            frame[name] = moved_to_ends(
                *ends_of_column,
                table,
                frame[name],
                cells[:, j],
                draws,
            )
        for j in self.inner:
            name = self.schema.names[j]
            draws = rng.uniform(len(frame)).cpu().numpy()
            frame[name] = self._within_cells(j, frame[name], cells[:, j], draws)
        for j, spikes in self.spikes.items():
            name = self.schema.names[j]
            draws = rng.uniform(len(frame)).cpu().numpy()
            up_to = spikes[:, 0] + spikes[:, 2]
            position = cells[:, j] + draws
            atom = np.searchsorted(up_to[:-1], position, side="right")
            shared = (spikes[atom, 0] == cells[:, j]) & (position < up_to[atom])
            numbers = spikes[atom, 1]
            if isinstance(self.schema.columns[j], Integer):
                numbers = np.rint(numbers).astype(np.int64)
            frame[name] = frame[name].mask(shared, numbers)
        return frame

    def _within_cells(
        self,
        j: int,
        values: Cells,
        cells: Codes,
        draws: Floats,
    ) -> Cells:
        """Values of a narrow column, drawn within their cells by its law."""
        pieces = self._inner_pieces(j, ())
        begins = np.searchsorted(pieces.level, np.arange(self.fine.sizes[j] + 1))
        below = np.append(0.0, np.cumsum(pieces.share))
        low = below[begins[cells]]
        high = below[begins[cells + 1]]
        target = np.minimum(low + draws * (high - low), np.nextafter(high, low))
        at = np.searchsorted(below, target, side="right") - 1
        inside = np.clip((target - below[at]) / pieces.share[at], 0, 1 - 2.0**-40)
        return pieces.values(at, inside).set_axis(values.index)

    def _inner_pieces(self, j: int, cuts: Iterable[float]) -> Pieces:
        """The fine cells of a narrow column, cut where its law says how many people are
        below, each with its share of its cell.
        """
        numbers, below = self.inner[j].T
        pieces = self.fine.pieces(j, (*cuts, *numbers.tolist()))
        assert pieces.edges is not None
        people = np.diff(np.interp(pieces.edges, numbers, below))
        people = np.append(people, np.zeros(len(pieces.level) - len(people)))
        in_cell = np.bincount(pieces.level, people, self.fine.sizes[j])[pieces.level]
        share = np.where(
            in_cell > 0, people / np.where(in_cell > 0, in_cell, 1), pieces.share
        )
        return replace(pieces, share=share)

    def _cells(
        self,
        column: int,
        levels: NDArray[np.int32],
        draws: Floats,
    ) -> NDArray[np.int64]:
        """A fine cell of each level, by inversion: the draws pick a place in the
        level's own heap of weights.
        """
        group = self.groups[column]
        size = np.bincount(self.groups[column])
        order = np.argsort(group, kind="stable")  # cells, level by level
        cumulative = np.cumsum(self._shares(column)[order])
        starts = np.cumsum(size) - size
        below = np.concatenate([[0.0], cumulative])[starts]
        above = cumulative[starts + size - 1]
        target = below[levels] + draws * (above - below)[levels]
        position = np.searchsorted(cumulative, target, side="right")
        position = np.clip(position, starts[levels], (starts + size - 1)[levels])
        return np.asarray(order[position])

    def _shares(self, column: int) -> Floats:
        """Each fine cell's share of its level."""
        group = self.groups[column]
        weight = self.weights[column]
        level_weight = np.bincount(group, weights=weight)
        size = np.bincount(group)
        weighted = level_weight > 0
        return np.where(
            weighted[group],
            weight / np.where(weighted, level_weight, 1.0)[group],
            1 / size[group],
        )

    # What questions need of it (`answers`)

    def known_levels(self, j: int, values: Cells) -> Codes:
        cells = self.fine.known_levels(j, values)
        return np.where(cells < 0, np.int32(-1), self.groups[j][cells])

    def pieces(self, j: int, cuts: Iterable[float] = ()) -> Pieces:
        """The fine cells of column `j`, cut at these places besides, each with its
        share of its level; those of a narrow column by its law.
        """
        is_narrow = j in self.inner
        fine = self._inner_pieces(j, cuts) if is_narrow else self.fine.pieces(j, cuts)
        return self._in_levels(j, fine)

    def cells(self, j: int) -> Pieces:
        """The fine cells of column `j` as they are counted, each with its share of its
        level.
        """
        return self._in_levels(j, self.fine.pieces(j))

    def _in_levels(self, j: int, fine: Pieces) -> Pieces:
        return replace(
            fine,
            level=self.groups[j][fine.level],
            share=fine.share * self._shares(j)[fine.level],
        )

    def labels(self, j: int) -> list[Any]:
        """What stands for each level of column `j` in a table of answers: a value, a
        bin, or the first and the last.
        """
        fine_labels = self.fine.labels(j)
        ordered = is_tree(self.schema.columns[j])
        labels: list[Any] = []
        for level in range(self.sizes[j]):
            cells = [
                fine_labels[cell] for cell in np.flatnonzero(self.groups[j] == level)
            ]
            several = (
                f"{cells[0]} … {cells[-1]}" if ordered else shorten(cells, limit=2)
            )
            labels.append(cells[0] if len(cells) == 1 else several)
        return labels

    def tensors(self) -> dict[str, Tensor]:
        """All of it as tensors, by column number; `from_tensors` reads them."""
        levels = {
            f"level.{j}": torch.from_numpy(group) for j, group in enumerate(self.groups)
        }
        levels |= {
            f"weight.{j}": torch.from_numpy(weight)
            for j, weight in enumerate(self.weights)
        }
        levels |= {
            f"end.{j}": torch.from_numpy(table) for j, table in self.ends.items()
        }
        levels |= {
            f"inner.{j}": torch.from_numpy(table) for j, table in self.inner.items()
        }
        return levels | {
            f"spike.{j}": torch.from_numpy(table) for j, table in self.spikes.items()
        }

    @classmethod
    def from_tensors(cls, schema: Schema, tensors: Mapping[str, Any]) -> "Levels":
        """The inverse of `tensors`. Edges: anything else → SchemaError."""
        shapes = {
            n: (getattr(v, "dtype", None), tuple(getattr(v, "shape", ())))
            for n, v in tensors.items()
        }
        if shapes != level_shapes(schema, shapes):
            raise SchemaError("the levels are not those of the schema.")
        columns = range(len(schema.columns))
        groups, weights = (
            [tensors[f"{kind}.{j}"].numpy() for j in columns]
            for kind in ("level", "weight")
        )
        ends = {j: tensors[f"end.{j}"].numpy() for j in columns if f"end.{j}" in shapes}
        spikes, inner = (
            {
                j: tensors[f"{kind}.{j}"].numpy()
                for j in columns
                if f"{kind}.{j}" in shapes
            }
            for kind in ("spike", "inner")
        )
        return cls(schema, groups, weights, ends, spikes, inner)


def level_shapes(
    schema: Schema,
    shapes_given: Mapping[str, Any],
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """What `Levels.tensors` has of a table with this schema: each tensor's dtype and
    shape; atoms as many as `shapes_given` has, from 1 to `MOST_SPIKES`, and numbers of
    a narrow column, from 2 to `MOST_INNER`.
    """
    shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    for j, (column, size) in enumerate(
        zip(schema.columns, Codec(fine_schema(schema)).sizes, strict=True)
    ):
        shapes |= {
            f"level.{j}": (torch.int32, (size,)),
            f"weight.{j}": (torch.float64, (size,)),
        }
        shapes |= {
            f"end.{j}": (torch.float64, (ends,)) for ends in [end_cells(column)] if ends
        }
        read_within = (("spike", 1, MOST_SPIKES, 3), ("inner", 2, MOST_INNER, 2))
        for kind, fewest, most, width in read_within:
            name = f"{kind}.{j}"
            if name in shapes_given and may_spike(column):
                rows = max((fewest, *shapes_given[name][1][:1]))
                shapes[name] = (torch.float64, (min(rows, most), width))
    return shapes


def merged(cells: Codes, groups: Sequence[NDArray[np.int32]]) -> Codes:
    """The levels of fine cells: (rows, columns) → (rows, columns)."""
    levels = np.empty((len(groups), len(cells)), dtype=np.int32)
    for j, group in enumerate(groups):
        np.take(group, cells[:, j], out=levels[j])
    return levels.T


def bought_bins(levels: Levels) -> Schema:
    """The schema with the bought levels of its numbers, days and times as `bins`, for
    methods that take levels as the schema has them. Edges: a list of categories stays
    as it is declared, also an ordered one: a schema has no name for several of them
    together. A level that is the upper bound of whole numbers, days or times alone is
    one with the level before it.
    """
    fine = levels.fine.schema.columns
    columns = zip(levels.schema.columns, fine, levels.groups, strict=True)
    bins = {}
    for column, cells, group in columns:
        if (
            isinstance(column, Binned)
            and isinstance(cells, Binned)
            and is_bought(column)
        ):
            # cell of each level
            starts = np.flatnonzero(np.diff(group[: cells.levels], prepend=-1))
            inner = map(column.bound_at, cells.edges[starts].tolist())
            bins[column.name] = (
                column.low,
                *(edge for edge in inner if column.low < edge < column.high),
                column.high,
            )
    return levels.schema.binned(bins)
