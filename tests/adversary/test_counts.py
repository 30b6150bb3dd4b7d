"""Counts, choices and whole-number noise at the ends of what settings and tables can
be.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from dp_accounting import NonPrivateDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.ground.errors import ConfigError, PrivacyError
from understudy.privacy.accounts.accounting import epsilon, flatten
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.buy_schema import quote
from understudy.privacy.local.rappor import Rappor
from understudy.privacy.noise.discrete import (
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    Exponential,
    rounded_up,
)
from understudy.privacy.noise.rng import SecureRng
from understudy.privacy.secure.counts import (
    gram_matrix,
    needed_noise,
    noise,
    release_event,
    triple_table,
)
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import blind, noise_share
from understudy.protocols.papers.sgde.offering import noisy_level_counts
from understudy.protocols.papers.verti_gan.dplt import Config, LatentTree
from understudy.protocols.papers.verti_gan.dplt_tree import association

SCALES = st.sampled_from(
    [
        5e-324,
        1e-300,
        1e-9,
        1e-3,
        0.5,
        1.0,
        1e3,
        1e5,
        1e9,
        1e300,
        1.7e308,
        math.inf,
        math.nan,
        0.0,
    ]
)
RNG = SecureRng.from_seed


@pytest.mark.parametrize(
    "kind", [DiscreteLaplaceNoise, DiscreteGaussianNoise, Exponential]
)
@settings(deadline=None, max_examples=40)
@given(scale=SCALES, most=st.sampled_from([0, 1, 2**31, 2**52, 2**62]))
def test_a_scale_is_drawn_by_or_refused_whatever_the_counts_are(kind, scale, most):
    """And if it is refused, then before it has seen a count."""
    try:
        mechanism = kind(rounded_up(scale))
    except ConfigError:
        return
    counts = torch.tensor([0, most, most // 2])
    answer = mechanism(counts, RNG(1))
    if kind is Exponential:
        assert answer in (0, 1, 2)
    else:
        assert answer.dtype == torch.int64
        assert answer.shape == counts.shape
    assert 0 < epsilon(flatten(mechanism.event), 1e-20) < math.inf


def exponential_odds(mechanism: Exponential, scores) -> list[float]:
    best = max(scores)
    weights = [
        math.exp(-float((best - s) / (2 * mechanism.sensitivity * mechanism.scale)))
        for s in scores
    ]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize(
    "scores", [[0, 2**62], [2**62, 2**62 - 1], [-(2**62), 2**62 - 1, 0], [5, 5]]
)
def test_a_choice_among_scores_that_lie_far_apart_is_by_their_order_and_never_fails(
    scores,
):
    """A gap times a denominator beyond 64 bits would wrap: to a choice of the worst, or
    to an error that tells.
    """
    mechanism = Exponential(Fraction(3, 2**20))
    drawn = mechanism.draw(torch.tensor(scores), 200, RNG(2))
    odds = exponential_odds(
        Exponential(Fraction(3, 2**20)), [max(s, max(scores) - 2**40) for s in scores]
    )
    for place, odd in enumerate(odds):
        assert abs(float((drawn == place).double().mean()) - odd) < 0.15


def test_a_score_cut_off_far_below_the_best_moves_by_no_more_than_the_score():
    far = 2**40
    for one in ([0, far], [0, far + 1], [3, far + 2], [0, 2 * far]):
        cut = [max(s, max(one) - far) for s in one]
        for place in range(2):
            other = list(one)
            other[place] += 1
            moved = [max(s, max(other) - far) for s in other]
            assert max(abs(a - b) for a, b in zip(cut, moved, strict=True)) <= 1


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([5e-324, 1e-300, 1e-12, 1e-3, 1.0, 60.0, 1e5, 1e300]),
    st.integers(1, 8),
    st.booleans(),
)
def test_rappor_is_within_its_price_or_refused_at_any_epsilon(each, hashes, exact):
    try:
        mechanism = Rappor(
            sizes=(3, 2, 1),
            epsilon=each,
            hashes=hashes,
            bound="exact" if exact else "paper",
        )
    except ConfigError:
        assert each < 1e-3
        return
    assert 0 < mechanism.tight <= each  # exact: a row's answer is a product over bits
    assert 0 < mechanism.flips < 2**31
    bits = mechanism(torch.tensor([[0, 0, 0], [2, 1, 0]]), RNG(1))
    assert bits.dtype == torch.bool


SCHEMA = Schema(
    columns=(
        Categorical(name="a", categories=("x", "y", "z")),
        Boolean(name="b"),
        Boolean(name="c"),
    )
)
CODEC = Codec(SCHEMA)
ROWS = st.lists(
    st.tuples(*(st.integers(0, size - 1) for size in CODEC.sizes)), max_size=6
)


@settings(deadline=None, max_examples=40)
@given(rows=ROWS, person=st.tuples(*(st.integers(0, size - 1) for size in CODEC.sizes)))
def test_one_person_moves_every_count_as_its_price_says(rows, person):
    without = np.array(rows, dtype=np.int64).reshape(-1, len(CODEC.sizes))
    with_person = np.vstack([without, person])
    moved = (
        gram_matrix(with_person, CODEC.sizes) - gram_matrix(without, CODEC.sizes)
    ).triu()
    assert set(moved.flatten().tolist()) <= {0, 1}
    assert int(moved.sum()) == 6  # three columns and their three pairs
    table = triple_table(with_person, CODEC.sizes, (0, 1, 2)) - triple_table(
        without, CODEC.sizes, (0, 1, 2)
    )
    assert sorted(table.flatten().tolist())[-2:] == [0, 1]
    bits = [np.array(side)[:, 1:].astype(bool) for side in (with_person, without)]
    assert (association(bits[0]) - association(bits[1])).abs().max() <= 1


@pytest.mark.parametrize("sigma", [0.0, 2.0**-10, 1.0, 1000.0])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_levels_of_a_class_are_finite_and_above_zero_with_and_without_rows(sigma, rows):
    codes = torch.zeros(rows, dtype=torch.int64)
    shares = noisy_level_counts(torch.ones(rows, 4), codes, 2, sigma, RNG(3)).log()
    assert shares.isfinite().all()
    assert shares.shape == (2, 4)


@pytest.mark.parametrize("sigma", [math.nan, math.inf, -1.0, 1e-320, 2.0**21])
def test_noise_that_cannot_be_drawn_is_refused(sigma):
    with pytest.raises((ConfigError, ValueError, OverflowError)):
        noise(Fraction(sigma), RNG(1), 2, 2)


def test_no_noise_is_priced_as_none_and_a_subnormal_sigma_too():
    assert release_event(0.0) == NonPrivateDpEvent()
    assert epsilon(flatten(release_event(5e-324)), 1e-5) == math.inf


@pytest.mark.parametrize("budget", [Budget(1.0, 0.0), Budget(1e-9, 1e-300)])
def test_a_budget_that_no_noise_keeps_is_refused(budget):
    with pytest.raises(PrivacyError):
        needed_noise(10, budget)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([2.0**-10, 0.3, 4.0, 900.0, 2.0**19]),
    st.integers(1, 2000),
    st.integers(1, 2000),
)
def test_the_honest_holders_shares_of_noise_never_add_up_to_less_than_the_whole(
    sigma, parties, max_colluding
):
    whole = rounded_up(sigma)
    try:
        share = noise_share(whole, parties, max_colluding=max_colluding)
    except ConfigError:
        assert parties > 1
        assert max_colluding >= parties
        return
    assert max(1, parties - max_colluding) * share**2 >= whole**2


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("count", [0, 1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)])
def test_a_count_beyond_its_ring_wraps_and_is_never_refused(bits, count):
    """A refusal would tell how large it is; without a channel nothing is added."""
    ring = Ring(bits)
    words = blind(ring.words(torch.tensor([count])), [], ring, stream=0)
    assert (int(ring.signed(words)) - count) % 2**bits == 0


@pytest.mark.parametrize("each", [5e-324, 1e-300, 1e-9, 1.0, 1e6, 1e12, 1.7e308])
def test_dplt_splits_epsilon_without_a_rest_or_refuses_before_anything_is_paid(each):
    schemas = {
        name: Schema(
            columns=(
                Categorical(name=f"{name}{i}", categories=tuple("wxyz"))
                for i in range(2)
            )
        )
        for name in "ab"
    }
    try:
        study = LatentTree(Config(), schemas)
        noise = study.pricing.needed(Budget(each, 0.0), None)
        study.check_noise(noise, 2)
        events = [study.pricing.event(step, one) for step, one in enumerate(noise)]
    except ConfigError:
        assert not 1e-3 < each < 1e3
        return
    assert sum(event.epsilon for event in events) <= each


@pytest.mark.parametrize(
    ("each", "delta"), [(1e-9, 1e-300), (1.0, 5e-324), (1.0, 1e-300), (40.0, 0.4)]
)
def test_a_quote_for_a_schema_keeps_its_price_or_is_refused(each, delta):
    try:
        offer = quote({"a": "categorical", "b": "real"}, epsilon=each, delta=delta)
        threshold = offer.category_threshold
    except (ConfigError, PrivacyError):
        return
    assert threshold >= 1
    assert offer.noise.tail(threshold - 1) <= offer.reveals / offer.lists
    assert epsilon(flatten(offer.event), delta) <= each * (1 + 1e-9)
