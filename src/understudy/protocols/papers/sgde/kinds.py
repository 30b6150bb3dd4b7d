"""What a pool does in another way for tables, images and series: classes, networks that
are trained, what they draw.

Guarantee: of each person one row is read, the first; what is read depends on that row
and public settings alone.
Edges: a person without rows is nobody; a pixel outside [0, 1] → SchemaError at the
holder, and nothing is charged.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from understudy.data.arrays import ArrayTable
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import (
    ArrayFeatures,
    Features,
    Label,
    TableFeatures,
)
from understudy.data.encoding.frame import POSES, Frame
from understudy.data.encoding.population import Population, read_labelled_images
from understudy.data.images import Images, ImageSchema
from understudy.data.kinds import (
    IMAGES,
    SERIES,
    TABLE,
    AnySchema,
    ArraySchema,
    Rows,
    one_label,
    read_rows,
)
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema
from understudy.data.table import Table
from understudy.ground.errors import ConfigError, Effect
from understudy.models.plan import NetworkPlan

if TYPE_CHECKING:
    from understudy.models.nets.beta_vae import BetaVae

SiloData = Population | Rows
S = TypeVar("S", bound=AnySchema)
R = TypeVar("R")
_NO_NETWORK = 'series are offered with kind="moments" alone.'


class Pooled(ABC, Generic[S, R]):
    """A kind of rows in a pool. `target` is the class's name, `classes` those that a
    pool names beside its schema.
    """

    # latent points at which a network is looked at, where a look is much work
    looks: int = 4

    def read(
        self, path: Path, schema: S, target: str, labels: Sequence[Label]
    ) -> Rows | Population:
        return read_rows(path, schema)

    def public(self, schema: S) -> S:
        """What of a silo's schema is compared with the pool's."""
        return schema

    @abstractmethod
    def labels(
        self, schema: S, target: str, classes: tuple[Label, ...]
    ) -> tuple[Label, ...]:
        """The classes, in the order in which they are numbered. ConfigError where such
        rows cannot have these.
        """

    def labels_beside(self, schema: S) -> tuple[Label, ...]:
        """The classes that rows have beside them; of a table, whose columns say them,
        none.
        """
        return ()

    @abstractmethod
    def first_rows(self, rows: R, schema: S, target: str) -> tuple[Tensor, Tensor]:
        """One row of each person, without its class, and the classes: (people, …),
        (people,).
        """

    @abstractmethod
    def flipped(self, rows: R, target: str, labels: Sequence[Label]) -> R:
        """The same rows with every class taken for the next one: a lie, for
        rehearsals.
        """

    @abstractmethod
    def fits(
        self, schema: S, plan: NetworkPlan, network: Mapping[str, Any], classes: int
    ) -> bool:
        """Whether a network draws such rows, of so many classes."""

    def vae(
        self, schema: S, target: str, classes: int, latent: int, **more: Any
    ) -> "BetaVae":
        """The networks of all classes, untrained. `more`: `channels` of images, and
        `seed`.
        """
        raise ConfigError(_NO_NETWORK, effect=Effect.NOTHING_CHARGED)

    def decoder(
        self, schema: S, target: str, latent: int, **more: Any
    ) -> dict[str, Any]:
        """What a decoder of the first class is described by. `more`: `channels` of
        images, `hidden` of tables.
        """
        raise ConfigError(_NO_NETWORK, effect=Effect.NOTHING_CHARGED)

    def decoders(self, vae: Any, schema: S, target: str) -> list[nn.Module]:
        """What leaves of the networks: the decoder of every class."""
        return [vae.decoder(number) for number in range(vae.classes)]

    def mass(self, probabilities: Tensor, schema: S, target: str, label: int) -> float:
        """How many of the drawn rows are of this class, where the rows say it: else all
        of them.
        """
        return float(len(probabilities))

    def without_class(self, probabilities: Tensor, schema: S, target: str) -> Tensor:
        """What is drawn besides the class, (rows, width)."""
        return probabilities


class PooledTable(Pooled[Schema, Table]):
    looks = 256

    def labels(
        self, schema: Schema, target: str, classes: tuple[Label, ...]
    ) -> tuple[Label, ...]:
        features = TableFeatures(schema, target)  # the target is a class
        _require_classes(not classes, classes)
        return features.labels

    def first_rows(
        self, rows: Table, schema: Schema, target: str
    ) -> tuple[Tensor, Tensor]:
        codes = Codec(schema).codes(rows.first_of_each().frame)
        label_index = schema.names.index(target)
        features = Codec(schema.drop([target])).one_hot(
            np.delete(codes, label_index, axis=1)
        )
        return features, torch.from_numpy(codes[:, label_index].astype(np.int64))

    def flipped(self, rows: Table, target: str, labels: Sequence[Label]) -> Table:
        column = rows.frame[target]
        swapped = column.map(
            dict(zip(labels, [*labels[1:], labels[0]], strict=True))
        ).astype(column.dtype)
        return replace(rows, frame=rows.frame.assign(**{target: swapped}))

    def fits(
        self,
        schema: Schema,
        plan: NetworkPlan,
        network: Mapping[str, Any],
        classes: int,
    ) -> bool:
        return plan.levels and plan.drawn == TABLE.sizes(schema)

    def vae(
        self, schema: Schema, target: str, classes: int, latent: int, **more: Any
    ) -> "BetaVae":
        from understudy.models.nets.beta_vae import TableVae

        return TableVae(
            classes,
            TABLE.sizes(schema.drop([target])),
            latent,
            seed=more.get("seed", 0),
        )

    def decoder(
        self, schema: Schema, target: str, latent: int, **more: Any
    ) -> dict[str, Any]:
        from understudy.models.nets.beta_vae import DECODER

        sizes = TABLE.sizes(schema)
        hidden = more.get("hidden", DECODER)
        label = (schema.names.index(target), 0)
        return {
            "kind": "class-decoder",
            "latent": latent,
            "hidden": hidden,
            "sizes": sizes,
            "label": label,
        }

    def decoders(self, vae: Any, schema: Schema, target: str) -> list[nn.Module]:
        label_index = schema.names.index(target)
        return [
            vae.decoder(number, label_index, vae.classes)
            for number in range(vae.classes)
        ]

    def mass(
        self, probabilities: Tensor, schema: Schema, target: str, label: int
    ) -> float:
        label_probabilities = probabilities[:, _block(schema, target)].double()
        return float((label_probabilities[:, label] / label_probabilities.sum(1)).sum())

    def without_class(
        self, probabilities: Tensor, schema: Schema, target: str
    ) -> Tensor:
        block = _block(schema, target)
        return torch.cat(
            [probabilities[:, : block.start], probabilities[:, block.stop :]], 1
        )


A = TypeVar("A", ImageSchema, SeriesSchema)


class _PooledArrays(Pooled[A, ArrayTable[A]]):
    def labels_beside(self, schema: A) -> tuple[Label, ...]:
        one_label(schema, "a pool")
        return schema.classes

    def first_rows(
        self, rows: ArrayTable[A], schema: A, target: str
    ) -> tuple[Tensor, Tensor]:
        assert rows.classes is not None, (
            "a pool with classes takes rows with classes alone"
        )
        first = rows.starts[:-1][np.diff(rows.starts) > 0]
        return torch.from_numpy(rows.values[first]), torch.from_numpy(
            rows.classes[first]
        )

    def flipped(
        self, rows: ArrayTable[A], target: str, labels: Sequence[Label]
    ) -> ArrayTable[A]:
        return (
            rows
            if rows.classes is None
            else replace(rows, classes=(rows.classes + 1) % len(labels))
        )

    def fits(
        self, schema: A, plan: NetworkPlan, network: Mapping[str, Any], classes: int
    ) -> bool:
        same_rows = (
            not plan.levels
            and plan.drawn == schema.shape
            and plan.classes in (None, max(1, classes))
        )
        return same_rows and (
            network["kind"] != "moments" or _fits_frame(schema, network)
        )


class PooledImages(_PooledArrays[ImageSchema]):
    def read(
        self, path: Path, schema: ImageSchema, target: str, labels: Sequence[Label]
    ) -> Population:
        return read_labelled_images(path, schema, target=target, labels=labels)

    def public(self, schema: ImageSchema) -> ImageSchema:
        """Without their class: a pool names it beside their schema."""
        return replace(schema, label=None, classes=(), labels=())

    def labels(
        self, schema: ImageSchema, target: str, classes: tuple[Label, ...]
    ) -> tuple[Label, ...]:
        _require_classes(bool(classes), classes)
        return classes

    def vae(
        self, schema: ImageSchema, target: str, classes: int, latent: int, **more: Any
    ) -> "BetaVae":
        from understudy.models.nets.beta_vae import ImageVae

        return ImageVae(classes, schema.grey_shape, latent, **more)

    def decoder(
        self, schema: ImageSchema, target: str, latent: int, **more: Any
    ) -> dict[str, Any]:
        layers = more["channels"]
        shape = schema.grey_shape
        return {
            "kind": "class-image-decoder",
            "latent": latent,
            "channels": layers,
            "shape": shape,
        }


class PooledSeries(_PooledArrays[SeriesSchema]):
    def labels(
        self, schema: SeriesSchema, target: str, classes: tuple[Label, ...]
    ) -> tuple[Label, ...]:
        if (target or None) != schema.label or classes not in ((), schema.classes):
            raise ConfigError(
                "series have the class that their schema names.",
                effect=Effect.NOTHING_EXCHANGED,
            )
        return schema.classes


_POOLED: dict[str, Pooled[Any, Any]] = {
    TABLE.name: PooledTable(),
    IMAGES.name: PooledImages(),
    SERIES.name: PooledSeries(),
}


def pooled(schema: AnySchema) -> Pooled[Any, Any]:
    return _POOLED[schema.kind]


@dataclass(frozen=True)
class SiloRows:
    """A silo's rows; of a population, images with pixels in [0, 1]. `labels`: classes
    beside the rows.
    """

    rows: Rows
    labels: tuple[Label, ...]
    bounded: bool = True  # whether their schema says the bounds of a pixel

    @classmethod
    def from_held(cls, data: SiloData) -> "SiloRows":
        if not isinstance(data, Population):
            return cls(data, pooled(data.schema).labels_beside(data.schema))
        schema = image_schema(data.features)
        values = data.features.expand(data.rows).numpy()
        codes = data.codes.numpy()
        starts = data.starts.numpy()
        images = Images(
            values, data.ids, starts, schema, "the population of images", codes
        )
        return cls(images, data.features.labels, bounded=False)

    def schema_beside(self, pool: AnySchema) -> AnySchema:
        """What is public about them, to be compared with a pool's schema: without own
        bounds, in the pool's.
        """
        schema = self.rows.schema
        if self.bounded or not IMAGES.describes(schema) or not IMAGES.describes(pool):
            return pooled(schema).public(schema)  # type: ignore[no-any-return]
        return replace(
            pool, height=schema.height, width=schema.width, channels=schema.channels
        )


def image_schema(features: Features) -> ImageSchema:
    """The schema of labelled images: (height, width), in colour (height, width, 3);
    pixels of 8 bits or in [0, 1].
    """
    shape = features.shape
    if (
        not isinstance(features, ArrayFeatures)
        or len(shape) not in (2, 3)
        or shape[2:] not in ((), (3,))
    ):
        described = (
            "a population of table rows"
            if isinstance(features, TableFeatures)
            else f"rows of {shape}"
        )
        raise ConfigError(
            "SGDE takes tables, or images of (height, width) or (height, width, 3), "
            f"not {described}.",
            effect=Effect.NOTHING_CHARGED,
        )
    height, width, *colours = shape
    return ImageSchema(height=height, width=width, channels=math.prod(colours))


def _require_classes(fit: bool, classes: Sequence[Label]) -> None:
    if not fit:
        raise ConfigError(
            "classes are for images, and images need them; here they are "
            f"{list(classes)}.",
            effect=Effect.NOTHING_EXCHANGED,
        )


def _block(schema: Schema, target: str) -> slice:
    return Codec(schema).blocks[schema.names.index(target)]


def _fits_frame(schema: ArraySchema, network: Mapping[str, Any]) -> bool:
    """Whether sums are in the frame of these rows, upright or not."""
    stated = {
        key: network[key]
        for key in ("shape", "sides", "features", "upright")
        if key in network
    }
    turned = stated.get("upright", False)
    frame = Frame.from_schema(
        schema, stated["features"] - (POSES if turned else 0), upright=turned
    )
    return frame.describe() == stated
