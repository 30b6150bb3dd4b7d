"""One released table with its error bars, for the page. Released counts and the fit alone: it reads no row.

Of all pairs of columns that were measured, and that a page has room for, the one is shown whose counts stand furthest
out of the noise as a dependence; with the run's target among them, where there is one.
"""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from understudy.answers.release import Release
from understudy.generators.generator import Generator
from understudy.ground.errors import UnderstudyError
from understudy.report import plots
from understudy.report.artefacts import Artefacts

_ROOM = 24  # cells
_LOOK = 2000  # pairs


@dataclass(frozen=True)
class Bars:
    """A table's columns, a row for each cell, and what the fit is off by besides the noise."""

    columns: tuple[str, str]
    rows: list[tuple[list[str], str, str, str, str, Markup]]  # levels, fit, released, sd, interval, picture
    sd: str
    bias: str


def error_bars(run: Artefacts) -> Bars | None:
    """The table to show; None where nothing was released, or it cannot be read."""
    if run.model or run.card is None or "release" not in run.card:
        return None
    try:
        generator = Generator.load(run.folder / "generator")
        pair = None if generator.release is None else _pair(generator.release, run.target)
        return None if pair is None else _bars(generator, pair)
    except UnderstudyError:
        return None


def _pair(release: Release, target: str | None) -> tuple[str, str] | None:
    """The columns of the clearest dependence."""
    names, found = release.levels.schema.names, release.kinds.get("pairs")
    if found is None:
        return None
    best: tuple[float, tuple[str, str]] | None = None
    small = [pair for pair, cells in zip(found.columns.tolist(), found.cells, strict=True) if cells <= _ROOM]
    wanted = [pair for pair in small if target in (names[pair[0]], names[pair[1]])] or small
    for pair in wanted[:_LOOK]:
        noisy = release.joint(pair)
        if noisy is None or not noisy.counts.sum() > 0:
            continue
        even = np.outer(noisy.counts.sum(1), noisy.counts.sum(0)) / noisy.counts.sum()
        clear = float(np.mean((noisy.counts - even) ** 2 / np.maximum(noisy.variance, 1e-9)))
        if best is None or clear > best[0]:
            best = clear, (names[pair[0]], names[pair[1]])
    return None if best is None else best[1]


def _bars(generator: Generator, pair: tuple[str, str]) -> Bars | None:
    table = generator.table(*pair)
    if "released" not in table:
        return None
    ends = table[["count", "low", "high"]].to_numpy()
    low, high = min(0.0, float(ends.min())), float(ends.max())
    rows = [
        (
            ["missing" if row[name] is None else str(row[name]) for name in pair],
            _count(row["count"]),
            _count(row["released"]),
            _count(row["sd"]),
            f"{_count(row['low'])} to {_count(row['high'])}",
            plots.interval(row["low"], row["released"], row["high"], row["count"], low, high),
        )
        for row in table.to_dict("records")
    ]
    return Bars(pair, rows, _count(table["sd"].max()), _count(table.attrs["bias"]))


def _count(value: float) -> str:
    text = f"{value:,.1f}" if abs(value) < 10 and value != round(value) else f"{value:,.0f}"
    return text.replace("-", "−")
