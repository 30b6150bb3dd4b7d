"""People who are held out of a run: by coins that depend on nothing, in no release, and
on the page as a control.
"""

import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import understudy as us
from refusals import raises
from understudy.answers import bars
from understudy.answers.bars import ReleasedMarginals
from understudy.answers.release import Counts, Noisy, TableRelease
from understudy.cli import app
from understudy.data.encoding.codec import Codec
from understudy.data.reading.files import sheet_of
from understudy.data.reading.held_out import hold_out, holds_out_unasked
from understudy.data.reading.sources import TableSource
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.privacy.noise import SecureRng
from understudy.report.page import write_report

pytestmark = pytest.mark.usefixtures("short_training", "short_fits")


def people(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, rows),
            "ill": rng.random(rows) < 0.3,
            "town": rng.choice(["a", "b"], rows),
        }
    )


def test_every_row_is_in_one_part_and_who_is_held_out_does_not_depend_on_what_rows_say(
    tmp_path: Path,
) -> None:
    frame = people(4_000)
    others = frame.assign(age=0, town="c")
    kept, away = hold_out(frame, 0.05, SecureRng.from_seed(3), tmp_path, "one")
    same, away_too = hold_out(others, 0.05, SecureRng.from_seed(3), tmp_path, "two")
    assert isinstance(kept, pd.DataFrame)
    assert isinstance(same, pd.DataFrame)
    assert kept.index.equals(same.index)
    out = pd.read_csv(away)
    assert len(out) == len(pd.read_csv(away_too)) == len(frame) - len(kept)
    assert 130 < len(out) < 270  # 200, and five deviations
    both = pd.concat([kept, out]).sort_values(list(frame), ignore_index=True)
    pd.testing.assert_frame_equal(
        both, frame.sort_values(list(frame), ignore_index=True), check_dtype=False
    )


def test_cells_of_a_file_stay_as_they_are_written(tmp_path: Path) -> None:
    lines = [f'{i};"a;{i}";0{i},50 €;' for i in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["id;text;paid;gap", *lines]) + "\n")
    kept, away = hold_out(
        tmp_path / "rows.csv", 0.3, SecureRng.from_seed(1), tmp_path, "rows"
    )
    found = [
        line
        for path in (Path(str(kept)), away)
        for line in path.read_text().splitlines()
    ]
    assert found.count("id;text;paid;gap") == 2
    assert sorted(line for line in found if not line.startswith("id;")) == sorted(lines)
    assert {path.stat().st_mode & 0o777 for path in (Path(str(kept)), away)} == {0o600}


