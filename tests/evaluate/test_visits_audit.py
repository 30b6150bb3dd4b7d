"""An audit of visits comes close to what it claims, and finds too little noise and
people who count too often.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from numpy.typing import NDArray

from understudy.data.visits import Visits, counts, reading
from understudy.evaluate.audit.audit_file import CASES, Subject, audit_run_file
from understudy.evaluate.audit.auditing import AuditResult, audit_protocol
from understudy.evaluate.audit.joint_canary import JointAudit
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.visits import protocol as visits
from understudy.protocols.visits.protocol import VisitStudy
from understudy.runs.runfile import RunFile
from visit_cases import beside_visits, clinic, split_rows

pytestmark = pytest.mark.usefixtures("few_trials")

LOOSE = Budget(32.0, 1e-3)
STRICT = Budget(2.5, 1e-3)


def audited(trials: int = 14, budget: Budget = LOOSE, **settings: Any) -> AuditResult:
    config = visits.Config(**settings)
    case = JointAudit(
        study=VisitStudy,
        config=config,
        schemas={"a": clinic(most_events=6)},
        budgets={"a": budget},
        target="a",
        people=4,
    ).case()
    return audit_protocol(case, trials=trials, seconds=3600, seed=3)


def test_the_release_tells_a_part_of_what_it_is_claimed_to() -> None:
    result = audited()
    assert result.passed
    assert result.observed > 2


def test_a_holder_that_adds_a_tenth_of_its_noise_is_found_out(
    less_noise: Callable[[int], None],
) -> None:
    less_noise(10)
    assert not audited(budget=STRICT).passed


@pytest.mark.long
def test_events_that_each_weigh_as_much_as_a_person_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And so is a holder that forgets to cut."""

    def whole(
        order: NDArray[np.int64], numbers: NDArray[np.int64], unit: int
    ) -> NDArray[np.float64]:
        return np.full(len(order), float(unit))

    def uncut(self: Visits, rng: object = None) -> NDArray[np.int64]:
        return np.arange(len(self.events))

    monkeypatch.setattr(counts, "parts", whole)
    monkeypatch.setattr(reading.Visits, "counted_events", uncut)
    assert not audited(trials=26, budget=Budget(1.0, 1e-3)).passed


def test_what_claims_nothing_is_not_audited() -> None:
    with pytest.raises(ConfigError, match="nothing to refute"):
        audited(private=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("parts", "party"), [({}, "clinic"), ({"clinic": 2, "bank": 2}, "clinic1")]
)
def test_a_run_file_of_visits_is_audited_at_a_party_with_events(
    tmp_path: Path, parts: dict[str, int], party: str
) -> None:
    """Over columns, and over a grid."""
    _, schemas = split_rows(*beside_visits(), **parts)
    parties = {}
    for name, schema in schemas.items():
        schema.save(tmp_path / f"{name}.toml")
        parties[name] = {
            "table": "none",
            "schema": f"{name}.toml",
            "epsilon": 4.0,
            "delta": 1e-3,
        }
    body = {"protocol": "visits", "out": "out", "parties": parties}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(body))
    file = RunFile.load(tmp_path / "run.toml")
    config = visits.Config()
    result = audit_run_file(
        file, visits.PROTOCOL, config, party=party, people=3, trials=10
    )
    assert result.passed
    subject = Subject(
        visits.PROTOCOL,
        config,
        schemas,
        dict.fromkeys(schemas, LOOSE),
        "registry",
        3,
        tmp_path,
    )
    with pytest.raises(ConfigError, match="nobody holds people with events"):
        CASES["joint-alone"](subject)
