import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats.contingency import association

from understudy.data.encoding.codec import Codec
from understudy.data.partition import (
    by_name,
    by_person,
    correlated_columns,
    cramers_v,
    iid_rows,
    label_skew_rows,
    overlap_people,
    random_columns,
)
from understudy.data.samples import toy
from understudy.data.schema import Categorical, Schema
from understudy.ground.errors import ConfigError

shares = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 100), min_size=1)


@given(shares=shares, n=st.integers(6, 60), seed=st.integers(0, 99))
def test_columns_and_rows_are_dealt_out_completely_and_once(
    shares: dict[str, float], n: int, seed: int
) -> None:
    names = [f"c{i}" for i in range(n)]
    columns = random_columns(names, shares, seed)
    assert sorted(sum(columns.values(), ())) == sorted(names)
    rows = iid_rows(n, shares, seed)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(n))
    skewed = label_skew_rows(np.arange(n) % 3, shares, 0.5, seed)
    assert sorted(np.concatenate(list(skewed.values()))) == list(range(n))
    for split in (columns, rows):
        assert list(split) == list(shares)
        assert all(len(part) > 0 for part in split.values())
    assert columns == random_columns(names, shares, seed)


def test_shares_are_kept() -> None:
    split = random_columns(map(str, range(8)), {"a": 1, "b": 3}, seed=0)
    assert [len(part) for part in split.values()] == [2, 6]
    assert [len(part) for part in iid_rows(100, 4, seed=0).values()] == [25] * 4
    assert list(iid_rows(10, ("clinic", "insurer"), seed=0)) == ["clinic", "insurer"]


def test_columns_are_split_by_name() -> None:
    frame, schema = toy()
    parts = {"clinic": ["smoker", "age"], "insurer": ["income"]}
    for source in (frame, schema):
        assert by_name(source, parts) == {"clinic": ("smoker", "age"), "insurer": ("income",)}
    for wrong, message in (
        ({"a": ["smokr"]}, 'party "a": there is no column "smokr". Did you mean "smoker"'),
        ({"a": ["age"], "b": ["age"]}, '"age" is given to "a" and to "b"'),
        ({"a": []}, '"a" has no columns'),
    ):
        with pytest.raises(ConfigError, match=message):
            by_name(schema, wrong)


def test_cramers_v_agrees_with_scipy_on_every_pair() -> None:
    frame, schema = toy(rows=300)
    codes = Codec(schema).codes(frame)
    v = cramers_v(frame, schema)
    assert v == pytest.approx(v.T)
    for i in range(codes.shape[1]):
        assert v[i, i] == pytest.approx(1, abs=1e-6)
        for j in range(i):
            table = pd.crosstab(codes[:, i], codes[:, j]).to_numpy()
            expected = association(table, method="cramer", correction=False)
            assert v[i, j] == pytest.approx(expected, abs=1e-6)


def test_a_column_with_one_level_goes_with_nothing() -> None:
    schema = Schema(columns=tuple(Categorical(name=n, categories=("a", "b")) for n in "xy"))
    frame = pd.DataFrame({"x": ["a", "a", "a"], "y": ["a", "b", "a"]})
    assert cramers_v(frame, schema).tolist() == [[1, 0], [0, 1]]


def test_columns_that_go_together_stay_together() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 3, (3, 400))
    names = ("a1", "b1", "c1", "a2", "b2", "a3")
    of = {"a": 0, "b": 1, "c": 2}
    values = np.array(["x", "y", "z"])
    frame = pd.DataFrame({n: values[np.where(rng.random(400) < 0.1, 0, hidden[of[n[0]]])] for n in names})
    schema = Schema(columns=tuple(Categorical(name=n, categories=("x", "y", "z")) for n in names))
    assert correlated_columns(frame, schema, 3) == {
        "party1": ("a1", "a2", "a3"),
        "party2": ("b1", "b2"),
        "party3": ("c1",),
    }
    assert correlated_columns(frame, schema, ("all",)) == {"all": names}
    assert sorted(sum(correlated_columns(frame, schema, 6).values(), ())) == sorted(names)


def test_a_small_alpha_skews_labels_and_a_large_one_does_not() -> None:
    labels = np.repeat(["a", "b", "c", "d"], 1000)

    def largest_share(alpha: float) -> float:
        rows = label_skew_rows(labels, 4, alpha, seed=0)
        counts = np.array([[(labels[part] == label).sum() for label in "abcd"] for part in rows.values()])
        return float((counts.max(axis=0) / 1000).mean())

    assert largest_share(1e4) == pytest.approx(0.25, abs=0.02)
    assert largest_share(0.05) > 0.8
    rows = label_skew_rows(labels, {"a": 1, "b": 9}, 1e4, seed=0)
    assert len(rows["b"]) / 4000 == pytest.approx(0.9, abs=0.02)


def test_each_person_can_be_a_party() -> None:
    split = by_person(["b", "a", "b"])
    assert list(split) == ["b", "a"]
    assert split["b"].tolist() == [0, 2]
    assert split["a"].tolist() == [1]
    with pytest.raises(ConfigError, match="row 2 is missing"):
        by_person(["a", None])


def test_people_overlap_as_their_shares_say() -> None:
    frame = pd.DataFrame({"id": np.repeat(np.arange(2000), 2)})  # two rows a person
    held = overlap_people(frame, "id", {"clinic": 0.8, "insurer": 0.5, "all": 1.0, "none": 0.0}, seed=0)
    people = {party: set(frame["id"].iloc[rows]) for party, rows in held.items()}
    assert [len(people[party]) for party in held] == [1600, 1000, 2000, 0]
    assert all(len(rows) == 2 * len(people[party]) == len(set(rows)) for party, rows in held.items())
    assert len(people["clinic"] & people["insurer"]) / 2000 == pytest.approx(0.4, abs=0.04)
    assert not np.array_equal(held["all"], np.sort(held["all"]))
    again = overlap_people(frame, "id", {"clinic": 0.8}, seed=0)
    assert np.array_equal(again["clinic"], held["clinic"])


@pytest.mark.parametrize(
    "split",
    [
        lambda: random_columns(["a"], 2, 0),
        lambda: iid_rows(1, 2, 0),
        lambda: iid_rows(0, 1, 0),
        lambda: iid_rows(9, 0, 0),
        lambda: iid_rows(9, {}, 0),
        lambda: iid_rows(9, ("a", "a"), 0),
        lambda: iid_rows(9, "ab", 0),
        lambda: iid_rows(9, {"a": 0}, 0),
        lambda: label_skew_rows([1, 2], 2, 0, 0),
        lambda: correlated_columns(*toy(), 99),
        lambda: overlap_people(toy()[0], "id", {"a": 1.1}, 0),
    ],
)
def test_splits_that_cannot_be_made_are_refused(split: object) -> None:
    with pytest.raises(ConfigError):
        split()  # type: ignore[operator]
