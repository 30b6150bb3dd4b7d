"""Classes, vectors and second moments in two shares: they add up, and whoever would
count for more is found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from understudy.ground.errors import ConfigError
from understudy.privacy.secure.moment_shares import (
    RANDOMNESS,
    MomentShare,
    Vectors,
    second_moments,
    split_moments,
)
from understudy.privacy.secure.ring import Field
from understudy.privacy.secure.sketch import MomentSketch
from understudy.privacy.secure.table_shares import REPEATS, Dealt

FIELD = Field()
COIN = bytes(range(32))
Whole = NDArray[np.int64]


def entropy(n: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random bytes that a test can repeat."""
    return np.random.default_rng(seed).integers(0, 256, (n, RANDOMNESS), dtype=np.uint8)


def people(vectors: Vectors, n: int, seed: int = 0) -> tuple[Whole, Whole]:
    """Classes, and vectors of which the first are as long as they may be, to either
    side.
    """
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(n, vectors.features))
    q = np.trunc(q * vectors.radius / np.linalg.norm(q, axis=1, keepdims=True)).astype(
        np.int64
    )
    for place, first in enumerate((vectors.radius, -vectors.radius, 0)):
        if place < n:
            q[place], q[place, 0] = 0, first
    return rng.integers(0, vectors.classes, n), q


def both(
    vectors: Vectors, classes: Whole, q: Whole, field: Field = FIELD
) -> tuple[MomentShare, MomentShare]:
    first, _, _, seconds = split_moments(vectors, classes, q, entropy(len(q)), field)
    return first, second_moments(vectors, seconds, field)


def together(
    vectors: Vectors,
    first: MomentShare,
    second: MomentShare,
    field: Field = FIELD,
    coin: bytes = COIN,
) -> Any:
    """Who passes, and the sum over all."""
    sketch = MomentSketch(vectors, coin, field)
    prime = np.uint64(field.prime)
    (z1, y1, sum1), (z2, y2, sum2) = (sketch.look(share) for share in (first, second))
    z = (z1 + z2) % prime
    y = (y1 + y2) % prime
    passed = sketch.passed(sketch.judge(first, z, y), sketch.judge(second, z, y))
    return passed, field.signed((sum1 + sum2) % prime).numpy()


@settings(max_examples=20, deadline=None)
@given(
    classes=st.integers(1, 4),
    features=st.integers(1, 5),
    bits=st.integers(3, 9),
    by_class=st.booleans(),
    n=st.integers(0, 70),
    seed=st.integers(0, 2**32),
)
def test_honest_people_always_pass_and_the_shares_add_up(
    classes: int, features: int, bits: int, by_class: bool, n: int, seed: int
) -> None:
    vectors = Vectors(classes, features, bits, by_class)
    own, q = people(vectors, n, seed)
    passed, total = together(vectors, *both(vectors, own, q))
    assert passed.shape == (n,)
    assert passed.all()
    lines = np.zeros((classes, features, features), np.int64)
    for line, row in zip(own, q, strict=True):
        lines[line] += np.outer(row, row)
    counts, means, moments = np.split(total, np.cumsum([classes, classes * features]))
    assert np.array_equal(counts, np.bincount(own, minlength=classes))
    due = np.array([q[own == line].sum(0) for line in range(classes)])
    assert np.array_equal(means.reshape(classes, features), due)
    upper = np.triu_indices(features)
    expected = lines if by_class else lines.sum(0, keepdims=True)
    assert np.array_equal(moments, expected[:, upper[0], upper[1]].ravel())


# People who lie: the first of five, as well as whoever deals κ and chooses every bit
# can


@dataclass(frozen=True)
class Lying(Vectors):
    """The first person's upload is `told` of the honest one's counted words and bits;
    its κ go with that.
    """

    told: Callable[["Lying", Any, Any], None] = lambda self, counted, bits: None

    def counted(self, classes: Whole, q: Whole) -> Whole:
        words = super().counted(classes, q)
        self.told(self, words[0], np.zeros(self.all_bits, np.int64))
        return words

    def bits_of(self, q: Whole) -> Whole:
        bits = super().bits_of(q)
        self.told(self, np.zeros(self.count, np.int64), bits[0])
        return bits

    def line(self, number: int) -> slice:
        """Of the class, among the means."""
        return slice(
            self.classes + number * self.features,
            self.classes + (number + 1) * self.features,
        )

    @property
    def moments(self) -> int:
        return self.classes * (1 + self.features)


