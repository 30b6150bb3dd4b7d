"""What synthetic rows keep of the strongest pairs, beside counts pair by pair."""

import importlib
import math
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.evaluate.utility.association import cramers_v


@pytest.fixture(scope="module")
def strong() -> Iterator[Any]:
    path = sys.path[:]
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    yield importlib.import_module("common.strong_pairs")
    sys.path[:] = path


SIZES = [3, 2, 4, 1, 5]


def drawn(rows: int, seed: int) -> Any:
    """Codes of five columns, the first three of one rank, and one a constant."""
    rng = np.random.default_rng(seed)
    rank = rng.random((rows, 1))
    mixed = np.where(rng.random((rows, 5)) < 0.7, rank, rng.random((rows, 5)))
    mixed[:, 4] = rng.random(rows)
    return (mixed * SIZES).astype(np.int64)


@pytest.mark.parametrize("rows", [(400, 300), (30, 2), (5, 1)])
def test_strongest_pairs_are_those_of_a_count_pair_by_pair(
    strong: Any, rows: tuple[int, int]
) -> None:
    real, synthetic = drawn(rows[0], 0), drawn(rows[1], 1)
    found = []
    for a, b in combinations(range(len(SIZES)), 2):
        tables, strengths = [], []
        for codes in (real, synthetic):
            table = np.zeros((SIZES[a], SIZES[b]))
            np.add.at(table, (codes[:, a], codes[:, b]), 1 / len(codes))
            tables.append(table)
            strength = 0.0
            if len(codes) > 1:
                strength = cramers_v(codes[:, a], codes[:, b], SIZES[a], SIZES[b])
            strengths.append(0.0 if math.isnan(strength) else strength)
        found.append((*strengths, np.abs(tables[0] - tables[1]).sum() / 2))
    best = sorted(found, key=lambda pair: -pair[0])[:3]
    measured = strong.strong_pairs(real, synthetic, SIZES, 3)
    best = [pair for pair in best if pair[0] > 0]
    assert measured.kept == pytest.approx(np.mean([v / w for w, v, _ in best]))
    assert measured.distance == pytest.approx(np.mean([gap for *_, gap in best]))
    assert measured.all_pairs == pytest.approx(np.mean([gap for *_, gap in found]))


def test_a_copy_keeps_all_and_shuffled_columns_keep_nothing(strong: Any) -> None:
    real = drawn(2_000, 0)
    copy = strong.strong_pairs(real, real[::-1], SIZES)
    assert (copy.kept, copy.distance, copy.all_pairs) == (1, 0, 0)
    apart = np.random.default_rng(2).permuted(real, axis=0)
    shuffled = strong.strong_pairs(real, apart, SIZES, 3)
    assert shuffled.kept < 0.2
    assert shuffled.distance > 3 * shuffled.all_pairs / 2


def test_numbers_are_cut_into_quantiles_and_other_values_are_levels(
    strong: Any,
) -> None:
    real = pd.DataFrame(
        {
            "number": [*map(float, range(160)), np.nan],
            "word": ["a"] * 80 + ["b"] * 79 + [None, "a"],
            "flag": [True, False] * 80 + [True],
        }
    )
    synthetic = pd.DataFrame(
        {"word": ["b", "z", None], "number": ["12", "no number", 1e9]}
    )
    ours, theirs, sizes = strong.common_codes(real, synthetic)
    assert sizes == [17, 3, 3]
    assert np.bincount(ours[:160, 0]).tolist() == [10] * 16
    assert ours[160].tolist() == [16, 0, 0]
    assert theirs.tolist() == [[1, 1, 2], [16, 2, 2], [15, 2, 2]]
