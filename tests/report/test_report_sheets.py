"""Drawn images and series on the page: by class, as they were drawn, and of synthetic
rows alone.
"""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report_cases import run_of

from understudy.data.column import Real
from understudy.data.images import ImageSchema, png
from understudy.data.series import SeriesSchema
from understudy.report.page import write_report
from understudy.report.sheets import ROWS_OF_CLASS

pytestmark = pytest.mark.usefixtures("short_training")
IMAGES = ImageSchema(height=3, width=4, label="side", classes=("left", "right"))
CHANNELS = (Real(name="pulse", low=0, high=10), Real(name="heat", low=30, high=45))
SERIES = SeriesSchema(
    length=4, series="stay", channels=CHANNELS, label="ward", classes=("a", "b")
)


def images_run(folder: Path) -> tuple[Path, np.ndarray]:
    values = np.random.default_rng(0).random((40, 3, 4)).astype(np.float32)
    run_of(folder, IMAGES)
    IMAGES.frame(values, np.arange(40) % 2).to_parquet(folder / "synthetic.parquet")
    return folder, IMAGES.unscaled(values)


def sheets_of(text: str) -> list[np.ndarray]:
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in found]


def test_a_png_holds_the_picture_to_the_last_bit() -> None:
    grey = np.arange(15, dtype=np.uint8).reshape(3, 5) * 17
    assert (np.asarray(Image.open(io.BytesIO(png(grey)))) == grey).all()
    colour = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    assert (np.asarray(Image.open(io.BytesIO(png(colour)))) == colour).all()


def test_drawn_colour_images_are_shown_in_colour(tmp_path: Path) -> None:
    schema = ImageSchema(height=3, width=4, channels=3)
    values = np.random.default_rng(0).random((9, 3, 4, 3)).astype(np.float32)
    folder = run_of(tmp_path / "run", schema)
    schema.frame(values).to_parquet(folder / "synthetic.parquet")
    (sheet,) = sheets_of(write_report(folder, publish=True).read_text())
    assert (sheet[4:7, 5:9] == schema.unscaled(values)[7]).all()


@pytest.mark.parametrize("publish", [False, True])
def test_drawn_images_are_shown_by_class(publish: bool, tmp_path: Path) -> None:
    folder, drawn = images_run(tmp_path / "run")
    text = write_report(folder, publish=publish).read_text()
    left, right = sheets_of(text)
    assert text.index("side = left") < text.index("side = right")
    assert left.shape == right.shape == (2 * 4 - 1, 6 * 5 - 1)
    assert (left[:3, :4] == drawn[0]).all()
    assert (right[4:7, 25:29] == drawn[2 * ROWS_OF_CLASS - 1]).all()  # the last of them
    assert 'href="#sheets"' in text
    assert 'href="#columns"' not in text


