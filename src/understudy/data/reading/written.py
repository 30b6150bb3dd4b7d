"""Rows as they stand in a table, before anything is judged, and cells as they are
written: texts and numbers in Arrow's columns, words for no value, decimals after a
comma; and who was there, as marks.
"""

import hashlib
import math
import os
import re
import secrets
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.data.encoding.values import Cells, Places
from understudy.data.reading.cells import (
    MISSING_WORDS,
    WHOLE_ID,
    Fault,
    texts_as_objects,
)
from understudy.data.reading.sources import TableSource

# 1234,5 and 1.234,5: a point only where it parts thousands
_WITH_COMMA = re.compile(r"\s*([-+]?)(\d{1,3}(?:\.\d{3})+|\d*)(?:,(\d+))?\s*")
_WHOLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}
_MARKED = 10**18  # nearer to 0 than this, a whole number is its own mark
# marks in memory: more of them are in a file without a name, which ends with this
# process
_HELD = 1 << 22
_LARGE = 1 << 28  # bytes of levels, likewise
# odd, 2⁶⁴ over the golden ratio: marks stay apart, and neighbours get far apart
_TURN = np.uint64(0x9E3779B97F4A7C15)
_SHARES = 256  # of all marks, which are about equal then
_ENDS = np.arange(1, _SHARES, dtype=np.uint64) << np.uint64(56)
_THREADS = 8  # that look at a share each
Want = Mapping[str, bool] | None  # column → whether it holds numbers


@dataclass(frozen=True, kw_only=True)
class Raw:
    """A source, or a part, as it stands: header, wanted columns, the number of each
    row, from 1 after the header.
    """

    name: str
    header: list[Any]
    columns: dict[str, Cells]
    numbers: Places
    faults: tuple[Fault, ...] = ()


def numbered(parts: Iterable[Raw]) -> Iterator[Raw]:
    """The same with rows numbered on from one part to the next."""
    read = 0
    for raw in parts:
        yield replace(raw, numbers=raw.numbers + read)
        read += len(raw.numbers)


def raw_of_frame(frame: pd.DataFrame, want: Want, name: str) -> Raw:
    header = list(frame.columns)
    wanted_cells = {
        column: texts_as_objects(quiet(frame[column]))
        for column in present(header, want)
    }
    columns = {
        column: cells.reset_index(drop=True) for column, cells in wanted_cells.items()
    }
    return Raw(
        name=name, header=header, columns=columns, numbers=np.arange(1, len(frame) + 1)
    )


def quiet(cells: Cells) -> Cells:
    """The cells, with None for a signalling NaN: pandas raises an error where it meets
    one.
    """
    try:
        cells.isna()
    except InvalidOperation:
        is_nan = [isinstance(value, Decimal) and value.is_snan() for value in cells]
        return cells.where(~np.array(is_nan), None)
    return cells


