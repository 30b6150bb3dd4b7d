"""What people count in a critic step, by GPU kernels: the same as by tensor operations.

Needs a GPU with Triton. Without one, TRITON_INTERPRET=1 runs the kernels on a CPU where
the package triton is there.
"""

import itertools
import math
import os

import pytest
import torch

from understudy.privacy.gradients import critic, critic_kernel

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

pytestmark = [
    pytest.mark.skipif(
        critic_kernel.triton is None or not (INTERPRETED or torch.cuda.is_available()),
        reason="no GPU with Triton",
    ),
    # the interpreter's, where a number overflows
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

Scales = critic_kernel.Scales
Factors = tuple[list[torch.Tensor], list[torch.Tensor]]


def factors(sizes: tuple[int, ...], batch: int, near: bool, seed: int = 0) -> Factors:
    """Of a random critic; `near`: fake rows are nearly real ones, so that gradients
    cancel.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    layers = [
        (normal(o, i) / math.sqrt(i), normal(o)) for i, o in itertools.pairwise(sizes)
    ]
    real = normal(batch, sizes[0])
    fake = real + 1e-4 * normal(batch, sizes[0]) if near else normal(batch, sizes[0])
    mix = torch.rand(batch, generator=generator)
    on = [(weight.to(DEVICE), bias.to(DEVICE)) for weight, bias in layers]
    return critic._factors(on, real.to(DEVICE), fake.to(DEVICE), mix.to(DEVICE), 0.2)


def lengths(
    lefts: list[torch.Tensor], rights: list[torch.Tensor], scales: torch.Tensor
) -> torch.Tensor:
    """Each person's part of the clipped sum, in L2, by float64: (batch,)."""
    square = torch.zeros(scales.shape[1], dtype=torch.float64, device=scales.device)
    for left, right in zip(lefts, rights, strict=True):
        scaled = left.double() * scales.double()[..., None]
        weights = torch.einsum("kbo,kbi->boi", scaled, right.double())
        square += weights.square().sum((1, 2)) + scaled[:2].sum(0).square().sum(1)
    return square.sqrt()


@pytest.mark.parametrize(
    "sizes", [(300, 17, 1), (5, 3, 1), (13, 600, 8, 1), (4, 1), (9000, 20, 1)]
)
@pytest.mark.parametrize("clip_norm", [1.0, math.inf, 1e-3])
@pytest.mark.parametrize("penalty", [10.0, 0.0])
def test_kernels_weigh_people_as_tensor_operations_do(
    sizes: tuple[int, ...], clip_norm: float, penalty: float
) -> None:
    lefts, rights = factors(sizes, 33, near=False)
    expected = critic._scales(lefts, rights, penalty, clip_norm)
    torch.testing.assert_close(
        critic_kernel.scales(lefts, rights, penalty, clip_norm),
        expected,
        rtol=1e-4,
        atol=1e-7,
    )


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("penalty", [10.0, 0.0])
def test_nobodys_gradient_is_longer_than_the_clip_norm(
    near: bool, penalty: float
) -> None:
    lefts, rights = factors((300, 17, 1), 200, near)
    scales = critic_kernel.scales(lefts, rights, penalty, 1e-3).double()
    norms = lengths(lefts, rights, scales)
    assert float(norms.max()) <= 1e-3 * (1 + 1e-7)


def test_a_gradient_that_overflows_counts_for_nothing() -> None:
    lefts = [torch.tensor([[[3e30]], [[1.0]], [[1.0]]], device=DEVICE)]
    rights = [torch.tensor([[[3e30]], [[math.inf]], [[1.0]]], device=DEVICE)]
    assert not critic_kernel.scales(lefts, rights, 1.0, 1.0).any()


@pytest.mark.parametrize("weigh", [critic_kernel.scales, critic._scales])
@pytest.mark.parametrize("small", [1e-45, 1e-38, 1e-30, 1e-24, 1e-20, 1e-12, 1.0, 1e8])
@pytest.mark.parametrize("penalty", [1e6, 0.0])
def test_no_size_of_factors_switches_clipping_off(
    weigh: Scales, small: float, penalty: float
) -> None:
    lefts, rights = factors((30, 7, 1), 9, near=False)
    for parts in ((lefts[:1], rights[1:]), (rights[:1], lefts[1:]), (lefts, rights)):
        for part in (*parts[0], *parts[1]):
            part.mul_(small)
        scales = weigh(lefts, rights, penalty, 1e-6)
        assert bool(scales.isfinite().all())
        assert float(lengths(lefts, rights, scales).max()) <= 1e-6 * (1 + 1e-5)


def test_no_people_no_scales() -> None:
    lefts, rights = factors((5, 3, 1), 0, near=False)
    assert critic_kernel.scales(lefts, rights, 1.0, 1.0).shape == (3, 0)
