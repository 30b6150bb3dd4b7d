"""The teachers' vote: against a loop over teachers, against the normal distribution,
and by brute force.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent
from scipy.stats import norm
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.gradients.pate import GradientVote, stochastic_sign
from understudy.privacy.noise.rng import FastRng, SecureRng


class Fixed(FastRng):
    """Randomness that a test lays down: the uniform numbers are these, cut to shape."""

    def __init__(self, uniforms: Tensor | float) -> None:
        super().__init__(0)
        self.uniforms = torch.as_tensor(uniforms, dtype=torch.float64)

    def uniform(self, *shape: int, device: torch.device | str = "cpu") -> Tensor:
        return self.uniforms.expand(shape)


def vote(
    top: int = 2, noise: float = 0.0, teachers: int = 5, threshold: float = 0.5
) -> GradientVote:
    return GradientVote(
        teachers=teachers,
        top=top,
        clip=0.1,
        threshold=threshold,
        noise_multiplier=noise,
    )


def votes_of_one_teacher(
    gradient: np.ndarray, top: int, clip: float, uniform: float
) -> np.ndarray:
    """Algorithm 4, step 1, as it stands there: one teacher, one row."""
    kept = np.argsort(-np.abs(gradient), kind="stable")[:top]
    clipped = np.clip(gradient, -clip, clip)
    largest = np.abs(clipped[kept]).max()
    out = np.zeros_like(gradient)
    for d in kept:
        out[d] = 1.0 if uniform < (1 + clipped[d] / largest) / 2 else -1.0
    return out


@pytest.mark.parametrize("uniform", [0.0, 0.2, 0.5, 0.7, 0.999])
@pytest.mark.parametrize("top", [1, 3, 6])
def test_the_tally_is_the_sum_over_teachers_of_algorithm_4(
    uniform: float, top: int
) -> None:
    gradients = 0.1 * FastRng(3).normal(7, 4, 6).double()
    tally = vote(top).tally(gradients, Fixed(uniform))
    expected = [
        sum(
            votes_of_one_teacher(gradients[j, i].numpy(), top, 0.1, uniform)
            for j in range(7)
        )
        for i in range(4)
    ]
    assert np.array_equal(tally.numpy(), np.stack(expected))


def test_the_tally_of_all_teachers_is_the_sum_of_the_tallies_of_parts() -> None:
    gradients = FastRng(1).normal(9, 3, 5)
    whole = vote().tally(gradients, Fixed(0.4))
    parts = vote().tally(gradients[:4], Fixed(0.4)) + vote().tally(
        gradients[4:], Fixed(0.4)
    )
    assert torch.equal(whole, parts)


def test_a_stochastic_sign_has_the_scaled_gradient_as_its_mean() -> None:
    kept = torch.tensor([0.03, -0.01, 0.05, -0.5, 0.0])  # clamped to ±0.1
    steps = 1000
    grid = ((torch.arange(steps) + 0.5) / steps)[:, None]
    signs = stochastic_sign(kept.expand(steps, 5), Fixed(grid), clip=0.1)
    assert signs.abs().eq(1).all()
    assert torch.allclose(signs.mean(0), kept.clamp(-0.1, 0.1) / 0.1, atol=1.01 / steps)


def test_a_stochastic_sign_is_unbiased_under_real_randomness() -> None:
    kept = torch.tensor([0.3, -0.8, 1.0, 0.0])
    draws = 40_000
    mean = stochastic_sign(
        kept.expand(draws, 4), SecureRng.from_seed(5), clip=1.0
    ).mean(0)
    assert (mean - kept).abs().max() < 5 / math.sqrt(draws)


@pytest.mark.parametrize("bad", [0.0, math.nan])
def test_a_teacher_without_a_slope_abstains_and_spoils_nobody_elses_vote(
    bad: float,
) -> None:
    gradients = FastRng(2).normal(3, 2, 4)
    gradients[1] = bad
    rest = vote().tally(gradients[[0, 2]], Fixed(0.3))
    assert torch.equal(vote().tally(gradients, Fixed(0.3)), rest)


def test_an_infinite_slope_votes_like_a_clipped_one() -> None:
    gradient = torch.tensor([[[math.inf, 0.0, -math.inf, 0.01]]])
    assert vote().tally(gradient, Fixed(0.5)).tolist() == [[1, 0, -1, 0]]


def test_no_change_of_one_teacher_moves_a_row_by_more_than_twice_the_root_of_k():
    """Every pair of gradients from a grid, for the one teacher whose person comes or
    goes.
    """
    grid = torch.tensor(list(itertools.product((-1.0, -0.05, 0.0, 1.0), repeat=3)))
    others = FastRng(4).normal(3, 1, 3)
    for top in (1, 2, 3):
        mechanism = vote(top)
        largest = 0.0
        for uniform in (0.1, 0.6):
            tallies = torch.stack(
                [
                    mechanism.tally(
                        torch.cat([others, one[None, None]]), Fixed(uniform)
                    )
                    for one in grid
                ]
            )
            largest = max(
                largest,
                float(torch.cdist(tallies.flatten(1), tallies.flatten(1)).max()),
            )
        # never above it, and reached
        assert largest == pytest.approx(mechanism.sensitivity)
        assert mechanism.sensitivity == pytest.approx(2 * math.sqrt(top))


def test_a_row_moves_where_enough_teachers_agree_and_nowhere_else() -> None:
    """Eq. 4.14 with β·E = 2.5 and with β·E = 5, which all five must reach."""
    votes = torch.tensor([[-5.0, -3.0, -2.0, 0.0, 2.0, 3.0, 5.0]])
    rng = FastRng(0)
    assert vote(threshold=0.5).decide(votes, rng).tolist() == [[-1, -1, 0, 0, 0, 1, 1]]
    assert vote(threshold=1.0).decide(votes, rng).tolist() == [[-1, 0, 0, 0, 0, 0, 1]]
    assert vote().decide(votes, rng).dtype == torch.int8


def test_the_noise_that_is_added_is_the_noise_that_is_charged() -> None:
    """P(1) = Φ((votes − βE)/σ) with σ = noise multiplier × 2√K, within five standard
    errors.
    """
    mechanism = vote(top=4, noise=3.0, teachers=20, threshold=0.5)
    assert mechanism.event == GaussianDpEvent(3.0)
    draws = 40_000
    sigma = 3.0 * 2 * math.sqrt(4)
    for votes in (-6.0, 0.0, 14.0):
        out = mechanism.decide(
            torch.full((draws, 1), votes), SecureRng.from_seed(1)
        ).double()
        for side, chance in (
            (1, norm.sf((10 - votes) / sigma)),
            (-1, norm.cdf((-10 - votes) / sigma)),
        ):
            error = math.sqrt(chance * (1 - chance) / draws)
            assert abs(float((out == side).double().mean()) - chance) < 5 * error


def test_no_distinguisher_of_neighbouring_votes_beats_the_charged_epsilon() -> None:
    """The exact probabilities of all outcomes for two tallies that are 2√K apart."""
    mechanism = vote(top=2, noise=1.5, teachers=4, threshold=0.25)
    sigma = mechanism.noise_multiplier * mechanism.sensitivity
    delta = 1e-3
    limit = epsilon({mechanism.event: 1}, delta)

    def outcomes(votes: list[float]) -> np.ndarray:
        sides = [
            (
                norm.cdf((-1 - v) / sigma),
                norm.cdf((1 - v) / sigma) - norm.cdf((-1 - v) / sigma),
                norm.sf((1 - v) / sigma),
            )
            for v in votes
        ]
        return np.outer(*sides).ravel()

    p = outcomes([1.0, 1.0])
    q = outcomes([-1.0, -1.0])
    assert np.maximum(p - math.exp(limit) * q, 0).sum() <= delta
    assert np.maximum(p - q, 0).sum() > delta  # the pair can be told apart at all


def test_a_vote_without_noise_is_priced_as_no_privacy() -> None:
    assert vote().event == NonPrivateDpEvent()


@pytest.mark.parametrize(
    "wrong",
    [
        {"teachers": 0},
        {"top": 0},
        {"clip": 0.0},
        {"threshold": 1.5},
        {"noise_multiplier": -1.0},
    ],
)
def test_settings_without_sense_are_refused(wrong: dict[str, float]) -> None:
    good = {
        "teachers": 5,
        "top": 2,
        "clip": 0.1,
        "threshold": 0.5,
        "noise_multiplier": 1.0,
    }
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        GradientVote(**(good | wrong))  # type: ignore[arg-type]


def test_more_votes_than_columns_are_refused() -> None:
    with pytest.raises(ConfigError, match="top = 2"):
        vote(2).tally(torch.ones(3, 1, 1), FastRng(0))
