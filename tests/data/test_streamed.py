"""Long tables, read in batches: what is read, what is counted and what is refused is as
of the whole.
"""

import gzip
import json
import sqlite3
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import torch

from refusals import raises
from test_cli import Run
from unbinned import BUDGET, FRAME, SCHEMA, SMALL
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.fine import fine_schema
from understudy.data.kinds import NoRows
from understudy.data.reading import files, stores, written
from understudy.data.reading.sources import TableSource
from understudy.data.reading.writing import write_table
from understudy.data.reading.written import room_for
from understudy.data.schema import Integer, Schema
from understudy.data.table import (
    StreamedTable,
    Table,
    TakenTable,
    check_table,
    open_table,
    read_table,
)
from understudy.data.visits import read_visits, reading
from understudy.evaluate import holdings
from understudy.evaluate.holdings import raw_rows, widen_rows
from understudy.ground.errors import AlignmentError, Effect, PartyError, SchemaError
from understudy.network.holder import _count_people as holder_people
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core.alignment import Introduce, MaskOwn
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.stages import FineTables, TableRows
from understudy.protocols.joint.pricing import NoiseAllocation
from understudy.runs.federation import Federation
from understudy.runtime.wire import spoken_bytes
from visit_cases import clinic, frames

KINDS = ("parquet", "csv", "csv.gz", "sqlite", "duckdb")

pytestmark = pytest.mark.usefixtures("short_fits")


