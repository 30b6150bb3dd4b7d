"""Randomized Bloom bits: the exact price by listing every report, and estimates that
are right on average.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from refusals import NothingDrawn
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.rappor import Rappor
from understudy.privacy.noise.rng import SecureRng

TINY = [
    Rappor(sizes=(2, 3), epsilon=1.5, hashes=1, bound=bound, seed=seed)
    for bound, seed in itertools.product(("paper", "exact"), (0, 1))
] + [
    Rappor(sizes=(3, 1), epsilon=0.7, hashes=2, bound="exact"),
    Rappor(sizes=(2,), epsilon=6.0),
]
every_tiny = pytest.mark.parametrize(
    "rappor", TINY, ids=lambda r: f"{r.sizes} {r.hashes} {r.bound}"
)


def inputs(rappor: Rappor) -> torch.Tensor:
    return torch.tensor(list(itertools.product(*map(range, rappor.sizes))))


def outputs(rappor: Rappor) -> np.ndarray:
    return np.array(list(itertools.product((False, True), repeat=rappor.width)))


def law(rappor: Rappor, codes: torch.Tensor) -> np.ndarray:
    """The probability of every output for each row of codes, from the signatures:
    (inputs, outputs).
    """
    p = rappor.flips / 2**32
    true = np.concatenate(
        [one[codes.numpy()[:, i]] for i, one in enumerate(rappor.signatures)], axis=1
    )
    flipped = (true[:, None] != outputs(rappor)).sum(-1)
    return np.asarray(p**flipped * (1 - p) ** (rappor.width - flipped))


@every_tiny
def test_no_two_rows_are_further_apart_than_the_tight_epsilon_and_two_are_as_far(
    rappor: Rappor,
) -> None:
    table = law(rappor, inputs(rappor))
    np.testing.assert_allclose(table.sum(1), 1, rtol=1e-12)
    worst = math.log((table.max(0) / table.min(0)).max())
    assert worst == pytest.approx(rappor.tight, rel=1e-9)
    assert worst <= rappor.epsilon
    assert rappor.event == PureDp(rappor.epsilon)
    if rappor.bound == "exact":
        assert worst == pytest.approx(rappor.epsilon, rel=1e-6), (
            "a part of the budget is wasted"
        )


@every_tiny
def test_what_is_sent_follows_the_listed_probabilities(rappor: Rappor) -> None:
    n = 20_000
    codes = inputs(rappor)[-1:]
    bits = rappor(codes.repeat(n, 1), SecureRng.from_seed(2)).numpy()
    seen = np.bincount(bits @ (1 << np.arange(rappor.width)), minlength=2**rappor.width)
    order = outputs(rappor) @ (1 << np.arange(rappor.width))
    expected = np.empty(2**rappor.width)
    expected[order] = n * law(rappor, codes)[0]
    common = expected >= 5
    merged = [
        np.append(count[common], count[~common].sum()) for count in (seen, expected)
    ]
    keep = merged[1] > 0
    assert (
        chisquare(merged[0][keep], merged[1][keep] * n / merged[1][keep].sum()).pvalue
        > 1e-4
    )


def test_the_papers_formula_gives_the_flip_probability() -> None:
    rappor = Rappor(sizes=(2, 9, 1, 30), epsilon=8.0)  # w = 3: one level tells nothing
    assert 2 * 3 * 4 * math.log(
        (2 - rappor.flip_rate) / rappor.flip_rate
    ) == pytest.approx(8.0, rel=1e-8)
    assert rappor.tight <= rappor.epsilon


def test_signatures_have_their_bits_and_tell_all_levels_apart() -> None:
    for hashes in (1, 4):
        rappor = Rappor(sizes=(2, 64, 1), epsilon=1.0, hashes=hashes)
        for signature, size in zip(rappor.signatures[:2], rappor.sizes, strict=False):
            assert signature.shape == (size, math.ceil(hashes * size / math.log(2)))
            assert (signature.sum(1) == hashes).all()
            assert np.linalg.matrix_rank(signature.astype(float)) == size
        assert rappor.signatures[2].shape == (1, 0)


def test_the_hash_functions_follow_from_the_seed_alone() -> None:
    one, same, other = (
        Rappor(sizes=(5,), epsilon=1.0, seed=seed).signatures[0] for seed in (3, 3, 4)
    )
    assert (one == same).all()
    assert (one != other).any()


def test_unbiased_bits_and_their_products_are_right_on_average() -> None:
    rappor = Rappor(sizes=(2, 3), epsilon=30.0)
    n = 60_000
    codes = torch.tensor([[1, 2]]).repeat(n, 1)
    z = rappor.unbiased(rappor(codes, SecureRng.from_seed(5))).numpy()
    true = np.concatenate([rappor.signatures[0][1], rappor.signatures[1][2]]).astype(
        float
    )
    spread = math.sqrt(rappor.variance / n)
    assert (abs(z.mean(0) - true) < 5 * spread).all()
    np.testing.assert_allclose(z.var(0), rappor.variance, rtol=0.05)
    cut = rappor.signatures[0].shape[1]
    joint = z[:, :cut].T @ z[:, cut:] / n
    assert (
        abs(joint - np.outer(true[:cut], true[cut:]))
        < 6 * (rappor.variance + 1) / math.sqrt(n)
    ).all()


@pytest.mark.parametrize("codes", [[[2, 0]], [[-1, 0]], [[0, 0, 0]], [0, 0]])
def test_codes_outside_their_columns_are_refused_before_anything_is_drawn(
    codes: list[Any],
) -> None:
    with pytest.raises(ValueError, match="codes"):
        Rappor(sizes=(2, 3), epsilon=1.0)(torch.tensor(codes), NothingDrawn())


def test_no_rows_give_no_bits() -> None:
    rappor = Rappor(sizes=(2, 3), epsilon=1.0)
    assert rappor(
        torch.zeros(0, 2, dtype=torch.int64), SecureRng.from_seed(0)
    ).shape == (0, rappor.width)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sizes": (1, 1)}, "no column has two levels"),
        ({"sizes": (2, 0)}, "sizes"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"epsilon": 1e-10}, "nothing but noise"),
        ({"hashes": 0}, "hashes must be"),
        ({"bound": "loose"}, "bound must be"),
    ],
)
def test_settings_that_promise_nothing_are_refused(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        Rappor(**dict[str, Any]({"sizes": (2, 3), "epsilon": 1.0}) | change)
