"""Splits that benchmarks simulate holders with."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import association

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.data.schema import Categorical, Schema
from understudy.ground.errors import ConfigError


@pytest.fixture
def splits() -> Iterator[Any]:
    path = sys.path[:]
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    yield importlib.import_module("common.splits")
    sys.path[:] = path


@pytest.mark.parametrize(
    "shares", [{"a": 1.0}, {"a": 0.01, "b": 100.0}, dict.fromkeys("abcdef", 3.0)]
)
@pytest.mark.parametrize("n", [6, 7, 60])
def test_columns_and_rows_are_dealt_out_completely_and_once(
    splits: Any, shares: dict[str, float], n: int
) -> None:
    names = [f"c{i}" for i in range(n)]
    columns = splits.random_columns(names, shares, 3)
    assert sorted(sum(columns.values(), ())) == sorted(names)
    rows = splits.iid_rows(n, shares, 3)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(n))
    for split in (columns, rows):
        assert list(split) == list(shares)
        assert all(len(part) > 0 for part in split.values())
    assert columns == splits.random_columns(names, shares, 3)


def test_shares_are_kept(splits: Any) -> None:
    split = splits.random_columns(map(str, range(8)), {"a": 1, "b": 3}, seed=0)
    assert [len(part) for part in split.values()] == [2, 6]
    assert [len(part) for part in splits.iid_rows(100, 4, seed=0).values()] == [25] * 4
    assert list(splits.iid_rows(10, ("clinic", "insurer"), seed=0)) == [
        "clinic",
        "insurer",
    ]


def test_cramers_v_agrees_with_scipy_on_every_pair(splits: Any) -> None:
    frame, schema = toy(rows=300)
    codes = Codec(schema).codes(frame)
    v = splits.cramers_v(frame, schema)
    assert v == pytest.approx(v.T)
    for i in range(codes.shape[1]):
        assert v[i, i] == pytest.approx(1, abs=1e-6)
        for j in range(i):
            table = pd.crosstab(codes[:, i], codes[:, j]).to_numpy()
            expected = association(table, method="cramer", correction=False)
            assert v[i, j] == pytest.approx(expected, abs=1e-6)


def test_a_column_with_one_level_goes_with_nothing(splits: Any) -> None:
    schema = Schema(
        columns=tuple(Categorical(name=n, categories=("a", "b")) for n in "xy")
    )
    frame = pd.DataFrame({"x": ["a", "a", "a"], "y": ["a", "b", "a"]})
    assert splits.cramers_v(frame, schema).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("parties", [0, {}, ("a", "a"), "ab", {"a": 0}, 10])
def test_splits_that_cannot_be_made_are_refused(splits: Any, parties: Any) -> None:
    with pytest.raises(ConfigError):
        splits.iid_rows(9, parties, 0)
