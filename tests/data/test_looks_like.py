"""What no form reads is named by its kind, to the holder alone, with what to write
instead.
"""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import understudy as us
from refusals import raises
from understudy.data.infer import draft
from understudy.data.schema import Boolean, Schema
from understudy.data.table import read_table
from understudy.ground.errors import Effect, SchemaError, UtilityWarning
from understudy.privacy.kinds import kinds_of

pytestmark = pytest.mark.filterwarnings(
    "ignore::understudy.ground.errors.PrivacyWarning",
    "ignore::understudy.ground.errors.UtilityWarning",
)
ROWS = 1_200
STAMPS = pd.Series(pd.date_range("1931-02-03 04:05", periods=ROWS, freq="37h"))
TWO_DIGITS = (
    "days with a year of two digits: write the year with four, as in 31.12.1990"
)
AM_PM = "times with AM or PM: write them by 24 hours, as in 14:30"
MONTHS = "days with the name of a month: write them as 1990-12-31"
TEXTS = {
    "%d.%m.%y": [TWO_DIGITS],
    "%m/%d/%y": [TWO_DIGITS],
    "%m/%d/%Y %I:%M %p": [AM_PM],
    "%m/%d/%y %I:%M:%S %p": [TWO_DIGITS, AM_PM],
    "%I:%M %p": [AM_PM],
    "%d-%b-%Y": [MONTHS],
    "%B %d, %Y": [MONTHS],
}


def column(form: str, rows: int = ROWS) -> "pd.Series[str]":
    return STAMPS[:rows].dt.strftime(form)


@pytest.mark.parametrize("rows", [200, ROWS])
@pytest.mark.parametrize("form", TEXTS)
def test_days_and_times_that_no_form_reads_are_named_with_what_to_write(
    form: str, rows: int, tmp_path: Path
) -> None:
    """Whether they are too many for categories or not, of a file and of a frame."""
    frame = pd.DataFrame({"seen": column(form, rows), "n": range(rows)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source, options in ((tmp_path / "t.csv", {"confirmed": True}), (frame, {})):
        with pytest.warns(UtilityWarning) as told:
            kinds_of(source, **options)
        (said,) = [str(one.message) for one in told if '"seen"' in str(one.message)]
        assert all(text in said for text in TEXTS[form])
        assert not any(cell in said for cell in frame["seen"])


@pytest.mark.parametrize(
    "words",
    [["Mayer 12", "March 4"], ["3 pm", "x"], ["1.2.3", "1.2"], ["12:30", "late"]],
)
def test_other_texts_are_not_said_to_be_days(words: list[str]) -> None:
    found = draft(pd.DataFrame({"x": words * 50, "n": range(100)}), most_categories=64)
    assert "x" not in found.unread


def test_a_column_of_lists_is_looked_at_like_any_other() -> None:
    assert kinds_of(pd.DataFrame({"x": [[1], "a"] * 200})) == {"x": "categorical"}


@pytest.mark.usefixtures("short_fits")
def test_what_texts_look_like_is_in_no_artefact(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"seen": column("%d.%m.%y", 600), "n": [n % 7 for n in range(600)]}
    )
    options: dict[str, Any] = {
        "components": 2,
        "steps": 2,
        "names_and_kinds_are_public": True,
    }
    with pytest.warns(UtilityWarning, match="two digits"):
        us.synthesize(
            frame,
            epsilon=1,
            ledgers=tmp_path / "ledgers",
            folder=tmp_path / "run",
            **options,
        )
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"two digits" not in path.read_bytes()


MIXED = [
    ["yes", "no", "TRUE", "FALSE", "1", "0"],
    ["Yes", "yes", "No"],
    ["true", "1", "0"],
]


@pytest.mark.parametrize("words", MIXED, ids=str)
def test_yes_and_no_in_several_spellings_are_one_boolean_of_a_file(
    words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"smoker": words * 50, "n": range(50 * len(words))}).to_csv(
        path, index=False
    )
    found = draft(path)
    assert found.schema.column("smoker") == Boolean(name="smoker")
    assert re.search("written in several ways", found.remarks["smoker"])
    with pytest.warns(
        UtilityWarning, match=r'"smoker" \(yes and no are written in several ways'
    ):
        assert kinds_of(path, confirmed=True)["smoker"] == "boolean"
    read = read_table(path, Schema(columns=(Boolean(name="smoker"),))).frame["smoker"]
    assert read[: len(words)].tolist() == [
        word.lower() in ("yes", "true", "1") for word in words
    ]


@pytest.mark.usefixtures("short_fits")
def test_spellings_of_yes_that_were_bought_are_named_with_what_to_declare(
    tmp_path: Path,
) -> None:
    frame = pd.DataFrame({"smoker": MIXED[0] * 150})
    with pytest.warns(UtilityWarning, match=r'"smoker".*kinds=\{"smoker": "boolean"\}'):
        result = us.synthesize(
            frame, epsilon=2, ledgers=tmp_path, components=2, steps=2
        )
    assert set(result.generator.schema.column("smoker").categories) == {
        *MIXED[0],
        "(other)",
    }
    declared = us.synthesize(
        frame,
        epsilon=2,
        ledgers=tmp_path / "b",
        kinds={"smoker": "boolean"},
        components=2,
        steps=2,
    )
    assert set(declared.sample(100, seed=1)["smoker"].dropna()) == {"False", "True"}


def test_a_folder_of_other_files_says_what_a_folder_may_hold(tmp_path: Path) -> None:
    for name in ("north.csv", "south.csv"):
        (tmp_path / name).write_text("a,b\n1,x\n")
    with raises(
        SchemaError, effect=Effect.NOTHING_READ, match="people and events"
    ) as told:
        kinds_of(tmp_path, confirmed=True)
    assert "north.csv and south.csv" in str(told.value)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SchemaError, match="it holds no file"):
        kinds_of(empty, confirmed=True)
