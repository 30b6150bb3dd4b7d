"""One generator over a pool: decoders are drawn from, each in its turn; sums are added up, and fitted once.

Lomurno et al., "SGDE" (AIPR 2022), §III-A, Pull, and §IV-C, for decoders: samples are picked evenly from all of them.
Sums that were counted in the same way are added with their noise, which is worth more than drawing from each: the
noise of k silos grows by √k, and their people by k.

Guarantee: reads what was offered alone. Edges: sums of other settings are no common sum, and are drawn side by side.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from understudy.data.kinds import IMAGES
from understudy.generators.parts import GeneratorParts
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.offered import OfferedMoments, added
from understudy.models.pool import Pool
from understudy.models.tables.offered import OfferedGram, added_grams
from understudy.protocols.sgde.offer import Requirements


def pool(
    offers: Sequence[GeneratorParts], requirements: Requirements, card: Mapping[str, Any]
) -> GeneratorParts:
    """One generator over these offers.

    Sums alone, all counted alike, are one fit, which draws classes as often as silos have them. Otherwise every class
    is as likely as any other, and within a class every offer. The card lists, as `members`, whose offers they are, in
    the order in which a latent point picks them; several names at one place are added up.
    """
    groups: dict[Any, list[GeneratorParts]] = defaultdict(list)
    for place, offer in enumerate(offers):
        network = offer.network
        alike: Any = place
        if isinstance(network, OfferedMoments):
            alike = (network.frame, network.classes)
        elif isinstance(network, OfferedGram):
            alike = (network.sizes, network.target)
        groups[alike].append(offer)
    whose = [
        {"silo": ", ".join(str(one.card["silo"]) for one in group), "label": group[0].card["label"]}
        for group in groups.values()
    ]
    told = {"members": whose, "classes": list(requirements.labels)}
    members: list[Any] = [_one(group) for group in groups.values()]
    if len(members) == 1 and groups.keys().isdisjoint(range(len(offers))):
        return GeneratorParts(members[0], _labelled(requirements), {**card, **told})
    counts = dict.fromkeys(requirements.labels or (None,), 0)
    for group in groups.values():
        for label in _classes(group, counts):
            counts[label] += len(group)
    shares = []
    for group, member in zip(groups.values(), members, strict=True):
        own = [len(group) / counts[label] for label in _classes(group, counts)]
        if isinstance(member, CellGaussians):
            with torch.no_grad():
                member.shares.copy_(torch.tensor(own).repeat_interleave(member.cells) / member.cells)
        shares.append(sum(own))
    return GeneratorParts(Pool(members, shares).eval(), requirements.schema, {**card, **told})


def _one(group: Sequence[GeneratorParts]) -> nn.Module:
    networks = [offer.network for offer in group]
    counts = [network for network in networks if isinstance(network, OfferedGram)]
    if counts:
        return added_grams(counts)
    sums = [network for network in networks if isinstance(network, OfferedMoments)]
    return added(sums) if sums else networks[0]  # type: ignore[return-value]


def _classes(group: Sequence[GeneratorParts], counts: Mapping[Any, int]) -> Sequence[Any]:
    """The classes that this group draws."""
    label = group[0].card["label"]
    return list(counts) if label is None else [label]


def _labelled(requirements: Requirements) -> Any:
    """The schema, with the classes that the pool names where it has none itself."""
    schema = requirements.schema
    if not IMAGES.describes(schema):
        return schema
    target = requirements.target if requirements.target not in ("images", schema.person) else "label"
    return replace(schema, label=target, classes=requirements.labels)
