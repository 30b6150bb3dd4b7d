"""From a silo's rows to what its networks read, for tables and for labelled images.

Guarantee: of each person one row is read, the first; what is read depends on that row and public settings alone.
Edges: a person without rows is nobody; a pixel outside [0, 1] → SchemaError at the holder, and nothing is charged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data.described import AnySchema, Rows
from understudy.data.encoding.features import ArrayFeatures, Features, Label, TableFeatures
from understudy.data.encoding.population import Population
from understudy.data.images import ImageSchema
from understudy.data.kinds import IMAGES
from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError, SchemaError
from understudy.models.nets.beta_vae import DECODER, BetaVae, ImageVae, TableVae
from understudy.models.plan import plan_of
from understudy.protocols.sgde.kinds import pooled
from understudy.protocols.sgde.offer import Requirements

Held = Population | Rows


def described(data: Held, pool: AnySchema) -> AnySchema:
    """What is public about a silo's rows. A population's pixels are scaled already: their bounds are the pool's."""
    if not isinstance(data, Population):
        return pooled(data.schema).public(data.schema)  # type: ignore[no-any-return]
    images = image_schema(data.features)
    if IMAGES.describes(pool):
        return replace(pool, height=images.height, width=images.width, channels=images.channels)
    return images


def labels_of(data: Held) -> tuple[Label, ...]:
    """The classes that a silo's rows have beside them; of a table, whose columns say them, none."""
    if isinstance(data, Population):
        return data.features.labels
    return pooled(data.schema).labels_beside(data)


def image_schema(features: Features) -> ImageSchema:
    """The schema of labelled images: (height, width), in colour (height, width, 3); pixels of 8 bits or in [0, 1]."""
    shape = features.shape
    if not isinstance(features, ArrayFeatures) or len(shape) not in (2, 3) or shape[2:] not in ((), (3,)):
        said = (
            "a population of table rows"
            if isinstance(features, TableFeatures)
            else f"rows of {features.shape}"
        )
        raise ConfigError(
            f"SGDE takes tables, or images of (height, width) or (height, width, 3), not {said}. Nothing was charged."
        )
    height, width, *colours = shape
    return ImageSchema(height=height, width=width, channels=math.prod(colours))


def require_bounds(data: Held) -> None:
    """Refuse images with a pixel outside its bounds. A table's cells were checked when it was read."""
    if isinstance(data, Population):
        low, high = data.rows.aminmax()
        if data.rows.dtype != torch.uint8 and not (float(low) >= 0 and float(high) <= 1):
            raise SchemaError("a pixel is outside 0 to 1 (or 0 to 255 in 8 bits). Nothing was charged.")


def labelled_rows(data: Held, requirements: Requirements) -> tuple[Tensor, Tensor]:
    """One row of each person, without its class, and the classes: (people, …), (people,)."""
    schema = requirements.schema
    if isinstance(data, Population):
        first = data.starts[:-1][data.starts.diff() > 0]
        return data.features.expand(data.rows[first]), data.codes[first]
    if data.schema.kind != schema.kind:
        raise SchemaError(
            f"the pool is of {schema.kind}, and here rows are of {data.schema.kind}. Nothing was charged."
        )
    return pooled(schema).first_rows(data, schema, requirements.target)


def decoder_description(
    requirements: Requirements, latent: int, channels: Sequence[int], hidden: Sequence[int] = DECODER
) -> dict[str, Any]:
    """What a decoder of the first class would be described by, before it is trained."""
    schema = requirements.schema
    own = pooled(schema).decoder(schema, requirements.target, channels=channels, hidden=hidden)
    return own | {"latent": latent}


def require_offerable(requirements: Requirements, description: Mapping[str, Any]) -> None:
    """ConfigError where what is described so could be trained or counted, and then be offered to nobody."""
    one_of(requirements.networks, **{"a network of this pool": str(description["kind"])})
    plan = plan_of(description)
    size = sum(math.prod(shape) for shape in plan.tensors.values()) * plan.dtype.itemsize
    if size > requirements.largest:
        raise ConfigError(
            f"an offer would have {size:,} bytes, and this pool takes {requirements.largest:,}. Nothing was charged."
        )


def decoder_of(vae: BetaVae, requirements: Requirements, number: int) -> nn.Module:
    """What leaves: the decoder of a class."""
    if isinstance(vae, ImageVae):
        return vae.decoder(number)
    assert isinstance(vae, TableVae)
    place = requirements.schema.names.index(requirements.target)
    return vae.decoder(number, place, len(requirements.labels))