def quiet_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of the same cells, without signalling NaNs (`quiet`)."""
    silenced = frame.copy(deep=False)
    for position, dtype in enumerate(frame.dtypes):
        if dtype.kind == "O":
            # a Series, not its array, which pandas 3 would make texts of again
            cells: Any = quiet(frame.iloc[:, position])
            silenced.isetitem(position, cells)
    return silenced


def raw_of_arrow(source: Any, want: Want, name: str, coded: bool = False) -> Raw:
    table = pa.table(source)
    header = table.column_names
    columns = arrow_cells(table.select(present(header, want)), coded)
    return Raw(
        name=name, header=header, columns=columns, numbers=np.arange(1, len(table) + 1)
    )


def present(header: list[Any], want: Want) -> list[str]:
    """The wanted columns that the header names once."""
    times = Counter(header)
    return [
        column for column in (header if want is None else want) if times[column] == 1
    ]


def arrow_cells(table: pa.Table, coded: bool = False) -> dict[str, Cells]:
    """The columns of an Arrow table, in their types. `coded`: lists of words may have
    words that no cell holds.
    """
    lists = [
        field for field in table.schema if coded and pa.types.is_dictionary(field.type)
    ]
    text = [
        field.name
        for field in lists
        if field.type.value_type in (pa.string(), pa.large_string())
    ]
    for index, field in enumerate(table.schema):
        # Text as text, however it is kept: as numbers of a list of words, or in views.
        if pa.types.is_dictionary(field.type) and field.name not in text:
            words = [
                _viewless(chunk.dictionary).take(chunk.indices)
                for chunk in table[index].chunks
            ]
            kind = _viewless(pa.array([], field.type.value_type)).type
            table = table.set_column(index, field.name, pa.chunked_array(words, kind))
        elif pa.types.is_string_view(field.type):
            table = table.set_column(index, field.name, _viewless(table[index]))
    kinds = {field.name: field.type for field in table.schema}
    text += [
        name
        for name, kind in kinds.items()
        if pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ]
    # Without pandas' own metadata an id that was saved as the index comes back as a
    # column.
    options = {"ignore_metadata": True, "date_as_object": False, "split_blocks": True}
    frame = table.drop_columns(text).to_pandas(types_mapper=_WHOLE.get, **options)
    return {
        name: _text(table[name]) if name in text else frame[name]
        for name in table.column_names
    }


def _viewless(cells: Any) -> Any:
    return (
        cells.cast(pa.large_string()) if pa.types.is_string_view(cells.type) else cells
    )


def csv_cells(cells: pa.ChunkedArray, numeric: bool) -> Cells:
    """Texts of a CSV file: numbers where the column is to hold these and every cell is
    one.
    """
    if numeric:
        try:
            text = cells.cast(pa.string())
            missing = pc.is_in(text, value_set=pa.array(MISSING_WORDS))
            return pd.Series(
                pc.cast(pc.if_else(missing, None, text), pa.float64()).to_pandas()
            )
        except pa.ArrowInvalid:
            # some cell is no number: leave them to be looked at one by one
            pass
    return _text(cells)


def _text(cells: pa.ChunkedArray) -> Cells:
    """Each different text once; what is not UTF-8 stays bytes."""
    if not pa.types.is_dictionary(cells.type):
        cells = cells.cast(pa.large_binary()).dictionary_encode()
    coded = cells.unify_dictionaries().combine_chunks()
    words = pd.Index(
        [
            _decoded(word)
            for word in coded.dictionary.cast(pa.large_binary()).to_pylist()
        ],
        dtype=object,
    )
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if words.hasnans or not words.is_unique:
        positions, words = pd.factorize(words)
        codes = np.append(positions, -1)[codes]
    return pd.Series(pd.Categorical.from_codes(codes, categories=words))


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def as_declared(
    cells: Cells,
    source: TableSource,
    numeric: bool | None,
    numbers: Places,
    column: str,
) -> tuple[Cells, list[Fault]]:
    """Cells without value where a declared word stands, and points for commas;
    `numeric` None: if every cell is one.
    """
    if source.missing:
        cells = _without(cells, source.missing)
    if (
        source.decimal == "."
        or numeric is False
        or not isinstance(cells.dtype, pd.CategoricalDtype)
    ):
        return cells, []
    words = [str(word) for word in cells.cat.categories]
    read = [_pointed(word) for word in words]
    wrong = [word for word, number in zip(words, read, strict=True) if number is None]
    if wrong and numeric is None:
        return cells, []
    texts = pd.Index(words, dtype=object).where(
        [number is None for number in read], pd.Index(read)
    )
    codes = np.append(pd.factorize(texts)[0], -1)[cells.cat.codes.to_numpy()]
    pointed = pd.Series(
        pd.Categorical.from_codes(
            codes, categories=pd.Index(texts.unique(), dtype=object)
        )
    )
    if not wrong:
        return pointed, []
    hit = cells.isin(wrong).to_numpy()
    reason = 'is no number with a decimal comma, as decimal = "," declares.'
    return pointed, [
        Fault(
            column=column,
            rows=numbers[hit],
            values=cells[hit].to_numpy(),
            reason=reason,
        )
    ]


def _pointed(word: str) -> str | None:
    """A number with a comma as one with a point; what is missing as it is; None for
    anything else.
    """
    if word in MISSING_WORDS:
        return word
    match = _WITH_COMMA.fullmatch(word)
    if match is None or not (match[2] or match[3]):
        return None
    return f"{match[1]}{match[2].replace('.', '')}" + (
        f".{match[3]}" if match[3] else ""
    )


def _without(cells: Cells, missing: Iterable[str | float]) -> Cells:
    """No value where a cell is one of these words or numbers, written as a number or as
    text.
    """
    wanted = set(missing)
    numbers = {
        float(word) for word in wanted if not isinstance(word, str) or _is_number(word)
    }
    if isinstance(cells.dtype, pd.CategoricalDtype):
        gone = [
            value for value in cells.cat.categories if _is_one(value, wanted, numbers)
        ]
        return cells.cat.remove_categories(gone)
    if cells.dtype == object:
        return cells.mask(
            cells.map(lambda value: _is_one(value, wanted, numbers)).astype(bool), None
        )
    return (
        cells.mask(cells.isin(numbers))
        if numbers and pd.api.types.is_numeric_dtype(cells.dtype)
        else cells
    )


def _is_one(value: object, wanted: set[str | float], numbers: set[float]) -> bool:
    if isinstance(value, str):
        return value in wanted or (_is_number(value) and float(value) in numbers)
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and float(value) in numbers
    )


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d+(\.\d*)?", text) is not None


class Marks:
    """Who was there: a mark of 8 bytes for each id, under a key. Ids that are equal as
    text have one mark. `order`: a digest of all that were noted, one after the other,
    whatever batches they came in. `parts`: of each that was added, its rows and who
    they are (`people`).
    """

    def __init__(self, key: str | None = None) -> None:
        self.key = key or secrets.token_hex(8)
        self.rows = 0
        self.parts: dict[int, tuple[int, str]] = {}
        # and where shares of them end
        self._marks: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []
        self._held = 0
        self._runs = list[NDArray[np.int64]]()
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self.order = hashlib.sha256()

    def note(self, ids: "pd.Series[Any] | None", rows: int) -> None:
        """So many rows, with these ids, if they have any. As text in one form, as
        alignment has it: a batch of "7" and "8" alone was read as numbers.
        """
        self.rows += rows
        if ids is None:
            return
        if ids.dtype == np.int64:
            numbers = ids.to_numpy()
            long = (numbers <= -_MARKED) | (numbers >= _MARKED)
            marks = numbers.view(np.uint64)
        else:
            words: Cells = ids.astype(str).str.normalize("NFC")
            long = ~words.str.fullmatch(WHOLE_ID).to_numpy(bool)
            marks = np.zeros(len(words), dtype=np.uint64)
            marks[~long] = words[~long].astype(np.int64).to_numpy().view(np.uint64)
        if long.any():
            texts = ids[long].astype(str).str.normalize("NFC").to_numpy(object)
            marks = marks.copy()
            marks[long] = pd.util.hash_array(texts, hash_key=self.key, categorize=False)
        marks = marks * _TURN
        self.order.update(marks.data)
        self._keep(marks)

    def add(self, marks: NDArray[np.uint64], rows: int) -> None:
        """Those of another part, under the same key."""
        self.rows += rows
        self._keep(marks)

    def _keep(self, marks: NDArray[np.uint64]) -> None:
        marks = _in_order(marks)
        self._marks.append((marks, np.r_[0, np.searchsorted(marks, _ENDS), len(marks)]))
        self._held += len(marks)
        if self._held < _HELD:
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it lives as long as this)
            weakref.finalize(self, self._file.close)
        start = self._file.seek(0, 2) // 8
        np.concatenate(
            [
                sorted_marks
                for share in range(_SHARES)
                for sorted_marks in self._in_memory(share)
            ]
        ).tofile(self._file)
        self._runs.append(start + np.sum([ends for _, ends in self._marks], axis=0))
        self._marks = []
        self._held = 0

    def _in_memory(self, share: int) -> list[NDArray[np.uint64]]:
        return [marks[ends[share] : ends[share + 1]] for marks, ends in self._marks]

    def _share(self, share: int) -> NDArray[np.uint64]:
        """All that are in one share of what a mark may be, in order."""
        runs = self._in_memory(share)
        for ends in self._runs:
            assert self._file is not None
            with self._lock:
                self._file.seek(int(ends[share]) * 8)
                runs.append(
                    np.fromfile(
                        self._file, np.uint64, int(ends[share + 1] - ends[share])
                    )
                )
        return _in_order(np.concatenate(runs))

    @property
    def in_order(self) -> NDArray[np.uint64]:
        """In order, whatever batches they came in."""
        if self._runs:
            return np.concatenate([self._share(share) for share in range(_SHARES)])
        return _in_order(
            np.concatenate(
                [np.empty(0, np.uint64), *(marks for marks, _ in self._marks)]
            )
        )

    @property
    def people(self) -> str:
        """A digest of all, in whatever order they came."""
        return hashlib.blake2b(self.in_order.data, digest_size=32).hexdigest()

    @property
    def repeated(self) -> int:
        """How many have the mark of another: of many, several shares are looked at at
        the same time.
        """
        if not self._runs:
            return _count_repeats(self.in_order)
        from understudy.ground.processes import process_count

        with ThreadPoolExecutor(min(process_count(), _THREADS)) as threads:
            return sum(
                threads.map(
                    lambda share: _count_repeats(self._share(share)), range(_SHARES)
                )
            )


def _in_order(marks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return marks if bool((marks[1:] >= marks[:-1]).all()) else np.sort(marks)


def _count_repeats(marks: NDArray[np.uint64]) -> int:
    return int((marks[1:] == marks[:-1]).sum())


def room_for(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array to be filled: in memory, or where it is large in a file without a name,
    which ends with the array.
    """
    size = math.prod(shape) * dtype.itemsize
    if size <= _LARGE:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        # a disk that is full is an error here, and later the end of the process
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "r+", shape=shape).view(np.ndarray)
