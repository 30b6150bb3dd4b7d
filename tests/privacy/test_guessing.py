"""How often a guess at one person is right, at most."""

import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    ZCDpEvent,
)
from scipy.stats import norm

from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    PureDp,
    Reveals,
    distance,
    epsilon,
    planned_gaussians,
)
from understudy.privacy.accounts.budget import Budget, Guess, best_guess
from understudy.privacy.accounts.events import Spend
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement


def guessed(spend: Spend) -> float:
    return best_guess(distance=distance(spend)).share


@pytest.mark.parametrize("apart", [0.02, 0.2, 1.0, 3.0])
def test_gaussian_noise_is_guessed_as_often_as_its_two_bells_overlap(
    apart: float,
) -> None:
    found = guessed({GaussianDpEvent(1 / apart): 1})
    exact = norm.cdf(apart / 2)
    assert exact <= found <= exact + 1e-9


def test_gaussian_uses_are_guessed_as_one_with_their_merged_noise() -> None:
    found = guessed({GaussianDpEvent(3.0): 4, GaussianDpEvent(5.0): 9})
    assert found == pytest.approx(norm.cdf(math.sqrt(4 / 9 + 9 / 25) / 2), abs=1e-9)


@pytest.mark.parametrize("price", [0.1, 1.0, 4.0])
def test_a_randomized_answer_is_guessed_with_its_own_odds(price: float) -> None:
    exact = 1 / (1 + math.exp(-price))
    assert exact <= guessed({PureDp(price): 1}) <= exact + 1e-9


@pytest.mark.parametrize(("price", "uses"), [(0.3, 3), (1.0, 8)])
def test_randomized_answers_are_guessed_by_their_majority(
    price: float, uses: int
) -> None:
    right = 1 / (1 + math.exp(-price))
    law = [
        math.comb(uses, k) * right**k * (1 - right) ** (uses - k)
        for k in range(uses + 1)
    ]
    exact = 0.5 * sum(
        max(one, other) for one, other in zip(law, law[::-1], strict=True)
    )
    assert exact <= guessed({PureDp(price): uses}) <= exact + 1e-3


@pytest.mark.parametrize(("sigma", "moved"), [(0.7, 1), (2.0, 3)])
def test_whole_number_noise_is_guessed_by_the_overlap_of_its_two_laws(
    sigma: float, moved: int
) -> None:
    places = np.arange(-200, 201)
    law = np.exp(-(places**2) / (2 * sigma**2))
    law /= law.sum()
    exact = 0.5 * np.maximum(law[moved:], law[:-moved]).sum()
    assert exact - 1e-12 <= guessed({DiscreteGaussian(sigma, moved): 1}) <= exact + 1e-3


@pytest.mark.parametrize(("rate", "noise"), [(0.25, 1.0), (0.01, 0.6)])
def test_noise_on_a_sample_is_guessed_as_often_as_the_sample_has_the_person(
    rate: float, noise: float
) -> None:
    exact = 0.5 + 0.5 * rate * (2 * norm.cdf(0.5 / noise) - 1)
    found = guessed({PoissonSampledDpEvent(rate, GaussianDpEvent(noise)): 1})
    assert exact - 1e-12 <= found <= exact + 1e-3


SPENDS: list[Spend] = [
    {PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)): 50},
    {
        PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)): 5,
        DiscreteGaussian(3.0): 4,
        PureDp(0.1): 2,
    },
    {ZCDpEvent(0.02): 3},
    {Reveals(1e-3): 1, GaussianDpEvent(2.0): 1},
]


@pytest.mark.parametrize("spend", SPENDS)
def test_a_mechanism_is_guessed_at_most_as_often_as_any_one_price_of_it_allows(
    spend: Spend,
) -> None:
    for delta in (1e-6, 1e-3, 0.05, 0.2):
        assert guessed(spend) <= best_guess(epsilon(spend, delta), delta).share + 2e-3
    assert 0.5 < guessed(spend) < best_guess(epsilon(spend, 1e-6), 1e-6).share


