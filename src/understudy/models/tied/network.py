"""A table, images and series of one person, drawn together: levels from a mixture, the
rest from Gaussians given them.

A latent point picks a component of a mixture of products, and a level of every column
of every table by its odds. With t the one-hot levels, t̄ their mean and g a normal
vector of all directions together, an array's row in its frame is

    mean + (t − t̄) slope + basis · factor[class] · g_own + tail ∘ v

where `mixing` turns independent normals into g, whose parts of different arrays are
correlated: what one array says about another beyond what the table says of both. The
class is the level of one column, if one was declared. The row is turned back from the
frame, and its values are mapped to the released histograms
(`models.moments.gaussians`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from understudy.data.encoding.frame import Frame
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.moments.gaussians import FrameValues
from understudy.models.network import MOST_COMPONENTS, MOST_WEIGHTS, Network, each_whole
from understudy.models.tables.mixture import MixtureOfProducts, invert, one_hot

_MOST_PARTS = 64


@dataclass(frozen=True)
class ArrayPart:
    """A party's images or series: their frame, and how many directions of it vary
    together.
    """

    frame: Frame
    directions: int

    @property
    def values(self) -> int:
        return math.prod(self.frame.shape)


TablePart = tuple[int, ...]  # the levels of each column
Part = TablePart | ArrayPart


class TiedArray(FrameValues):
    def __init__(
        self,
        part: ArrayPart,
        width: int,
        classes: int,
    ) -> None:
        super().__init__()
        features = part.frame.features
        self.part = part
        self.mean = nn.Parameter(torch.zeros(features))
        self.slope = nn.Parameter(torch.zeros(width, features))
        self.make_frame(part.frame, classes, part.directions)

    def raw(
        self,
        t: Tensor,
        classes: Tensor,
        g: Tensor,
        v: Tensor,
    ) -> Tensor:
        """Levels about their mean (n, width), classes (n,), normals → values as the
        Gaussians have them.
        """
        means = self.mean + t @ self.slope
        coefficients = self.varied(means, classes, g, v)
        return self.turned_back(coefficients)

    def means(self) -> Tensor:
        """The mean value of each channel."""
        (values,) = self.turned_back(self.mean[None])
        return cast(Tensor, values.mean(0))


class TiedGaussians(Network):
    """All parties' rows at once, in their order. `label`: the column, over all tables,
    of the class, if any.
    """

    kind = "tied"

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        components: int,
        label: int | None,
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.label = label
        tables = [part for part in parts if not isinstance(part, ArrayPart)]
        arrays = [part for part in parts if isinstance(part, ArrayPart)]
        self.sizes = tuple(chain.from_iterable(tables))
        self.components = components
        _check(
            self.parts,
            self.sizes,
            components,
            label,
        )
        self.classes = 1 if label is None else self.sizes[label]
        width = sum(self.sizes)
        directions = sum(part.directions for part in arrays)
        self.table = MixtureOfProducts(self.sizes, components) if self.sizes else None
        self.middle = nn.Parameter(torch.zeros(width))
        # not torch.eye: on "meta" it loads torch's compiler, for seconds
        identity = torch.zeros(directions, directions).fill_diagonal_(1)
        self.mixing = nn.Parameter(identity)
        self.arrays = nn.ModuleList(
            TiedArray(part, width, self.classes) for part in arrays
        )
        tail_normals = sum(array.tail_normals for array in self.own)
        self.latent = 1 + len(self.sizes) + directions + tail_normals

    @property
    def own(self) -> list[TiedArray]:
        return cast(list[TiedArray], list(self.arrays))

    def levels(self, z: Tensor) -> Tensor:
        """The level of every column of every table: (n, columns)."""
        if self.table is None:
            return torch.zeros(len(z), 0, dtype=torch.int64)
        n_columns = len(self.sizes)
        rows = self.table.rows(z[:, :1]).double()
        probabilities = torch.split(rows, list(self.sizes), 1)
        uniforms = torch.special.ndtr(z[:, 1 : 1 + n_columns].double())
        levels = map(invert, probabilities, uniforms.unbind(1))
        return torch.stack(list(levels), 1)

    def raw(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Latent points (n, latent) → one-hot levels, and of each array its values
        before they are mapped.
        """
        levels = self.levels(z)
        hot = one_hot(levels, self.sizes)
        centred = hot - self.middle
        if self.label is None:
            classes = torch.zeros(len(z), dtype=torch.int64, device=z.device)
        else:
            classes = levels[:, self.label]
        directions = [array.part.directions for array in self.own]
        tail_normals = [array.tail_normals for array in self.own]
        _, independent, *tails = torch.split(
            z,
            [1 + len(self.sizes), sum(directions), *tail_normals],
            dim=1,
        )
        mixed = torch.split(independent @ self.mixing.T, directions, dim=1)
        raw = []
        for array, g, v in zip(
            self.own,
            mixed,
            tails,
            strict=True,
        ):
            raw.append(array.raw(centred, classes, g, v))
        return hot, raw

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → all parties' rows side by side, (n, width of
        all).
        """
        hot, raw = self.raw(z)
        arrays = iter(zip(self.own, raw, strict=True))
        blocks = []
        start = 0
        for part in self.parts:
            if isinstance(part, ArrayPart):
                array, values = next(arrays)
                blocks.append(array.shaded(values).flatten(1))
            else:
                end = start + sum(part)
                blocks.append(hot[:, start:end])
                start = end
        return torch.cat(blocks, 1)

    def describe(self) -> dict[str, Any]:
        parts = [
            {**part.frame.describe(), "directions": part.directions}
            if isinstance(part, ArrayPart)
            else {"sizes": list(part)}
            for part in self.parts
        ]
        return {
            "kind": self.kind,
            "parts": parts,
            "components": self.components,
            "label": self.label,
        }

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        parts: list[Part] = [
            tuple(part["sizes"])
            if "sizes" in part
            else ArrayPart(Frame.from_description(part), part["directions"])
            for part in description["parts"]
        ]
        return {
            "parts": parts,
            "components": description["components"],
            "label": description["label"],
        }


def _check(
    parts: Sequence[Part],
    sizes: tuple[int, ...],
    components: int,
    label: int | None,
) -> None:
    """Refuse what a stranger's description should not ask for, by arithmetic alone."""
    arrays = [part for part in parts if isinstance(part, ArrayPart)]
    whole(components=components, arrays=len(arrays))
    each_whole(sizes=sizes)
    if label is not None and (type(label) is not int or not 0 <= label < len(sizes)):
        raise ConfigError(f"column {label!r} of {len(sizes)} is no label.")
    classes = 1 if label is None else sizes[label]
    width = sum(sizes)
    directions = 0
    numbers = components * width
    for part in arrays:
        whole(directions=part.directions)
        if part.directions > part.frame.features:
            raise ConfigError(
                f"{part.directions} directions are more than the features."
            )
        directions += part.directions
        numbers += (
            width + part.directions + 2
        ) * part.frame.features + classes * part.directions**2
    if (
        len(parts) > _MOST_PARTS
        or components > MOST_COMPONENTS
        or numbers + directions**2 > MOST_WEIGHTS
    ):
        raise ConfigError("these are too many parts, or too large a model.")
