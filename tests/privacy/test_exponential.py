"""The exponential mechanism draws by its law, exactly, and its law keeps ε."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.noise.discrete import Exponential
from understudy.privacy.noise.rng import SecureRng


def law(mechanism: Exponential, scores: tuple[int, ...]) -> np.ndarray:
    weights = np.exp(
        np.array(scores) / (2 * mechanism.sensitivity * float(mechanism.scale))
    )
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize(
    ("mechanism", "scores"),
    [
        (Exponential(Fraction(1)), (0, 1, 3)),
        (Exponential(Fraction(5, 2), 3), (40, 0, 25, 40, 31)),
        (Exponential(Fraction(1, 4)), (2, 0)),
        (Exponential(Fraction(700)), (-900, 1_000)),
    ],
)
def test_what_is_chosen_follows_the_law(
    mechanism: Exponential, scores: tuple[int, ...]
) -> None:
    rng = SecureRng.from_seed(1)
    n = 20_000
    seen = np.bincount(
        mechanism.draw(torch.tensor(scores), n, rng), minlength=len(scores)
    )
    assert chisquare(seen, n * law(mechanism, scores)).pvalue > 1e-4


def test_scores_that_move_by_the_sensitivity_move_no_odds_by_more_than_exp_epsilon():
    mechanism = Exponential(Fraction(2, 3), sensitivity=2)
    worst = 0.0
    for moves in itertools.product((-2, 0, 2), repeat=3):
        before = (0, 5, 3)
        after = tuple(s + m for s, m in zip((0, 5, 3), moves, strict=True))
        worst = max(
            worst, float(np.log(law(mechanism, after) / law(mechanism, before)).max())
        )
    assert 0.6 * 1.5 < worst <= 1.5
    assert mechanism.event == PureDp(1.5)


def test_a_wide_gap_is_never_jumped_and_one_candidate_is_chosen_for_sure() -> None:
    rng = SecureRng.from_seed(2)
    assert set(
        Exponential(Fraction(1)).draw(torch.tensor([0, 10_000, 1]), 50, rng).tolist()
    ) == {1}
    assert Exponential(Fraction(1))(torch.tensor([7]), rng) == 0


class NothingDrawn:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was drawn")


@pytest.mark.parametrize(
    "scores",
    [torch.empty(0, dtype=torch.int64), torch.tensor([0.5]), torch.tensor([[1]])],
)
def test_scores_of_another_kind_are_refused_before_anything_is_drawn(
    scores: torch.Tensor,
) -> None:
    with pytest.raises(ValueError, match="whole numbers"):
        Exponential(Fraction(1))(scores, NothingDrawn())


def test_settings_that_cannot_be_drawn_by_are_refused() -> None:
    for bad in ((Fraction(0), 1), (Fraction(1), 0), (Fraction(2**50), 1)):
        with pytest.raises(ConfigError):
            Exponential(*bad)
    assert math.isfinite(float(Exponential(Fraction(2**30), 100).scale))
