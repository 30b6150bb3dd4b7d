"""What is the matter of few tests here, and the others have lightly."""

import pytest

from understudy.models.tables import law_fit, smooth_laws
from understudy.models.tables import target as target_effects

OF_THE_ALIGNMENT = {"test_alignment_protocol.py"}


@pytest.fixture(scope="module", autouse=True)
def masks(request: pytest.FixtureRequest) -> None:
    """Ids of people are hidden by less than a curve, but where they are the matter."""
    if request.path.name not in OF_THE_ALIGNMENT:
        request.getfixturevalue("light_masks")


@pytest.fixture(autouse=True)
def few_rows_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects on a target are fitted to few drawn rows, smooth laws in few steps; how
    well is tested with the fits.
    """
    few = {
        target_effects.with_effects: {"rows": 1_000},
        smooth_laws.smooth_laws: {"looks": 1},
        law_fit.Systems.least: {"steps": 4},
    }
    for function, defaults in few.items():
        for name, value in defaults.items():
            monkeypatch.setitem(function.__kwdefaults__, name, value)
