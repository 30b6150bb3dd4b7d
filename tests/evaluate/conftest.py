"""What tests of several audits share."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from torch import Tensor

from understudy.privacy.noise import Rng


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as an alarm on a page of 25 measures takes."""
    from understudy.evaluate.attacks import rates

    monkeypatch.setattr(rates, "DRAWS", 999)


@pytest.fixture
def less_noise(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Every holder adds so many times less noise than it pays for."""
    from understudy.privacy.secure.counts import noise_on
    from understudy.protocols.joint import pricing

    def plant(times: int) -> None:
        def quiet(cells: Tensor, scale: Fraction, rng: Rng) -> Tensor:
            return noise_on(cells, scale / times, rng)

        monkeypatch.setattr(pricing, "noise_on", quiet)

    return plant
