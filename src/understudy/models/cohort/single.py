"""One classifier that learns batch by batch from rows that may be read as often as one likes: drawn ones."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import whole
from understudy.models.adam import Adam
from understudy.models.cohort.classifier import Classifier
from understudy.models.cohort.flat import Uniform

_RATE = 2e-3
_BATCH = 128


def learned(
    network: Classifier, inputs: Callable[[Tensor], Tensor], codes: Tensor, rng: Uniform, *, epochs: int = 4
) -> Tensor:
    """The weights (d,) after Adam, whose rate falls to 0 along a cosine. `inputs` gives the features of some rows."""
    whole(epochs=epochs)
    weights = network.init(rng).requires_grad_()
    orders = (rng.uniform(len(codes)).argsort() for _ in range(epochs))
    batches = [batch for order in orders for batch in torch.split(order, _BATCH)]
    adam = Adam([weights], _RATE)
    for step, batch in enumerate(batches):
        loss = functional.cross_entropy(network.forward(weights, inputs(batch)), codes[batch])
        adam.lr = _RATE * (1 + math.cos(math.pi * step / len(batches))) / 2
        adam.step(torch.autograd.grad(loss, weights))
    return weights.detach()
