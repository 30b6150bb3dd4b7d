"""Local training of many clients as one batch.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, lines 13–17: each
client starts from the global model, takes E full-batch gradient steps on its own rows,
and its update is local − global.
Paper → code: M_t → params, X^i → x[i], E → epochs, η → lr, Δ_t^i → row i of the result,
d → params.numel().

The parameters carry a leading client axis, and a loss gives one number per client.
Client i's parameters appear in client i's loss alone, so the gradient of the sum over
clients holds every client's own gradient, and one backward pass and one fused optimiser
step serve all. A chunk of clients runs through all its epochs before the next begins,
so memory is bounded by the chunk.

The updates are raw: nothing here is private. What leaves a party passes a mechanism and
a ledger first.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import one_of, positive, whole
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.models.cohort.classifier import Classifier, Dense
from understudy.models.kernels.clients import Adam, Replayed, descend_in_span
from understudy.models.network import Draws

Batch = tuple[Tensor, ...]  # what each client holds: one entry per client on axis 0

OPTIMIZERS = ("sgd", "adam")
# of one classifier by itself
_RATE = 2e-3
_BATCH = 128

# Bytes that a chunk should fill. Less, and the calls cost more than the work; the cache
# matters little.
WORKING_SET = {"cpu": 128 << 20, "cuda": 2 << 30}


class Training(ABC):
    """How clients train: `epochs` full-batch steps, `chunk` clients at a time (default:
    as many as fill `WORKING_SET`), on `device` (default: the model's). Kept for all
    rounds: on a GPU a round of known shapes is a replayed graph.
    """

    def __init__(
        self,
        *,
        epochs: int,
        lr: float,
        optimizer: str = "sgd",
        chunk: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        whole(epochs=epochs, chunk=1 if chunk is None else chunk)
        positive(lr=lr)
        one_of(OPTIMIZERS, optimizer=optimizer)
        self.epochs = epochs
        self.lr = lr
        self.optimizer = optimizer
        self.chunk = chunk
        self.device = device

        def updates(start: Tensor, *batch: Tensor) -> Tensor:
            out = start.new_empty(len(batch[0]), len(start))
            self.train(start, batch, out)
            return out

        self._replayed = Replayed(updates)

    @abstractmethod
    def train(
        self,
        start: Tensor,
        batch: Batch,
        out: Tensor,
    ) -> None:
        """Train every client of a batch from `start` (d,), and write the updates into
        `out` (clients, d).
        """

    def updates(
        self,
        params: Tensor,
        batch: Batch,
        floats: int,
    ) -> Tensor:
        """The update (clients, d) of every client, chunk after chunk; a client takes
        `floats` numbers.
        """
        if params.ndim != 1 or not params.is_floating_point():
            raise ConfigError(
                f"params must be one flat vector of floats, not {params.dtype} "
                f"{tuple(params.shape)}."
            )
        start = params.detach().to(self.device)
        on_cpu = start.device.type == "cpu"
        room = WORKING_SET["cpu" if on_cpu else "cuda"]
        size = self.chunk or max(1, room // (floats * start.element_size()))
        out = start.new_empty(len(batch[0]), len(start))
        for first in range(0, len(batch[0]), size):
            chunk = slice(first, first + size)
            part = tuple(tensor[chunk].to(start.device) for tensor in batch)
            if on_cpu:
                self.train(start, part, out[chunk])
            else:
                out[chunk] = self._replayed(start, *part)
        return out


class ClassifierTraining(Training):
    """Classifiers, by the mean cross-entropy over a client's real rows."""

    def __init__(self, model: Classifier, **settings: Any) -> None:
        super().__init__(**settings)
        self.model = model

    def __call__(
        self,
        params: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The update (clients, d) of every client, by rows `x` (clients, rows, …) and
        their classes `y`; `mask` is true where a row is real, for clients of unequal
        size.

        Guarantee: a client's update depends on `params` and its own real rows alone,
        and by rounding, at the last bits, on the shape of `x` and its place there, in
        which no other client's rows may have a say (`Population.apart`). What a masked
        row holds, even nan, reaches nothing; a client with a non-finite real row spoils
        its own update alone.
        Edges: a client without rows → a zero update; no clients → (0, d); a label
        outside the classes → SchemaError, shapes that do not fit → ConfigError, both
        before anything is trained.
        """
        weights = _row_weights(self.model, params, x, y, mask)
        if mask is not None:  # a product with weight 0 would keep a nan
            real = mask.bool()
            x = x.where(real.view(*real.shape, *(1,) * (x.ndim - 2)), 0)
            y = y.where(real, 0)
        rows = x.shape[1]
        copies = 1 if self._in_span(rows) else 4  # of the parameters
        floats = rows * self.model.row_floats + copies * self.model.size
        return self.updates(params, (x, y, weights), floats)

    def _in_span(self, rows: int) -> bool:
        """The span of a client's rows is the smaller space while it has no more rows
        than features.
        """
        return (
            isinstance(self.model, Dense)
            and self.optimizer == "sgd"
            and rows <= self.model.features
        )

    def train(
        self,
        start: Tensor,
        batch: Batch,
        out: Tensor,
    ) -> None:
        model = self.model
        x, y, weights = batch
        inputs = model.prepare(x.to(start.dtype))
        labels = y.long().flatten()

        def loss(scores: Tensor) -> Tensor:
            losses = functional.cross_entropy(
                scores.flatten(0, 1),
                labels,
                reduction="none",
            )
            return (losses.view_as(weights) * weights).sum(1)

        if x.shape[1] == 0:
            out.zero_()
        elif isinstance(model, Dense) and self._in_span(x.shape[1]):
            behind = lambda tail, z: loss(model.tail(tail, z))  # noqa: E731
            descend_in_span(
                behind,
                start,
                inputs,
                out,
                model.widths[0],
                self.epochs,
                self.lr,
            )
        else:
            scores = lambda local: loss(model.scores(local, inputs))  # noqa: E731
            descend(
                scores,
                start,
                out,
                self.epochs,
                self.lr,
                self.optimizer,
            )


def descend(
    loss: Callable[[Tensor], Tensor],
    start: Tensor,
    out: Tensor,
    epochs: int,
    lr: float,
    optimizer: str,
) -> None:
    """Train in `out` itself, every client from `start`, by its own `loss` (clients,);
    leave what has changed.
    """
    local = out.copy_(start).detach().requires_grad_()
    adam = Adam([local], lr) if optimizer == "adam" else None
    for _ in range(epochs):
        with torch.enable_grad():
            total = loss(local).sum()
        slopes = torch.autograd.grad(total, local)
        if adam is None:
            local.detach().sub_(slopes[0], alpha=lr)
        else:
            adam.step(slopes)
    out.sub_(start)


def _row_weights(
    model: Classifier,
    params: Tensor,
    x: Tensor,
    y: Tensor,
    mask: Tensor | None,
) -> Tensor:
    """1/n for each of a client's n real rows and 0 for the others: a weighted sum is
    the client's mean.
    """
    model.views(params)
    fits = x.ndim >= 3 and y.shape == x.shape[:2]
    if not fits or (mask is not None and mask.shape != y.shape):
        shapes = [tuple(tensor.shape) for tensor in (x, y, mask) if tensor is not None]
        raise ConfigError(
            "x, y and mask must be (clients, rows, …), (clients, rows) twice, not "
            f"{shapes}."
        )
    labels = y if mask is None else y[mask.bool()]
    outside = labels[(labels < 0) | (labels >= model.classes)]
    if len(outside):
        raise SchemaError(
            f"label {outside[0].item()} is outside the classes 0–{model.classes - 1}.",
            effect=Effect.NOTHING_COMPUTED,
        )
    if mask is None:
        real = torch.ones_like(y, dtype=params.dtype)
    else:
        real = mask.to(params.dtype)
    n_rows = real.sum(1, keepdim=True)
    return real / n_rows.clamp(min=1)


def learned(
    network: Classifier,
    inputs: Callable[[Tensor], Tensor],
    codes: Tensor,
    rng: Draws,
    *,
    epochs: int = 4,
    rate: float = _RATE,
) -> Tensor:
    """One classifier's weights (d,) after Adam, batch by batch, on rows whose features
    `inputs` gives.
    """
    whole(epochs=epochs)
    weights = network.init(rng).requires_grad_()
    orders = (rng.uniform(len(codes)).argsort() for _ in range(epochs))
    batches = [batch for order in orders for batch in torch.split(order, _BATCH)]
    adam = Adam([weights], rate)
    for step, batch in enumerate(batches):
        scores = network.forward(weights, inputs(batch))
        loss = functional.cross_entropy(scores, codes[batch])
        adam.lr = rate * (1 + math.cos(math.pi * step / len(batches))) / 2
        adam.step(torch.autograd.grad(loss, weights))
    return weights.detach()
