import numpy as np
import pandas as pd
import pytest

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Categorical, Integer, Schema
from understudy.evaluate.attacks import shadow as attack
from understudy.evaluate.attacks.shadow import FEATURES, describe, shadow
from understudy.evaluate.utility.association import pearson
from understudy.ground.errors import ConfigError

SCHEMA = Schema(
    columns=(
        Categorical(name="plan", categories=("free", "paid", "old", "new")),
        Integer(name="age", low=0, high=9),
        Integer(name="visits", low=0, high=9),
    )
)
CODEC = Codec(SCHEMA)


def people(rows, seed):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 7, rows)
    return pd.DataFrame(
        {
            "plan": rng.choice(["free", "paid", "old"], rows),
            "age": age,
            "visits": np.clip(age + rng.integers(-1, 2, rows), 0, 7),
        }
    )


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """As many as leave every table to some of them unseen."""
    monkeypatch.setattr(attack, "_TREES", 12)


REFERENCE = people(400, 0)
UNUSUAL = pd.DataFrame({"plan": ["new", "new", "new"], "age": [9, 8, 9], "visits": [0, 9, 9]})


def copying(rows, seed):
    """Publishes its training rows."""
    return rows.sample(len(rows), random_state=seed, ignore_index=True)


def constant(rows, seed):
    """Publishes a table that does not look at its training rows."""
    return people(60, seed)


def marginals(rows, seed):
    """Draws every column on its own from the training rows' shares, with noise enough to hide one row."""
    rng = np.random.default_rng(seed)
    table = {}
    for name, levels in (("plan", ["free", "paid", "old", "new"]), ("age", range(10)), ("visits", range(10))):
        shares = rows[name].value_counts().reindex(levels, fill_value=0).to_numpy() + rng.exponential(30, len(levels))
        table[name] = rng.choice(np.array(levels), 60, p=shares / shares.sum())
    return pd.DataFrame(table)


def test_a_copying_generator_is_caught_on_every_target():
    result = shadow(copying, REFERENCE, UNUSUAL, CODEC, pairs=6, trials=12)
    acc = result.attack["acc"]
    assert acc.attack.value > 0.95
    assert acc.control.low < 0.5 < acc.control.high
    assert acc.leaks
    assert acc.risk.low > 0.7
    assert result.attack["auc"].attack.low > 0.9
    for target in result.targets:
        assert target.tpr.value > 0.8
        assert target.fpr.value < 0.2
        assert target.advantage.low > 0.3


@pytest.mark.parametrize("make", [constant, marginals])
def test_a_generator_that_hides_its_rows_is_not_caught(make):
    result = shadow(make, REFERENCE, UNUSUAL[:2], CODEC, pairs=5, trials=12)
    acc = result.attack["acc"]
    assert acc.attack.low < 0.5 < acc.attack.high
    assert not result.attack.leaks
    assert all(target.advantage.low < 0 < target.advantage.high for target in result.targets)


def test_each_table_is_made_from_fresh_rows_and_no_row_is_shared_between_the_sides():
    marked, calls = REFERENCE.assign(row=range(400)), []

    def make(rows, seed):
        calls.append((rows, seed))
        return people(20, seed)

    shadow(make, marked, UNUSUAL.assign(row=[-1, -2, -3]), CODEC, rows=50, pairs=2, trials=3)
    assert len(calls) == 2 + 3 * (2 + 3 * 3)
    assert len({seed for _, seed in calls}) == len(calls)
    sides = {"attacker": set(), "holder": set()}
    order = ["attacker"] * 2 + (["attacker"] * 2 + ["holder"] * 9) * 3
    for (rows, _), side in zip(calls, order, strict=True):
        assert len(rows) == len(set(rows["row"])) == 50
        sides[side] |= set(rows["row"]) - {-1, -2, -3}
    assert not sides["attacker"] & sides["holder"]
    held = [int((rows["row"] < 0).sum()) for rows, _ in calls]
    assert held == [0, 0] + [1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0] * 3
    places = {rows["row"].tolist().index(-1) for rows, _ in calls if -1 in rows["row"].tolist()}
    assert len(places) > 1  # a target's place among the rows says nothing


def test_features_by_hand():
    table, person = np.array([[0, 1], [0, 2], [1, 2], [0, 2]]), np.array([0, 2])
    sizes = [2, 4]
    assert describe(table, person, sizes, ["histogram"]).tolist() == [0.75, 0.25, 0, 0.25, 0.75, 0]
    assert describe(table, person, sizes, ["near"]).tolist() == [0.5, 1]  # two equal rows, none more than one off
    # means, variances, then for each column its most common level, its least common, and how many occur
    assert describe(table, person, sizes, ["naive"]).tolist() == [0.25, 1.75, 0.1875, 0.1875, 0, 1, 2, 2, 1, 2]
    assert describe(table, person, sizes, ["correlation"]) == pytest.approx([pearson(table)[0][0, 1]])
    assert len(describe(table, person, sizes)) == 6 + 2 + 10 + 1


@pytest.mark.parametrize("feature", FEATURES)
def test_one_set_of_features_is_enough_against_a_copy_of_unusual_people(feature):
    odd = pd.DataFrame({"plan": ["new", "new"], "age": [9, 0], "visits": [0, 9]})
    result = shadow(copying, REFERENCE, odd, CODEC, pairs=6, trials=10, features=[feature], rows=30)
    assert result.attack["acc"].attack.low > 0.6


def test_constant_tables_give_one_half():
    def same(rows, seed):
        return pd.DataFrame({"plan": ["free"] * 5, "age": [1] * 5, "visits": [2] * 5})

    result = shadow(same, REFERENCE, UNUSUAL[:1], CODEC, pairs=2, trials=2)
    assert result.attack["acc"].attack.value == result.attack["auc"].attack.value == 0.5


def test_the_result_follows_the_seed():
    runs = [shadow(marginals, REFERENCE, UNUSUAL[:1], CODEC, pairs=3, trials=4, seed=seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert len(runs[0].targets) == 1
    assert runs[0].attack.note == "1 targets, 3 pairs of shadows on 100 rows, 4 trials a target"


def test_what_hinders_the_attack_is_said():
    assert shadow(copying, REFERENCE, UNUSUAL[:0], CODEC).attack.reason == "there is no target."
    assert "half of the reference are 5" in shadow(copying, REFERENCE[:10], UNUSUAL, CODEC, rows=6).attack.reason
    with pytest.raises(ConfigError, match="at least 2 pairs"):
        shadow(copying, REFERENCE, UNUSUAL, CODEC, pairs=1)
    with pytest.raises(ConfigError, match='Did you mean "naive"'):
        shadow(copying, REFERENCE, UNUSUAL, CODEC, features=["naïve"])
    with pytest.raises(ConfigError, match="a table without rows"):
        shadow(lambda rows, seed: rows[:0], REFERENCE, UNUSUAL, CODEC)
