"""What an enemy sends and holds, and what must hold of a sum in spite of it: for
whatever claims a bound.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

SIZES = (
    0.0,
    1e-45,
    1e-40,
    2e-38,
    1e-30,
    1e-24,
    1e-19,
    1e-12,
    1e-6,
    1e-3,
    1.0,
    30.0,
    1e6,
    1e9,
    1e12,
    1e18,
    1e19,
    1e30,
    3e38,
)
SPOILT = (math.nan, math.inf, -math.inf, 3.4e38, -3.4e38, 1e-45, 0.0)
LARGEST = float(np.finfo(np.float32).max)

bounded = settings(max_examples=40, deadline=None, derandomize=True, database=None)


@st.composite
def tensors(draw: st.DrawFn, *shape: int, sizes: tuple[float, ...] = SIZES) -> Tensor:
    """Float32 numbers of one size, or each of another, with a few spoilt ones among
    them.
    """
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    chosen: float | np.ndarray = draw(st.sampled_from(sizes))
    if draw(st.booleans()):
        chosen = rng.choice(np.asarray(sizes), shape)
    values = np.clip(rng.uniform(-1, 1, shape) * chosen, -LARGEST, LARGEST).astype(
        np.float32
    )
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2))) if values.size else 0):
        values.flat[draw(st.integers(0, values.size - 1))] = np.float32(
            draw(st.sampled_from(SPOILT))
        )
    return torch.from_numpy(values)


def flat(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """All of it as one vector of float64."""
    return torch.cat([part.detach().flatten().double() for part in parts])


def masks(people: int) -> Tensor:
    """Everybody, and everybody but each one in turn: (1 + people, people)."""
    return torch.cat([torch.ones(1, people), 1 - torch.eye(people)])


def assert_bounded(
    total: Callable[[Tensor], list[Tensor]],
    people: int,
    bound: float,
    *,
    slack: float = 1e-4,
) -> None:
    """`total` of a mask over people is finite, and moves by at most `bound` in L2 when
    any one of them leaves.
    """
    assert_moves(
        torch.stack([flat(total(mask)) for mask in masks(people)]), bound, slack
    )


def assert_moves(sums: Tensor, bound: float, slack: float = 1e-4) -> None:
    """The same of the sums of all `masks`, each flat: (1 + people, numbers)."""
    assert bool(sums[0].isfinite().all()), "the sum is not finite"
    for person, moved in enumerate((sums[0] - sums[1:]).norm(dim=1).tolist()):
        assert moved <= bound * (1 + slack), (
            f"person {person} moved the sum by {moved}, and {bound} is promised"
        )
