"""Autoencoders of many clients by hand: how far latent points lie from the prior, and
Adam with closed gradients.

MMD: Tolstikhin, Bousquet, Gelly, Schölkopf, "Wasserstein auto-encoders" (ICLR 2018),
Algorithm 2; as Eq. 4.4 of Jiang, dissertation, TUM 2024 (DP-Fed-WAE), with the inverse
multiquadratic kernel K(x, y) = κ / (κ + ‖x − y‖²).
Paper → code: q → latent, p → prior, N → a client's real rows, κ = 2·d_z·σ_z² → scale.
Differs from the paper: a client with one row has no pairs, so the terms over pairs are
left out for it, and one without rows has a distance of 0. The estimate is unbiased over
pairs: it can be negative.
"""

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from understudy.ground.errors import ConfigError, Effect
from understudy.models.kernels.clients import Adam, product, times_transposed
from understudy.models.kernels.lstm import Lstm
from understudy.models.network import read


class Mmd:
    """The squared distance for clients whose real rows are 1 in `real` (clients, rows).
    Guarantee: it depends on a client's own real rows alone; what a masked row holds
    reaches neither it nor its gradient, unless not finite.
    """

    def __init__(self, real: Tensor, latent: int) -> None:
        self.scale = 2.0 * latent  # σ_z = 1
        count = real.sum(1)[:, None, None]
        both = real[:, :, None] * real[:, None, :]  # (clients, rows, rows)
        different = both * (
            1 - torch.eye(real.shape[1], dtype=real.dtype, device=real.device)
        )
        self.pairs = different / (count * (count - 1)).clamp(min=1)  # 1/(N(N − 1))
        self.across = 2 * both / count.square().clamp(min=1)  # 2/N²

    def __call__(self, latent: Tensor, prior: Tensor) -> Tensor:
        """Eq. 4.4: (clients,)."""
        own = self.scale / self._far(latent, latent) + self.scale / self._far(
            prior, prior
        )
        return (
            own * self.pairs - self.scale / self._far(latent, prior) * self.across
        ).sum((1, 2))

    def gradient(self, latent: Tensor, prior: Tensor) -> Tensor:
        """By the latent points, each in its pairs twice: (clients, rows, d_z). ∂K/∂x =
        −2κ(x − y)/(κ + ‖x − y‖²)².
        """
        own = self.pairs * (-4 * self.scale) / self._far(latent, latent).square()
        cross = self.across * (2 * self.scale) / self._far(latent, prior).square()
        pull = (own.sum(2) + cross.sum(2))[:, :, None]
        return pull * latent - torch.bmm(own, latent) - torch.bmm(cross, prior)

    def _far(self, x: Tensor, y: Tensor) -> Tensor:
        """κ + ‖x − y‖² between all rows of each client: (clients, rows, rows)."""
        norms = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
        return (norms - 2 * times_transposed(x, y)).clamp(min=0) + self.scale


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
    """Write every client's update after `epochs` steps of Adam of a table autoencoder
    into `out` (clients, d).

    `batch` is x (clients, rows, width), real (clients, rows) and prior (clients,
    epochs, rows, latent); a row has at most `touched` slots that are not 0. The network
    has two dense layers on each side of the latent one: its gradient is eight short
    products, each written where the optimiser reads it. What a slot that is 0 in all of
    a client's rows feeds into has a gradient of exactly 0 at every step, and Adam
    leaves such a weight where it is: so only as many columns of the input layer as rows
    can touch are trained (with two rows of 14 columns 28 of Adult's 140), gathered once
    and put back once. Against autograd 1.9 times as fast on 124 columns, 3.4 on 369.
    Guarantee: all shapes follow from those of `batch` and from `touched`.
    """
    x, real, prior = batch
    clients, _, width = x.shape
    share = (real / real.sum(1, keepdim=True).clamp(min=1) / width)[:, :, None]
    columns = _touched(x, x.shape[1] * touched)
    few = columns.shape[1]
    # (clients, rows, few)
    seen = x.gather(2, columns[:, None].expand(-1, x.shape[1], -1))
    # (clients, few, hidden)
    first = start[: hidden * width].view(hidden, width).T[columns]
    behind = start[hidden * width :]
    local = torch.cat([first.flatten(1), behind.expand(clients, -1)], 1)
    shapes = (
        (few, hidden),
        (hidden,),
        (latent, hidden),
        (latent,),
        (hidden, latent),
        (hidden,),
        (width, hidden),
        (width,),
    )
    w1, b1, w2, b2, w3, b3, w4, b4 = read(local, shapes)
    grad = torch.empty_like(local)
    to_w1, to_b1, to_w2, to_b2, to_w3, to_b3, to_w4, to_b4 = read(grad, shapes)
    far = Mmd(real, latent)
    adam = Adam([local], lr)
    # (clients, rows, hidden)
    h, to_h, g, to_g = (x.new_empty(*x.shape[:2], hidden) for _ in range(4))
    # (clients, rows, latent)
    z, to_z = (x.new_empty(*x.shape[:2], latent) for _ in range(2))
    to_out = torch.empty_like(x)
    for epoch in range(epochs):
        product(seen, w1, h).add_(b1[:, None]).relu_()
        product(h, w2.mT, z).add_(b2[:, None])
        product(z, w3.mT, g).add_(b3[:, None]).relu_()
        # of the cross-entropy
        product(g, w4.mT, to_out).add_(b4[:, None]).sigmoid_().sub_(x).mul_(share)
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
    """For each client columns (clients, few) with all that its rows touch; how many is
    public, on a GPU all.
    """
    clients, _, width = x.shape
    if x.device.type == "cuda" or most >= width:
        return torch.arange(width, device=x.device).expand(clients, width)
    touched = (x != 0).any(1)
    if int(touched.sum(1).max()) > most:
        raise ConfigError(
            "a row touches more slots than its columns have.",
            effect=Effect.NOTHING_COMPUTED,
        )
    return touched.byte().argsort(dim=1, descending=True, stable=True)[:, :most]


