"""Several columns of classes beside images and series: declared, read, and refused
where they do not fit.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.column import Real
from understudy.data.images import Images, ImageSchema
from understudy.data.kinds import load_schema, read_rows
from understudy.data.schema import public_of
from understudy.data.series import SeriesSchema, read_series
from understudy.ground.errors import SchemaError

LABELS = {"side": ("left", "right"), "size": (1, 2, 3)}
IMAGES = ImageSchema(height=2, width=1, labels=LABELS, person="id")
CHANNELS = (Real(name="pulse", low=0, high=200),)
SERIES = SeriesSchema(length=2, series="stay", channels=CHANNELS, labels=LABELS)
PIXELS = np.arange(8).reshape(4, 2, 1)
CLASSES: dict[str, Any] = {
    "side": ["left", "right", "left", "right"],
    "size": [1, 3, 2, 3],
}


@pytest.mark.parametrize("schema", [IMAGES, SERIES], ids=["images", "series"])
@pytest.mark.parametrize("end", ["toml", "json"])
def test_labels_are_written_down_and_read_back(
    schema: Any, end: str, tmp_path: Path
) -> None:
    path = tmp_path / f"schema.{end}"
    schema.save(path)
    again: Any = load_schema(path)
    assert again == schema
    assert (again.label, again.classes) == ("side", ("left", "right"))
    assert public_of(again)["labels"] == {"side": ["left", "right"], "size": [1, 2, 3]}


def test_one_label_is_the_same_however_it_is_declared() -> None:
    one = ImageSchema(height=2, width=1, label="side", classes=("left", "right"))
    assert ImageSchema(height=2, width=1, labels={"side": ("left", "right")}) == one


def test_classes_of_a_row_are_those_of_its_columns_in_arrays_files_and_tables(
    tmp_path: Path,
) -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 1, 2, 3],
            **CLASSES,
            "pixel_0_0": PIXELS[:, 0, 0],
            "pixel_1_0": PIXELS[:, 1, 0],
        }
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    np.savez(tmp_path / "rows.npz", images=PIXELS, id=frame["id"], **CLASSES)
    read = [
        read_rows(tmp_path / "rows.csv", IMAGES),
        read_rows(tmp_path / "rows.npz", IMAGES),
        Images.from_array(PIXELS, IMAGES, frame["id"], labels=frame),
        Images.from_array(PIXELS, IMAGES, frame["id"], labels=CLASSES),
    ]
    for table in read:
        assert isinstance(table, Images.__origin__)  # type: ignore[attr-defined]
        assert table.codes("side").tolist() == [0, 1, 0, 1]
        assert table.codes("size").tolist() == [0, 2, 1, 2]
        assert IMAGES.frame(table.values, table.classes)[["side", "size"]].equals(
            frame[["side", "size"]]
        )


def test_series_have_one_class_of_each_label(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((4, 2, 1))
    places = np.array([0, 5, 1, 5])
    frame = SERIES.frame(values, places)
    found = read_series(frame, SERIES)
    assert found.classes is not None
    assert found.classes.tolist() == places.tolist()
    assert frame["size"].tolist() == [1, 1, 3, 3, 2, 2, 3, 3]
    frame.loc[3, "size"] = 1
    with pytest.raises(SchemaError, match="size changes within one window"):
        read_series(frame, SERIES)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ({"size": [1, 2, 4, 3]}, '"size": 4 at row 3 is not one of the 3 declared'),
        ({"size": [1, 2, float("nan"), 3]}, '"size": nan at row 3 is not one'),
        ({"size": [1, 2, 3]}, '4 rows need as many values of "size"'),
        ({"size": None}, 'holds no array "size"'),
    ],
)
def test_a_second_label_that_does_not_fit_is_refused_by_file_and_row(
    classes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    given = {
        name: values
        for name, values in (CLASSES | classes).items()
        if values is not None
    }
    np.savez(tmp_path / "rows.npz", images=PIXELS, id=np.arange(4), **given)
    with pytest.raises(SchemaError, match=words) as refusal:
        read_rows(tmp_path / "rows.npz", IMAGES)
    assert "rows.npz" in str(refusal.value)
    if classes["size"] is None:
        with pytest.raises(SchemaError, match="need as many values"):
            Images.from_array(PIXELS, IMAGES, np.arange(4), labels=given)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (
            {"labels": {"side": ("a", "b")}, "label": "hand", "classes": ("c",)},
            "say label and classes, or labels",
        ),
        ({"labels": {"side": ("a", "b"), "id": (1, 2)}}, "two meanings"),
        ({"labels": {"side": ("a", "b"), "pixel_1_0": (1, 2)}}, "two meanings"),
        ({"labels": {"side": ("a", "b"), "size": ()}}, "say both"),
        ({"labels": {"side": ("a", "b"), "size": 3}}, "say both"),
        ({"labels": ["side", "size"]}, "each with a list of its classes"),
        (
            {"labels": {str(n): tuple(range(40)) for n in range(3)}},
            "at most 1,024 combinations of classes, not 64,000",
        ),
    ],
)
def test_labels_that_say_too_little_or_too_much_are_refused(
    bad: dict[str, Any], words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        ImageSchema(height=2, width=1, person="id", **bad)


@pytest.mark.parametrize(
    ("more", "column", "words"),
    [
        ({}, "pulse", "fill it in, or leave its whole series out"),
        (
            {"time": "hour", "step": 1, "stride": 2},
            "pulse",
            "leave that row out: no window goes across it",
        ),
        ({}, "size", "has no class: fill it in"),
    ],
)
def test_an_empty_cell_of_a_series_says_where_it_is_and_what_to_do(
    more: dict[str, Any], column: str, words: str, tmp_path: Path
) -> None:
    schema = SeriesSchema(
        length=2, series="stay", channels=CHANNELS, labels=LABELS, **more
    )
    frame = schema.frame(np.ones((3, 2, 1)), np.arange(3)).astype(
        {"size": object, "pulse": object}
    )
    frame.loc[4, column] = None
    frame.to_csv(tmp_path / "ward.csv", index=False)
    with pytest.raises(SchemaError, match=words) as refusal:
        read_series(tmp_path / "ward.csv", schema)
    assert str(refusal.value).startswith(f'ward.csv, column "{column}": row 5 has no')
    if words.startswith("leave that row"):
        frame.drop(index=4).to_csv(tmp_path / "ward.csv", index=False)
        assert read_series(tmp_path / "ward.csv", schema).rows == 2, "and so it is"
