"""What tests of several audits share."""

import pytest


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as an alarm on a page of 25 measures takes."""
    from understudy.evaluate.attacks import rates

    monkeypatch.setattr(rates, "DRAWS", 999)
