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
from understudy.models.plan import Pool, pieces
from understudy.privacy.noise import FastRng
from understudy.protocols.papers.sgde.kinds import pooled
from understudy.protocols.papers.sgde.offer import Requirements, label_index

ROWS = 64  # drawn from each offer
MIN_SILOS = 3
# numbers: how many silos are judged together, so that memory does not grow with their
# square
_AT_ONCE = 1 << 22
_STEPS = 60
_RATE = 0.05
_DECAY = 1e-3
_ROBUST = 1.4826  # a normal distribution's deviation over its median absolute deviation
_MIN_DEVIATION = 0.05


def pool(
    offers: Sequence[GeneratorParts],
    requirements: Requirements,
    card: Mapping[str, Any],
) -> GeneratorParts:
    """One generator over these offers. Sums that were counted alike are added and
    fitted once; every class, and every offer of a class, has the same weight.
    """
    by_kind: dict[Any, list[GeneratorParts]] = defaultdict(list)
    for index, offer in enumerate(offers):
        by_kind[getattr(offer.network, "alike", index)].append(offer)
    groups = list(by_kind.values())
    members = [_describe_group(group) for group in groups]
    card = {**card, "members": members, "classes": list(requirements.labels)}
    networks = [_group_network(group) for group in groups]
    if len(networks) == 1 and by_kind.keys().isdisjoint(range(len(offers))):
        return GeneratorParts(networks[0], _labelled_schema(requirements), card)

    labels_by_group = [_group_labels(requirements, group) for group in groups]
    offers_of_label: Counter[Any] = Counter()
    for group, labels in zip(groups, labels_by_group, strict=True):
        offers_of_label.update(dict.fromkeys(labels, len(group)))
    shares = []
    for group, labels, network in zip(groups, labels_by_group, networks, strict=True):
        class_shares = [len(group) / offers_of_label[label] for label in labels]
        if network.kind == "gaussians":
            per_class = torch.tensor(class_shares).repeat_interleave(network.cells)
            with torch.no_grad():
                network.shares.copy_(per_class / network.cells)
        shares.append(sum(class_shares))
    return GeneratorParts(Pool(networks, shares).eval(), requirements.schema, card)


def _describe_group(group: Sequence[GeneratorParts]) -> dict[str, Any]:
    silos = ", ".join(str(offer.card["silo"]) for offer in group)
    return {"silo": silos, "label": group[0].card["label"]}


def _group_network(group: Sequence[GeneratorParts]) -> Any:
    """The network of offers that were counted alike, with their sums added."""
    networks = [cast(Any, offer.network) for offer in group]
    first = networks[0]
    return first.added(networks) if hasattr(first, "alike") else first


def _group_labels(
    requirements: Requirements, group: Sequence[GeneratorParts]
) -> tuple[Any, ...]:
    label = group[0].card["label"]
    return (requirements.labels or (None,)) if label is None else (label,)


def _labelled_schema(requirements: Requirements) -> Any:
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


def assess_offers(
    requirements: Requirements,
    offers: Sequence[GeneratorParts],
    *,
    rows: int = ROWS,
    seed: int = 0,
) -> list[OfferAssessment]:
    """Judge each offer by a classifier of the other silos' rows, `rows` a class."""
    whole(rows=rows)
    silos = sorted({str(offer.card["silo"]) for offer in offers})
    names = requirements.labels
    if len(silos) < MIN_SILOS or not names:
        labelled = [(str(offer.card["silo"]), offer.card["label"]) for offer in offers]
        return [
            OfferAssessment(silo, label, None, label, flagged=False)
            for silo, label in labelled
        ]
    labels_by_offer = [_labels(requirements, offer) for offer in offers]
    offered = [
        (offer, label)
        for offer, labels in zip(offers, labels_by_offer, strict=True)
        for label in labels
    ]
    labels = torch.tensor([label for _, label in offered])
    rng = FastRng(seed)
    x = torch.cat(
        [
            _sample_features(requirements, offer, label, rows, rng)
            for offer, label in offered
        ]
    )
    silo_of = torch.tensor(
        [silos.index(str(offer.card["silo"])) for offer, _ in offered]
    )
    # (offered, rows)
    predicted = _predict_by_other_silos(
        x, labels, silo_of, rows, len(silos), len(names)
    )
    # (offered, classes)
    shares = functional.one_hot(predicted, len(names)).double().mean(1)
    agreements = torch.split(
        shares[torch.arange(len(offered)), labels], list(map(len, labels_by_offer))
    )
    offer_agreements = torch.stack([part.mean() for part in agreements])
    # −1: judged over all classes
    kinds = torch.tensor(
        [labels[0] if len(labels) == 1 else -1 for labels in labels_by_offer]
    )
    flags = _flags(offer_agreements, kinds, 1 / len(names)).tolist()
    assessments = []
    row = 0
    for offer, agreement, flagged, offer_labels in zip(
        offers, offer_agreements.tolist(), flags, labels_by_offer, strict=True
    ):
        likeliest = (
            None if offer.card["label"] is None else names[int(shares[row].argmax())]
        )
        row += len(offer_labels)
        assessments.append(
            OfferAssessment(
                str(offer.card["silo"]),
                offer.card["label"],
                agreement,
                likeliest,
                flagged=flagged,
            )
        )
    return assessments


