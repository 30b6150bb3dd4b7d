"""Products of small matrices, one pair per client, in layouts that a CPU multiplies fast.

Every tensor has a leading client axis: client c's rows meet client c's weights and no others.
"""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_MKL = bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]


def times_transposed(a: Tensor, b: Tensor) -> Tensor:
    """a·bᵀ for every client: (clients, m, k), (clients, n, k) → (clients, m, n).

    PyTorch on aarch64 hands a product of a plain with a transposed matrix to oneDNN, whose set-up of some
    55 µs is ten times the work of a client's few rows. Both plain or both transposed stay in BLAS, so the
    smaller of the two is laid out anew.
    """
    if a.numel() < b.numel():
        return torch.bmm(a.mT.contiguous().mT, b.mT)
    return torch.bmm(a, b.mT.contiguous())


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a·b for every client, into `out`: (clients, m, k), (clients, k, n) → (clients, m, n). No gradient.

    Without MKL, PyTorch's `bmm` unpacks and dispatches client by client; NumPy walks them in C.
    """
    if a.device.type == "cpu" and not _MKL:
        np.matmul(a.numpy(), b.numpy(), out=out.numpy())
        return out
    return torch.bmm(a, b, out=out)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·Wᵀ + b: `torch.nn.functional.linear` for every client, or for one model without the client axis."""
    if weight.ndim == 2:
        return functional.linear(x, weight, bias)
    return cast(Tensor, _Linear.apply(x, weight)) + bias.unsqueeze(-2)  # type: ignore[no-untyped-call]


class _Linear(torch.autograd.Function):
    """x·Wᵀ whose backward pass also avoids the slow layout, and forms the weights' gradient as they lie."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return times_transposed(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        needs_x, needs_weight = ctx.needs_input_grad
        return (
            torch.bmm(grad, weight) if needs_x else None,
            torch.bmm(grad.mT, x) if needs_weight else None,
        )
