"""Nearest codes: the exact price of a report, what it tells, and the codebooks."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from refusals import NothingDrawn
from understudy.ground.errors import ConfigError
from understudy.privacy.local.naming import MOST_CODES, Codebook, NearestCodes
from understudy.privacy.noise.rng import SecureRng

EPSILONS = (1e-6, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 50.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_report_is_more_than_e_to_the_epsilon_times_likelier_for_another_vector(
    epsilon: float,
) -> None:
    for codes, near in ((2, 1), (5, 2), (16, 15), (MOST_CODES, 7)):
        one = NearestCodes(codes=codes, near=near, epsilon=epsilon)
        # A vector decides which codewords are near: one that is for the first and not
        # for the second has this ratio.
        assert one.odds <= Fraction(math.exp(epsilon))
        # beyond, what is rounded down is felt: it is paid for and not used
        if epsilon <= 20:
            assert float(one.odds) == pytest.approx(math.exp(epsilon), rel=1e-6)
        near_each = Fraction(one.kept_reports, near)
        far_each = Fraction((1 << 62) - one.kept_reports, codes - near)
        assert near_each / far_each == one.odds
        assert near_each * near + far_each * (codes - near) == 1 << 62


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_near_codewords_are_named_as_often_as_was_paid_for_and_alike(
    epsilon: float,
) -> None:
    one = NearestCodes(codes=6, near=2, epsilon=epsilon)
    people = 60_000
    scores = torch.tensor([0.1, 5.0, -2.0, 0.3, 4.0, 0.2]).expand(people, 6)
    found = (
        np.bincount(one(scores, SecureRng.from_seed(1)).numpy(), minlength=6) / people
    )
    share = one.kept_reports / 2**62
    due = np.array(
        [
            (1 - share) / 4,
            share / 2,
            (1 - share) / 4,
            (1 - share) / 4,
            share / 2,
            (1 - share) / 4,
        ]
    )
    np.testing.assert_allclose(found, due, atol=5 * math.sqrt(0.25 / people))


def test_scores_that_are_no_numbers_have_a_report_like_others() -> None:
    one = NearestCodes(codes=4, near=1, epsilon=50.0)
    bad = torch.tensor(
        [
            [math.nan, 1.0, 2.0, math.inf],
            [math.nan] * 4,
            [-math.inf, math.nan, 0.0, -1.0],
        ]
    )
    assert one(bad, SecureRng.from_seed(0)).tolist() == [3, 0, 2]
    assert len(one(torch.zeros(0, 4), SecureRng.from_seed(0))) == 0
    with pytest.raises(ValueError, match="4 codewords"):
        one(torch.zeros(3, 5), NothingDrawn())


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_mean_of_named_codewords_is_the_vector_times_the_stated_length(
    epsilon: float,
) -> None:
    one = NearestCodes.best(epsilon)
    people = 3000
    width = 16
    book = Codebook("a test", one.codes, 1, width)
    vector = np.zeros(width, dtype=np.float32)
    vector[[0, 3]] = 0.6, -0.8
    scores = torch.stack(
        [torch.from_numpy(book.block(place, 0) @ vector) for place in range(people)]
    )
    named = one(scores, SecureRng.from_seed(2)).tolist()
    mean = book.words(np.arange(people), np.array(named))[:, 0].mean(0)
    np.testing.assert_allclose(mean, one.length * vector, atol=5 / math.sqrt(people))


def test_more_epsilon_tells_more_and_the_best_codes_tell_nearly_as_much_as_any():
    lengths = [NearestCodes.best(epsilon).length for epsilon in EPSILONS]
    assert lengths == sorted(lengths)
    for epsilon in (0.5, 2.0, 8.0):
        best = NearestCodes.best(epsilon).length
        tried = (
            NearestCodes(codes=MOST_CODES, near=near, epsilon=epsilon).length
            for near in (1, 4, 16, 64, 200, 450)
        )
        assert best >= 0.96 * max(tried)


def test_the_length_is_that_of_order_statistics() -> None:
    rng = np.random.default_rng(0)
    one = NearestCodes(codes=16, near=3, epsilon=2.0)
    drawn = np.sort(rng.standard_normal((200_000, 16)), axis=1)
    share = one.kept_reports / 2**62
    by_hand = share * drawn[:, -3:].mean() + (1 - share) * drawn[:, :-3].mean()
    assert one.length == pytest.approx(by_hand, abs=0.01)


def test_a_codeword_is_the_same_by_its_blocks_and_whole_and_no_two_people_share_it():
    book = Codebook("a test", 32, 3, 24)
    places = np.array([0, 5, 2**40, 1])
    codes = np.array([0, 31, 7, 0])
    words = book.words(places, codes)
    for place, code, word in zip(places.tolist(), codes.tolist(), words, strict=True):
        assert np.array_equal(
            np.stack([book.block(place, number)[code] for number in range(3)]), word
        )
    assert not np.array_equal(words[0], words[3])
    assert not np.array_equal(
        words[0], Codebook("another", 32, 3, 24).words(places[:1], codes[:1])[0]
    )
    assert book.words(places[:0], codes[:0]).shape == (0, 3, 24)
    many = np.concatenate([book.block(place, 1).ravel() for place in range(40)])
    assert many.mean() == pytest.approx(0, abs=0.03)
    assert many.std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    "bad",
    [
        {"codes": 1},
        {"codes": MOST_CODES + 1},
        {"near": 0},
        {"near": 8},
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": 51.0},
    ],
)
def test_numbers_without_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        NearestCodes(**({"codes": 8, "near": 2, "epsilon": 1.0} | bad))  # type: ignore[arg-type]
