"""Numbers that many people share, by the releases of gram alone: where they are, and
how many have each.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch

import column_releases
from column_releases import Noise
from understudy.data.column import Integer, Real
from understudy.data.schema import Schema
from understudy.models.tables.trees import TreesRead, runs_of
from understudy.protocols.gram.layout import Layout

COLUMNS = 12  # of one table
# of trees and pairs, with 1, 8 and 21 columns
NOISE = {
    2_000: Noise(17.0, 5.0),
    9_105: Noise(49.0, 27.0),
    41_188: Noise(79.0, 75.0),
}


def column(rng: np.random.Generator, people: int) -> tuple[np.ndarray, int]:  # type: ignore[type-arg]
    """Two to thirty numbers with up to two decimals, of both signs, and by how many
    people each is shared.
    """
    many = int(rng.integers(2, 31))
    decimals = int(rng.integers(0, 3))
    span = int(np.exp(rng.uniform(math.log(many + 1), math.log(3_000))))
    start = (
        int(rng.integers(-span, 1))
        if rng.random() < 0.6
        else int(rng.integers(0, 5 * span))
    )
    steps = start + np.sort(rng.choice(span, many, replace=False))
    shares = rng.dirichlet(np.full(many, rng.choice([0.3, 1.0, 3.0])))
    return np.round(
        steps[rng.choice(many, people, p=shares)] / 10.0**decimals, decimals
    ), decimals


def released(
    frame: pd.DataFrame, schema: Schema, seed: int
) -> tuple[Layout, TreesRead]:
    """The layout on the bounds that were found, and what trees and pairs say
    together.
    """
    rng = np.random.default_rng([seed, 1])
    return column_releases.released(frame, schema, NOISE[len(frame)], rng)


@pytest.mark.long
@pytest.mark.parametrize("people", NOISE)
def test_a_number_that_one_in_a_hundred_have_is_drawn_within_four_deviations(
    people: int,
) -> None:
    rng = np.random.default_rng([people, 5])
    made = {f"x{j}": column(rng, people) for j in range(COLUMNS)}
    frame = pd.DataFrame({name: values for name, (values, _) in made.items()})
    schema = Schema(
        columns=tuple(
            Real(name=name, decimals=decimals) for name, (_, decimals) in made.items()
        )
    )
    layout, read = released(frame, schema, people)
    wrong = []
    atoms = 0
    for place, own in enumerate(layout.trees[0].fine.columns):
        edges = own.edges  # type: ignore[attr-defined]
        for value, count in zip(
            *np.unique(frame[own.name], return_counts=True), strict=True
        ):
            if count < 0.01 * people or not own.low <= value <= own.high:  # type: ignore[attr-defined]
                continue
            atoms += 1
            cell = int(np.searchsorted(edges[1:-1], value, side="right"))
            off = (float(read.tables[place][cell]) - count) / read.noise[place]
            if abs(off) > 4:
                wrong.append((own.name, value, count, round(off, 1)))
    assert atoms > 8 * COLUMNS
    # Of atoms with four to five deviations of people a few lie so low that noise
    # explains them.
    assert len(wrong) <= 0.01 * atoms, wrong


@pytest.mark.parametrize("seed", range(2))
def test_the_last_of_ten_numbers_has_its_own_people(seed: int) -> None:
    values = np.array([-3.4, -3.0, -2.9, -1.8, -1.7, -1.1, -0.2, -0.1, 1.1, 1.4])
    shares = np.array(
        [0.026, 0.0042, 0.0404, 0.223, 0.0188, 0.0154, 0.0002, 0.0894, 0.1885, 0.3941]
    )
    frame = pd.DataFrame(
        {
            "x": np.random.default_rng(seed).choice(
                values, 41_188, p=shares / shares.sum()
            )
        }
    )
    layout, read = released(frame, Schema(columns=(Real(name="x", decimals=1),)), seed)
    edges = layout.trees[0].fine.columns[0].edges  # type: ignore[attr-defined]
    for value, count in zip(*np.unique(frame["x"], return_counts=True), strict=True):
        cell = int(np.searchsorted(edges[1:-1], value, side="right"))
        assert abs(float(read.tables[0][cell]) - count) < 4 * read.noise[0], value
    past = float(read.tables[0][int(np.searchsorted(edges, 1.4, side="right")) :].sum())
    assert past < 0.001 * 41_188


@pytest.mark.parametrize("people", [41_188])
def test_a_constant_and_years_end_where_they_end(people: int) -> None:
    rng = np.random.default_rng(people)
    frame = pd.DataFrame(
        {"constant": np.full(people, 2013), "year": rng.integers(1990, 2021, people)}
    )
    schema = Schema(columns=(Integer(name="constant"), Integer(name="year")))
    layout, read = released(frame, schema, 3)
    for place, own in enumerate(layout.trees[0].fine.columns):
        edges = own.edges[:-1]  # type: ignore[attr-defined]
        outside = (edges < frame[own.name].min()) | (edges > frame[own.name].max())
        assert (
            float(read.tables[place][: len(edges)][outside].sum())
            < 1.5 * read.noise[place]
        ), own.name


def runs_and_ends(
    columns: dict[str, np.ndarray], sigma: float
) -> list[tuple[bool, bool, int]]:  # type: ignore[type-arg]
    """Of each column whether its bounds hold its smallest and its largest number, and
    how far its run is too wide.
    """
    frame = pd.DataFrame(columns)
    schema = Schema(columns=tuple(Real(name=name, decimals=2) for name in columns))
    (tops,) = Layout({"one": schema}, fine=0.3).tops.values()
    counts = tops.count(tops.cells(frame)).double()
    noise = torch.from_numpy(
        np.random.default_rng(8).normal(0, sigma, counts.shape)
    ).round()
    found = []
    for (low, high), own in zip(
        runs_of([tops], [counts + noise], [sigma], None).tolist(),
        tops.fine.columns,
        strict=True,
    ):
        cells = np.searchsorted(own.edges[1:-1], frame[own.name], side="right")  # type: ignore[attr-defined]
        wide = max(cells.min() - low, 0) + max(high - cells.max(), 0)
        found.append((low <= cells.min(), high >= cells.max(), int(wide)))
    return found


@pytest.mark.long
def test_numbers_for_gaps_far_from_all_others_are_within_the_bounds() -> None:
    rng = np.random.default_rng(3)
    people = 9_000
    sigma = 66.0
    columns = {}
    for j in range(120):
        values = np.exp(rng.normal(rng.uniform(-1, 6), 0.4, people))
        gaps = float(rng.choice([-999.0, -200.0, -99.0, -9.0]))
        columns[f"x{j}"] = np.round(
            np.where(rng.random(people) < 6.5 * sigma / people, gaps, values), 2
        )
    found = runs_and_ends(columns, sigma)
    assert sum(below for below, _, _ in found) >= 114


@pytest.mark.long
def test_noise_alone_hardly_makes_bounds_too_wide() -> None:
    rng = np.random.default_rng(4)
    columns = {f"x{j}": np.round(rng.uniform(4, 15, 4_000), 2) for j in range(120)}
    found = runs_and_ends(columns, 66.0)
    # no cell far away, and hardly a neighbour
    assert max(wide for _, _, wide in found) <= 4
    assert sum(wide > 2 for _, _, wide in found) <= 3


def off_the_ends(columns: dict[str, np.ndarray], seed: int) -> pd.DataFrame:  # type: ignore[type-arg]
    """Of each whole-numbered column the people outside of its range and KS, as parts of
    all, and p99 over the real.
    """
    frame = pd.DataFrame(columns)
    layout, read = released(
        frame, Schema(columns=tuple(Integer(name=name) for name in columns)), seed
    )
    found = []
    for place, own in enumerate(layout.trees[0].fine.columns):
        edges, values = own.edges[:-1], frame[own.name].to_numpy()  # type: ignore[attr-defined]
        table = read.tables[place].numpy()[: len(edges)]
        table = table / table.sum()
        outside = (edges < values.min()) | (edges > values.max())
        real = np.searchsorted(np.sort(values), edges, side="right") / len(values)
        p99 = edges[np.searchsorted(np.cumsum(table), 0.99)]
        found.append(
            (
                table[outside].sum(),
                np.abs(np.cumsum(table) - real).max(),
                p99 / np.quantile(values, 0.99),
            )
        )
    return pd.DataFrame(found, columns=["outside", "ks", "p99"])


@pytest.mark.long
def test_hardly_anybody_is_drawn_beyond_a_flat_law_and_tails_stay() -> None:
    rng = np.random.default_rng(9)
    people = 9_105
    flat = {}
    tails = {}
    for j in range(40):
        low = int(rng.integers(-200, 400))
        flat[f"x{j}"] = rng.integers(low, low + int(rng.integers(4, 300)), people)
        tails[f"x{j}"] = np.rint(
            np.exp(rng.normal(rng.uniform(2, 5), rng.uniform(0.3, 0.9), people))
        ).astype(int)
    found = off_the_ends(flat, 1)
    # .23 by the ends of smooth laws alone
    assert (found["outside"] <= 0.001).mean() >= 0.3
    assert found["outside"].mean() < 0.0085  # .010 by those
    assert found["ks"].mean() < 0.02
    found = off_the_ends(tails, 2)
    assert found["ks"].mean() < 0.02
    assert (found["p99"] - 1).abs().mean() < 0.08


@pytest.mark.long
def test_a_constant_is_hardly_ever_anything_else() -> None:
    rng = np.random.default_rng(10)
    columns = {
        f"x{j}": np.full(9_105, int(rng.integers(-5_000, 5_000))) for j in range(40)
    }
    found = off_the_ends(columns, 3)
    assert (found["outside"] > 0).mean() <= 0.05  # noise of more than 2.5 deviations
    assert found["outside"].mean() < 0.0004


@pytest.mark.long
def test_few_people_beside_a_number_that_nearly_all_have_are_drawn_where_they_are() -> (
    None
):
    """As days since a call, 999 for none: a law that is fitted to the one number loses
    all others.
    """
    rng = np.random.default_rng(11)
    people = 41_188
    columns = {}
    for j in range(30):
        others = np.rint(np.exp(rng.normal(rng.uniform(1.5, 3), 0.5, people)))
        usual = int(rng.choice([999, -1, 0, 500]))
        there = rng.random(people) < rng.uniform(0.03, 0.1)
        columns[f"x{j}"] = np.where(there, others, usual).astype(int)
    found = off_the_ends(columns, 4)
    assert found["ks"].max() < 0.02  # .03 and more where all others were one number


@pytest.mark.long
def test_people_in_many_cells_below_zero_are_within_the_bounds() -> None:
    """No cell of them stands out by itself, and together they are nine deviations."""
    rng = np.random.default_rng(12)
    people = 16_000
    sigma = 66.0
    columns = {}
    for j in range(60):
        values = np.exp(rng.normal(rng.uniform(1, 3), 1.2, people))
        below = rng.random(people) < 9 * sigma / people
        columns[f"x{j}"] = np.round(np.where(below, -values, values), 2)
    frame = pd.DataFrame(columns)
    schema = Schema(columns=tuple(Real(name=name, decimals=2) for name in columns))
    (tops,) = Layout({"one": schema}, fine=0.3).tops.values()
    counts = tops.count(tops.cells(frame)).double()
    noise = np.random.default_rng(8).normal(0, sigma, counts.shape)
    noisy = counts + torch.from_numpy(noise).round()
    lost = []
    runs = runs_of([tops], [noisy], [sigma], None).tolist()
    for (first, _), own in zip(runs, tops.fine.columns, strict=True):
        edges = own.edges  # type: ignore[attr-defined]
        cells = np.searchsorted(edges[1:-1], frame[own.name], side="right")
        lost.append(int((cells < first).sum()) / sigma)
    assert sum(deviations > 4 for deviations in lost) <= 20  # 35 by single cells
