"""One generator as one file: safetensors, with card and schema as JSON in its metadata.

The file's SHA-256 is the generator's name everywhere: equal bytes are one offer, and an offer never changes.
`seal` writes equal bytes for equal generators. Card and schema are one JSON text, since safetensors writes the
entries of its metadata in no fixed order.

Guarantee: reading runs no code of the sender. The network is rebuilt by name from the list in `generator`, and
weights are read only after every name, shape and dtype in the header was compared with a network that was built
without memory (torch's meta device). So a small file cannot ask for a large network.
Edges: a header above 1 MiB, values that are not finite, keys or tensors too many or too few, and text that is
no Unicode are all an ArtefactError; nothing is loaded then.
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
from torch import Tensor, nn

from understudy.data.described import AnySchema, schema_from
from understudy.errors import ArtefactError, UnderstudyError
from understudy.generator import NETWORKS, Generator
from understudy.tensors_file import Shapes, difference, read_header

SUFFIX = ".safetensors"
_KEY = "understudy"


def seal(generator: Generator) -> bytes:
    """The generator as the bytes of one file."""
    network = generator.network
    if not isinstance(network, nn.Module):
        raise TypeError("a generator's network is a torch module")
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    card = {**generator.card, "network": network.describe()}
    try:
        text = json.dumps(
            {"card": card, "schema": generator.schema.to_dict()}, sort_keys=True, allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise ArtefactError(f"this card cannot be written down: {error}. Nothing was sent.") from None
    return save(state, metadata={_KEY: text})


def digest_of(data: bytes) -> str:
    """The name of an offer: the SHA-256 of its file."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class OfferFile:
    """What the header of an offer says. The weights are still on disk."""

    path: Path
    size: int  # of the file
    weights: int  # of the tensors in it
    card: Mapping[str, Any]
    schema: AnySchema
    shapes: Shapes

    @classmethod
    def read(cls, path: str | Path) -> "OfferFile":
        """Read the header alone. ArtefactError for anything that `seal` does not write."""
        path = Path(path)
        try:
            header = read_header(path)
            text = header.metadata[_KEY]
            parts = json.loads(text, parse_constant=_refuse, parse_float=_finite)
            json.dumps(parts, ensure_ascii=False).encode()  # half a surrogate pair is no text
            card, schema = parts["card"], schema_from(parts["schema"])
            if not isinstance(card, dict):
                raise TypeError("the card is no table of keys")
        except OSError as error:
            raise ArtefactError(f"{path.name} cannot be read ({error.strerror}).") from None
        except (
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
            OverflowError,
            RecursionError,
            UnderstudyError,
        ) as error:
            raise ArtefactError(f"this file is not an offered generator: {_words(error)}") from None
        return cls(path, header.size, header.size - header.begin, card, schema, header.shapes)

    def generator(self) -> Generator:
        """Rebuild the network by its description, compare shapes, and only then read the weights."""
        description = self.card.get("network")
        if not isinstance(description, dict) or description.get("kind") not in tuple(NETWORKS):
            kind = description.get("kind") if isinstance(description, dict) else description
            raise ArtefactError(f"no network of kind {kind!r} is known here; known: {', '.join(NETWORKS)}.")
        build = NETWORKS[description["kind"]].from_description
        try:
            with torch.device("meta"):
                expected = {
                    name: (t.dtype, tuple(t.shape)) for name, t in build(description).state_dict().items()
                }
            if expected != self.shapes:
                raise ArtefactError(
                    f"the weights are not those of the network on the card: {difference(expected, self.shapes)}."
                )
            state = load_file(self.path)
            if strange := [name for name, value in state.items() if not _all_finite(value)]:
                raise ArtefactError(f'weights "{strange[0]}" hold values that are not finite.')
            network = build(description)
            network.load_state_dict(state)
        except (
            KeyError,
            TypeError,
            ValueError,
            RuntimeError,
            OverflowError,
            RecursionError,
            SafetensorError,
        ) as error:
            raise ArtefactError(f"this file is not an offered generator: {_words(error)}") from None
        return Generator(network.eval(), self.schema, self.card)


def _all_finite(value: Tensor) -> bool:
    return not value.is_floating_point() or bool(torch.isfinite(value).all())


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number.")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number.")
    return value


def _words(error: Exception) -> str:
    said = f"{error!s} is missing" if isinstance(error, KeyError) else str(error)
    return said if said.endswith(".") else f"{said}."
