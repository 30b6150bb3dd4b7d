"""Encrypted products are exact, their shares uniform, and what the flood hides is
priced.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, kstest, norm

from understudy.ground.errors import ConfigError, MessageError
from understudy.privacy.noise import Rng, SecureRng
from understudy.privacy.secure import lwe
from understudy.privacy.secure.lwe import Adder, Encryptor, Room, dimension_for
from understudy.privacy.secure.ring import Bits, Words

SECRET = b"a" * 32
PUBLIC = b"p" * 32
WIDE = 8192
TINY = 8  # a dimension that protects nobody


def of_two(bits: int, widths: tuple[int, int]) -> Room:
    """Between two holders, as a run has it."""
    return Room(bits, widths, dimension_for(bits, max(widths)))


def table(rows: int, columns: int, seed: int) -> Bits:
    return np.random.default_rng(seed).random((rows, columns)) < 0.4


def encryptor(room: Room, secret: bytes = SECRET) -> Encryptor:
    return Encryptor(secret, PUBLIC, room.bits, room.widths[0], room.dimension)


def answered(
    x: Bits, y: Bits, room: Room, *, seed: int = 1, chunk: int = 10**9
) -> tuple[Encryptor, bytes, Words]:
    """A, what B answered, and B's share."""
    a = encryptor(room)
    b = Adder(PUBLIC, {"a": room})
    for start in range(0, len(x), chunk):
        people = slice(start, start + chunk)
        place = b"from %d" % start
        b.add(place, {"a": a.encrypt(place, x[people])}, y[people])
    answer, share = b.answer("a", a.public_key(), SecureRng.from_seed(seed))
    return a, answer, share


def counts(x: Bits, y: Bits, room: Room, **more: int) -> NDArray[np.int64]:
    a, answer, share = answered(x, y, room, **more)
    total = (a.share(answer, room) + share) & np.uint64(2**room.bits - 1)
    return total.astype(np.int64)


def tables(people: int, columns: int) -> Iterator[Bits]:
    for cells in product((False, True), repeat=people * columns):
        yield np.array(cells, dtype=np.bool_).reshape(people, columns)


@pytest.mark.long
def test_every_pair_of_tiny_tables_is_multiplied_exactly() -> None:
    room = Room(3, (2, 1), TINY)
    for x in tables(3, 2):
        for y in tables(3, 1):
            assert (counts(x, y, room) == x.astype(int).T @ y.astype(int)).all()


@pytest.mark.long
@pytest.mark.parametrize("chunk", [300, 128, 7])
def test_counts_are_exact_with_the_parameters_of_a_run(chunk: int) -> None:
    x = table(300, 12, 1)
    y = table(300, 9, 2)
    expected = x.astype(int).T @ y.astype(int)
    assert (counts(x, y, of_two(12, (12, 9)), chunk=chunk) == expected).all()


def test_more_people_than_a_block_of_the_matrix_are_counted_exactly() -> None:
    x = table(2500, 3, 3)
    y = table(2500, 2, 4)
    expected = x.astype(int).T @ y.astype(int)
    assert (counts(x, y, Room(14, (3, 2), TINY)) == expected).all()


def test_products_of_whole_numbers_are_exact_but_for_carries() -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-150, 150, (300, columns)) for columns in (3, 2))
    room = Room(26, (3, 2), TINY, 150 * math.sqrt(2), 150**2)
    a = encryptor(room)
    b = Adder(PUBLIC, {"a": room})
    b.add(b"0", {"a": a.encrypt(b"0", x)}, y)
    answer, share = b.answer("a", a.public_key(), SecureRng.from_seed(1))
    total = (a.share(answer, room) + share).astype(np.int64)
    off = (total - x.T @ y + 2**25) % 2**26 - 2**25
    assert abs(off).max() < 6 * max(1.0, room.spread)


