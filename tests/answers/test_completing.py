"""What is not known of a row follows from what is, by Bayes' rule: against sums over
the listed joint distribution.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from small_models import SCHEMA, SIZES, asked, behind, joint, mixture

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, SchemaError
from understudy.models.tables.inversion import BayesNet
from understudy.models.tables.mixture import MixtureOfProducts

FRAME = pd.DataFrame(
    {
        "income": [10.0, None, 99.5],
        "age": pd.array([75, 10, None], dtype="Int64"),
        "sex": ["F", None, None],
    },
    index=["x", "y", "z"],
)


def given(**levels: int | slice) -> np.ndarray:
    """The joint table of what is left, given levels of some columns."""
    table = joint()[tuple(levels.get(name, slice(None)) for name in SCHEMA.names)]
    return table / table.sum()


def test_a_prediction_is_the_ratio_of_the_sums_over_the_joint_table() -> None:
    odds = asked().predict_proba(FRAME, "smoker")
    assert list(odds.columns) == [False, True]
    assert list(odds.index) == ["x", "y", "z"]
    assert odds.attrs["answer"] == "exact"
    for row, known in zip(
        "xyz",
        ({"age": 2, "sex": 0, "income": 0}, {"age": 0}, {"income": 3}),
        strict=True,
    ):
        own = tuple(
            slice(known[n], known[n] + 1) if n in known else slice(None)
            for n in SCHEMA.names
        )
        smoker = joint()[own].sum((0, 1, 3))
        expected = smoker[:2] / smoker[:2].sum()
        np.testing.assert_allclose(odds.loc[row], expected, atol=1e-7)


def test_the_target_itself_is_not_looked_at_and_nothing_known_gives_the_share_of_all():
    generator = asked()
    wrong = FRAME.assign(smoker=[True, False, True])
    pd.testing.assert_frame_equal(
        generator.predict_proba(wrong, "smoker"),
        generator.predict_proba(FRAME, "smoker"),
    )
    none = generator.predict_proba(pd.DataFrame(index=range(2)), "sex")
    np.testing.assert_allclose(none.to_numpy(), [joint().sum((0, 2, 3))] * 2, atol=1e-7)


def test_means_and_quantiles_are_those_of_the_predicted_bins() -> None:
    generator = asked()
    edges = np.array([0, 25, 50, 75, 100])
    odds = generator.predict_proba(FRAME, "income").to_numpy()
    np.testing.assert_allclose(
        generator.expectation(FRAME, "income"), odds @ (edges[:-1] + 12.5)
    )
    for q in (0.0, 0.03, 0.5, 0.9, 1.0):
        heap = np.concatenate([np.zeros((3, 1)), odds.cumsum(1)], axis=1)
        expected = [np.interp(q, row, edges) for row in heap]
        np.testing.assert_allclose(
            generator.quantile(FRAME, "income", q), expected, atol=1e-6
        )
    ages = generator.quantile(FRAME, "age", 0.5)
    drawn = generator.complete(
        FRAME.drop(columns="age").assign(age=pd.NA), draws=4000, seed=0
    )
    for row in FRAME.index:
        assert (drawn.loc[row, "age"] <= ages[row]).mean() >= 0.5 - 0.03
        assert (drawn.loc[row, "age"] < ages[row]).mean() <= 0.5 + 0.03
    means = drawn.groupby(level=0)["age"].mean().astype(float)
    np.testing.assert_allclose(generator.expectation(FRAME, "age"), means, atol=1.5)


@pytest.mark.parametrize("way", [asked, behind])
def test_what_is_there_stays_and_the_rest_has_the_models_law_given_it(
    way: type,
) -> None:
    draws = 6000
    frame = way().complete(FRAME, draws=draws, seed=2)
    assert list(frame.columns) == ["income", "age", "sex", "smoker"]
    assert list(frame.index) == ["x"] * draws + ["y"] * draws + ["z"] * draws
    assert (frame.loc["x", "income"] == 10).all()
    assert (frame.loc["y", "age"] == 10).all()
    assert frame[["income", "age", "sex"]].notna().all(axis=None)
    assert frame["smoker"].isna().any()
    codes = Codec(SCHEMA).codes(frame)
    rows = {
        "x": {"age": 2, "sex": 0, "income": 0},
        "y": {"age": 0},
        "z": {"age": slice(0, 3), "income": 3},
    }
    for place, known in enumerate(rows.values()):
        table = given(**known)
        own = codes[place * draws : (place + 1) * draws]
        left = [
            j
            for j, name in enumerate(SCHEMA.names)
            if not isinstance(known.get(name), int)
        ]
        cells = np.ravel_multi_index(own[:, left].T, table.shape)
        shares = np.bincount(cells, minlength=table.size) / draws
        # 8,192 latent points stand for the network
        wide = 0.02 if way is behind else 0.0
        assert (
            np.abs(shares - table.flatten())
            <= 5 * np.sqrt(table / draws).flatten() + wide
        ).all()


def test_every_kind_of_column_is_filled_in_its_own_dtype() -> None:
    frame, schema = toy(60, seed=3)
    sizes = Codec(schema).sizes
    generator = Generator(MixtureOfProducts(sizes, 4), schema, {})
    gaps = frame.astype(object).mask(np.random.default_rng(0).random(frame.shape) < 0.4)
    gaps["id"] = frame["id"]
    filled = generator.complete(gaps, seed=0)
    assert list(filled.columns) == list(frame.columns)
    assert filled.notna().all(axis=None)
    expected = generator.sample(1).dtypes
    assert (filled[list(schema.names)].dtypes == expected).all()
    kept = gaps.notna()
    for name in schema.names:
        assert filled[name][kept[name]].tolist() == gaps[name][kept[name]].tolist()
    assert generator.complete(gaps.iloc[:0]).empty


def test_bad_frames_are_refused_before_anything_is_drawn() -> None:
    generator = asked()
    with pytest.raises(SchemaError, match='Did you mean "income"'):
        generator.complete(pd.DataFrame({"incme": [1]}))
    with pytest.raises(SchemaError, match=r"row 2 is 120.*outside"):
        generator.complete(pd.DataFrame({"age": [20, 120]}))
    with pytest.raises(SchemaError, match="two columns of one name"):
        generator.complete(pd.DataFrame([[1, 2]], columns=["age", "age"]))
    with pytest.raises(SchemaError, match="no column"):
        generator.predict_proba(FRAME, "agee")
    with pytest.raises(SchemaError, match="no mean"):
        generator.expectation(FRAME, "sex")
    with pytest.raises(ConfigError, match="q must"):
        generator.quantile(FRAME, "age", 1.5)
    with pytest.raises(ConfigError, match="draws must"):
        generator.complete(FRAME, draws=0)


def test_a_row_that_the_model_holds_to_be_impossible_is_refused() -> None:
    network = BayesNet(SIZES, [()] * 4)
    with torch.no_grad():
        network.table(1)[:] = torch.tensor([1.0, 0.0])
    generator = Generator(network, SCHEMA, {})
    assert (
        generator.complete(pd.DataFrame({"sex": ["F"]}), seed=0).attrs["answer"]
        == "by 8,192 draws"
    )
    with pytest.raises(ConfigError, match="row 2: none of"):
        generator.complete(pd.DataFrame({"sex": ["F", "M"]}), seed=0)


def test_many_rows_go_through_in_parts_and_each_has_its_own_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = asked(mixture(7))
    frame = generator.sample(500, seed=1).drop(columns="smoker")
    whole = generator.predict_proba(frame, "smoker")
    monkeypatch.setattr("understudy.answers.completing._AT_ONCE", 70)
    np.testing.assert_allclose(generator.predict_proba(frame, "smoker"), whole)
