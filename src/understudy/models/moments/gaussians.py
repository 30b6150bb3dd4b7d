"""Images or series drawn from Gaussians in a public frame, each of a cell of a class.

A row is m_c + B F_c u + t ∘ v with u and v standard normal: the cell's mean, its own covariance in the directions B
that all cells share, and beside them the small variances t² of the coefficients. It is then turned back from the
frame (`data.encoding.frame`), an image that was turned upright to how it leaned, and its values are mapped, channel by
channel, by a rising line through `KNOTS` points, which brings them to the released histograms; where there are none it
cuts them to [0, 1].
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data.encoding.frame import Frame
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

KNOTS = 257
_MOST_CELLS = 1 << 16
_MOST_PARAMETERS = 1 << 28


class CellGaussians(nn.Module):
    """`classes` × `cells` Gaussians over the frame's features, with `directions` shared.

    The latent point is a number that picks the cell, and the normals u and v.
    """

    def __init__(self, frame: Frame, *, classes: int, cells: int, directions: int) -> None:
        super().__init__()
        whole(classes=classes, cells=cells, directions=directions)
        count, width = classes * cells, frame.features
        numbers = count * (width + directions**2) + width * directions
        if directions > width or count > _MOST_CELLS or numbers > _MOST_PARAMETERS:
            raise ConfigError(f"{count:,} Gaussians of {directions} directions are too large a model.")
        self.frame, self.classes, self.cells, self.directions = frame, classes, cells, directions
        self.latent = 1 + directions + width
        self.shares = nn.Parameter(torch.full((count,), 1 / count))
        self.means = nn.Parameter(torch.zeros(count, width))
        self.factors = nn.Parameter(torch.zeros(count, directions, directions))
        self.basis = nn.Parameter(torch.zeros(width, directions))
        self.tail = nn.Parameter(torch.zeros(width))
        line = torch.linspace(0, 1, KNOTS).repeat(frame.channels, 1)
        self.inner = nn.Parameter(line)  # (channels, knots): values as they come
        self.outer = nn.Parameter(line.clone())  # and as they become

    @cached_property
    def _back(self) -> Tensor:
        return torch.from_numpy(self.frame.matrix()).float()  # (features, values)

    def pick(self, z: Tensor) -> Tensor:
        """The cell of each latent point: (n,)."""
        ends = self.shares.double().clamp(min=0).cumsum(0)
        at = torch.special.ndtr(z[:, 0].double()) * ends[-1]
        return torch.searchsorted(ends, at, right=True).clamp(max=len(ends) - 1)

    def classes_of(self, z: Tensor) -> Tensor:
        """The class of each latent point: (n,)."""
        return self.pick(z) // self.cells

    def aimed(self, z: Tensor, one: int) -> Tensor:
        """The same latent points, with their first numbers moved to where they pick cells of this class."""
        ends = self.shares.double().clamp(min=0).cumsum(0)
        ends = torch.cat([ends.new_zeros(1), ends / ends[-1]])[:: self.cells]
        at = ends[one] + torch.special.ndtr(z[:, 0].double()) * (ends[one + 1] - ends[one])
        first = torch.special.ndtri(at.clamp(1e-12, 1 - 1e-12))
        return torch.cat([first[:, None].to(z.dtype), z[:, 1:]], 1)

    def coefficients(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → coefficients in the frame (n, features)."""
        cell, u, v = self.pick(z), z[:, 1 : 1 + self.directions], z[:, 1 + self.directions :]
        moved = torch.empty_like(u)
        for one in sorted(set(cell.tolist())):
            here = cell == one
            moved[here] = u[here] @ self.factors[one].T
        return self.means[cell] + moved @ self.basis.T + v * self.tail

    def raw(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → values as the Gaussians have them, (n, places, channels)."""
        coefficients = self.coefficients(z)
        flat = 0.5 + coefficients @ self._back.to(z.device)
        if self.frame.upright:
            flat = self.frame.leaning(flat, coefficients)
        return flat.view(len(z), -1, self.frame.channels)

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → values in [0, 1], (n, *shape)."""
        raw = self.raw(z)
        mapped = [mapped_through(raw[:, :, c], self.inner[c], self.outer[c]) for c in range(raw.shape[2])]
        return torch.stack(mapped, 2).clamp(0, 1).view(-1, *self.frame.shape)

    def forward(self, z: Tensor) -> Tensor:
        """As `rows`."""
        return self.rows(z)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "gaussians",
            **self.frame.describe(),
            "classes": self.classes,
            "cells": self.cells,
            "directions": self.directions,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "CellGaussians":
        """The inverse of `describe`, before weights are loaded."""
        return cls(
            Frame.from_description(description),
            **{key: description[key] for key in ("classes", "cells", "directions")},
        )


def mapped_through(values: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """Values on the line through the points (inner, outer), both rising; constant beyond its ends."""
    after = torch.searchsorted(inner.contiguous(), values.contiguous()).clamp(1, len(inner) - 1)
    low, high = inner[after - 1], inner[after]
    part = ((values - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    return outer[after - 1] + part * (outer[after] - outer[after - 1])
