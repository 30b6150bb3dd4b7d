"""Draw docs/quality.svg, the README's plot, from ours.csv: quality over ε on three
tables, seed 0.

    make plot

Of the papers' methods over columns the best one is drawn, for each table, ε and figure
anew. The picture has its own background and follows the reader's light or dark theme;
marks differ in shape as well as in colour.
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

OUT = Path(__file__).parents[2] / "docs" / "quality.svg"
TABLES = {"adult": "Adult", "bank": "Bank marketing", "census": "Census income"}
EPSILONS = (0.5, 1.0, 2.0, 8.0)
PAPERS = ("DPLT", "VertiGAN", "VDGAN-DPSGD")
LINES = {  # class and mark of a line: who it is
    "ours": "understudy (Gram, target named), two holders",
    "aim": "AIM, all data in one place",
    "mst": "MST, all data in one place",
    "papers": "best of DPLT, VertiGAN and VDGAN, two holders",
}
MEASURES = {  # figure: title, low, high, ticks
    "avd2": (
        "2-way distance to the real rows, log scale: lower is better",
        0.003,
        0.5,
        (0.003, 0.01, 0.03, 0.1, 0.3),
    ),
    "tstr_boosting_auc": (
        "AUC of a classifier that learned from the synthetic rows: higher is better",
        0.5,
        0.96,
        (0.5, 0.6, 0.7, 0.8, 0.9),
    ),
}
WIDTH = 860
HEIGHT = 606
LEFT = 54
TOP = 142
PANEL_W = 244
PANEL_H = 168
GAP_X = 22
GAP_Y = 88
STYLE = """
svg { color-scheme: light dark; --card: #fff; --ink: #1d1f23; --soft: #5b6068; --rule: #e2e0da;
  --ours: #0f7b6c; --aim: #c8590a; --mst: #1c63b0; --papers: #8b4a9c; }
@media (prefers-color-scheme: dark) { svg { --card: #1b1e23; --ink: #e9e7e2; --soft: #a0a6af; --rule: #30353c;
  --ours: #3fbfa9; --aim: #f08a3c; --mst: #5aa2f0; --papers: #c792d6; } }
text { font: 12.5px system-ui, sans-serif; fill: var(--soft); } .name { fill: var(--ink); font-weight: 600; }
.key { fill: var(--ink); } .card { fill: var(--card); stroke: var(--rule); }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--rule); } .real { stroke: var(--soft); stroke-dasharray: 5 4; stroke-width: 1.5; }
path { stroke-width: 1.8; stroke-linejoin: round; } path.line { fill: none; } .ours { stroke-width: 3; }
.ours { stroke: var(--ours); fill: var(--ours); } .aim { stroke: var(--aim); fill: var(--aim); }
.mst { stroke: var(--mst); fill: var(--mst); } .papers { stroke: var(--papers); fill: var(--papers); }
"""


@cache
def columns_of_two(epsilon: float | None = None) -> pd.DataFrame:
    """Two holders of columns, at one ε or at all of them."""
    rows = pd.read_csv(Path(__file__).with_name("ours.csv"))
    part = rows[(rows.partition == "columns") & (rows.holders == 2)]
    return part if epsilon is None else part[part.epsilon == epsilon]


def values(dataset: str, figure: str) -> dict[str, list[float]]:
    """What each line shows at each ε."""
    rows = columns_of_two()
    rows = rows[(rows.dataset == dataset) & (rows.seed == 0)]
    wide = rows.pivot(index="epsilon", columns="method", values=figure).loc[
        list(EPSILONS)
    ]
    papers = wide[list(PAPERS)]
    best = papers.min(axis=1) if figure == "avd2" else papers.max(axis=1)
    lines = {
        "ours": wide["Gram+target"],
        "aim": wide["AIM"],
        "mst": wide["MST"],
        "papers": best,
    }
    return {who: [float(value) for value in line] for who, line in lines.items()}


def of_real_rows(dataset: str) -> float:
    """The AUC of a classifier that learned from the real rows."""
    rows = columns_of_two()
    scores: pd.Series[float] = rows[
        (rows.dataset == dataset) & (rows.seed == 0)
    ].trtr_boosting_auc.dropna()
    return float(scores.iloc[0])


def mark(who: str, x: float, y: float) -> Markup:
    """A disc, a triangle, a square or a diamond."""
    if who == "ours":
        return element("circle", cx=x, cy=y, r=4, class_=who)
    corners = {
        "aim": ((0, -5), (5, 4), (-5, 4)),
        "mst": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        "papers": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }[who]
    return element(
        "path",
        d=f"M{' L'.join(f'{x + a:.1f} {y + b:.1f}' for a, b in corners)} Z",
        class_=who,
    )


def panel(
    dataset: str, figure: str, left: float, top: float, *, first: bool
) -> Iterator[Markup]:
    """One table and one figure: lines over ε, with marks."""
    _, low, high, ticks = MEASURES[figure]
    scale = math.log if figure == "avd2" else float

    def across(epsilon: float) -> float:
        return (
            left
            + 14
            + (PANEL_W - 28)
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
                "text", f"{tick:g}", x=left - 8, y=down(tick) + 4, class_="end"
            )
    for epsilon in EPSILONS:
        yield element(
            "text",
            f"{epsilon:g}",
            x=across(epsilon),
            y=top + PANEL_H + 18,
            class_="middle",
        )
    yield element(
        "text",
        "ε",
        x=(across(2) + across(8)) / 2,
        y=top + PANEL_H + 18,
        class_="middle name",
    )
    if figure != "avd2":
        y = down(of_real_rows(dataset))
        yield element("line", x1=left, x2=left + PANEL_W, y1=y, y2=y, class_="real")
    for who, line in reversed(values(dataset, figure).items()):
        points = [
            (across(epsilon), down(value))
            for epsilon, value in zip(EPSILONS, line, strict=True)
        ]
        yield element(
            "path",
            d="M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points),
            class_=f"{who} line",
        )
        yield from (mark(who, x, y) for x, y in points)


def legend() -> Iterator[Markup]:
    for number, (who, name) in enumerate(LINES.items()):
        x = (LEFT + 6, LEFT + 388)[number % 2]
        y = 26 + 21 * (number // 2)
        yield element("line", x1=x - 4, x2=x + 24, y1=y, y2=y, class_=who)
        yield mark(who, x + 10, y)
        yield element("text", name, x=x + 34, y=y + 4, class_="key")
    x = LEFT + 6
    y = 26 + 21 * 2
    yield element("line", x1=x - 4, x2=x + 24, y1=y, y2=y, class_="real")
    yield element(
        "text",
        "a classifier that learned from the real rows",
        x=x + 34,
        y=y + 4,
        class_="key",
    )


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
    for row, (figure, (title, *_)) in enumerate(MEASURES.items()):
        top = TOP + row * (PANEL_H + GAP_Y)
        parts.append(element("text", title, x=LEFT, y=top - 36, class_="key"))
        for column, (dataset, name) in enumerate(TABLES.items()):
            left = LEFT + column * (PANEL_W + GAP_X)
            parts.append(element("text", name, x=left, y=top - 12, class_="name"))
            parts += panel(dataset, figure, left, top, first=not column)
    said = "Quality over ε on three tables: " + "; ".join(
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
