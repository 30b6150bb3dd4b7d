"""The step in which a column is written is that of nearly all people, and never one
person's.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.privacy.kinds import kinds_of
from understudy.privacy.steps import MIN_VALUES

pytestmark = pytest.mark.filterwarnings(
    "ignore::understudy.ground.errors.PrivacyWarning"
)
ODD = pd.Timestamp("2020-02-03 02:13:07")  # one person's time
COLUMNS: dict[str, tuple[Any, Any, str]] = {
    "days": (pd.Timestamp("2020-01-01"), pd.Timedelta(days=1), "date"),
    "hours": (pd.Timestamp("2020-01-01 01:00"), pd.Timedelta(hours=1), "datetime hour"),
    "minutes": (
        pd.Timestamp("2020-01-01 01:01"),
        pd.Timedelta(minutes=1),
        "datetime minute",
    ),
    "seconds": (
        pd.Timestamp("2020-01-01 01:01:01"),
        pd.Timedelta(seconds=1),
        "datetime",
    ),
    "whole": (1.0, 1.0, "real .0"),
    "tenths": (0.1, 0.1, "real .1"),
    "cents": (0.01, 0.01, "real .2"),
}


def column(name: str, rows: int) -> "pd.Series[Any]":
    first, step, _ = COLUMNS[name]
    cells = pd.Series([first + step * row for row in range(rows)])
    return cells.round(2) if isinstance(step, float) else cells


def with_one(cells: "pd.Series[Any]", odd: Any) -> "pd.Series[Any]":
    """The same rows, and one person more."""
    return pd.concat([cells, pd.Series([odd], dtype=cells.dtype)], ignore_index=True)


def odd_cells(name: str) -> list[Any]:
    if isinstance(COLUMNS[name][0], float):
        return [np.pi, 1e-9, 3.0, np.nan]
    return [ODD, pd.Timestamp("2020-01-01"), pd.NaT]


@pytest.mark.parametrize("rows", [MIN_VALUES, 1_000])
@pytest.mark.parametrize("name", COLUMNS)
def test_one_person_does_not_change_the_step_of_a_column(name: str, rows: int) -> None:
    cells = column(name, rows)
    for odd in odd_cells(name):
        kinds = kinds_of(pd.DataFrame({"x": with_one(cells, odd)}))
        assert kinds == {"x": COLUMNS[name][2]}


@pytest.mark.parametrize("rows", [0, 1, 5, 99, MIN_VALUES - 2])
@pytest.mark.parametrize("name", COLUMNS)
def test_few_values_have_no_step_whatever_one_of_them_is(name: str, rows: int) -> None:
    _, _, kind = COLUMNS[name]
    plain = "real" if kind.startswith("real") else "datetime"
    cells = column(name, rows + 1)[1:].reindex(range(2_000))  # the others have none
    for odd in odd_cells(name):
        assert kinds_of(pd.DataFrame({"x": with_one(cells, odd)})) == {"x": plain}


@pytest.mark.long
@pytest.mark.parametrize("rows", [MIN_VALUES, 1_000])
@pytest.mark.parametrize("name", ["hours", "minutes", "seconds", "tenths", "cents"])
def test_one_person_does_not_change_the_step_of_a_file(
    name: str, rows: int, tmp_path: Path
) -> None:
    cells = column(name, rows)
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": cells, "y": 1.5}).to_csv(path, index=False)
    without = kinds_of(path, confirmed=True)["x"]
    expected = COLUMNS[name][2]
    assert (
        without == expected or getattr(without, "resolution", "") == expected.split()[1]
    )
    for odd in odd_cells(name):
        pd.DataFrame({"x": with_one(cells, odd), "y": 1.5}).to_csv(path, index=False)
        assert kinds_of(path, confirmed=True)["x"] == without


def test_one_person_does_not_change_the_decimals_of_texts_in_a_form(
    tmp_path: Path,
) -> None:
    shares = [f"{n % 90},{n % 10} %" for n in range(MIN_VALUES)]
    for odd in ("1,23456 %", "7,1 %"):
        path = tmp_path / f"{len(odd)}.csv"
        pd.DataFrame({"x": [*shares, odd]}).to_csv(path, index=False)
        assert kinds_of(path, confirmed=True) == {"x": "real 0,0 % .1"}


def test_decimals_of_texts_are_those_that_are_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": [f"{n}.50" for n in range(MIN_VALUES)]}).to_csv(
        path, index=False
    )
    assert kinds_of(path, confirmed=True) == {"x": "real .2"}


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning")
def test_a_time_among_days_is_read_as_its_day(tmp_path: Path) -> None:
    frame = pd.DataFrame({"seen": with_one(column("days", 600), ODD)})
    result = us.synthesize(
        frame,
        epsilon=2,
        ledgers=tmp_path,
        folder=tmp_path / "run",
        components=2,
        steps=2,
    )
    sample = result.sample(50, seed=1)["seen"].dropna()
    assert len(sample)
    assert (sample.dt.normalize() == sample).all()
    assert "compare" in result.report(tmp_path / "page.html").read_text()
    assert frame["seen"].iloc[-1] == ODD  # the holder's own frame stays as it was
