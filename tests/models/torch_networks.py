"""The classifiers written with torch.nn, and seeded numbers to fill them: what the
tests compare against.
"""

import torch
from torch import Tensor, nn

from understudy.models.cohort.classifier import (
    Classifier,
    LeNet,
    LogisticRegression,
    Mlp,
)


class Draws:
    """Seeded uniform numbers: the one thing `init` asks for."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)


def module(model: Classifier) -> nn.Module:
    """The same network, written with torch.nn."""
    match model:
        case LogisticRegression():
            layers = [nn.Linear(model.features, model.classes)]
        case Mlp():
            layers = [
                nn.Linear(model.features, model.hidden),
                nn.ReLU(),
                nn.Linear(model.hidden, model.classes),
            ]
        case LeNet():
            layers = [
                nn.Unflatten(1, (1, 28, 28)),
                nn.Conv2d(1, 6, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(6, 16, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(256, 120),
                nn.ReLU(),
                nn.Linear(120, 84),
                nn.ReLU(),
                nn.Linear(84, model.classes),
            ]
    return nn.Sequential(*layers).double()
