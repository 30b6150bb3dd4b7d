"""An audit of moments comes close to what it claims, and finds a holder that adds too
little noise.
"""

from collections.abc import Callable
from typing import Any

import pytest

from understudy.data.images import ImageSchema
from understudy.evaluate.audit.auditing import AuditResult, audit_protocol
from understudy.evaluate.audit.joint_canary import JointAudit
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.moments import protocol as moments
from understudy.protocols.moments.protocol import Moments

pytestmark = pytest.mark.usefixtures("few_trials")

SCHEMA = ImageSchema(height=2, width=3, label="c", classes=(0, 1))


def audited(epsilon: float, **settings: Any) -> AuditResult:
    case = JointAudit(
        study=Moments,
        config=moments.Config(features=6, **settings),
        schemas={"a": SCHEMA},
        budgets={"a": Budget(epsilon, 1e-3)},
        target="a",
        people=4,
    ).case()
    return audit_protocol(case, trials=14, seconds=3600, seed=3)


@pytest.mark.long
def test_the_releases_together_tell_a_part_of_what_they_are_claimed_to() -> None:
    result = audited(32.0, bits=1, norms=0.1)
    assert result.passed
    assert result.observed > 2


def test_a_holder_that_adds_a_tenth_of_its_noise_is_found_out(
    less_noise: Callable[[int], None],
) -> None:
    less_noise(10)
    assert not audited(2.5).passed


def test_what_claims_nothing_is_not_audited() -> None:
    with pytest.raises(ConfigError, match="nothing to refute"):
        audited(8.0, private=False)
