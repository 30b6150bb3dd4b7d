"""Local training of many clients as one batch.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, lines 13–17: each client starts from the
global model, takes E full-batch gradient steps on its own rows, and its update is local − global.
Paper → code: M_t → params, X^i → x[i], E → epochs, η → lr, Δ_t^i → row i of the result, d → params.numel().
Differs from the paper: the clients of a round are trained together, with the same result for each.

The parameters carry a leading client axis, and a loss gives one number per client. Client i's parameters
appear in client i's loss alone, so the gradient of the sum over clients holds every client's own gradient,
and one backward pass and one fused optimiser step serve all. A chunk of clients runs through all its epochs
before the next begins, so memory is bounded by the chunk.

The updates are raw: nothing here is private. What leaves a party passes a mechanism and a ledger first.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import one_of, positive, whole
from understudy.ground.errors import ConfigError, SchemaError
from understudy.models.adam import Adam
from understudy.models.cohort.classifier import Classifier, Dense
from understudy.models.cohort.replay import Replayed
from understudy.models.cohort.span import descend_in_span

Batch = tuple[Tensor, ...]  # what each client holds: one entry per client on axis 0
Loss = Callable[[Tensor, Batch], Tensor]  # (parameters (clients, d), batch) → (clients,)
Train = Callable[[Tensor, Batch, Tensor], None]  # (global model (d,), batch, updates (clients, d) to write)

OPTIMIZERS = ("sgd", "adam")

# Bytes that a chunk should fill. Less, and the calls cost more than the work; the cache matters little.
WORKING_SET = {"cpu": 128 << 20, "cuda": 2 << 30}


def local_updates(
    model: Classifier, params: Tensor, x: Tensor, y: Tensor, mask: Tensor | None = None, **settings: Any
) -> Tensor:
    """The update (clients, d) of every client after `epochs` full-batch steps on its own rows.

    `x` is (clients, rows, …), `y` (clients, rows) holds the classes, and `mask` (clients, rows) is true
    where a row is real, for clients of unequal size; the loss is the mean cross-entropy over the client's
    real rows. Of the settings (`ClassifierTraining`), `chunk` clients are trained at a time (default: as many as fill
    `WORKING_SET`), on `device` (default: that of `params`). The chunk size changes memory and time, not the result.

    Guarantee: a client's update depends on `params` and its own real rows alone, and by rounding, at the last bits, on
    the shape of `x` and its place there, in which no other client's rows may have a say (`Population.apart`). What a
    masked row holds, even nan, reaches nothing; a client with a non-finite real row spoils its own update alone.
    Edges: a client without rows → a zero update; no clients → (0, d); a label outside the classes →
    SchemaError, shapes that do not fit → ConfigError, both before anything is trained.
    """
    return ClassifierTraining(model, **settings)(params, x, y, mask)


def update_chunks(
    model: Classifier,
    params: Tensor,
    x: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    *,
    out: Tensor | None = None,
    **settings: Any,
) -> Iterator[Tensor]:
    """`local_updates`, `chunk` clients at a time, so that a mechanism can reduce each chunk before the next.

    50,000 clients of LeNet are 9 GB of updates; a chunk is a few megabytes. With `out` (clients, d) the
    chunks are written there, and are views of it.
    """
    return ClassifierTraining(model, **settings).chunks(params, x, y, mask, out)


class ClassifierTraining:
    """`local_updates` for those who train round after round: on a GPU a round of known shapes is one replayed graph."""

    def __init__(
        self,
        model: Classifier,
        *,
        epochs: int,
        lr: float,
        optimizer: str = "sgd",
        chunk: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.model, self.epochs, self.lr, self.optimizer = model, epochs, lr, optimizer
        self.chunk, self.device = chunk, device
        self._replayed = {masked: Replayed(partial(self._updates, masked)) for masked in (False, True)}

    def __call__(self, params: Tensor, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """The update (clients, d) of every client."""
        out = params.new_empty((len(x), params.numel()), device=self.device)
        for _ in self.chunks(params, x, y, mask, out):
            pass
        return out

    def chunks(
        self, params: Tensor, x: Tensor, y: Tensor, mask: Tensor | None, out: Tensor | None
    ) -> Iterator[Tensor]:
        """As `update_chunks`."""
        check_training(params, self.epochs, self.lr, self.optimizer, self.chunk)
        weights = _row_weights(self.model, params, x, y, mask)
        masked, rows = mask is not None, x.shape[1]

        def train(start: Tensor, batch: Batch, updates: Tensor) -> None:
            if start.device.type == "cuda":
                updates.copy_(self._replayed[masked](start, *batch))
            else:
                self._train(masked, start, batch, updates)

        floats = rows * self.model.row_floats + self.model.size * (1 if self._in_span(rows) else 4)
        return walk(train, params, (x, y, weights), self.chunk, floats, self.device, out)

    def _in_span(self, rows: int) -> bool:
        """The span of a client's rows is the smaller space while it has no more rows than features."""
        return isinstance(self.model, Dense) and self.optimizer == "sgd" and rows <= self.model.features

    def _updates(self, masked: bool, start: Tensor, *batch: Tensor) -> Tensor:
        updates = start.new_empty(len(batch[0]), len(start))
        self._train(masked, start, batch, updates)
        return updates

    def _train(self, masked: bool, start: Tensor, batch: Batch, updates: Tensor) -> None:
        model, rows = self.model, batch[0].shape[1]
        inputs, loss = _cross_entropy(model, start, batch, masked=masked)
        if rows == 0:
            updates.zero_()
        elif isinstance(model, Dense) and self._in_span(rows):
            behind = lambda tail, z: loss(model.tail(tail, z))  # noqa: E731
            descend_in_span(behind, start, inputs, updates, model.widths[0], self.epochs, self.lr)
        else:
            scores = lambda local: loss(model.scores(local, inputs))  # noqa: E731
            descend(scores, start, updates, self.epochs, self.lr, self.optimizer)


