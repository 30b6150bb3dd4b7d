"""Columns that are written as people write them are drafted, read, and written back as
they came.
"""

import datetime as dt
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from schema_strategies import Torch

from understudy.data.conditions import Compare, parse
from understudy.data.encoding.codec import Codec
from understudy.data.infer import draft, infer_schema
from understudy.data.reading.writing import coarsen, csv_text
from understudy.data.rules import cuts
from understudy.data.schema import Date, Datetime, Integer, Real, Schema
from understudy.data.table import check_table, read_table
from understudy.ground.errors import SchemaError
from understudy.privacy.kinds import as_bought, without_bounds

DAYS = {
    "DD.MM.YYYY": (["01.02.1990", "31.12.1991"], ["1990-02-01", "1991-12-31"]),
    "DD/MM/YYYY": (["13/02/1990", "01/02/1991"], ["1990-02-13", "1991-02-01"]),
    "MM/DD/YYYY": (["01/02/1990", "12/31/1991"], ["1990-01-02", "1991-12-31"]),
    "D.M.YYYY": (["1.2.1990", "31.12.1991"], ["1990-02-01", "1991-12-31"]),
    "YYYY/MM/DD": (["1990/01/02", "1991/12/31"], ["1990-01-02", "1991-12-31"]),
}


def made_again(path: Path, schema: Schema) -> tuple[str, str]:
    """The file as its table is written, and rows drawn from its own levels as
    they are.
    """
    codec = Codec(schema)
    frame = read_table(path, schema).frame
    drawn = codec.decode(np.repeat(codec.codes(frame), 20, axis=0), Torch())
    return csv_text(frame, schema), csv_text(drawn, schema)


@pytest.mark.parametrize("form", DAYS)
def test_days_are_drafted_in_their_form_read_and_written_as_they_came(
    form: str, tmp_path: Path
) -> None:
    texts, days = DAYS[form]
    (tmp_path / "t.csv").write_text("\n".join(["born", *texts, ""]))
    found = draft(tmp_path / "t.csv")
    assert found.schema.columns == (
        Date(name="born", low="1990-01-01", high="1991-12-31", written=form),
    )
    assert not found.remarks
    found.schema.save(tmp_path / "t.toml")
    assert Schema.load(tmp_path / "t.toml") == found.schema
    assert list(read_table(tmp_path / "t.csv", found.schema).frame["born"]) == list(
        pd.to_datetime(days)
    )
    again, drawn = made_again(tmp_path / "t.csv", found.schema)
    assert again == (tmp_path / "t.csv").read_text()
    (tmp_path / "drawn.csv").write_text(drawn)
    assert not check_table(tmp_path / "drawn.csv", found.schema)


# how a column is written, and the kind it is of: a midnight that is always there is no
# time
MOMENTS = {
    "M/D/YYYY H:MM": (["9/30/1990 7:05", "12/1/1991 23:59"], Datetime),
    "YYYY/MM/DD HH:MM:SS": (["1990/01/02 00:47:36", "1991/12/31 10:00:00"], Datetime),
    "YYYY-MM-DDTHH:MM:SSZ": (
        ["1990-01-02T06:00:00Z", "1991-12-31T07:00:00Z"],
        Datetime,
    ),
    "YYYY-MM-DD HH:MM:SS": (["1990-01-02 06:00:00", "1991-12-31 07:30:00"], Datetime),
    "M/D/YYYY 0:00:00": (["9/30/1990 0:00:00", "12/1/1991 0:00:00"], Date),
    "YYYY-MM-DD 00:00:00": (["1990-01-02 00:00:00", "1991-12-31 00:00:00"], Date),
}


@pytest.mark.parametrize("form", MOMENTS)
def test_days_with_a_time_are_drafted_in_their_form_read_and_written_as_they_came(
    form: str, tmp_path: Path
) -> None:
    texts, kind = MOMENTS[form]
    (tmp_path / "t.csv").write_text("\n".join(["at", *texts, ""]))
    schema = infer_schema(tmp_path / "t.csv")
    (column,) = schema.columns
    assert (type(column), column.written) == (kind, form)
    schema.save(tmp_path / "t.toml")
    assert Schema.load(tmp_path / "t.toml") == schema
    assert read_table(tmp_path / "t.csv", schema).frame["at"].dt.tz_localize(
        None
    ).tolist() == [pd.Timestamp(text).tz_localize(None) for text in texts]
    again, drawn = made_again(tmp_path / "t.csv", schema)
    assert again == (tmp_path / "t.csv").read_text()
    (tmp_path / "drawn.csv").write_text(drawn)
    assert not check_table(tmp_path / "drawn.csv", schema)
    assert without_bounds({"at": as_bought(column)})["at"] == replace(
        column, low=None, high=None, nullable=True
    )


