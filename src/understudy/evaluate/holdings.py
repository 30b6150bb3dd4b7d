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
from understudy.ground.errors import ConfigError, UnderstudyError

People = NDArray[Any] | None
"""Whose each row is; None where that is not known, and each row counts as a person."""

NOT_OPENED = (
    "its rows are in a database, and a page opens none. Export them to a file, and "
    "name it: write_report(…, tables={…})."
)
MOST = 100_000  # rows of a long table that are compared
UNLISTED = "(not in the schema)"  # the level of all texts that a schema does not list
_BINS = 16  # of a number without bounds


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a schema could not say of a column, and how many of the rows it concerns.
    `gone`: all of the column.
    """

    column: str
    people: int
    rows: int
    said: str
    gone: bool = False

    def __str__(self) -> str:
        return f"“{self.column}”: {self.said}"


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
class OwnRows:
    """Tables of one schema as they came, the schema that holds them all, and what the
    public one could not say.
    """

    tables: tuple[Table, ...]
    schema: Schema
    losses: tuple[Loss, ...]


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
    losses: tuple[Loss, ...] = ()


def raw_rows(
    source: Source, schema: Schema, name: str | None, most: int | None
) -> tuple[Raw, int]:
    """The columns of the schema as they came, and how many rows there are: of a long
    table at most about `most`.
    """
    readers = readers_of(schema, one_row_each=False)
    want = wanted(readers)
    groups = groups_in(readers)
    if most is None or not is_long(source, len(want)):
        raw = fold_raw(open_source(source, want, name), groups)
        return raw, len(raw.numbers)
    total = sum(len(raw.numbers) for raw in batches_of(source, want, long=True))
    rng = np.random.default_rng(0)
    parts = []
    for batch in batches_of(source, want, long=True):
        raw = fold_raw(batch, groups)
        drawn = np.flatnonzero(
            rng.random(len(raw.numbers)) < min(1.0, most / max(1, total))
        )
        columns = {c: cells.iloc[drawn] for c, cells in raw.columns.items()}
        parts.append(replace(raw, columns=columns, numbers=raw.numbers[drawn]))
    full = [part for part in parts if part.columns] or parts
    joined = {
        c: pd.concat([part.columns[c] for part in full], ignore_index=True)
        for c in full[0].columns
    }
    numbers = np.concatenate([part.numbers for part in full])
    return replace(parts[-1], columns=joined, numbers=numbers), total


def read_rows(source: Source, schema: Schema) -> tuple[pd.DataFrame, People, OwnRows]:
    """Rows in the columns of the schema, and whose each is: None where no column says
    so. People may have several.
    """
    raw, _ = raw_rows(source, schema, None, None)
    found = own_rows([raw], schema, one_row_each=False)
    (table,) = found.tables
    people = None if table.schema.person is None else table.people
    return table.frame[list(schema.names)], people, found


def with_bounds(schema: Schema, sources: Sequence[Source]) -> Schema:
    """The schema with the ends of these rows where it declares none: a draft."""
    unbounded = any(map(is_unbounded, schema.columns))
    raws = [raw_rows(source, schema, None, None)[0] for source in sources if unbounded]

    def drafted(column: Column) -> Column:
        cells = [raw.columns[column.name] for raw in raws if column.name in raw.columns]
        wide = (
            _widened(column, pd.concat(cells, ignore_index=True))[0]
            if cells
            else column
        )
        return replace(wide, nullable=column.nullable)

    columns = tuple(
        drafted(column) if is_unbounded(column) else column for column in schema.columns
    )
    return (
        replace(schema, columns=columns, origin="rows", rules=())
        if unbounded
        else schema
    )


def with_room(schema: Any, tables: Mapping[str, Any]) -> Any:
    """A schema of people and events in which all of these rows are: bounds that were
    found may leave some out.
    """
    parts = [
        read_rows(tables[name], part)[2].schema for name, part in schema.tables.items()
    ]
    wide = {column.name: column for part in parts for column in part.columns}
    return schema.each(
        lambda table: replace(table, columns=tuple(wide[name] for name in table.names))
    )


def own_rows(raws: Sequence[Raw], schema: Schema, *, one_row_each: bool) -> OwnRows:
    """Tables that share a schema, typed and checked, in one wide enough for all;
    without a person, a row each.
    """
    rows = sum(len(raw.numbers) for raw in raws)
    columns = list[Column]()
    losses = list[Loss]()
    for column in schema.columns:
        cells = [raw.columns[column.name] for raw in raws if column.name in raw.columns]
        wide, said = (
            _widened(column, pd.concat(cells, ignore_index=True))
            if cells
            else (column, {})
        )
        columns.append(wide)
        losses += [
            Loss(
                column=column.name,
                people=n,
                rows=rows,
                said=f"{n:,} of {rows:,} people {words}",
            )
            for words, n in said.items()
        ]
    if was_bought(schema):
        known = {*schema.names, schema.person}
        absent = dict.fromkeys(
            str(c) for raw in raws for c in raw.header if c not in known
        )
        losses += [
            Loss(
                column=c,
                people=rows,
                rows=rows,
                said="left out of all that was made",
                gone=True,
            )
            for c in absent
        ]
    wide_schema = schema
    if tuple(columns) != schema.columns:
        wide_schema = replace(schema, columns=tuple(columns), origin="rows", rules=())
    tables = tuple(_read(raw, wide_schema, one_row_each) for raw in raws)
    return OwnRows(tables=tables, schema=wide_schema, losses=tuple(losses))


def _read(raw: Raw, schema: Schema, one_row_each: bool) -> Table:
    if not one_row_each and schema.person not in raw.header:
        schema = replace(schema, person=None)  # each row counts as a person then
    cells = judged(_listed(raw, schema), readers_of(schema, one_row_each))
    return Table(pd.DataFrame(cells), schema, raw.name)


def _widened(column: Column, cells: "pd.Series[Any]") -> tuple[Column, dict[str, int]]:
    """The column with room for all cells of its kind, and of how many cells the public
    one could not say what.
    """
    where, seen = distinct(cells, missing_words(column))
    there = where[where >= 0]
    said: dict[str, int] = {}
    if not column.nullable and len(there) < len(where):
        column = replace(column, nullable=True)
        said["have no value, and the schema allows for none"] = len(where) - len(there)
    if isinstance(column, Binned):
        column, more = _with_ends(column, numbers_in(column, seen)[there])
    elif isinstance(column, Categorical):
        column, more = _with_categories(column, seen, there)
    else:
        more = {}
    return column, {words: n for words, n in (said | more).items() if n}


def _with_ends(column: Binned, numbers: Any) -> tuple[Binned, dict[str, int]]:
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
    whole = column.edges.dtype.kind == "i"
    low = column.edges[0]
    high = column.edges[-1] - whole
    below = int((numbers < low).sum())
    above = int((numbers > high).sum())
    if not below and not above:
        return column, {}
    said: dict[str, int] = {}
    edges = [column.bound_at(edge) for edge in column.edges[:-1]]
    last = column.high
    if below:
        first = column.bound_at(numbers.min())
        edges.insert(0, first)
        said[f"lie below {column.low}, down to {first}"] = below
    if above:
        most = column.bound_at(numbers.max())
        said[f"lie above {last}, up to {most}"] = above
        # The bin that was the last holds its end; a bin of whole numbers has two of
        # them, so that edges increase.
        start = high + 1 if whole else np.nextafter(high, np.inf)
        edges.append(column.bound_at(start))
        last = column.bound_at(
            max(numbers.max(), start + 1 if whole else np.nextafter(start, np.inf))
        )
    elif edges[-1] == last:  # a last bin of one number
        last = column.bound_at(high + 1)
    return replace(column, low=edges[0], high=last, bins=(*edges, last), **plain), said


def _with_categories(
    column: Categorical, seen: "pd.Series[Any]", there: Any
) -> tuple[Categorical, dict[str, int]]:
    """One category more for all texts that are not listed, or the numbers that
    are not.
    """
    if isinstance(column.categories[0], str):
        words = pd.Series(texts(seen), dtype=object)
        strange = (words.notna() & ~words.isin(column.categories)).to_numpy()[there]
        if not strange.any():
            return column, {}
        different = words.to_numpy(object)[there][strange]
        stands = (
            f": “{OTHER}” stands for them"
            if OTHER in column.categories
            else " that the schema lacks"
        )
        count = len(set(different))
        said = (
            f"have {'one of ' if count > 1 else ''}{count:,} text{'s' * (count > 1)} "
            f"that did not show{stands}"
        )
        known = (
            column.categories
            if UNLISTED in column.categories
            else (*column.categories, UNLISTED)
        )
        return replace(column, categories=known), {said: int(strange.sum())}
    numbers = floats(seen)[there]
    strange = np.isfinite(numbers) & ~np.isin(numbers, list(column.categories))
    if not strange.any():
        return column, {}
    whole = (
        all(isinstance(v, int) for v in column.categories)
        and (numbers == np.floor(numbers)).all()
    )
    more = [int(v) if whole else float(v) for v in np.unique(numbers[strange])]
    both = (*column.categories, *more)
    shown = f"have a number that the schema lacks (from {min(more):g} to {max(more):g})"
    listed = sorted(both) if isinstance(column, Ordinal) else both
    return replace(column, categories=tuple(listed)), {shown: int(strange.sum())}


def _listed(raw: Raw, schema: Schema) -> Raw:
    """The rows with texts as the widened schema lists them, all others as one level."""
    columns = dict(raw.columns)
    for column in schema.columns:
        if not isinstance(column, Categorical) or not isinstance(
            column.categories[0], str
        ):
            continue
        cells = columns.get(column.name)
        if cells is not None:
            where, seen = distinct(cells, missing_words(column))
            words = texts(seen)
            fits = pd.Series(words, dtype=object).isin(column.categories).to_numpy(bool)
            others = (
                UNLISTED if UNLISTED in column.categories else seen.to_numpy(object)
            )
            cells_of = np.append(
                np.where(fits, words, others), np.array([None], dtype=object)
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
    alone: dict[str, OwnRows] = {}
    notes: list[str] = []
    for party, source in sources.items():
        try:
            if not databases and in_database(source):
                raise ConfigError(NOT_OPENED)
            name = party if isinstance(source, pd.DataFrame) else None
            raws[party], total = raw_rows(
                source, schemas[party], name, None if same_people else MOST
            )
            some = len(raws[party].numbers)
            if some < total:
                notes.append(
                    f"Of the {total:,} rows of {party}, {some:,} that were drawn at "
                    "random are compared."
                )
            alone[party] = own_rows(
                [raws[party]], schemas[party], one_row_each=same_people
            )
        except UnderstudyError as error:
            notes.append(f"The table of {party} is left out: {error}")
    tables: dict[str, Table] = {}
    losses: list[Loss] = []
    for columns in dict.fromkeys(schemas[party].names for party in alone):
        alike = [party for party in alone if schemas[party].names == columns]
        found = alone[alike[0]]
        if len(alike) > 1:
            found = own_rows(
                [raws[p] for p in alike], schemas[alike[0]], one_row_each=same_people
            )
        tables |= dict(zip(alike, found.tables, strict=True))
        losses += found.losses
    tables = {party: tables[party] for party in alone}
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
    joined = _side_by_side(tables, notes)
    return joined if isinstance(joined, str) else replace(joined, losses=tuple(losses))


def _side_by_side(tables: Mapping[str, Table], notes: list[str]) -> Holdings | str:
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
    apart: tuple[Outsiders, ...] = ()
    for label, frame in frames.items():
        others = frame.loc[frame.index.difference(joint.index)]
        if len(others):
            inside = joint[list(first[label].names)]
            apart += (
                Outsiders(
                    inside=inside, outside=others, schema=first[label], label=label
                ),
            )
    notes += [
        f"In attacks on the columns of {group.label}, the {len(group.outside):,} "
        "people whom it holds and another "
        "party does not hold are used as people who took no part."
        for group in apart
    ]
    return Holdings(
        real=joint,
        schema=join(first),
        owners={
            name: group[0] for group in groups for name in tables[group[0]].schema.names
        },
        outsiders=apart,
        notes=tuple(notes),
        people=None if by_row else joint.index.to_numpy(),
    )
