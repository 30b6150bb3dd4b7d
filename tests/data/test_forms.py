"""Columns that are written as people write them are drafted, read, and written back as they came."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from schema_strategies import Torch

from understudy.data.coarsen import coarsen
from understudy.data.codec import Codec
from understudy.data.infer import draft
from understudy.data.schema import Date, Schema
from understudy.data.table import check_table, read_table
from understudy.data.writing import csv_text

DAYS = {
    "DD.MM.YYYY": (["01.02.1990", "31.12.1991"], ["1990-02-01", "1991-12-31"]),
    "DD/MM/YYYY": (["13/02/1990", "01/02/1991"], ["1990-02-13", "1991-02-01"]),
    "MM/DD/YYYY": (["01/02/1990", "12/31/1991"], ["1990-01-02", "1991-12-31"]),
    "D.M.YYYY": (["1.2.1990", "31.12.1991"], ["1990-02-01", "1991-12-31"]),
    "YYYY/MM/DD": (["1990/01/02", "1991/12/31"], ["1990-01-02", "1991-12-31"]),
}


def made_again(path: Path, schema: Schema) -> tuple[str, str]:
    """The file as its table is written, and rows drawn from its own levels as they are."""
    codec, frame = Codec(schema), read_table(path, schema).frame
    drawn = codec.decode(np.repeat(codec.codes(frame), 20, axis=0), Torch())
    return csv_text(frame, schema), csv_text(drawn, schema)


@pytest.mark.parametrize("form", DAYS)
def test_days_are_drafted_in_their_form_read_and_written_as_they_came(form: str, tmp_path: Path) -> None:
    texts, days = DAYS[form]
    (tmp_path / "t.csv").write_text("\n".join(["born", *texts, ""]))
    found = draft(tmp_path / "t.csv")
    assert found.schema.columns == (Date(name="born", low="1990-01-01", high="1991-12-31", written=form),)
    assert not found.remarks
    found.schema.save(tmp_path / "t.toml")
    assert Schema.load(tmp_path / "t.toml") == found.schema
    assert list(read_table(tmp_path / "t.csv", found.schema).frame["born"]) == list(pd.to_datetime(days))
    again, drawn = made_again(tmp_path / "t.csv", found.schema)
    assert again == (tmp_path / "t.csv").read_text()
    (tmp_path / "drawn.csv").write_text(drawn)
    assert not check_table(tmp_path / "drawn.csv", found.schema)


def test_days_of_which_no_value_tells_are_drafted_day_first_with_a_word_on_it() -> None:
    found = draft(pd.DataFrame({"born": ["01/02/1990", "03/04/1991", None]}))
    (column,) = found.schema.columns
    assert (column.written, column.nullable) == ("DD/MM/YYYY", True)
    assert 'written = "MM/DD/YYYY" puts the month first' in found.remarks["born"]
    assert found.remarks["born"] in found.schema.note


@pytest.mark.parametrize(
    "cell", ["1990-02-01", "32.01.1990", "29.02.1990", "1.2.1990", "01.02.90", "٠١.٠٢.1990"]
)
def test_a_day_in_another_form_is_a_violation_and_a_real_date_is_none(cell: str) -> None:
    schema = Schema(columns=(Date(name="born", low="1990-01-01", high="1990-12-31", written="DD.MM.YYYY"),))
    (found,) = check_table(pd.DataFrame({"born": [cell]}), schema)
    assert found.reason == "is not a date (DD.MM.YYYY)."
    assert not check_table(pd.DataFrame({"born": pd.to_datetime(["1990-02-01"])}), schema)


def test_a_day_beyond_the_bounds_is_clipped_to_a_day_in_the_same_form() -> None:
    schema = Schema(columns=(Date(name="born", low="1990-01-01", high="1990-12-31", written="DD.MM.YYYY"),))
    cells = pd.DataFrame({"born": ["05.06.1980", "05.06.1990", "05.06.2000"]})
    assert list(coarsen(cells, schema)["born"]) == ["01.01.1990", "05.06.1990", "31.12.1990"]