def test_days_of_which_no_value_tells_are_drafted_day_first_with_a_word_on_it() -> None:
    found = draft(pd.DataFrame({"born": ["01/02/1990", "03/04/1991", None]}))
    (column,) = found.schema.columns
    assert (column.written, column.nullable) == ("DD/MM/YYYY", True)
    assert 'written = "MM/DD/YYYY" puts the month first' in found.remarks["born"]
    assert found.remarks["born"] in found.schema.note


@pytest.mark.parametrize(
    "cell",
    ["1990-02-01", "32.01.1990", "29.02.1990", "1.2.1990", "01.02.90", "٠١.٠٢.1990"],
)
def test_a_day_in_another_form_is_a_violation_and_a_real_date_is_none(
    cell: str,
) -> None:
    schema = Schema(
        columns=(
            Date(
                name="born", low="1990-01-01", high="1990-12-31", written="DD.MM.YYYY"
            ),
        )
    )
    (found,) = check_table(pd.DataFrame({"born": [cell]}), schema)
    assert found.reason == "is not a date (DD.MM.YYYY)."
    assert not check_table(
        pd.DataFrame({"born": pd.to_datetime(["1990-02-01"])}), schema
    )


def test_a_day_beyond_the_bounds_is_clipped_to_a_day_in_the_same_form() -> None:
    schema = Schema(
        columns=(
            Date(
                name="born", low="1990-01-01", high="1990-12-31", written="DD.MM.YYYY"
            ),
        )
    )
    cells = pd.DataFrame({"born": ["05.06.1980", "05.06.1990", "05.06.2000"]})
    assert list(coarsen(cells, schema)["born"]) == [
        "01.01.1990",
        "05.06.1990",
        "31.12.1990",
    ]


