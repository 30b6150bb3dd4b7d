"""The audit finds people by their own reports, no further than the ledger says, and
sees a mechanism that leaks.
"""

from dataclasses import dataclass, replace

import pytest

from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.evaluate.audit.auditing import AuditResult, audit_protocol
from understudy.evaluate.audit.cohort_canary import codes_case, cohort_case, report_case
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.local.naming import NearestCodes
from understudy.privacy.local.selection import Ps
from understudy.protocols.class_means import protocol as class_means
from understudy.protocols.cross_device.reporting import Reporting
from understudy.protocols.one_report import party as one_report_party
from understudy.protocols.one_report import protocol as one_report
from understudy.protocols.papers.sign_ds import protocol as sign_ds

SCHEMA = toy(rows=2, seed=3)[1]
SETTINGS = {
    "target": "smoker",
    "epochs": 1,
    "learning_rate": 0.1,
    "rounds": 1,
    "reporter": "ps",
}


def audited(epsilon: float, trials: int, **settings: object) -> AuditResult:
    config = sign_ds.Config(**(SETTINGS | {"epsilon": epsilon} | settings))  # type: ignore[arg-type]
    case = cohort_case(
        sign_ds.PROTOCOL, config, SCHEMA, Budget(epsilon, 0.0), target="phones"
    )
    return audit_protocol(case, trials=trials, seconds=3600)


@pytest.mark.long
def test_the_canarys_reports_give_it_away_but_not_beyond_the_claim() -> None:
    result = audited(8.0, 26)
    assert result.claimed == 8.0
    assert 0.5 < result.observed <= 8.0
    assert result.passed


@dataclass(frozen=True, kw_only=True)
class Louder(Ps):
    """A planted bug: it chooses as for ε = 20 and charges for ε = 0.5."""

    @property
    def event(self) -> DpEvent:
        return PureDp(0.5)


@pytest.mark.long
def test_a_mechanism_that_chooses_at_another_price_than_it_charges_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def louder(self: Reporting, dims: int, clip: float = 1.0) -> Ps:
        return Louder(dims=dims, top=4, epsilon=20.0)

    monkeypatch.setattr(Reporting, "mechanism", louder)
    result = audited(0.5, 25)
    assert result.claimed == 0.5
    assert result.observed > 0.5
    assert not result.passed


def test_bare_updates_have_no_claim_to_refute() -> None:
    config = sign_ds.Config(**(SETTINGS | {"reporter": "none"}))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nothing to refute"):
        cohort_case(sign_ds.PROTOCOL, config, SCHEMA, Budget(1.0, 0.0), target="phones")


def one_reported(epsilon: float, trials: int) -> AuditResult:
    config = one_report.Config(epsilon_total=epsilon)
    case = report_case(config, SCHEMA, Budget(epsilon, 0.0), target="phones")
    return audit_protocol(case, trials=trials, seconds=3600)


def test_a_server_that_asks_about_nothing_but_the_canary_learns_no_more_than_the_claim():
    result = one_reported(4.0, 24)
    assert result.claimed == 4.0
    assert 0.7 < result.observed <= 4.0
    assert result.passed


def test_reports_at_another_price_than_they_are_charged_for_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = one_report_party.randomized
    monkeypatch.setattr(
        one_report_party,
        "randomized",
        lambda rows, which, sets, epsilon, rng: real(rows, which, sets, 8.0, rng),
    )
    result = one_reported(0.5, 25)
    assert result.claimed == 0.5
    assert not result.passed


def coded(epsilon: float, trials: int) -> AuditResult:
    schema = ImageSchema(height=2, width=2, label="c", classes=(0, 1))
    config = class_means.Config(epsilon_total=epsilon, features=3)
    case = codes_case(config, schema, Budget(epsilon, 0.0), target="phones")
    return audit_protocol(case, trials=trials, seconds=3600)


def test_a_server_that_looks_for_the_canarys_codewords_learns_no_more_than_the_claim():
    result = coded(4.0, 24)
    assert result.claimed == 4.0
    assert 0.7 < result.observed <= 4.0
    assert result.passed


def test_codewords_that_are_named_at_another_price_than_they_are_charged_for_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = NearestCodes.kept_reports.func  # type: ignore[attr-defined]
    best = NearestCodes.best.__wrapped__
    # What is kept for others is not made by a planted bug.
    monkeypatch.setattr(NearestCodes, "best", classmethod(best))
    monkeypatch.setattr(
        NearestCodes,
        "kept_reports",
        property(lambda self: real(replace(self, epsilon=8.0))),
    )
    result = coded(0.5, 25)
    assert result.claimed == 0.5
    assert not result.passed