def train_cohort(
    loss: Loss,
    params: Tensor,
    batch: Batch,
    *,
    epochs: int,
    lr: float,
    optimizer: str = "sgd",
    chunk: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The update (clients, d) of every client, for any loss: an autoencoder's, say.

    Each tensor of `batch` has one entry per client on axis 0. `loss(local, part)` gets the parameters
    (clients, d) and the batch of some clients, and returns their losses (clients,).

    Guarantee: an update depends on its own client alone if `loss` keeps the clients apart.
    Edges: a loss that draws random numbers draws them chunk by chunk, so the result then depends on `chunk`.
    """
    check_training(params, epochs, lr, optimizer, chunk)
    if not batch or len({len(tensor) for tensor in batch}) != 1:
        raise ConfigError(f"A batch needs the same clients in each tensor, not {[len(t) for t in batch]}.")

    def train(start: Tensor, part: Batch, updates: Tensor) -> None:
        descend(lambda local: loss(local, part), start, updates, epochs, lr, optimizer)

    out = params.new_empty((len(batch[0]), params.numel()), device=device)
    for _ in walk(train, params, batch, chunk, 4 * params.numel(), device, out):
        pass
    return out


def walk(
    train: Train,
    params: Tensor,
    batch: Batch,
    chunk: int | None,
    floats: int,
    device: torch.device | str | None,
    out: Tensor | None,
) -> Iterator[Tensor]:
    """Train chunk after chunk, by default as many clients of `floats` numbers each as fill `WORKING_SET`."""
    start = params.detach().to(device)
    room = WORKING_SET["cpu" if start.device.type == "cpu" else "cuda"]
    size = chunk or max(1, room // (floats * start.element_size()))
    for first in range(0, len(batch[0]), size):
        part = tuple(tensor[first : first + size].to(start.device) for tensor in batch)
        updates = start.new_empty(len(part[0]), len(start)) if out is None else out[first : first + size]
        train(start, part, updates)
        yield updates


def descend(
    loss: Callable[[Tensor], Tensor], start: Tensor, out: Tensor, epochs: int, lr: float, optimizer: str
) -> None:
    """Train in `out` itself, every client from `start`, then leave there what has changed."""
    local = out.copy_(start).detach().requires_grad_()
    step = _stepper(local, lr, optimizer)
    for _ in range(epochs):
        with torch.enable_grad():
            total = loss(local).sum()
        step(torch.autograd.grad(total, local))
    out.sub_(start)


def _stepper(local: Tensor, lr: float, optimizer: str) -> Callable[[Sequence[Tensor]], object]:
    if optimizer == "adam":
        return Adam([local], lr).step
    return lambda slopes: local.detach().sub_(slopes[0], alpha=lr)


def _cross_entropy(
    model: Classifier, start: Tensor, batch: Batch, *, masked: bool
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """What the model reads of the rows, and scores → the mean over each client's real rows (clients,)."""
    x, y, weights = batch
    if masked:  # a product with weight 0 would keep a nan
        real = weights > 0
        x, y = x.where(real.view(*real.shape, *(1,) * (x.ndim - 2)), 0), y.where(real, 0)
    labels = y.long().flatten()

    def loss(scores: Tensor) -> Tensor:
        losses = functional.cross_entropy(scores.flatten(0, 1), labels, reduction="none")
        return (losses.view_as(weights) * weights).sum(1)

    return model.prepare(x.to(start.dtype)), loss


def check_training(params: Tensor, epochs: int, lr: float, optimizer: str, chunk: int | None) -> None:
    whole(epochs=epochs, chunk=1 if chunk is None else chunk)
    positive(lr=lr)
    one_of(OPTIMIZERS, optimizer=optimizer)
    if params.ndim != 1 or not params.is_floating_point():
        raise ConfigError(
            f"params must be one flat vector of floats, not {params.dtype} {tuple(params.shape)}."
        )


def _row_weights(model: Classifier, params: Tensor, x: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
    """1/n for each of a client's n real rows and 0 for the others: a weighted sum is the client's mean."""
    model.views(params)
    if x.ndim < 3 or y.shape != x.shape[:2] or (mask is not None and mask.shape != y.shape):
        shapes = [tuple(tensor.shape) for tensor in (x, y, mask) if tensor is not None]
        raise ConfigError(f"x, y and mask must be (clients, rows, …), (clients, rows) twice, not {shapes}.")
    labels = y if mask is None else y[mask.bool()]
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < model.classes:
        wrong = labels[(labels < 0) | (labels >= model.classes)][0].item()
        raise SchemaError(f"label {wrong} is outside the classes 0–{model.classes - 1}. Nothing was trained.")
    real = torch.ones_like(y, dtype=params.dtype) if mask is None else mask.to(params.dtype)
    return real / real.sum(1, keepdim=True).clamp(min=1)