NUMBERS = {
    "0%": (["5%", "12%", "40%"], [5, 12, 40], 0),
    "0 %": (["5.5 %", "12.0 %", "-40.5 %"], [5.5, 12, -40.5], 1),
    "0,0": (["1,5", "12,0", "90,1"], [1.5, 12, 90.1], 1),
    "0,0 %": (["1,50 %", "12,05 %", "90,10 %"], [1.5, 12.05, 90.1], 2),
    "0,000.0": (["950", "1,250", "1,000,000"], [950, 1250, 1000000], 0),
    "$0,000.0": (["$0.50", "-$950.25", "$1,250.00"], [0.5, -950.25, 1250], 2),
    "0.000,0 €": (["0,50 €", "950,25 €", "1.250,00 €"], [0.5, 950.25, 1250], 2),
    "£0": (["£5", "£12000"], [5, 12000], 0),
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_are_drafted_in_their_form_read_and_written_as_they_came(
    form: str, tmp_path: Path
) -> None:
    texts, numbers, decimals = NUMBERS[form]
    (tmp_path / "t.csv").write_text(
        "\n".join(["x;y", *(f"{text};a" for text in texts), ""])
    )
    schema = infer_schema(tmp_path / "t.csv")
    column = schema.column("x")
    assert isinstance(column, Real)
    assert (column.written, column.decimals) == (form, decimals)
    schema.save(tmp_path / "t.toml")
    assert Schema.load(tmp_path / "t.toml") == schema
    assert list(read_table(tmp_path / "t.csv", schema).frame["x"]) == numbers
    again, drawn = (
        pd.read_csv(io.StringIO(text), dtype=str)
        for text in made_again(tmp_path / "t.csv", schema)
    )
    assert list(again["x"]) == texts
    assert not check_table(drawn, schema)


@pytest.mark.parametrize(
    "cell", ["5", "5.5%", "1.000,5%", "5%%", "%", "nan%", "1e3%", "٥%"]
)
def test_a_number_in_another_form_is_a_violation_and_a_real_number_is_none(
    cell: str,
) -> None:
    schema = Schema(columns=(Real(name="x", low=0, high=10, written="0,0%"),))
    (found,) = check_table(pd.DataFrame({"x": [cell]}), schema)
    assert found.reason == 'is not a number written as "0,0%".'
    assert not check_table(pd.DataFrame({"x": [5.5]}), schema)


def test_a_comma_before_three_digits_everywhere_may_part_thousands_and_is_not_drafted_as_a_number():
    assert (
        infer_schema(pd.DataFrame({"x": ["1,234", "5,678"]})).column("x").kind
        == "categorical"
    )


def test_a_number_beyond_the_bounds_is_clipped_to_one_in_the_same_form() -> None:
    schema = Schema(
        columns=(Real(name="x", low=0, high=9.5, decimals=1, written="0,0 %"),)
    )
    cells = pd.DataFrame({"x": ["-5,5 %", "5,5 %", "55 %"]})
    assert list(coarsen(cells, schema)["x"]) == ["0,0 %", "5,5 %", "9,5 %"]


TIMES = {
    "HH:MM": (["14:30", "08:05", "00:00", "23:59"], [870, 485, 0, 1439]),
    "H:MM": (["14:30", "8:05"], [870, 485]),
    "HH:MM:SS": (["14:30:15", "00:00:00"], [52215, 0]),
}


@pytest.mark.parametrize("form", TIMES)
def test_times_of_day_are_drafted_in_their_form_read_and_written_as_they_came(
    form: str, tmp_path: Path
) -> None:
    texts, steps = TIMES[form]
    (tmp_path / "t.csv").write_text("\n".join(["at", *texts, ""]))
    schema = infer_schema(tmp_path / "t.csv")
    (column,) = schema.columns
    assert isinstance(column, Integer)
    # the day, and no earliest patient
    assert (column.low, column.written, column.nullable) == (0, form, False)
    assert column.high == (1439 if form.endswith("MM") else 86399)
    schema.save(tmp_path / "t.toml")
    assert Schema.load(tmp_path / "t.toml") == schema
    assert ":59" in (tmp_path / "t.toml").read_text()
    assert list(read_table(tmp_path / "t.csv", schema).frame["at"]) == steps
    again, drawn = made_again(tmp_path / "t.csv", schema)
    assert again == (tmp_path / "t.csv").read_text()
    (tmp_path / "drawn.csv").write_text(drawn)
    assert not check_table(tmp_path / "drawn.csv", schema)


def test_bounds_and_bins_of_times_are_times_and_so_are_their_labels() -> None:
    column = Integer(
        name="at",
        low="08:00",
        high="19:59",
        bins=("08:00", "12:00", "19:59"),
        written="HH:MM",
    )
    assert (column.low, column.high, column.bins) == (480, 1199, (480, 720, 1199))
    assert column.labels == ("08:00–11:59", "12:00–19:59")
    assert column.domain == "08:00 to 19:59, 2 levels"
    assert column.to_dict()["bins"] == ["08:00", "12:00", "19:59"]
    wrong: list[dict[str, Any]] = [
        {"high": "24:00"},
        {"high": 1440},
        {"low": -1},
        {"low": "8:00"},
        {"written": "HH.MM"},
        {"low": 1.5},
    ]
    for changes in wrong:
        with pytest.raises(SchemaError, match='column "at"'):
            Integer(
                **{"name": "at", "low": 0, "high": "19:59", "written": "HH:MM"}
                | changes
            )


@pytest.mark.parametrize(
    "cell", ["24:00", "14:60", "8:05", "14:30:15", "14.30", "870", "-1:00", "١٤:٣٠"]
)
def test_a_time_in_another_form_is_a_violation_and_a_real_time_is_none(
    cell: str,
) -> None:
    schema = Schema(columns=(Integer(name="at", low=0, high=1439, written="HH:MM"),))
    (found,) = check_table(pd.DataFrame({"at": [cell]}), schema)
    assert found.reason == "is not a time of day (HH:MM)."
    assert not check_table(
        pd.DataFrame({"at": [dt.time(14, 30), dt.time(8, 5)]}), schema
    )
    assert not check_table(pd.DataFrame({"at": [870]}), schema)


def test_a_time_beyond_the_bounds_is_named_as_a_time_and_clipped_to_one() -> None:
    schema = Schema(
        columns=(Integer(name="at", low="08:00", high="18:00", written="HH:MM"),)
    )
    cells = pd.DataFrame({"at": ["07:59", "12:00", "18:01"]})
    reasons = [found.reason for found in check_table(cells, schema)]
    assert reasons == [
        "is below the declared low 08:00.",
        "is above the declared high 18:00.",
    ]
    assert list(coarsen(cells, schema)["at"]) == ["08:00", "12:00", "18:00"]


def test_times_of_a_parquet_file_are_drafted_and_read(tmp_path: Path) -> None:
    pd.DataFrame({"at": [dt.time(14, 30), None, dt.time(8, 5)]}).to_parquet(
        tmp_path / "t.parquet"
    )
    schema = infer_schema(tmp_path / "t.parquet")
    assert schema.columns == (
        Integer(name="at", low=0, high=1439, written="HH:MM", nullable=True),
    )
    assert list(read_table(tmp_path / "t.parquet", schema).frame["at"].dropna()) == [
        870,
        485,
    ]


def test_times_of_two_forms_are_texts_and_many_of_them_are_said_to_be_so() -> None:
    assert (
        infer_schema(pd.DataFrame({"at": ["14:30", "14:30:15"]})).column("at").kind
        == "categorical"
    )
    many = [f"{n // 60:02}:{n % 60:02}" for n in range(100)] + ["14:30:15"]
    assert (
        "times of day, but not all in one form"
        in draft(pd.DataFrame({"at": many, "x": 1})).left_out["at"]
    )


def test_a_question_about_a_time_of_day_is_asked_in_its_form() -> None:
    column = Integer(name="at", low=0, high=1439, bins=24, written="HH:MM")
    at = {value: parse(f"at >= '{value}'") for value in ("14:30", "2:30")}
    assert isinstance(at["14:30"], Compare)
    assert cuts(at["14:30"], column) == [870]
    with pytest.raises(SchemaError, match="'2:30'"):
        cuts(at["2:30"], column)
