"""The real rows that may be read here, as they came, side by side as a run had them.

A schema that was bought cuts bounds, merges texts and leaves columns out, and a run
sees the rows through it. Whoever judges what was made compares with the rows as they
came: the schema is widened here until it holds them (`own_rows`), by a bin below and
above its bounds and a level for all texts that it does not list, and what it could not
say is counted. The widened schema is a draft (`origin="rows"`), which everything that
leaves a holder refuses.

Where parties hold columns of the same people, their tables are joined by the person
(`open_holdings`), or row by row where no schema names one; people whom only one party
holds took no part, and are kept as outsiders for attacks. Where parties hold rows of
the same columns, tables are put one under the other. Over a grid both: first the tables
of each group of holders, then the groups.

The result holds rows: it is for a process of their holder, or of a simulation on public
rows.
Edges: a cell that is not of its column's kind → SchemaError, as everywhere; a table
that cannot be read or joined is left out with the reason; when none is left, so is
everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import (
    OTHER,
    Binned,
    Categorical,
    Column,
    Ordinal,
    Real,
    is_unbounded,
)
from understudy.data.reading.cells import (
    distinct,
    floats,
    missing_words,
    numbers_in,
    texts,
)
from understudy.data.reading.files import Source, batches_of, is_long, open_source
from understudy.data.reading.judged import groups_in, judged, readers_of, wanted
from understudy.data.reading.one_hot import fold_raw
from understudy.data.reading.sources import in_database
from understudy.data.reading.written import Raw
from understudy.data.schema import Grid, Schema, join, was_bought
from understudy.data.table import Table
from understudy.ground.check import pluralize
from understudy.ground.errors import ConfigError, UnderstudyError

People = NDArray[Any] | None
"""Whose each row is; None where that is not known, and each row counts as a person."""

NOT_OPENED = (
    "its rows are in a database, and a report opens none. Export them to a file, and "
    "name it: write_report(…, tables={…})."
)
MAX_COMPARED_ROWS = 100_000  # rows of a long table that are compared
UNLISTED = "(not in the schema)"  # the level of all texts that a schema does not list
_BINS = 16  # of a number without bounds


@dataclass(frozen=True, kw_only=True)
class SchemaLoss:
    """What a schema could not say of a column, and how many of the rows it concerns.
    `gone`: all of the column.
    """

    column: str
    people: int
    rows: int
    words: str
    left_out: bool = False

    def __str__(self) -> str:
        return f"“{self.column}”: {self.words}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Outsiders:
    """Training rows and rows of the same kind that no training saw, in the columns of
    `schema`.
    """

    inside: pd.DataFrame
    outside: pd.DataFrame
    schema: Schema
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class WidenedRows:
    """Tables of one schema as they came, the schema that holds them all, and what the
    public one could not say.
    """

    tables: tuple[Table, ...]
    schema: Schema
    losses: tuple[SchemaLoss, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Holdings:
    """Real rows, their public schema, whose column or row (`people`) is whose, who took
    no part, and notes.
    """

    real: pd.DataFrame
    schema: Schema
    owners: Mapping[str, str] | None = None
    outsiders: tuple[Outsiders, ...] = ()
    notes: tuple[str, ...] = ()
    people: People = None
    losses: tuple[SchemaLoss, ...] = ()


def raw_rows(
    source: Source, schema: Schema, name: str | None, max_rows: int | None
) -> tuple[Raw, int]:
    """The columns of the schema as they came, and how many rows there are: of a long
    table at most about `most`.
    """
    readers = readers_of(schema, one_row_each=False)
    want = wanted(readers)
    groups = groups_in(readers)
    if max_rows is None or not is_long(source, len(want)):
        raw = fold_raw(open_source(source, want, name), groups)
        return raw, len(raw.numbers)
    total = sum(len(raw.numbers) for raw in batches_of(source, want, long=True))
    rng = np.random.default_rng(0)
    parts = []
    for batch in batches_of(source, want, long=True):
        raw = fold_raw(batch, groups)
        sampled = np.flatnonzero(
            rng.random(len(raw.numbers)) < min(1.0, max_rows / max(1, total))
        )
        columns = {c: cells.iloc[sampled] for c, cells in raw.columns.items()}
        parts.append(replace(raw, columns=columns, numbers=raw.numbers[sampled]))
    full = [part for part in parts if part.columns] or parts
    joined = {
        c: pd.concat([part.columns[c] for part in full], ignore_index=True)
        for c in full[0].columns
    }
    numbers = np.concatenate([part.numbers for part in full])
    return replace(parts[-1], columns=joined, numbers=numbers), total


def read_rows(
    source: Source, schema: Schema
) -> tuple[pd.DataFrame, People, WidenedRows]:
    """Rows in the columns of the schema, and whose each is: None where no column says
    so. People may have several.
    """
    raw, _ = raw_rows(source, schema, None, None)
    widened = widen_rows([raw], schema, one_row_each=False)
    (table,) = widened.tables
    people = None if table.schema.person is None else table.people
    return table.frame[list(schema.names)], people, widened


def with_bounds(schema: Schema, sources: Sequence[Source]) -> Schema:
    """The schema with the ends of these rows where it declares none: a draft."""
    unbounded = any(map(is_unbounded, schema.columns))
    raws = [raw_rows(source, schema, None, None)[0] for source in sources if unbounded]

    def draft_column(column: Column) -> Column:
        cells = [raw.columns[column.name] for raw in raws if column.name in raw.columns]
        widened = (
            _widen_column(column, pd.concat(cells, ignore_index=True))[0]
            if cells
            else column
        )
        return replace(widened, nullable=column.nullable)

    columns = tuple(
        draft_column(column) if is_unbounded(column) else column
        for column in schema.columns
    )
    return (
        replace(schema, columns=columns, origin="rows", rules=())
        if unbounded
        else schema
    )


def widen_schema(schema: Any, tables: Mapping[str, Any]) -> Any:
    """A schema of people and events in which all of these rows are: bounds that were
    found may leave some out.
    """
    parts = [
        read_rows(tables[name], part)[2].schema for name, part in schema.tables.items()
    ]
    wide = {column.name: column for part in parts for column in part.columns}
    return schema.map_tables(
        lambda table: replace(table, columns=tuple(wide[name] for name in table.names))
    )


def widen_rows(
    raws: Sequence[Raw], schema: Schema, *, one_row_each: bool
) -> WidenedRows:
    """Tables that share a schema, typed and checked, in one wide enough for all;
    without a person, a row each.
    """
    rows = sum(len(raw.numbers) for raw in raws)
    columns = list[Column]()
    losses = list[SchemaLoss]()
    for column in schema.columns:
        cells = [raw.columns[column.name] for raw in raws if column.name in raw.columns]
        wide, cell_losses = (
            _widen_column(column, pd.concat(cells, ignore_index=True))
            if cells
            else (column, {})
        )
        columns.append(wide)
        losses += [
            SchemaLoss(
                column=column.name,
                people=n,
                rows=rows,
                words=f"{n:,} of {rows:,} people {words}",
            )
            for words, n in cell_losses.items()
        ]
    if was_bought(schema):
        schema_names = {*schema.names, schema.person}
        absent = dict.fromkeys(
            str(c) for raw in raws for c in raw.header if c not in schema_names
        )
        losses += [
            SchemaLoss(
                column=c,
                people=rows,
                rows=rows,
                words="left out of all that was made",
                left_out=True,
            )
            for c in absent
        ]
    wide_schema = schema
    if tuple(columns) != schema.columns:
        wide_schema = replace(schema, columns=tuple(columns), origin="rows", rules=())
    tables = tuple(_read_table(raw, wide_schema, one_row_each) for raw in raws)
    return WidenedRows(tables=tables, schema=wide_schema, losses=tuple(losses))


def _read_table(raw: Raw, schema: Schema, one_row_each: bool) -> Table:
    if not one_row_each and schema.person not in raw.header:
        schema = replace(schema, person=None)  # each row counts as a person then
    cells = judged(_fold_unlisted(raw, schema), readers_of(schema, one_row_each))
    return Table(pd.DataFrame(cells), schema, raw.name)


def _widen_column(
    column: Column, cells: "pd.Series[Any]"
) -> tuple[Column, dict[str, int]]:
    """The column with room for all cells of its kind, and of how many cells the public
    one could not say what.
    """
    where, values = distinct(cells, missing_words(column))
    occurring = where[where >= 0]
    losses: dict[str, int] = {}
    if not column.nullable and len(occurring) < len(where):
        column = replace(column, nullable=True)
        losses["have no value, and the schema allows for none"] = len(where) - len(
            occurring
        )
    if isinstance(column, Binned):
        column, kind_losses = _widen_bounds(
            column, numbers_in(column, values)[occurring]
        )
    elif isinstance(column, Categorical):
        column, kind_losses = _widen_categories(column, values, occurring)
    else:
        kind_losses = {}
    return column, {words: n for words, n in (losses | kind_losses).items() if n}


def _widen_bounds(column: Binned, numbers: Any) -> tuple[Binned, dict[str, int]]:
    """A bin more on the side on which numbers lie outside the bounds; without bounds,
    bins of as many numbers each.
    """
    numbers = numbers[np.isfinite(numbers)]
    plain: dict[str, Any] = (
        {"decimals": None, "ends": False} if isinstance(column, Real) else {}
    )
    if column.unbounded:
        if not len(numbers):
            raise column.error(
                "has no bounds, and no row has a number in it. Declare low and high."
            )
        cuts = np.unique(
            np.quantile(numbers, np.linspace(0, 1, _BINS + 1), method="inverted_cdf")
        )
        ends = tuple(
            map(
                column.bound_at,
                [*cuts, cuts[0] + max(1.0, abs(cuts[0]))] if len(cuts) == 1 else cuts,
            )
        )
        return replace(column, low=ends[0], high=ends[-1], bins=ends, **plain), {}
    is_whole = column.edges.dtype.kind == "i"
    low = column.edges[0]
    high = column.edges[-1] - is_whole
    below = int((numbers < low).sum())
    above = int((numbers > high).sum())
    if not below and not above:
        return column, {}
    losses: dict[str, int] = {}
    edges = [column.bound_at(edge) for edge in column.edges[:-1]]
    last = column.high
    if below:
        first = column.bound_at(numbers.min())
        edges.insert(0, first)
        losses[f"lie below {column.low}, down to {first}"] = below
    if above:
        largest = column.bound_at(numbers.max())
        losses[f"lie above {last}, up to {largest}"] = above
        # The bin that was the last holds its end; a bin of whole numbers has two of
        # them, so that edges increase.
        start = high + 1 if is_whole else np.nextafter(high, np.inf)
        edges.append(column.bound_at(start))
        last = column.bound_at(
            max(numbers.max(), start + 1 if is_whole else np.nextafter(start, np.inf))
        )
    elif edges[-1] == last:  # a last bin of one number
        last = column.bound_at(high + 1)
    return replace(
        column, low=edges[0], high=last, bins=(*edges, last), **plain
    ), losses


def _widen_categories(
    column: Categorical, values: "pd.Series[Any]", occurring: Any
) -> tuple[Categorical, dict[str, int]]:
    """One category more for all texts that are not listed, or the numbers that
    are not.
    """
    if isinstance(column.categories[0], str):
        words = pd.Series(texts(values), dtype=object)
        unlisted = (words.notna() & ~words.isin(column.categories)).to_numpy()[
            occurring
        ]
        if not unlisted.any():
            return column, {}
        different = words.to_numpy(object)[occurring][unlisted]
        stands = (
            f": “{OTHER}” stands for them"
            if OTHER in column.categories
            else " that the schema lacks"
        )
        count = len(set(different))
        loss = (
            f"have {'one of ' if count > 1 else ''}{pluralize(count, 'text')} "
            f"that did not show{stands}"
        )
        categories = (
            column.categories
            if UNLISTED in column.categories
            else (*column.categories, UNLISTED)
        )
        return replace(column, categories=categories), {loss: int(unlisted.sum())}
    numbers = floats(values)[occurring]
    unlisted = np.isfinite(numbers) & ~np.isin(numbers, list(column.categories))
    if not unlisted.any():
        return column, {}
    is_whole = (
        all(isinstance(v, int) for v in column.categories)
        and (numbers == np.floor(numbers)).all()
    )
    new_values = [
        int(v) if is_whole else float(v) for v in np.unique(numbers[unlisted])
    ]
    listed_values = (*column.categories, *new_values)
    loss = (
        "have a number that the schema lacks "
        f"(from {min(new_values):g} to {max(new_values):g})"
    )
    listed = sorted(listed_values) if isinstance(column, Ordinal) else listed_values
    return replace(column, categories=tuple(listed)), {loss: int(unlisted.sum())}


def _fold_unlisted(raw: Raw, schema: Schema) -> Raw:
    """The rows with texts as the widened schema lists them, all others as one level."""
    columns = dict(raw.columns)
    for column in schema.columns:
        if not isinstance(column, Categorical) or not isinstance(
            column.categories[0], str
        ):
            continue
        cells = columns.get(column.name)
        if cells is not None:
            where, values = distinct(cells, missing_words(column))
            words = texts(values)
            fits = pd.Series(words, dtype=object).isin(column.categories).to_numpy(bool)
            replacement = (
                UNLISTED if UNLISTED in column.categories else values.to_numpy(object)
            )
            cells_of = np.append(
                np.where(fits, words, replacement), np.array([None], dtype=object)
            )
            columns[column.name] = pd.Series(cells_of[where])
    return replace(raw, columns=columns)


def open_holdings(
    sources: Mapping[str, Source],
    schemas: Mapping[str, Schema],
    *,
    same_people: bool,
    databases: bool = True,
) -> Holdings | str:
    """The parties' tables as one, or the reason why there is none. `databases`: whether
    one may be asked for rows.
    """
    raws: dict[str, Raw] = {}
    by_party: dict[str, WidenedRows] = {}
    notes: list[str] = []
    for party, source in sources.items():
        try:
            if not databases and in_database(source):
                raise ConfigError(NOT_OPENED)
            name = party if isinstance(source, pd.DataFrame) else None
            raws[party], total = raw_rows(
                source, schemas[party], name, None if same_people else MAX_COMPARED_ROWS
            )
            n_sampled = len(raws[party].numbers)
            if n_sampled < total:
                notes.append(
                    f"Of the {total:,} rows of {party}, {n_sampled:,} that were "
                    "sampled at random are compared."
                )
            by_party[party] = widen_rows(
                [raws[party]], schemas[party], one_row_each=same_people
            )
        except UnderstudyError as error:
            notes.append(f"The table of {party} is left out: {error}")
    tables: dict[str, Table] = {}
    losses: list[SchemaLoss] = []
    for columns in dict.fromkeys(schemas[party].names for party in by_party):
        same_columns = [party for party in by_party if schemas[party].names == columns]
        widened = by_party[same_columns[0]]
        if len(same_columns) > 1:
            widened = widen_rows(
                [raws[p] for p in same_columns],
                schemas[same_columns[0]],
                one_row_each=same_people,
            )
        tables |= dict(zip(same_columns, widened.tables, strict=True))
        losses += widened.losses
    tables = {party: tables[party] for party in by_party}
    if not tables:
        return " ".join(notes) or "no party's table was named."
    if not same_people:
        frames = [table.frame[list(table.schema.names)] for table in tables.values()]
        schema = next(iter(tables.values())).schema
        named = all(table.schema.person is not None for table in tables.values())
        people = (
            np.concatenate([table.people for table in tables.values()])
            if named
            else None
        )
        real = pd.concat(frames, ignore_index=True)
        return Holdings(
            real=real,
            schema=schema,
            people=people,
            notes=tuple(notes),
            losses=tuple(losses),
        )
    joined = _join_columns(tables, notes)
    return joined if isinstance(joined, str) else replace(joined, losses=tuple(losses))


def _join_columns(tables: Mapping[str, Table], notes: list[str]) -> Holdings | str:
    groups = Grid.from_schemas(
        {party: table.schema for party, table in tables.items()}
    ).groups
    first = {", ".join(group): tables[group[0]].schema for group in groups}
    indexed = {
        party: table.frame[list(table.schema.names)].set_axis(
            pd.Index(table.people), axis=0
        )
        for party, table in tables.items()
    }
    frames = {
        ", ".join(group): pd.concat([indexed[party] for party in group])
        for group in groups
    }
    if len({table.schema.person is None for table in tables.values()}) > 1:
        return (
            "some parties name a person column and some do not, so their rows cannot "
            "be joined."
        )
    by_row = all(table.schema.person is None for table in tables.values())
    if by_row and len({len(frame) for frame in frames.values()}) > 1:
        return (
            "no party names a person column and their tables differ in length: rows "
            "cannot be joined."
        )
    for label, frame in frames.items():
        if frame.index.has_duplicates:
            return (
                f"two of {label} hold the same person and the same columns: rows "
                "cannot be joined."
            )
    joint = pd.concat(frames.values(), axis=1, join="inner")
    if joint.empty:
        return f"{' and '.join(frames)} share no person."
    if len(frames) == 1 and not by_row:
        (party,) = frames
        notes.append(
            f"All {len(joint):,} rows of {party} are compared; those whom no other "
            "party holds took no part."
        )
    outsiders: tuple[Outsiders, ...] = ()
    for label, frame in frames.items():
        unshared = frame.loc[frame.index.difference(joint.index)]
        if len(unshared):
            inside = joint[list(first[label].names)]
            outsiders += (
                Outsiders(
                    inside=inside, outside=unshared, schema=first[label], label=label
                ),
            )
    notes += [
        f"In attacks on the columns of {group.label}, the {len(group.outside):,} "
        "people whom it holds and another "
        "party does not hold are used as people who took no part."
        for group in outsiders
    ]
    return Holdings(
        real=joint,
        schema=join(first),
        owners={
            name: group[0] for group in groups for name in tables[group[0]].schema.names
        },
        outsiders=outsiders,
        notes=tuple(notes),
        people=None if by_row else joint.index.to_numpy(),
    )