def test_drawn_series_are_lines_for_each_channel_of_each_class(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", SERIES)
    values = np.random.default_rng(0).random((30, 4, 2)).astype(np.float32)
    SERIES.frame(values, np.arange(30) % 2).to_parquet(folder / "synthetic.parquet")
    text = write_report(folder, publish=True).read_text()
    assert "<dt>Synthetic series</dt><dd>30</dd>" in text, (
        "and not a row for every step"
    )
    pictures = re.findall(r"<svg[^>]*drawn series of[^>]*>(.*?)</svg>", text, re.S)
    assert [one.count("<path") for one in pictures] == [ROWS_OF_CLASS] * 4
    assert f"M0.0 {100 - 100 * values[0, 0, 0]:.1f}L" in pictures[0]
    assert f"M0.0 {100 - 100 * values[1, 0, 1]:.1f}L" in pictures[3]


def test_series_have_their_spectra_and_values_drawn_alone_for_all_and_with_real_ones_for_the_holder(
    tmp_path: Path,
) -> None:
    folder = run_of(tmp_path / "run", SERIES)
    drawn = np.zeros((30, 4, 2), dtype=np.float32)
    drawn[:, ::2] = 0.9  # as fast as can be
    SERIES.frame(drawn, np.arange(30) % 2).to_parquet(folder / "synthetic.parquet")
    real = np.repeat(np.random.default_rng(0).random((40, 1, 2)), 4, 1)  # does not move
    SERIES.frame(real, np.arange(40) % 2).to_parquet(tmp_path / "real.parquet")
    (folder / "run.toml").write_text(
        f'[parties.ward]\ntable = "{tmp_path / "real.parquet"}"\n'
    )
    public = write_report(folder, publish=True).read_text()
    private = write_report(folder).read_text()

    def curves(text: str, label: str) -> list[str]:
        return re.findall(rf'aria-label="{label}[^>]*>(.*?)</svg>', text, re.S)

    assert len(curves(public, "amplitudes of pulse, drawn")) == 2  # of two classes
    assert all(
        'class="real"' not in one for one in curves(public, "(?:amplitudes|values) of")
    )
    (one, _) = curves(private, "amplitudes of pulse, drawn and real")
    assert re.findall(r'd="([^"]+)" class="(\w+)"', one) == [
        ("M0.0 100.0L100.0 0.0", "drawn"),
        ("M0.0 100.0L100.0 100.0", "real"),
    ]
    (share, _) = curves(public, "values of pulse, drawn")
    assert share.count(" 0.0") == 2, (
        "half of the values are in the first bin, half in another"
    )


def test_rows_that_do_not_fit_their_schema_are_no_sheet(tmp_path: Path) -> None:
    folder, _ = images_run(tmp_path / "run")
    frame = pd.read_parquet(folder / "synthetic.parquet").astype({"pixel_0_0": float})
    frame["pixel_0_0"] = np.nan
    frame.to_parquet(folder / "synthetic.parquet")
    text = write_report(folder).read_text()
    assert sheets_of(text) == []
    assert "this report shows columns of tables only" in text


def test_real_images_and_their_figures_are_on_the_holder_s_page_alone(
    tmp_path: Path,
) -> None:
    folder, _ = images_run(tmp_path / "run")
    real = np.random.default_rng(7).integers(0, 256, (60, 3, 4), dtype=np.uint8)
    np.savez(
        tmp_path / "real.npz",
        images=real,
        side=np.array(["left", "right"])[np.arange(60) % 2],
    )
    (folder / "run.toml").write_text(
        f'[parties.monitor]\ntable = "{tmp_path / "real.npz"}"\n'
    )
    private = write_report(folder).read_text()
    sheets = sheets_of(private)
    assert len(sheets) == 4  # drawn and real, of two classes
    assert (sheets[1][:3, :4] == real[0]).all()
    assert "squared MMD" in private
    assert "Coverage" in private
    public = write_report(folder, publish=True).read_text()
    assert len(sheets_of(public)) == 2
    assert all((one[:3, :4] != real[0]).any() for one in sheets_of(public))
    assert "squared MMD" not in public


def test_real_rows_that_cannot_be_read_leave_their_reason(tmp_path: Path) -> None:
    folder, _ = images_run(tmp_path / "run")
    (folder / "run.toml").write_text(
        f'[parties.monitor]\ntable = "{tmp_path / "gone.npz"}"\n'
    )
    text = write_report(folder).read_text()
    assert "gone.npz" in text
    assert len(sheets_of(text)) == 2


def test_of_several_labels_there_are_sheets_of_the_first_and_a_table_of_all(
    tmp_path: Path,
) -> None:
    sides = ("left", "right")
    hands = ("yours", "mine", "both")
    schema = ImageSchema(height=3, width=4, labels={"side": sides, "hand": hands})
    rng = np.random.default_rng(0)
    folder = run_of(tmp_path / "run", schema)
    # left with yours and mine, right with both
    places = np.repeat([0, 1, 5], [10, 10, 20])
    schema.frame(rng.random((40, 3, 4)), places).to_parquet(
        folder / "synthetic.parquet"
    )
    real = {"side": np.repeat(sides, 30), "hand": np.tile(hands, 20)}
    np.savez(tmp_path / "real.npz", images=rng.integers(0, 256, (60, 3, 4)), **real)
    (folder / "run.toml").write_text(
        f'[parties.one]\ntable = "{tmp_path / "real.npz"}"\n'
    )
    public, private = (
        write_report(folder, publish=publish).read_text() for publish in (True, False)
    )
    assert [len(sheets_of(text)) for text in (public, private)] == [2, 4]
    rows = [
        re.search(r'<tr><th scope="row">right</th>.*?</tr>', text)
        for text in (public, private)
    ]
    shares = [
        re.findall(r">([\d.]+)(?:</td>| <| ?</span>)", row[0]) for row in rows if row
    ]
    assert shares == [
        ["0.0", "0.0", "50.0"],
        ["0.0", "16.7", "0.0", "16.7", "50.0", "16.7"],
    ]
    assert "hand = both" in public
    assert "Small CNN: accuracy (hand)" in private
    assert "Pairs of columns (labels)" in private