def _labels(requirements: Requirements, offer: GeneratorParts) -> list[int]:
    label = offer.card["label"]
    return (
        list(range(len(requirements.labels)))
        if label is None
        else [label_index(requirements, label)]
    )


def _sample_features(
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
        rows_of_class = torch.cat([network.rows(some).flatten(1) for some in points])
    return pooled(requirements.schema).without_class(
        rows_of_class, requirements.schema, requirements.target
    )


def _predict_by_other_silos(
    x: Tensor, labels: Tensor, silo_of: Tensor, rows: int, silos: int, classes: int
) -> Tensor:
    """The class that each row is taken for by the classifier that never saw its silo:
    (offers, rows); many at once.
    """
    silo = silo_of.repeat_interleave(rows)
    label = labels.repeat_interleave(rows)
    balance = (
        1 / torch.bincount(label, minlength=classes).clamp(min=1).to(x.dtype)[label]
    )
    x = torch.cat([x - x.mean(0), torch.ones(len(x), 1)], 1)
    predicted = torch.empty(len(x), dtype=torch.int64)
    at_once = max(1, _AT_ONCE // (max(x.shape) * classes))
    for batch in torch.split(torch.arange(silos), at_once):
        # (n, silos): whose classifier a row may teach
        row_weights = (silo[:, None] != batch).to(x.dtype)
        row_weights = row_weights * balance[:, None]
        row_weights = row_weights / row_weights.sum(0).clamp(min=1e-12)
        weights = _fit_classifiers(x, label, row_weights, classes)
        for column, tested in enumerate(batch.tolist()):
            of_silo = silo == tested
            predicted[of_silo] = (
                x[of_silo] @ weights.view(-1, len(batch), classes)[:, column]
            ).argmax(1)
    return predicted.view(-1, rows)


def _fit_classifiers(
    x: Tensor, label: Tensor, row_weights: Tensor, classes: int
) -> Tensor:
    """The weights of one classifier for each column of `row_weights`, side by side."""
    # which a silo that offers does without
    from understudy.models.kernels.clients import Adam

    silos = row_weights.shape[1]
    weights = torch.zeros(x.shape[1], silos * classes, requires_grad=True)
    adam = Adam([weights], lr=_RATE)
    target = label[:, None].expand(-1, silos).flatten()
    for _ in range(_STEPS):
        with torch.enable_grad():
            scores = (x @ weights).view(-1, classes)  # (n · silos, classes)
            losses = functional.cross_entropy(scores, target, reduction="none").view(
                -1, silos
            )
            loss = (losses * row_weights).sum() + _DECAY * weights.square().sum()
        adam.step(torch.autograd.grad(loss, weights))
    return weights.detach()


def _flags(agreements: Tensor, labels: Tensor, chance: float) -> Tensor:
    """Far below the others of the class, and either below chance or less than half of
    what is usual.
    """
    flags = torch.zeros(len(labels), dtype=torch.bool)
    for label in sorted(set(labels.tolist())):
        of_class = labels == label
        values = agreements[of_class]
        middle = values.median()
        deviation = max(
            float((values - middle).abs().median()) * _ROBUST, _MIN_DEVIATION
        )
        outlying = values < middle - 3 * deviation
        flags[of_class] = outlying & ((values < chance) | (values < middle / 2))
    return flags
