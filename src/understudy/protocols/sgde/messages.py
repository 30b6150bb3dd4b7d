"""What a silo and the server of SGDE say to each other, and an offer on its way: packed, and rebuilt after checks.

Lomurno et al., "SGDE" (AIPR 2022), §III-A: `Subscribe` states the requirements, `Push` asks for one generator per
class, `Pull` hands out the pool.
Paper → code: G_k → `Pushed.offers`, g_k^y → one of them, the pool → `Pull.offers`.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from understudy.generators.parts import GeneratorParts, network_class
from understudy.ground.errors import MessageError
from understudy.protocols.core import Ask, Opening, Paid, Public, Reply
from understudy.protocols.sgde.offer import Requirements, check_generator, check_network, check_offer
from understudy.protocols.sgde.sums import check_noise


class Subscribe(Opening, kind="sgde.subscribe"):
    """The settings for a silo's training, and what the pool requires. `poison` makes this silo lie, in a rehearsal."""

    requirements: dict[str, Any]
    poison: str = "none"


NO_FIGURE = Public(None, "no figure of quality was asked for")


class Subscribed(Reply, kind="sgde.subscribed"):
    """What the silo's holder allows, its source of noise, and the (ε, δ) that its offers will have."""

    budget: Public
    noise: Public
    price: Public


class Push(Ask, kind="sgde.push"):
    """Train one generator per class, and send them."""


class Pushed(Reply, kind="sgde.pushed"):
    """An offer for each class: its card and its weights. A figure of quality has a receipt of its own."""

    offers: Paid
    quality: Paid | Public = NO_FIGURE


class Pull(Ask, kind="sgde.pull"):
    """The pool: cards and weights of every offer that was taken in."""

    offers: list[dict[str, Any]]


class Pulled(Reply, kind="sgde.pulled"):
    """How many of them passed this silo's own check."""

    sound: Public


def pack_offer(card: dict[str, Any], network: nn.Module) -> dict[str, Any]:
    """An offer as plain values and tensors."""
    weights = {name: value.detach().cpu() for name, value in network.state_dict().items()}
    return {"card": card, "weights": weights}


def pushed_offers(pushed: Pushed) -> list[dict[str, Any]]:
    """What a silo offers, with its figure of quality, if there is one, on the card. Checked by `unpack_offer`."""
    offers: Any = pushed.offers.value
    quality: Any = pushed.quality.value
    figure = {} if quality is None else {"quality": quality}
    try:
        return [{**offer, "card": {**offer["card"], **figure}} for offer in offers]
    except (KeyError, TypeError) as error:
        raise MessageError(f"an offer cannot be read: {error}. Nothing was exchanged.") from None


def unpack_offer(
    requirements: Requirements, offer: Mapping[str, Any], *, priced: bool = True
) -> GeneratorParts:
    """The generator that an offer describes, checked by every requirement. `priced=False`: a rehearsal without noise.

    A rehearsal's offer is taken here, where the run's own statement says what it is; an exchange refuses it.
    Edges: nothing is built before the card, the schema, the size and the shape of all weights were checked; another
    network than the weights are of → ArtefactError; what is no offer → MessageError.
    """
    try:
        card, weights = dict(offer["card"]), dict(offer["weights"])
        size = sum(value.numel() * value.element_size() for value in weights.values())
        stated = {key: value for key, value in card.items() if key != "rehearsal"}
        if not priced:
            stated["epsilon"] = 0.0
        check_offer(requirements, stated, requirements.schema, size)
        check_network(
            requirements, card, {name: (value.dtype, tuple(value.shape)) for name, value in weights.items()}
        )
        if priced:
            check_noise(card)
        network = network_class(card["network"]["kind"]).from_description(card["network"])
        network.load_state_dict(weights)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise MessageError(f"an offer cannot be rebuilt: {error}. Nothing was exchanged.") from None
    generator = GeneratorParts(network.eval(), requirements.schema, card)
    check_generator(requirements, generator)
    return generator
