"""Columns of 0 and 1 of which exactly one is 1: declared, read as one column, drawn as
one, written as they came.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w

import understudy as us
from refusals import raises
from test_cli import Run
from understudy.data.column import OneOf, suggested
from understudy.data.infer import infer_schema
from understudy.data.reading.one_hot import fold, unfold
from understudy.data.reading.writing import coarsen, csv_text
from understudy.data.schema import Integer, Schema
from understudy.data.table import check_table, open_table, read_table
from understudy.data.visits import VisitSchema
from understudy.ground.errors import ConfigError, Effect, SchemaError, UtilityWarning
from understudy.privacy.kinds import hint_at_groups, kinds_of

pytestmark = pytest.mark.usefixtures("short_fits")
SOILS = ("soil_1", "soil_2", "soil_3")
SOIL = OneOf(name="soil", categories=SOILS)
SCHEMA = Schema(columns=(Integer(name="age", low=0, high=99), SOIL))


def rows(people: int = 2_000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    level = rng.choice(3, people, p=[0.6, 0.3, 0.1])
    parts = {name: (level == k).astype(int) for k, name in enumerate(SOILS)}
    return pd.DataFrame({"age": rng.integers(0, 100, people), **parts})


def test_a_group_is_read_as_one_column_and_written_as_it_came(tmp_path: Path) -> None:
    frame = rows(50)
    table = read_table(frame, SCHEMA)
    assert list(table.frame) == ["age", "soil"]
    assert [frame.loc[row, name] for row, name in enumerate(table.frame["soil"])] == [
        1
    ] * 50
    pd.testing.assert_frame_equal(unfold(table.frame, SCHEMA), frame)
    pd.testing.assert_frame_equal(fold(frame, SCHEMA), table.frame)
    assert csv_text(unfold(table.frame, SCHEMA), SCHEMA) == frame.to_csv(index=False)
    for name in ("rows.csv", "rows.parquet"):
        frame.to_csv(tmp_path / name, index=False) if name.endswith(
            "csv"
        ) else frame.to_parquet(tmp_path / name)
        pd.testing.assert_frame_equal(
            read_table(tmp_path / name, SCHEMA).frame, table.frame
        )
    pd.testing.assert_frame_equal(
        read_table(table.reread_from, SCHEMA).frame, table.frame
    )


def test_a_long_table_is_read_as_one_column_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = rows(500)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.setattr("understudy.data.reading.files.LONG", 100)
    table = open_table(tmp_path / "rows.csv", SCHEMA)
    assert table.long
    pd.testing.assert_frame_equal(
        pd.concat(table.batches(), ignore_index=True), read_table(frame, SCHEMA).frame
    )


@pytest.mark.parametrize(("ones", "count"), [((), 0), ((0, 2), 2)])
def test_a_row_with_none_or_several_is_refused_as_a_value_outside_its_domain(
    ones: tuple[int, ...], count: int
) -> None:
    frame = rows(20)
    frame.loc[7, list(SOILS)] = [int(k in ones) for k in range(3)]
    with pytest.raises(
        SchemaError, match=rf'column "soil": value {count} at row 8 .*exactly one'
    ):
        read_table(frame, SCHEMA)
    assert [violation.row for violation in check_table(frame, SCHEMA)] == [8]


def test_none_of_them_may_be_1_where_the_group_is_nullable() -> None:
    frame = rows(20)
    frame.loc[7, list(SOILS)] = 0
    nullable = Schema(
        columns=(
            SCHEMA.column("age"),
            OneOf(name="soil", categories=SOILS, nullable=True),
        )
    )
    folded = read_table(frame, nullable).frame
    assert folded["soil"].isna().tolist() == [row == 7 for row in range(20)]
    pd.testing.assert_frame_equal(unfold(folded, nullable), frame)
    frame.loc[8, list(SOILS)] = 1
    with pytest.raises(SchemaError, match=r"value 3 at row 9 .*at most one"):
        read_table(frame, nullable)


@pytest.mark.parametrize("cell", [2, "maybe", None])
def test_a_cell_that_is_neither_0_nor_1_is_named_by_its_own_column(
    cell: object,
) -> None:
    frame = rows(5).astype({"soil_2": object})
    frame.loc[3, "soil_2"] = cell
    with pytest.raises(SchemaError, match=r'"soil_2".*row 4'):
        read_table(frame, SCHEMA)


def test_a_column_that_is_missing_in_the_header_is_named() -> None:
    with pytest.raises(SchemaError, match='"soil_2"'):
        read_table(rows(5).drop(columns="soil_2"), SCHEMA)


def test_booleans_and_words_come_back_as_booleans_and_words() -> None:
    for written, values in (
        (("False", "True"), (False, True)),
        (("no", "yes"), ("no", "yes")),
    ):
        group = OneOf(name="soil", categories=SOILS, written=written)
        schema = Schema(columns=(SCHEMA.column("age"), group))
        frame = rows(20)
        frame[list(SOILS)] = frame[list(SOILS)].apply(
            lambda cells, v=values: np.array(v)[cells]
        )
        dtype = bool if values[0] is False else object
        for name in SOILS:
            frame[name] = frame[name].astype(dtype)
        pd.testing.assert_frame_equal(
            unfold(read_table(frame, schema).frame, schema), frame
        )


def test_a_schema_file_declares_groups_by_pattern_by_list_or_as_a_column(
    tmp_path: Path,
) -> None:
    columns = {"age": {"kind": "integer", "low": 0, "high": 99}}
    columns |= {name: {"kind": "boolean", "labels": ["0", "1"]} for name in SOILS}
    assert Schema.from_dict({"columns": columns, "one_of": ["soil_*"]}) == SCHEMA
    assert Schema.from_dict({"columns": columns, "one_of": [list(SOILS)]}) == SCHEMA
    SCHEMA.save(tmp_path / "schema.toml")
    assert Schema.load(tmp_path / "schema.toml") == SCHEMA
    for wrong, said in (
        (["rock_*"], "rock_"),
        (["age"], "age"),
        ([["soil_1", "age"]], "age"),
        ("soil_*", "list"),
    ):
        with pytest.raises(SchemaError, match=said):
            Schema.from_dict({"columns": columns, "one_of": wrong})


def test_the_columns_of_a_group_cannot_be_columns_of_their_own() -> None:
    with pytest.raises(SchemaError, match='"soil_1" is declared twice'):
        Schema(columns=(SOIL, Integer(name="soil_1", low=0, high=1)))
    with pytest.raises(SchemaError, match="soil_1"):
        Schema(columns=(SOIL,), person="soil_1")


def test_names_and_kinds_alone_suggest_groups() -> None:
    kinds = {"age": "integer", "has_pain": "boolean", "has_fever": "boolean"}
    assert suggested(kinds | dict.fromkeys(SOILS, "boolean")) == {"soil": SOILS}
    assert suggested(dict.fromkeys(SOILS, "real")) == {}
    months = tuple(f"month{k}" for k in range(1, 13))
    assert suggested(dict.fromkeys(months, "boolean")) == {"month": months}


@pytest.mark.long
def test_the_one_line_draws_exactly_one_and_a_hint_says_what_may_be_declared(
    tmp_path: Path,
) -> None:
    frame = rows()
    given = {"epsilon": 4, "names_and_kinds_are_public": True}
    with pytest.warns(UtilityWarning, match=r'one_of=\["soil_\*"\]'):
        us.synthesize(frame, **given, ledgers=tmp_path / "first")  # type: ignore[arg-type]
    result = us.synthesize(
        frame, **given, one_of=["soil_*"], ledgers=tmp_path / "second"
    )  # type: ignore[arg-type]
    drawn = result.sample(1_000, seed=1)
    assert list(drawn) == list(frame)
    soils = list(SOILS)
    # noise may leave an age or two missing, and the column then has another dtype
    assert (drawn.dtypes[soils] == frame.dtypes[soils]).all()
    assert (drawn[list(SOILS)].sum(axis=1) == 1).all()
    assert drawn["soil_1"].mean() == pytest.approx(0.6, abs=0.1)
    assert result.generator.schema.names == ("age", "soil")
    again = us.load(result.save(tmp_path / "run") / "generator")
    assert (again.sample(200, seed=2)[list(SOILS)].sum(axis=1) == 1).all()
    saved = pd.read_parquet(tmp_path / "run" / "synthetic.parquet")
    assert list(saved) == list(frame)


def test_a_group_costs_what_one_column_costs(tmp_path: Path) -> None:
    """A person has one level of it: fewer pairs of columns are released than with three
    columns.
    """
    frame = rows()
    given = {"epsilon": 1, "names_and_kinds_are_public": True, "one_of": ["soil_*"]}
    one = us.synthesize(frame, **given, ledgers=tmp_path / "one")  # type: ignore[arg-type]
    word = fold(frame, SCHEMA)
    kinds = {"soil": us.Categorical(name="soil", categories=SOILS), "age": "integer"}
    text = us.synthesize(word, epsilon=1, kinds=kinds, ledgers=tmp_path / "text")
    assert one.generator.card["releases"] == text.generator.card["releases"]


def test_rows_that_break_the_rule_are_refused_before_anything_is_charged(
    tmp_path: Path,
) -> None:
    frame = rows(200)
    frame.loc[3, list(SOILS)] = 1
    with pytest.raises(SchemaError, match="exactly one"):
        us.synthesize(
            frame,
            epsilon=1,
            names_and_kinds_are_public=True,
            one_of=["soil_*"],
            ledgers=tmp_path,
        )
    with us.Ledger(
        tmp_path / "table.ledger", holder="table", budget=us.Budget(1, 1e-6)
    ) as book:
        assert not book.spent()
    for wrong, error, effect in (
        (["rock_*"], ConfigError, Effect.NOTHING_READ_OR_CHARGED),
        ([["soil_1", "age"]], SchemaError, Effect.NOTHING_READ_FURTHER),
        ("soil_*", ConfigError, Effect.NOTHING_READ_OR_CHARGED),
    ):
        with raises(error, effect=effect):
            us.synthesize(
                frame,
                epsilon=1,
                names_and_kinds_are_public=True,
                one_of=wrong,
                ledgers=tmp_path,
            )


def test_questions_speak_of_the_group_and_rows_come_with_its_columns(
    tmp_path: Path,
) -> None:
    frame = rows()
    result = us.synthesize(
        frame,
        epsilon=4,
        names_and_kinds_are_public=True,
        one_of=["soil_*"],
        ledgers=tmp_path,
    )
    made = result.generator
    assert set(made.sample(50, where="soil == 'soil_2'", seed=1)["soil_2"]) == {1}
    assert set(made.sample(50, where="soil_2 == 1", seed=1)["soil_2"]) == {1}
    assert set(made.sample(50, where="not soil_2 == 0", seed=1)["soil_2"]) == {1}
    either = made.sample(200, where="soil_1 == 1 or soil_2 != 0", seed=1)
    assert set(either["soil_1"] + either["soil_2"]) == {1}
    assert set(made.sample(200, where="soil_2 == 0", seed=1)["soil_2"]) == {0}
    known = frame[list(SOILS)].head(20)
    filled = made.complete(known, seed=1)
    pd.testing.assert_frame_equal(filled[list(SOILS)], known)
    assert set(filled) == set(frame)
    assert made.predict_proba(known, "age", seed=1).shape[0] == 20
    assert list(made.predict_proba(frame[["age"]].head(3), "soil", seed=1)) == list(
        SOILS
    )


@pytest.mark.long
def test_an_evaluation_compares_the_columns_as_they_came() -> None:
    frame = rows(600)
    found = us.evaluate(frame, rows(600, seed=5), SCHEMA)
    assert [shares.column.name for shares in found.shares] == ["age", *SOILS]
    broken = frame.copy()
    broken.loc[:300, list(SOILS)] = 0
    # a table of any generator, which need not keep the rule
    worse = us.evaluate(frame, broken, SCHEMA)
    assert (
        max(
            shares.distance for shares in worse.shares if shares.column.name == "soil_1"
        )
        > 0.2
    )
    target = us.evaluate(frame, rows(600, seed=5), SCHEMA, target="soil")
    assert target.target == "soil"


def test_coarsening_leaves_a_group_as_it_came() -> None:
    frame = rows(20)
    coarse = coarsen(frame, SCHEMA)
    assert set(coarse) == set(frame)
    pd.testing.assert_frame_equal(
        read_table(coarse, SCHEMA).frame, read_table(frame, SCHEMA).frame
    )


def test_a_draft_of_rows_has_the_groups_that_the_rows_have() -> None:
    frame = rows(300)
    drafted = infer_schema(frame)
    assert drafted.column("soil") == SOIL
    assert drafted.origin == "rows"  # private, as all that was read from rows
    frame.loc[4, list(SOILS)] = 0
    assert infer_schema(frame).column("soil").nullable
    frame.loc[4, list(SOILS)] = 1
    assert {"age", *SOILS} == set(infer_schema(frame).names)


def test_kinds_that_are_public_never_say_that_exactly_one_is_1(tmp_path: Path) -> None:
    """The hint follows from names and kinds: two tables that differ in who has how many
    ones have the same one.
    """
    broken = rows()
    broken["soil_1"] = 1 - broken["soil_1"]
    said = []
    for frame in (rows(), broken):
        kinds = kinds_of(frame, confirmed=True)
        with pytest.warns(UtilityWarning) as warned:
            hint_at_groups(kinds)
        said.append((sorted(kinds), [str(one.message) for one in warned]))
    assert said[0] == said[1]


@pytest.mark.long
def test_holders_of_other_columns_draw_a_group_with_all_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    frame = rows(1_500).assign(person=np.arange(1_500))
    insurer = pd.DataFrame(
        {"person": frame["person"], "paid": frame["soil_1"].map({0: "no", 1: "yes"})}
    )
    other = Schema(
        columns=(us.Categorical(name="paid", categories=("no", "yes")),),
        person="person",
    )
    tables = {"clinic": frame, "insurer": insurer.iloc[rng.permutation(1_500)]}
    schemas = {
        "clinic": Schema(columns=SCHEMA.columns, person="person"),
        "insurer": other,
    }
    budget = us.Budget(50.0, 1e-6)
    result = us.train(
        "gram",
        us.Federation.rehearsal(tables, schemas, budget=budget, seed=1),
        components=32,
        steps=300,
    )
    drawn = result.sample(1_000, seed=1)
    assert list(drawn) == ["age", *SOILS, "paid"]
    assert (drawn[list(SOILS)].sum(axis=1) == 1).all()
    assert ((drawn["soil_1"] == 1) == (drawn["paid"] == "yes")).mean() > 0.8
    page = result.report(tmp_path / "page.html").read_text()
    assert "soil_2" in page
    classes = result.generator.classifier("paid", rows=500)
    assert len(classes.predict(frame.head(10))) == 10


@pytest.mark.long
def test_commands_take_a_group_from_the_option_and_from_the_schema(
    understudy: Run, tmp_path: Path
) -> None:
    rows().to_csv(tmp_path / "land.csv", index=False)
    (tmp_path / "land.toml").write_text(
        'one_of = ["soil_*"]\n[columns.age]\nkind = "integer"\nlow = 0\nhigh = 999\n'
        + "".join(
            f'[columns.{name}]\nkind = "boolean"\nlabels = [0, 1]\n' for name in SOILS
        )
    )
    ledgers = ("--epsilon", "2", "--ledgers", tmp_path / "ledgers")
    public = "--names-and-kinds-are-public"
    for name, more in (
        ("option", ("--one-of", "soil_*", public)),
        ("schema", ("--schema", tmp_path / "land.toml")),
    ):
        folder = tmp_path / name
        code, _, err = understudy(
            "synthesize",
            tmp_path / "land.csv",
            *ledgers,
            *more,
            "--name",
            name,
            "--out",
            folder,
        )
        assert code == 0, err
        drawn = pd.read_csv(folder / "synthetic.csv")
        assert list(drawn) == ["age", *SOILS]
        assert (drawn[list(SOILS)].sum(axis=1) == 1).all()
        page = (folder / "report.html").read_text()
        assert "soil_3" in page
    # With the option nothing is declared, and noise may draw missing ages or ages below
    # 0, which the schema refuses. Rows drawn by the schema keep it.
    drawn_by_schema = tmp_path / "schema" / "synthetic.csv"
    given = ("--real", tmp_path / "land.csv", "--synthetic", drawn_by_schema)
    code, _, err = understudy("evaluate", *given, "--schema", tmp_path / "land.toml")
    assert code == 0, err
    land = {
        "table": "land.csv",
        "schema": "land.toml",
        "ledger": "land.ledger",
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    run = {
        "protocol": "gram",
        "settings": {"components": 8, "steps": 10},
        "parties": {"land": land},
    }
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run | {"out": "run"}))
    code, _, err = understudy("run", tmp_path / "run.toml")
    assert code == 0, err
    (saved,) = tmp_path.glob("run/**/synthetic.parquet")
    assert (pd.read_parquet(saved)[list(SOILS)].sum(axis=1) == 1).all()


def test_people_with_events_and_holders_of_images_have_no_groups() -> None:
    with pytest.raises(SchemaError, match='"soil" is a group'):
        VisitSchema(person="id", events=SCHEMA, most_events=3)
