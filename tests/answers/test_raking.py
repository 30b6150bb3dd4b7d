"""Rows of other shares: the columns that were asked for have them, and all else follows
the model.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from small_models import SCHEMA, SIZES, asked, behind, joint, mixture

from understudy.answers.products import products_of
from understudy.answers.raking import TargetShares, rake
from understudy.data.encoding.codec import Codec
from understudy.ground.errors import ConfigError, SchemaError


def shares(frame: pd.DataFrame) -> np.ndarray:
    codes = Codec(SCHEMA).codes(frame)
    return np.bincount(
        np.ravel_multi_index(codes.T, SIZES), minlength=int(np.prod(SIZES))
    ).reshape(SIZES) / len(frame)


@pytest.mark.parametrize("way", [asked, behind])
def test_one_column_has_the_shares_asked_for_and_the_rest_is_as_it_was_given_it(
    way: type,
) -> None:
    frame = way().sample(20_000, weights={"sex": {"F": 0.9, "M": 0.1}}, seed=0)
    table = joint()
    truth = (
        table
        / table.sum((0, 2, 3), keepdims=True)
        * np.array([0.9, 0.1])[:, None, None]
    )
    wide = 5 * np.sqrt(truth / len(frame)) + (0.02 if way is behind else 1e-9)
    assert (np.abs(shares(frame) - truth) <= wide).all()
    if way is asked:
        assert abs((frame["sex"] == "F").mean() - 0.9) < 2e-3  # Latin hypercubes


def test_what_is_not_named_keeps_its_proportions() -> None:
    frame = asked().sample(
        40_000, weights={"smoker": {True: 0.5}, "age": {None: 0.0}}, seed=0
    )
    assert frame["age"].notna().all()
    assert (frame["smoker"].fillna(False).mean()) == pytest.approx(0.5, abs=5e-3)
    left = joint()[:3].sum((0, 1, 3))
    gaps = frame["smoker"].isna().mean()
    assert gaps == pytest.approx(0.5 * left[2] / (left[0] + left[2]), abs=0.02)


def test_raking_finds_the_law_nearest_to_the_model() -> None:
    """Its log-ratio to the model is a sum of functions of the columns: every mixed
    difference of it is zero.
    """
    products = products_of(mixture())
    assert products is not None
    wanted = {
        1: TargetShares(np.arange(2), np.array([0.3, 0.7])),
        3: TargetShares(np.arange(4), np.array([0.1, 0.2, 0.3, 0.4])),
    }
    factor = rake(products, wanted, SCHEMA.names)
    boxes = [{j: own.numpy() / float(own.max()) for j, own in factor.items()}]
    _, left = products.condition_on(boxes)
    assert left is not None
    table = left.table(range(4)).numpy()
    np.testing.assert_allclose(table.sum((0, 2, 3)), [0.3, 0.7], atol=1e-8)
    np.testing.assert_allclose(table.sum((0, 1, 2)), [0.1, 0.2, 0.3, 0.4], atol=1e-8)
    ratio = np.log(table / products.table(range(4)).numpy())
    np.testing.assert_allclose(ratio - ratio[:1, :, :1], 0, atol=1e-8)
    np.testing.assert_allclose(np.diff(np.diff(ratio, axis=1), axis=3), 0, atol=1e-8)


def test_rows_like_a_frame_have_its_shares_in_every_column_it_has() -> None:
    public = asked(mixture(4, seed=9)).sample(3_000, seed=1).drop(columns="income")
    frame = asked().sample(20_000, like=public, seed=2)
    codec = Codec(SCHEMA)
    for j, name in enumerate(("age", "sex", "smoker")):
        own = np.bincount(
            codec.known_levels(j, public[name]) + 1, minlength=SIZES[j] + 1
        ) / len(public)
        drawn = np.bincount(
            codec.known_levels(j, frame[name]) + 1, minlength=SIZES[j] + 1
        ) / len(frame)
        np.testing.assert_allclose(drawn, own, atol=0.01)


def test_a_condition_and_shares_go_together() -> None:
    frame = asked().sample(
        10_000,
        where="age >= 45",
        weights={"sex": {"F": 0.5}, "age": {80: 0.25}},
        seed=0,
    )
    assert (frame["age"] >= 45).all()
    assert (frame["sex"] == "F").mean() == pytest.approx(0.5, abs=0.01)
    assert (frame["age"] == 80).mean() == pytest.approx(0.25, abs=0.01)
    assert frame.attrs["probability"] == pytest.approx(
        asked().sample(1, where="age >= 45").attrs["probability"]
    )


def test_shares_that_cannot_be_are_refused_before_anything_is_drawn() -> None:
    generator = asked()
    with pytest.raises(SchemaError, match='Did you mean "sex"'):
        generator.sample(3, weights={"sexx": {"F": 1}})
    with pytest.raises(SchemaError, match="none of its values"):
        generator.sample(3, weights={"sex": {"X": 1}})
    with pytest.raises(SchemaError, match=r"sum to 1\.1,"):
        generator.sample(3, weights={"sex": {"F": 0.6, "M": 0.5}})
    with pytest.raises(SchemaError, match=r"sum to 0\.9,"):
        generator.sample(3, weights={"sex": {"F": 0.4, "M": 0.5}})
    for share in (-0.1, float("nan"), "half", True):
        with pytest.raises(SchemaError, match="between 0 and 1"):
            generator.sample(3, weights={"sex": {"F": share}})
    with pytest.raises(ConfigError, match="no probability"):
        generator.sample(3, where="sex == 'F'", weights={"sex": {"M": 0.5}})
    with pytest.raises(ConfigError, match="not from both"):
        generator.sample(3, weights={}, like=pd.DataFrame({"sex": ["F"]}))
    with pytest.raises(ConfigError, match="no rows"):
        generator.sample(3, like=pd.DataFrame({"sex": []}))
    with pytest.raises(SchemaError, match="gap"):
        generator.sample(3, like=pd.DataFrame({"sex": ["F", None]}))


def test_shares_that_contradict_each_other_are_refused() -> None:
    network = mixture(2)
    with torch.no_grad():  # men do not smoke, women do
        network.logits[:, SIZES[0] : SIZES[0] + 2] = (
            torch.tensor([[50.0, -50.0], [-50.0, 50.0]]) * 10
        )
        network.logits[:, SIZES[0] + 2 : SIZES[0] + 5] = torch.tensor(
            [[-500.0, 500.0, -500.0], [500.0, -500.0, -500.0]]
        )
    with pytest.raises(ConfigError, match=r"stays off by|no probability"):
        asked(network).sample(3, weights={"sex": {"F": 0.9}, "smoker": {True: 0.1}})
