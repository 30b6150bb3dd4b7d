"""A table that was misread is refused before anything is paid for it, and the corrected
run is not short of budget.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from refusals import raises
from test_cli import Run
from understudy.data.table import read_table
from understudy.ground.errors import ConfigError, Effect, SchemaError, UtilityWarning
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.kinds import kinds_of

pytestmark = [
    pytest.mark.usefixtures("short_fits", "short_training"),
    pytest.mark.filterwarnings("ignore::understudy.ground.errors.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning"),
]
PEOPLE = 3_000
SMALL: dict[str, Any] = {"components": 8, "steps": 10, "device": "cpu"}


def table() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "sex": rng.choice(["männlich", "weiblich"], PEOPLE),
            "age": rng.integers(18, 90, PEOPLE),
            "annual_cost": np.round(rng.lognormal(7, 1, PEOPLE), 2),
        }
    )


def with_odd_costs() -> pd.DataFrame:
    """The same table; two costs are words, as a file that somebody typed in has
    them.
    """
    costs = table()["annual_cost"].astype(str)
    costs.iloc[[7, 1_900]] = ["n/a", "1e6?"]
    return table().assign(annual_cost=costs)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """What the ledger of "people" holds as spent, 0 where there is none. Everything
    happens in a folder of its own.
    """
    monkeypatch.chdir(tmp_path)

    def spent() -> float:
        path = tmp_path / "ledgers" / "people.ledger"
        if not path.exists():
            return 0.0
        with us.Ledger(path) as book:
            return book.spent()

    return spent


Spent = Callable[[], float]
Told = Callable[..., str]


@pytest.fixture
def told(understudy: Run) -> Told:
    """What a command says, in one line, once it ended with this code."""

    def say(*args: object, code: int = 0) -> str:
        ended, out, err = understudy(*args)
        assert ended == code, err
        return " ".join((out + err).split())

    return say


COMMAND = ("synthesize", "people.csv", "--epsilon", "1", "--names-and-kinds-are-public")


@pytest.mark.long
def test_text_of_another_encoding_is_refused_before_it_is_paid_for(
    ledger: Spent, told: Told
) -> None:
    table().to_csv("people.csv", index=False, encoding="cp1252")
    refused = told(*COMMAND, code=1)
    assert "--encoding" in refused
    assert '"sex"' in refused
    assert "Nothing was charged." in refused
    assert "nnlich" not in refused
    assert not Path("ledgers/people.ledger").exists()
    assert not Path("runs").exists()

    told(*COMMAND, "--encoding", "cp1252")
    assert 0 < ledger() <= 1
    drawn = pd.read_parquet("runs/people/synthetic.parquet")
    assert {"männlich", "weiblich"} <= set(drawn["sex"].astype(str))
    assert list(drawn) == list(table())


def test_text_of_another_encoding_is_refused_under_declared_kinds_and_schemas(
    ledger: Spent,
) -> None:
    table().to_csv("people.csv", index=False, encoding="cp1252")
    kinds = {"sex": "categorical", "age": "integer"}
    with raises(SchemaError, effect=Effect.NOTHING_CHARGED, match="encoding="):
        us.synthesize("people.csv", epsilon=1, kinds=kinds, **SMALL)
    declared = us.Schema(
        columns=(us.Categorical(name="sex", categories=("männlich", "weiblich")),)
    )
    with pytest.raises(SchemaError, match="UTF-8"):
        us.synthesize("people.csv", epsilon=1, schema=declared, **SMALL)
    assert not Path("ledgers/people.ledger").exists()
    made = us.synthesize(
        "people.csv", epsilon=1, schema=declared, encoding="cp1252", **SMALL
    )
    assert set(made.sample(200)["sex"]) == {"männlich", "weiblich"}
    assert 0 < ledger() <= 1


def test_a_frame_has_no_encoding(ledger: Spent) -> None:
    with raises(ConfigError, effect=Effect.NOTHING_READ_OR_CHARGED, match="encoding"):
        us.synthesize(table(), epsilon=1, encoding="cp1252", **SMALL)


@pytest.mark.long
def test_a_few_words_among_numbers_stop_the_run_which_names_its_price(
    ledger: Spent, told: Told
) -> None:
    with_odd_costs().to_csv("people.csv", index=False)
    refused = told(*COMMAND, code=1)
    assert '"annual_cost"' in refused
    assert "--without annual_cost" in refused
    assert "--missing" in refused
    assert "ε = 1 " in refused
    assert "Nothing was charged." in refused
    assert "1e6?" not in refused
    assert not Path("ledgers/people.ledger").exists()

    told(*COMMAND, "--without", "annual_cost")
    assert 0 < ledger() <= 1
    assert list(pd.read_parquet("runs/people/synthetic.parquet")) == ["sex", "age"]


@pytest.mark.long
def test_words_that_are_declared_missing_keep_their_column(
    ledger: Spent, told: Told
) -> None:
    with_odd_costs().to_csv("people.csv", index=False)
    told(*COMMAND, "--missing", "n/a", "--missing", "1e6?")
    assert 0 < ledger() <= 1
    assert (
        pd.read_parquet("runs/people/synthetic.parquet")["annual_cost"].dtype.kind
        == "f"
    )


def days_with_a_word() -> pd.DataFrame:
    days = pd.Series(pd.date_range("1990-01-01", periods=PEOPLE).strftime("%d.%m.%Y"))
    days.iloc[5] = "summer 1991"
    return table().assign(annual_cost=days)


def numbers_with_a_word() -> pd.DataFrame:
    """As a spreadsheet has them: numbers as numbers, and one text among them."""
    costs = table()["annual_cost"].astype(object)
    costs.iloc[11] = "unclear"
    return table().assign(annual_cost=costs)


@pytest.mark.long
@pytest.mark.parametrize("odd", [with_odd_costs, days_with_a_word, numbers_with_a_word])
def test_a_frame_with_a_few_words_among_numbers_or_days_stops(
    ledger: Spent, odd: Callable[[], pd.DataFrame]
) -> None:
    with raises(
        ConfigError,
        effect=Effect.NOTHING_CHARGED,
        match=r'"annual_cost".*without=\["annual_cost"\]',
    ):
        us.synthesize(odd(), epsilon=1, name="people", **SMALL)
    assert not Path("ledgers/people.ledger").exists()
    made = us.synthesize(
        odd(), epsilon=1, name="people", without=["annual_cost"], **SMALL
    )
    assert list(made.sample(5)) == ["sex", "age"]
    assert 0 < ledger() <= 1


def test_a_declared_column_stops_nothing(ledger: Spent) -> None:
    made = us.synthesize(
        with_odd_costs(),
        epsilon=1,
        name="people",
        kinds={"annual_cost": "categorical"},
        **SMALL,
    )
    assert ledger() > 0
    assert (
        "annual_cost" not in made.generator.schema.names
        or made.generator.schema["annual_cost"].kind != "real"
    )


def test_a_column_without_that_name_is_refused(ledger: Spent) -> None:
    with raises(
        ConfigError,
        effect=Effect.NOTHING_READ_OR_CHARGED,
        match='"anual_cost".*"annual_cost"',
    ):
        us.synthesize(
            table(), epsilon=1, name="people", without=["anual_cost"], **SMALL
        )


def test_codes_categories_and_free_text_go_on_as_before(ledger: Spent) -> None:
    rng = np.random.default_rng(1)
    frame = table().assign(
        code=np.where(np.arange(PEOPLE) % 2 == 0, "007", "A01"),
        rating=rng.choice(["1", "2", "3", "4", "5"], PEOPLE),
        note=[f"seen {i}" for i in range(PEOPLE)],
    )
    frame.loc[3, "rating"] = "5+"
    with pytest.warns(UtilityWarning, match="left out"):
        us.synthesize(frame, epsilon=2, name="people", **SMALL)
    assert ledger() > 1


@pytest.mark.long
def test_twelve_people_are_told_before_they_pay(ledger: Spent, told: Told) -> None:
    table().head(12).to_csv("people.csv", index=False)
    refused = told(*COMMAND, code=1)
    assert "12 people" in refused
    assert "mostly noise" in refused
    assert "--people" in refused
    assert "Nothing was charged." in refused
    assert not Path("ledgers/people.ledger").exists()

    declared = us.Schema(
        columns=(us.Boolean(name="ill"), us.Boolean(name="old")), rows_are_people=True
    )
    twelve = pd.DataFrame({"ill": [True, False] * 6, "old": [False] * 12})
    with raises(
        ConfigError, effect=Effect.NOTHING_CHARGED, match="12 people.*public_people"
    ):
        us.synthesize(twelve, epsilon=0.1, schema=declared, name="people", **SMALL)
    assert not Path("ledgers/people.ledger").exists()

    told(*COMMAND, "--people", "12")
    assert 0 < ledger() <= 1


def test_a_few_hundred_people_are_not_stopped(ledger: Spent) -> None:
    us.synthesize(table().head(300), epsilon=1, name="people", **SMALL)
    assert 0 < ledger() <= 1


def test_nothing_of_a_refusal_is_written_down(ledger: Spent, told: Told) -> None:
    with_odd_costs().to_csv("people.csv", index=False)
    told(*COMMAND, code=1)
    assert [path.name for path in Path().iterdir() if path.name != "ledgers"] == [
        "people.csv"
    ]
    assert not list(Path().glob("ledgers/*"))


def test_plain_files_are_read_as_before(ledger: Spent) -> None:
    table().to_csv("people.csv", index=False)
    with pytest.raises(ConfigError, match="taken from the rows"):
        us.synthesize("people.csv", epsilon=1, **SMALL)
    made = us.synthesize(
        "people.csv", epsilon=1, names_and_kinds_are_public=True, **SMALL
    )
    assert list(made.sample(3)) == list(table())


def bought(*more: object) -> tuple[object, ...]:
    """The purchase of the schema that is drafted from the table as it should be."""
    return (
        "schema",
        "buy",
        "people.csv",
        "draft.toml",
        "--ledger",
        "ledgers/people.ledger",
        "--out",
        "bought.toml",
        "--cleaned",
        "clean.csv",
        "--epsilon",
        1,
        "--names-and-kinds-are-public",
        *more,
    )


MISREAD: dict[str, tuple[Callable[[], None], str, tuple[object, ...]]] = {
    "no header": (
        lambda: table().to_csv("people.csv", index=False, header=False),
        "--no-header",
        ("--no-header",),
    ),
    "another encoding": (
        lambda: table().to_csv("people.csv", index=False, encoding="cp1252"),
        "--encoding",
        ("--encoding", "cp1252"),
    ),
    "words among numbers": (
        lambda: with_odd_costs().to_csv("people.csv", index=False),
        "annual_cost",
        ("--missing", "n/a", "--missing", "1e6?"),
    ),
    "twelve people": (
        lambda: table()[:12].to_csv("people.csv", index=False),
        "so few people",
        ("--people", 12),
    ),
}


@pytest.mark.parametrize("what", MISREAD)
def test_the_purchase_of_a_schema_refuses_a_misread_table_as_synthesize_does(
    what: str, ledger: Spent, told: Told
) -> None:
    write, words, ways = MISREAD[what]
    if what == "no header":
        table().set_axis(["column_1", "column_2", "column_3"], axis=1).to_csv(
            "good.csv", index=False
        )
    else:
        table().to_csv("good.csv", index=False)
    told("schema", "infer", "good.csv", "--out", "draft.toml")
    write()
    assert words in told(*bought(), code=1)
    assert ledger() == 0.0
    assert not {
        *Path.cwd().rglob("*.ledger"),
        *Path.cwd().glob("bought.toml"),
        *Path.cwd().glob("clean.csv"),
    }
    if what != "twelve people":
        told(*bought(*ways))
        assert 0.9 < ledger() <= 1.0


@pytest.mark.parametrize(
    "what", ["twelve people", "a value that is out of bounds", "a spent ledger"]
)
def test_a_refused_run_under_a_declared_schema_leaves_no_copy_of_rows(
    what: str, ledger: Spent, told: Told
) -> None:
    rows = table()
    schema = us.Schema(
        columns=(
            us.Categorical(name="sex", categories=("männlich", "weiblich")),
            us.Integer(name="age", low=0, high=120),
            us.Real(name="annual_cost", low=0, high=1e7),
        ),
        rows_are_people=True,
    )
    if what == "a value that is out of bounds":
        rows.loc[2_000:, "age"] = 300  # also where some of them are held out
    if what == "a spent ledger":
        Path("ledgers").mkdir()
        with us.Ledger(
            "ledgers/people.ledger", holder="people", budget=us.Budget(0.1, 1e-6)
        ):
            pass
    (rows[:12] if what == "twelve people" else rows).to_csv("people.csv", index=False)
    schema.save("people.toml")
    before = {*Path.cwd().rglob("*")}
    told("synthesize", "people.csv", "--schema", "people.toml", "--epsilon", 1, code=1)
    assert ledger() == 0.0
    left = {path.name for path in {*Path.cwd().rglob("*")} - before if path.is_file()}
    assert not [name for name in left if name.endswith((".csv", ".parquet"))], left


def test_a_text_outside_of_declared_categories_is_other_where_that_is_one_of_them(
    ledger: Spent,
) -> None:
    kinds = {
        "sex": us.Categorical(name="sex", categories=("weiblich", "(other)")),
        "age": us.Integer(name="age", low=0, high=120),
        "annual_cost": us.Real(name="annual_cost", low=0, high=1e7),
    }
    declared: dict[str, Any] = {
        "rows_are_people": True,
        "name": "people",
        "epsilon": 1.0,
        **SMALL,
    }
    result = us.synthesize(
        table(), kinds=kinds, names_and_kinds_are_public=True, **declared
    )
    assert set(result.sample(200)["sex"].unique()) == {"weiblich", "(other)"}
    paid = ledger()
    without = kinds | {
        "sex": us.Categorical(name="sex", categories=("weiblich", "divers"))
    }
    with pytest.raises(SchemaError, match="is not one of the declared"):
        us.synthesize(
            table(),
            kinds=without,
            names_and_kinds_are_public=True,
            lifetime_epsilon=None,
            **declared,
        )
    assert ledger() == paid


def test_other_stands_for_every_text_of_a_declared_schema_and_for_no_gap(
    tmp_path: Path,
) -> None:
    schema = us.Schema(
        columns=(us.Categorical(name="sex", categories=("weiblich", "(other)")),)
    )
    rows = read_table(
        pd.DataFrame({"sex": ["weiblich", "männlich", "(other)", " "]}), schema
    )
    assert rows.frame["sex"].tolist() == ["weiblich", "(other)", "(other)", "(other)"]
    with pytest.raises(SchemaError, match="sex"):
        read_table(pd.DataFrame({"sex": ["weiblich", None]}), schema)


ONE_ROW_EACH: dict[str, Any] = {
    "epsilon": 1.0,
    "names_and_kinds_are_public": True,
    "name": "people",
    "rows_are_people": True,
}


@pytest.mark.parametrize(
    "made",
    [
        lambda ages: pd.cut(ages, 4),
        lambda ages: pd.arrays.IntervalArray(pd.cut(ages, 4)),
    ],
)
def test_intervals_of_pandas_are_refused_before_they_are_paid_for(
    made: Callable[[Any], Any], ledger: Spent
) -> None:
    rows = table().assign(age=made(table()["age"]))
    with raises(
        ConfigError,
        effect=Effect.NOTHING_READ_OR_CHARGED,
        match='"age".*no kind describes',
    ):
        us.synthesize(
            rows,
            **ONE_ROW_EACH,
        )
    assert ledger() == 0.0
    words = rows.assign(age=pd.Series(made(table()["age"])).astype(str))
    result = us.synthesize(
        words,
        **ONE_ROW_EACH,
        **SMALL,
    )
    assert "age" in result.sample(10).columns


def _bare_intervals(ages: Any) -> Any:
    return pd.cut(ages, 4).astype(object)


def _one_interval(ages: Any) -> Any:
    cells = ages.astype(str).astype(object)
    cells.iloc[-1] = pd.Interval(0, 1)
    return cells


def _bare_periods(ages: Any) -> Any:
    return pd.Series(pd.period_range("2020-01", periods=len(ages), freq="M")).astype(
        object
    )


@pytest.mark.parametrize("made", [_bare_intervals, _one_interval, _bare_periods])
def test_objects_that_are_intervals_are_refused_before_they_are_paid_for(
    made: Callable[[Any], Any], ledger: Spent
) -> None:
    rows = table().assign(age=made(table()["age"]))
    with raises(
        ConfigError, effect=Effect.NOTHING_CHARGED, match='"age".*no kind describes'
    ):
        us.synthesize(
            rows,
            **ONE_ROW_EACH,
        )
    assert ledger() == 0.0
    with raises(
        ConfigError, effect=Effect.NOTHING_CHARGED, match='"age".*no kind describes'
    ):
        kinds_of(rows)


NUMBERS = [str(number) for number in range(1_000, 1_400)]
DAYS = [str(day)[:10] for day in pd.date_range("2019-01-01", periods=400)]
ODD_AMONG = [
    *(
        (NUMBERS, odd)
        for odd in ("inf", "1e400", "2019-02-03", "2019-13-40", "03.02.2019")
    ),
    *((DAYS, odd) for odd in ("1.5", "-99", "inf")),
]


@pytest.mark.parametrize(("cells", "odd"), ODD_AMONG)
def test_one_cell_of_another_kind_in_a_file_is_named_before_the_column_is_lost(
    cells: list[str], odd: str, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    pd.DataFrame({"visit": [*cells[:7], odd, *cells[8:]], "cost": range(400)}).to_csv(
        path, index=False
    )
    with raises(
        ConfigError, effect=Effect.NOTHING_CHARGED, match='a few cells of "visit"'
    ):
        kinds_of(path, confirmed=True)


@pytest.mark.parametrize(
    "cells", [NUMBERS, DAYS, [f"{number:05}" for number in range(400)]]
)
def test_a_column_of_one_kind_is_not_taken_for_one_with_odd_cells(
    cells: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    pd.DataFrame({"visit": cells, "cost": range(400)}).to_csv(path, index=False)
    assert "cost" in kinds_of(path, confirmed=True)


def test_a_target_of_which_no_text_can_be_bought_is_refused_as_paid_for(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "ill": [f"text {k}" for k in range(600)],
            "ward": rng.choice(["a", "b"], 600),
        }
    )
    with pytest.raises(SchemaError, match="texts of the table are charged"):
        us.synthesize(
            frame,
            epsilon=1,
            target="ill",
            names_and_kinds_are_public=True,
            rows_are_people=True,
            kinds={"ill": "categorical", "ward": "categorical"},
            ledgers=tmp_path,
            name="clinic",
        )
    with Ledger(tmp_path / "clinic.ledger") as ledger:
        assert ledger.spent() > 0
