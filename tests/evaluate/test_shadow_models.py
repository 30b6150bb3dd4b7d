"""Shadow models find who was copied, and nobody behind strong noise."""

from itertools import product

import numpy as np
import pytest

from understudy.evaluate.attacks.rates import LEVEL
from understudy.evaluate.attacks.shadows import (
    ATTACKERS,
    _call_chances,
    _draw_lots,
    _highest,
    shadow_models,
)
from understudy.evaluate.utility.distance import Space
from understudy.ground.errors import ConfigError

pytestmark = pytest.mark.usefixtures("few_draws")

LEVELS = 6
COLUMNS = 5
SPACE = Space.hamming([LEVELS] * COLUMNS)


def people(rows, seed):
    """Common levels are low."""
    rng = np.random.default_rng(seed)
    return (rng.random((rows, COLUMNS)) ** 3 * LEVELS).astype(int)


REFERENCE = people(400, 0)
OUTLIERS = np.random.default_rng(1).integers(LEVELS - 2, LEVELS, (6, COLUMNS))
RUNS = {"rows": 60, "shadows": 12, "tested": 12}


def copy_rows(rows, seed):
    """A generator that learned its rows by heart."""
    return np.random.default_rng(seed).permutation(rows)


def noisy_columns(epsilon):
    """Columns drawn on their own from counts with Laplace noise of ε altogether."""

    def release(rows, seed):
        rng = np.random.default_rng(seed)
        columns = []
        for column in rows.T:
            counts = np.bincount(column, minlength=LEVELS) + rng.laplace(
                scale=2 * COLUMNS / epsilon, size=LEVELS
            )
            odds = np.maximum(counts, 1e-6)
            columns.append(rng.choice(LEVELS, len(rows), p=odds / odds.sum()))
        return np.stack(columns, axis=1)

    return release


@pytest.mark.long
def test_shadow_models_find_outliers_whose_rows_are_copied():
    attack = shadow_models(copy_rows, REFERENCE, OUTLIERS, SPACE, **RUNS)
    assert attack.leaks
    assert attack["acc"].attack.value > 0.8
    assert attack["acc"].attack.value > attack["acc"].control.value + 0.1
    assert attack["highest"].p <= LEVEL


@pytest.mark.long
def test_shadow_models_find_nobody_behind_strong_noise():
    attack = shadow_models(noisy_columns(0.1), REFERENCE, OUTLIERS, SPACE, **RUNS)
    assert not attack.leaks
    assert 0.3 < attack["acc"].attack.value < 0.7


@pytest.mark.long
def test_alarms_without_a_leak_are_as_rare_as_their_level():
    """`release` gives rows of other people: nothing can leak."""

    def unrelated(rows, seed):
        return people(len(rows), seed + 1)

    p_values = np.array(
        [
            [
                measure.p
                for measure in shadow_models(
                    unrelated,
                    REFERENCE,
                    OUTLIERS[:3],
                    SPACE,
                    rows=40,
                    shadows=6,
                    tested=8,
                    seed=seed,
                ).measures
            ]
            for seed in range(6)
        ]
    )
    assert (p_values < 0.02).mean() < 0.15
    assert 0.25 < p_values.mean() < 0.85


def test_the_best_of_several_attackers_is_above_one_half_without_a_leak():
    """Why `highest` means nothing without its control."""
    rng = np.random.default_rng(0)
    called = _call_chances(rng.random((10, 12, 40)))
    lots = _draw_lots(12, 40, rng)
    assert _highest(called, lots[None])[0] > 0.6


def test_the_highest_accuracy_is_each_targets_best_attacker():
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 3, (2, 4, 3)).astype(float)  # with ties
    lots = _draw_lots(4, 3, rng)
    best = []
    for target in range(3):
        found = []
        for attacker in range(2):
            score = scores[attacker, :, target]
            # every order that the scores allow, ties by lot
            shares = [
                np.mean([lots[table, target] for table in order[:2]])
                for order in product(range(4), repeat=4)
                if len(set(order)) == 4 and (np.diff(score[list(order)]) <= 0).all()
            ]
            found.append(np.mean(shares))
        best.append(max(found))
    assert _highest(_call_chances(scores), lots[None])[0] == pytest.approx(
        np.mean(best)
    )


def test_every_run_trains_on_as_many_rows_and_half_of_them_on_each_target():
    seen = []

    def record(rows, seed):
        seen.append(rows)
        return copy_rows(rows, seed)

    unlike = np.full((2, COLUMNS), [[LEVELS], [LEVELS + 1]])
    space = Space.hamming([LEVELS + 2] * COLUMNS)
    shadow_models(record, REFERENCE, unlike, space, rows=20, shadows=4, tested=6)
    assert [len(rows) for rows in seen] == [20] * 10
    for target in unlike:
        takes_part = [(rows == target).all(axis=1).any() for rows in seen]
        assert (sum(takes_part[:4]), sum(takes_part[4:])) == (2, 3)


@pytest.mark.parametrize(
    ("targets", "settings"),
    [
        (OUTLIERS[:0], {}),
        (OUTLIERS[:, :0], {}),
        (OUTLIERS, {"shadows": 3}),
        (OUTLIERS, {"rows": 5}),
        (OUTLIERS, {"rows": 401}),
    ],
)
def test_what_cannot_be_attacked_has_a_reason_and_no_number(targets, settings):
    attack = shadow_models(copy_rows, REFERENCE, targets, SPACE, **RUNS | settings)
    assert attack.reason
    assert not attack.measures


def test_a_share_of_a_run_is_refused():
    with pytest.raises(ConfigError):
        shadow_models(copy_rows, REFERENCE, OUTLIERS, SPACE, rows=20, shadows=2.5)


def test_the_attackers_are_those_of_the_dissertation():
    assert len(ATTACKERS) == 5
