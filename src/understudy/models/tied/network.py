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
    def __init__(self, part: ArrayPart, width: int, classes: int) -> None:
        super().__init__()
        self.part = part
        self.mean = nn.Parameter(torch.zeros(part.frame.features))
        self.slope = nn.Parameter(torch.zeros(width, part.frame.features))
        self.make_frame(part.frame, classes, part.directions)

    def raw(self, t: Tensor, classes: Tensor, g: Tensor, v: Tensor) -> Tensor:
        """Levels about their mean (n, width), classes (n,), normals → values as the
        Gaussians have them.
        """
        return self.turned_back(self.varied(self.mean + t @ self.slope, classes, g, v))

    def means(self) -> Tensor:
        return self.turned_back(self.mean[None])[0].mean(0)


class TiedGaussians(Network):
    """All parties' rows at once, in their order. `label`: the column, over all tables,
    of the class, if any.
    """

    kind = "tied"

    def __init__(
        self, parts: Sequence[Part], *, components: int, label: int | None
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.label = label
        self.sizes = tuple(
            size for part in parts if not isinstance(part, ArrayPart) for size in part
        )
        self.components = components
        arrays = [part for part in parts if isinstance(part, ArrayPart)]
        _check(self.parts, self.sizes, components, label)
        self.classes = 1 if label is None else self.sizes[label]
        width = sum(self.sizes)
        directions = sum(part.directions for part in arrays)
        self.table = MixtureOfProducts(self.sizes, components) if self.sizes else None
        self.middle = nn.Parameter(torch.zeros(width))
        # not torch.eye: on "meta" it loads torch's compiler, for seconds
        self.mixing = nn.Parameter(
            torch.zeros(directions, directions).fill_diagonal_(1)
        )
        self.arrays = nn.ModuleList(
            TiedArray(part, width, self.classes) for part in arrays
        )
        beside = sum(array.beside for array in self.own)
        self.latent = 1 + len(self.sizes) + directions + beside

    @property
    def own(self) -> list[TiedArray]:
        return cast(list[TiedArray], list(self.arrays))

    def levels(self, z: Tensor) -> Tensor:
        """The level of every column of every table: (n, columns)."""
        if self.table is None:
            return torch.zeros(len(z), 0, dtype=torch.int64)
        odds = torch.split(self.table.rows(z[:, :1]).double(), list(self.sizes), 1)
        uniform = torch.special.ndtr(z[:, 1 : 1 + len(odds)].double())
        return torch.stack(
            [invert(own, uniform[:, column]) for column, own in enumerate(odds)], 1
        )

    def raw(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Latent points (n, latent) → one-hot levels, and of each array its values
        before they are mapped.
        """
        levels = self.levels(z)
        hot = one_hot(levels, self.sizes)
        start = 1 + len(self.sizes)
        first = torch.zeros(len(z), dtype=torch.int64, device=z.device)
        classes = first if self.label is None else levels[:, self.label]
        stop = start + len(self.mixing)
        mixed = z[:, start:stop] @ self.mixing.T
        out = []
        at = 0
        for array in self.own:
            k = array.part.directions
            v = z[:, stop : stop + array.beside]
            out.append(array.raw(hot - self.middle, classes, mixed[:, at : at + k], v))
            at = at + k
            stop = stop + array.beside
        return hot, out

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → all parties' rows side by side, (n, width of
        all).
        """
        hot, raw = self.raw(z)
        arrays = (
            array.shaded(own).flatten(1)
            for array, own in zip(self.own, raw, strict=True)
        )
        out = []
        at = 0
        for part in self.parts:
            if isinstance(part, ArrayPart):
                out.append(next(arrays))
            else:
                out.append(hot[:, at : at + sum(part)])
                at += sum(part)
        return torch.cat(out, 1)

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
    parts: Sequence[Part], sizes: tuple[int, ...], components: int, label: int | None
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