def test_cells_of_a_workbook_stay_what_they_are(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    day = datetime(2024, 2, 29, 12, 30)
    rows = [(i, f"={i}+1", i / 4, day, i % 2 == 0, None) for i in range(60)]
    book = openpyxl.Workbook()
    book.active.append(["not", "these"])
    sheet = book.create_sheet("people")
    sheet.append(["id", "text", "paid", "day", "ill", "gap"])
    for number, row in enumerate(rows, start=2):
        sheet.append(row)
        sheet.cell(number, 2).data_type = "s"
    book.save(tmp_path / "rows.xlsx")
    source = TableSource(table=str(tmp_path / "rows.xlsx"), sheet="people")
    assert holds_out_unasked(source)
    kept, away = hold_out(source, 0.3, SecureRng.from_seed(1), tmp_path, "rows")
    assert isinstance(kept, TableSource)
    assert kept.sheet == "people"
    paths = (Path(kept.table), away)
    found = []
    for path in paths:
        (only,) = openpyxl.load_workbook(path)
        header, *cells = only.iter_rows(values_only=True)
        assert header == ("id", "text", "paid", "day", "ill", "gap")
        found += cells
        assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(found) == rows
    read = pd.concat([sheet_of(replace(source, table=str(p)), "x")[1] for p in paths])
    whole = sheet_of(source, "x")[1]
    assert read.sort_values("id", ignore_index=True).equals(whole)


def test_nobody_is_held_out_of_what_is_no_table_in_a_file_or_a_frame(
    tmp_path: Path,
) -> None:
    for source, share in ((tmp_path / "rows.ods", 0.1), (people(9), 1.5)):
        with raises(ConfigError, effect=Effect.NOTHING_CHARGED):
            hold_out(source, share, SecureRng(), tmp_path, "x")


def test_a_run_that_holds_people_out_says_so_and_its_page_has_attacks(
    tmp_path: Path,
) -> None:
    frame = people(900)
    schema = us.Schema(
        columns=(
            us.Integer(name="age", low=18, high=89, bins=4),
            us.Boolean(name="ill"),
            us.Categorical(name="town", categories=("a", "b")),
        )
    )
    home = tmp_path / "run"
    table = tmp_path / "clinic.csv"
    frame.to_csv(table, index=False)
    result = us.synthesize(
        table,
        epsilon=2,
        schema=schema,
        ledgers=tmp_path / "ledgers",
        folder=home,
        holdout=0.1,
        device="cpu",
    )
    stated = json.loads((home / "privacy.json").read_text())
    assert any(
        "held out of the run with a chance of 10 %" in said
        for said in stated["outside"]
    )
    away = Path(json.loads((home / "run.json").read_text())["held_out"])
    assert result.federation is not None
    rows = result.federation.holders["clinic"].table.rows  # type: ignore[union-attr]
    assert rows + len(pd.read_csv(away)) == 900
    text = write_report(home).read_text()
    assert "attacks were tried" in text
    assert "were not run" not in text
    assert str(away) not in write_report(home, publish=True).read_text()


def test_the_command_holds_out_a_twentieth_of_a_csv_file_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    people(400).to_csv("clinic.csv", index=False)
    schema = us.Schema(
        columns=(
            us.Integer(name="age", low=18, high=89, bins=4),
            us.Boolean(name="ill"),
        )
    )
    schema.save(tmp_path / "clinic.toml")
    for more, held in (([], True), (["--holdout", "0"], False)):
        ledgers = f"ledgers-{held}"
        asked = [
            "synthesize",
            "clinic.csv",
            "--epsilon",
            "2",
            "--schema",
            "clinic.toml",
            "--ledgers",
            ledgers,
        ]
        done = CliRunner().invoke(app, [*asked, "--out", f"run-{held}", *more])
        assert done.exit_code == 0, (done.output, done.exception)
        assert ("held out of the run with a chance of 5 %" in done.output) is held
        assert any(Path(ledgers).glob("*-held-out.csv")) is held


def test_a_long_text_file_is_split_a_block_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.data.reading.files.BLOCK", 1 << 10)
    lines = [f"{i},text {i}" for i in range(2_000)]
    (tmp_path / "rows.csv").write_text("\n".join(["id,text", *lines]) + "\n")
    kept, away = hold_out(
        tmp_path / "rows.csv", 0.2, SecureRng.from_seed(1), tmp_path, "rows"
    )
    parts = [Path(str(part)).read_text().splitlines() for part in (kept, away)]
    assert [part[0] for part in parts] == ["id,text"] * 2
    assert sorted(parts[0][1:] + parts[1][1:]) == sorted(lines)
    assert 300 < len(parts[1]) < 500
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("folder", [False, True])
def test_both_parts_of_parquet_files_have_their_types(
    tmp_path: Path, folder: bool
) -> None:
    frame = people(3_000).astype({"town": "category", "age": "int16"})
    frame["paid"] = pd.array(
        [None if i % 3 else i for i in range(3_000)], dtype="Int64"
    )
    table = tmp_path / ("rows" if folder else "rows.parquet")
    if folder:
        table.mkdir()
        frame[:1_000].to_parquet(table / "a.parquet", index=False)
        frame[1_000:].to_parquet(table / "b.parquet", index=False)
    else:
        frame.to_parquet(table, index=False)
    kept, away = hold_out(table, 0.1, SecureRng.from_seed(1), tmp_path, "run")
    parts = [pd.read_parquet(str(part)) for part in (kept, away)]
    assert all(part.dtypes.equals(frame.dtypes) for part in parts)
    assert 200 < len(parts[1]) < 400
    order = list(frame)
    both = pd.concat(parts).sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(
        both, frame.sort_values(order, ignore_index=True), check_categorical=False
    )
    assert {Path(str(path)).stat().st_mode & 0o777 for path in (kept, away)} == {0o600}


def test_rows_of_a_database_are_held_out_where_somebody_asks(tmp_path: Path) -> None:
    frame = people(500).assign(day="2020-01-01", paid=[None, *range(499)])
    with closing(sqlite3.connect(tmp_path / "clinic.db")) as database:
        frame.to_sql("people", database, index=False)
        database.execute("create table odd (a)")
        database.execute("insert into odd values (1), ('one')")
        database.commit()
    source = TableSource(
        table=f"sqlite:///{tmp_path}/clinic.db",
        query="select * from people",
        missing=("b",),
    )
    kept, away = hold_out(source, 0.2, SecureRng.from_seed(1), tmp_path, "run")
    assert isinstance(kept, TableSource)
    assert kept.missing == ("b",)
    parts = [pd.read_parquet(path) for path in (kept.table, away)]
    order = ["age", "ill", "town", "paid"]
    both = pd.concat(parts).sort_values(order, ignore_index=True)[order]
    assert both.equals(
        frame.astype({"ill": int}).sort_values(order, ignore_index=True)[order]
    )
    assert not holds_out_unasked(source)
    with pytest.raises(SchemaError, match="several types"):
        hold_out(
            replace(source, query="select * from odd"),
            0.2,
            SecureRng(),
            tmp_path,
            "odd",
        )


def test_a_file_that_is_refused_leaves_no_copy(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(SchemaError):
        hold_out(tmp_path / "rows.csv", 0.2, SecureRng(), tmp_path, "run")
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(SchemaError, match="encoding"):
        hold_out(tmp_path / "bytes.csv", 0.2, SecureRng(), tmp_path, "run")
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "bytes.csv"}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["frame", "parquet", "declared"])
def test_a_page_has_attacks_by_default_whatever_the_table_is(
    tmp_path: Path, kind: str
) -> None:
    frame = people(2_000)
    schema = us.Schema(
        columns=(
            us.Integer(name="age", low=18, high=89, bins=4, nullable=True),
            us.Categorical(name="town", categories=("a", "b")),
        )
    )
    source: pd.DataFrame | Path | TableSource = frame
    if kind == "parquet":
        source = tmp_path / "clinic.parquet"
        frame.to_parquet(source)
    if kind == "declared":
        table = tmp_path / "clinic.csv"
        frame.assign(age=frame["age"].where(frame["age"] < 80, "?")).to_csv(
            table, index=False, sep=";"
        )
        source = TableSource(table=str(table), missing=("?",), separator=";")
    home = tmp_path / "run"
    us.synthesize(
        source,
        epsilon=2,
        schema=schema,
        ledgers=tmp_path / "l",
        folder=home,
        device="cpu",
        name="clinic",
    )
    assert json.loads((home / "run.json").read_text())["held_out"]
    if kind == "frame":
        return  # its rows are nowhere: only `report` of the result has them
    assert "attacks were tried" in write_report(home).read_text()


