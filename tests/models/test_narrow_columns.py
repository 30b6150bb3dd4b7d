"""Numbers of a narrow column far from zero are drawn where people are, by counts that
are released for atoms anyway.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.api.train import train
from understudy.data.column import Binned, Integer, Real
from understudy.data.encoding.codec import MOST_INNER, Levels
from understudy.data.schema import Schema
from understudy.ground.errors import SchemaError
from understudy.models.tables.narrow_columns import narrow_law
from understudy.models.tables.spikes import chosen_spikes, named_spikes
from understudy.models.tables.trees import TreesRead, runs_of
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.gram.layout import Layout
from understudy.runs.federation import Federation

PEOPLE = 10_000
RNG = np.random.default_rng(3)
WHOLE = Integer(name="x")
EXACT = Real(name="x")
CENTS = Real(name="x", decimals=2)
NARROW: dict[str, tuple[Binned, NDArray[np.generic]]] = {
    "ids": (WHOLE, 4_000_000_000 + RNG.permutation(PEOPLE) * 7),
    "ids in a row": (WHOLE, 4_100_000_000 + RNG.permutation(PEOPLE)),
    "a thousand ids": (WHOLE, 7_123_456_789_000 + RNG.integers(0, 1000, PEOPLE)),
    "cents": (CENTS, np.round(1e6 + RNG.exponential(5, PEOPLE), 2)),
    "below zero": (EXACT, -1e6 + RNG.exponential(5, PEOPLE)),
    "about a round number": (EXACT, 1e-3 + 1e-9 * RNG.normal(size=PEOPLE)),
}
WIDE: dict[str, tuple[Binned, NDArray[np.generic]]] = {
    "a month in seconds": (WHOLE, 1_600_000_000 + RNG.integers(0, 2_592_000, PEOPLE)),
    "metres north": (EXACT, 5.4e6 + 3000 * RNG.normal(size=PEOPLE)),
    "half of them elsewhere": (
        WHOLE,
        np.where(
            RNG.random(PEOPLE) < 0.5,
            RNG.integers(0, 10**9, PEOPLE),
            4_000_000_000 + RNG.integers(0, 99, PEOPLE),
        ),
    ),
    "one number and few beside it": (
        WHOLE,
        np.where(
            RNG.random(PEOPLE) < 0.8,
            4_000_012_345,
            4_000_000_000 + RNG.integers(0, 99_999, PEOPLE),
        ),
    ),
}
# of a count of a tree and of a pair, as of eight columns at ε = 1
USUAL = (48.0, 29.5)
NONE = np.empty((0, 3))  # numbers that many share


class _Rng:
    def __init__(self) -> None:
        self.torch = torch.Generator().manual_seed(4)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.torch, dtype=torch.float64)


def released(
    column: Binned, values: NDArray[np.generic], noise: tuple[float, float], seed: int
) -> tuple[Levels, Levels]:
    """The levels of one column without a law within its cells, and with it."""
    rng = np.random.default_rng(seed)
    trees_noise, pair_noise = noise
    frame = pd.DataFrame({"x": values})

    def noisy(counts: Tensor, deviation: float) -> Tensor:
        return counts.double() + torch.from_numpy(
            rng.normal(0, deviation, counts.shape)
        )

    layout = Layout({"one": Schema(columns=(column,))}, fine=0.3)
    tops = layout.tops[0]
    counted = noisy(tops.count(tops.cells(frame)), trees_noise)
    layout = layout.on_runs(runs_of([tops], [counted], [trees_noise], None))
    (trees,) = layout.trees
    sums = noisy(trees.count(trees.cells(frame)), trees_noise)
    read = TreesRead.from_sums([trees], [sums], [trees_noise], None)
    inner = {}
    for spikes in named_spikes([trees], chosen_spikes([trees], read, pair_noise)):
        sigma = pair_noise * spikes.digits**0.5
        counts = noisy(spikes.count(spikes.codes(frame)), sigma)
        shared = spikes.numbers(counts, sigma, read)
        law = narrow_law(spikes, counts, sigma, read, shared)
        inner |= {} if law is None else {0: law}
    levels = read.levels(layout.joint, pair_noise)
    levels = replace(levels, weights=[table.numpy() for table in read.tables])
    return levels, replace(levels, inner=inner)


def drawn(levels: Levels, values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Numbers drawn for as many people, by the weights of the fine cells."""
    weights = torch.from_numpy(levels.weights[0])
    torch.manual_seed(1)
    cells = torch.multinomial(weights, len(values), replacement=True).numpy()
    codes = levels.groups[0][cells][:, None]
    frame = levels.decode(codes, _Rng())
    assert np.array_equal(levels.codes(frame), codes), "each number is in its level"
    return frame["x"].to_numpy(dtype=float)


def outside(numbers: NDArray[np.float64], values: NDArray[np.generic]) -> float:
    is_outside = (numbers < values.min()) | (numbers > values.max())
    return float(is_outside.mean())


def distance(numbers: NDArray[np.float64], values: NDArray[np.generic]) -> float:
    """Kolmogorov and Smirnov's."""
    at = np.sort(np.concatenate([numbers, values]))
    one, other = (
        np.searchsorted(np.sort(some), at, side="right") / len(some)
        for some in (numbers, values)
    )
    return float(np.abs(one - other).max())


