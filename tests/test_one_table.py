"""`us.synthesize` and `understudy synthesize`: one table, one line, one price."""

import json
import re
import tomllib
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from refusals import raises
from test_cli import Run
from understudy.data.infer import infer_schema
from understudy.data.reading import files
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.data.table import StreamedTable, check_table
from understudy.evaluate import holdings
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    DraftSchemaError,
    Effect,
    LedgerError,
    PrivacyWarning,
    SchemaError,
    UtilityWarning,
)
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    Reveals,
    epsilon,
    flatten,
)
from understudy.privacy.accounts.budget import shown
from understudy.privacy.buy_schema import quote
from understudy.privacy.kinds import kinds_of
from understudy.privacy.schema_share import SCHEMA_SHARE, remaining_budget
from understudy.privacy.secure.counts import needed_noise, spend_of
from understudy.report.page import write_report
from understudy.runs import result as results
from understudy.runs.result import Result

pytestmark = [pytest.mark.usefixtures("short_fits", "short_training")]
PEOPLE = 3_000
SMALL: dict[str, Any] = {"components": 8, "steps": 10, "device": "cpu"}


def table() -> pd.DataFrame:
    """Ill people are older; one person has a colour, and an age, of their own."""
    rng = np.random.default_rng(3)
    ill = rng.random(PEOPLE) < 0.3
    age = (30 + 30 * ill + 8 * rng.normal(size=PEOPLE)).astype(np.int64).clip(0, 110)
    age[0] = 5_000
    colour = np.where(rng.random(PEOPLE) < 0.5, "red", "blue").astype(object)
    colour[0] = "the only mauve"
    return pd.DataFrame(
        {"ill": ill, "age": age, "colour": colour, "pay": rng.lognormal(7, 1, PEOPLE)}
    )


