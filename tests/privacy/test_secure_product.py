"""Shares of a product add up exactly, in every ring and chunking, and none tells
anything alone.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from understudy.ground.errors import ConfigError, MessageError
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.privacy.secure.sums import Dealer, Factor

RINGS = (Ring(32), Ring(64))
ring_of = st.sampled_from(RINGS)
SEEDS = (b"a" * 32, b"b" * 32)


def bits(rows: int, columns: int, seed: int) -> Bits:
    return np.random.default_rng(seed).random((rows, columns)) < 0.4


def words(ring: Ring, rows: int, columns: int, seed: int) -> Words:
    return ring.uniform(seed.to_bytes(32, "big"), 0, rows, columns)


def exact(a: Words, b: Words | Bits, ring: Ring) -> Words:
    """The product in Python's own whole numbers."""
    whole = a.astype(object).T @ b.astype(object) % 2**ring.bits
    return np.asarray(whole.astype(ring.dtype), dtype=ring.dtype)


def shares(
    x: Bits, y: Bits, ring: Ring, chunk: int, seeds: tuple[bytes, bytes] = SEEDS
) -> list[Words]:
    widths = (x.shape[1], y.shape[1])
    dealer = Dealer(ring, widths, seeds)
    first = Factor(
        ring, dealer.seeds[0], first=True, width=widths[0], peer_width=widths[1]
    )
    second = Factor(
        ring, dealer.seeds[1], first=False, width=widths[1], peer_width=widths[0]
    )
    for start in range(0, len(x), chunk):
        a = x[start : start + chunk]
        b = y[start : start + chunk]
        masked_a = first.mask(a)
        masked_b = second.mask(b)
        first.take(masked_b, a)
        second.take(masked_a, b)
        dealer.deal(len(a))
    return [first.share(), second.share(dealer.correction())]


@given(
    ring_of,
    st.integers(0, 70),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 99),
)
@settings(max_examples=30)
def test_products_modulo_two_to_the_b_are_those_of_whole_numbers(
    ring: Ring, n: int, p: int, q: int, seed: int
) -> None:
    a = words(ring, n, p, seed)
    b = words(ring, n, q, seed + 1)
    x = bits(n, q, seed)
    assert np.array_equal(ring.product(a, b), exact(a, b, ring))
    assert np.array_equal(ring.product(a, x), exact(a, x, ring))


@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_the_largest_words_over_more_rows_than_a_block_are_still_exact(
    ring: Ring,
) -> None:
    rows = 20_001
    most = 2**ring.bits - 1
    a = np.full((rows, 2), most, dtype=ring.dtype)
    assert set(ring.product(a, a).ravel().tolist()) == {rows * most**2 % 2**ring.bits}
    assert set(ring.product(a, np.ones((rows, 3), dtype=bool)).ravel().tolist()) == {
        rows * most % 2**ring.bits
    }


@given(
    ring_of,
    st.integers(0, 60),
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(1, 80),
    st.integers(0, 99),
)
@settings(max_examples=30)
def test_the_two_shares_add_up_to_the_product_for_every_chunking(
    ring: Ring, n: int, p: int, q: int, chunk: int, seed: int
) -> None:
    x = bits(n, p, seed)
    y = bits(n, q, seed + 1)
    first, second = shares(x, y, ring, chunk)
    assert (
        ring.signed(first + second).tolist()
        == (x.astype(int).T @ y.astype(int)).tolist()
    )


def test_fresh_seeds_are_drawn_when_none_are_given() -> None:
    dealers = [Dealer(Ring(32), (1, 1)) for _ in range(2)]
    assert len({seed for dealer in dealers for seed in dealer.seeds}) == 4


@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_words_and_signed_numbers_are_inverse(ring: Ring) -> None:
    numbers = np.array([0, 1, -1, 2**31 - 1, -(2**31), 12345], dtype=np.int64)
    assert ring.signed(ring.words(numbers)).tolist() == numbers.tolist()
    assert np.array_equal(
        ring.from_bytes(ring.to_bytes(ring.words(numbers)), 6), ring.words(numbers)
    )


@pytest.mark.parametrize("bits", [2, 20, 31, 33, 63])
def test_numbers_wrap_around_at_any_number_of_bits(bits: int) -> None:
    ring = Ring(bits)
    numbers = np.array([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])
    words = ring.words(numbers)
    assert ring.signed(words).tolist() == numbers.tolist()
    most = ring.dtype.type(2**bits - 1)
    sent = ring.from_bytes(ring.to_bytes(words), len(words))
    assert (sent <= most).all()
    assert ring.signed(sent).tolist() == numbers.tolist()
    above = words + ring.dtype.type(2**bits - 1) + ring.dtype.type(1)
    assert ring.signed(above).tolist() == numbers.tolist()
    assert ring.to_bytes(above) == ring.to_bytes(words)


def test_the_least_ring_holds_the_numbers_and_no_smaller_one_does() -> None:
    for largest in (1, 2, 7, 8, 100_000, 2**40):
        bits = Ring.least(largest).bits
        assert 2 ** (bits - 1) > largest >= 2 ** (bits - 2)


