"""The pictures, as inline SVG without scripts: they print, follow the reader's light or
dark theme, and stay small.

Widths are in per cent and text keeps its size, so a picture fits a phone and a sheet of
paper alike. Real rows are grey and synthetic rows coloured, so that they differ without
colour; the scale of correlations runs from blue over the background to orange, which
the colour-blind can tell apart.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from understudy.evaluate.attacks.attack import Measure
from understudy.evaluate.comparison import ColumnShares
from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.association import Matrix
from understudy.ground.check import readable
from understudy.report.words import percent, shorten_middle, signed

BARS = 16  # levels of a column that get bars of their own
CELLS = 48  # columns of a heat map
# of a heat map: side of a cell, room for names; drawn smaller or larger as it fits
CELL = 12
GUTTER = 88
LINE = 19  # height of a level in a bar chart, in pixels
# per cent of a bar chart's width: labels end at the one, bars at the other
LABEL = 38
ROOM = 80


def element(name: str, *content: object, **attributes: object) -> Markup:
    """An element; `class_` and `stroke_width` lose and change their underscore, numbers
    their digits.
    """
    words = "".join(
        _attribute(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
    )
    inside = "".join(
        escape(readable(child) if type(child) is str else child) for child in content
    )
    return Markup(f"<{name}{words}>{inside}</{name}>")


def picture(
    label: str, height: float, *content: object, **attributes: object
) -> Markup:
    """A picture as wide as its place, with a text for those who cannot see it; without
    one it is decoration.
    """
    accessibility = (
        {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    )
    return element(
        "svg", *content, width="100%", height=height, **accessibility, **attributes
    )


def figure_strip(figure: Figure, low: float, high: float) -> Markup:
    """One figure on its scale: a bar up to the value, ticks where real rows and a naive
    table stand.
    """
    if figure.value is None:
        return Markup("")
    position = _percent_scale(low, high)
    begin = position(max(low, 0.0))
    value = position(figure.value)
    bar_start = f"{min(begin, value):.2f}%"
    width = f"{abs(value - begin):.2f}%"
    marks = [
        element("rect", x="0", y=9, width="100%", height=6, rx=3, class_="track"),
        element(
            "rect", x=bar_start, y=9, width=width, height=6, rx=3, class_="synthetic"
        ),
    ]
    for end, kind in ((figure.best, "best"), (naive_end(figure), "naive")):
        if end is not None:
            x = f"{position(end):.2f}%"
            marks.append(element("line", x1=x, x2=x, y1=3, y2=21, class_=f"end {kind}"))
    return picture("", 24, *marks)


def naive_end(figure: Figure) -> float | None:
    """The bad end of the scale: what a naive table reaches."""
    return figure.ceiling if figure.better == "lower" else figure.floor


def common_scale(figures: Sequence[Figure]) -> tuple[float, float]:
    """The scale that all these figures fit on, from 0 or below."""
    values = [
        v for f in figures for v in (f.value, f.floor, f.ceiling) if v is not None
    ]
    low = min([0.0, *values])
    high = max([0.0, *values])
    return max(low, -1.0), (high or 1.0) * 1.04


def rate_intervals(measure: Measure) -> Markup:
    """Attack, control and baseline with their intervals between 0 and 1."""
    marks = [element("line", x1="0", x2="100%", y1=25, y2=25, class_="axis")]
    rows = (
        ("attack", measure.attack),
        ("control", measure.control),
        ("baseline", measure.baseline),
    )
    for y, (kind, rate) in zip((6, 13, 20), rows, strict=True):
        low, value, high = (
            f"{100 * min(1.0, max(0.0, x)):.2f}%"
            for x in (rate.low, rate.value, rate.high)
        )
        marks.append(
            element("line", x1=low, x2=high, y1=y, y2=y, class_=f"interval {kind}")
        )
        marks.append(element("circle", cx=value, cy=y, r=3, class_=f"dot {kind}"))
    return picture("", 28, *marks, class_="rates")


def count_interval(
    low: float, value: float, high: float, fit: float, first: float, last: float
) -> Markup:
    """A released count with its interval, and a tick where the fit stands. The numbers
    stand beside it.
    """
    position = _percent_scale(first, last)
    zero = f"{position(0.0):.2f}%"
    tick = f"{position(fit):.2f}%"
    return picture(
        "",
        24,
        element("line", x1=zero, x2=zero, y1=0, y2=24, class_="axis"),
        element(
            "line",
            x1=f"{position(low):.2f}%",
            x2=f"{position(high):.2f}%",
            y1=12,
            y2=12,
            class_="interval control",
        ),
        element(
            "circle", cx=f"{position(value):.2f}%", cy=12, r=3, class_="dot control"
        ),
        element("line", x1=tick, x2=tick, y1=5, y2=19, class_="end fit"),
        class_="rates",
    )


def level_bars(shares: ColumnShares) -> Markup:
    # (2, levels)
    table = np.stack(
        [shares.synthetic if shares.real is None else shares.real, shares.synthetic]
    )
    labels, table = _merge_rare(shares.labels, table)
    top = float(table.max()) or 1.0
    marks = []
    for row, (label, (real, fake)) in enumerate(zip(labels, table.T, strict=True)):
        y = row * LINE
        marks.append(
            element(
                "text",
                element("title", label),
                shorten_middle(label, 16),
                x=f"{LABEL - 2}%",
                y=y + 13,
                class_="level",
            )
        )
        kinds = [("synthetic", fake, y + 9, 7, 100), ("real", real, y + 2, 7, 90)]
        for kind, share, bar_y, height, right in (
            kinds if shares.real is not None else [("synthetic", fake, y + 3, 12, 100)]
        ):
            width = (ROOM - LABEL) * share / top
            marks.append(
                element(
                    "rect",
                    x=f"{LABEL}%",
                    y=bar_y,
                    width=f"{width:.2f}%",
                    height=height,
                    class_=kind,
                )
            )
            marks.append(
                element(
                    "text",
                    percent(share),
                    x=f"{right}%",
                    y=y + 13,
                    class_=f"share {kind}",
                )
            )
    marks.append(
        element(
            "line",
            x1=f"{LABEL}%",
            x2=f"{LABEL}%",
            y1=0,
            y2=len(labels) * LINE,
            class_="axis",
        )
    )
    which = "synthetic rows" if shares.real is None else "real and synthetic rows"
    often = labels[int(table[1].argmax())]
    description = (
        f"Shares of the levels of {shares.column.name} in {which}; most frequent "
        f"synthetic level: {often}."
    )
    return picture(description, len(labels) * LINE + 2, *marks)


def _merge_rare(
    labels: Sequence[str], table: NDArray[np.float64]
) -> tuple[list[str], NDArray[np.float64]]:
    """The most frequent levels in their order, and all others in one."""
    if len(labels) <= BARS:
        return list(labels), table
    frequent = np.sort(np.argsort(-table.max(axis=0), kind="stable")[: BARS - 1])
    merged = np.delete(table, frequent, axis=1).sum(axis=1, keepdims=True)
    return [
        *(labels[i] for i in frequent),
        f"{len(labels) - len(frequent)} others",
    ], np.hstack([table[:, frequent], merged])


def chosen_columns(difference: Matrix) -> NDArray[np.int64]:
    """The columns that a heat map shows: all, or those that differ most."""
    if len(difference) <= CELLS:
        return np.arange(len(difference))
    return np.sort(np.argsort(-np.abs(difference).sum(axis=1), kind="stable")[:CELLS])


def map_width(columns: int) -> int:
    return max(280, round(0.75 * (GUTTER + columns * CELL)))


def heat_map(
    matrix: Matrix, names: Sequence[str], owners: Sequence[str | None], title: str
) -> Markup:
    """A matrix of correlations, −1 blue, +1 orange, with a border between parties."""
    count = len(names)
    cell = CELL
    margin = GUTTER
    side = count * cell
    marks = []
    for i, j in np.ndindex(count, count):
        value = float(matrix[i, j])
        note = element("title", f"{names[i]} × {names[j]}: {signed(value)}")
        kind = "above" if value >= 0 else "below"
        marks.append(
            element(
                "rect",
                note,
                x=margin + j * cell,
                y=i * cell,
                width=cell,
                height=cell,
                class_=kind,
                fill_opacity=min(1.0, abs(value)),
            )
        )
    for i, name in enumerate(names):
        marks.append(
            element(
                "text",
                shorten_middle(name, 15),
                x=margin - 5,
                y=(i + 0.75) * cell,
                class_="name",
            )
        )
    marks.append(
        element("rect", x=margin, y=0, width=side, height=side, class_="frame")
    )
    for edge in accumulate(len(list(group)) for _, group in groupby(owners)):
        if edge < count:
            x = margin + edge * cell
            y = edge * cell
            marks.append(
                element(
                    "path",
                    d=f"M{margin} {y}H{margin + side}M{x} 0V{side}",
                    class_="border",
                )
            )
    wide = margin + side + 1
    return element(
        "svg",
        *marks,
        viewBox=f"-1 -1 {wide + 1} {side + 2}",
        role="img",
        aria_label=title,
        style=f"min-width:{map_width(count) - 8}px",
        class_="heat",
    )


def epsilon_curve(
    points: Sequence[tuple[int, float]], limit: float, label: str
) -> Markup:
    """ε after each entry of a ledger, below the limit that its budget sets."""
    top = 1.12 * max([limit, *(value for _, value in points)])
    return _curve(points, top, limit, "allowed", "entry", label)


def accuracy_curve(points: Sequence[tuple[int, float]], label: str) -> Markup:
    return _curve(points, 1.05, 1.0, "all right", "round", label)


def _curve(
    points: Sequence[tuple[int, float]],
    top: float,
    limit: float,
    hint: str,
    unit: str,
    label: str,
) -> Markup:
    """Values in order between 0 and a top, and a dashed line at the limit."""
    first = points[0][0]
    last = points[-1][0]
    x = _percent_scale(first, max(last, first + 1))
    y = _percent_scale(top, 0)
    path = "M" + "L".join(f"{x(number):.2f} {y(value):.2f}" for number, value in points)
    inside = element(
        "svg",
        element("path", d=f"{path}V100H0Z", class_="under"),
        element("path", d=f"M0 {y(limit):.2f}H100", class_="limit"),
        element("path", d=path, class_="curve"),
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        x="9%",
        y=6,
        width="91%",
        height=130,
        class_="plot",
    )
    limit_y = 6 + 1.3 * y(limit)
    ticks = [
        element("text", f"{limit:g}", x="7.5%", y=limit_y + 4, class_="tick"),
        element("text", "0", x="7.5%", y=140, class_="tick"),
        element("text", hint, x="10%", y=limit_y - 5, class_="hint"),
        element("text", f"{unit} {first}", x="9%", y=153, class_="hint"),
        element("text", f"{unit} {last}", x="100%", y=153, class_="hint last"),
        element("line", x1="9%", x2="100%", y1=136, y2=136, class_="axis"),
    ]
    return picture(label, 158, inside, *ticks)


def _percent_scale(low: float, high: float) -> Callable[[float], float]:
    width = high - low or 1.0
    return lambda value: min(100.0, max(0.0, 100 * (value - low) / width))


def _attribute(name: str, value: Any) -> str:
    if isinstance(value, float):
        value = f"{value:.4g}" if math.isfinite(value) else "0"
    return f' {name}="{escape(readable(str(value)))}"'
