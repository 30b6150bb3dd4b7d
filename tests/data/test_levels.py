"""Levels of two resolutions: what is encoded by level is drawn by fine cell, and a
stranger's levels are checked.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.encoding.codec import Codec, Levels
from understudy.data.encoding.fine import fine_schema
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.ground.errors import SchemaError
from understudy.privacy.noise import FastRng

SCHEMA = Schema(
    columns=(
        Integer(name="hours", low=0, high=19, nullable=True),
        Boolean(name="smoker"),
        Categorical(name="code", categories=tuple(f"c{n}" for n in range(70))),
    )
)
# 0–4, 5 alone, the rest, missing
HOURS = np.repeat(np.int32([0, 1, 2, 3]), [5, 1, 14, 1])
CODES = np.int32([0, 1, *[2] * 68])


def levels() -> Levels:
    weights = [np.zeros(21), np.ones(2), np.ones(70)]
    weights[0][[1, 3, 5, 20]] = 1, 3, 7, 1
    weights[2][2] = 4.0
    return Levels(SCHEMA, [HOURS, np.int32([0, 1]), CODES], weights)


FRAME = pd.DataFrame(
    {
        "hours": pd.array([0, 4, 5, 6, 19, None], dtype="Int64"),
        "smoker": [True, False] * 3,
        "code": ["c0", "c1", "c2", "c69", "c1", "c0"],
    }
)


def test_a_row_is_encoded_by_the_level_of_its_fine_cell() -> None:
    found = levels()
    assert found.sizes == (4, 2, 3)
    assert found.codes(FRAME)[:, 0].tolist() == [0, 0, 1, 2, 2, 3]
    assert found.codes(FRAME)[:, 2].tolist() == [0, 1, 2, 2, 1, 0]


def test_a_drawn_level_is_a_cell_by_its_weight_and_even_where_there_is_none() -> None:
    found = levels()
    n = 20_000
    codes = np.tile(np.int32([[0, 0, 0], [1, 1, 1], [2, 0, 2], [3, 1, 2]]), (n, 1))
    drawn = found.decode(codes, FastRng(0))
    assert np.array_equal(found.codes(drawn), codes), "every level is drawn as itself"
    by = [drawn.iloc[level::4] for level in range(4)]
    assert by[0]["hours"].isin([1, 3]).all()
    assert (by[0]["hours"] == 3).mean() == pytest.approx(0.75, abs=0.02)
    assert (by[1]["hours"] == 5).all()
    assert by[2]["hours"].value_counts(normalize=True).sub(1 / 14).abs().max() < 0.01
    assert by[3]["hours"].isna().all()
    assert (by[2]["code"] == "c2").mean() == pytest.approx(4 / 71, abs=0.01)


def test_probabilities_are_drawn_or_read_by_the_largest() -> None:
    found = levels()
    rows = torch.zeros(6, sum(found.sizes)).scatter_(
        1, torch.from_numpy(found.codes(FRAME)).long() + torch.tensor([0, 4, 6]), 0.9
    )
    assert np.array_equal(found.sample_codes(rows, FastRng(0)), found.codes(FRAME))
    assert np.array_equal(
        found.codes(found.decode(rows + 0.01, FastRng(0))), found.codes(FRAME)
    )


def test_levels_go_through_tensors_unchanged() -> None:
    again = Levels.from_tensors(SCHEMA, levels().tensors())
    assert all(map(np.array_equal, again.groups, levels().groups))
    assert all(map(np.array_equal, again.weights, levels().weights))


def changed(name: str, value: Any) -> dict[str, Any]:
    return levels().tensors() | {name: value}


@pytest.mark.parametrize(
    "tensors",
    [
        changed("level.0", torch.zeros(20, dtype=torch.int32)),
        changed("level.0", torch.from_numpy(HOURS + 1)),
        changed("level.0", torch.from_numpy(HOURS - 1)),
        changed("level.0", torch.full((21,), 2**31 - 1, dtype=torch.int32)),
        changed("level.0", torch.from_numpy(HOURS).double()),
        changed("level.0", torch.from_numpy(HOURS)[:, None]),
        changed("level.1", torch.tensor([1, 0], dtype=torch.int32)),
        changed("weight.1", torch.tensor([1.0, -1.0], dtype=torch.float64)),
        changed("weight.1", torch.tensor([1.0, torch.nan], dtype=torch.float64)),
        changed("weight.1", torch.tensor([1.0, torch.inf], dtype=torch.float64)),
        changed("weight.9", torch.zeros(1, dtype=torch.float64)),
        {
            name: value
            for name, value in levels().tensors().items()
            if name != "weight.2"
        },
        changed("level.0", "text"),
    ],
)
def test_levels_that_do_not_fit_the_schema_are_refused(tensors: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Levels.from_tensors(SCHEMA, tensors)


def test_weights_without_bound_still_give_values_of_the_level() -> None:
    found = levels()
    weights = [np.full(21, 1e308), np.full(2, 5e-324), np.ones(70)]
    huge = Levels(SCHEMA, found.groups, weights)
    codes = found.codes(FRAME)
    assert np.array_equal(found.codes(huge.decode(codes, FastRng(0))), codes)


def test_the_fine_cells_are_those_of_the_fine_schema() -> None:
    assert levels().fine == Codec(fine_schema(SCHEMA))


def test_questions_see_fine_cells_with_their_share_of_a_level() -> None:
    found = levels()
    pieces = found.pieces(0)
    assert np.array_equal(pieces.level, HOURS)
    assert np.allclose(np.bincount(pieces.level, weights=pieces.share), 1)
    assert pieces.share[[1, 3]].tolist() == [0.25, 0.75]
    assert found.known_levels(0, FRAME["hours"]).tolist() == [0, 0, 1, 2, 2, -1]
    assert found.labels(0) == ["0 … 4", "5", "6 … 19", None]
    assert found.labels(2) == ["c0", "c1", "c2, c3, … (68 in all)"]
