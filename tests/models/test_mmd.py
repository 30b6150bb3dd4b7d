"""The kernel distance between latent points and the prior: the printed formula, for
every client by itself.
"""

import pytest
import torch
from scripted import mmd
from torch import Tensor
from torch.autograd import gradcheck

from understudy.models.kernels.autoencoders import Mmd


def printed(q: Tensor, p: Tensor) -> Tensor:
    """Eq. 4.4, pair by pair."""
    n = len(q)
    kappa = 2 * q.shape[1]

    def k(x: Tensor, y: Tensor) -> Tensor:
        return kappa / (kappa + ((x - y) ** 2).sum())

    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    own = sum(
        (k(p[i], p[j]) + k(q[i], q[j]) for i, j in pairs),
        torch.zeros((), dtype=q.dtype),
    )
    cross = sum(
        (k(p[i], q[j]) for i in range(n) for j in range(n)),
        torch.zeros((), dtype=q.dtype),
    )
    return own / max(1, n * (n - 1)) - 2 * cross / n**2


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_it_is_the_printed_formula_for_every_client(rows: int) -> None:
    q = draw(4, rows, 3)
    p = draw(4, rows, 3, seed=1)
    wanted = torch.stack([printed(*client) for client in zip(q, p, strict=True)])
    torch.testing.assert_close(mmd(q, p), wanted)


def test_a_masked_row_reaches_neither_the_distance_nor_its_gradient() -> None:
    q = draw(3, 4, 2).requires_grad_()
    p = draw(3, 4, 2, seed=1)
    sizes = [4, 2, 0]
    mask = torch.arange(4) < torch.tensor(sizes)[:, None]
    distance = mmd(q, p, mask)
    wanted = [printed(q[i, :n], p[i, :n]) for i, n in enumerate(sizes[:2])]
    torch.testing.assert_close(
        distance, torch.stack([*wanted, torch.zeros((), dtype=q.dtype)])
    )
    (gradient,) = torch.autograd.grad(distance.sum(), q)
    assert gradient.any(2).tolist() == mask.tolist()


def test_its_gradient_is_the_numerical_one() -> None:
    mask = torch.arange(3) < torch.tensor([3, 2])[:, None]
    assert gradcheck(mmd, (draw(2, 3, 2).requires_grad_(), draw(2, 3, 2, seed=1), mask))


def test_the_gradient_in_closed_form_is_that_of_the_distance() -> None:
    mask = torch.arange(4) < torch.tensor([4, 3, 1, 0])[:, None]
    q = draw(4, 4, 3).requires_grad_()
    p = draw(4, 4, 3, seed=1)
    (gradient,) = torch.autograd.grad(mmd(q, p, mask).sum(), q)
    torch.testing.assert_close(Mmd(mask.double(), 3).gradient(q.detach(), p), gradient)


def test_it_is_about_zero_between_samples_of_one_law_and_grows_with_the_shift() -> None:
    q = draw(200, 8, 4)
    p = draw(200, 8, 4, seed=1)
    near, far, further = (float(mmd(q + shift, p).mean()) for shift in (0.0, 0.5, 1.0))
    assert abs(near) < 0.01 < far < further