FRAME = table()
SCHEMA = Schema(
    columns=(
        Boolean(name="ill"),
        Categorical(name="colour", categories=("red", "blue", "the only mauve")),
    )
)


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A table of which nothing was declared, all of it in a folder."""
    home = tmp_path_factory.mktemp("bought")
    with pytest.warns(
        PrivacyWarning,
        match=r"for free.*ill \(boolean\), age \(integer\), colour \(categorical\)",
    ):
        made = us.synthesize(
            FRAME,
            epsilon=2,
            ledgers=home / "ledgers",
            folder=home / "run",
            holdout=0,
            **SMALL,
        )
    return made, home


@pytest.mark.long
def test_bounds_and_categories_are_bought_within_the_one_price(
    bought: tuple[Result, Path],
) -> None:
    made, home = bought
    with us.Ledger(home / "ledgers" / "table.ledger") as ledger:
        entries = [entry for entry in ledger.entries() if entry.count]
        assert [
            entry.description.split(";")[0].split(" of ")[0] for entry in entries
        ] == [
            "schema",
            "where numbers without bounds are with nobody",
            "the fine tables",
            "one joint Gram matrix, and digits",
        ]
        assert epsilon(entries[0].after["insider"], 1e-6) <= 2 * SCHEMA_SHARE
        assert 1.9 < ledger.spent() <= 2
        assert made.privacy.epsilon() == pytest.approx(ledger.spent())
    assert made.privacy.parties[0].budget == us.Budget(2, 1e-6)
    assert made.generator.card["privacy"] == made.privacy.to_dict()
    assert (
        json.loads((home / "run" / "privacy.json").read_text())
        == made.privacy.to_dict()
    )
    assert made.privacy.outside[0].startswith("the names and the kinds")


def test_what_is_printed_of_a_result_is_a_few_lines_with_its_price(
    bought: tuple[Result, Path],
) -> None:
    made, _ = bought
    assert len(repr(made)) < 200
    assert (
        repr(made.generator)
        == "<Generator by gram of ill, age, colour, pay: sample(n) draws rows>"
    )
    assert str(made).splitlines()[0] == repr(made)
    assert str(made.privacy) in str(made)


def deltas(told: Any) -> set[float]:
    """Every δ that stands beside an ε in what was written."""
    if isinstance(told, list | tuple):
        return set().union(*map(deltas, told))
    if not isinstance(told, dict):
        return set()
    here = {told["delta"]} if {"delta", "epsilon"} <= set(told) else set()
    return here.union(*map(deltas, told.values()))


def test_every_price_that_is_written_of_a_run_is_stated_at_the_delta_of_the_run(
    bought: tuple[Result, Path],
) -> None:
    made, home = bought
    assert (
        deltas(made.generator.card)
        == deltas(tomllib.loads((home / "run" / "run.toml").read_text()))
        == {1e-6}
    )
    assert made.generator.release is not None
    about = made.generator.release.about
    assert (about["epsilon"], about["delta"]) == (
        made.privacy.epsilon(against="outsider"),
        1e-6,
    )
    with us.Ledger(home / "ledgers" / "table.ledger") as ledger:
        price = next(entry.price for entry in ledger.entries() if entry.count)
    assert f"for ε={shown(price)} at δ=1e-06" in made.generator.schema.note


WHOLE = [
    us.Budget(0.1, 1e-9),
    us.Budget(1, 1e-6),
    us.Budget(8, 1e-5),
    us.Budget(2, 1e-3),
]
DECLARED = [
    {"a": "categorical"},
    {"a": "real", "b": "categorical"},
    dict.fromkeys(map(str, range(40)), "categorical"),
]


@pytest.mark.long
@pytest.mark.parametrize("whole", WHOLE, ids=str)
@pytest.mark.parametrize("kinds", DECLARED, ids=len)
def test_the_purchase_and_what_is_left_are_within_the_whole(
    whole: us.Budget, kinds: dict[str, str]
) -> None:
    offer = quote(
        kinds,
        epsilon=whole.epsilon * SCHEMA_SHARE,
        delta=whole.delta / 2,
        gaussian=True,
    )
    assert offer is not None
    looks = {"real": 2, "categorical": 1}
    bought = sum(
        n for event, n in flatten(offer.event).items() if not isinstance(event, Reveals)
    )
    assert bought == sum(looks[kind] for kind in kinds.values())
    rest = remaining_budget(whole, offer)
    assert rest.delta == whole.delta
    for cells in (1, 2_000):
        spend = spend_of([(needed_noise(cells, rest), cells)]) + flatten(offer.event)
        assert 0.7 * whole.epsilon < epsilon(spend, whole.delta) <= whole.epsilon


def test_what_only_one_person_has_is_not_in_what_was_bought(
    bought: tuple[Result, Path],
) -> None:
    made, _ = bought
    assert made.generator.schema.column("colour").categories == (
        "blue",
        "red",
        "(other)",
    )
    age = made.generator.schema.column("age")
    # most are from 16 to 63, or older; once in a hundred runs noise alone shows some
    # beyond these
    assert age.low <= 16
    assert age.high >= 63
    drawn = made.sample(200, seed=1)
    assert set(drawn["colour"].dropna()) <= {"blue", "red", "(other)"}
    assert 5_000 not in set(drawn["age"])
    assert drawn["age"].between(-16, 1_000).mean() > 0.9


def test_its_page_and_its_artefacts_agree_with_the_ledger(
    bought: tuple[Result, Path], tmp_path: Path
) -> None:
    made, home = bought
    page = made.report(tmp_path / "page.html").read_text()
    assert "The ledger and the statement agree" in page
    public = made.report(tmp_path / "public.html", publish=True).read_text()
    assert "ledger and the statement" not in public
    again = us.load(home / "run")
    assert isinstance(again, us.Generator)
    assert again.card["privacy"] == made.privacy.to_dict()
    real_rows = home / "ledgers" / "table-rows.csv"
    assert real_rows.stat().st_mode & 0o777 == 0o600
    assert {file.suffix for file in (home / "run").rglob("*.csv")} <= {""}


@pytest.mark.long
def test_its_page_compares_with_the_rows_as_they_came_and_names_first_what_was_cut(
    bought: tuple[Result, Path], tmp_path: Path
) -> None:
    made, home = bought
    most = made.generator.schema.column("age").high
    above = (
        [f"1 of 3,000 people lie above {most:,}, up to 5000"] if most < 1_000 else []
    )
    cut = (*above, "1 of 3,000 people have 1 text that did not show")
    for page in (
        made.report(tmp_path / "own.html"),
        write_report(home / "run", out=tmp_path / "again.html"),
    ):
        text = page.read_text()
        assert all(words in text for words in cut)
        assert text.index(cut[0]) < text.index("Single columns</a>")
    public = made.report(tmp_path / "public.html", publish=True).read_text()
    assert not any(words in public for words in cut)
    assert "5000" not in public


def test_a_spent_ledger_is_not_charged_for_a_schema_that_no_release_can_follow(
    bought: tuple[Result, Path],
) -> None:
    _, home = bought
    with us.Ledger(home / "ledgers" / "table.ledger") as ledger:
        before = ledger.spent()
    with (
        pytest.warns(PrivacyWarning),
        raises(BudgetExceeded, effect=Effect.NOTHING_CHARGED, match="ε=2 .* in all"),
    ):
        us.synthesize(FRAME, epsilon=2, name="table", ledgers=home / "ledgers", **SMALL)
    with us.Ledger(home / "ledgers" / "table.ledger") as ledger:
        assert ledger.spent() == before


def test_a_frame_without_a_name_shares_no_ledger_by_accident(
    bought: tuple[Result, Path],
) -> None:
    folder = bought[1] / "ledgers"
    with raises(
        LedgerError,
        effect=Effect.NOTHING_READ_OR_CHARGED,
        match='name="table" if they are of the same people',
    ):
        us.synthesize(FRAME, epsilon=0.1, schema=SCHEMA, ledgers=folder, **SMALL)
    with pytest.raises(LedgerError, match="is not new and allows"):
        us.synthesize(
            FRAME,
            epsilon=0.1,
            schema=SCHEMA,
            name="table",
            lifetime_epsilon=9,
            ledgers=folder,
        )
    us.synthesize(
        FRAME, epsilon=0.1, schema=SCHEMA, name="others", ledgers=folder, **SMALL
    )
    with raises(
        BudgetExceeded,
        effect=Effect.NOTHING_CHARGED,
        match='Are these other people.*name="…"',
    ):
        us.synthesize(
            FRAME, epsilon=0.1, schema=SCHEMA, name="others", ledgers=folder, **SMALL
        )


def test_with_a_schema_all_of_the_price_goes_into_the_release(tmp_path: Path) -> None:
    made = us.synthesize(
        FRAME, epsilon=1, schema=SCHEMA, ledgers=tmp_path, target="ill", **SMALL
    )
    assert made.privacy.epsilon() == pytest.approx(1, abs=0.01)
    assert made.generator.schema.names == ("ill", "colour")
    assert made.generator.card["config"]["target"] == "ill"
    with pytest.raises(LedgerError, match=r"is not new and allows ε=1"):
        us.synthesize(
            FRAME,
            epsilon=1,
            schema=SCHEMA,
            name="table",
            ledgers=tmp_path,
            lifetime_epsilon=5,
        )
    with us.Ledger(tmp_path / "table.ledger") as ledger:
        assert not any("schema" in entry.description for entry in ledger.entries())


REFUSED = {
    "a draft": ({"schema": infer_schema(FRAME)}, DraftSchemaError, "read from rows"),
    "a target that is not there": (
        {"target": "il"},
        ConfigError,
        'nobody has a column "il"',
    ),
    "a setting that is not there": ({"stpes": 1}, ConfigError, 'Did you mean "steps"'),
    "no noise": ({"private": False}, ConfigError, "rehearsals"),
    "more holders than one": (
        {"max_holders_per_person": 2},
        ConfigError,
        "max_holders_per_person=2",
    ),
    "people with several rows": (
        {"person": "ill"},
        SchemaError,
        "rows have no id of their own",
    ),
    "an id that is not there": ({"person": "id"}, SchemaError, 'no id column "id"'),
    "no budget": ({"epsilon": 0}, ConfigError, "epsilon must be above 0"),
    "a name that is a path": ({"name": "a/b"}, ConfigError, "plain name"),
    "a cell that is not of its kind": (
        {"kinds": {"pay": "integer"}},
        SchemaError,
        'column "pay"',
    ),
    "a declared column that does not fit": (
        {"kinds": {"ill": Boolean(name="ill"), "colour": Boolean(name="c")}},
        SchemaError,
        "colour",
    ),
    "a schema and a person": (
        {"schema": SCHEMA, "person": "id"},
        ConfigError,
        "leave person",
    ),
    "a lifetime that is too short": (
        {"lifetime_epsilon": 0.5},
        ConfigError,
        "lifetime_epsilon 0.5 is below",
    ),
    "a kind that is none": (
        {"kinds": {"age": "number"}},
        ConfigError,
        "must be one of",
    ),
}


@pytest.mark.filterwarnings("ignore::understudy.ground.errors.PrivacyWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_what_can_be_refused_is_refused_before_anything_is_charged(
    case: str, tmp_path: Path
) -> None:
    options, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        us.synthesize(
            FRAME, **{"epsilon": 1, "ledgers": tmp_path / "ledgers", **options}
        )
    for file in tmp_path.rglob("*.ledger"):
        with us.Ledger(file) as ledger:
            assert ledger.spent() == 0


def test_a_folder_with_a_run_in_it_is_refused_before_anything_is_read(
    bought: tuple[Result, Path],
) -> None:
    with pytest.raises(ArtefactError, match="already has a run"):
        us.synthesize("no.csv", epsilon=1, folder=bought[1] / "run")


def test_kinds_of_a_file_are_not_taken_from_its_rows_without_a_word(
    tmp_path: Path,
) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(
        ConfigError,
        match=r"for free: ill \(boolean\), age \(integer\), colour \(categorical\), pay",
    ):
        us.synthesize(tmp_path / "t.csv", epsilon=1, ledgers=tmp_path)
    assert not (tmp_path / "t.ledger").exists()
    assert kinds_of(tmp_path / "t.csv", {"age": "integer"}) == {"age": "integer"}
    seen = kinds_of(tmp_path / "t.csv", {"age": "real"}, confirmed=True)
    assert seen == {
        "ill": "boolean",
        "age": "real",
        "colour": "categorical",
        "pay": "real",
    }


@pytest.mark.filterwarnings("ignore::understudy.ground.errors.PrivacyWarning")
def test_too_few_people_are_told_of_before_anything_is_paid_where_their_number_is_public(
    tmp_path: Path,
) -> None:
    few = FRAME[:200]
    with pytest.warns(UtilityWarning) as told:
        us.synthesize(
            few,
            epsilon=1,
            schema=SCHEMA,
            ledgers=tmp_path,
            public_people=200,
            target="ill",
            **SMALL,
        )
    assert [str(one.message) for one in told] == [
        "200 people and 2 columns at ε = 1: single columns to within about 8 %; pairs "
        "are mostly noise. More people, "
        "fewer columns or a larger ε would help. Nothing was charged so far."
    ]
    with pytest.warns(
        UtilityWarning, match=r"people and 2 columns at ε = .*pairs are mostly noise"
    ):
        made = us.synthesize(
            few, epsilon=0.25, schema=SCHEMA, name="b", ledgers=tmp_path, **SMALL
        )
    assert (
        "pairs are mostly noise"
        in made.report(tmp_path / "page.html", publish=True).read_text()
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::understudy.ground.errors.PrivacyWarning")
def test_no_column_is_left_out_without_a_word(tmp_path: Path) -> None:
    """In Python, at the top of the holder's page, and on the public one."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "ill": rng.random(PEOPLE) < 0.3,
            "town": rng.choice(
                [f"town {n}" for n in range(67)], PEOPLE, p=[0.4, *[0.6 / 66] * 66]
            ),
            "code": rng.choice(8, PEOPLE),
            "empty": [None] * PEOPLE,
            "notes": [f"note {n}" for n in range(PEOPLE)],
            # many share one
            "name": ["Lucy" if n < 600 else f"name {n}" for n in range(PEOPLE)],
        }
    )
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    with pytest.warns(
        UtilityWarning,
        match=r'"empty" \(it has no value\); "notes" \(3,000 different texts',
    ):
        seen = kinds_of(path, confirmed=True)
    # no list of numbers
    assert seen == {
        "ill": "boolean",
        "town": "categorical",
        "code": "integer",
        "name": "categorical",
    }
    with pytest.warns(UtilityWarning) as told:
        made = us.synthesize(frame, epsilon=4, ledgers=tmp_path, **SMALL)
    said = " ".join(str(warning.message) for warning in told)
    assert "left out, as too few people share a value of them: empty, notes." in said
    assert re.search(
        r'mostly "\(other\)", as too few people share a value of them: (town, )?name\.',
        said,
    )
    assert made.generator.schema.names == ("ill", "town", "code", "name")
    page = made.report(tmp_path / "page.html").read_text()
    assert "Left out of all that was made: “empty” and “notes”" in page
    public = made.report(tmp_path / "public.html", publish=True).read_text()
    assert "Left out, as too few people share a value: empty, notes" in public


