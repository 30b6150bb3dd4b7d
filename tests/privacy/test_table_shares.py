"""Tables in two shares: they add up, either alone tells nothing, and whoever lies about
a table is found.
"""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from understudy.ground.errors import ConfigError, MessageError
from understudy.privacy.noise.ciphers import keystream
from understudy.privacy.secure.ring import Field
from understudy.privacy.secure.sketch import Sketch
from understudy.privacy.secure.sums import KeyPair, seal, unseal
from understudy.privacy.secure.table_shares import (
    REPEATS,
    Cells,
    Dealt,
    Share,
    randomness,
    second_share,
    split,
)

SIZES = (3, 2, 4)
FIELD = Field()
COIN = bytes(range(32))


def entropy(n: int, cells: Cells, seed: int) -> NDArray[np.uint8]:
    """Random bytes that a test can repeat."""
    return np.random.default_rng(seed).integers(
        0, 256, (n, randomness(cells)), dtype=np.uint8
    )


def people(n: int, sizes: tuple[int, ...] = SIZES, seed: int = 0) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, n) for size in sizes], axis=1).astype(
        np.int32
    )


def both(
    codes: NDArray[np.int32],
    sizes: tuple[int, ...] = SIZES,
    seed: int = 0,
    field: Field = FIELD,
) -> Any:
    """The shares of the first and of the second aggregator."""
    cells = Cells(sizes)
    first, _, seconds = split(cells, codes, entropy(len(codes), cells, seed), field)
    return first, second_share(cells, first.keys, seconds, first.corrections, field)


def counted(
    codes: NDArray[np.int32], one: int, other: int, sizes: tuple[int, ...]
) -> NDArray[np.int64]:
    """The table of two columns, or of one, by counting."""
    table = np.zeros((sizes[one], 1 if one == other else sizes[other]), np.int64)
    for row in codes[(codes[:, one] >= 0) & (codes[:, other] >= 0)]:
        table[row[one], 0 if one == other else row[other]] += 1
    return table


def together(
    first: Share, second: Share, sizes: tuple[int, ...] = SIZES, field: Field = FIELD
) -> Any:
    """Who passes, and the sum of all cells."""
    sketch = Sketch(Cells(sizes), COIN, field)
    prime = np.uint64(field.prime)
    (z1, y1, sum1), (z2, y2, sum2) = (sketch.look(share) for share in (first, second))
    z = (z1 + z2) % prime
    y = (y1 + y2) % prime
    passed = sketch.passed(sketch.judge(first, z, y), sketch.judge(second, z, y))
    return passed, field.signed((sum1 + sum2) % prime).numpy()


@pytest.mark.parametrize(
    "field", [FIELD, Field(2**31 + 11), Field(65521)], ids=lambda field: field.prime
)
@pytest.mark.parametrize("sizes", [(3, 2, 4), (1,), (2, 2), (5, 1, 7, 2)])
def test_two_shares_add_up_to_the_tables_of_all_and_honest_people_pass(
    sizes: tuple[int, ...], field: Field
) -> None:
    """With 2³¹ + 11 every other number of 32 bits is drawn again."""
    codes = people(9, sizes)
    codes[4] = -1
    codes[5, 0] = -1
    first, second = both(codes, sizes, field=field)
    passed, total = together(first, second, sizes, field)
    assert passed.all()
    found = {(one, other) for one, other, _ in Cells(sizes).tables(total)}
    assert len(found) == Cells(sizes).blocks
    for one, other, table in Cells(sizes).tables(total):
        assert np.array_equal(table, counted(codes, one, other, sizes))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 70))
def test_honest_people_always_pass(seed: int, n: int) -> None:
    passed, _ = together(*both(people(n, seed=seed), seed=seed))
    assert len(passed) == n
    assert passed.all()


def lie(first: Share, second: Share, strip: int, place: int, by: int) -> None:
    """Person 0 adds so much to a cell of the own line, and to κ times it, as whoever
    deals κ can.
    """
    cells = Cells(SIZES)
    told = cells.strips[strip]
    block = (
        next(n for n, (_, at) in enumerate(told.others) if at.start <= place < at.stop)
        + told.block
    )
    kappa = first.dealt.kappa[0, block] + second.dealt.kappa[0, block]
    levels = slice(told.level, told.level + told.levels)
    (line,) = np.flatnonzero(
        (first.seeds[0, levels] != second.seeds[0, levels]).any(axis=-1)
    )
    sign = 1 if second.bits[0, told.level + line] else -1
    for plane, factor in enumerate([1, *kappa.tolist()]):
        at = told.word + plane * told.width + place
        value = (int(first.corrections[0, at]) + sign * by * factor) % FIELD.prime
        first.corrections[0, at] = second.corrections[0, at] = value


