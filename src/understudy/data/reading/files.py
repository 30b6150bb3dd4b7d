"""Where tables come from: CSV, Excel and Parquet files, databases, DataFrames. Nothing
is judged here.

The cells of a CSV file stay text, except that a column expected to hold numbers comes
as numbers when every cell is one. A cell that is not of the file's encoding comes as
bytes where that is UTF-8. Types of Parquet, Arrow tables and polars frames are kept:
whole numbers stay whole where others are missing. How else a table is written is
declared (`sources`).

A table is a row of parts. What is in memory, or fits there, is one part; a long one
comes a few rows at a time.

Guarantee: what a cell is depends on no other row, and so on no part. Which character
separates cells, and without a header how many columns there are, is seen from the first
line alone.
Edges: a quote in a CSV file that is never closed makes one cell of all that follows it.
A program that wrote 1 as 1.0 because some row has no value has changed the file, and
nothing here can tell. Workbooks are one part.
"""

import csv
import gzip
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from understudy.data.reading import written
from understudy.data.reading.cells import Fault
from understudy.data.reading.sources import (
    ALL,
    SUFFIX,
    EngineFrame,
    Part,
    TableSource,
    numbered_names,
    source_at,
)
from understudy.data.reading.written import (
    Raw,
    Want,
    numbered,
    present,
    raw_of_arrow,
    raw_of_frame,
)
from understudy.ground.check import nearest
from understudy.ground.errors import Effect, SchemaError

# and whatever else speaks Arrow: a polars frame, a pyarrow table; frames of `_ENGINES`
Source = str | Path | TableSource | EngineFrame | pd.DataFrame
_ENGINES = ("dask", "pyspark", "ray")

# kinds whose cells are numbers, where no form is declared
PLAIN_NUMBERS = ("integer", "real")
LONG = 20_000_000  # cells: of more, a table is read in parts
# rows of a Parquet file, of few columns; a CSV file comes in blocks of bytes, a query
# as `stores` says
BATCH = 1 << 18
BLOCK = 2**24  # bytes at a time: a row must fit
_BYTES = 8  # of a cell in a CSV file, about
_PACKED = 4  # by how much one is shorter as .gz, about


def as_they_came(
    source: Source,
    columns: Iterable[str],
    person: str | None,
    numbers: Iterable[str] = (),
) -> dict[str, bool]:
    """The columns to read, as they came; `numbers` by the decimal comma that the source
    declares, if it does.
    """
    commas = (
        set(numbers)
        if getattr(described_source(source), "decimal", ".") == ","
        else set()
    )
    return {
        column: column in commas for column in [*([person] if person else []), *columns]
    }


def open_source(source: Source, want: Want, name: str | None = None) -> Raw:
    """All of a file, a database or a frame; `want` names the columns to read, {} the
    header alone, None all.
    """
    with closing(batches_of(source, want, name, long=want == {})) as parts:
        return next(parts)


def batches_of(
    source: Source, want: Want, name: str | None = None, *, long: bool, part: Part = ALL
) -> Generator[Raw]:
    """The table in batches, in order: a `long` one a few rows at a time, or `part` i of
    n of it; any other as one. No row is in two parts. Edges: a batch of a long one may
    have no rows, and says what is wrong with others.
    """
    if isinstance(source, pd.DataFrame):
        yield raw_of_frame(source, want, name or "the table")
        return
    if _in_memory(source):
        yield raw_of_arrow(source, want, name or "the table", long)
        return
    described = described_source(source)
    if isinstance(described, EngineFrame):
        yield from _from_engine(described, want, name or described.name, long)
        return
    for raw in _parts(described, want, name or described.name, long, part):
        yield _declared(raw, described, want)


def is_long(source: Source, columns: int) -> bool:
    """Whether so many columns of it are too much to hold at once. How long a CSV file
    is, is told by its bytes. Edges: a file that is missing or damaged is not: reading
    it says so.
    """
    if _in_memory(source):
        return False
    described = described_source(source)
    if isinstance(described, EngineFrame):
        return True
    try:
        if described.is_database or (suffix := suffix_of(described)) == ".parquet":
            from understudy.data.reading import stores

            rows = (
                stores.count_rows(described)
                if described.is_database
                else stores.rows_of(described.table)
            )
            return (rows or 0) * columns > LONG
        if suffix.startswith((".csv", ".tsv")):
            size = Path(described.table).stat().st_size * (
                _PACKED if suffix.endswith(".gz") else 1
            )
            return size > LONG * _BYTES
    except (OSError, pa.ArrowException):
        pass
    return False


def described_source(source: Any) -> Any:
    """How a source is read again: a description of a file or a query, an engine's
    frame; what is held as it is.
    """
    if is_of_engine(source):
        from understudy.data.reading.workers import engine_of

        return engine_of(source)
    return source if _in_memory(source) else source_at(source)


def separator_of(source: Source) -> str:
    """What separates the cells of a .csv file, by its header line or its declaration; a
    comma for all else.

    Guarantee: no row is read. A separator belongs to the file's format, which is as
    public as its header is.
    """
    if _in_memory(source) or is_of_engine(source):
        return ","
    described = source_at(source)
    if described.is_database or not suffix_of(described).startswith(".csv"):
        return ","
    with in_words(described):
        return _header(described, None)[1]


