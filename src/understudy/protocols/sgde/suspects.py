"""Does an offer look poisoned? Each silo's offers are judged by a classifier that the rest of the pool has taught.

Lomurno et al., "SGDE" (AIPR 2022), §III-B: a poisoned generator shows by the performance that it costs, and is left
out of the sampling. How to tell is not said there; this is our own rule.

For each silo a linear classifier learns classes from all other silos' rows, and then reads the silo's own. The share
of an offer's rows that it takes for the offer's class is the offer's agreement. An offer is flagged when its
agreement is far below what other silos' offers of that class have (the median, minus three robust deviations), and
either below chance or less than half the median. Swapped classes and random weights show this way. Where noise is
strong and a class has a few dozen rows, an honest offer can look like that, too: it is then no loss to the pool.

All that is read here is in the pool, so nothing is charged. Edges: with fewer than three silos nobody can be
outvoted, and nothing is flagged; a majority of liars who agree with each other has the honest ones flagged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from understudy.check import whole
from understudy.data.codec import Codec
from understudy.data.schema import Schema
from understudy.generator import Generator
from understudy.models.plan import pieces
from understudy.privacy.noise import FastRng
from understudy.protocols.sgde.offer import Requirements, label_place

ROWS = 64  # drawn from each offer
LEAST_SILOS = 3
_AT_ONCE = (
    1 << 22
)  # numbers: how many silos are judged together, so that memory does not grow with their square
_STEPS, _RATE, _DECAY = 60, 0.05, 1e-3
_ROBUST = 1.4826  # a normal distribution's deviation over its median absolute deviation
_LEAST_DEVIATION = 0.05


@dataclass(frozen=True)
class Suspicion:
    """What the rest of the pool thinks of one offer: `looks_like` is the class that it is taken for most often."""

    silo: str
    label: Any
    agreement: float | None  # None where the pool is too small to judge
    looks_like: Any
    flagged: bool


def suspicions(
    requirements: Requirements, offers: Sequence[Generator], *, rows: int = ROWS, seed: int = 0
) -> list[Suspicion]:
    """A judgement of each offer, in their order."""
    whole(rows=rows)
    silos = sorted({str(offer.card["silo"]) for offer in offers})
    labels = [label_place(requirements, offer.card["label"]) for offer in offers]
    names = requirements.labels
    if len(silos) < LEAST_SILOS:
        return [
            Suspicion(str(offer.card["silo"]), names[label], None, names[label], flagged=False)
            for offer, label in zip(offers, labels, strict=True)
        ]
    rng = FastRng(seed)
    x = torch.cat([_features(requirements, offer, rows, rng) for offer in offers])  # (offers · rows, width)
    own = torch.tensor([silos.index(str(offer.card["silo"])) for offer in offers])
    taken = _read_by_the_rest(x, torch.tensor(labels), own, rows, len(silos), len(names))
    shares = functional.one_hot(taken, len(names)).double().mean(1)  # (offers, classes)
    agreements = shares[torch.arange(len(offers)), torch.tensor(labels)]
    flags = _flags(agreements, torch.tensor(labels), 1 / len(names))
    return [
        Suspicion(str(offer.card["silo"]), names[label], float(agreement), names[int(share.argmax())], bool(flag))
        for offer, label, agreement, share, flag in zip(offers, labels, agreements, shares, flags, strict=True)
    ]  # fmt: skip


def _features(requirements: Requirements, offer: Generator, rows: int, rng: FastRng) -> Tensor:
    """What the classifier reads of an offer: its odds of everything but the class, (rows, width)."""
    with torch.no_grad():
        drawn = torch.cat([
            offer.network.rows(rng.normal(count, offer.network.latent)).flatten(1)
            for count in pieces(offer.network, rows, most=rows)
        ])  # fmt: skip
    if not isinstance(requirements.schema, Schema):
        return drawn
    block = Codec(requirements.schema).blocks[requirements.schema.names.index(requirements.target)]
    return torch.cat([drawn[:, : block.start], drawn[:, block.stop :]], 1)


def _read_by_the_rest(x: Tensor, labels: Tensor, own: Tensor, rows: int, silos: int, classes: int) -> Tensor:
    """The class for which each row is taken by the classifier that never saw its silo: (offers, rows).

    One logistic regression for each silo, many at once: they share their rows, and differ in which of them count.
    """
    silo, label = own.repeat_interleave(rows), labels.repeat_interleave(rows)
    balance = 1 / torch.bincount(label, minlength=classes).clamp(min=1).to(x.dtype)[label]
    x = torch.cat([x - x.mean(0), torch.ones(len(x), 1)], 1)
    taken = torch.empty(len(x), dtype=torch.int64)
    few = max(1, _AT_ONCE // (max(x.shape) * classes))
    for some in torch.split(torch.arange(silos), few):
        others = (silo[:, None] != some).to(x.dtype)  # (n, silos): whose classifier a row may teach
        others = others * balance[:, None]
        others = others / others.sum(0).clamp(min=1e-12)
        weights = _taught(x, label, others, classes)
        for place, one in enumerate(some.tolist()):
            mine = silo == one
            taken[mine] = (x[mine] @ weights.view(-1, len(some), classes)[:, place]).argmax(1)
    return taken.view(-1, rows)


def _taught(x: Tensor, label: Tensor, others: Tensor, classes: int) -> Tensor:
    """The weights of one classifier for each column of `others`, side by side."""
    silos = others.shape[1]
    weights = torch.zeros(x.shape[1], silos * classes, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=_RATE)
    target = label[:, None].expand(-1, silos).flatten()
    for _ in range(_STEPS):
        with torch.enable_grad():
            scores = (x @ weights).view(-1, classes)  # (n · silos, classes)
            losses = functional.cross_entropy(scores, target, reduction="none").view(-1, silos)
            loss = (losses * others).sum() + _DECAY * weights.square().sum()
        (weights.grad,) = torch.autograd.grad(loss, weights)
        optimizer.step()
    return weights.detach()


def _flags(agreements: Tensor, labels: Tensor, chance: float) -> Tensor:
    """Far below the others of the class, and either below chance or less than half of what is usual."""
    flags = torch.zeros(len(labels), dtype=torch.bool)
    for label in sorted(set(labels.tolist())):
        mine = labels == label
        values = agreements[mine]
        middle = values.median()
        deviation = max(float((values - middle).abs().median()) * _ROBUST, _LEAST_DEVIATION)
        far = values < middle - 3 * deviation
        flags[mine] = far & ((values < chance) | (values < middle / 2))
    return flags
