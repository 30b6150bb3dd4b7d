"""Schemas of several kinds, side by side."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.data.images import ImageSchema
from understudy.data.kinds import MixedSchema, load_any, side_by_side
from understudy.data.schema import Boolean, Integer, Real, Schema
from understudy.data.series import SeriesSchema
from understudy.ground.errors import SchemaError

TABLE = Schema(
    columns=(Boolean(name="smoker"), Integer(name="age", low=0, high=90)), person="id"
)
IMAGE = ImageSchema(height=2, width=3, person="id")
SERIES = SeriesSchema(
    length=2,
    series="stay",
    person="id",
    channels=(Real(name="pulse", low=0, high=9), Real(name="heat", low=30, high=45)),
)
MIXED = MixedSchema(parts={"clinic": TABLE, "x-ray": IMAGE, "monitor": SERIES})


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_mixed_schema_is_read_back_as_it_was_written(
    tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"schema{suffix}"
    MIXED.save(file)
    again = load_any(file)
    assert again == MIXED
    assert isinstance(again, MixedSchema)
    assert list(again.parts) == ["clinic", "x-ray", "monitor"]


def test_the_columns_of_a_row_name_their_party_where_it_holds_no_table() -> None:
    steps = ["monitor.pulse.0", "monitor.heat.0", "monitor.pulse.1", "monitor.heat.1"]
    assert MIXED.names[:3] == ("smoker", "age", "x-ray.pixel_0_0")
    assert list(MIXED.names[-4:]) == steps
    assert {MIXED.owners[step] for step in steps} == {"monitor"}


def test_a_frame_has_every_number_in_its_own_column() -> None:
    images = np.arange(12).reshape(2, 2, 3)
    series = np.arange(8.0).reshape(2, 2, 2)
    table = pd.DataFrame({"smoker": [True, False], "age": [4, 5]})
    frame = MIXED.frame({"monitor": series, "x-ray": images, "clinic": table})
    assert tuple(frame.columns) == MIXED.names
    assert frame["x-ray.pixel_1_0"].tolist() == [3, 9]
    assert frame["monitor.heat.1"].tolist() == [3.0, 7.0]
    assert frame["age"].tolist() == [4, 5]


def test_tables_alone_make_a_table() -> None:
    other = Schema(columns=(Boolean(name="insured"),), person="id")
    assert side_by_side({"a": TABLE, "b": other}) == Schema(
        columns=(*TABLE.columns, *other.columns), person="id"
    )


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"a": TABLE, "b": TABLE, "c": IMAGE},
        {"a": Schema(columns=(Boolean(name="c.pixel_0_0"),)), "c": IMAGE},
    ],
)
def test_parts_that_share_a_column_or_are_none_are_refused(
    parts: dict[str, Schema],
) -> None:
    with pytest.raises(SchemaError):
        MixedSchema(parts=parts)


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "mixed"},
        {"kind": "mixed", "parts": {"a": 3}},
        {"kind": "mixed", "strange": 1},
    ],
)
def test_keys_that_describe_no_parts_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        MixedSchema.from_dict(data)
