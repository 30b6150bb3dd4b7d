"""From a silo's rows to what its networks read, for tables and for labelled images.

Guarantee: of each person one row is read, the first; what is read depends on that row and public settings alone.
Edges: a person without rows is nobody; a pixel outside [0, 1] → SchemaError at the holder, and nothing is charged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from understudy.data.arrays import ArrayTable
from understudy.data.classes import one_label
from understudy.data.described import AnySchema, Rows
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import ArrayFeatures, Features, Label, TableFeatures
from understudy.data.encoding.population import Population
from understudy.data.images import ImageSchema
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema
from understudy.data.table import Table
from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError, SchemaError
from understudy.models.nets import BetaVae, ImageVae, TableVae
from understudy.models.nets.beta_vae import CHANNELS, DECODER
from understudy.models.plan import plan_of
from understudy.protocols.sgde.offer import Requirements

Held = Population | Rows


def described(data: Held, pool: AnySchema) -> AnySchema:
    """What is public about a silo's rows. A population's pixels are scaled already: their bounds are the pool's."""
    if not isinstance(data, Population):
        return unlabelled(data.schema) if isinstance(data.schema, ImageSchema) else data.schema
    images = image_schema(data.features)
    if isinstance(pool, ImageSchema):
        return replace(pool, height=images.height, width=images.width, channels=images.channels)
    return images


def unlabelled(schema: ImageSchema) -> ImageSchema:
    """Images without their class: a pool names it beside their schema."""
    return replace(schema, label=None, classes=(), labels=())


def labels_of(data: Held) -> tuple[Label, ...]:
    """The classes that a silo's rows have beside them; of a table, whose columns say them, none."""
    if isinstance(data, Population):
        return data.features.labels
    if isinstance(data, Table):
        return ()
    one_label(data.schema, "a pool")
    return data.schema.classes


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
    if isinstance(data, ArrayTable) and data.classes is not None:
        first_of = data.starts[:-1][np.diff(data.starts) > 0]
        return torch.from_numpy(data.values[first_of]), torch.from_numpy(data.classes[first_of])
    if not isinstance(schema, Schema) or not isinstance(data, Table):
        raise SchemaError("a table holds no images, and series are no table. Nothing was charged.")
    first_rows = np.sort(np.unique(data.people, return_index=True)[1])
    codes = Codec(schema).codes(data.frame.iloc[first_rows])
    place = schema.names.index(requirements.target)
    others = Codec(schema.drop([requirements.target]))
    rows = others.one_hot(np.delete(codes, place, axis=1))
    return rows, torch.from_numpy(codes[:, place].astype(np.int64))


def build_vae(
    requirements: Requirements, latent: int, *, channels: Sequence[int] = CHANNELS, seed: int = 0
) -> BetaVae:
    """The networks of all classes, untrained; their first weights follow from the public seed."""
    schema, classes = requirements.schema, len(requirements.labels)
    if isinstance(schema, ImageSchema):
        return ImageVae(classes, schema.grey_shape, latent, channels=channels, seed=seed)
    assert isinstance(schema, Schema)
    return TableVae(classes, Codec(schema.drop([requirements.target])).sizes, latent, seed=seed)


def decoder_description(
    requirements: Requirements, latent: int, channels: Sequence[int], hidden: Sequence[int] = DECODER
) -> dict[str, Any]:
    """What a decoder of the first class would be described by, before it is trained."""
    schema = requirements.schema
    if isinstance(schema, SeriesSchema):
        raise ConfigError('series are offered with kind="moments" alone. Nothing was charged.')
    if isinstance(schema, ImageSchema):
        shape = {"channels": channels, "shape": schema.grey_shape}
        return {"kind": "class-image-decoder", "latent": latent, **shape}
    label = (schema.names.index(requirements.target), 0)
    sizes = {"hidden": hidden, "sizes": Codec(schema).sizes, "label": label}
    return {"kind": "class-decoder", "latent": latent, **sizes}


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
