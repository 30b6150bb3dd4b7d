"""Images are read by their public schema from arrays, files and tables of pixels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refusals import raises
from understudy.data.images import ImageSchema, read_images
from understudy.data.kinds import load_schema
from understudy.ground.errors import ConfigError, Effect, SchemaError

SCHEMA = ImageSchema(height=2, width=3, person="writer")
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 2, 3)).astype(np.uint8)
WRITERS = np.array(["b", "a", "b", "a"])


def test_arrays_files_and_tables_give_the_same_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "digits.npz", images=PIXELS, writer=WRITERS)
    frame = SCHEMA.frame(PIXELS / 255).assign(writer=WRITERS)
    frame.to_csv(tmp_path / "digits.csv", index=False)
    for source in (tmp_path / "digits.npz", tmp_path / "digits.csv", frame):
        read = read_images(source, SCHEMA)
        assert read.ids.tolist() == ["b", "a"]
        assert read.starts.tolist() == [0, 2, 4]
        np.testing.assert_allclose(read.values, PIXELS[[0, 2, 1, 3]] / 255, atol=1e-7)
    np.save(tmp_path / "digits.npy", PIXELS)
    anonymous = ImageSchema(height=2, width=3)
    assert len(read_images(tmp_path / "digits.npy", anonymous).ids) == 4
    assert len(read_images(PIXELS, anonymous).ids) == 4


def test_colours_are_the_last_axis_of_arrays_and_the_last_number_in_the_name_of_a_pixel(
    tmp_path: Path,
) -> None:
    schema = ImageSchema(height=2, width=3, channels=3)
    pixels = np.random.default_rng(1).integers(0, 256, (4, 2, 3, 3)).astype(np.uint8)
    np.savez(tmp_path / "colour.npz", images=pixels)
    frame = schema.frame(pixels / 255)
    assert frame["pixel_1_2_0"].tolist() == pixels[:, 1, 2, 0].tolist()
    for source in (tmp_path / "colour.npz", frame, pixels):
        np.testing.assert_allclose(
            read_images(source, schema).values, pixels / 255, atol=1e-7
        )
    with pytest.raises(SchemaError, match="2 × 3 × 3 by the schema"):
        read_images(pixels[..., 0], schema)


def test_what_takes_grey_images_alone_refuses_colour() -> None:
    assert SCHEMA.grey_shape == SCHEMA.shape == (2, 3)
    with raises(
        ConfigError,
        effect=Effect.NOTHING_CHARGED,
        match="in colour: moments and tied take both",
    ):
        _ = ImageSchema(height=2, width=3, channels=3).grey_shape


def test_scaling_and_back_is_exact_for_bytes() -> None:
    assert np.array_equal(SCHEMA.unscaled(SCHEMA.scaled(PIXELS)), PIXELS)
    real = ImageSchema(height=2, width=3, low=-1, high=1)
    np.testing.assert_allclose(
        real.unscaled(real.scaled(PIXELS / 255)), PIXELS / 255, atol=1e-6
    )


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_schema_comes_back_from_its_file_as_it_was(
    tmp_path: Path, suffix: str
) -> None:
    colour = ImageSchema(height=4, width=4, channels=3, norm=0.5)
    for schema in (
        SCHEMA,
        colour,
        ImageSchema(height=1, width=1, low=0.5, high=0.75, note="grey"),
    ):
        schema.save(tmp_path / f"schema{suffix}")
        assert load_schema(tmp_path / f"schema{suffix}") == schema


def test_a_schema_says_in_a_few_words_what_it_describes() -> None:
    assert str(SCHEMA) == "images of 2 × 3 pixels from 0 to 255, person writer"
    colour = ImageSchema(height=2, width=3, channels=3)
    head = "colour images of 2 × 3 pixels from 0 to 255"
    assert str(colour) == f"{head}, each image by itself, whoever it is of"
    assert str(replace(colour, rows_are_people=True)) == f"{head}, each image a person"
    assert "channels" not in SCHEMA.to_dict(), (
        "what was agreed to in a file of grey images stays as it is"
    )


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    narrow = ImageSchema(height=2, width=3, high=100)
    with pytest.raises(
        SchemaError, match=r"the array, image 1: value \d+ at pixel \(0, 0\) is outside"
    ):
        read_images(PIXELS, narrow)
    plain = ImageSchema(height=2, width=3)  # an array alone names nobody
    with pytest.raises(SchemaError, match="of the shape"):
        read_images(PIXELS[:, :1], plain)
    broken = PIXELS.astype(float)
    broken[3, 1, 2] = np.nan
    with pytest.raises(SchemaError, match=r"image 4: value nan at pixel \(1, 2\)"):
        read_images(broken, plain)
    with pytest.raises(SchemaError, match="values are text, and not real numbers"):
        read_images(PIXELS.astype(str), plain)
    np.savez(tmp_path / "digits.npz", images=PIXELS)
    with pytest.raises(SchemaError, match=r'digits\.npz holds no array "writer"'):
        read_images(tmp_path / "digits.npz", SCHEMA)
    np.savez(tmp_path / "two.npz", a=PIXELS, b=PIXELS, writer=WRITERS)
    with pytest.raises(SchemaError, match='holds no array "images"'):
        read_images(tmp_path / "two.npz", SCHEMA)
    np.save(tmp_path / "objects.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(SchemaError, match="damaged, or holds objects"):
        read_images(tmp_path / "objects.npy", SCHEMA)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_images(tmp_path / "nothing.npz", SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"height": 0},
        {"width": 2.5},
        {"low": 255},
        {"high": float("nan")},
        {"height": 1 << 15, "width": 1 << 15},
        {"height": 1 << 10, "width": 1 << 10, "channels": 3},
        {"channels": 2},
        {"channels": True},
        {"norm": 0},
        {"norm": 1.5},
        {"norm": float("nan")},
        {"norm": True},
    ],
)
def test_a_schema_without_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        ImageSchema(**{"height": 2, "width": 3} | wrong)  # type: ignore[arg-type]