def root(square: int) -> int:
    """A large number whose square is that small one, modulo the prime, which is 3
    modulo 4.
    """
    found = pow(square, (FIELD.prime + 1) // 4, FIELD.prime)
    assert found**2 % FIELD.prime == square, "no square"
    assert math.isqrt(square) ** 2 != square
    return found


def vector(*q: int) -> Callable[[Lying, Any, Any], None]:
    """The same person with this vector, and bits as far as it has them."""

    def told(self: Lying, counted: Any, bits: Any) -> None:
        plain = Vectors(self.classes, self.features, self.bits, self.by_class)
        with np.errstate(over="ignore"):
            counted[:] = plain.counted(np.array([1]), np.array([q]))[0] % FIELD.prime
            bits[:] = plain.bits_of(np.array([q]))[0]

    return told


def second_class(self: Lying, counted: Any, bits: Any) -> None:
    counted[0], counted[self.line(0)] = 1, counted[self.line(1)]
    if self.by_class:
        size = self.triangle
        counted[self.moments : self.moments + size] = counted[
            self.moments + size : self.moments + 2 * size
        ]


def weight(number: int) -> Callable[[Lying, Any, Any], None]:
    def told(self: Lying, counted: Any, bits: Any) -> None:
        counted[1] = number
        counted[self.line(1)] *= number

    return told


def adds(place: Callable[[Lying], int], by: int) -> Callable[[Lying, Any, Any], None]:
    def told(self: Lying, counted: Any, bits: Any) -> None:
        counted[place(self)] += by

    return told


def bit(place: int, value: int) -> Callable[[Lying, Any, Any], None]:
    def told(self: Lying, counted: Any, bits: Any) -> None:
        bits[place] = value

    return told


LIES = {
    "a vector that is a little too long": vector(7, 1, 0),
    "a vector that is far too long": vector(1000, -1000, 50),
    "an entry below its range": vector(-9, 0, 0),
    "an entry that wraps around to a short one": vector(root(5), 0, 0),
    "two entries whose squares wrap around": vector(root(5), root(7), 1),
    "a second class": second_class,
    "a class that counts twice": weight(2),
    "a class that counts less than nothing": weight(-1),
    "a class and a half": weight((FIELD.prime + 3) // 2),
    "another mean than the moments have": adds(lambda self: self.line(1).start, 1),
    "a mean in another class": adds(lambda self: self.line(2).start + 1, 1),
    "a class without a vector, beside the own": adds(lambda self: 2, 1),
    "more on the diagonal": adds(lambda self: self.moments, 1),
    "a moment of two entries": adds(lambda self: self.count - 2, -(10**9)),
    "a bit that is 2": bit(-1, 2),
    "a bit that is −1": bit(5, -1),
    "a bit that is a half": bit(2, (FIELD.prime + 1) // 2),
}


@pytest.mark.parametrize("by_class", [False, True], ids=["pooled", "by class"])
@pytest.mark.parametrize("lie", LIES)
def test_who_counts_for_more_than_a_person_is_found_and_nobody_else_is_blamed(
    lie: str, by_class: bool
) -> None:
    vectors = Lying(3, 3, 4, by_class, LIES[lie])
    classes, q = people(vectors, 5)
    classes[0], q[0] = 1, [3, -2, 1]
    honest = Vectors(3, 3, 4, by_class)
    first, _, _, seconds = split_moments(vectors, classes, q, entropy(5))
    passed, _ = together(honest, first, second_moments(honest, seconds))
    assert passed.tolist() == [False, True, True, True, True]


def test_who_takes_the_class_away_with_everything_else_passes_and_adds_nothing():
    def nothing(self: Lying, counted: Any, bits: Any) -> None:
        counted[:] = 0
        bits[:] = Vectors(2, 2, 4).bits_of(np.zeros((1, 2), np.int64))[0]

    vectors = Lying(2, 2, 4, False, nothing)
    first, _, _, seconds = split_moments(
        vectors, np.array([1]), np.array([[3, 2]]), entropy(1)
    )
    passed, total = together(Vectors(2, 2, 4), first, second_moments(vectors, seconds))
    assert passed.all()
    assert not total.any()


def test_over_a_small_field_lies_pass_as_seldom_as_is_promised() -> None:
    """2/37 in each of two repetitions: of 360 trials one, where one repetition alone
    would let some twenty pass.
    """
    field = Field(37)
    honest = Vectors(2, 1, 3)
    lies = (
        lambda self, counted, bits: None,
        weight(2),
        adds(lambda self: self.count - 1, 1),
        bit(5, 2),
    )
    pairs = []
    for told in lies:
        vectors = Lying(2, 1, 3, False, told)
        first, _, _, seconds = split_moments(
            vectors, np.array([1]), np.array([[1]]), entropy(1), field
        )
        pairs.append((first, second_moments(honest, seconds, field)))
    sides = [
        MomentShare(
            not side,
            Dealt(
                *map(
                    np.concatenate,
                    zip(*(pair[side].dealt for pair in pairs), strict=True),
                )
            ),
            np.concatenate([pair[side].words for pair in pairs]),
        )
        for side in (0, 1)
    ]
    passed = [
        together(honest, sides[0], sides[1], field, n.to_bytes(32, "big"))[0]
        for n in range(120)
    ]
    often = np.sum(passed, axis=0)
    assert often[0] == 120
    assert often[1:].sum() <= 6
    assert (2 / FIELD.prime) ** REPEATS < 2**-60


@pytest.mark.parametrize("part", ["kappa", "a", "b", "c"])
def test_a_person_who_deals_wrong_numbers_fails_whatever_the_vector(part: str) -> None:
    vectors = Vectors(2, 3, 4)
    first, second = both(vectors, *people(vectors, 3))
    getattr(first.dealt, part)[0, 2, 1] ^= 1
    assert together(vectors, first, second)[0].tolist() == [False, True, True]


def test_what_either_gets_follows_no_row() -> None:
    """The same entropy for other rows: the second's bytes are the same, and the first's
    words are uniform.
    """
    vectors = Vectors(2, 3, 4)
    shares = [
        split_moments(vectors, np.array([one]), np.array([[one, 3, -2]]), entropy(1))
        for one in (0, 1)
    ]
    for kept in (1, 2, 3):
        assert np.array_equal(shares[0][kept], shares[1][kept])
    assert not np.array_equal(shares[0][0].words, shares[1][0].words)
    alike = np.tile([[7, 0, 0]], (1500, 1))
    first, *_ = split_moments(vectors, np.zeros(1500, np.int64), alike, entropy(1500))
    means = first.words.astype(np.float64).mean(0) / FIELD.prime
    assert np.abs(means - 0.5).max() < 5 / math.sqrt(12 * 1500)


def test_an_aggregator_that_says_another_z_fails_everybody_alike() -> None:
    vectors = Vectors(2, 3, 4)
    prime = np.uint64(FIELD.prime)
    first, second = both(vectors, *people(vectors, 40))
    sketch = MomentSketch(vectors, COIN)
    (z1, y1, _), (z2, y2, _) = sketch.look(first), sketch.look(second)
    z = (z1 + z2 + np.uint64(1)) % prime
    y = (y1 + y2) % prime
    sigma = (sketch.judge(first, z, y) + sketch.judge(second, z, y)) % prime
    assert len(np.unique(sigma)) == sigma.size, "uniform by κ, which neither has"


def test_an_upload_is_short() -> None:
    """Ten classes: 20 kB for pooled moments of 64 features, 43 kB for those of each
    class in 40.
    """
    assert 4 * Vectors(10, 64, 7).words == 19_532
    assert 4 * Vectors(10, 40, 7, by_class=True).words == 42_812


@pytest.mark.parametrize(
    "wrong", [(0, 1, 4), (1, 0, 4), (1, 1, 2), (1, 1, 10), (1000, 1000, 7)]
)
def test_layouts_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        Vectors(*wrong)