def _write(
    to_output: Tensor, inputs: Tensor, to_weight: Tensor, to_bias: Tensor
) -> None:
    """A dense layer's gradient, from its output's (clients, rows, after) and its inputs
    (clients, rows, before).
    """
    product(to_output.mT, inputs, to_weight)
    torch.sum(to_output, 1, out=to_bias)


class SeriesByHand:
    """Adam for many clients' recurrent autoencoders, gradients in closed form, in
    `out`: 4.2 times as fast.
    """

    def __init__(
        self,
        shapes: Collection[tuple[int, ...]],
        hidden: int,
        latent: int,
        start: Tensor,
        batch: tuple[Tensor, ...],
        out: Tensor,
        penalty: float,
    ) -> None:
        x, real, self.prior = batch
        self.start = start
        self.out = out
        self.penalty = penalty
        clients, rows, length, channels = x.shape
        self.grad = torch.empty_like(out)
        self.weights, self.grads = read(out, shapes), read(self.grad, shapes)
        # (clients, L · rows, W): one product projects all steps
        self.x = x.transpose(1, 2).reshape(clients, length * rows, channels)
        share = (
            real / real.sum(1, keepdim=True).clamp(min=1) * (2 / (length * channels))
        )
        self.share = share.repeat(1, length)[:, :, None]  # (clients, L · rows, 1)
        self.far = Mmd(real, latent)
        self.encoder = Lstm.room(clients, length, rows, hidden, out)
        self.decoder = Lstm.room(clients, length, rows, hidden, out)

    def train(self, epochs: int, lr: float) -> None:
        self.out.copy_(self.start)
        adam = Adam([self.out], lr)
        # a client whose numbers are not finite spoils its own update alone
        with np.errstate(all="ignore"):
            for epoch in range(epochs):
                self._gradient(self.prior[:, epoch])
                adam.step([self.grad])
        self.out.sub_(self.start)

    def _gradient(self, prior: Tensor) -> None:
        """Of the loss, at the weights in `out`, into `grad`."""
        w_x, w_h, b_h, w_z, b_z, w_1, b_1, w_2, w_3, b_3, w_o, b_o = self.weights
        to_x, to_h, to_bh, to_z, to_bz, to_1, to_b1, to_2, to_3, to_b3, to_o, to_bo = (
            self.grads
        )
        encoder = self.encoder
        decoder = self.decoder
        clients, length, rows, hidden = encoder.squashed.shape

        torch.baddbmm(b_h[:, None], self.x, w_x, out=encoder.gates.flatten(1, 2))
        states = (
            encoder.forward(w_h).transpose(1, 2).reshape(clients, rows, length * hidden)
        )
        z = torch.baddbmm(b_z[:, None], states, w_z)
        first = torch.baddbmm(b_1[:, None], z, w_1).relu_()
        decoder.gates.copy_(torch.baddbmm(b_3[:, None], first, w_2)[:, None])
        made = decoder.forward(w_3).flatten(1, 2)
        out = torch.baddbmm(b_o[:, None], made, w_o).sigmoid_()

        # at the last layer's outputs
        wrong = (out - self.x).mul_(self.share).mul_(out).mul_(1 - out)
        torch.bmm(made.mT, wrong, out=to_o)
        torch.sum(wrong, 1, out=to_bo)
        down = times_transposed(wrong, w_o).view(clients, length, rows, hidden)
        gates = decoder.backward(down, w_3)
        _recurrent(gates, decoder.states, to_3, to_b3)
        summed = gates.sum(1)  # (clients, rows, 4H): all steps have one input
        torch.bmm(first.mT, summed, out=to_2)
        to_first = times_transposed(summed, w_2).mul_(first > 0)
        torch.bmm(z.mT, to_first, out=to_1)
        torch.sum(to_first, 1, out=to_b1)
        to_latent = times_transposed(to_first, w_1).add_(
            self.far.gradient(z, prior), alpha=self.penalty
        )
        torch.bmm(states.mT, to_latent, out=to_z)
        torch.sum(to_latent, 1, out=to_bz)
        up = (
            times_transposed(to_latent, w_z)
            .view(clients, rows, length, hidden)
            .transpose(1, 2)
        )
        gates = encoder.backward(up.contiguous(), w_h)
        _recurrent(gates, encoder.states, to_h, to_bh)
        torch.bmm(self.x.mT, gates.flatten(1, 2), out=to_x)


def _recurrent(
    gates: Tensor, states: Tensor, to_weight: Tensor, to_bias: Tensor
) -> None:
    """The gradient of the recurrent weights and the bias, from that at the gates."""
    flat = gates.flatten(1, 2)  # (clients, L · rows, 4H)
    torch.bmm(states[:, :-1].flatten(1, 2).mT, flat, out=to_weight)
    torch.sum(flat, 1, out=to_bias)
