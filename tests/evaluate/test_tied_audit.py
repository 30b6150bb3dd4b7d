"""An audit of tied comes close to what it claims, and finds a holder that adds too
little noise.
"""

from collections.abc import Callable
from typing import Any

import pytest

from understudy.data.images import ImageSchema
from understudy.data.schema import Boolean, Schema
from understudy.evaluate.audit.auditing import AuditResult, audit_protocol
from understudy.evaluate.audit.joint_canary import JointAudit
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.tied import protocol as tied
from understudy.protocols.tied.protocol import TiedStudy

pytestmark = pytest.mark.usefixtures("few_trials")

SCHEMAS = {
    "a": ImageSchema(height=2, width=3),
    "b": Schema(columns=(Boolean(name="c"),)),
}


def audited(epsilon: float, **settings: Any) -> AuditResult:
    case = JointAudit(
        study=TiedStudy,
        config=tied.Config(features=6, directions=2, components=2, steps=1, **settings),
        schemas=SCHEMAS,
        budgets=dict.fromkeys(SCHEMAS, Budget(epsilon, 1e-3)),
        target="a",
        people=4,
    ).case()
    return audit_protocol(case, trials=14, seconds=3600, seed=3)


@pytest.mark.long
def test_the_releases_together_tell_a_part_of_what_they_are_claimed_to() -> None:
    result = audited(30.0, target="c", norms=0.1)
    assert result.passed
    # so few trials cannot show more than 1.3, whatever the claim
    assert result.observed > 0.8


@pytest.mark.long
def test_holders_that_add_a_fortieth_of_their_noise_are_found_out(
    less_noise: Callable[[int], None],
) -> None:
    less_noise(40)
    assert not audited(0.5).passed


def test_what_claims_nothing_is_not_audited() -> None:
    with pytest.raises(ConfigError, match="nothing to refute"):
        audited(1.0, private=False)