@pytest.mark.parametrize("delta", [0.0, 0.01])
@pytest.mark.parametrize("price", [0.1, 1.0, 3.0])
def test_a_price_alone_allows_what_its_extremal_pair_of_worlds_does(
    price: float, delta: float
) -> None:
    # Kairouz et al. 2015, Thm 2.1: no two worlds that (ε, δ) allows are further apart
    q = (1 - delta) / (1 + math.exp(price))
    with_person = np.array([delta, math.exp(price) * q, q, 0])
    exact = 0.5 * np.maximum(with_person, with_person[::-1]).sum()
    assert best_guess(price, delta) == Guess(pytest.approx(exact, abs=1e-12), "bound")


def test_what_costs_nothing_is_a_coin_and_what_has_no_price_is_known() -> None:
    assert guessed({}) == 0.5
    assert guessed({NonPrivateDpEvent(): 1}) == 1
    assert best_guess(None, 1e-6).share == best_guess(math.inf, 1e-6).share == 1
    assert "100 of 100" in best_guess(math.inf).in_words()


def test_words_round_up() -> None:
    assert "54 of 100" in Guess(0.5301, "curve").in_words()
    assert "53 of 100" in Guess(0.53, "curve").in_words()


@pytest.mark.parametrize(("price", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (2.0, 1e-8)])
def test_no_gaussian_use_within_a_budget_is_guessed_more_often_than_what_is_planned(
    price: float, delta: float
) -> None:
    planned = planned_gaussians(price, delta)
    assert planned is not None
    assert price < epsilon(planned, delta) < price * 1.005
    assert planned_gaussians(30.0, delta) is None


def test_a_ledger_tells_the_guess_at_whoever_is_guessed_most_often(
    tmp_path: Path,
) -> None:
    """At the budget's δ the first person has the higher ε, and the second is guessed
    more often.
    """
    rare = PoissonSampledDpEvent(1e-3, GaussianDpEvent(0.3))
    often = GaussianDpEvent(2.0)
    assert epsilon({rare: 1}, 1e-6) > epsilon({often: 1}, 1e-6)
    with Ledger(
        tmp_path / "clinic.ledger", holder="clinic", budget=Budget(30, 1e-6)
    ) as book:
        book.charge(rare, people=["one"], run="a", description="a batch")
        book.charge(often, people=["other"], run="a", description="a sum")
        assert book.guess() == best_guess(distance=distance({often: 1}))


def test_two_parties_who_hold_the_same_people_are_guessed_more_often_than_one() -> None:
    def stated(name: str) -> PartyPrivacy:
        spend = {GaussianDpEvent(4.0): 1}
        return PartyPrivacy(
            name=name,
            budget=Budget(2, 1e-6),
            outsider=spend,
            insider=spend,
            noise="secure",
            people=9,
        )

    one, two = (
        PrivacyStatement(parties=tuple(map(stated, names))).guess().share
        for names in (["a"], ["a", "b"])
    )
    assert one == pytest.approx(norm.cdf(1 / 8), abs=1e-3)
    assert two == pytest.approx(norm.cdf(math.sqrt(2) / 8), abs=1e-3)
    body = PrivacyStatement(parties=(stated("a"),)).to_dict()
    assert body["person"]["right_guesses"]["server"] == one
    assert best_guess(distance=2 * one - 1).in_words() in str(
        PrivacyStatement(parties=(stated("a"),))
    )


def test_every_sentence_says_whether_it_is_by_the_noise_or_by_one_price_alone() -> None:
    assert (
        "whole curve of the noise that was used"
        in best_guess(1.0, 1e-6, distance=0.2).in_words()
    )
    assert (
        "whole curve of the noise that is planned"
        in best_guess(distance=0.2, by="forecast").in_words()
    )
    assert "by one ε and δ alone" in best_guess(1.0, 1e-6).in_words()