def test_kinds_of_a_frame_follow_from_its_types_and_the_step_in_which_they_are_written():
    step = np.append(np.arange(999) / 10, np.pi)  # and one person's own digits
    with pytest.warns(
        PrivacyWarning,
        match=r"x \(real of 1 decimal\), y \(datetime minute\), z \(real\)",
    ):
        assert kinds_of(
            pd.DataFrame(
                {
                    "x": step,
                    "y": pd.date_range("2020", periods=1_000, freq="min"),
                    "z": np.sqrt(step),
                }
            )
        ) == {"x": "real .1", "y": "datetime minute", "z": "real"}
    frame = pd.DataFrame(
        {
            "a": [0, 1] * 150,
            "b": ["2020-01-01", "yes"] * 150,
            "c": pd.to_datetime(["2020-01-01"] * 300),
            "d": [True, None] * 150,
        }
    )
    frame["d"] = frame["d"].astype("boolean")
    with pytest.warns(PrivacyWarning):
        assert kinds_of(frame) == {
            "a": "integer",
            "b": "categorical",
            "c": "date",
            "d": "boolean",
        }
    with pytest.raises(ConfigError, match="timedelta"):
        kinds_of(pd.DataFrame({"a": pd.to_timedelta([1, 2])}))
    with pytest.raises(ConfigError, match="names are text"):
        kinds_of(pd.DataFrame([[1, 2]]))


