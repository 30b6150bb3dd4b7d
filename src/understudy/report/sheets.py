"""Drawn images and series to look at, class by class: a sheet of images; for each
channel of series a picture of lines, how fast they swing, and how often they have which
value.

Guarantee: without `real`, reads the run's synthetic rows and its schema alone, so a
published page may show them.
Edges: rows that are missing, or do not fit their schema, are no sheets.

And one released table with its error bars: of all measured pairs for which a page has
room, the one whose counts stand furthest out of the noise as a dependence, with the
run's target if there is one. Choosing by what was released is free.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from understudy.answers.release import TableRelease
from understudy.data.arrays import ArrayTable
from understudy.data.images import png
from understudy.data.kinds import IMAGES, SERIES, ArraySchema, kind_of
from understudy.generators.generator import Generator
from understudy.ground.errors import UnderstudyError
from understudy.report import plots
from understudy.report.artefacts import Artefacts
from understudy.report.plots import element

# rows of a class, classes and channels that are shown
ROWS_OF_CLASS = 12
CLASSES = 24
CHANNELS = 12
# series whose spectra and values are counted, and the bins of these
COUNTED = 2_000
BINS = 20
_ACROSS = 6  # images in a row of a sheet
_GAP = 1


@dataclass(frozen=True)
class Sheet:
    """The drawn rows of one class: pictures, each with its name."""

    title: str
    pictures: list[tuple[str, Markup]]


def sheets(run: Artefacts, real: ArrayTable[ArraySchema] | None = None) -> list[Sheet]:
    """Some rows of each class of the first label, or of all; for their holder, `real`
    ones below.
    """
    if run.arrays is None or run.synthetic is None:
        return []
    schema: Any = run.arrays.as_drawn()
    drawing = _DRAWN[schema.kind]
    try:
        synthetic: ArrayTable[Any] = schema.read(drawing.some(run.synthetic, schema))
    except UnderstudyError:
        return []
    if synthetic.classes is None:
        return [Sheet("All rows", _pictures(drawing, synthetic, real, None))]
    return [
        Sheet(f"{schema.label} = {name}", _pictures(drawing, synthetic, real, code))
        for code, name in enumerate(schema.classes[:CLASSES])
        if (synthetic.codes(str(schema.label)) == code).any()
    ]


@dataclass(frozen=True)
class LabelTable:
    """Shares in per cent: of each class of the first label, that it is also of the
    other labels' classes.
    """

    first: str
    other_labels: list[str]  # what stands above the columns
    # a class, and of each column drawn and real, "" where not shown
    rows: list[tuple[str, list[tuple[str, str]]]]


def label_table(
    run: Artefacts, real: ArrayTable[ArraySchema] | None = None
) -> LabelTable | None:
    """Of rows with several labels; for their holder with the real shares. None where
    there are no such rows.
    """
    if run.arrays is None or len(run.arrays.targets) < 2:
        return None
    first, *other_targets = run.arrays.targets
    columns = [
        (label.name, category)
        for label in other_targets
        for category in label.categories[:CLASSES]
    ][:CLASSES]
    synthetic = next(iter(drawn_arrays(run).values()), pd.DataFrame())
    if any(
        name not in synthetic
        for name in (first.name, *(label.name for label in other_targets))
    ):
        return None
    real_table = (
        None
        if real is None or real.classes is None
        else real.schema.class_table(real.classes)
    )

    def shares(table: Any, code: Any) -> list[str]:
        return [
            f"{100 * np.mean((table[first.name] == code) & (table[a] == b)):.1f}"
            for a, b in columns
        ]

    blank = [""] * len(columns)
    rows = [
        (
            str(code),
            list(
                zip(
                    shares(synthetic, code),
                    blank if real_table is None else shares(real_table, code),
                    strict=True,
                )
            ),
        )
        for code in first.categories[:CLASSES]
    ]
    return LabelTable(
        first.name, [f"{name} = {category}" for name, category in columns], rows
    )


def drawn_arrays(run: Artefacts) -> dict[str, pd.DataFrame]:
    """The drawn images or series, a row each, by what they are; of series the table has
    a row for every step.
    """
    if run.arrays is None or run.synthetic is None:
        return {}
    kind = kind_of(run.arrays)
    rows = _DRAWN[kind.name].one_each(run.synthetic, run.arrays.as_drawn())
    return {} if rows is None else {kind.plural: rows}


def _pictures(
    drawing: "_Images",
    synthetic: ArrayTable[Any],
    real: ArrayTable[Any] | None,
    code: int | None,
) -> list[tuple[str, Markup]]:
    some = {}
    for which, table in (
        {"drawn": synthetic} | ({} if real is None else {"real": real})
    ).items():
        selected = (
            slice(None) if code is None else table.codes(table.schema.label) == code
        )
        some[which] = table.values[selected][:COUNTED]
    return drawing.pictures(some, synthetic.schema)


class _Images:
    """How a kind of arrays is drawn: rows of each class, one for each drawn row, and
    pictures with their names.
    """

    def some(self, frame: pd.DataFrame, schema: Any) -> pd.DataFrame:
        return (
            frame.groupby(schema.label).head(ROWS_OF_CLASS)
            if schema.label in frame
            else frame.head(ROWS_OF_CLASS)
        )

    def one_each(self, frame: pd.DataFrame, schema: Any) -> pd.DataFrame | None:
        return frame

    def pictures(
        self, rows: Mapping[str, NDArray[np.float32]], schema: Any
    ) -> list[tuple[str, Markup]]:
        some = {
            which: values[:ROWS_OF_CLASS]
            for which, values in rows.items()
            if len(values)
        }
        return [
            (
                which if len(rows) > 1 else "",
                _sheet(values, f"{len(values)} {which} images"),
            )
            for which, values in some.items()
        ]


class _Series(_Images):
    def some(self, frame: pd.DataFrame, schema: Any) -> pd.DataFrame:
        """Whole series of them."""
        first = self.one_each(frame, schema)
        if first is None:
            return frame
        first = (
            first.groupby(schema.label).head(COUNTED)
            if schema.label in frame
            else first.head(COUNTED)
        )
        name = str(schema.series)
        return frame[frame[name].isin(first[name])]

    def one_each(self, frame: pd.DataFrame, schema: Any) -> pd.DataFrame | None:
        """Of series the table has a row for every step."""
        return frame.drop_duplicates(schema.series) if schema.series in frame else None

    def pictures(
        self, rows: Mapping[str, NDArray[np.float32]], schema: Any
    ) -> list[tuple[str, Markup]]:
        some = {
            which: values[:ROWS_OF_CLASS]
            for which, values in rows.items()
            if len(values)
        }
        pictures = []
        for which, values in some.items():
            for channel, name in enumerate(schema.names[:CHANNELS]):
                lines = (
                    element("path", d=_path(line)) for line in values[:, :, channel]
                )
                label = f"{len(values)} {which} series of {name}"
                pictures.append(
                    (f"{name}, {which}", _plot(label, f"lines {which}", *lines))
                )
        return pictures + _counted(rows, schema.names)


_DRAWN: dict[str, _Images] = {IMAGES.name: _Images(), SERIES.name: _Series()}


def _counted(
    series: Mapping[str, NDArray[np.float32]], names: Sequence[str]
) -> list[tuple[str, Markup]]:
    """Of each channel the mean amplitude of every frequency but 0, and the shares of
    its values, drawn and real.
    """
    pictures = []
    for index, name in enumerate(names[:CHANNELS]):
        channel = {
            which: rows[:, :, index].astype(float)
            for which, rows in series.items()
            if len(rows)
        }
        spectra = {
            which: np.abs(np.fft.rfft(values)[:, 1:]).mean(0)
            for which, values in channel.items()
        }
        shares = {
            which: np.histogram(values, BINS, (0, 1))[0] / values.size
            for which, values in channel.items()
        }
        pictures.append(
            (f"{name}, slow to fast swings", _curves(spectra, f"amplitudes of {name}"))
        )
        pictures.append(
            (f"{name}, values from low to high", _curves(shares, f"values of {name}"))
        )
    return pictures


def _curves(curves: Mapping[str, NDArray[np.float64]], label: str) -> Markup:
    max_value = (
        max((float(curve.max()) for curve in curves.values()), default=0.0) or 1.0
    )
    paths = (
        element("path", d=_path(curve / max_value), class_=which)
        for which, curve in curves.items()
    )
    return _plot(f"{label}, {' and '.join(curves)}", "lines", *paths)


def _sheet(images: NDArray[np.float32], label: str) -> Markup:
    """Images in [0, 1], (n, height, width) or with colours, in rows on one PNG."""
    count, height, width, *colours = images.shape
    across = min(_ACROSS, count)
    down = -(-count // across)
    size = down * (height + _GAP) - _GAP, across * (width + _GAP) - _GAP
    sheet = np.full((*size, *colours), 127, dtype=np.uint8)
    for number, image in enumerate(images):
        y = number // across * (height + _GAP)
        x = number % across * (width + _GAP)
        sheet[y : y + height, x : x + width] = np.rint(255 * image)
    address = "data:image/png;base64," + base64.b64encode(png(sheet)).decode()
    return element("img", src=address, alt=label, class_="sheet")


def _path(line: NDArray[Any]) -> str:
    points = zip(np.linspace(0, 100, len(line)), line, strict=True)
    return "M" + "L".join(f"{a:.1f} {100 - 100 * b:.1f}" for a, b in points)


def _plot(label: str, kind: str, *paths: Markup) -> Markup:
    return element(
        "svg",
        *paths,
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_=kind,
    )


_ROOM = 24  # cells
_LOOK = 2000  # pairs


@dataclass(frozen=True)
class ErrorBars:
    """A table's columns, a row for each cell, and what the fit is off by besides the
    noise.
    """

    columns: tuple[str, str]
    # levels, fit, released, sd, interval, picture
    rows: list[tuple[list[str], str, str, str, str, Markup]]
    sd: str
    bias: str


def error_bars(run: Artefacts) -> ErrorBars | None:
    """The table to show; None where nothing was released, or it cannot be read."""
    if run.model or run.card is None or "release" not in run.card:
        return None
    try:
        generator = Generator.load(run.folder / "generator")
        pair = (
            None
            if generator.release is None
            else _clearest_pair(generator.release, run.target)
        )
        return None if pair is None else _error_bars(generator, pair)
    except UnderstudyError:
        return None


def _clearest_pair(release: TableRelease, target: str | None) -> tuple[str, str] | None:
    """The columns of the clearest dependence."""
    names = release.levels.schema.names
    pair_release = release.kinds.get("pairs")
    if pair_release is None:
        return None
    best: tuple[float, tuple[str, str]] | None = None
    small = [
        pair
        for pair, cells in zip(
            pair_release.columns.tolist(), pair_release.cells, strict=True
        )
        if cells <= _ROOM
    ]
    candidates = [
        pair for pair in small if target in (names[pair[0]], names[pair[1]])
    ] or small
    for pair in candidates[:_LOOK]:
        noisy = release.joint(pair)
        if noisy is None or not noisy.counts.sum() > 0:
            continue
        even = np.outer(noisy.counts.sum(1), noisy.counts.sum(0)) / noisy.counts.sum()
        clear = float(
            np.mean((noisy.counts - even) ** 2 / np.maximum(noisy.variance, 1e-9))
        )
        if best is None or clear > best[0]:
            best = clear, (names[pair[0]], names[pair[1]])
    return None if best is None else best[1]


def _error_bars(generator: Generator, pair: tuple[str, str]) -> ErrorBars | None:
    table = generator.table(*pair)
    if "released" not in table:
        return None
    ends = table[["count", "low", "high"]].to_numpy()
    low = min(0.0, float(ends.min()))
    high = float(ends.max())
    rows = [
        (
            ["missing" if row[name] is None else str(row[name]) for name in pair],
            _count(row["count"]),
            _count(row["released"]),
            _count(row["sd"]),
            f"{_count(row['low'])} to {_count(row['high'])}",
            plots.count_interval(
                row["low"], row["released"], row["high"], row["count"], low, high
            ),
        )
        for row in table.to_dict("records")
    ]
    return ErrorBars(pair, rows, _count(table["sd"].max()), _count(table.attrs["bias"]))


def _count(value: float) -> str:
    text = (
        f"{value:,.1f}"
        if abs(value) < 10 and value != round(value)
        else f"{value:,.0f}"
    )
    return text.replace("-", "−")
