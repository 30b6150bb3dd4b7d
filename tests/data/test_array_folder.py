"""Folders of image files and Zarr stores are the same rows as arrays, by the batch; and
nothing hostile is unpacked.
"""

import json
import pickle
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from PIL import Image

from understudy.data.array_folder import ArrayFolder
from understudy.data.arrays import ArrayTable
from understudy.data.images import Images, ImageSchema, png, read_images
from understudy.data.reading import files
from understudy.data.schema import Real
from understudy.data.series import Series, SeriesSchema, read_series
from understudy.ground.errors import PartyError, SchemaError

SCHEMA = ImageSchema(height=4, width=3, label="digit", classes=(7, 8))
OWN = replace(SCHEMA, person="writer")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 4, 3)).astype(np.uint8)
DIGITS = np.repeat([7, 8], 6)
WRITERS = np.array([*"aabbbcddeffa"])


def store(path: Path, **arrays: Any) -> Path:
    group = zarr.open_group(path, mode="w")
    for name, array in arrays.items():
        kind = np.dtypes.StringDType() if array.dtype.kind == "U" else array.dtype
        group.create_array(name, data=array.astype(kind), chunks=(5, *array.shape[1:]))
    return path


def in_subfolders(folder: Path) -> Path:
    for number, (pixels, digit) in enumerate(zip(PIXELS, DIGITS, strict=True)):
        (folder / str(digit)).mkdir(exist_ok=True, parents=True)
        (folder / str(digit) / f"{number:02}.png").write_bytes(png(pixels))
    (folder / ".hidden").touch()
    return folder


def in_a_list(folder: Path) -> Path:
    folder.mkdir()
    names = [f"{number:02}.{'PNG' if number % 2 else 'png'}" for number in range(12)]
    for name, pixels in zip(names, PIXELS, strict=True):
        Image.fromarray(pixels).save(folder / name)
    frame = pd.DataFrame(
        {"file_name": names, "digit": DIGITS, "writer": WRITERS, "other": 1}
    )
    frame.to_csv(folder / "metadata.csv", index=False)
    return folder


