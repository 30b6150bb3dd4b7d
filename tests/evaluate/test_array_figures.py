"""Images and series in files are compared with real ones, as tables are."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.images import ImageSchema
from understudy.data.samples import sines
from understudy.evaluate.other_rows import array_figures

SCHEMA = ImageSchema(
    height=6, width=6, person="id", label="side", classes=("left", "right")
)


def write_images(path: Path, rows: int, seed: int, *, noise: bool = False) -> Path:
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, rows)
    pixels = rng.integers(0, 80, (rows, 6, 6))
    pixels[side == 0, :, :3] += 150
    pixels[side == 1, :, 3:] += 150
    pixels = rng.integers(0, 256, pixels.shape) if noise else pixels
    np.savez(
        path, images=pixels, side=np.array(SCHEMA.classes)[side], id=np.arange(rows)
    )
    return path


@pytest.mark.long
def test_images_like_the_real_ones_have_better_figures_than_noise(
    tmp_path: Path,
) -> None:
    real = write_images(tmp_path / "real.npz", 200, 0)
    (copy,) = (
        one for one in array_figures(real, real, SCHEMA, epochs=1) if one.name == "dcr"
    )
    good, bad = (
        {f.name: f.value for f in array_figures(real, made, SCHEMA, epochs=8)}
        for made in (
            write_images(tmp_path / "good.npz", 200, 1),
            write_images(tmp_path / "bad.npz", 200, 2, noise=True),
        )
    )
    assert good["mmd"] < 0.01 < bad["mmd"]
    assert good["coverage"] > 0.9 > bad["coverage"]
    assert copy.value == pytest.approx(0, abs=1e-6)
    assert good["dcr"] == pytest.approx(copy.ceiling, rel=0.2)
    assert good["tstr_cnn_acc"] > 0.9 > bad["tstr_cnn_acc"]


def test_series_as_a_generator_writes_them_are_read_and_compared(
    tmp_path: Path,
) -> None:
    values, schema = sines(60, length=8, channels=2, seed=1)
    for name, part in (("real", values[:40]), ("made", values[40:])):
        schema.frame(part).to_parquet(tmp_path / f"{name}.parquet")
    schema.save(tmp_path / "schema.toml")
    figures = array_figures(
        tmp_path / "real.parquet", tmp_path / "made.parquet", schema, steps=10
    )
    assert [figure.name for figure in figures] == [
        "mmd",
        "coverage",
        "next_step_mae",
        "autocorrelation",
        "dcr",
    ]
    assert all(figure.value is not None for figure in figures)


@pytest.mark.parametrize("more", [[], ["--target", "side"]])
def test_the_command_takes_images(tmp_path: Path, more: list[str]) -> None:
    real, made = (write_images(tmp_path / f"{n}.npz", 40, n) for n in (0, 1))
    SCHEMA.save(tmp_path / "schema.toml")
    paths = [
        "--real",
        str(real),
        "--synthetic",
        str(made),
        "--schema",
        str(tmp_path / "schema.toml"),
    ]
    done = CliRunner().invoke(app, ["evaluate", *paths, *more])
    if more:
        assert "for tables" in str(done.exception)
    else:
        assert done.exit_code == 0, done.output
        assert "coverage" in done.output
        assert "tstr_cnn_acc" in done.output
