import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_strategies import columns, schemas

from refusals import raises
from understudy.data.column import Binned
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Integer,
    Ordinal,
    Real,
    Schema,
    join,
)
from understudy.ground.errors import DraftSchemaError, Effect, SchemaError

AGE = Integer(name="age", low=0, high=110, bins=11, nullable=True)
SCHEMA = Schema(columns=(AGE, Boolean(name="smoker")), person="zper")


@settings(deadline=None, max_examples=25)
@given(schema=schemas())
def test_a_schema_survives_toml_json_and_plain_types(
    schema: Schema, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("schema")
    for name in ("schema.toml", "schema.json"):
        schema.save(folder / name)
        again = Schema.load(folder / name)
        assert again == schema
        assert hash(again) == hash(schema)
    # Sorting keys, as canonical JSON does, must not reorder columns.
    assert (
        Schema.from_dict(json.loads(json.dumps(schema.to_dict(), sort_keys=True)))
        == schema
    )


def test_the_written_form_is_the_documented_one(tmp_path: Path) -> None:
    path = tmp_path / "clinic.toml"
    path.write_text(
        'person = "zper"\n[columns.age]\nkind = "integer"\nlow = 0\nhigh = 110\nbins '
        "= 11\nnullable = true\n"
        '[columns.smoker]\nkind = "boolean"\n'
    )
    assert Schema.load(path) == SCHEMA
    path.write_text(
        '[columns.day]\nkind = "date"\nlow = 2020-01-01\nhigh = "2020-12-31"\n'
    )
    assert Schema.load(path).column("day") == Date(
        name="day", low=date(2020, 1, 1), high=date(2020, 12, 31)
    )


@given(column=columns("x"))
@settings(deadline=None)
def test_every_level_has_one_label(column: Categorical) -> None:
    assert len(column.labels) == column.levels == column.size - column.nullable
    if isinstance(column, Binned):
        assert (np.diff(column.edges) > 0).all()


@given(low=st.integers(-1000, 1000), width=st.integers(1, 500), bins=st.integers(1, 50))
def test_equal_bins_of_whole_numbers_cover_all_and_differ_by_at_most_one(
    low: int, width: int, bins: int
) -> None:
    bins = min(bins, width + 1)
    edges = Integer(name="x", low=low, high=low + width, bins=bins).edges
    assert (edges[0], edges[-1], len(edges)) == (low, low + width + 1, bins + 1)
    assert np.ptp(np.diff(edges)) <= 1


def test_whole_numbers_and_days_have_a_level_each_up_to_64_and_16_bins_beyond() -> None:
    assert Integer(name="x", low=1, high=64).levels == 64
    assert Integer(name="x", low=1, high=65).levels == 16
    assert Date(name="x", low=date(2020, 1, 1), high=date(2020, 3, 4)).levels == 64
    assert Date(name="x", low=date(2020, 1, 1), high=date(2020, 3, 5)).levels == 16
    assert (
        Real(name="x", low=0, high=1).levels
        == Real(name="x", low=0, high=1, bins=None).levels
        == 16
    )  # type: ignore[arg-type]


def test_labels_show_the_bins() -> None:
    assert Integer(name="x", low=0, high=9, bins=(0, 1, 5, 9)).labels == (
        "0",
        "1–4",
        "5–9",
    )
    assert Real(name="x", low=0, high=1, bins=2).labels == ("[0, 0.5)", "[0.5, 1]")
    assert (
        Date(name="x", low=date(2020, 1, 1), high=date(2020, 1, 4), bins=2).labels[0]
        == "2020-01-01–2020-01-02"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Categorical(name="", categories=("a",)), "needs a name"),
        (lambda: Categorical(name="x", categories=()), "empty"),
        (
            lambda: Categorical(name="x", categories=("a", "b", "a")),
            "'a' is declared twice",
        ),
        (lambda: Categorical(name="x", categories=(1, 1.0)), "twice"),
        (
            lambda: Categorical(name="x", categories=("a", 1)),
            "all text or all finite numbers",
        ),
        (
            lambda: Categorical(name="x", categories=(True, False)),
            "all text or all finite numbers",
        ),
        (lambda: Categorical(name="x", categories=(1.0, float("nan"))), "finite"),
        (lambda: Categorical(name="x", categories=(1, 10**400)), "finite"),
        (lambda: Categorical(name="x", categories="abc"), "must be a list"),
        (lambda: Boolean(name="x", nullable="yes"), "nullable must be true or false"),
        (lambda: Integer(name="x", low=3, high=3), "low 3 is not below high 3"),
        (lambda: Integer(name="x", low=0.5, high=3), "whole numbers"),
        (lambda: Integer(name="x", low=0, high=2**60), "whole numbers within"),
        (lambda: Integer(name="x", low=0, high=3, bins=0), "between 1 and"),
        (lambda: Integer(name="x", low=0, high=3, bins=5), "could never be filled"),
        (
            lambda: Integer(name="x", low=0, high=3, bins=0.5),
            "whole number or a list of edges",
        ),
        (
            lambda: Integer(name="x", low=0, high=3, bins=True),
            "whole number or a list of edges",
        ),
        (lambda: Integer(name="x", low=0, high=9, bins=(0, 5, 5, 9)), "must increase"),
        (
            lambda: Integer(name="x", low=0, high=9, bins=(1, 5, 9)),
            "from low 0 to high 9",
        ),
        (lambda: Integer(name="x", low=0, high=9, bins=(0,)), "from low 0 to high 9"),
        (lambda: Real(name="x", low=1, high=0), "not below"),
        (lambda: Real(name="x", low=0, high=float("inf")), "numbers within"),
        (lambda: Real(name="x", low=0, high=10**400), "numbers within"),
        (lambda: Real(name="x", low="0", high=1), "numbers within"),
        (
            lambda: Real(name="x", low=1, high=np.nextafter(1, 2).item()),
            "could never be filled",
        ),
        (lambda: Date(name="x", low="2020-01-32", high="2021-01-01"), "not a date"),
        (lambda: Date(name="x", low=date(2020, 1, 1), high=5), "dates without a time"),
        (
            lambda: Date(name="x", low=date(1, 1, 1), high=date(2020, 1, 1)),
            "must lie between",
        ),
        (lambda: Schema(columns=()), "at least one column"),
        (lambda: Schema(columns=("age",)), "made of columns"),
        (lambda: Schema(columns=(AGE, AGE)), '"age" is declared twice'),
        (lambda: Schema(columns=(AGE,), person="age"), "never learned"),
        (lambda: Schema(columns=(AGE,), person=""), "person must name"),
        (lambda: Schema(columns=(AGE,), origin="row"), 'Did you mean "rows"'),
        (lambda: Schema(columns=(AGE,), note=3), "note must be text"),
    ],
)
def test_nonsense_is_refused_when_it_is_declared(make: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"columns": {"a": {"kind": "reel"}}},
            "unknown kind 'reel'.*Did you mean \"real\"",
        ),
        ({"columns": {"a": {"low": 0}}}, 'column "a" has no kind'),
        (
            {"columns": {"a": {"kind": "real", "low": 0, "hihg": 1}}},
            'unknown key "hihg".*Did you mean "high"',
        ),
        (
            {"columns": {"a": {"kind": "real", "low": 0}}},
            'column "a": low and high come together',
        ),
        ({"columns": {"a": 3}}, 'column "a" must be a table'),
        ({"columns": [3]}, "must be a table"),
        ({"columns": [{"kind": "boolean"}]}, "needs name"),
        ({"columns": 3}, "columns must be"),
        ({"colums": {}}, 'unknown key "colums".*Did you mean "columns"'),
        ({}, "at least one column"),
    ],
)
def test_a_wrong_word_in_a_file_is_named_with_the_nearest_right_one(
    data: dict, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_dict(data)
    (tmp_path / "s.json").write_text(json.dumps(data))
    with pytest.raises(SchemaError, match=r"^s\.json: .*" + message):
        Schema.load(tmp_path / "s.json")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="No such file"):
        Schema.load(tmp_path / "no.toml")
    for name, text in (("s.toml", "person = "), ("s.json", "{"), ("t.json", "[]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(SchemaError, match=name):
            Schema.load(tmp_path / name)
    for act in (Schema.load, SCHEMA.save):
        with pytest.raises(SchemaError, match=r"\.toml or \.json"):
            act(tmp_path / "s.yaml")


def test_columns_are_selected_and_dropped_by_name() -> None:
    assert SCHEMA.names == ("age", "smoker")
    assert SCHEMA.column("age") is AGE
    assert SCHEMA.select(["smoker", "age"]).names == ("smoker", "age")
    assert SCHEMA.drop(["age"]).names == ("smoker",)
    assert SCHEMA.drop(["age"]).person == "zper"
    for act in (
        SCHEMA.column,
        lambda name: SCHEMA.select([name]),
        lambda name: SCHEMA.drop([name]),
    ):
        with pytest.raises(
            SchemaError, match=r'no column "smokr"\. Did you mean "smoker"'
        ):
            act("smokr")


def test_joined_schemas_stand_side_by_side() -> None:
    clinic = Schema(columns=(AGE,), person="zper", note="a")
    insurer = Schema(
        columns=(Real(name="income", low=0, high=1),),
        person="zper",
        origin="rows",
        note="b",
    )
    both = join({"clinic": clinic, "insurer": insurer})
    assert (both.names, both.person, both.origin, both.note) == (
        ("age", "income"),
        "zper",
        "rows",
        "a; b",
    )
    assert join({"clinic": clinic}) == clinic
    assert (
        join({"a": clinic, "b": Schema(columns=insurer.columns, person="id")}).person
        is None
    )


def test_a_column_of_two_parties_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r'"age" .* "clinic" and by "insurer"'):
        join({"clinic": SCHEMA, "insurer": Schema(columns=(AGE,))})
    with pytest.raises(
        SchemaError,
        match=r'"age" .* "clinic"',
    ):
        join(
            {
                "clinic": SCHEMA,
                "lab": Schema(columns=(Boolean(name="x"),), person="age"),
            }
        )
    with pytest.raises(SchemaError, match="no schema"):
        join({})


def test_a_draft_is_refused_with_the_two_ways_on() -> None:
    SCHEMA.require_public()
    with raises(
        DraftSchemaError, effect=Effect.NOTHING_SENT, match='origin = "public".*ledger'
    ):
        Schema(columns=(AGE,), origin="rows").require_public()


def test_a_schema_prints_as_a_short_table() -> None:
    ordinal = Ordinal(name="g", categories=tuple(range(9)))
    lines = str(Schema(columns=(AGE, ordinal), person="zper")).splitlines()
    assert lines[0] == "2 columns, person zper, public"
    assert lines[1] == "  age  integer      0 to 110, 11 levels, or missing"
    assert lines[2] == "  g    ordinal      0 < 1 < 2 < 3 < 4 < 5 < … (9 in all)"