def assert_read_alike(
    source: Path, schema: Any, due: ArrayTable[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held, and by the batch, of which nobody has two."""
    for long in (10**6, 40):
        monkeypatch.setattr(files, "LONG", long)
        found = schema.read(source)
        assert isinstance(found, ArrayFolder) == found.long == (long == 40)
        assert len([*found.parts()]) == 1 if long > 40 else len([*found.parts()]) > 2
        for name in ("values", "ids", "starts", "classes"):
            assert np.array_equal(getattr(found, name), getattr(due, name)), name
        assert found.rows == due.rows


def test_image_files_and_zarr_stores_are_the_same_rows_as_their_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = Images.from_array(PIXELS, SCHEMA, labels=DIGITS)
    assert_read_alike(in_subfolders(tmp_path / "folders"), SCHEMA, each, monkeypatch)
    assert_read_alike(
        store(tmp_path / "a.zarr", images=PIXELS, digit=DIGITS),
        SCHEMA,
        each,
        monkeypatch,
    )
    assert_read_alike(in_a_list(tmp_path / "listed"), SCHEMA, each, monkeypatch)
    assert_read_alike(
        tmp_path / "listed",
        OWN,
        Images.from_array(PIXELS, OWN, WRITERS, labels=DIGITS),
        monkeypatch,
    )
    who = np.sort(WRITERS)
    writers = Images.from_array(PIXELS, OWN, who, labels=DIGITS)
    own = store(tmp_path / "stores" / "b.zarr", images=PIXELS, digit=DIGITS, writer=who)
    assert_read_alike(own, OWN, writers, monkeypatch)
    assert_read_alike(own.parent, OWN, writers, monkeypatch)  # a folder of such
    colour = ImageSchema(height=2, width=3, channels=3)
    (tmp_path / "colour").mkdir()
    drawn = RNG.integers(0, 256, (2, 3, 3)).astype(np.uint8)
    Image.fromarray(drawn).save(tmp_path / "colour" / "a.png")
    assert np.array_equal(
        colour.unscaled(read_images(tmp_path / "colour", colour).values)[0], drawn
    )
    Image.fromarray(np.full((2, 3, 3), 90, np.uint8)).save(
        tmp_path / "colour" / "b.jpeg"
    )
    assert read_images(tmp_path / "colour", colour).rows == 2


def test_series_come_in_the_same_files_and_windows_need_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = SeriesSchema(
        channels=(Real(name="pulse", low=0, high=200),), length=4, series="stay"
    )
    values = RNG.uniform(0, 200, (30, 4, 1))
    assert_read_alike(
        store(tmp_path / "a.zarr", stays=values),
        schema,
        Series.from_array(values, schema),
        monkeypatch,
    )
    named = replace(schema, person="who")
    who = np.arange(30) // 4
    for number, some in enumerate((slice(0, 12), slice(12, 16), slice(16, 30))):
        (tmp_path / "many").mkdir(exist_ok=True)
        np.savez(
            tmp_path / "many" / f"{number}.npz", series=values[some], who=who[some]
        )
    monkeypatch.setattr(files, "LONG", 0)
    found = read_series(tmp_path / "many", named)
    assert found.long
    assert np.array_equal(found.values, Series.from_array(values, named, who).values)
    windows = replace(schema, series=None, stride=1)  # which share their values
    for source in (tmp_path / "a.zarr", values):
        with pytest.raises(
            SchemaError, match="does not say which windows are of one series"
        ):
            read_series(source, windows)
    assert (
        read_series(values, replace(schema, stride=4, windows_are_people=True)).rows
        == 30
    )
    (tmp_path / "many" / "3.png").write_bytes(png(PIXELS[0]))
    with pytest.raises(SchemaError, match=r"\.npy, \.npz and \.zarr"):
        read_series(tmp_path / "many", named)


def bomb(path: Path) -> None:
    """A header that declares 10¹⁰ pixels before the few that are there."""
    small = png(PIXELS[0])
    head = b"IHDR" + struct.pack(">II", 10**5, 10**5) + small[24:29]
    path.write_bytes(
        small[:12] + head + struct.pack(">I", zlib.crc32(head)) + small[33:]
    )


HOSTILE: dict[str, Callable[[Path], Any]] = {
    r"12\.png: the file cannot be read \(it is damaged, or holds objects: DecompressionBombError": bomb,
    r"the image has 3 × 4 pixels of the mode L, and by the schema 4 × 3": lambda p: (
        p.write_bytes(png(PIXELS[0].T))
    ),
    "of the mode RGBA": lambda p: Image.new("RGBA", (3, 4)).save(p),
    r"damaged, or holds objects: UnidentifiedImageError": lambda p: p.write_bytes(
        b"GIF89a no image"
    ),
    r"damaged, or holds objects: OSError": lambda p: p.write_bytes(png(PIXELS[0])[:45]),
    "value 9 at row 13 is not one of the declared": lambda p: (
        (p.parents[1] / "9").mkdir(),
        p.rename(p.parents[1] / "9" / "1.png"),
    ),
    "and no others": lambda p: p.with_suffix(".gif").touch(),
    'column "writer": the header has no such column': lambda p: None,
}


@pytest.mark.parametrize("said", HOSTILE)
def test_a_hostile_folder_of_images_is_refused_in_words(
    tmp_path: Path, said: str
) -> None:
    folder = in_subfolders(tmp_path / "x")
    path = folder / "8" / "12.png"
    path.write_bytes(png(PIXELS[0]))
    HOSTILE[said](path)
    with pytest.raises(SchemaError, match=said):
        read_images(folder, OWN if "writer" in said else SCHEMA)


def test_a_list_names_each_image_once(tmp_path: Path) -> None:
    listed = pd.read_csv(in_a_list(tmp_path / "x") / "metadata.csv")
    for wrong in (
        listed[1:],
        listed.replace("00.png", "../00.png"),
        pd.concat([listed, listed[:1]]),
    ):
        wrong.to_csv(tmp_path / "x" / "metadata.csv", index=False)
        with pytest.raises(
            SchemaError, match=r"metadata\.csv must list each image there once"
        ):
            read_images(tmp_path / "x", SCHEMA)


def test_a_hostile_zarr_store_is_refused_in_words_and_nothing_in_it_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(said: str, schema: ImageSchema = SCHEMA, **arrays: Any) -> None:
        with pytest.raises(SchemaError, match=said):
            read_images(
                store(tmp_path / "a.zarr", **arrays) if arrays else tmp_path / "a.zarr",
                schema,
            )

    refused('holds no array "digit"', images=PIXELS)
    refused("12 rows need as many values of", images=PIXELS, digit=DIGITS[:11])
    refused(
        "of the shape 4 × 3 by the schema, and here 3 × 4",
        images=PIXELS.transpose(0, 2, 1),
        digit=DIGITS,
    )
    refused(
        "9 at row 12 is not one of the 2 declared",
        images=PIXELS,
        digit=np.array([*DIGITS[:11], 9]),
    )
    refused("nobody has a row", images=PIXELS[:0], digit=DIGITS[:0])
    assert (
        read_images(
            store(tmp_path / "a.zarr", images=PIXELS, digit=DIGITS, writer=WRITERS), OWN
        ).rows
        == 12
    )
    monkeypatch.setattr(files, "LONG", 40)
    refused("1 people have rows in two files, or far apart in one", OWN)
    opened = read_images(
        store(tmp_path / "a.zarr", images=PIXELS, digit=DIGITS), SCHEMA
    )
    next(
        one
        for one in (tmp_path / "a.zarr" / "images" / "c").rglob("0")
        if one.is_file()
    ).write_bytes(b"other")
    refused("it is damaged, or holds objects")
    with pytest.raises(PartyError, match="not as it was when the folder was opened"):
        [*opened.parts()]

    class Planted:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    chunk = pickle.dumps(Planted())
    keys = {"zarr_format": 2, "shape": [2], "fill_value": 0, "order": "C"}
    packed: list[dict[str, Any]] = [
        {
            "chunks": [2],
            "dtype": "<i8",
            "compressor": {"id": "pickle"},
            "filters": None,
        },
        {
            "chunks": [2],
            "dtype": "|O",
            "compressor": None,
            "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}],
        },
        {"chunks": [1 << 40], "dtype": "<i8", "compressor": None, "filters": None},
    ]
    for more in packed:
        (tmp_path / "b.zarr").mkdir(exist_ok=True)
        (tmp_path / "b.zarr" / ".zarray").write_text(json.dumps(keys | more))
        (tmp_path / "b.zarr" / "0").write_bytes(chunk)
        with pytest.raises(
            SchemaError,
            match=r"codecs or chunks that are not read here|damaged, or holds objects",
        ):
            read_images(tmp_path / "b.zarr", replace(SCHEMA, label=None, classes=()))
    assert not (tmp_path / "executed").exists()
