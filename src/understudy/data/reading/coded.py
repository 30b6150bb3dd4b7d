"""Rows of a long table as levels, without a value for each cell: a text is looked at once for all cells that hold it,
and numbers are compared with bounds and edges.

Guarantee: levels are those of the values that `cells` reads, and a cell that it would refuse is refused, in its words:
whatever is not plainly within its column's domain is left to it.
"""

import hashlib
import secrets
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Binned, Categorical, Column, Integer, Real, is_unbounded, widest
from understudy.data.encoding.values import Codes, codes_of, found_levels, is_within, typed
from understudy.data.reading.cells import WHOLE_ID, missing_words, parse

_MARKED = 10**18  # nearer to 0 than this, a whole number is its own mark
_HELD = 1 << 22  # marks in memory: more of them are in a file without a name, which ends with this process
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio: neighbours fall far apart


class Batch:
    """Some rows as they came. Each column is judged when it is asked for: as values, or as levels of one like it.

    `judge`: a column's values. SchemaError where a cell does not fit.
    """

    def __init__(self, cells: dict[str, "pd.Series[Any]"], rows: int, judge: Callable[[str], "pd.Series[Any]"]) -> None:
        self._cells, self._rows, self._judge = cells, rows, judge

    def __len__(self) -> int:
        return self._rows

    @property
    def columns(self) -> list[str]:
        return list(self._cells)

    def __getitem__(self, name: str) -> "pd.Series[Any]":
        return self._judge(name)

    def codes(self, column: Column) -> Codes:
        """The level of every cell of this column."""
        found = _codes(column, self._cells[column.name])
        return codes_of(column, self[column.name]) if found is None else found

    def check(self, column: Column) -> None:
        """That every cell fits."""
        if not _fits(widest(column) if is_unbounded(column) else column, self._cells[column.name]):
            self._judge(column.name)


def _codes(column: Column, cells: "pd.Series[Any]") -> Codes | None:
    """The level of each cell; None where that takes a closer look."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        found: NDArray[Any] = _levels_of_words(column, cells.cat.categories)[cells.cat.codes.to_numpy()]
    elif _is_plain(column) and cells.dtype.kind in "iuf":
        found = found_levels(column, cells)
    else:
        return None
    return None if len(found) and found.min() < 0 else found.astype(np.int32, copy=False)


def _fits(column: Column, cells: "pd.Series[Any]") -> bool:
    """Whether every cell fits; False where that takes a closer look."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        levels = _levels_of_words(column, cells.cat.categories)
        codes = cells.cat.codes.to_numpy()
        fine = levels[:-1].min(initial=0) >= 0 and (column.nullable or codes.min(initial=0) >= 0)
        return bool(fine or levels[codes].min() >= 0)
    if isinstance(column, Binned) and _is_plain(column) and cells.dtype.kind in "iuf" and is_within(column, cells):
        return True
    return _codes(column, cells) is not None


def _is_plain(column: Column) -> bool:
    """Whether numbers are its values as they are."""
    if isinstance(column, Categorical):
        return not isinstance(column.categories[0], str)
    return isinstance(column, Integer | Real) and column.form is None


def _levels_of_words(column: Column, words: "pd.Index[Any]") -> Codes:
    """The level of each text, and after these that of a missing cell; −1 for what does not fit."""
    seen = pd.Series(words, dtype=object)
    gone = seen.isin(missing_words(column)).to_numpy()
    values, reasons = parse(column, seen)
    fine = ~gone & ~np.logical_or.reduce([mask for _, mask in reasons])
    levels = np.full(len(seen) + 1, -1, dtype=np.int32)
    levels[:-1][fine] = codes_of(column, typed(column, values[fine], np.zeros(int(fine.sum()), dtype=bool)))
    if column.nullable:
        levels[:-1][gone] = levels[-1] = column.levels
    return levels


class Marks:
    """Who was there: a mark of 8 bytes for each id, under a key. Ids that are equal as text have one mark.

    `order`: a digest of all that were noted, one after the other, whatever batches they came in.
    """

    def __init__(self, key: str | None = None) -> None:
        self.key, self.rows = key or secrets.token_hex(8), 0
        self._marks: list[NDArray[np.uint64]] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self.order = hashlib.sha256()

    def note(self, ids: "pd.Series[Any] | None", rows: int) -> None:
        """So many rows, with these ids, if they have any.

        As text in one form, as alignment has it: a batch of "7" and "8" alone was read as numbers.
        """
        self.rows += rows
        if ids is None:
            return
        if ids.dtype == np.int64:
            numbers = ids.to_numpy()
            long = (numbers <= -_MARKED) | (numbers >= _MARKED)
            marks = numbers.view(np.uint64)
        else:
            words: pd.Series[Any] = ids.astype(str).str.normalize("NFC")
            long = ~words.str.fullmatch(WHOLE_ID).to_numpy(bool)
            marks = np.zeros(len(words), dtype=np.uint64)
            marks[~long] = words[~long].astype(np.int64).to_numpy().view(np.uint64)
        if long.any():
            texts = ids[long].astype(str).str.normalize("NFC").to_numpy(object)
            marks = marks.copy()
            marks[long] = pd.util.hash_array(texts, hash_key=self.key, categorize=False)
        self.order.update(np.ascontiguousarray(marks).data)
        self._keep(marks)

    def add(self, marks: NDArray[np.uint64], rows: int) -> None:
        """Those of another part, under the same key."""
        self.rows += rows
        self._keep(marks)

    def _keep(self, marks: NDArray[np.uint64]) -> None:
        self._marks.append(marks)
        self._held += len(marks)
        if self._held >= _HELD:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it lives as long as this)
                weakref.finalize(self, self._file.close)
            self._file.seek(0, 2)
            for held in self._marks:
                np.ascontiguousarray(held).tofile(self._file)
            self._marks, self._held = [], 0

    def _chunks(self) -> Iterator[NDArray[np.uint64]]:
        yield from self._marks
        if self._file is not None:
            self._file.seek(0)
            while len(found := np.fromfile(self._file, np.uint64, _HELD)):
                yield found

    def _shares(self) -> Iterator[NDArray[np.uint64]]:
        """All in order; where a file has them, in shares that fit into memory, so that equal ones are in one share."""
        if self._file is None:
            yield self.all
            return
        many = 1 + self._file.seek(0, 2) // (8 * _HELD)
        for share in range(many):
            own = [one[((one * _SPREAD) >> np.uint64(32)) % np.uint64(many) == share] for one in self._chunks()]
            yield np.sort(np.concatenate(own))

    @property
    def all(self) -> NDArray[np.uint64]:
        """In order."""
        found = [*self._chunks()]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.uint64)

    @property
    def repeated(self) -> int:
        """How many have the mark of another."""
        return sum(int((marks[1:] == marks[:-1]).sum()) for marks in self._shares())