# strips begin with the column of four levels, whose line is: itself, three levels, two
# levels
LIES = {
    "a 2": (0, 0, 1),
    "a −1": (0, 0, -2),
    "a second one": (0, 1, 1),
    "a large number": (0, 2, 10**9),
    "a half": (0, 0, (FIELD.prime + 1) // 2),
    "another pair": (1, 1, 3),
}


@pytest.mark.parametrize("told", LIES.values(), ids=LIES)
def test_a_table_that_holds_anything_but_a_single_one_is_found_and_nobody_else_is_blamed(
    told: Any,
) -> None:
    codes = people(5)
    codes[0] = [0, 1, 2]
    first, second = both(codes)
    lie(first, second, *told)
    passed, total = together(first, second)
    assert passed.tolist() == [False, True, True, True, True]
    wrong = sum(
        int(np.abs(t - counted(codes, a, b, SIZES)).sum())
        for a, b, t in Cells(SIZES).tables(total)
    )
    assert wrong == abs(int(FIELD.signed(FIELD.numbers(np.array([told[2]])))))


def test_a_lie_that_takes_the_one_away_passes_since_it_is_an_empty_table() -> None:
    codes = people(2)
    first, second = both(codes)
    lie(first, second, 2, 0, -1)
    passed, total = together(first, second)
    assert passed.all()
    (lowest,) = [t for a, b, t in Cells(SIZES).tables(total) if a == b == 1]
    assert lowest.sum() == 1


@pytest.mark.parametrize("part", ["kappa", "a", "b", "c"])
def test_a_person_who_deals_wrong_numbers_fails_whatever_the_tables(part: str) -> None:
    first, second = both(people(3))
    getattr(first.dealt, part)[0, 2, 1] ^= 1
    passed, _ = together(first, second)
    assert passed.tolist() == [False, True, True]


def test_a_line_that_differs_where_nobody_is_is_found() -> None:
    codes = people(3)
    first, second = both(codes)
    other = Cells(SIZES).strips[0].level + (codes[0, 2] + 1) % 4
    first.bits[0, other] ^= True
    assert together(first, second)[0].tolist() == [False, True, True]


def test_whatever_is_dealt_a_wrong_table_passes_a_repetition_with_two_in_p_at_most():
    """All tables of two cells, all that can be dealt, all r, over a field of five
    numbers.
    """
    field = Field(5)
    numbers = np.arange(5, dtype=np.uint64)
    x0, x1, w0, w1, kappa, r0, r1 = (
        part.reshape(-1, 1, 1) for part in np.meshgrid(*[numbers] * 7, indexing="ij")
    )
    z = (r0 * x0 + r1 * x1) % np.uint64(5)
    y = (r0**2 * x0 + r1**2 * x1 + r0 * w0 + r1 * w1) % np.uint64(5)
    zero = np.zeros_like(z)
    good = ((x0 * x1 == 0) & (x0 <= 1) & (x1 <= 1)).ravel()
    passes: Counter[tuple[int, ...]] = Counter()
    # a and b move what is said of z and y by constants, which C, w and κ do as well: C
    # stands for all of them
    for constant in numbers:
        dealt = Dealt(kappa, zero, zero, np.full_like(z, constant))
        share = Share(True, dealt, *(np.empty((len(z), 0)),) * 4)  # type: ignore[arg-type]
        sigma = Sketch(Cells((1,)), COIN, field).judge(share, z, y).ravel()
        keys = np.stack([part.ravel() for part in (x0, x1, w0, w1, kappa)], axis=1)[
            (sigma == 0) & ~good
        ]
        for key, count in zip(
            *np.unique(keys, axis=0, return_counts=True), strict=True
        ):
            passes[(*key.tolist(), int(constant))] = count
    assert max(passes.values()) == 2 / 5 * 25
    assert (2 / FIELD.prime) ** REPEATS < 2**-60


@pytest.mark.parametrize(
    "departs", [True, False], ids=["the first departs", "the second departs"]
)
def test_what_an_aggregator_hears_has_one_law_whoever_the_person_is_and_whatever_it_says(
    departs: bool,
) -> None:
    """Exactly, over a field of three numbers: all that the other one may hold, all
    departures in Z and Y.
    """
    field = Field(3)
    numbers = np.arange(3, dtype=np.uint64)
    # the other's
    kappa, a, b = (
        part.reshape(-1, 1, 1) for part in np.meshgrid(*[numbers] * 3, indexing="ij")
    )
    rng = np.random.default_rng(0)
    three = np.uint64(3)
    r = np.array([1, 2], np.uint64)
    own_x, own_w = rng.integers(0, 3, (2, 2)).astype(np.uint64)
    own = [np.full_like(a, rng.integers(0, 3)) for _ in range(4)]
    sketch = Sketch(Cells((1,)), COIN, field)

    def heard(
        person: tuple[int, int], *departures: tuple[int, int]
    ) -> Counter[tuple[int, ...]]:
        whole = [
            (mine + theirs) % three
            for mine, theirs in zip(own, (kappa, a, b), strict=False)
        ]
        c = (
            whole[1] ** 2 + (three - whole[0]) * whole[1] + whole[2] + three - own[3]
        ) % three
        x = np.array(person, np.uint64)
        z_all = (r * x).sum()
        y_x = (r**2 * x).sum() + (r * x).sum() * whole[0]
        z = (z_all + three * three - (r * own_x).sum() % three + a) % three
        y = (
            y_x + three * three - ((r**2 * own_x).sum() + (r * own_w).sum()) % three + b
        ) % three
        said_z = ((r * own_x).sum() + own[1]) % three
        said_y = ((r**2 * own_x).sum() + (r * own_w).sum() + own[2]) % three
        share = Share(not departs, Dealt(kappa, a, b, c), *(np.empty((len(a), 0)),) * 4)  # type: ignore[arg-type]
        sigmas = [
            sketch.judge(
                share,
                (z + said_z + np.uint64(delta)) % three,
                (y + said_y + np.uint64(eta)) % three,
            )
            for delta, eta in departures
        ]
        return Counter(
            zip(*(part.ravel().tolist() for part in (z, y, *sigmas)), strict=True)
        )

    people = ((1, 0), (0, 1), (0, 0))
    for delta, eta in product(range(3), repeat=2):
        laws = [heard(person, (delta, eta)) for person in people]
        assert laws[0] == laws[1] == laws[2]
        assert len(laws[0]) == (27 if delta else 9)
        # an aggregator that is asked twice about one upload
        for again in product(range(3), repeat=2):
            laws = [heard(person, (delta, eta), again) for person in people]
            assert laws[0] == laws[1] == laws[2]


def test_the_two_shares_differ_in_one_line_of_each_column_and_hold_no_word_of_another():
    codes = people(40)
    first, second = both(codes)
    for strip in Cells(SIZES).strips:
        here = slice(strip.level, strip.level + strip.levels)
        differ = (first.seeds[:, here] != second.seeds[:, here]).any(axis=-1)
        assert np.array_equal(differ, first.bits[:, here] != second.bits[:, here])
        assert np.array_equal(differ.argmax(axis=1), codes[:, strip.column])
        assert (differ.sum(axis=1) == 1).all()
    assert len(np.unique(first.seeds[..., 0])) == 40 * 9


def test_what_either_gets_follows_no_level() -> None:
    """The same entropy for other levels: the second's 32 bytes are the same, and
    corrections are other everywhere.
    """
    cells, (one, other) = (
        Cells(SIZES),
        (people(1), (people(1) + 1) % np.array(SIZES, np.int32)),
    )
    shares = [
        split(cells, codes, entropy(1, cells, 1), FIELD) for codes in (one, other)
    ]
    assert np.array_equal(shares[0][2], shares[1][2])
    assert np.array_equal(shares[0][1], shares[1][1])
    assert (shares[0][0].corrections != shares[1][0].corrections).all()


def test_products_in_the_field_are_exact() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, FIELD.prime, (4, 1000))
    b = rng.integers(0, FIELD.prime, (1000, 3))
    a[0], b[:, 0] = FIELD.prime - 1, FIELD.prime - 1
    exact = (a.astype(object) @ b.astype(object)) % FIELD.prime
    assert np.array_equal(
        FIELD.dot(a.astype(np.uint32), b.astype(np.uint64)).astype(object), exact
    )
    with pytest.raises(ConfigError, match="longer than"):
        FIELD.dot(
            np.zeros((1, 2**21 + 1), np.uint32), np.zeros((2**21 + 1, 1), np.uint32)
        )


