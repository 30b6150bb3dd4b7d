"""One private step on all classes of a silo: clipped sums by taps, by `torch.func`, and
by Opacus class after class.
"""

import time
from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from understudy.models.nets.beta_vae import (
    DECODER,
    ENCODER,
    SLOPE,
    BetaVae,
    ImageVae,
    TableVae,
)
from understudy.models.nets.tapped import Taps
from understudy.models.network import pick_device
from understudy.privacy.gradients.dp_sgd import clipped_sums
from understudy.protocols.papers.sgde.offering import CHANNELS

CASES = {  # classes, rows of each in a batch
    "table, 2 classes × 200 rows of 12 columns × 8 levels": (2, 200),
    "images 28 × 28, 10 classes × 40 rows": (10, 40),
}


def main(device: str = "auto") -> None:
    place = pick_device(device)
    print(
        f"{place}, {torch.get_num_threads()} thread(s), torch {torch.__version__}; "
        "milliseconds a step, best of 5"
    )
    for name, (classes, rows) in CASES.items():
        if name.startswith("table"):
            vae: BetaVae = TableVae(classes, (8,) * 12, 4).to(place)
            x = torch.eye(8)[torch.randint(8, (classes, rows, 12))].flatten(2).to(place)
        else:
            vae = ImageVae(classes, (28, 28), 8, channels=CHANNELS).to(place)
            x = torch.rand(classes, rows, 28, 28, device=place)
        noise = torch.randn(classes, rows, vae.latent, device=place)
        ways: dict[str, Callable[[], Any]] = {
            "taps": partial(by_taps, vae, x, noise),
            "torch.func": partial(by_vmap, vae, x, noise),
        }
        if (
            isinstance(vae, TableVae)
            and (opacus := opacus_way(vae, x, noise)) is not None
        ):
            ways["Opacus"] = opacus
        print(
            f"{name}: "
            + ", ".join(f"{way} {best(run, place):.1f}" for way, run in ways.items())
        )


def best(run: Callable[[], Any], place: torch.device) -> float:
    times = []
    for _ in range(6):
        if place.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if place.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1000 * min(times[1:])


def by_taps(vae: BetaVae, x: Tensor, noise: Tensor) -> list[Tensor]:
    taps = Taps()
    return clipped_sums(vae.losses(x, noise, 1.0, taps), taps, clip_norm=1.0)


class Silent(Taps):
    """Taps that record nothing."""

    def _tap(self, inputs: Tensor | None, outputs: Tensor) -> Tensor:
        return outputs


def by_vmap(vae: BetaVae, x: Tensor, noise: Tensor) -> list[Tensor]:
    def loss(parameters: list[Tensor], row: Tensor, drawn: Tensor) -> Tensor:
        one = copy(vae)
        one.parameters = [parameter[None] for parameter in parameters]
        return one.losses(row[None, None], drawn[None, None], 1.0, Silent()).sum()

    each = vmap(vmap(grad(loss), (None, 0, 0)))(vae.parameters, x, noise)
    square = sum(part.flatten(2).square().sum(2) for part in each)
    weight = square.rsqrt().clamp(max=1)
    return [torch.einsum("gn,gn...->g...", weight, part) for part in each]


def opacus_way(vae: TableVae, x: Tensor, noise: Tensor) -> Callable[[], Any] | None:
    """The same network in torch.nn, under GradSampleModule, class after class."""
    try:
        from opacus.grad_sample import GradSampleModule
    except ImportError:
        return None

    def stack(*sizes: int) -> nn.Sequential:
        layers = [
            layer
            for a, b in pairwise(sizes)
            for layer in (nn.Linear(a, b), nn.LeakyReLU(SLOPE))
        ]
        return nn.Sequential(*layers[:-1])

    width = sum(vae.sizes)
    network = nn.ModuleDict(
        {
            "encoder": stack(width, *ENCODER, 2 * vae.latent),
            "decoder": stack(vae.latent, *DECODER, width),
        }
    ).to(x.device)
    encoder = GradSampleModule(network["encoder"])
    decoder = GradSampleModule(network["decoder"])

    def run() -> None:
        for rows, drawn in zip(x, noise, strict=True):
            mean, log_variance = encoder(rows).chunk(2, 1)
            logits = decoder(mean + (log_variance / 2).exp() * drawn)
            divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(
                1
            ) / 2
            (vae.surprise(rows[None], logits[None])[0] + divergence).sum().backward()
            parameters = [*encoder.parameters(), *decoder.parameters()]
            square = sum(p.grad_sample.flatten(1).square().sum(1) for p in parameters)
            weight = square.rsqrt().clamp(max=1)
            for parameter in parameters:
                torch.einsum("n,n...->...", weight, parameter.grad_sample)
                parameter.grad = parameter.grad_sample = None

    return run