@pytest.fixture(autouse=True)
def short_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is long, and comes in parts of a few rows."""
    monkeypatch.setattr(files, "LONG", 0)
    monkeypatch.setattr(files, "BATCH", 64)
    monkeypatch.setattr(stores, "BATCH", 64)
    monkeypatch.setattr(files, "BLOCK", 1024)


def kept(
    folder: Path, kind: str, frame: pd.DataFrame = FRAME, schema: Schema = SCHEMA
) -> TableSource:
    """The rows in a file or a database of that kind."""
    path = folder / f"t.{kind}"
    if kind == "parquet":
        frame.to_parquet(path, index=False)
    elif kind == "csv":
        write_table(frame, path, schema)
    elif kind == "csv.gz":
        path.write_bytes(
            gzip.compress(Path(kept(folder, "csv", frame, schema).table).read_bytes())
        )
    elif kind == "sqlite":
        text = read_table(
            kept(folder, "csv", frame, schema), schema, one_row_each=False
        ).frame.astype(object)
        text = text.where(text.notna(), None)
        for name in text:
            text[name] = [
                value if value is None else str(value) for value in text[name]
            ]
        with sqlite3.connect(path) as base:
            text.to_sql("t", base, index=False)
        base.close()
        return TableSource(table=f"sqlite:///{path}", query="select * from t")
    else:
        kept(folder, "parquet", frame, schema)
        with duckdb.connect(str(path)) as base:
            base.sql(f"create table t as select * from '{folder / 't.parquet'}'")
        return TableSource(table=f"duckdb:///{path}", query="select * from t;")
    return TableSource(table=str(path))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_all_batches_together_are_the_table(tmp_path: Path, kind: str) -> None:
    source = kept(tmp_path, kind)
    table = open_table(source, SCHEMA)
    assert isinstance(table, StreamedTable)
    parts = list(table.batches())
    assert len(parts) > 2
    assert table.rows == len(FRAME)
    whole = read_table(source, SCHEMA).frame
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)
    pd.testing.assert_frame_equal(table.frame, whole)


def party(table: Table, folder: Path | None = None) -> Any:
    ledger = Ledger.rehearsal(holder="one", budget=BUDGET)
    return gram.PROTOCOL.build(
        "one",
        table,
        ledger,
        run="r",
        budget=BUDGET,
        rng=SecureRng.from_seed(7),
        folder=folder,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [{}, {"fine": 0.0}, {"target": SCHEMA.names[0], "triples": (SCHEMA.names[:3],)}],
)
def test_a_release_of_batches_is_that_of_the_whole_table_under_the_same_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    source = kept(tmp_path, "parquet")
    made = []
    for long in (0, files.LONG + 10**9):
        monkeypatch.setattr(files, "LONG", long)
        federation = Federation.rehearsal(
            {"one": source}, {"one": SCHEMA}, budget=BUDGET, seed=3
        )
        assert isinstance(federation.holders["one"].table, StreamedTable) == (not long)
        made.append(train("gram", federation, run="r", **SMALL, **settings).generator)
    pd.testing.assert_frame_equal(
        made[0].sample(50, seed=1), made[1].sample(50, seed=1)
    )
    assert made[0].card == made[1].card


@pytest.mark.long
@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize("size", [1, 7, 149, 10**6])
def test_sums_over_many_batches_are_those_over_one_to_the_last_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fine: bool, size: int
) -> None:
    monkeypatch.setattr(files, "BATCH", size)
    frame = FRAME[: 5 * size]
    layout = Layout({"one": SCHEMA}, fine=fine)
    source = kept(tmp_path, "parquet", frame)
    rows = [
        TableRows(open_table(place, SCHEMA), layout, 0)
        for place in (source, source, frame)
    ]
    assert len(list(rows[0].cell_batches(layout.trees[0] if fine else None))) == -(
        -len(frame) // size
    )
    if fine:
        many, again, one = (
            FineTables(layout, NoiseAllocation.even(layout.grid, 1)).count(own)["0"]
            for own in rows
        )
        assert many.equal(one)
        assert again.equal(one)
        sizes = [column.size for column in fine_schema(SCHEMA).columns]
        groups = {
            str(j): torch.arange(n, dtype=torch.int32) * min(n, 9) // n
            for j, n in enumerate(sizes)
        }
        layout = layout.on_levels(groups)
    many, again, one = (own.matrix(layout) for own in rows)
    assert many.equal(one)
    assert again.equal(one)


def test_holders_of_long_and_of_short_tables_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = kept(tmp_path, "parquet", FRAME[:100])
    short = FRAME[100:]
    made = []
    for tables in ({"a": long, "b": short}, {"a": FRAME[:100], "b": short}):
        schemas = dict.fromkeys(tables, SCHEMA)
        federation = Federation.rehearsal(
            tables, schemas, budget=BUDGET, seed=3, same_people=False
        )
        made.append(
            train("gram", federation, run="r", **SMALL).generator.sample(50, seed=1)
        )
    pd.testing.assert_frame_equal(*made)


@cache
def cut(grid: bool) -> tuple[dict[str, pd.DataFrame], dict[str, Schema], Any]:
    """Columns of the table at several holders, and what is made of them where they are
    held whole.
    """
    frame = FRAME.assign(
        id=[n if n < 70 else f"p{n}é" for n in FRAME["id"]] if grid else FRAME["id"]
    ).astype({"id": str})
    one = list(SCHEMA.names[::2])
    other = list(SCHEMA.names[1::2])
    cuts = {
        "a": (one, slice(None)),
        "b": (other, slice(0, 80)),
        "c": (other, slice(80, 145)),
    }
    cuts = (
        cuts
        if grid
        else {"a": (one, slice(10, None)), "b": (other, slice(None, None, -1))}
    )
    schemas = {name: SCHEMA.select(columns) for name, (columns, _) in cuts.items()}
    tables = {
        name: frame[["id", *columns]][some] for name, (columns, some) in cuts.items()
    }
    federation = Federation.rehearsal(tables, schemas, budget=BUDGET, seed=3)
    return tables, schemas, train("gram", federation, run="r", **SMALL).generator


@pytest.mark.long
@pytest.mark.parametrize(
    "size",
    [30, 10**6],
    ids=["batches and levels in a file", "one batch and levels in memory"],
)
@pytest.mark.parametrize("grid", [False, True])
def test_columns_at_several_holders_are_never_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, grid: bool
) -> None:
    tables, schemas, whole = cut(grid)
    monkeypatch.setattr(files, "BATCH", size)
    monkeypatch.setattr(written, "_LARGE", size)  # bytes of levels in memory
    held: dict[str, Any] = {}
    for name, table in tables.items():
        (tmp_path / name).mkdir()
        held[name] = kept(tmp_path / name, "parquet", table, schemas[name])
    monkeypatch.delattr(StreamedTable, "frame")
    monkeypatch.delattr(TakenTable, "frame")
    federation = Federation.rehearsal(held, schemas, budget=BUDGET, seed=3)
    made = train("gram", federation, run="r", **SMALL).generator
    pd.testing.assert_frame_equal(made.sample(50, seed=1), whole.sample(50, seed=1))
    assert made.card == whole.card


def test_levels_in_a_file_without_a_name_are_counted_as_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = {
        "a": SCHEMA.select(SCHEMA.names[::2]),
        "b": SCHEMA.select(SCHEMA.names[1::2]),
    }
    held: dict[str, Any] = {
        name: FRAME[["id", *own.names]] for name, own in halves.items()
    }
    for name, own in halves.items():
        (tmp_path / name).mkdir()
        held[name] = kept(tmp_path / name, "parquet", held[name], own)
    made = []
    for large in (8, 1 << 28):
        monkeypatch.setattr(written, "_LARGE", large)
        room = room_for((9,), np.dtype("i1"))
        assert isinstance(room.base, np.memmap) == (large == 8)
        federation = Federation.rehearsal(held, halves, budget=BUDGET, seed=3)
        made.append(train("dplt", federation, run="r").generator)
    pd.testing.assert_frame_equal(*(one.sample(50, seed=1) for one in made))
    assert made[0].card == made[1].card


def test_people_who_changed_places_since_they_were_aligned_are_not_taken_for_others(
    tmp_path: Path,
) -> None:
    table, order = open_table(source := kept(tmp_path, "parquet"), SCHEMA), [5, 149, 0]
    assert table.people.tolist() == FRAME["id"].tolist()
    taken = table.take(order)
    assert (
        taken.encoded(Codec(SCHEMA).codes).tolist()
        == Codec(SCHEMA).codes(FRAME)[order].tolist()
    )
    pd.testing.assert_frame_equal(
        taken.frame, read_table(FRAME, SCHEMA).take(order).frame
    )
    for changed in (
        FRAME[::-1],
        FRAME[1:],
        pd.concat([FRAME, FRAME.assign(id=FRAME["id"] + 1000)]),
    ):
        changed.to_parquet(source.table, index=False)
        with pytest.raises(PartyError, match="cannot be read again"):
            taken.encoded(Codec(SCHEMA).codes)
        with pytest.raises(
            SchemaError, match="its people are others by now, or in another order"
        ):
            _ = table.people


@pytest.mark.long
@pytest.mark.parametrize("size", [7, 10**6])
@pytest.mark.parametrize("people", [("people", "own"), ("people",), ()])
def test_people_and_their_events_are_brought_together_from_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, people: tuple[str, ...]
) -> None:
    monkeypatch.setattr(files, "BATCH", size)
    monkeypatch.setattr(reading, "_LOOK", size)
    who, events = frames(40)
    who, events = (
        own.assign(patient=[f"p{n}" if n > 20 else str(n) for n in own["patient"]])
        for own in (who, events)
    )
    schema = clinic() if "own" in people else replace(clinic(), people=None)
    held = {"events": events} | ({"people": who} if people else {})
    for part in held:
        (tmp_path / part).mkdir()
    long = {part: kept(tmp_path / part, "parquet", own) for part, own in held.items()}
    with monkeypatch.context() as context:
        context.delattr(StreamedTable, "frame")
        one = read_visits(long, schema)
    other = read_visits(held, schema)
    assert isinstance(
        open_table(long["events"], schema.events, one_row_each=False), StreamedTable
    )
    for field in ("person_codes", "events", "times", "starts", "people"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert one.people.dtype == other.people.dtype


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["one-report", "two-aggregators"])
def test_simulations_of_people_are_those_of_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr(files, "BATCH", 7)
    schema = SCHEMA.select(["smoker", "treated"])
    two = protocol == "two-aggregators"
    more = (
        {"aggregator": "second", "epsilon": 3.0, "delta": 1e-5, "min_people": 5}
        if two
        else {}
    )
    source = kept(
        tmp_path, "parquet", FRAME.assign(id=[f"p{n // 2}" for n in FRAME["id"]])
    )
    made = []
    for long in (0, 10**9):
        monkeypatch.setattr(files, "LONG", long)
        tables: dict[str, Any] = {"one": source} | (
            {"second": NoRows(schema)} if two else {}
        )
        federation = Federation.rehearsal(
            tables, {"one": schema}, budget=Budget(8.0, 1e-5), seed=3, same_people=False
        )
        with monkeypatch.context() as context:
            if not long:
                context.delattr(StreamedTable, "frame")
            made.append(
                train(
                    protocol, federation, run="r", components=8, steps=5, **more
                ).generator
            )
    pd.testing.assert_frame_equal(*(one.sample(50, seed=1) for one in made))


@pytest.mark.parametrize("kind", KINDS)
def test_a_person_who_comes_twice_in_different_batches_is_found(
    tmp_path: Path, kind: str
) -> None:
    frame = FRAME.copy()
    frame.loc[149, "id"] = frame.loc[0, "id"]
    source = kept(tmp_path, kind, frame)
    with pytest.raises(SchemaError, match="1 rows have the id of an earlier row"):
        open_table(source, SCHEMA)
    several = open_table(source, SCHEMA, one_row_each=False)
    with pytest.raises(AlignmentError, match="1 of 150 rows repeat the id"):
        party(several)


def test_an_id_is_the_same_whether_its_batch_was_read_as_numbers_or_as_text(
    tmp_path: Path,
) -> None:
    schema = Schema(person="id", columns=(Integer(name="x", low=0, high=9),))
    rows = [*range(10_000, 11_000), *(f"a{n}" for n in range(1_000)), "10000"]
    (tmp_path / "t.csv").write_text("id,x\n" + "".join(f"{row},1\n" for row in rows))
    with pytest.raises(SchemaError, match="1 rows have the id"):
        open_table(tmp_path / "t.csv", schema)
    (tmp_path / "t.csv").write_text(
        "id,x\n" + "".join(f"{row},1\n" for row in rows[:-1])
    )
    assert isinstance(open_table(tmp_path / "t.csv", schema), StreamedTable)
    raw, _ = raw_rows(tmp_path / "t.csv", schema, None, 10_000)
    (table,) = widen_rows([raw], schema, one_row_each=False).tables
    assert set(table.people) == set(map(str, rows[:-1]))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_wrong_cell_is_named_by_its_place_in_the_whole_table(
    tmp_path: Path, kind: str
) -> None:
    schema = Schema(columns=(Integer(name="x", low=0, high=999),))
    frame = pd.DataFrame({"x": [*range(900), 5000, *range(50), 6000]})
    with pytest.raises(SchemaError, match='"x": value 5000 at row 901'):
        open_table(kept(tmp_path, kind, frame, schema), schema)


@pytest.mark.parametrize("row", [700, 799])
def test_a_row_with_too_many_cells_is_found(tmp_path: Path, row: int) -> None:
    schema = Schema(
        columns=(Integer(name="x", low=0, high=999), Integer(name="y", low=0, high=9))
    )
    lines = [f"{n},1" for n in range(800)]
    lines[row] += ",2"
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *lines, ""]))
    with pytest.raises(SchemaError, match=f"row {row + 1} has 3 cells"):
        open_table(tmp_path / "t.csv", schema)


def test_a_missing_column_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    source = kept(tmp_path, "csv", FRAME.drop(columns=SCHEMA.names[0]))
    with pytest.raises(SchemaError, match="the header has no such column"):
        open_table(source, SCHEMA)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(SchemaError, match="of another kind than its name says"):
        open_table(tmp_path / "broken.parquet", SCHEMA)
    with pytest.raises(SchemaError, match="cannot be read"):
        open_table(tmp_path / "nowhere.csv", SCHEMA)


def test_rows_that_changed_since_they_were_checked_are_neither_counted_nor_quoted(
    tmp_path: Path,
) -> None:
    source = kept(tmp_path, "parquet")
    table = open_table(source, SCHEMA)
    changed = FRAME.copy()
    changed.loc[149, "id"] = changed.loc[0, "id"]
    changed.to_parquet(source.table, index=False)
    holder = Federation.rehearsal(
        {"one": FRAME}, {"one": SCHEMA}, budget=BUDGET, seed=3
    ).holders["one"]
    federation = Federation.from_holders(
        [type(holder)("one", table, holder.ledger, BUDGET, 3)]
    )
    with raises(PartyError, effect=Effect.CHARGED_AND_NOTHING_SENT) as refused:
        train("gram", federation, run="r", **SMALL)
    assert str(changed.loc[0, "id"]) not in str(refused.value)


def test_a_long_table_shows_no_row(tmp_path: Path) -> None:
    assert (
        repr(open_table(kept(tmp_path, "parquet"), SCHEMA))
        == "StreamedTable(source='t.parquet')"
    )


def test_a_page_compares_some_rows_of_a_long_table_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "MAX_COMPARED_ROWS", 100)
    found = holdings.open_holdings(
        {"one": kept(tmp_path, "parquet")}, {"one": SCHEMA}, same_people=False
    )
    assert isinstance(found, holdings.Holdings)
    assert 50 < len(found.real) < 150
    assert found.notes == (
        f"Of the 150 rows of one, {len(found.real)} that were sampled at random are "
        "compared.",
    )
    assert set(found.people) <= set(FRAME["id"])


@pytest.mark.parametrize("again", [0, 7])
def test_a_seat_counts_the_people_of_a_long_table_without_reading_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    frame = pd.concat([FRAME, FRAME[:again]])
    table = open_table(kept(tmp_path, "parquet", frame), SCHEMA, one_row_each=False)
    monkeypatch.delattr(StreamedTable, "frame")
    assert holder_people(table) == len(FRAME)


def test_a_check_of_batches_finds_what_a_check_of_the_whole_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema(
        person="id",
        columns=(
            Integer(name="x", low=0, high=9),
            Integer(name="y", low=0, high=9),
            Integer(name="z", low=0, high=1),
        ),
    )
    lines = [f"{n},{n % 11},{n % 10},w" for n in range(2000)]
    lines[1500] += ",1"
    (tmp_path / "t.csv").write_text("\n".join(["id,x,y,other", *lines, ""]))
    found = [str(one) for one in check_table(tmp_path / "t.csv", schema)]
    assert len(found) == len(set(found)) > 100
    with monkeypatch.context() as held:
        held.setattr(files, "LONG", 10**9)
        assert set(found) == {
            str(one) for one in check_table(tmp_path / "t.csv", schema)
        }
    twice = [*(f"{n},1,1,1" for n in range(900)), "0,1,1,1", "5,1,1,1"]
    (tmp_path / "t.csv").write_text("\n".join(["id,x,y,z", *twice, ""]))
    (again,) = check_table(tmp_path / "t.csv", schema)
    assert str(again) == (
        't.csv, column "id": 2 rows have the id of an earlier row: a person '
        "has one row."
    )


def test_the_command_checks_cells_and_rules_in_batches(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema(
        columns=(Integer(name="x", low=0, high=9), Integer(name="y", low=0, high=9)),
        rules=({"always": "x <= y"},),
    )
    schema.save(tmp_path / "t.toml")
    pd.DataFrame({"x": [3] * 700, "y": [5] * 500 + [1] * 200}).to_parquet(
        tmp_path / "t.parquet"
    )
    monkeypatch.delattr(StreamedTable, "frame")
    code, out, err = understudy(
        "schema", "check", tmp_path / "t.parquet", tmp_path / "t.toml"
    )
    assert (code, err) == (0, "")
    assert "200 of 700 rows break it" in out


@pytest.mark.parametrize("id", ["p 7 ", "p\u200b7"])
def test_an_id_of_a_long_table_that_cannot_be_matched_is_quoted_to_nobody_else(
    tmp_path: Path, id: str
) -> None:
    """It is found while people are aligned; of a table that is held, when the holder
    opens it.
    """
    frame = FRAME.assign(id=[f"p{n}" for n in FRAME["id"]])
    frame.loc[3, "id"] = id
    table = open_table(kept(tmp_path, "parquet", frame), SCHEMA)
    party = gram.PROTOCOL.build(
        "one", table, Ledger.rehearsal("one", BUDGET), run="r", budget=BUDGET
    )
    for ask in (
        Introduce(),
        MaskOwn(salt=bytes(32), people={"one": len(FRAME), "two": 3}),
    ):
        with pytest.raises(PartyError, match="cannot be matched") as refused:
            party.answer(ask)
        told = json.loads(spoken_bytes("one", refused.value))["text"]
        assert "p 7" not in told
        assert "200b" not in ascii(told)
