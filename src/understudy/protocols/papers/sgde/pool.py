"""What is made of a pool: one generator over its offers, after each was judged by the
others.

Lomurno et al., "SGDE" (AIPR 2022), §III-A, Pull, and §IV-C, for decoders: samples are
picked evenly from all of them. Sums that were counted in the same way are added with
their noise, which is worth more than drawing from each: the noise of k silos grows by
√k, and their people by k. Sums of other settings are no common sum: drawn side by side.

§III-B: a poisoned generator shows by the performance that it costs, and is left out of
the sampling. How to tell is not said there; this is our own rule. For each silo a
linear classifier learns classes from all other silos' rows, and then reads the silo's
own. The share of an offer's rows that it takes for the offer's class is the offer's
agreement. An offer is flagged when its agreement is far below what other silos' offers
of that class have (the median, minus three robust deviations), and either below chance
or less than half the median. Sums of all classes are read class by class, and flagged
where more than half of their classes would be.

Guarantee: reads what was offered alone, so that nothing is charged. Edges: with fewer
than three silos nobody can be outvoted, and nothing is flagged; a majority of liars who
agree with each other has the honest ones flagged.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.kinds import IMAGES
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import whole
from understudy.models.kernels.clients import Adam
from understudy.models.plan import Pool, pieces
from understudy.privacy.noise import FastRng
from understudy.protocols.papers.sgde.kinds import pooled
from understudy.protocols.papers.sgde.offer import Requirements, label_place

ROWS = 64  # drawn from each offer
LEAST_SILOS = 3
# numbers: how many silos are judged together, so that memory does not grow with their
# square
_AT_ONCE = 1 << 22
_STEPS = 60
_RATE = 0.05
_DECAY = 1e-3
_ROBUST = 1.4826  # a normal distribution's deviation over its median absolute deviation
_LEAST_DEVIATION = 0.05


def pool(
    offers: Sequence[GeneratorParts],
    requirements: Requirements,
    card: Mapping[str, Any],
) -> GeneratorParts:
    """One generator over these offers: sums counted alike are one fit; else classes,
    and their offers, are alike.
    """
    groups: dict[Any, list[GeneratorParts]] = defaultdict(list)
    for place, offer in enumerate(offers):
        groups[getattr(offer.network, "alike", place)].append(offer)
    whose = []
    for group in groups.values():
        silos = ", ".join(str(one.card["silo"]) for one in group)
        whose.append({"silo": silos, "label": group[0].card["label"]})
    told = {"members": whose, "classes": list(requirements.labels)}
    members: list[Any] = [
        networks[0].added(networks) if hasattr(networks[0], "alike") else networks[0]
        for networks in (
            [cast(Any, offer.network) for offer in group] for group in groups.values()
        )
    ]
    if len(members) == 1 and groups.keys().isdisjoint(range(len(offers))):
        return GeneratorParts(members[0], _labelled(requirements), {**card, **told})
    every = requirements.labels or (None,)
    drawn = [
        (own,) if (own := group[0].card["label"]) is not None else every
        for group in groups.values()
    ]
    counts: Counter[Any] = Counter()
    for group, labels in zip(groups.values(), drawn, strict=True):
        counts.update(dict.fromkeys(labels, len(group)))
    shares = []
    for group, labels, member in zip(groups.values(), drawn, members, strict=True):
        own = [len(group) / counts[label] for label in labels]
        if member.kind == "gaussians":
            with torch.no_grad():
                member.shares.copy_(
                    torch.tensor(own).repeat_interleave(member.cells) / member.cells
                )
        shares.append(sum(own))
    return GeneratorParts(
        Pool(members, shares).eval(), requirements.schema, {**card, **told}
    )


def _labelled(requirements: Requirements) -> Any:
    """The schema, with the classes that the pool names where it has none itself."""
    schema = requirements.schema
    if not IMAGES.describes(schema):
        return schema
    target = (
        requirements.target
        if requirements.target not in ("images", schema.person)
        else "label"
    )
    return replace(schema, label=target, classes=requirements.labels)


# Does an offer look poisoned?


@dataclass(frozen=True)
class OfferAssessment:
    """What the rest of the pool thinks of one offer: `looks_like` is the class that it
    is taken for most often.
    """

    silo: str
    label: Any
    agreement: float | None  # None where the pool is too small to judge
    looks_like: Any
    flagged: bool


def suspicions(
    requirements: Requirements,
    offers: Sequence[GeneratorParts],
    *,
    rows: int = ROWS,
    seed: int = 0,
) -> list[OfferAssessment]:
    whole(rows=rows)
    silos = sorted({str(offer.card["silo"]) for offer in offers})
    names = requirements.labels
    if len(silos) < LEAST_SILOS or not names:
        whose = [(str(offer.card["silo"]), offer.card["label"]) for offer in offers]
        return [
            OfferAssessment(silo, label, None, label, flagged=False)
            for silo, label in whose
        ]
    seen = [
        (offer, label) for offer in offers for label in _labels(requirements, offer)
    ]
    labels = torch.tensor([label for _, label in seen])
    rng = FastRng(seed)
    x = torch.cat(
        [_features(requirements, offer, label, rows, rng) for offer, label in seen]
    )
    own = torch.tensor([silos.index(str(offer.card["silo"])) for offer, _ in seen])
    # (seen, rows)
    taken = _read_by_the_rest(x, labels, own, rows, len(silos), len(names))
    shares = functional.one_hot(taken, len(names)).double().mean(1)  # (seen, classes)
    agreements = shares[torch.arange(len(seen)), labels]
    own_labels = [_labels(requirements, offer) for offer in offers]
    each = torch.stack(
        [
            part.mean()
            for part in torch.split(agreements, [len(own) for own in own_labels])
        ]
    )
    # −1: judged over all classes
    kinds = torch.tensor([own[0] if len(own) == 1 else -1 for own in own_labels])
    flags = _flags(each, kinds, 1 / len(names)).tolist()
    judged = []
    place = 0
    for offer, agreement, flagged, own_label in zip(
        offers, each.tolist(), flags, own_labels, strict=True
    ):
        likely = (
            None if offer.card["label"] is None else names[int(shares[place].argmax())]
        )
        place += len(own_label)
        judged.append(
            OfferAssessment(
                str(offer.card["silo"]),
                offer.card["label"],
                agreement,
                likely,
                flagged=flagged,
            )
        )
    return judged


def _labels(requirements: Requirements, offer: GeneratorParts) -> list[int]:
    label = offer.card["label"]
    return (
        list(range(len(requirements.labels)))
        if label is None
        else [label_place(requirements, label)]
    )


def _features(
    requirements: Requirements,
    offer: GeneratorParts,
    label: int,
    rows: int,
    rng: FastRng,
) -> Tensor:
    """What the classifier reads of an offer's class: its odds of everything but the
    class, (rows, width).
    """
    network: Any = offer.network
    with torch.no_grad():
        points = (
            rng.normal(count, network.latent)
            for count in pieces(network, rows, most=rows)
        )
        if hasattr(network, "alike"):  # sums of all classes
            points = (network.aimed(some, label, rng) for some in points)
        drawn = torch.cat([network.rows(some).flatten(1) for some in points])
    return pooled(requirements.schema).without_class(
        drawn, requirements.schema, requirements.target
    )


def _read_by_the_rest(
    x: Tensor, labels: Tensor, own: Tensor, rows: int, silos: int, classes: int
) -> Tensor:
    """The class that each row is taken for by the classifier that never saw its silo:
    (offers, rows); many at once.
    """
    silo = own.repeat_interleave(rows)
    label = labels.repeat_interleave(rows)
    balance = (
        1 / torch.bincount(label, minlength=classes).clamp(min=1).to(x.dtype)[label]
    )
    x = torch.cat([x - x.mean(0), torch.ones(len(x), 1)], 1)
    taken = torch.empty(len(x), dtype=torch.int64)
    few = max(1, _AT_ONCE // (max(x.shape) * classes))
    for some in torch.split(torch.arange(silos), few):
        # (n, silos): whose classifier a row may teach
        others = (silo[:, None] != some).to(x.dtype)
        others = others * balance[:, None]
        others = others / others.sum(0).clamp(min=1e-12)
        weights = _taught(x, label, others, classes)
        for place, one in enumerate(some.tolist()):
            mine = silo == one
            taken[mine] = (
                x[mine] @ weights.view(-1, len(some), classes)[:, place]
            ).argmax(1)
    return taken.view(-1, rows)


def _taught(x: Tensor, label: Tensor, others: Tensor, classes: int) -> Tensor:
    """The weights of one classifier for each column of `others`, side by side."""
    silos = others.shape[1]
    weights = torch.zeros(x.shape[1], silos * classes, requires_grad=True)
    adam = Adam([weights], lr=_RATE)
    target = label[:, None].expand(-1, silos).flatten()
    for _ in range(_STEPS):
        with torch.enable_grad():
            scores = (x @ weights).view(-1, classes)  # (n · silos, classes)
            losses = functional.cross_entropy(scores, target, reduction="none").view(
                -1, silos
            )
            loss = (losses * others).sum() + _DECAY * weights.square().sum()
        adam.step(torch.autograd.grad(loss, weights))
    return weights.detach()


def _flags(agreements: Tensor, labels: Tensor, chance: float) -> Tensor:
    """Far below the others of the class, and either below chance or less than half of
    what is usual.
    """
    flags = torch.zeros(len(labels), dtype=torch.bool)
    for label in sorted(set(labels.tolist())):
        mine = labels == label
        values = agreements[mine]
        middle = values.median()
        deviation = max(
            float((values - middle).abs().median()) * _ROBUST, _LEAST_DEVIATION
        )
        far = values < middle - 3 * deviation
        flags[mine] = far & ((values < chance) | (values < middle / 2))
    return flags