def test_the_ring_is_the_smaller_one_that_holds_the_numbers() -> None:
    assert Ring.holding(2**31 - 1) == Ring(32)
    assert Ring.holding(2**31) == Ring(64)


@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_every_byte_of_a_mask_is_uniform(ring: Ring) -> None:
    mask = ring.uniform(b"\x07" * 32, 3, 4000, 8)
    for byte in range(ring.bits // 8):
        values = (mask.ravel() >> ring.dtype.type(8 * byte)) & ring.dtype.type(255)
        assert chisquare(np.bincount(values.astype(int), minlength=256)).pvalue > 1e-4


def test_streams_of_a_seed_and_seeds_of_a_stream_differ() -> None:
    draws = {
        Ring(64).uniform(bytes([a]) * 32, b, 1).item()
        for a in range(20)
        for b in (0, 1, 2**64 - 1)
    }
    assert len(draws) == 60


def test_each_masked_row_is_as_likely_for_one_matrix_as_for_another() -> None:
    """For any two matrices there are masks, equally likely, under which they send the
    same message.
    """
    ring = Ring(32)
    x = bits(50, 4, 1)
    other = bits(50, 4, 2)
    sent = Factor(ring, SEEDS[0], first=True, width=4, peer_width=1).mask(x)
    mask = ring.words(x) - sent
    # a shift: uniform masks stay uniform
    moved = mask + ring.words(other) - ring.words(x)
    assert np.array_equal(ring.words(other) - moved, sent)
    assert np.array_equal(mask, ring.uniform(SEEDS[0], 0, 50, 4))
    assert (
        chisquare(
            np.bincount((sent.ravel() >> np.uint32(29)).astype(int), minlength=8)
        ).pvalue
        > 1e-4
    )


def test_a_share_alone_is_uniform_whatever_the_rows() -> None:
    ring = Ring(32)
    ones = np.ones((3, 1), dtype=bool)
    tops = []
    for number in range(300):
        seeds = (number.to_bytes(32, "big"), (number + 10_000).to_bytes(32, "big"))
        tops.append(
            [int(share.item()) >> 29 for share in shares(ones, ones, ring, 2, seeds)]
        )
    for side in np.array(tops).T:
        assert chisquare(np.bincount(side, minlength=8)).pvalue > 1e-4


def test_a_chunk_of_the_wrong_shape_or_out_of_turn_is_refused_and_changes_nothing():
    ring = Ring(32)
    x = bits(5, 3, 0)
    side = Factor(ring, SEEDS[0], first=True, width=3, peer_width=2)
    other = words(ring, 5, 2, 1)
    with pytest.raises(MessageError, match="was due"):
        side.take(other, x)  # nothing of its own is masked yet
    side.mask(x)
    for wrong in (words(ring, 4, 2, 1), words(ring, 5, 3, 1)):
        with pytest.raises(MessageError, match="was due"):
            side.take(wrong, x)
    with pytest.raises(MessageError, match="columns was due"):
        side.mask(bits(5, 2, 0))
    with pytest.raises(MessageError, match="not complete"):
        side.share()
    before = side.state_dict()["total"]
    side.take(other, x)
    assert before.abs().sum() == 0
    with pytest.raises(MessageError, match="was due"):
        side.take(other, x)  # the same chunk twice
    with pytest.raises(MessageError, match="not complete"):
        side.share(words(ring, 3, 2, 1))  # the correction is the second one's


def test_a_correction_of_another_shape_is_refused() -> None:
    side = Factor(Ring(32), SEEDS[1], first=False, width=3, peer_width=2)
    with pytest.raises(MessageError, match="correction"):
        side.share(words(Ring(32), 3, 2, 1))


@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_a_side_goes_on_from_its_state(ring: Ring) -> None:
    x = bits(9, 3, 0)
    y = bits(9, 2, 1)
    straight = shares(x, y, ring, 4)[1]
    dealer = Dealer(ring, (3, 2), SEEDS)
    side = Factor(ring, SEEDS[1], first=False, width=2, peer_width=3)
    peer = Factor(ring, SEEDS[0], first=True, width=3, peer_width=2)
    for start in range(0, 9, 4):
        a = x[start : start + 4]
        b = y[start : start + 4]
        side.mask(b)
        side.take(peer.mask(a), b)
        dealer.deal(len(a))
        again = Factor(ring, SEEDS[1], first=False, width=2, peer_width=3)
        again.load_state_dict(side.state_dict())
        side = again
    assert np.array_equal(side.share(dealer.correction()), straight)


def test_bad_rings_seeds_and_lengths_are_refused() -> None:
    for bits in (1, 65, 32.0):
        with pytest.raises(ConfigError, match="bits"):
            Ring(bits)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="seed"):
        Ring(32).uniform(b"short", 0, 1)
    with pytest.raises(MessageError, match="were due"):
        Ring(32).from_bytes(b"12345", 1)
