"""One generator as one file: safetensors, with card and schema as JSON in its metadata.

The file's SHA-256 is the generator's name everywhere: equal bytes are one offer, and an offer never changes. `seal`
writes equal bytes for equal generators.

Guarantee: reading runs no code of the sender. The network is rebuilt by name from the list in `generator`, and only
after every key of the card, the schema, and every name, shape and dtype in the header was compared with what the pool
requires and the card's network has by arithmetic. So a small file cannot ask for a large network.
Edges: a header above 1 MiB, values that are not finite, keys or tensors too many, too few or twice, and text that is no
Unicode are refused; nothing is loaded then.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from understudy.data.kinds import AnySchema
from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts, network_class
from understudy.ground.errors import ArtefactError
from understudy.ground.pack import read_header
from understudy.protocols.sgde.offer import Requirements, check_network, check_offer, schema_of
from understudy.protocols.sgde.sums import check_noise

SUFFIX = ".safetensors"
_KEY = "understudy"


def seal(generator: GeneratorParts) -> bytes:
    network = generator.network
    if generator.levels is not None:
        raise ArtefactError("levels that were bought have no place in an offer. Nothing was sent.")
    if not isinstance(network, nn.Module):
        raise TypeError("a generator's network is a torch module")
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    card = {**generator.card, "network": network.describe()}
    try:
        text = json.dumps({"card": card, "schema": generator.schema.to_dict()}, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArtefactError(f"this card cannot be written down: {error}. Nothing was sent.") from None
    return save(state, metadata={_KEY: text})


def digest_of(data: bytes) -> str:
    """The name of an offer: the SHA-256 of its file."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class OfferFile:
    """What the header of an offer says, and that it fits the pool. The weights are still on disk."""

    path: Path
    size: int  # of the file
    card: Mapping[str, Any]
    schema: AnySchema

    @classmethod
    def read(cls, path: str | Path, requirements: Requirements) -> "OfferFile":
        """The header alone, compared with what the pool requires. ArtefactError for what `seal` does not write."""
        path = Path(path)
        try:
            header = read_header(path)
            parts = _read_json(header.metadata[_KEY])
            if not isinstance(parts, dict) or parts.keys() != {"card", "schema"} or len(header.metadata) != 1:
                raise TypeError("it holds something other than a card, a schema and weights")
        except OSError as error:
            raise ArtefactError(f"{path.name} cannot be read ({error.strerror}).") from None
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArtefactError(f"this file is not an offered generator: {_words(error)}") from None
        card, schema = parts["card"], schema_of(requirements, parts["schema"])
        check_offer(requirements, card, schema, header.size - header.begin)
        check_network(requirements, card, header.shapes)
        check_noise(card)
        try:
            json.dumps([card, parts["schema"]], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ArtefactError("half a surrogate pair is no text.") from None
        return cls(path, header.size, card, schema)

    def generator(self) -> Generator:
        """Read the weights and build the network around them."""
        description = self.card["network"]
        try:
            state = load_file(self.path)
            floats = {name: value for name, value in state.items() if value.is_floating_point()}
            if strange := [name for name, value in floats.items() if not torch.isfinite(value).all()]:
                raise ArtefactError(f'weights "{strange[0]}" hold values that are not finite.')
            network = network_class(description["kind"]).from_description(description)
            network.load_state_dict(state)
        except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, SafetensorError) as error:
            raise ArtefactError(f"this file is not an offered generator: {_words(error)}") from None
        return Generator(network.eval(), self.schema, self.card)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice in its card or schema.")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number.")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number.")
    return value


_read_json = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite).decode


def _words(error: Exception) -> str:
    said = f"{error!s} is missing" if isinstance(error, KeyError) else str(error)
    return said if said.endswith(".") else f"{said}."
