"""Files for spreadsheets: texts that would run as formulas, the separator of the
source, odd decimals.
"""

import csv
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

import understudy as us
from test_cli import Run
from understudy.data.reading.writing import csv_text
from understudy.data.schema import Categorical, Column, Integer, Real, Schema
from understudy.data.table import read_table

FORMULAS = [
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "+1+2",
    "-2+3",
    "\t=1",
    "\r=1",
    "\n=1",
    "＝1",
    "=1",
]
HARMLESS = ["a=b", "-5", "+3.5", "-12,5 %", "-€4", "'=1", "(other)", "", "ä"]
FRAME = pd.DataFrame({"=name": FORMULAS + HARMLESS, "n": range(-9, 9)})
SCHEMA = Schema(
    columns=(
        Categorical(name="=name", categories=tuple(FORMULAS + HARMLESS)),
        Integer(name="n"),
    )
)


def cells_of(text: str, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(text.splitlines(keepends=True), delimiter=separator))


def test_texts_that_begin_like_a_formula_are_quoted_and_others_are_not() -> None:
    quoted = us.quote_formulas(FRAME)
    assert quoted["'=name"].tolist() == [f"'{text}" for text in FORMULAS] + HARMLESS
    assert quoted["n"].equals(FRAME["n"])
    assert FRAME["=name"].tolist() == FORMULAS + HARMLESS


@pytest.mark.parametrize("dtype", ["category", "string", object])
def test_formulas_are_quoted_however_texts_are_stored(dtype: str) -> None:
    texts = pd.Series(["=1", None, "b"]).astype(dtype)
    assert us.quote_formulas(texts.to_frame("x"))["x"].fillna("").tolist() == [
        "'=1",
        "",
        "b",
    ]


def test_what_is_no_text_is_not_quoted() -> None:
    cells = pd.Series([["=1"], -1, None, "=1"], dtype=object)
    assert us.quote_formulas(cells.to_frame("x"))["x"].tolist() == [
        ["=1"],
        -1,
        None,
        "'=1",
    ]


def test_a_csv_file_is_quoted_only_where_somebody_asks_for_it() -> None:
    assert [row[0] for row in cells_of(csv_text(FRAME, SCHEMA))] == [
        "=name",
        *FORMULAS,
        *HARMLESS,
    ]
    quoted = cells_of(csv_text(FRAME, SCHEMA, quoted=True))
    assert [row[0] for row in quoted] == [
        "'=name",
        *(f"'{text}" for text in FORMULAS),
        *HARMLESS,
    ]
    assert [row[1] for row in quoted[1:]] == [str(n) for n in FRAME["n"]]


def test_a_negative_number_is_no_formula() -> None:
    columns = (
        Real(name="x", low=-9, high=9, decimals=2),
        Real(name="y", low=-9, high=9, decimals=1, written="0,0 %"),
    )
    frame = pd.DataFrame({"x": [-1.5], "y": [-2.5]})
    assert (
        csv_text(frame, Schema(columns=columns), quoted=True) == 'x,y\n-1.50,"-2,5 %"\n'
    )


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_csv_file_is_read_back_whatever_separates_it(
    separator: str, tmp_path: Path
) -> None:
    words = ("a,b", "a;b", "a\tb", "a|b", 'a"b', "a\rb", "a\nb")
    schema = Schema(
        columns=(
            Categorical(name="x", categories=words),
            Integer(name="n", low=0, high=9),
        )
    )
    frame = pd.DataFrame({"x": words, "n": range(len(words))})
    path = tmp_path / "t.csv"
    path.write_bytes(csv_text(frame, schema, separator=separator).encode())
    assert read_table(path, schema).frame["x"].tolist() == list(words)


@pytest.mark.parametrize(
    "column",
    [
        Real(name="x", nullable=True),
        Categorical(name="x", categories=("1.5", "2.5"), nullable=True),
    ],
)
def test_a_signalling_nan_is_missing_as_every_nan_is(column: Column) -> None:
    prices = [
        Decimal("1.5"),
        Decimal("sNaN"),
        Decimal("-sNaN7"),
        Decimal("NaN"),
        None,
        Decimal("2.5"),
    ]
    frame = pd.DataFrame({"x": pd.Series(prices, dtype=object)})
    if isinstance(column, Categorical):
        texts: list[object] = [
            None if price is None or price.is_nan() else str(price) for price in prices
        ]
        texts[1] = Decimal("sNaN")
        frame["x"] = pd.Series(texts, dtype=object)
    read = read_table(frame, Schema(columns=(column,))).frame["x"]
    assert read.isna().tolist() == [False, True, True, True, True, False]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::understudy.ground.errors.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning")
@pytest.mark.parametrize("seen", [False, True])
def test_a_signalling_nan_does_not_end_a_run(seen: bool, tmp_path: Path) -> None:
    prices = [Decimal("1.5"), Decimal("2.5")] * 300
    prices[7] = Decimal("sNaN")
    frame = pd.DataFrame({"price": pd.Series(prices, dtype=object)})
    options = {"names_and_kinds_are_public": seen, "components": 2, "steps": 2}
    result = us.synthesize(
        frame, epsilon=2, ledgers=tmp_path, folder=tmp_path / "run", **options
    )
    assert list(result.sample(5)) == ["price"]
    assert "compare" in result.report(tmp_path / "page.html").read_text()
    assert frame["price"].iloc[7].is_snan()  # the holder's own frame stays as it was


@pytest.mark.usefixtures("short_fits")
def test_a_semicolon_file_gives_a_semicolon_file_with_its_formulas_quoted(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        "colour;share",
        *(f"{'=red' if n % 2 else 'blue'};{n % 10},5" for n in range(600)),
    ]
    Path("people.csv").write_text("\n".join(lines) + "\n")
    ask = (
        "synthesize",
        "people.csv",
        "--epsilon",
        2,
        "--names-and-kinds-are-public",
        "--rows",
        60,
    )
    code, _, err = understudy(*ask, "--out", "made", "--quote-formulas")
    assert code == 0, err
    header, *rows = cells_of(Path("made/synthetic.csv").read_text(), ";")
    assert header == ["colour", "share"]
    assert {row[0] for row in rows} <= {"'=red", "blue", "(other)", ""}
    assert "'=red" in {row[0] for row in rows}
    assert all(
        row[1] == "" or row[1].replace(",", "").lstrip("-").isdigit() for row in rows
    )
    assert set(pd.read_parquet("made/synthetic.parquet")["colour"].dropna()) <= {
        "=red",
        "blue",
        "(other)",
    }
    code, out, err = understudy(
        "sample", "made", "-n", 40, "--separator", ";", "--quote-formulas"
    )
    assert code == 0, err
    assert {row[0] for row in cells_of(out, ";")[1:]} <= {
        "'=red",
        "blue",
        "(other)",
        "",
    }
    assert "=red" in {
        row[0] for row in cells_of(understudy("sample", "made", "-n", 40)[1])
    }
