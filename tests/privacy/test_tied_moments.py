"""Second moments over several holders' vectors: what one person moves, over all blocks
at once, is what is paid for.
"""

import math
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from understudy.data.encoding.frame import on_diagonal, packed
from understudy.privacy.secure.counts import one_hot
from understudy.privacy.secure.moments import (
    block_multipliers,
    bounded,
    one_for,
    sensitivity,
    squares,
    triangle,
)
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import Dealer, Factor

ANY = st.floats(width=64, allow_nan=True, allow_infinity=True)


def moved(vectors: list[Any], sigmas: dict[tuple[int, int], float]) -> float:
    """By how much one person with these vectors moves all blocks, each in terms of its
    own noise: the L2 norm.
    """
    total = 0.0
    for h, k in sigmas:
        outer = [[int(a) * int(b) for b in vectors[k]] for a in vectors[h]]
        for i, row in enumerate(outer):
            for j, cell in enumerate(row):
                if h != k:
                    total += (cell / sigmas[h, k]) ** 2
                elif i <= j:
                    total += (cell / sigmas[h, k]) ** 2 / (2 if i == j else 1)
    return math.sqrt(total)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(arrays(np.float64, 3, elements=ANY), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), max_size=2),
    ANY,
    st.sampled_from([2, 8, 45, 181]),
    st.lists(st.floats(0.01, 1), min_size=15, max_size=15),
)
def test_a_person_moves_all_blocks_together_by_one_over_the_multiplier(
    rows: Any, codes: Any, radius: float, scale: int, weights: list[float]
) -> None:
    """Whatever the rows hold and whatever radius a server asks for: exact, in Python's
    whole numbers.
    """
    with np.errstate(all="ignore"):
        vectors = [bounded(row[None], radius, scale)[0] for row in rows]
    one = one_for(scale, 2)
    vectors += [
        one * one_hot(np.array([own]), (3, 3))[0].astype(float) for own in codes
    ]
    blocks = list(combinations_with_replacement(range(len(vectors)), 2))
    each = block_multipliers(2.5, dict(zip(blocks, weights, strict=False)))
    sigmas = {(h, k): each[h, k] * sensitivity(scale, across=h != k) for h, k in blocks}
    assert moved(vectors, sigmas) <= 1 / 2.5


def test_the_reach_is_reached_by_vectors_of_full_length() -> None:
    vectors = [np.array([181.0, 0]), np.array([0, 0, -181.0])]
    blocks = [(0, 0), (0, 1), (1, 1)]
    each = block_multipliers(1.0, dict.fromkeys(blocks, 1.0))
    sigmas = {(h, k): each[h, k] * sensitivity(181, across=h != k) for h, k in blocks}
    assert moved(vectors, sigmas) == pytest.approx(1.0, abs=1e-9)


def test_by_class_a_person_moves_one_triangle_alone() -> None:
    """The product of the triangle's vector with a one-hot class: its length is that of
    one triangle.
    """
    w = bounded(np.random.default_rng(0).normal(size=(1, 4)), 1.0, 181)
    cells = np.outer(squares(w)[0], one_hot(np.array([[2]]), (5,))[0])
    weights = np.where(on_diagonal(4).numpy(), 0.5, 1.0)[:, None]
    assert math.sqrt((cells**2 * weights).sum()) <= sensitivity(181, across=False)
    assert (cells[:, [0, 1, 3, 4]] == 0).all()


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 50, 2000])
@pytest.mark.parametrize("scale", [181, 64, 8])
def test_a_row_of_levels_is_no_longer_than_the_scale(columns: int, scale: int) -> None:
    assert columns * one_for(scale, columns) ** 2 <= scale**2


def test_a_triangle_is_the_sum_over_people_of_their_own() -> None:
    rows = np.random.default_rng(1).integers(-180, 181, (9000, 3)).astype(np.float64)
    assert torch.equal(
        triangle(rows), packed(torch.from_numpy((rows.T @ rows).astype(np.int64)))
    )
    assert torch.equal(
        triangle(rows), torch.from_numpy(squares(rows).sum(0).astype(np.int64))
    )


@pytest.mark.parametrize("bits", [32, 64])
def test_products_of_signed_whole_numbers_are_exact(bits: int) -> None:
    """Shares of two holders add up to XᵀY, negative numbers included."""
    rng = np.random.default_rng(2)
    ring = Ring(bits)
    x = rng.integers(-181, 182, (70, 3))
    y = rng.integers(-181, 182, (70, 2))
    dealer = Dealer(ring, (3, 2))
    first, second = (
        Factor(ring, seed, first=place == 0, width=own, peer_width=other)
        for place, (seed, own, other) in enumerate(
            zip(dealer.seeds, (3, 2), (2, 3), strict=True)
        )
    )
    for at in (slice(0, 40), slice(40, 70)):
        a = ring.words(x[at])
        b = ring.words(y[at])
        dealer.deal(len(a))
        sent = first.mask(a), second.mask(b)
        first.take(sent[1], a)
        second.take(sent[0], b)
    total = ring.signed(first.share() + second.share(dealer.correction()))
    assert torch.equal(total, torch.from_numpy(x.T @ y))
