"""Gradient descent of many clients in the span of their own rows.

A gradient of a linear input layer is δᵀX, with X the client's rows and δ the gradient at their
pre-activations. After any number of full-batch steps the layer has therefore moved by ΔW = AᵀX, where A
(rows × hidden) sums the steps −η·δ. So the epochs need neither the weights nor the features: the
pre-activations are Z = X·W₀ᵀ + b₀ + (XXᵀ + 1)·A, with one product X·W₀ᵀ for all clients, a small Gram matrix
for each, and the 1 for the bias, which is the weight of a constant feature: Δb = Aᵀ1. The dense ΔW is
written once, at the end.

This is exact for plain gradient descent. Adam scales each weight's step by its own history and leaves the
span.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from understudy.models.cohort.client_axis import times_transposed


def descend_in_span(
    loss: Callable[[Tensor, Tensor], Tensor],
    start: Tensor,
    x: Tensor,
    out: Tensor,
    hidden: int,
    epochs: int,
    lr: float,
) -> None:
    """Write every client's update after `epochs` steps of gradient descent into `out` (clients, d).

    `start` begins with the input layer's weight (hidden, features) and bias (hidden,); `x` is (clients, rows,
    features). `loss(tail, z)` is each client's loss (clients,), from the flat parameters (clients, …) behind
    the input layer and that layer's pre-activations z (clients, rows, hidden).
    """
    clients, _, features = x.shape
    weight, bias, behind = torch.split(
        start, [hidden * features, hidden, len(start) - hidden * (features + 1)]
    )
    z0 = functional.linear(x, weight.view(hidden, features), bias)  # (clients, rows, hidden)
    gram = times_transposed(x, x) + 1  # (clients, rows, rows)
    a = torch.zeros_like(z0)
    tail = behind.repeat(clients, 1).requires_grad_()
    for _ in range(epochs):
        z = torch.baddbmm(z0, gram, a).requires_grad_()
        with torch.enable_grad():
            total = loss(tail, z).sum()
        to_z, to_tail = torch.autograd.grad(total, (z, tail), materialize_grads=True)
        a.sub_(to_z, alpha=lr)
        tail.data.sub_(to_tail, alpha=lr)
    to_weight, to_bias, to_behind = torch.split(out, [len(weight), len(bias), len(behind)], dim=1)
    torch.bmm(a.mT, x, out=to_weight.view(clients, hidden, features))
    torch.sum(a, dim=1, out=to_bias)
    torch.sub(tail.detach(), behind, out=to_behind)
