import numpy as np
import pytest

from understudy.evaluate.attacks.attack import (
    MIN_CONTROL,
    Attack,
    Measure,
    judge,
    ranking,
)
from understudy.evaluate.attacks.rates import LEVEL, Rate, clopper_pearson, wilson
from understudy.evaluate.figure import FigureKey
from understudy.ground.errors import ConfigError

HALF = Rate.from_exact(0.5)


@pytest.mark.parametrize("hits", [(200, 50), (480, 100), (30, 20)])
def test_risk_is_close_to_the_papers_residual_success(hits):
    # Giomi et al.: Wilson centres r = (k + z²/2)/(n + z²), risk (r_a − r_c)/(1 − r_c),
    # errors to first order.
    z2 = 1.959963984540054**2
    n = 500
    attack, control = ((k + z2 / 2) / (n + z2) for k in hits)
    errors = [np.sqrt(z2 * (k * (n - k) / n + z2 / 4)) / (n + z2) for k in hits]
    error = np.hypot(
        errors[0] / (1 - control), errors[1] * (attack - 1) / (1 - control) ** 2
    )
    value = (attack - control) / (1 - control)
    risk = Measure("success", *(wilson(k, n) for k in hits), HALF, 1).risk
    assert (risk.value, risk.low, risk.high) == pytest.approx(
        (value, max(0, value - error), value + error), abs=0.01
    )


def test_the_interval_of_the_risk_covers():
    rng = np.random.default_rng(0)
    hits = rng.binomial(200, [[0.6], [0.3]], (2, 400))
    risks = [
        Measure("success", wilson(a, 200), wilson(c, 200), HALF, 1).risk
        for a, c in hits.T
    ]
    truth = (0.6 - 0.3) / (1 - 0.3)
    assert np.mean([risk.low <= truth <= risk.high for risk in risks]) >= 0.93


def test_no_risk_arises_where_neither_attack_nor_control_found_anything():
    assert Measure("tpr", Rate(0, 0, 0.2), Rate(0, 0, 0.1), HALF, 1).risk == Rate(
        0, 0, 0.2
    )


def test_risk_is_cut_to_0_and_1_and_unknown_where_the_control_always_succeeds():
    assert Measure("success", wilson(1, 100), wilson(60, 100), HALF, 1).risk == Rate(
        0, 0, 0
    )
    assert Measure(
        "success", Rate.from_exact(1), Rate.from_exact(0), HALF, 0
    ).risk == Rate(1, 1, 1)
    sure = Measure("success", Rate.from_exact(1), Rate.from_exact(1), HALF, 1)
    assert sure.risk is None
    assert "control always succeeds" in str(sure)


def attack(name, *values, control=None):
    rates = clopper_pearson(9, 10), clopper_pearson(5, 10), HALF
    measures = tuple(Measure(f"m{i}", *rates, p) for i, p in enumerate(values))
    return Attack(key=FigureKey(name), measures=measures, control=control)


def test_attacks_are_judged_together_by_all_their_measures():
    one = attack("a", 0.01, 0.3)
    other = attack("b", 0.02)
    assert one.leaks
    assert other.leaks  # each alone
    assert not any(a.leaks for a in judge([one, other]))
    together = judge([attack("a", 0.001, 0.3), attack("b", 0.01)])
    assert [m.adjusted for a in together for m in a.measures] == pytest.approx(
        [0.003, 0.3, 0.02]
    )
    assert [a.leaks for a in together] == [True, True]
    assert judge(together) == together
    # one more attack, judged anew
    assert not judge([*together, attack("c", 0.5)])[1].leaks
    assert judge([]) == ()


def test_an_attack_with_too_small_a_control_is_refused_in_words_and_costs_the_others_nothing():
    small, large = judge(
        [
            attack("a", 0.001, control=MIN_CONTROL - 1),
            attack("b", LEVEL, control=MIN_CONTROL),
        ]
    )
    assert small == Attack.absent(
        FigureKey("a"),
        f"its control has {MIN_CONTROL - 1} people, and with fewer than {MIN_CONTROL} a leak "
        "cannot be told from luck.",
    )
    assert not small.leaks
    assert large["m0"].adjusted == LEVEL
    assert large.leaks


def test_no_result_is_shown_without_its_control_and_baseline():
    attack = Attack(
        key=FigureKey("mia"),
        measures=(
            Measure("acc", clopper_pearson(9, 10), clopper_pearson(5, 10), HALF, 0.03),
        ),
    )
    text = str(attack)
    assert text.startswith("mia: acc 0.900 [")
    for word in ("control 0.500 [", "baseline 0.500", "risk ", "by luck 0.030"):
        assert word in text


def test_an_attack_has_measures_or_a_reason_and_never_both():
    absent = Attack.absent(
        FigureKey("mia"), "the train table has 0 rows and 1 are needed."
    )
    assert str(absent) == (
        "mia: cannot be computed, because the train table has 0 rows and 1 are needed."
    )
    assert not absent.leaks
    for wrong in (
        {},
        {"measures": (Measure("acc", HALF, HALF, HALF, 1),), "reason": "none"},
    ):
        with pytest.raises(ConfigError, match="either measures or the reason"):
            Attack(key=FigureKey("mia"), **wrong)
    with pytest.raises(ConfigError, match="because the train table"):
        absent["acc"]


def test_measures_are_found_by_name_with_a_hint():
    rng = np.random.default_rng(0)
    scores = rng.random((4, 100))
    attack = Attack(
        key=FigureKey("mia"),
        measures=ranking(scores[0], scores[1], (scores[2], scores[3])),
    )
    assert [m.name for m in attack.measures] == ["acc", "auc", "tpr_at_1pct"]
    assert attack["auc"].baseline == HALF
    with pytest.raises(ConfigError, match='Did you mean "auc"'):
        attack["aux"]


def test_one_per_cent_of_fewer_than_100_outsiders_is_nobody_and_not_measured():
    for people, measures in ((99, 2), (100, 3)):
        scores = np.random.default_rng(1).random((4, people))
        assert len(ranking(scores[0], scores[1], (scores[2], scores[3]))) == measures


def test_members_who_score_high_against_any_table_do_not_beat_their_control():
    scores = np.arange(200.0)
    # apart, but against the control's table just as well
    members = scores[100:]
    outsiders = scores[:100]
    told = ranking(members, outsiders, (members, outsiders))
    assert all(measure.p == 1 for measure in told)
    assert all(m.p < 0.001 for m in ranking(members, outsiders, (outsiders, outsiders)))