@pytest.mark.parametrize("length", [1.0, 50.0, 400.0])
def test_longer_rows_are_hidden_by_wider_floods_at_the_same_price(
    length: float,
) -> None:
    room = Room(20, (30, 40), 3072, length, 400)
    person = 19 * math.sqrt(30) * length
    assert room.shift - Room(20, (30, 40), 3072, 1e-9, 400).shift == pytest.approx(
        person, rel=1e-3
    )
    t = 128 * math.log(2)
    each = 30 + 2 * math.sqrt(30 * t) + 2 * t
    sums = lwe.ERROR * length * math.sqrt(room.holds * each)
    assert room.hint == pytest.approx(room.shift - person + 2 * sums, rel=1e-3)
    assert room.rho <= lwe.MOST
    assert (room.holds + 1) * 400 >= 2**19 > room.holds * 400


def test_the_dimension_is_one_that_the_standard_calls_secure() -> None:
    assert lwe.least_dimension(64) == 2421
    assert lwe.least_dimension(54) == 2048
    with pytest.raises(ConfigError, match="no parameter set"):
        lwe.least_dimension(300)


# Products modulo 2⁶⁴


@pytest.mark.parametrize("word", [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_products_of_extreme_words_are_exact(word: int) -> None:
    n = 3 * lwe._BLOCK + 5
    words = np.full((n, 2), word, dtype=np.uint64)
    for number in (-4, -1, 4):
        small = np.full((1, n), number, dtype=np.int8)
        expected = n * word * number % 2**64
        assert lwe._left_product(small, words).tolist() == [[expected, expected]]
        wide = np.full((1, WIDE), word, dtype=np.uint64)
        column = np.full((WIDE, 1), number, dtype=np.int8)
        expected = WIDE * word * number % 2**64
        assert lwe._right(wide, column).item() == expected


def test_products_of_random_words_are_those_of_whole_numbers() -> None:
    words = lwe.WORDS.uniform(b"w" * 32, 0, 40, 30)
    small = np.random.default_rng(1).integers(-4, 5, (30, 20)).astype(np.int8)
    expected = words.astype(object) @ small.astype(object) % 2**64
    assert (lwe._right(words, small).astype(object) == expected).all()
    left = np.random.default_rng(2).integers(-4, 5, (7, 40)).astype(np.int8)
    expected = left.astype(object) @ words.astype(object) % 2**64
    assert (lwe._left_product(left, words).astype(object) == expected).all()


# What is drawn


def test_errors_are_a_discrete_gaussian_cut_at_six_sigma() -> None:
    drawn = lwe.draw_errors(b"e" * 32, (400_000,))
    values = np.arange(-lwe.CUT, lwe.CUT + 1)
    weights = np.exp(-(values**2) / (2 * lwe.ERROR**2))
    expected = weights / weights.sum() * len(drawn)
    seen = np.array([(drawn == value).sum() for value in values])
    many = expected > 20
    seen = np.append(seen[many], seen[~many].sum())
    expected = np.append(expected[many], expected[~many].sum())
    assert chisquare(seen, expected).pvalue > 1e-4
    assert lwe._thresholds().tolist() == sorted(lwe._thresholds().tolist())


def test_keys_are_small_even_and_no_longer_than_the_price_takes_them_to_be() -> None:
    room = of_two(18, (40, 9))
    key = encryptor(room).key
    seen = np.array([(key == value).sum() for value in range(-4, 5)])
    assert seen.sum() == key.size
    assert chisquare(seen).pvalue > 1e-4
    assert (np.square(key, dtype=int).sum(0) <= 7.9 * room.dimension).all()


def test_a_flood_of_several_draws_is_one_discrete_gaussian(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lwe, "_DRAWN", 3)
    drawn = lwe.draw_flood(5, (200_000,), SecureRng.from_seed(3))
    variance = 32**2 + 16**2 + 8**2
    edges = np.arange(-120, 121)
    cells = np.arange(-400, 401)
    weights = np.exp(-(cells**2) / (2 * variance))
    weights /= weights.sum()
    expected = np.array([weights[cells == edge].item() for edge in edges])
    seen = np.array([(drawn == edge).sum() for edge in edges])
    outside = np.append(expected, 1 - expected.sum()) * len(drawn)
    assert chisquare(np.append(seen, len(drawn) - seen.sum()), outside).pvalue > 1e-4


@pytest.mark.parametrize("scale", [1, 20, 21, 30, 41])
def test_a_flood_is_as_wide_as_it_says(scale: int) -> None:
    drawn = lwe.draw_flood(scale, (50, 400), SecureRng.from_seed(scale))
    assert drawn.shape == (50, 400)
    if scale >= 20:
        assert kstest(drawn.ravel() / 2.0**scale, norm.cdf).pvalue > 1e-4
    # 20,000 draws: their variance is within 4 %
    assert 0.95 < drawn.astype(float).var() / 4.0**scale < 1.05


# What each side sees


def test_what_b_is_sent_is_uniform_and_differs_with_the_key_alone() -> None:
    room = of_two(18, (12, 9))
    none = np.zeros((300, 12), dtype=np.bool_)
    sent = encryptor(room).encrypt(b"0", none)
    again = encryptor(room).encrypt(b"0", none)
    assert (sent == again).all()
    other = encryptor(room, b"b" * 32).encrypt(b"0", none)
    elsewhere = encryptor(room).encrypt(b"1", none)
    for words in (sent, sent - other, sent - elsewhere):
        bytes_seen = np.bincount(words.ravel().view(np.uint8), minlength=256)
        assert chisquare(bytes_seen).pvalue > 1e-4


def shares(x: Bits, y: Bits, room: Room, times: int) -> Iterator[tuple[int, int]]:
    a = encryptor(room)
    b = Adder(PUBLIC, {"a": room})
    b.add(b"0", {"a": a.encrypt(b"0", x)}, y)
    key = a.public_key()
    rng = SecureRng.from_seed(8)
    for _ in range(times):
        answer, share = b.answer("a", key, rng)
        yield int(a.share(answer, room).item()), int(share.item())


@pytest.mark.long
def test_each_share_alone_is_uniform_whatever_the_count() -> None:
    room = Room(3, (1, 1), TINY)
    ones = np.ones((3, 1), dtype=np.bool_)
    for y in (ones, ~ones):
        drawn = list(shares(ones, y, room, 500))
        for side in zip(*drawn, strict=True):
            assert chisquare(np.bincount(side, minlength=8)).pvalue > 1e-4
        assert {sum(pair) % 8 for pair in drawn} == {3 if y.all() else 0}


def no_mask(shape: tuple[int, ...], rng: Rng) -> Words:
    return np.zeros(shape, dtype=np.uint64)


def noise_at_a(room: Room, y: Bits, times: int) -> NDArray[np.float64]:
    """What is under the mask beside one count of people who all have the column."""
    a = encryptor(room)
    b = Adder(PUBLIC, {"a": room})
    b.add(b"0", {"a": a.encrypt(b"0", np.ones_like(y))}, y)
    key = a.public_key()
    rng = SecureRng.from_seed(9)
    noise = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lwe, "draw_mask", no_mask)
        for _ in range(times):
            answer, _ = b.answer("a", key, rng)
            beside = a.masked(answer, 1) - np.uint64(room.step * int(y.sum()))
            noise.append(int(beside.view(np.int64).item()))
    return np.array(noise, dtype=np.float64)


def is_flooded(noise: NDArray[np.float64], room: Room) -> bool:
    """Whether it may be the flood that the price is of."""
    return bool(kstest(noise / 2.0**room.flood, norm.cdf).pvalue > 1e-4)


@pytest.mark.long
def test_what_is_under_the_mask_beside_the_count_is_the_flood() -> None:
    room = Room(8, (1, 1), TINY)
    some = table(100, 1, 5)
    for y in (some, np.zeros_like(some), np.ones_like(some)):
        assert is_flooded(noise_at_a(room, y, 300), room)


@pytest.mark.long
def test_a_planted_flood_that_is_too_small_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = Room(8, (1, 1), TINY)
    whole = lwe.draw_flood
    monkeypatch.setattr(
        lwe, "draw_flood", lambda scale, shape, rng: whole(scale - 1, shape, rng)
    )
    assert not is_flooded(noise_at_a(room, table(100, 1, 5), 300), room)


def guessed(answer: bytes, a: Encryptor, room: Room, people: int) -> NDArray[Any]:
    """Who has the level, by what A finds below a count, as if nothing hid it."""
    errors = lwe.draw_errors(
        lwe._derived(SECRET, b"rows from 0"), (people, room.widths[0])
    ).astype(int)
    word = a.masked(answer, 1)[0] + np.uint64(room.step // 2)
    noise = (word % np.uint64(room.step)).astype(np.int64) - room.step // 2
    guesses = np.array(list(product((0, 1), repeat=people)))
    misses = np.square(guesses @ errors - noise).sum(1)
    return np.asarray(guesses[misses.argmin()])


@pytest.mark.parametrize("hidden", ["draw_mask", "draw_flood", None])
def test_without_a_mask_and_a_flood_a_reads_who_has_a_level(
    hidden: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they are for: A knows its errors, and finds a sum of some of them."""
    room = Room(8, (120, 1), 1)
    y = table(12, 1, 6)
    gone = {
        "draw_mask": no_mask,
        "draw_flood": lambda scale, shape, rng: np.zeros(shape, dtype=np.int64),
    }
    for name, nothing in gone.items():
        if name != hidden:
            monkeypatch.setattr(lwe, name, nothing)
    x = np.zeros((12, 120), dtype=np.bool_)
    a, answer, _ = answered(x, y, room)
    assert (guessed(answer, a, room, 12) == y[:, 0]).all() == (hidden is None)


def test_an_answer_is_uniform_whatever_was_sent_in_place_of_rows() -> None:
    """A that departs: words of its choice for rows and key, and no secret at all."""
    room = Room(8, (40, 30), TINY)
    y = table(50, 30, 7)
    b = Adder(PUBLIC, {"a": room})
    words = np.zeros((50, 40), dtype=np.uint64)
    words[0] = 2**60  # to read where the first person is
    words[1] = 2**50  # below a count's step
    b.add(b"0", {"a": words}, y)
    key = np.zeros((room.dimension, 40), dtype=np.uint64)
    rng = SecureRng.from_seed(4)
    answers = [b.answer("a", key, rng)[0] for _ in range(10)]
    shape = (10, 30, TINY + 40)
    seen = np.frombuffer(b"".join(answers), dtype=np.uint64).reshape(shape)[..., TINY:]
    for have in (y[0], ~y[0], y[1], ~y[1]):
        of_some = np.ascontiguousarray(seen[:, have])
        for place in range(8):
            own = of_some.view(np.uint8).reshape(-1, 8)[:, place]
            assert chisquare(np.bincount(own, minlength=256)).pvalue > 1e-4


def test_a_planted_mask_of_counts_alone_lets_words_of_choice_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of the test above: a mask that is a multiple of a count's step."""
    room = Room(8, (40, 30), TINY)
    whole = lwe.draw_mask
    monkeypatch.setattr(
        lwe,
        "draw_mask",
        lambda shape, rng: (
            (whole(shape, rng) >> np.uint64(64 - room.bits)) * np.uint64(room.step)
        ),
    )
    y = table(50, 30, 7)
    b = Adder(PUBLIC, {"a": room})
    words = np.zeros((50, 40), dtype=np.uint64)
    words[1] = 2**50
    b.add(b"0", {"a": words}, y)
    key = np.zeros((room.dimension, 40), dtype=np.uint64)
    answer, _ = b.answer("a", key, SecureRng.from_seed(4))
    seen = np.frombuffer(answer, dtype=np.uint64).reshape(30, TINY + 40)[:, TINY:]
    below = seen % np.uint64(room.step)
    assert ((below > 2**49).all(1) == y[1]).all()


# Who departs reads of a secret what a dimension has room for


DIGITS = 6  # of base 9, in 20 bits


def weights_of_nine(dimension: int, level: int) -> Words:
    """On `DIGITS` entries of a secret, so that a sum has each as a digit."""
    weights = np.zeros(dimension, dtype=np.uint64)
    entries = slice(level * DIGITS, (level + 1) * DIGITS)
    weights[entries] = 9 ** np.arange(DIGITS, dtype=np.uint64)
    return weights


def digits(numbers: Words) -> NDArray[np.int64]:
    """The entries that each number was put together of."""
    each = numbers.astype(np.int64)[..., None] // 9 ** np.arange(DIGITS)
    return each % 9 - 4


def read_by_b(a: Encryptor, room: Room) -> NDArray[np.int64]:
    """What A's shares tell of its key where B answers with numbers of its own."""
    own_width, levels = room.widths
    step = np.uint64(room.step)
    words = np.zeros((levels, room.dimension + own_width), dtype=np.uint64)
    for level in range(levels):
        words[level, : room.dimension] -= step * weights_of_nine(room.dimension, level)
    words[:, room.dimension :] = step * np.uint64(4 * (9**DIGITS - 1) // 8)
    words[:, room.dimension :] += step // np.uint64(2)
    share = a.share(lwe.WORDS.to_bytes(words), room)
    return digits(share).reshape(own_width, -1).T


def test_a_holder_that_answers_as_it_likes_reads_as_much_as_is_reckoned_with() -> None:
    room = Room(20, (3, 4), 64)
    a = encryptor(room)
    read = read_by_b(a, room)
    assert (read == a.key[: len(read)]).all()
    assert len(read) <= dimension_for(20, 4) - lwe.least_dimension(64)


def test_a_holder_whose_key_is_none_reads_of_an_answer_what_is_reckoned_with() -> None:
    room = Room(20, (4, 3), 64)
    b = Adder(PUBLIC, {"a": room})
    step = np.uint64(room.step)
    key = np.stack([weights_of_nine(64, column) for column in range(4)], 1) * step
    rng = SecureRng.from_seed(3)
    answer, share = b.answer("a", key, rng)
    sums = np.frombuffer(answer, dtype=np.uint64).reshape(3, -1)[:, 64:]
    offset = step * np.uint64(4 * (9**DIGITS - 1) // 8)
    total = ((sums + offset) >> np.uint64(44)) + share.T
    read = digits(total & np.uint64(2**20 - 1)).reshape(3, -1)
    r = lwe._secret(SecureRng.from_seed(3).bytes(32), (3, 64))
    assert (read == r[:, : 4 * DIGITS]).all()
    assert dimension_for(20, 4) - lwe.least_dimension(64) >= 4 * DIGITS


def test_control_of_a_dimension_without_room_all_rows_are_read() -> None:
    room = Room(20, (3, 4), 4 * DIGITS)
    a = encryptor(room)
    x = table(30, 3, 1)
    sent = a.encrypt(b"0", x)
    matrix = np.concatenate(
        [block for _, block in lwe._matrix(lwe._rows(PUBLIC, b"0"), 30, room.dimension)]
    )
    opened = sent - lwe._right(matrix, read_by_b(a, room).astype(np.int8))
    assert ((opened + np.uint64(100) > np.uint64(200)) == x).all()


@pytest.mark.parametrize("bits", [12, 20, 24])
@pytest.mark.parametrize("told", [1, 150, 4_000])
def test_what_is_left_of_a_secret_has_the_dimension_that_the_standard_asks_for(
    bits: int, told: int
) -> None:
    left = dimension_for(bits, told) - told * bits / math.log2(9)
    assert lwe.least_dimension(64) <= left < lwe.least_dimension(64) + 64


@pytest.mark.long
@pytest.mark.parametrize("bits", [28, 30])
def test_counts_are_off_by_no_more_than_is_said(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer bits below a count than a run would take, so that carries are seen."""
    monkeypatch.setattr(lwe, "_WIDEST", math.inf)
    room = Room(bits, (60, 50), TINY)
    x = table(100, 60, 1)
    y = table(100, 50, 2)
    off = counts(x, y, room) - x.astype(int).T @ y.astype(int)
    off = (off + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    assert 0.3 * room.spread < off.std() < 1.05 * room.spread
    # a mean of 3,000 cells
    assert abs(off.mean()) < 5 * room.spread / math.sqrt(off.size)


# What fits, and what it costs


ROOMS = [
    of_two(20, (150, 150)),
    of_two(22, (150, 150)),
    of_two(20, (400, 20)),
    of_two(12, (20, 30)),
]


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_the_price_is_that_of_what_a_and_b_find_under_their_floods(room: Room) -> None:
    a, b = room.widths
    norms = lwe.ERROR**2 * (room.dimension * (20 / 3 * 1.3 + 7.9) + 1)
    zeros = math.sqrt(2 * math.log(2) * a * norms * (256 + b))
    person = 19 * math.sqrt(a) * math.sqrt(b)
    t = 128 * math.log(2)
    sums = lwe.ERROR**2 * room.holds * b * (a + 2 * math.sqrt(a * t) + 2 * t)
    rho = (2 * zeros + person) ** 2 / (2 * 4.0**room.flood)
    rho += 4 * (zeros + math.sqrt(sums)) ** 2 / (2 * 4.0**room.own_flood)
    assert rho <= room.rho <= rho * 1.001
    assert room.rho == pytest.approx(1 / (2 * room.event.noise_multiplier**2))
    assert 2.0**-43 < room.rho <= lwe.MOST


@pytest.mark.parametrize("most", [2.0**-40, 2.0**-20])
def test_floods_are_no_wider_than_the_price_asks(
    most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lwe, "MOST", most)
    room = of_two(20, (150, 150))
    for shift, flood in ((room.shift, room.flood), (room.hint, room.own_flood)):
        assert shift**2 / (2 * (4.0**flood - 9)) <= most / 2
        assert shift**2 / (2 * (4.0 ** (flood - 1) - 9)) > most / 2


@pytest.mark.long
def test_sums_of_errors_are_seldom_longer_than_they_are_priced_at() -> None:
    room = of_two(11, (40, 30))
    y = table(room.holds, 30, 3).astype(int)
    errors = lwe.draw_errors(b"e" * 32, (room.holds, 40)).astype(int)
    seen = 2 * np.linalg.norm(y.T @ errors)
    assert 0.02 * room.hint < seen < room.hint


def test_what_the_zeros_tell_is_seldom_longer_than_it_is_priced_at() -> None:
    """‖r·E₀ − e′·S + e″‖ is a third of the bound, of keys and zeros as they are
    drawn.
    """
    room = of_two(18, (30, 10))
    a = encryptor(room)
    d, own = room.dimension, room.widths[0]
    errors = lwe.draw_errors(lwe._derived(SECRET, b"public key 0"), (d, own))
    r = lwe._secret(b"r" * 32, (10, d)).astype(int)
    noise = lwe.draw_errors(b"n" * 32, (10, d + own)).astype(int)
    hint = r @ errors.astype(int) - noise[:, :d] @ a.key.astype(int) + noise[:, d:]
    person = 19 * math.sqrt(own * 10)
    assert 2 * np.linalg.norm(hint) + person < room.shift
    assert 0.1 < 2 * np.linalg.norm(hint) / (room.shift - person) < 0.5


def test_levels_whose_messages_are_too_large_are_refused() -> None:
    assert of_two(18, (2_500, 2_500)).dimension > 16_000
    with pytest.raises(ConfigError, match="are the most"):
        of_two(18, (4_000, 10))
    with pytest.raises(ConfigError, match="are the most"):
        of_two(18, (10, 4_000))


def test_too_many_people_or_levels_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not fit into 64 bits"):
        of_two(22, (2_000, 2_000))
    with pytest.raises(ConfigError, match="do not fit into 64 bits"):
        of_two(40, (10, 10))


# Messages that are not those that are due


def test_messages_of_another_size_are_refused() -> None:
    room = Room(8, (3, 2), TINY)
    x = table(100, 3, 1)
    y = table(100, 2, 2)
    a, answer, _ = answered(x, y, room)
    for wrong in (b"", answer[:-1], answer + b"\0", answer[: len(answer) // 2]):
        with pytest.raises(MessageError, match="bytes came where"):
            a.share(wrong, room)
    b = Adder(PUBLIC, {"a": room})
    sent = encryptor(room).encrypt(b"0", x)
    before = b.state_dict()["a"]
    for words in (sent[:-1], sent[:, :2]):
        with pytest.raises(MessageError, match="encrypted rows"):
            b.add(b"0", {"a": words}, y)
    assert (b.state_dict()["a"] == before).all()
    with pytest.raises(MessageError, match="a public key was due"):
        b.answer("a", a.public_key()[:-1], SecureRng())
    with pytest.raises(MessageError, match="of whole numbers were due"):
        encryptor(room).encrypt(b"0", y)
    with pytest.raises(MessageError, match="whole numbers were due"):
        encryptor(room).encrypt(b"0", x.astype(np.uint64))


def test_rows_are_encrypted_once_at_a_place() -> None:
    room = Room(8, (3, 2), TINY)
    a = encryptor(room)
    a.encrypt(b"0", table(100, 3, 1))
    with pytest.raises(MessageError, match="were sent"):
        a.encrypt(b"0", table(100, 3, 2))


def test_rows_that_were_moved_or_are_of_another_session_add_up_to_nothing_known() -> (
    None
):
    room = Room(8, (3, 2), TINY)
    x = table(100, 3, 1)
    y = table(100, 2, 2)
    expected = x.astype(int).T @ y.astype(int)
    for public, place in ((PUBLIC, b"1"), (b"q" * 32, b"0")):
        a = encryptor(room)
        b = Adder(public, {"a": room})
        b.add(place, {"a": a.encrypt(b"0", x)}, y)
        answer, share = b.answer("a", a.public_key(), SecureRng())
        total = (a.share(answer, room) + share) & np.uint64(255)
        assert not (total == expected).all()


def test_the_key_is_overwritten_when_it_is_forgotten() -> None:
    room = Room(8, (3, 2), TINY)
    a, answer, _ = answered(table(100, 3, 1), table(100, 2, 2), room)
    key = a.key
    assert key.any()
    a.forget()
    assert not key.any()
    with pytest.raises(MessageError, match="the key is gone"):
        a.share(answer, room)


def test_sums_go_on_from_a_saved_state() -> None:
    room = Room(8, (3, 2), TINY)
    x = table(100, 3, 1)
    y = table(100, 2, 2)
    a = encryptor(room)
    b = Adder(PUBLIC, {"a": room})
    b.add(b"0", {"a": a.encrypt(b"0", x[:60])}, y[:60])
    back = Adder(PUBLIC, {"a": room})
    back.load_state_dict(b.state_dict())
    back.add(b"60", {"a": a.encrypt(b"60", x[60:])}, y[60:])
    answer, share = back.answer("a", a.public_key(), SecureRng())
    total = (a.share(answer, room) + share) & np.uint64(255)
    assert (total.astype(int) == x.astype(int).T @ y.astype(int)).all()
