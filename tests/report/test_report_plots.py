"""Pictures say what the numbers say: widths, colours and counts are read back from the
SVG.
"""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from understudy.data.schema import Categorical
from understudy.evaluate.attacks.attack import Measure
from understudy.evaluate.attacks.rates import Rate
from understudy.evaluate.comparison import ColumnShares
from understudy.evaluate.figure import Figure, FigureKey
from understudy.report import plots


def elements(svg: str, name: str, kind: str = "") -> list[ET.Element]:
    return [
        e
        for e in ET.fromstring(svg).iter(name)
        if kind in e.get("class", "").split() or not kind
    ]


def per_cent(element: ET.Element, key: str = "width") -> float:
    return float(str(element.get(key)).removesuffix("%"))


def shares(
    real: list[float] | None, synthetic: list[float], labels: list[str] | None = None
) -> ColumnShares:
    names = tuple(labels or [f"level {i}" for i in range(len(synthetic))])
    column = Categorical(name="c", categories=names)
    held = None if real is None else np.array(real)
    return ColumnShares(
        column=column, owner=None, synthetic=np.array(synthetic), real=held
    )


def test_bars_are_as_long_as_their_shares() -> None:
    svg = plots.level_bars(shares([0.5, 0.3, 0.2], [0.1, 0.1, 0.8]))
    widths = {
        kind: [per_cent(e) for e in elements(svg, "rect", kind)]
        for kind in ("real", "synthetic")
    }
    unit = widths["synthetic"][2] / 0.8
    assert widths["real"] == pytest.approx(
        [unit * s for s in (0.5, 0.3, 0.2)], abs=0.01
    )
    assert widths["synthetic"] == pytest.approx(
        [unit * s for s in (0.1, 0.1, 0.8)], abs=0.01
    )


def test_bars_of_synthetic_rows_alone_show_no_real_bar() -> None:
    svg = plots.level_bars(shares(None, [0.5, 0.5]))
    assert not elements(svg, "rect", "real")
    assert len(elements(svg, "rect", "synthetic")) == 2


def test_many_levels_become_a_few_bars_that_still_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(200), size=2)
    labels, kept = plots._merge_rare([str(i) for i in range(200)], table)
    assert len(labels) == plots.BARS == kept.shape[1]
    assert labels[-1] == f"{200 - plots.BARS + 1} others"
    assert kept.sum(axis=1) == pytest.approx([1, 1])


def test_a_heat_map_has_a_cell_for_each_pair_and_a_border_between_parties() -> None:
    matrix = np.array([[1.0, -0.5, 0.25], [-0.5, 1.0, 0.0], [0.25, 0.0, 1.0]])
    svg = plots.heat_map(
        matrix, ["a", "b", "c"], ["clinic", "clinic", "insurer"], "title"
    )
    opacity = [
        float(str(e.get("fill-opacity")))
        for e in elements(svg, "rect")
        if e.get("fill-opacity")
    ]
    assert opacity == pytest.approx(np.abs(matrix).ravel().tolist())
    assert len(elements(svg, "rect", "below")) == 2
    assert len(elements(svg, "path", "border")) == 1
    assert not elements(
        plots.heat_map(matrix, ["a", "b", "c"], [None] * 3, "title"), "path", "border"
    )


def test_a_wide_table_shows_the_columns_that_differ_most() -> None:
    difference = np.zeros((100, 100))
    difference[7, 93] = difference[93, 7] = 1.0
    chosen = plots.chosen_columns(difference)
    assert len(chosen) == plots.CELLS
    assert {7, 93} <= set(chosen.tolist())


@pytest.mark.parametrize(
    ("better", "best", "naive"), [("lower", 0.1, 0.8), ("higher", 0.8, 0.1)]
)
def test_the_solid_tick_is_always_what_real_rows_reach(
    better: str, best: float, naive: float
) -> None:
    figure = Figure(FigureKey("x"), value=0.4, floor=0.1, ceiling=0.8, better=better)  # type: ignore[arg-type]
    svg = plots.figure_strip(figure, 0.0, 1.0)
    assert per_cent(elements(svg, "line", "best")[0], "x1") == pytest.approx(100 * best)
    assert per_cent(elements(svg, "line", "naive")[0], "x1") == pytest.approx(
        100 * naive
    )
    assert per_cent(elements(svg, "rect", "synthetic")[0]) == pytest.approx(40)


def test_intervals_are_drawn_between_their_ends() -> None:
    svg = plots.rate_intervals(
        Measure(
            "acc", Rate(0.6, 0.5, 0.7), Rate(0.5, 0.4, 0.6), Rate.from_exact(0.5), 0.5
        )
    )
    line = elements(svg, "line", "attack")[0]
    assert [per_cent(line, "x1"), per_cent(line, "x2")] == [50, 70]


def test_a_ledger_s_curve_stays_below_its_limit_and_ends_at_what_is_spent() -> None:
    svg = plots.epsilon_curve([(1, 0.0), (5, 1.0), (9, 2.0)], 4.0, "label")
    curve = str(elements(svg, "path", "curve")[0].get("d"))
    points = [tuple(map(float, p.split())) for p in curve[1:].split("L")]
    limit = float(
        str(elements(svg, "path", "limit")[0].get("d")).split()[1].split("H")[0]
    )
    assert [x for x, _ in points] == [0, 50, 100]
    assert all(y > limit for _, y in points)
    assert (100 - points[2][1]) / (100 - limit) == pytest.approx(0.5, abs=0.01)


def test_a_label_cannot_break_out_of_the_picture() -> None:
    svg = plots.level_bars(
        shares([0.5, 0.5], [0.5, 0.5], ["<script>x</script>", "\"&'"])
    )
    assert "<script" not in svg
    assert len(elements(svg, "rect", "real")) == 2


@pytest.mark.parametrize(
    "points", [[(1, 0.0)], [(1, 0.0), (2, 0.0)]], ids=["one entry", "nothing spent"]
)
def test_a_short_ledger_can_be_drawn(points: list[tuple[int, float]]) -> None:
    assert elements(plots.epsilon_curve(points, 1.0, "label"), "path", "curve")
