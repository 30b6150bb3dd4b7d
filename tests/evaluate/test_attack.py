import json

import numpy as np
import pytest

from understudy.errors import ConfigError
from understudy.evaluate.attacks.attack import Attack, Measure, ranking
from understudy.evaluate.attacks.rates import Rate, exact, wilson

HALF = Rate.known(0.5)


@pytest.mark.parametrize("hits", [(200, 50), (480, 100), (30, 20)])
def test_risk_is_close_to_the_papers_residual_success(hits):
    # Giomi et al.: Wilson centres r = (k + z²/2)/(n + z²), risk (r_a − r_c)/(1 − r_c), errors to first order.
    z2, n = 1.959963984540054**2, 500
    attack, control = ((k + z2 / 2) / (n + z2) for k in hits)
    errors = [np.sqrt(z2 * (k * (n - k) / n + z2 / 4)) / (n + z2) for k in hits]
    error = np.hypot(errors[0] / (1 - control), errors[1] * (attack - 1) / (1 - control) ** 2)
    value = (attack - control) / (1 - control)
    risk = Measure("success", *(wilson(k, n) for k in hits), HALF).risk
    assert (risk.value, risk.low, risk.high) == pytest.approx(
        (value, max(0, value - error), value + error), abs=0.01
    )


def test_the_interval_of_the_risk_covers():
    rng = np.random.default_rng(0)
    hits = rng.binomial(200, [[0.6], [0.3]], (2, 400))
    risks = [Measure("success", wilson(a, 200), wilson(c, 200), HALF).risk for a, c in hits.T]
    truth = (0.6 - 0.3) / (1 - 0.3)
    assert np.mean([risk.low <= truth <= risk.high for risk in risks]) >= 0.93


def test_no_risk_arises_where_neither_attack_nor_control_found_anything():
    assert Measure("tpr", Rate(0, 0, 0.2), Rate(0, 0, 0.1), HALF).risk == Rate(0, 0, 0.2)


def test_risk_is_cut_to_0_and_1_and_unknown_where_the_control_always_succeeds():
    assert Measure("success", wilson(1, 100), wilson(60, 100), HALF).risk == Rate(0, 0, 0)
    assert Measure("success", Rate.known(1), Rate.known(0), HALF).risk == Rate(1, 1, 1)
    sure = Measure("success", Rate.known(1), Rate.known(1), HALF)
    assert sure.risk is None
    assert "control always succeeds" in str(sure)


def test_an_attack_leaks_where_it_beats_its_control_beyond_both_intervals():
    assert Measure("acc", exact(90, 100), exact(50, 100), HALF).leaks
    assert not Measure("acc", exact(55, 100), exact(50, 100), HALF).leaks
    assert Measure("acc", exact(90, 100), exact(50, 100), HALF).advantage.value == pytest.approx(0.8)


def test_no_result_is_shown_without_its_control_and_baseline():
    attack = Attack(name="mia", measures=(Measure("acc", exact(9, 10), exact(5, 10), HALF),))
    text = str(attack)
    assert text.startswith("mia: acc 0.900 [")
    for word in ("control 0.500 [", "baseline 0.500", "risk "):
        assert word in text
    plain = json.loads(json.dumps(attack.to_dict()))
    assert plain["measures"][0].keys() >= {"attack", "control", "baseline", "risk", "leaks"}
    assert plain["measures"][0]["attack"]["value"] == 0.9


def test_an_attack_has_measures_or_a_reason_and_never_both():
    absent = Attack.absent("mia", "the train table has 0 rows and 1 are needed.")
    assert str(absent) == "mia: cannot be computed, because the train table has 0 rows and 1 are needed."
    assert not absent.leaks
    json.dumps(absent.to_dict())
    for wrong in ({}, {"measures": (Measure("acc", HALF, HALF, HALF),), "reason": "none"}):
        with pytest.raises(ConfigError, match="either measures or the reason"):
            Attack(name="mia", **wrong)
    with pytest.raises(ConfigError, match="because the train table"):
        absent["acc"]


def test_measures_are_found_by_name_with_a_hint():
    rng = np.random.default_rng(0)
    scores = rng.random((4, 50))
    attack = Attack(name="mia", measures=ranking(scores[0], scores[1], (scores[2], scores[3])))
    assert [m.name for m in attack.measures] == ["acc", "auc", "tpr_at_1pct"]
    assert attack["auc"].baseline == HALF
    with pytest.raises(ConfigError, match='Did you mean "auc"'):
        attack["aux"]