def test_counts_and_rows_are_of_all_people_and_intervals_know_of_the_coins(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"ill": rng.random(20_000) < 0.3, "age": rng.integers(0, 100, 20_000)}
    )
    columns = (us.Boolean(name="ill"), us.Integer(name="age", low=0, high=99, bins=10))
    home = tmp_path / "run"
    result = us.synthesize(
        frame,
        epsilon=20,
        schema=us.Schema(columns=columns),
        ledgers=tmp_path / "l",
        folder=home,
        holdout=0.5,
        device="cpu",
    )
    for generator in (result.generator, us.load(home / "generator")):
        table = generator.table("ill").set_index("ill")
        figures = generator.figures("ill").set_index("figure")
        # of 6,000 people each with a chance of ½: 6,000 · ½ / ½
        expected = math.sqrt(6_000)
        assert abs(table.loc[True, "released"] - frame["ill"].sum()) < 5 * expected
        assert expected * 0.9 < table.loc[True, "sd"] < expected * 1.2
        assert abs(figures.iloc[0]["fit"] - 20_000) < 5 * math.sqrt(20_000)
        assert figures.iloc[0]["sd"] > 0.9 * math.sqrt(20_000)
    assert abs(
        len(pd.read_parquet(home / "synthetic.parquet")) - 20_000
    ) < 5 * math.sqrt(20_000)


@pytest.mark.long
def test_intervals_of_counts_and_means_hold_for_the_rows_of_the_file() -> None:
    rng = np.random.default_rng(2)
    schema = us.Schema(
        columns=(
            us.Integer(name="age", low=0, high=99, bins=100),
            us.Boolean(name="ill"),
        )
    )
    levels = Codec(schema)
    share = 0.3
    held = np.zeros(3)
    ages = rng.integers(0, 100, 5_000)
    ill = rng.random(5_000) < 0.2
    for _ in range(400):
        stays = rng.random(5_000) >= share
        counts = np.zeros((100, 2), dtype=np.int64)
        np.add.at(counts, (ages[stays], ill[stays].astype(int)), 1)
        noisy = counts + np.rint(rng.normal(0, 3, counts.shape)).astype(np.int64)
        pairs = Counts(
            np.array([[0, 1]], dtype=np.int32),
            np.array([3.0]),
            noisy.ravel(),
            np.array([200]),
        )
        told = ill[stays].sum() + round(rng.normal(0, 3))
        ways = Counts(
            np.array([[1]], dtype=np.int32),
            np.array([3.0]),
            np.array([stays.sum() - told, told]),
            np.array([2]),
        )
        release = TableRelease(
            levels,
            {"ways": ways, "pairs": pairs},
            {"people": int(stays.sum()), "held_out": share},
        )
        found = ReleasedMarginals.from_release(release, [0], [{}], {})
        figures = {
            one.name: one
            for one in bars.figures([0], found.table.counts, found, levels, release)
        }
        both = release.joint([1])
        assert both is not None
        assert isinstance(found.table, Noisy)
        assert isinstance(found.total, Noisy)
        mean = figures["mean of age"]
        held[0] += mean.low <= ages.mean() <= mean.high
        held[1] += abs(both.counts[1] - ill.sum()) <= both.half[1]
        held[2] += abs(found.total.counts - 5_000) <= found.total.half
    assert (held / 400 > 0.92).all(), held / 400
    assert (held / 400 < 0.98).all(), held / 400
