"""Adam for the table autoencoders of many clients, with the gradient in closed form.

The network has two dense layers on each side of the latent one, so its gradient is eight short products. Written out,
it needs no tape, and every product is written where the optimiser reads it.

What a slot that is 0 in all of a client's rows feeds into has a gradient of exactly 0 at every step, and Adam leaves
such a weight exactly where it is. Of the input layer only as many columns as a client's rows can touch are therefore
trained: with two rows of 14 columns 28 of Adult's 140. They are gathered once, and their change is put back once.
"""

import torch
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.models.adam import Adam
from understudy.models.cohort.client_axis import product
from understudy.models.cohort.flat import read
from understudy.models.nets.mmd import Mmd


def descend_by_hand(
    start: Tensor,
    batch: tuple[Tensor, ...],
    out: Tensor,
    hidden: int,
    latent: int,
    epochs: int,
    lr: float,
    penalty: float,
    touched: int,
) -> None:
    """Write every client's update after `epochs` steps of Adam into `out` (clients, d).

    `batch` is x (clients, rows, width), real (clients, rows) and prior (clients, epochs, rows, latent); a row has at
    most `touched` slots that are not 0.
    Guarantee: all shapes follow from those of `batch` and from `touched`.
    """
    x, real, prior = batch
    clients, _, width = x.shape
    share = (real / real.sum(1, keepdim=True).clamp(min=1) / width)[:, :, None]
    columns = _touched(x, x.shape[1] * touched)
    few = columns.shape[1]
    seen = x.gather(2, columns[:, None].expand(-1, x.shape[1], -1))  # (clients, rows, few)
    first = start[: hidden * width].view(hidden, width).T[columns]  # (clients, few, hidden)
    behind = start[hidden * width :]
    local = torch.cat([first.flatten(1), behind.expand(clients, -1)], 1)
    shapes = ((few, hidden), (hidden,), (latent, hidden), (latent,), (hidden, latent), (hidden,), (width, hidden),
              (width,))  # fmt: skip
    w1, b1, w2, b2, w3, b3, w4, b4 = read(local, shapes)
    grad = torch.empty_like(local)
    to_w1, to_b1, to_w2, to_b2, to_w3, to_b3, to_w4, to_b4 = read(grad, shapes)
    far = Mmd(real, latent)
    adam = Adam([local], lr)
    h, to_h, g, to_g = (x.new_empty(*x.shape[:2], hidden) for _ in range(4))  # (clients, rows, hidden)
    z, to_z = (x.new_empty(*x.shape[:2], latent) for _ in range(2))  # (clients, rows, latent)
    to_out = torch.empty_like(x)
    for epoch in range(epochs):
        product(seen, w1, h).add_(b1[:, None]).relu_()
        product(h, w2.mT, z).add_(b2[:, None])
        product(z, w3.mT, g).add_(b3[:, None]).relu_()
        product(g, w4.mT, to_out).add_(b4[:, None]).sigmoid_().sub_(x).mul_(share)  # of the cross-entropy
        _write(to_out, g, to_w4, to_b4)
        _write(product(to_out, w4, to_g).mul_(g > 0), z, to_w3, to_b3)
        product(to_g, w3, to_z).add_(far.gradient(z, prior[:, epoch]), alpha=penalty)
        _write(to_z, h, to_w2, to_b2)
        product(to_z, w2, to_h).mul_(h > 0)
        product(seen.mT, to_h, to_w1)
        torch.sum(to_h, 1, out=to_b1)
        adam.step([grad])
    to_first, to_behind = torch.split(out, [hidden * width, len(behind)], dim=1)
    torch.sub(local[:, few * hidden :], behind, out=to_behind)
    to_first.zero_()
    places = columns[:, None].expand(-1, hidden, -1)
    to_first.view(clients, hidden, width).scatter_(2, places, (w1 - first).mT)


def _touched(x: Tensor, most: int) -> Tensor:
    """For each client columns (clients, few) with all in it that its rows touch; on a GPU all, so that none waits.

    Their number is public: how many columns a client really touches shows in the shape of nobody's training.
    """
    clients, _, width = x.shape
    if x.device.type == "cuda" or most >= width:
        return torch.arange(width, device=x.device).expand(clients, width)
    touched = (x != 0).any(1)
    if int(touched.sum(1).max()) > most:
        raise ConfigError("a row touches more slots than its columns have. Nothing was trained.")
    return touched.byte().argsort(dim=1, descending=True, stable=True)[:, :most]


def _write(to_output: Tensor, inputs: Tensor, to_weight: Tensor, to_bias: Tensor) -> None:
    """A dense layer's gradient, from its output's (clients, rows, after) and its inputs (clients, rows, before)."""
    product(to_output.mT, inputs, to_weight)
    torch.sum(to_output, 1, out=to_bias)