def test_numbers_of_a_seed_leave_out_what_does_not_fit_the_prime_evenly() -> None:
    words = keystream(COIN, 5 << 64, 4000).view("<u4").astype(np.int64)
    fits = words[words < 2**31 + 11]
    assert np.array_equal(Field(2**31 + 11).uniform(COIN, 5, 300), fits[:300])
    assert len(fits) < len(words)


def test_signed_numbers_come_back() -> None:
    values = np.array([0, 1, -1, 2**31 - 3, -(2**31) + 3])
    assert FIELD.signed(FIELD.numbers(values)).tolist() == values.tolist()


@pytest.mark.parametrize("prime", [2, 9, 2**32 - 1, 2**32 + 15])
def test_only_odd_primes_below_2_to_the_32_are_fields(prime: int) -> None:
    with pytest.raises(ConfigError, match="prime"):
        Field(prime)


def test_an_envelope_opens_for_its_key_and_context_alone() -> None:
    pair = KeyPair(bytes(range(32)))
    sealed = seal(pair.public, b"data", b"run 1", bytes(range(1, 33)))
    assert unseal(pair, sealed, b"run 1") == b"data"
    changed = [
        sealed[:-1] + bytes([sealed[-1] ^ 1]),
        bytes(32) + sealed[32:],
        sealed[:20],
        b"",
    ]
    for wrong, context, key in [
        (sealed, b"run 2", pair),
        (sealed, b"run 1", KeyPair(bytes(32))),
        *((one, b"run 1", pair) for one in changed),
    ]:
        with pytest.raises(MessageError):
            unseal(key, wrong, context)
