"""People who are held out of a run, so that attacks have somebody who took no part: by
a secret coin for each row.

Guarantee: every row of a table in which a person has one row is held out with the same
chance, by a coin of its own that depends on nothing: not on what the row says, not on
how many rows there are, not on the others. What is made of the rows that stay is a
release of a Poisson sample of the people, which costs nobody more than a release of all
of them does. A rule by the number of rows (“from 2,000 on”) would not do: one person
more would change who is in it by a twentieth of all others, and that is no small change
of a release.
Edges: an engine's frame → ConfigError, as its rows would be copied to this machine.
Both parts are written beside the
holder's ledger, for its owner alone: of text files with a header and cells as they are
written, of workbooks with the sheet that was read, of Parquet files with types as they
came, of a database's rows as Parquet. Files are read a few rows at a time, but for
workbooks; the answer to a query is held whole, and read once, as a database may give
rows in another order each time. A column of a database with
values of several types → SchemaError.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from understudy.data.reading.decoded import refuse_undecoded, undecoded_in
from understudy.data.reading.files import (
    Source,
    batches_of,
    in_words,
    open_source,
    separator_of,
    sheet_of,
    suffix_of,
)
from understudy.data.reading.judged import judged
from understudy.data.reading.sources import TableSource, source_at
from understudy.ground.durable import own_temporary
from understudy.ground.errors import ConfigError, Effect, SchemaError

if TYPE_CHECKING:
    from understudy.data.encoding.codec import Uniform

USUAL = 0.05  # of the people
PARQUET = ".parquet"
WORKBOOK = ".xlsx"
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

Mask = NDArray[np.bool_]


def holds_out_unasked(source: object) -> bool:
    """Whether people are held out of such a source where nobody said. By what it is,
    and by nothing that it holds.

    Rows of a database are copied into files only if somebody asks for it.
    """
    if isinstance(source, pd.DataFrame):
        return True
    if not isinstance(source, str | Path | TableSource):
        return False
    described = source_at(source)
    return not described.is_database and _can_hold_out(described)


def hold_out(
    source: Source, share: float, rng: "Uniform", home: Path, name: str
) -> tuple[Source, Path]:
    """The rows that stay, and the file of those that are held out, in `home`:
    `name`-held-out.csv, .xlsx or .parquet.

    The name is that of a run: another run holds out others.
    """
    if not 0 < share < 1:
        raise ConfigError(
            f"holdout is a share of the people between 0 and 1, not {share:g}.",
            effect=Effect.NOTHING_CHARGED,
        )
    coins = _Coins(share, rng)
    if isinstance(source, pd.DataFrame):
        return _of_frame(source, coins, home / f"{name}-held-out.csv")
    described = (
        source_at(source) if isinstance(source, str | Path | TableSource) else None
    )
    if described is None or not _can_hold_out(described):
        raise ConfigError(
            "people can be held out of a DataFrame, a .csv, .tsv, .xlsx or .parquet "
            "file, or a database.",
            effect=Effect.NOTHING_CHARGED,
        )
    is_text = not described.is_database and suffix_of(described) in TEXT
    is_workbook = not described.is_database and suffix_of(described) == WORKBOOK
    suffix = WORKBOOK if is_workbook else PARQUET
    if is_text:
        suffix = ".csv"
    stay = home / f"{name}-taking-part{suffix}"
    away = home / f"{name}-held-out{suffix}"
    if is_text:
        _split_text(described, coins, stay, away)
        # both parts have a header, whatever the file had
        header = described.header or None
        separator = separator_of(described)
        plain = replace_fields(
            described,
            table=str(stay),
            header=header,
            encoding="utf-8",
            separator=separator,
        )
    elif is_workbook:
        _split_workbook(described, coins, stay, away)
        header = described.header or None
        plain = replace_fields(described, table=str(stay), header=header)
    else:
        _split_arrow(described, coins, stay, away)
        plain = TableSource(
            table=str(stay), missing=described.missing, decimal=described.decimal
        )
    is_plain = not isinstance(source, TableSource) and described.table == str(source)
    return (stay if is_plain and not described.is_database else plain), away


@contextmanager
def removed_if_refused(home: Path, name: str) -> Iterator[None]:
    """Remove what `hold_out` wrote under this name if what follows fails: it is for a
    step that charges nothing.
    """
    try:
        yield
    except BaseException:
        for part in ("taking-part", "held-out"):
            for suffix in (".csv", WORKBOOK, PARQUET):
                (home / f"{name}-{part}{suffix}").unlink(missing_ok=True)
        raise


class _Coins:
    """A secret coin for each row, in the order of the rows."""

    def __init__(self, share: float, rng: "Uniform") -> None:
        self.share = share
        self.rng = rng

    def throw(self, rows: int) -> Mask:
        if not rows:
            return np.zeros(0, dtype=np.bool_)
        held_out: Mask = self.rng.uniform(rows).cpu().numpy() < self.share
        return held_out


def _can_hold_out(source: TableSource) -> bool:
    return source.is_database or suffix_of(source) in (
        *TEXT,
        WORKBOOK,
        PARQUET,
    )


def _of_frame(
    frame: pd.DataFrame, coins: _Coins, away: Path
) -> tuple[pd.DataFrame, Path]:
    held_out = coins.throw(len(frame))
    with own_temporary(away) as draft:
        frame[held_out].to_csv(draft, index=False)
    return frame[~held_out], away


def _split_text(source: TableSource, coins: _Coins, stay: Path, away: Path) -> None:
    header = list(map(str, open_source(source, {}).header))
    separator = separator_of(source)
    undecoded = set[str]()
    with _pair_of_files(stay, away) as drafts:
        for number, raw in enumerate(
            batches_of(source, dict.fromkeys(header, False), long=True)
        ):
            # a row that cannot be read is refused as everywhere
            judged(replace_fields(raw, columns={}), {})
            undecoded |= undecoded_in(raw)
            frame = pd.DataFrame(raw.columns, columns=header)
            held_out = coins.throw(len(frame))
            for draft, mask in zip(drafts, (~held_out, held_out), strict=True):
                frame[mask].to_csv(
                    draft, index=False, sep=separator, header=not number, mode="a"
                )
        refuse_undecoded(column for column in header if column in undecoded)


def _split_workbook(source: TableSource, coins: _Coins, stay: Path, away: Path) -> None:
    with in_words(source):
        sheet, frame = sheet_of(source, source.name)
    held_out = coins.throw(len(frame))
    with _pair_of_files(stay, away) as drafts:
        for draft, mask in zip(drafts, (~held_out, held_out), strict=True):
            _write_sheet(draft, sheet, frame[mask])


def _write_sheet(path: Path, sheet: str, frame: pd.DataFrame) -> None:
    """A workbook of one sheet; what is text stays text, also where it begins as a
    formula does.
    """
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    book = Workbook(write_only=True)
    rows = book.create_sheet(sheet)
    rows.append([str(name) for name in frame])
    for values in frame.itertuples(index=False, name=None):
        cells = []
        for value in values:
            cell = WriteOnlyCell(rows, value)
            if isinstance(value, str):
                cell.data_type = "s"
            cells.append(cell)
        rows.append(cells)
    with path.open("wb") as file:
        book.save(file)


def _split_arrow(source: TableSource, coins: _Coins, stay: Path, away: Path) -> None:
    schema, tables = _arrow_tables(source)
    with _pair_of_files(stay, away) as drafts, ExitStack() as open_files:
        writers = [
            open_files.enter_context(pyarrow.parquet.ParquetWriter(draft, schema))
            for draft in drafts
        ]
        for table in tables:
            as_it_came = table.select(schema.names).cast(schema)
            held_out = coins.throw(len(table))
            for writer, mask in zip(writers, (~held_out, held_out), strict=True):
                writer.write_table(as_it_came.filter(pa.array(mask)))


def _arrow_tables(source: TableSource) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """All rows, some at a time, and the schema that they have together."""
    from understudy.data.reading import stores

    if not source.is_database:
        return stores.schema_of(source.table), stores.all_tables(source.table)
    answers = [_as_arrow(answer, source) for answer in stores.query_batches(source)]
    try:
        whole = pa.concat_tables(answers, promote_options="permissive")
    except pa.ArrowException:
        raise _of_several_types(source) from None
    return whole.schema, iter([whole])


def _as_arrow(answer: Any, source: TableSource) -> pa.Table:
    if isinstance(answer, pa.Table):
        return answer
    header, cells = answer
    try:
        return pa.table(dict(zip(header, map(pa.array, cells), strict=True)))
    except (pa.ArrowException, TypeError):
        raise _of_several_types(source) from None


def _of_several_types(source: TableSource) -> SchemaError:
    return SchemaError(
        f"{source.name}: a column has values of several types, and cannot be written "
        "as one. Cast it in the query, or hold nobody out (holdout=0, --holdout 0). "
        "This follows from the rows: keep it to yourself.",
        effect=Effect.NOTHING_CHARGED,
    )


@contextmanager
def _pair_of_files(stay: Path, away: Path) -> Iterator[tuple[Path, Path]]:
    """Two files to write, for their owner alone, that are there when both are
    complete.
    """
    with own_temporary(stay) as first, own_temporary(away) as second:
        yield first, second
