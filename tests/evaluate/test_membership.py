import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.attacks import rates as chance
from understudy.evaluate.attacks.neighbours import OUTLIER_SHARE, SCORES, _score_people
from understudy.evaluate.attacks.neighbours import neighbourhood as neighbourhood_of
from understudy.evaluate.utility.distance import Attacked, Space
from understudy.ground.errors import ConfigError


def neighbourhood(train, holdout, synthetic, *more, space=None, **settings):
    return neighbourhood_of(
        Attacked.from_codes(train, holdout, synthetic, space=space), *more, **settings
    )


pytestmark = pytest.mark.usefixtures("few_draws")


def people(rows, seed, columns=12, levels=8):
    """Rows with some dependence between their columns and with rare levels."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, (rows, 1))
    return ((rng.random((rows, columns)) ** 2 * levels).astype(int) + kind) % levels


TRAIN = people(1200, 0)
HOLDOUT = people(1200, 1)


def by_hand(targets, table, score):
    """Eq. 20 with loops: the share of rows within the median of the nearest
    distances.
    """
    distances = [
        [sum(x != y for x, y in zip(t, r, strict=True)) for r in table] for t in targets
    ]
    nearest = [min(row) for row in distances]
    radius = sorted(nearest)[len(nearest) // 2]
    radius = (radius + sorted(nearest)[(len(nearest) - 1) // 2]) / 2
    return {
        "share": [sum(d <= radius for d in row) / len(table) for row in distances],
        "nearest": [-d for d in nearest],
    }[score]


@given(
    st.integers(1, 5), st.integers(1, 6), st.sampled_from(SCORES), st.integers(0, 999)
)
@settings(max_examples=15, deadline=None)
def test_the_attack_equals_the_papers_definition(count, rows, score, seed):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 3, (2 * count, 3))
    table = rng.integers(0, 3, (rows, 3))
    found, _ = _score_people(targets, table, Space.hamming((3, 3, 3)), score)
    np.testing.assert_allclose(found, by_hand(targets.tolist(), table.tolist(), score))


@pytest.mark.long
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("outliers", [None, 0, 0.5, 1])
def test_a_table_that_never_saw_the_targets_scores_one_half(score, outliers):
    runs = [
        neighbourhood(
            people(1200, s),
            people(1200, s + 100),
            people(1500, s + 200),
            score=score,
            outliers=outliers,
        )
        for s in range(5)
    ]
    for name in ("acc", "auc"):
        values = [[run[name].attack.value, run[name].control.value] for run in runs]
        spread = 0.5 / np.sqrt(5 * 50)  # at least 50 targets a run
        assert np.abs(np.mean(values, axis=0) - 0.5).max() < 3 * spread
    measured = [
        m.attack.value for run in runs for m in run.measures if m.name == "tpr_at_1pct"
    ]
    assert np.mean(measured or [0.0]) < 0.05
    assert min(m.p for run in runs for m in run.measures) > 0.001


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("outliers", [None, 0, 0.5, 1])
def test_a_copy_of_the_training_rows_scores_almost_one(score, outliers, monkeypatch):
    monkeypatch.setattr(chance, "DRAWS", 499)
    attack = neighbourhood(TRAIN, HOLDOUT, TRAIN, score=score, outliers=outliers)
    assert attack["acc"].attack.value > 0.98
    assert attack["auc"].attack.value > 0.99
    assert all(m.attack.value > 0.9 for m in attack.measures)
    # 1 % of some 60 outliers is nobody
    assert len(attack.measures) == (2 if outliers == 1 else 3)
    assert attack["acc"].control.low < 0.5 < attack["acc"].control.high
    assert attack["acc"].risk.low > 0.7
    assert attack.leaks


def test_outliers_are_the_rows_with_the_largest_mean_distance():
    train = np.zeros((40, 4), int)
    holdout = np.zeros((40, 4), int)
    train[[3, 9]], holdout[[7, 20]] = [[1] * 4, [2] * 4], [[3] * 4, [4] * 4]
    assert round(OUTLIER_SHARE * 80) == 4
    alone, none = (
        neighbourhood(train, holdout, train[[3, 9]], outliers=share) for share in (1, 0)
    )
    assert alone.note.startswith("2 members and 2 outsiders")
    assert alone["acc"].attack.value == 1
    assert none.note.startswith("20 members and 20 outsiders")
    assert none["acc"].attack.value == 0.5


def test_targets_are_drawn_by_the_seed_and_stated():
    runs = [
        neighbourhood(TRAIN, HOLDOUT, people(500, 3), targets=100, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0].note.startswith(
        "100 members and 100 outsiders against 500 synthetic rows"
    )
    assert "control: 1,100 real rows" in runs[0].note


def test_half_of_the_held_out_rows_stay_for_the_control(monkeypatch):
    monkeypatch.setattr(chance, "DRAWS", 499)
    assert "600 members" in neighbourhood(TRAIN, HOLDOUT, TRAIN, targets=5000).note


def test_gower_sees_a_near_copy_that_hamming_misses():
    rng = np.random.default_rng(5)
    train, holdout = rng.integers(0, 60, (2, 400, 4))
    near = np.clip(train + rng.choice([-1, 1], train.shape), 0, 59)
    space = Space((60,) * 4, (True,) * 4, (False,) * 4)
    blind, seeing = (
        neighbourhood(train, holdout, near, space=s, score="nearest")
        for s in (None, space)
    )
    assert seeing["acc"].attack.low > 0.9
    assert blind["acc"].attack.value < 0.7


def test_names_say_the_score_and_the_outliers():
    tiny = np.zeros((0, 2), int)
    assert neighbourhood(tiny, tiny, tiny).name == "mia"
    assert neighbourhood(tiny, tiny, tiny, outliers=0.5).name == "mia_50pct_outliers"
    assert (
        neighbourhood(tiny, tiny, tiny, outliers=0, score="nearest").name
        == "mia_nearest_0pct_outliers"
    )


@pytest.mark.parametrize("score", SCORES)
def test_constant_columns_and_single_rows_give_one_half(score):
    same = np.zeros((40, 3), int)
    one = np.zeros((1, 1), int)
    for tables in ((same, same, same), (one, np.zeros((2, 1), int), one)):
        attack = neighbourhood(*tables, score=score)
        assert attack["acc"].attack.value == attack["auc"].attack.value == 0.5
        assert all(measure.p == 1 for measure in attack.measures)


def test_what_hinders_the_attack_is_said():
    rows = np.zeros((4, 2), int)
    none = np.zeros((0, 2), int)
    assert "the train table has 0 rows" in neighbourhood(none, rows, rows).reason
    assert "the synthetic table has 0 rows" in neighbourhood(rows, rows, none).reason
    assert (
        "the holdout table has 1 rows and 2 are needed"
        in neighbourhood(rows, rows[:1], rows).reason
    )
    with pytest.raises(ConfigError, match="outliers"):
        neighbourhood(rows, rows, rows, outliers=50)
    with pytest.raises(ConfigError, match="score must be one of"):
        neighbourhood(rows, rows, rows, score="shares")