def test_the_command_writes_a_table_a_page_and_a_statement(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FRAME[["ill", "colour"]].to_csv("ward.csv", index=False)
    code, out, err = understudy("synthesize", "ward.csv", "--epsilon", 1)
    assert (code, out) == (1, "")
    assert "ill (boolean), colour (categorical)" in err
    assert not list(tmp_path.rglob("*.ledger"))
    replace(SCHEMA, rows_are_people=True).save("ward.toml")
    code, out, err = understudy(
        "synthesize", "ward.csv", "--epsilon", 1, "--schema", "ward.toml", "--rows", 20
    )
    assert (code, err) == (0, "")
    assert "A person over all parties" in out
    assert "report.html" in out
    assert len(pd.read_csv("runs/ward/synthetic.csv")) == 20
    assert understudy("sample", "runs/ward", "-n", 3)[0] == 0
    assert understudy("report", "runs/ward", "--publish")[0] == 0
    code, out, err = understudy(
        "synthesize", "ward.csv", "--epsilon", 1, "--schema", "ward.toml"
    )
    assert code == 1
    assert "BudgetExceeded" in err
    code, _, err = understudy(
        "synthesize",
        "ward.csv",
        "--epsilon",
        1,
        "--schema",
        "ward.toml",
        "--person",
        "ill",
    )
    assert code == 1
    assert "leave --person" in err


class _Checked(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_what_a_notebook_shows_is_html_in_which_no_name_is_a_tag(
    bought: tuple[Result, Path], tmp_path: Path
) -> None:
    made, home = bought
    evil = Schema(
        columns=(Categorical(name="<script>x</script>", categories=("<b>", "c")),)
    )
    with us.Ledger(home / "ledgers" / "table.ledger") as ledger:
        shown = [
            made,
            made.privacy,
            ledger,
            evil,
            made.generator,
            us.plan("gram", {"one": evil}, budget=1.0),
        ]
        for one in shown:
            page = _Checked()
            page.feed(one._repr_html_())
            assert page.tags
            assert not {"script", "b"} & set(page.tags) - (
                {"b"} if one in (ledger, evil) else set()
            )


def test_two_tables_are_put_beside_each_other_in_one_line(tmp_path: Path) -> None:
    FRAME[["ill", "colour"]].to_csv(tmp_path / "real.csv", index=False)
    SCHEMA.save(tmp_path / "schema.toml")
    found = us.evaluate(tmp_path / "real.csv", FRAME[::-1], tmp_path / "schema.toml")
    assert found.evaluation["avd1"].value == 0
    assert "What the figures are" in str(found)
    assert found._repr_html_().startswith("<pre style=")


def test_the_rows_beside_the_ledger_are_those_of_the_frame_as_they_came(
    tmp_path: Path,
) -> None:
    days = pd.Series(
        pd.date_range("1950-01-01", "1989-12-31", periods=3000)
    ).dt.strftime("%d.%m.%Y")
    frame = pd.DataFrame({"born": days, "ill": [True, False] * 1500})
    home = tmp_path / "run"
    kinds = {"born": "date DD.MM.YYYY", "ill": "boolean"}
    us.synthesize(
        frame,
        epsilon=1,
        kinds=kinds,
        ledgers=tmp_path,
        folder=home,
        holdout=0,
        components=8,
        steps=20,
        device="cpu",
    )
    assert pd.read_csv(tmp_path / "table-rows.csv").equals(frame)
    assert not check_table(
        tmp_path / "table-rows.csv", us.Schema.load(home / "schema.toml")
    )


@pytest.mark.parametrize("most", [1.3, 1.5, 1.9, 4.0])
@pytest.mark.parametrize("kind", ["categorical", "real"])
def test_what_a_purchase_leaves_pays_for_a_release_of_few_cells_and_of_many(
    kind: str, most: float
) -> None:
    whole = us.Budget(most, 1e-6)
    offer = quote(
        dict.fromkeys("abc", kind),
        epsilon=most * SCHEMA_SHARE,
        delta=whole.delta / 2,
        gaussian=True,
    )
    rest = remaining_budget(whole, offer)
    assert rest.epsilon > 0.7 * most
    for cells in (3, 300):
        release = Counter({DiscreteGaussian(needed_noise(cells, rest)): cells})
        assert epsilon(Counter(flatten(offer.event)) + release, whole.delta) <= most


def test_a_long_file_is_read_in_batches_and_its_page_compares_some_of_it(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "LONG", 0)
    monkeypatch.setattr(files, "BATCH", 500)
    monkeypatch.setattr(holdings, "MAX_COMPARED_ROWS", 1_000)
    monkeypatch.setattr(results, "MOST_DRAWN", 700)
    FRAME.to_parquet("big.parquet")
    SCHEMA.save("big.toml")

    def whole(*_: object, **__: object) -> None:
        raise AssertionError("the table was read whole")

    monkeypatch.setattr(StreamedTable, "frame", property(whole))
    code, _, err = understudy(
        "synthesize",
        "big.parquet",
        "--epsilon",
        1,
        "--schema",
        "big.toml",
        "--out",
        "made",
        "--holdout",
        0,
    )
    assert (code, err) == (0, "")
    assert len(pd.read_parquet("made/synthetic.parquet")) == 700
    page = Path("made/report.html").read_text()
    assert "Of the 3,000 rows of big" in page
    assert "that were sampled at random are compared" in page


@pytest.mark.filterwarnings(
    "ignore::understudy.ground.errors.PrivacyWarning",
    "ignore::understudy.ground.errors.UtilityWarning",
)
def test_a_row_without_an_id_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    frame = FRAME.assign(who=[None, *(f"p{n}" for n in range(1, PEOPLE))])
    with raises(
        SchemaError,
        effect=Effect.NOTHING_CHARGED,
        match='"who".* 1 rows have no id of their own',
    ):
        us.synthesize(
            frame, epsilon=1, person="who", kinds={"age": "integer"}, ledgers=tmp_path
        )
    for file in tmp_path.glob("*.ledger"):
        with us.Ledger(file) as ledger:
            assert ledger.spent() == 0


@pytest.mark.long
def test_a_long_file_without_a_schema_is_bought_and_fitted_in_batches(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "LONG", 0)
    monkeypatch.setattr(files, "BATCH", 500)
    frame = FRAME.assign(who=[f"p{n}" for n in range(PEOPLE)])
    frame.to_parquet("big.parquet")
    monkeypatch.delattr(StreamedTable, "frame")
    ask = (
        "synthesize",
        "big.parquet",
        "--epsilon",
        4,
        "--person",
        "who",
        "--names-and-kinds-are-public",
        "--holdout",
        0,
    )
    code, _, err = understudy(*ask, "--out", "made", "--rows", 50)
    assert code == 0, err
    fitted = tmp_path / "ledgers" / "big-fitted.parquet"
    assert fitted.stat().st_mode & 0o777 == 0o600
    rows = pd.read_parquet(fitted)
    bought = Schema.load("made/schema.toml")
    assert not check_table(rows, bought)
    assert len(rows) == PEOPLE
    assert rows["age"].max() == 5_000  # it stays with its holder
    assert us.load("made").schema.column("age").high < 5_000  # type: ignore[union-attr]
    assert set(rows["colour"]) == {"red", "blue", "(other)"}
    assert "compared" in Path("made/report.html").read_text()
    pd.concat([frame, frame[:1]]).to_parquet("big.parquet")
    code, _, err = understudy(*ask, "--out", "again", "--ledgers", "others")
    assert code == 1
    assert "1 rows have no id of their own." in err
    assert "Nothing was charged." in err
