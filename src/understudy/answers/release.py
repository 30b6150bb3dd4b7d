"""What was released of a table, as it came: whole numbers under noise, how much noise,
and what they count.

A mixture is fitted to these numbers, and whoever holds them can fit another model, or
read a table with its error bars. They are public: the release is what ε was paid for,
and nothing here was clipped, rounded or mended.

    release.safetensors
    sizes              (columns,)     how many levels each column has, as
                                      `levels.safetensors` or the schema says
    <kind>.columns     (tables, k)    the columns of each table, by number, rising
    <kind>.deviation   (tables,)      the standard deviation of the noise in every cell
                                      of a table
    <kind>.counts      (cells,)       all tables of the kind one after another, each row
                                      by row

Kinds are those of `WORDS`. Tables on fine cells are trees (`data.encoding.fine`), layer
by layer from the top, those without a value where there may be some, and last ends
where they are counted. Of digits levels have what was read.

An interval is for the noise, and may reach below 0 as noise does: it covers the
holders' own count in 95 of 100 releases. How far the holders' people stand for others
is not in it.

Where each person was held out with the chance p, by a coin of its own, counts are
divided by 1 − p, and estimate those of all people. Of N people N · p / (1 − p) is the
variance that the coins add, independently in each cell.

Guarantee: a file from a stranger is read within its own size; its numbers are finite
and fit the schema, or ValueError.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from understudy.answers.question import Levels
from understudy.data.encoding.codec import Levels as BoughtLevels
from understudy.data.encoding.fine import FAN, is_tree
from understudy.ground.durable import parse_json
from understudy.ground.pack import MOST_HEADER, read_header
from understudy.models.tables.trees import Trees

FILE = "release.safetensors"
KINDS = {
    "ways": 1,
    "fine": 1,
    "pairs": 2,
    "pairs_again": 2,
    "pairs_third": 2,
    "triples": 3,
}
WORDS = {
    "ways": "one-way tables",
    "fine": "one-way tables on fine cells",
    "pairs": "two-way tables",
    "pairs_again": "two-way tables measured a second time",
    "pairs_third": "two-way tables measured a third time",
    "triples": "three-way tables",
}
_MOST = 1 << 53  # of a count: a float holds it
_MOST_CELLS = 1 << 40
_ABOUT = "about"
_DTYPES = {
    "columns": torch.int32,
    "deviation": torch.float64,
    "counts": torch.int64,
}

Z = 1.959964  # of the normal law: 95 % lie within ± so many deviations

Tensors = Mapping[str, Tensor]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Noisy:
    """Counts and the variance of the noise in each, which is independent. `whole`: sums
    of whole numbers.
    """

    counts: Numbers
    variance: Numbers
    whole: bool

    @property
    def deviation(self) -> Numbers:
        return np.sqrt(self.variance)

    @property
    def half(self) -> Numbers:
        """Half the width of each 95 % interval. Whole noise is at most k with the
        normal law's chance of k + ½.
        """
        width = Z * self.deviation
        return np.ceil(width - 0.5).clip(min=0) if self.whole else width

    def sum(self, axis: int | tuple[int, ...]) -> "Noisy":
        return Noisy(self.counts.sum(axis), self.variance.sum(axis), self.whole)

    def where(self, mask: NDArray[np.bool_]) -> "Noisy":
        return Noisy(self.counts * mask, self.variance * mask, self.whole)

    def part(self, indices: Any) -> "Noisy":
        """Those at these places of the first axis, in this order."""
        return Noisy(self.counts[indices], self.variance[indices], self.whole)

    def first(self, size: int) -> "Noisy":
        return self.part(slice(size))

    def reversed(self) -> "Noisy":
        return self.part(slice(None, None, -1))

    def less(self, counts: Numbers) -> "Noisy":
        return Noisy(self.counts - counts, self.variance, whole=False)

    def times(self, factor: Numbers) -> "Noisy":
        return Noisy(self.counts * factor, self.variance * factor**2, whole=False)

    def moved(self, axes: Sequence[int]) -> "Noisy":
        return Noisy(
            self.counts.transpose(axes),
            self.variance.transpose(axes),
            self.whole,
        )


def mean_of(measured: Sequence[Noisy]) -> Noisy:
    """Several measurements of the same counts as one: their mean, weighted by
    1/variance.
    """
    return reduce(_combine, measured)


def _combine(a: Noisy, b: Noisy) -> Noisy:
    total = a.variance + b.variance
    # of b
    weight = np.where(total > 0, a.variance / np.where(total > 0, total, 1.0), 1.0)
    counts = (1 - weight) * a.counts + weight * b.counts
    return Noisy(
        counts,
        (1 - weight) ** 2 * a.variance + weight**2 * b.variance,
        whole=not total.any(),
    )


def bias_of(fitted: Numbers, measured: Noisy) -> float:
    """What a fit is off a cell by beyond the noise, a root mean square; 0 says nothing
    of a fit to the noise.
    """
    return math.sqrt(
        max(0.0, float(np.mean((fitted - measured.counts) ** 2 - measured.variance)))
    )


@dataclass(frozen=True, eq=False)
class Counts:
    """Tables of one kind: which columns each is of, (tables, k), the noise of each, and
    all cells in a row.
    """

    columns: NDArray[np.int32]
    deviation: Numbers
    counts: NDArray[np.int64]
    cells: NDArray[np.int64]  # of each table

    @cached_property
    def positions(self) -> dict[tuple[int, ...], int]:
        return {
            tuple(columns): number
            for number, columns in enumerate(self.columns.tolist())
        }

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.cells)

    def table(self, number: int) -> NDArray[np.int64]:
        return self.counts[self.ends[number] - self.cells[number] : self.ends[number]]


@dataclass(frozen=True, eq=False)
class TableRelease:
    """All that was released of a table: `levels` says what is counted, `about` who paid
    what for it, and as `found` the names of columns whose bounds were found, not
    declared.
    """

    levels: Levels
    kinds: Mapping[str, Counts]
    about: Mapping[str, Any]

    @property
    def people(self) -> int:
        """How many there are, as it was disclosed, or as the released tables say;
        held-out people among them.
        """
        return round(int(self.about["people"]) * self._factor)

    @property
    def held_out(self) -> float:
        """The chance with which each person was held out."""
        return float(self.about.get("held_out", 0.0))

    @property
    def as_counted(self) -> "TableRelease":
        """The same without those who were held out: counts as they came, intervals for
        the noise alone.
        """
        return replace(self, about={**self.about, "held_out": 0.0})

    @property
    def drawing(self) -> float:
        """The variance that the coins add to the estimate of a count, for each person
        that it counts.
        """
        return self.held_out * self._factor

    @property
    def _factor(self) -> float:
        return 1 / (1 - self.held_out)

    @property
    def card(self) -> dict[str, Any]:
        tables = {
            WORDS[kind]: len(counted.columns) for kind, counted in self.kinds.items()
        }
        return {"file": FILE, "tables": tables} | dict(self.about)

    def has_found_bounds(self, position: int) -> bool:
        """Whether the bounds of a column were found, not declared: values beyond them
        count in its outermost cells.
        """
        return self.levels.schema.names[position] in self.about.get("found", ())

    def joint(self, positions: Sequence[int]) -> Noisy | None:
        """The released table of these columns, one axis for each, in their order. None
        where nothing was measured. Every table that says it counts: those of these
        columns, and the sums of those with one column more, whose noise is independent.
        What was measured several times is the mean, weighted by 1/variance.
        """
        ascending = tuple(sorted(positions))
        estimates = (
            [estimate] if (estimate := self._direct(ascending)) is not None else []
        )
        if len(ascending) < max(KINDS.values()):
            for extra in sorted({*range(len(self.levels.sizes))} - {*ascending}):
                wider = tuple(sorted((*ascending, extra)))
                estimate = self._direct(wider)
                if estimate is not None:
                    estimates.append(estimate.sum(wider.index(extra)))
        if not estimates:
            return None
        return self._of_all(
            mean_of(estimates).moved(
                [ascending.index(position) for position in positions]
            )
        )

    def _of_all(self, counted: Noisy) -> Noisy:
        """What was counted of those who took part, as an estimate of all people."""
        if not self.held_out:
            return counted
        counts = counted.counts * self._factor
        variance = counted.variance * self._factor**2 + self.drawing * np.maximum(
            counts,
            0,
        )
        return Noisy(counts, variance, whole=False)

    def _direct(self, ascending: tuple[int, ...]) -> Noisy | None:
        tables = [
            self._table(kind, counted.positions[ascending])
            for kind, counted in self.kinds.items()
            if ascending in counted.positions
        ]
        return mean_of(tables) if tables else None

    def _table(self, kind: str, number: int) -> Noisy:
        counted = self.kinds[kind]
        columns = counted.columns[number]
        counts = counted.table(number)
        variance = float(counted.deviation[number]) ** 2
        if kind == "fine":
            level, nodes, _ = _cover(self.levels, int(columns[0]))
            people = np.zeros(self.levels.sizes[columns[0]], dtype=np.int64)
            np.add.at(people, level, counts[nodes])
            noise = variance * np.bincount(level, minlength=len(people)).astype(
                np.float64
            )
            return Noisy(people.astype(np.float64), noise, whole=True)
        shape = [self.levels.sizes[column] for column in columns]
        return Noisy(
            counts.reshape(shape).astype(np.float64),
            np.full(shape, variance),
            whole=True,
        )

    def nodes(
        self,
        position: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Noisy] | None:
        """The nodes of a tree that make up a column's levels: where each begins, its
        level, count; None: no tree.
        """
        counted = self.kinds.get("fine")
        if (
            counted is None
            or (position,) not in counted.positions
            or not is_tree(column := self.levels.schema.columns[position])
        ):
            return None
        number, (level, node_numbers, begin) = (
            counted.positions[position,],
            _cover(self.levels, position),
        )
        order = np.argsort(begin)[: len(begin) - column.nullable]
        counts = counted.table(number)[node_numbers[order]].astype(np.float64)
        noise = np.full(len(order), float(counted.deviation[number]) ** 2)
        return (
            begin[order],
            level[order],
            self._of_all(Noisy(counts, noise, whole=True)),
        )

    def tensors(self) -> dict[str, Tensor]:
        tensors = {"sizes": torch.tensor(self.levels.sizes, dtype=torch.int32)}
        for kind, counted in self.kinds.items():
            tensors |= {
                f"{kind}.{part}": torch.from_numpy(getattr(counted, part))
                for part in _DTYPES
            }
        return tensors

    @classmethod
    def from_tensors(
        cls,
        levels: Levels,
        tensors: Tensors,
        about: Mapping[str, Any],
    ) -> "TableRelease":
        """The inverse of `tensors`. ValueError where they do not fit the levels, or
        each other.
        """
        sizes = tensors.get("sizes", torch.empty(0))
        if sizes.dtype != torch.int32 or sizes.flatten().tolist() != list(levels.sizes):
            raise ValueError("the release is on other levels than the generator.")
        kinds = {
            kind: _counts(kind, levels, tensors)
            for kind in KINDS
            if f"{kind}.counts" in tensors
        }
        named = {f"{kind}.{part}" for kind in kinds for part in _DTYPES} | {"sizes"}
        strange = sorted(tensors.keys() ^ named)
        if strange:
            raise ValueError(
                f'"{strange[0]:.60}" is too much, or missing, in a release.'
            )
        people = about.get("people")
        if type(people) is not int or not 0 <= people <= _MOST:
            raise ValueError("a release does not say of how many people it is.")
        share = about.get("held_out", 0.0)
        if not isinstance(share, float) or not 0 <= share < 1:
            raise ValueError(
                "a release does not say with which chance people were held out."
            )
        found_columns = about.get("found", [])
        if not isinstance(found_columns, list) or not {*map(str, found_columns)} <= {
            *levels.schema.names
        }:
            raise ValueError("a release found bounds of columns that there are not.")
        return cls(levels, kinds, about)

    def save(self, file: Path, metadata: Mapping[str, str]) -> None:
        """Write it, with what else stands first in its metadata."""
        text = json.dumps(dict(self.about), allow_nan=False)
        save_file(self.tensors(), file, metadata={**metadata, _ABOUT: text})

    @classmethod
    def load(cls, file: Path, levels: Levels) -> "TableRelease":
        """Read what `save` wrote. ValueError for anything else; memory grows with the
        file.
        """
        header = read_header(file, max_length=MOST_HEADER)
        about = parse_json(header.metadata[_ABOUT])
        if not isinstance(about, dict):
            raise ValueError("what a release says of itself is no table of keys.")
        return cls.from_tensors(levels, load_file(file), about)


def tensors_of(
    kind: str,
    columns: Tensor,
    deviation: Sequence[float],
    tables: Sequence[Tensor],
) -> dict[str, Tensor]:
    """Tables of one kind as tensors of a release: columns (tables, k), the noise and
    the cells of each.
    """
    if not len(columns):
        return {}
    return {
        f"{kind}.columns": columns.to(torch.int32)
        .reshape(-1, KINDS[kind])
        .contiguous(),
        f"{kind}.deviation": torch.tensor(deviation, dtype=torch.float64),
        f"{kind}.counts": torch.cat([table.flatten() for table in tables]),
    }


def _counts(
    kind: str,
    levels: Levels,
    tensors: Tensors,
) -> Counts:
    parts = {part: tensors.get(f"{kind}.{part}") for part in _DTYPES}
    for part, dtype in _DTYPES.items():
        tensor = parts[part]
        if (
            tensor is None
            or tensor.dtype != dtype
            or tensor.ndim != (2 if part == "columns" else 1)
        ):
            raise ValueError(
                f'"{kind}.{part}" is missing in a release, or of the wrong kind.'
            )
    columns, deviation, counts = (parts[part].numpy() for part in _DTYPES)  # type: ignore[union-attr]
    if columns.shape[1] != KINDS[kind] or len(columns) != len(deviation):
        raise ValueError(
            f"the {kind} of a release have {columns.shape} columns, {len(deviation)} "
            "deviations."
        )
    if len(columns) and not 0 <= columns.min() <= columns.max() < len(levels.sizes):
        raise ValueError(f"the {kind} of a release are of columns that there are not.")
    if (np.diff(columns, axis=1) <= 0).any() or len(np.unique(columns, axis=0)) < len(
        columns
    ):
        raise ValueError(f"the {kind} of a release name a column or a table twice.")
    if not (
        np.isfinite(deviation).all() and ((deviation >= 0) & (deviation <= _MOST)).all()
    ):
        raise ValueError(
            f"a deviation of the {kind} of a release is below 0 or not finite."
        )
    if len(counts) and max(-int(counts.min()), int(counts.max())) > _MOST:
        raise ValueError(f"a count of the {kind} of a release is beyond {_MOST:,}.")
    cells_per_table = np.array(
        _trees(levels).sizes if kind == "fine" else levels.sizes,
        dtype=np.float64,
    )[columns].prod(1)
    if cells_per_table.sum() > _MOST_CELLS or int(cells_per_table.sum()) != len(counts):
        raise ValueError(
            f"the {kind} of a release have {len(counts):,} cells, and not as many as "
            "their levels."
        )
    return Counts(
        columns,
        deviation,
        counts,
        cells_per_table.astype(np.int64),
    )


def _trees(levels: Levels) -> Trees:
    if not isinstance(levels, BoughtLevels):
        raise ValueError("a release has fine tables, and no levels were bought.")
    return Trees(levels.schema, levels.fine.schema)


def _cover(
    levels: Levels,
    column: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """As few nodes as make up all levels: the level of each, its number, and the fine
    cell where it begins.
    """
    assert isinstance(levels, BoughtLevels)
    sizes = _trees(levels).layers[column]
    group = levels.groups[column].astype(np.int64)
    fine_groups, *above = [group[: sizes[-1]], *sizes[-2::-1]]
    layers = [
        fine_groups
    ]  # the level of each node, −1 where it is of several; from the top
    begins = [np.arange(sizes[-1])]
    for size in above:
        padded = np.full(size * FAN, layers[0][-1])
        padded[: len(layers[0])] = layers[0]
        children = padded.reshape(size, FAN)
        layers.insert(
            0,
            np.where((children == children[:, :1]).all(1), children[:, 0], -1),
        )
        begins.insert(0, begins[0][::FAN])
    selected = [layers[0] >= 0]
    for upper, lower in pairwise(layers):
        selected.append((lower >= 0) & (np.repeat(upper, FAN)[: len(lower)] < 0))
    # ends, where there are any, come after these
    level = np.concatenate([*layers, group[sizes[-1] :]])
    starts = np.concatenate([*begins, np.arange(sizes[-1], len(group))])
    nodes = np.flatnonzero(
        np.concatenate([*selected, np.ones(len(group) - sizes[-1], dtype=np.bool_)])
    )
    return level[nodes], nodes, starts[nodes]


def tables_of(
    gram: Tensor,
    noise: Tensor,
    wanted: Tensor,
    sizes: Sequence[int],
    kind: str,
) -> dict[str, Tensor]:
    """The tables of a Gram matrix (width, width) that are `wanted` (columns, columns),
    as released.
    """
    matrix = gram.numpy()
    deviation = noise.numpy()
    ends = np.cumsum(sizes)
    starts = ends - np.array(sizes)
    single = wanted.triu().diagonal().nonzero()[:, 0]
    double = wanted.triu(1).nonzero()
    diagonal = matrix.diagonal()
    ways = [
        torch.from_numpy(diagonal[starts[j] : ends[j]].copy()) for j in single.tolist()
    ]
    pairs = [
        torch.from_numpy(matrix[starts[i] : ends[i], starts[j] : ends[j]].copy())
        for i, j in double.tolist()
    ]
    of_ways = [deviation[starts[j], starts[j]] for j in single.tolist()]
    of_pairs = [deviation[starts[i], starts[j]] for i, j in double.tolist()]
    return tensors_of(
        "ways",
        single[:, None],
        of_ways,
        ways,
    ) | tensors_of(
        kind,
        double,
        of_pairs,
        pairs,
    )
