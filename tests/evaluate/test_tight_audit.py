"""A tight audit: what one person moves a release by, over the noise that is there."""

import math
from fractions import Fraction

import pytest
from dp_accounting import GaussianDpEvent
from long_audit import (
    TIGHT,
    Bug,
    gradients_noised_by,
    noise_times,
    one_person_twice,
    planted,
    tight_audit,
)

from understudy.evaluate.audit.bounds import NoGaussianError, claimed_mu
from understudy.privacy.accounts.accounting import DiscreteGaussian, PureDp

ROUGH = {"moments", "tied", "two-aggregators", "shared-moments"}


def test_mu_of_uses_adds_up_in_squares() -> None:
    assert claimed_mu(
        {GaussianDpEvent(2.0): 3, DiscreteGaussian(4.0, 2): 1}
    ) == pytest.approx(1.0)
    with pytest.raises(NoGaussianError):
        claimed_mu({PureDp(1.0): 1})


@pytest.mark.long
@pytest.mark.parametrize("run", [*TIGHT])
def test_what_is_claimed_is_what_one_person_moves(run: str) -> None:
    # a number of runs, not of seconds: a busy machine would look less closely
    found = tight_audit(run, 1.0).tight(seed=3, seconds=math.inf, max_runs=8)
    assert not found.broken
    assert found.lower >= (0.5 if run in ROUGH else 0.9) * found.claimed
    assert math.isfinite(found.observed(1e-6))


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "bug"),
    [
        ("gram", noise_times(Fraction(19, 20))),
        ("gram", one_person_twice),
        ("verti-gan", gradients_noised_by(0.95)),
    ],
)
def test_a_twentieth_less_noise_and_one_person_twice_are_seen_at_once(
    run: str, bug: Bug
) -> None:
    with planted(bug):
        assert tight_audit(run, 1.0).tight(seed=5, seconds=math.inf).broken
    assert not tight_audit(run, 1.0).tight(seed=5, seconds=math.inf).broken
