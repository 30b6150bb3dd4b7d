"""Lines over a setting, in panels, as one SVG file: means over seeds, with bars from
the least to the largest.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from common.svg import picture
from understudy.report.plots import element

COLOURS = (
    "#0f7b6c",
    "#c8590a",
    "#1c63b0",
    "#8b4a9c",
    "#a33a3a",
    "#6b7a12",
    "#333333",
    "#0a8fb0",
    "#c23b85",
    "#8a6d3b",
    "#5a5fd0",
)
WIDTH = 250
HEIGHT = 190
LEFT = 56
TOP = 40
GAP = 62
KEY = 20  # height of a line of the legend
STYLE = """
svg { background: #fff; } text { font: 12px system-ui, sans-serif; fill: #444; }
.name { font-weight: 600; fill: #111; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: #e2e0da; } path { fill: none; stroke-width: 1.8; } .level { stroke-dasharray: 4 3; }
"""


@dataclass(frozen=True)
class Lines:
    """What is drawn: a panel for each value of `panels`, a line for each of `over`.
    Rows without an x are a dashed level.
    """

    rows: pd.DataFrame
    panels: str
    over: str
    x: str
    y: str
    title: str
    xlabel: str
    ylabel: str
    log: bool = False

    def svg(self) -> str:
        rows = self.rows.dropna(subset=[self.y]).astype({self.x: float, self.y: float})
        panels = list(dict.fromkeys(rows[self.panels]))
        names = list(dict.fromkeys(rows[self.over]))
        colours = {
            name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)
        }
        parts = [element("text", self.title, x=LEFT, y=18, class_="name")]
        for number, panel in enumerate(panels):
            left = LEFT + number * (WIDTH + GAP)
            own = rows[rows[self.panels] == panel]
            parts += self.panel(own, str(panel), left, colours)
        below = TOP + HEIGHT + 56
        for number, name in enumerate(names):
            y = below + KEY * number
            parts.append(
                element(
                    "line",
                    x1=LEFT,
                    x2=LEFT + 26,
                    y1=y - 4,
                    y2=y - 4,
                    stroke=colours[name],
                    stroke_width=3,
                )
            )
            parts.append(element("text", _shown(name), x=LEFT + 34, y=y))
        width = LEFT + len(panels) * (WIDTH + GAP)
        return picture(self.title, STYLE, parts, width, below + KEY * len(names))

    def panel(
        self, rows: pd.DataFrame, title: str, left: float, colours: dict[Any, str]
    ) -> Iterator[Markup]:
        """One frame with its ticks, levels and lines."""
        ticks = sorted(rows[self.x].dropna().unique())
        across = self._scale(ticks, left)
        high = max(float(rows[self.y].max()), 0.0) * 1.05 or 1.0
        low = min(float(rows[self.y].min()), 0.0)

        def down(value: float) -> float:
            return TOP + HEIGHT * (high - value) / (high - low)

        yield element("text", title, x=left, y=TOP - 6, class_="name")
        yield element("text", self.ylabel, x=left + WIDTH, y=TOP - 6, class_="end")
        for share in (0, 0.25, 0.5, 0.75, 1):
            value = low + share * (high - low)
            ends = {"x1": left, "x2": left + WIDTH}
            yield element("line", **ends, y1=down(value), y2=down(value), class_="grid")
            yield element(
                "text", f"{value:.3g}", x=left - 6, y=down(value) + 4, class_="end"
            )
        for tick in ticks:
            yield element(
                "text",
                f"{tick:g}",
                x=across(tick),
                y=TOP + HEIGHT + 16,
                class_="middle",
            )
        yield element(
            "text",
            self.xlabel,
            x=left + WIDTH / 2,
            y=TOP + HEIGHT + 32,
            class_="middle",
        )
        for name, own in rows.groupby(self.over, sort=False):
            colour = colours[name]
            free = own[own[self.x].isna()][self.y]
            if len(free):
                y = f"{down(float(free.mean())):.1f}"
                yield element(
                    "path",
                    d=f"M{left:.1f} {y} H{left + WIDTH:.1f}",
                    class_="level",
                    stroke=colour,
                )
            stats = own.dropna(subset=[self.x]).groupby(self.x)[self.y]
            points = [
                (across(float(x)), down(mean), down(least), down(most))
                for x, mean, least, most in stats.agg(
                    ["mean", "min", "max"]
                ).itertuples()
            ]
            line = " L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in points)
            bars = "".join(f" M{x:.1f} {a:.1f} V{b:.1f}" for x, _, a, b in points)
            if points:
                yield element("path", d=f"M{line}{bars}", stroke=colour)
            for x, y, _, _ in points:
                yield element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3, fill=colour)

    def _scale(self, ticks: Sequence[float], left: float) -> Callable[[float], float]:
        place = math.log if self.log else float
        ends = [place(tick) for tick in (ticks[0], ticks[-1])] if ticks else [0.0, 1.0]
        wide = (ends[1] - ends[0]) or 1.0
        return lambda value: left + 12 + (WIDTH - 24) * (place(value) - ends[0]) / wide


def _shown(name: object) -> str:
    return f"{name:g}" if isinstance(name, float) else str(name)
