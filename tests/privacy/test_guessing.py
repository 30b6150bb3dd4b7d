"""How often a guess at one person is right, at most."""

import math

import pytest
from dp_accounting import GaussianDpEvent
from scipy.stats import norm

from understudy.privacy.accounts.accounting import PureDp, epsilon
from understudy.privacy.accounts.budget import Budget, guesses_in_words, right_guesses
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement


@pytest.mark.parametrize("distance", [0.02, 0.2, 1.0, 3.0])
def test_gaussian_noise_is_guessed_as_often_as_its_two_bells_overlap(distance: float) -> None:
    found = right_guesses(lambda delta: epsilon({GaussianDpEvent(1 / distance): 1}, delta))
    exact = norm.cdf(distance / 2)
    assert exact <= found <= exact + 1e-3


@pytest.mark.parametrize("price", [0.1, 1.0, 4.0])
def test_a_randomized_answer_is_guessed_with_its_own_odds(price: float) -> None:
    found = right_guesses(lambda delta: epsilon({PureDp(price): 1}, delta))
    assert found == pytest.approx(1 / (1 + math.exp(-price)), abs=1e-3)
    assert found >= 1 / (1 + math.exp(-price)) - 1e-9


def test_what_costs_nothing_is_a_coin_and_what_has_no_price_is_known() -> None:
    assert right_guesses(lambda _: 0.0) == pytest.approx(0.5, abs=1e-5)
    assert right_guesses(lambda _: math.inf) == 1
    assert "100 of 100" in guesses_in_words(1.0)


def test_words_round_up() -> None:
    assert "54 of 100" in guesses_in_words(0.5301)
    assert "53 of 100" in guesses_in_words(0.53)


def test_two_parties_who_hold_the_same_people_are_guessed_more_often_than_one() -> None:
    def stated(name: str) -> PartyPrivacy:
        spend = {GaussianDpEvent(4.0): 1}
        return PartyPrivacy(name=name, budget=Budget(2, 1e-6), outsider=spend, insider=spend, noise="secure", people=9)

    one, two = (PrivacyStatement(parties=tuple(map(stated, names))).guesses() for names in (["a"], ["a", "b"]))
    assert one == pytest.approx(norm.cdf(1 / 8), abs=1e-3)
    assert two == pytest.approx(norm.cdf(math.sqrt(2) / 8), abs=1e-3)
    body = PrivacyStatement(parties=(stated("a"),)).to_dict()
    assert body["person"]["right_guesses"]["server"] == one
    assert guesses_in_words(one) in str(PrivacyStatement(parties=(stated("a"),)))


def test_every_sentence_says_whether_it_is_by_the_noise_or_by_one_price_alone() -> None:
    assert "whole curve of the noise that was used" in guesses_in_words(0.6)
    assert "by one ε and δ alone" in guesses_in_words(0.6, by="bound")
