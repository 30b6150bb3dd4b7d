"""An offer of SGDE on its way: plain values and tensors out of a network, and back, checked."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from understudy.generators.networks import network_class
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import MessageError
from understudy.protocols.sgde.messages import Pushed
from understudy.protocols.sgde.offer import Requirements, check_generator, check_network, check_offer
from understudy.protocols.sgde.sums import check_noise


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