def is_of_engine(source: object) -> bool:
    return (
        isinstance(source, EngineFrame)
        or type(source).__module__.partition(".")[0] in _ENGINES
    )


def _in_memory(source: object) -> bool:
    return isinstance(source, pd.DataFrame) or (
        hasattr(source, "__arrow_c_stream__") and not is_of_engine(source)
    )


def _declared(raw: Raw, source: TableSource, want: Want) -> Raw:
    columns: dict[str, pd.Series[Any]] = {}
    faults = list(raw.faults)
    for column, cells in raw.columns.items():
        numeric = None if want is None else want[column]
        columns[column], column_faults = written.as_declared(
            cells, source, numeric, raw.numbers, column
        )
        faults += column_faults
    return replace(raw, columns=columns, faults=tuple(faults))


def _parts(
    source: TableSource, want: Want, name: str, long: bool, part: Part
) -> Iterator[Raw]:
    if source.header is False and (
        source.is_database or suffix_of(source) == ".parquet"
    ):
        raise SchemaError(
            f"{name}: such a table always has names: leave --no-header out.",
            effect=Effect.NOTHING_READ,
        )
    if source.is_database:
        from understudy.data.reading.stores import query_batches, query_rows

        answers = query_batches(source) if long else iter([query_rows(source)])
        yield from islice(
            numbered(_from_answer(answer, want, name) for answer in answers),
            part[0],
            None,
            part[1],
        )
        return
    reader = _READERS.get(suffix_of(source))
    if reader is None:
        raise SchemaError(
            f"{Path(source.table).name}: a table is a .csv, .tsv (or .csv.gz, "
            ".tsv.gz), .xlsx or .parquet file, a folder of .parquet files, the URL of "
            f"a database, or a NAME{SUFFIX} that says how it is read.",
            effect=Effect.NOTHING_READ,
        )
    with in_words(source):
        if reader is _from_parquet:
            yield from _from_parquet(source, want, name, long, part)
        else:
            yield from islice(reader(source, want, name, long), part[0], None, part[1])


def suffix_of(source: TableSource) -> str:
    """How a file's name ends: .csv, .csv.gz. A folder is one of Parquet files."""
    path = Path(source.table)
    if path.is_dir():
        return ".parquet"
    return "".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffix).lower()


@contextmanager
def in_words(source: TableSource) -> Iterator[None]:
    path = Path(source.table)
    try:
        yield
    except SchemaError:
        raise
    except OSError as error:
        why = error.strerror or "damaged"
        raise SchemaError(
            f"{path}: the file cannot be read ({why}).", effect=Effect.NOTHING_READ
        ) from error
    except (ValueError, EOFError, csv.Error, pa.ArrowException):
        # The cause is left out: pyarrow's messages quote whole rows.
        wrong = (
            'not UTF-8 (if it is of Windows, say encoding = "cp1252", or --encoding '
            "cp1252 of `synthesize`)"
        )
        if source.encoding != "utf-8":
            wrong = f"not {source.encoding}"
        if suffix_of(source) in (".xlsx", ".parquet"):
            wrong = "of another kind than its name says"
        raise SchemaError(
            f"{path.name}: the file is damaged, or {wrong}.", effect=Effect.NOTHING_READ
        ) from None


def _from_engine(
    source: EngineFrame, want: Want, name: str, long: bool
) -> Iterator[Raw]:
    columns = present(source.header, want)
    tables: Iterable[pa.Table] = source.tables(columns) if columns else [pa.table({})]
    if not long:
        tables = [pa.concat_tables(tables, promote_options="permissive")]
    for raw in numbered(raw_of_arrow(table, None, name) for table in tables):
        yield replace(raw, header=source.header)


def _from_answer(answer: Any, want: Want, name: str) -> Raw:
    if isinstance(answer, pa.Table):
        return raw_of_arrow(answer, want, name)
    header, cells = answer
    columns = {
        column: pd.Series(cells[header.index(column)], dtype=object)
        for column in present(header, want)
    }
    return Raw(
        name=name,
        header=header,
        columns=columns,
        numbers=np.arange(1, len(cells[0]) + 1),
    )


def _from_parquet(
    source: TableSource, want: Want, name: str, long: bool, part: Part = ALL
) -> Iterator[Raw]:
    from understudy.data.reading import stores

    header = stores.header_of(source.table)
    columns = present(header, want)
    tables = (
        stores.long_tables(source.table, columns, part, BATCH)
        if long and columns
        else None
    )
    for before, table in tables or [(0, stores.whole_table(source.table, columns))]:
        raw = raw_of_arrow(table, None, name, long)
        yield replace(raw, header=header, numbers=raw.numbers + before)


def _from_excel(
    source: TableSource, want: Want, name: str, long: bool
) -> Iterator[Raw]:
    yield raw_of_frame(sheet_of(source, name)[1], want, name)


