"""The real rows that may be read here, side by side as a run had them.

Where parties hold columns of the same people, their tables are joined by the person, or row by row where no
schema names one; people whom only one party holds took no part, and are kept as outsiders for attacks. Where
parties hold rows of the same columns, tables are put one under the other. Over a grid both: first the tables of each
group of holders, then the groups.

The result holds rows: it is for a process of their holder, or of a simulation on public rows. Edges: a table that
cannot be read or joined is left out with the reason; when none is left, so is everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from understudy.data.reading.files import Raw, Source
from understudy.data.reading.sources import in_database
from understudy.data.schema import Grid, Schema, join
from understudy.data.table import Table
from understudy.evaluate.comparison import Outsiders
from understudy.evaluate.own_rows import Loss, OwnRows, People, own_rows, raw_rows
from understudy.ground.errors import ConfigError, UnderstudyError

NOT_OPENED = (
    "its rows are in a database, and a page opens none. Export them to a file, and name it: "
    "write_report(…, tables={…})."
)
MOST = 100_000  # rows of a long table that are compared


@dataclass(frozen=True, kw_only=True, eq=False)
class Holdings:
    """Real rows, their public schema, whose column is whose, who took no part, and what is to be known.

    `people` says whose each row is, where a column does.
    """

    real: pd.DataFrame
    schema: Schema
    owners: Mapping[str, str] | None = None
    outsiders: tuple[Outsiders, ...] = ()
    notes: tuple[str, ...] = ()
    people: People = None
    losses: tuple[Loss, ...] = ()


def open_holdings(
    sources: Mapping[str, Source], schemas: Mapping[str, Schema], *, same_people: bool, databases: bool = True
) -> Holdings | str:
    """The parties' tables as one, or the reason why there is none. `databases`: whether one may be asked for rows."""
    raws: dict[str, Raw] = {}
    alone: dict[str, OwnRows] = {}
    notes: list[str] = []
    for party, source in sources.items():
        try:
            if not databases and in_database(source):
                raise ConfigError(NOT_OPENED)
            name = party if isinstance(source, pd.DataFrame) else None
            raws[party], total = raw_rows(source, schemas[party], name, None if same_people else MOST)
            if (some := len(raws[party].numbers)) < total:
                notes.append(
                    f"Of the {total:,} rows of {party}, {some:,} that were drawn at random are compared."
                )
            alone[party] = own_rows([raws[party]], schemas[party], one_row_each=same_people)
        except UnderstudyError as error:
            notes.append(f"The table of {party} is left out: {error}")
    tables: dict[str, Table] = {}
    losses: list[Loss] = []
    for columns in dict.fromkeys(schemas[party].names for party in alone):
        alike = [party for party in alone if schemas[party].names == columns]
        found = alone[alike[0]]
        if len(alike) > 1:
            found = own_rows([raws[p] for p in alike], schemas[alike[0]], one_row_each=same_people)
        tables |= dict(zip(alike, found.tables, strict=True))
        losses += found.losses
    tables = {party: tables[party] for party in alone}
    if not tables:
        return " ".join(notes) or "no party's table was named."
    if not same_people:
        frames = [table.frame[list(table.schema.names)] for table in tables.values()]
        schema = next(iter(tables.values())).schema
        named = all(table.schema.person is not None for table in tables.values())
        people = np.concatenate([table.people for table in tables.values()]) if named else None
        real = pd.concat(frames, ignore_index=True)
        return Holdings(real=real, schema=schema, people=people, notes=tuple(notes), losses=tuple(losses))
    joined = _side_by_side(tables, notes)
    return joined if isinstance(joined, str) else replace(joined, losses=tuple(losses))


def _side_by_side(tables: Mapping[str, Table], notes: list[str]) -> Holdings | str:
    groups = Grid.of({party: table.schema for party, table in tables.items()}).groups
    first = {", ".join(group): tables[group[0]].schema for group in groups}
    indexed = {
        party: table.frame[list(table.schema.names)].set_axis(pd.Index(table.people), axis=0)
        for party, table in tables.items()
    }
    frames = {", ".join(group): pd.concat([indexed[party] for party in group]) for group in groups}
    if len({table.schema.person is None for table in tables.values()}) > 1:
        return "some parties name a person column and some do not, so their rows cannot be joined."
    by_row = all(table.schema.person is None for table in tables.values())
    if by_row and len({len(frame) for frame in frames.values()}) > 1:
        return "no party names a person column and their tables differ in length: rows cannot be joined."
    for label, frame in frames.items():
        if frame.index.has_duplicates:
            return f"two of {label} hold the same person and the same columns: rows cannot be joined."
    joint = pd.concat(frames.values(), axis=1, join="inner")
    if joint.empty:
        return f"{' and '.join(frames)} share no person."
    if len(frames) == 1 and not by_row:
        (party,) = frames
        notes.append(
            f"All {len(joint):,} rows of {party} are compared; those whom no other party holds took no part."
        )
    outsiders = [
        Outsiders(
            inside=joint[list(first[label].names)],
            outside=frame.loc[frame.index.difference(joint.index)],
            schema=first[label],
            label=label,
        )
        for label, frame in frames.items()
    ]
    apart = tuple(group for group in outsiders if len(group.outside))
    notes += [
        f"In attacks on the columns of {group.label}, the {len(group.outside):,} people whom it holds and another "
        "party does not hold are used as people who took no part."
        for group in apart
    ]
    return Holdings(
        real=joint,
        schema=join(first),
        owners={name: group[0] for group in groups for name in tables[group[0]].schema.names},
        outsiders=apart,
        notes=tuple(notes),
        people=None if by_row else joint.index.to_numpy(),
    )