@pytest.mark.parametrize("kind", NARROW)
def test_a_narrow_column_is_drawn_where_its_people_are(kind: str) -> None:
    column, values = NARROW[kind]
    even, narrow = released(column, values, USUAL, 1)
    by_law = drawn(narrow, values)
    assert outside(drawn(even, values), values) > 0.3, "without its law"
    assert outside(by_law, values) < 0.08
    assert distance(by_law, values) < 0.2


@pytest.mark.parametrize("kind", NARROW)
def test_without_noise_the_law_is_that_of_the_people(kind: str) -> None:
    column, values = NARROW[kind]
    _, narrow = released(column, values, (1e-3, 1e-3), 0)
    by_law = drawn(narrow, values)
    assert outside(by_law, values) < 0.01
    assert distance(by_law, values) < 0.03


@pytest.mark.parametrize("kind", WIDE)
def test_a_column_that_is_not_narrow_has_no_law(kind: str) -> None:
    _, narrow = released(*WIDE[kind], USUAL, 0)
    assert not narrow.inner


def test_noise_alone_makes_no_law() -> None:
    layout = Layout({"one": Schema(columns=(WHOLE,))}, fine=0.3).on_runs(
        torch.tensor([[43, 43]])
    )
    (trees,) = layout.trees
    read = TreesRead(1.0, [torch.ones(trees.sizes[0]).double()], [48.0], {}, [])
    (spikes,) = named_spikes([trees], torch.tensor([[0, 7]]))
    counts = torch.from_numpy(np.random.default_rng(0).normal(0, 50, spikes.shape))
    assert narrow_law(spikes, counts, 50.0, read, NONE) is None
    alone = replace(read, tables=[torch.zeros(trees.sizes[0]).double()])
    alone.tables[0][7] = 300.0  # fewer than the noise of their digits
    assert narrow_law(spikes, counts, 50.0, alone, NONE) is None


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_narrow_column_holds_its_law_is_within_its_bounds(seed: int) -> None:
    """Ids, cents and reals of all sizes and widths, even, normal, or three numbers."""
    rng = np.random.default_rng(seed)
    laws = 0
    for _ in range(8):
        people = int(rng.choice([2_000, 10_000]))
        base = float(rng.choice([1, -1])) * 10 ** rng.uniform(4, 11)
        width = 10 ** rng.uniform(-3, 2) * max(1.0, abs(base) * 1e-6)
        ranks = (
            rng.random(people),
            rng.normal(size=people),
            rng.integers(0, 3, people),
        )
        values = base + width * ranks[rng.integers(0, 3)]
        column = (WHOLE, CENTS, EXACT)[rng.integers(0, 3)]
        if column is not EXACT:
            values = np.round(values, 2 if column is CENTS else 0)
        noise = (float(rng.choice([1e-3, 48])), float(rng.choice([1e-3, 29.5])))
        _, narrow = released(column, values, noise, seed)
        if narrow.inner:
            laws += 1
            full = Levels.from_tensors(narrow.schema, narrow.tensors())
            numbers = drawn(full, values)
            (bounds,) = full.schema.columns
            assert isinstance(bounds, Integer | Real)
            assert bounds.low <= numbers.min() <= numbers.max() <= bounds.high
            pieces = full.pieces(0)
            assert np.allclose(np.bincount(pieces.level, pieces.share), 1)
    assert laws


def test_questions_see_the_law_that_is_drawn_from() -> None:
    _, values = NARROW["ids"]
    _, narrow = released(WHOLE, values, USUAL, 1)
    cut = 4_000_035_000
    pieces = narrow.pieces(0, (cut,))
    assert pieces.edges is not None
    assert np.allclose(np.bincount(pieces.level, pieces.share), 1)
    levels = np.bincount(narrow.groups[0], narrow.weights[0])
    people = levels[pieces.level] * pieces.share
    below = people[pieces.edges[:-1] < cut].sum() / people.sum()
    assert abs(below - (drawn(narrow, values) < cut).mean()) < 0.02


def test_a_mean_and_its_interval_are_of_the_law() -> None:
    _, values = NARROW["ids"]
    frame = pd.DataFrame({"x": values, "y": values % 2})
    schema = Schema(columns=(WHOLE, Integer(name="y", low=0, high=1)))
    held = Federation.rehearsal(
        {"one": frame}, {"one": schema}, budget=Budget(2.0, 1e-6), seed=0
    )
    made = train("gram", held, components=2, steps=1, seed=0).generator
    assert made.levels.inner
    found = made.figures("x").set_index("figure").loc["mean of x"]
    assert abs(found["released"] - values.mean()) < 0.05 * np.ptp(values)
    assert found["low"] < values.mean() < found["high"]
    assert found["high"] - found["low"] < 3 * np.ptp(values)


def test_a_law_is_kept_with_its_levels_and_others_are_refused() -> None:
    column, values = NARROW["about a round number"]
    _, narrow = released(column, values, USUAL, 1)
    schema = narrow.schema
    full = Levels.from_tensors(schema, narrow.tensors())
    assert np.array_equal(full.inner[0], narrow.inner[0])
    law = narrow.inner[0]
    for wrong in (
        law[::-1],
        law[:-1],
        law * [1, 2],
        law * [1, np.nan],
        law - [1e9, 0],
        np.concatenate([law[:1], law]),
    ):
        with pytest.raises(SchemaError):
            replace(narrow, inner={0: wrong})
    for shape in ((), (1, 2), (MOST_INNER + 1, 2), (2, 3)):
        tensors = narrow.tensors() | {"inner.0": torch.zeros(shape).double()}
        with pytest.raises(SchemaError):
            Levels.from_tensors(schema, tensors)