def sheet_of(source: TableSource, name: str) -> tuple[str, pd.DataFrame]:
    """The name of a workbook's sheet that is read, and its cells as they are."""
    try:
        with pd.ExcelFile(source.table, engine="openpyxl") as book:
            sheet = source.sheet or str(book.sheet_names[0])
            if sheet not in book.sheet_names:
                raise SchemaError(
                    f"{name}: there is no sheet "
                    f'"{sheet}".{nearest(sheet, map(str, book.sheet_names))}',
                    effect=Effect.NOTHING_READ,
                )
            first = None if source.header is False else 0
            frame = pd.read_excel(
                book, sheet_name=sheet, header=first, dtype=object, na_filter=False
            )
    except ImportError:
        # which no file that can be read needs
        from understudy.ground.extras import install_line

        raise SchemaError(
            f"{name}: openpyxl is needed to read a workbook ({install_line('excel')}).",
            effect=Effect.NOTHING_READ,
        ) from None
    except BadZipFile:
        raise ValueError("no workbook") from None
    if source.header is False:
        frame.columns = pd.Index(numbered_names(frame.shape[1]))
    return sheet, frame


def _from_csv(source: TableSource, want: Want, name: str, long: bool) -> Iterator[Raw]:
    header, separator = _header(source, want)
    include = present(header, want)
    nothing = Raw(name=name, header=header, columns={}, numbers=np.arange(0))
    if not include:
        yield nothing
        return
    points = source.decimal == "."  # else a number is text still
    numeric = {column: points and bool(want and want[column]) for column in include}
    broken: dict[int, Fault] = {}  # by the number of the row
    lines = 1
    first_line = "header"
    column_names = None
    if source.header is False:
        lines = 0
        first_line = "first row"
        column_names = header

    def note(row: Any) -> str:
        number = row.number - lines  # pyarrow counts a header as row 1
        reason = (
            f"has {row.actual_columns} cells, where the {first_line} has {len(header)}."
        )
        broken[number] = Fault(rows=np.array([number]), reason=reason)
        return "skip"

    # Threads lose row numbers. An empty line is a missing cell of a single column.
    # Text, once each cell is found to be.
    keep_empty_lines = len(header) == 1
    types = dict.fromkeys(include, pa.binary())
    options: dict[str, Any] = {
        "read_options": pyarrow.csv.ReadOptions(
            use_threads=False,
            block_size=BLOCK,
            encoding=source.encoding,
            column_names=column_names,
        ),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=separator,
            newlines_in_values=True,
            ignore_empty_lines=not keep_empty_lines,
            invalid_row_handler=note,
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            include_columns=include, column_types=types, strings_can_be_null=False
        ),
    }
    next_row = 1  # the number of the row that comes next
    for read in _csv_tables(source.table, options, long):
        rows = np.arange(next_row, next_row + len(read) + len(broken))
        # broken rows are skipped
        numbers = np.setdiff1d(rows, list(broken), assume_unique=True)[: len(read)]
        next_row = int(numbers[-1]) + 1 if len(numbers) else next_row
        columns = {
            column: written.csv_cells(read[column], numeric[column])
            for column in include
        }
        yield replace(
            nothing, columns=columns, numbers=numbers, faults=tuple(broken.values())
        )
    if long:
        yield replace(nothing, faults=tuple(broken.values()))  # of rows at the end


def _csv_tables(path: str, options: dict[str, Any], long: bool) -> Iterator[pa.Table]:
    if not long:
        yield pyarrow.csv.read_csv(path, **options)
        return
    with pyarrow.csv.open_csv(path, **options) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _header(source: TableSource, want: Want) -> tuple[list[str], str]:
    """The names in a CSV file's first line, or as many of our own, and what separates
    them. Nothing is judged.
    """
    path = Path(source.table)
    plain = source.encoding == "utf-8"
    errors = "surrogateescape" if plain else "strict"
    text: dict[str, Any] = {
        "encoding": "utf-8-sig" if plain else source.encoding,
        "newline": "",
        "errors": errors,
    }
    with (
        gzip.open(path, "rt", **text)
        if path.suffix == ".gz"
        else open(path, **text) as file
    ):
        line = file.readline()
        separator = source.separator or _separator(
            line, path, None if source.header is False else want
        )
        file.seek(0)
        header = next(csv.reader(file, delimiter=separator), [])
    if source.header is False:
        return numbered_names(len(header)), separator
    "".join(header).encode()  # half a letter is no name: ValueError
    return header, separator


def _separator(line: str, path: Path, want: Want) -> str:
    """What splits the header line into the most names that are wanted, or where none
    are known, into the most.
    """
    if ".tsv" in path.suffixes[-2:] and "\t" in line:
        return "\t"

    def names(separator: str) -> int:
        cells = next(csv.reader([line], delimiter=separator), [])
        return len(cells) if not want else len(want.keys() & set(cells))

    return max(",;\t|", key=names)


_READERS: dict[str, Callable[[TableSource, Want, str, bool], Iterator[Raw]]] = {
    ".csv": _from_csv,
    ".csv.gz": _from_csv,
    ".tsv": _from_csv,
    ".tsv.gz": _from_csv,
    ".xlsx": _from_excel,
    ".parquet": _from_parquet,
}
