"""An audit of two aggregators comes close to what it claims, and finds a second one
that adds too little noise.
"""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from understudy.data.images import ImageSchema
from understudy.data.schema import Boolean, Schema
from understudy.evaluate.audit.auditing import AuditResult, audit_protocol
from understudy.evaluate.audit.joint_canary import AggregatorsAudit
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.protocols.aggregators import moments, protocol
from understudy.protocols.aggregators.moments import MomentsPlan

pytestmark = pytest.mark.usefixtures("few_trials")

IMAGES = ImageSchema(height=2, width=2, label="c", classes=(0, 1))
TABLE = Schema(columns=(Boolean(name="smoker"), Boolean(name="asthma")))
KINDS: dict[str, tuple[Callable[..., Any], Any, dict[str, Any]]] = {
    "tables": (protocol.Config, TABLE, {}),
    "images": (moments.Config, IMAGES, {"features": 3, "bits": 5}),
}


def audited(
    kind: str, epsilon: float, target: str = "phones", people: int = 2
) -> AuditResult:
    make, schema, more = KINDS[kind]
    config = make(aggregator="second", epsilon=epsilon, delta=1e-3, **more)
    names = ("phones", "second")
    case = AggregatorsAudit(
        config=config,
        schemas=dict.fromkeys(names, schema),
        budgets=dict.fromkeys(names, Budget(epsilon, 1e-3)),
        target=target,
        people=people,
    ).case()
    return audit_protocol(case, trials=14, seconds=3600, seed=3)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_server_without_its_own_noise_learns_a_part_of_what_is_claimed(
    kind: str,
) -> None:
    result = audited(kind, 32.0)
    assert 31 < result.claimed <= 32
    assert 2 < result.observed <= 32
    assert result.passed


def test_a_second_aggregator_that_adds_a_sixth_of_its_noise_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = MomentsPlan.noise

    def quiet(self: MomentsPlan, rng: Rng) -> Tensor:
        return real(self, rng).div(6, rounding_mode="trunc")

    monkeypatch.setattr(MomentsPlan, "noise", quiet)
    assert not audited("images", 2.0, target="second").passed


def test_nobody_beside_the_canary_is_no_audit() -> None:
    with pytest.raises(ConfigError, match="two people"):
        audited("tables", 1.0, people=1)
