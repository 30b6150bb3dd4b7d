"""What tests of several audits share."""

import pytest


@pytest.fixture
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few as a bound can be made of: 14 trials without a mistake prove an ε of 4 at δ = 0.001. How much of it is
    searched for coarsely, which can only find less.
    """
    from understudy.evaluate.audit import auditing, bounds

    monkeypatch.setattr(auditing, "LEAST_TRIALS", 10)
    monkeypatch.setattr(bounds, "_NEAR", 0.25)


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as an alarm on a page of 25 measures takes."""
    from understudy.evaluate.attacks import chance

    monkeypatch.setattr(chance, "DRAWS", 999)
