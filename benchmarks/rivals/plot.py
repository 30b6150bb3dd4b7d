"""Draw rivals.svg from rivals.csv: AUC and 2-way distance over ε, one small panel a
table, the first seed.

    make plot

MST and AIM have several codes here: the best of them is drawn, for each table, ε and
figure anew. The picture has its own background and follows the reader's light or dark
theme; marks differ in shape as well as in colour.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import pandas as pd
from markupsafe import Markup

from common.options import command
from common.svg import picture
from understudy.report.plots import element

OUT = Path(__file__).with_name("rivals.svg")
TABLES = {
    "adult@1000": "Adult, 1,000",
    "bank@1000": "Bank, 1,000",
    "credit@1000": "Credit, 1,000",
    "randhie@1000": "RAND, 1,000",
    "parity3": "parity of three",
    "clusters": "small clusters",
    "rare": "one in a hundred",
    "rule9": "rule of nine",
}
EPSILONS = (0.1, 0.2, 1.0, 8.0)
LINES = {  # class and mark of a line: who it is, which methods, which holding
    "one": ("ours, one holder", ("Gram+target",), "one holder"),
    "two": ("ours, two holders of columns", ("Gram+target",), "two of columns"),
    "three": ("ours, three holders of rows", ("Gram+target",), "three of rows"),
    "mst": ("MST, best of its codes", ("MST (dpmm)", "MST (pgm)", "MST"), "one place"),
    "aim": (
        "AIM, best of its codes",
        ("AIM (dpmm)", "AIM (pgm)", "AIM", "AIM-GDP"),
        "one place",
    ),
    "swift": ("SWIFT", ("SWIFT",), "one place"),
    "pe": ("Tab-PE", ("Tab-PE",), "one place"),
    "flaim": ("FLAIM, three holders of rows", ("FLAIM",), "three of rows"),
}
MEASURES = {  # figure: title, whether more is better
    "boosting_auc": (
        "AUC of boosting that learned from the synthetic rows: higher is better",
        True,
    ),
    "avd2": ("2-way distance to the real rows, log scale: lower is better", False),
}
SCALES = {  # figure, whether people are few: low, high, ticks
    ("boosting_auc", True): (0.35, 1.0, (0.5, 0.75, 1.0)),
    ("boosting_auc", False): (0.35, 1.0, (0.5, 0.75, 1.0)),
    ("avd2", True): (0.03, 0.8, (0.05, 0.1, 0.2, 0.5)),
    ("avd2", False): (0.0001, 0.7, (0.001, 0.01, 0.1)),
}
WIDTH = 860
LEFT = 48
TOP = 132
PANEL_W = 186
PANEL_H = 92
GAP_X = 14
GAP_Y = 50
HEAD = 34
ACROSS = 4
BLOCK = math.ceil(len(TABLES) / ACROSS) * (PANEL_H + GAP_Y) + HEAD
HEIGHT = TOP + 2 * BLOCK - 28
STYLE = """
svg { color-scheme: light dark; --card: #fff; --ink: #1d1f23; --soft: #5b6068; --rule: #e2e0da; --one: #0f7b6c;
  --aim: #c8590a; --mst: #1c63b0; --pe: #8b4a9c; --swift: #7a6a00; --flaim: #b0305c; }
@media (prefers-color-scheme: dark) { svg { --card: #1b1e23; --ink: #e9e7e2; --soft: #a0a6af; --rule: #30353c;
  --one: #3fbfa9; --aim: #f08a3c; --mst: #5aa2f0; --pe: #c792d6; --swift: #cdb93a; --flaim: #f07aa0; } }
text { font: 12px system-ui, sans-serif; fill: var(--soft); } .name { fill: var(--ink); font-weight: 600; }
.key { fill: var(--ink); } .card { fill: var(--card); stroke: var(--rule); }
.end { text-anchor: end; } .middle { text-anchor: middle; } .grid { stroke: var(--rule); }
.line { fill: none !important; stroke-linejoin: round; stroke-width: 1.5; } .one.line { stroke-width: 2.6; }
.two.line { stroke-dasharray: 5 3; } .three.line { stroke-dasharray: 1.5 3; }
.one, .two, .three { stroke: var(--one); fill: var(--one); } .two { fill: var(--card); stroke-width: 1.6; }
.aim { stroke: var(--aim); fill: var(--aim); } .mst { stroke: var(--mst); fill: var(--mst); }
.pe { stroke: var(--pe); fill: var(--pe); } .swift { stroke: var(--swift); fill: var(--card); stroke-width: 1.6; }
.flaim { stroke: var(--flaim); fill: var(--card); stroke-width: 1.6; }
"""
CORNERS = {
    "three": ((-1.5, -4), (1.5, -4), (1.5, 4), (-1.5, 4)),
    "aim": ((0, -4.5), (4.5, 3.5), (-4.5, 3.5)),
    "mst": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
    "pe": ((0, -5), (4.5, 0), (0, 5), (-4.5, 0)),
    "swift": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
    "flaim": ((0, 4.5), (4.5, -3.5), (-4.5, -3.5)),
}


@cache
def first_seed() -> pd.DataFrame:
    """What ended, by a rival's own accounting."""
    rows = pd.read_csv(OUT.with_name("rivals.csv"))
    return rows[
        (rows.outcome == "ok")
        & (rows.seed == 0)
        & (rows.noise == "own")
        & rows.epsilon.isin(EPSILONS)
    ]


def values(dataset: str, figure: str) -> dict[str, list[tuple[float, float]]]:
    """Of each line the ε it has, and what it shows there."""
    rows = first_seed()
    rows = rows[rows.dataset == dataset]
    lines = {}
    for who, (_, methods, holding) in LINES.items():
        part = rows[rows.method.isin(methods) & (rows.holding == holding)].groupby(
            "epsilon"
        )[figure]
        best = (part.max() if MEASURES[figure][1] else part.min()).sort_index()
        lines[who] = [
            (float(str(epsilon)), float(value)) for epsilon, value in best.items()
        ]
    return lines


def mark(who: str, x: float, y: float) -> Markup:
    """A disc or a ring, a bar, a triangle on its side or its point, a square, full or
    not, or a diamond.
    """
    if who not in CORNERS:
        return element("circle", cx=x, cy=y, r=3.5, class_=who)
    return element(
        "path",
        d=f"M{' L'.join(f'{x + a:.1f} {y + b:.1f}' for a, b in CORNERS[who])} Z",
        class_=who,
    )


def panel(
    dataset: str, figure: str, left: float, top: float, *, first: bool
) -> Iterator[Markup]:
    """One table and one figure: lines over ε, with marks."""
    low, high, ticks = SCALES[figure, "@" in dataset]
    scale = math.log if figure == "avd2" else float

    def across(epsilon: float) -> float:
        return (
            left
            + 12
            + (PANEL_W - 24)
            * math.log(epsilon / EPSILONS[0])
            / math.log(EPSILONS[-1] / EPSILONS[0])
        )

    def down(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(
                f"{dataset}, {figure}: {value} lies outside of the plot, {low} to "
                f"{high}."
            )
        return top + PANEL_H * (scale(high) - scale(value)) / (scale(high) - scale(low))

    for tick in ticks:
        yield element(
            "line",
            x1=left,
            x2=left + PANEL_W,
            y1=down(tick),
            y2=down(tick),
            class_="grid",
        )
        if first:
            yield element(
                "text", f"{tick:g}", x=left - 6, y=down(tick) + 4, class_="end"
            )
    for epsilon in EPSILONS:
        yield element(
            "text",
            f"{epsilon:g}",
            x=across(epsilon),
            y=top + PANEL_H + 16,
            class_="middle",
        )
    for who, line in reversed(values(dataset, figure).items()):
        points = [(across(epsilon), down(value)) for epsilon, value in line]
        if len(points) > 1:
            yield element(
                "path",
                d="M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points),
                class_=f"{who} line",
            )
        yield from (mark(who, x, y) for x, y in points)


def legend() -> Iterator[Markup]:
    for number, (who, (name, *_)) in enumerate(LINES.items()):
        x = LEFT + 6 + 272 * (number % 3)
        y = 24 + 20 * (number // 3)
        yield element("line", x1=x - 4, x2=x + 24, y1=y, y2=y, class_=f"{who} line")
        yield mark(who, x + 10, y)
        yield element("text", name, x=x + 32, y=y + 4, class_="key")


def drawn() -> str:
    """The whole picture."""
    parts = [
        element(
            "rect",
            x=0.5,
            y=0.5,
            width=WIDTH - 1,
            height=HEIGHT - 1,
            rx=8,
            class_="card",
        ),
        *legend(),
    ]
    for block, (figure, (title, *_)) in enumerate(MEASURES.items()):
        start = TOP + block * BLOCK
        parts.append(
            element("text", f"{title}; over ε", x=LEFT, y=start - 30, class_="key")
        )
        for number, (dataset, name) in enumerate(TABLES.items()):
            left = LEFT + (number % ACROSS) * (PANEL_W + GAP_X)
            top = start + (number // ACROSS) * (PANEL_H + GAP_Y)
            parts.append(element("text", name, x=left, y=top - 8, class_="name"))
            parts += panel(dataset, figure, left, top, first=not number % ACROSS)
    said = "Rivals over ε on eight tables: " + "; ".join(
        title for title, *_ in MEASURES.values()
    )
    return picture(said, STYLE, parts, WIDTH, HEIGHT)


def parser() -> argparse.ArgumentParser:
    return command(__doc__)


def main() -> None:
    parser().parse_args()
    OUT.write_text(drawn())
    print(OUT)


if __name__ == "__main__":
    main()
