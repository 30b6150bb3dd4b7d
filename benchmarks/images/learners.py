"""What is trained on drawn images and tested on real ones, and a distance of two sets
of images.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LEARNERS = ("cnn", "cnn, longer", "mlp", "logistic")
Labelled = tuple[Any, Any]  # images in [0, 255], (n, height, width), and class numbers


def network(learner: str, shape: tuple[int, int], classes: int) -> nn.Module:
    """The CNN has two convolutions of 32 and 64 maps and a hidden layer of 128; the MLP
    one of 256.
    """
    height, width = shape
    if learner == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(height * width, classes))
    if learner == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(height * width, 256),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(256, classes),
        )
    maps = 64 * (height // 4) * (width // 4)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(maps, 128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, classes),
    )


def accuracy(
    learner: str,
    made: Labelled,
    test: Labelled,
    classes: int,
    device: torch.device,
    epochs: int,
    seed: int,
) -> float:
    """Adam at 0.001, falling to 0 along a cosine, batches of 256; "cnn, longer" sees
    the images 2.5 times as often.
    """
    (x, y), (test_x, test_y) = (
        (_pixels(images, device), torch.as_tensor(labels, device=device))
        for images, labels in (made, test)
    )
    torch.manual_seed(seed)
    net = network(learner, x.shape[2:], classes).to(device)  # type: ignore[arg-type]
    size = min(256, len(x))
    every = round(2.5 * epochs) if learner == "cnn, longer" else epochs
    batches = [
        b
        for _ in range(every)
        for b in torch.split(torch.randperm(len(x), device=device), size)
        if len(b) == size
    ]
    _trained(net, x, y, batches)
    net.eval()
    with torch.no_grad():
        said = torch.cat([net(part).argmax(1) for part in torch.split(test_x, 2048)])
    return float((said == test_y).double().mean())


def _trained(net: nn.Module, x: Tensor, y: Tensor, batches: list[Tensor]) -> None:
    """On a GPU a step is recorded once and played again: networks as small as these
    wait for Python otherwise.
    """
    rate = torch.tensor(1e-3, device=x.device)
    replayed = x.is_cuda
    optimiser = torch.optim.Adam(net.parameters(), lr=rate, capturable=replayed)
    own = x[batches[0]].clone(), y[batches[0]].clone()

    def step() -> None:
        optimiser.zero_grad(set_to_none=False)
        nn.functional.cross_entropy(net(own[0]), own[1]).backward()
        optimiser.step()

    play = _recorded(net, optimiser, step) if replayed else step
    for number, batch in enumerate(batches):
        own[0].copy_(x[batch])
        own[1].copy_(y[batch])
        rate.fill_(5e-4 * (1 + math.cos(math.pi * number / len(batches))))
        play()


def _recorded(
    net: nn.Module, optimiser: torch.optim.Optimizer, step: Callable[[], None]
) -> Callable[[], None]:
    """The step as a graph; weights and the optimiser's state are as they were."""
    before = [weight.detach().clone() for weight in net.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    with torch.no_grad():
        for weight, first in zip(net.parameters(), before, strict=True):
            weight.copy_(first)
        for state in optimiser.state.values():
            for value in state.values():
                value.zero_()
    return graph.replay


def frechet(real: Any, drawn: Any, device: torch.device) -> float:
    """The Fréchet distance (Heusel et al. 2017) in 128 features of two random
    convolutions, the same ones always.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        ).to(device)
    sides = []
    for images in (real, drawn):
        with torch.no_grad():
            parts = [
                layers(part) for part in torch.split(_pixels(images, device), 2048)
            ]
        sides.append(100 * torch.cat(parts).double().cpu().numpy())
    (a, b), (p, q) = (
        [side.mean(0) for side in sides],
        [np.cov(side.T) for side in sides],
    )
    root = np.sqrt(np.clip(np.linalg.eigvals(p @ q).real, 0, None)).sum()
    return float(np.square(a - b).sum() + np.trace(p + q) - 2 * root)


def _pixels(images: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(np.asarray(images), device=device)[:, None].float() / 255
