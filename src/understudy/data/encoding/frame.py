"""Images and series as whole numbers in a public frame: the low frequencies of their
cosine transform.

Of an image both sides are transformed, of a series the time, each channel by itself
(the orthonormal DCT-II; Ahmed, Natarajan, Rao, IEEE Trans. Comput. 1974). Values in [0,
1] are counted from 1/2, in steps of 1/4096; so is what comes out. The frame is fixed
before anybody has seen a row: it depends on the shape alone.

All of it is done in whole numbers below 2⁵³, held in doubles, of which sums are exact
in any order, or, where images are turned, by single rounded operations on the numbers
of one image. So what becomes of a row is the same to the last bit whoever else is in
the batch.

Images may be turned upright and moved to their middle before. What an image shows is
what differs from the mean of its edge. By its first and second moments it has a middle
and a lean: its lines are moved sideways, each by `lean` more than the one above, until
the two sides do not go together (as handwriting is deskewed; LeCun et al., Proc. IEEE
1998), and the middle of it comes to the middle of the image. The three numbers by which
that was done are kept, and undo it. So what leans differently need not be told by a
Gaussian of pixels.

Guarantee: a row's coefficients depend on that row and the shape alone; nothing is
fitted.
Edges: more than 2¹⁴ values in a row, or a side above 2¹² → ConfigError. Upright, an
image of one value stays as it is; what would lean or lie farther than the bounds is
moved up to them; what is moved over an edge is lost, and values at the edge are
repeated, so that values stay between the least and the largest of the image.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.arrays import ArraySchema, Values
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError, Effect

Whole = NDArray[np.float64]  # whole numbers below 2⁵³

UNIT = 1 << 12  # steps of one, in values and in coefficients
MOST_VALUES = 1 << 14  # of a row: its norm about 1/2 is then at most 2⁶, in steps 2¹⁸
MOST_FEATURES = 1 << 10
# numbers that say how an image was moved: its lean, and its middle, sideways and down
POSES = 3
FINE = 64  # parts of a pixel
# the largest: pixels aside for each line, and of the side of the image
LEAN = 0.75
ASIDE = 0.125
# What a lean of 1, and a middle that is a whole side away, weigh beside values: of the
# root of the number of pixels.
WEIGHTS = (0.18, 0.7)
_CHUNK = 1 << 9  # rows at a time: what is in work stays small beside the rows


@dataclass(frozen=True)
class Frame:
    """Rows of this `shape`, transformed along the first `sides` of it; `features`
    numbers are kept of each. `norm`: of the largest norm that a row can have, what its
    schema declares (`declared`). `upright`: images are turned upright before, and the
    numbers that say how are the first features.
    """

    shape: tuple[int, ...]
    sides: int
    features: int = MOST_FEATURES
    norm: float = 1.0
    upright: bool = False

    def __post_init__(self) -> None:
        whole(features=self.features, **{"each side of a row": min(self.shape)})
        can_turn = self.sides == 2 and self._slow >= 1
        if type(self.upright) is not bool or (self.upright and not can_turn):
            raise ConfigError(
                "only images are turned upright, and of those more is kept than how "
                "they were turned."
            )
        is_large = math.prod(self.shape) > MOST_VALUES or max(self.shape) > UNIT
        if is_large or self._slow > MOST_FEATURES:
            raise ConfigError(
                f"rows of {' × '.join(map(str, self.shape))} values with "
                f"{self.features:,} features are too large: at most {MOST_VALUES:,} "
                f"values and {MOST_FEATURES:,} features.",
                effect=Effect.NOTHING_CHARGED,
            )

    @classmethod
    def from_schema(
        cls,
        schema: ArraySchema,
        features: int,
        *,
        upright: bool = False,
    ) -> "Frame":
        """The frame of these images or series. Of a series all channels of a frequency
        are kept, or none. With `upright`, images are turned before, and the numbers for
        it come on top; not those whose schema declares a norm, which stay near the
        middle grey and show nothing on a ground.
        """
        turned = upright and schema.sides == 2 and schema.norm is None
        step = 1 if schema.sides == 2 else schema.shape[1]
        wanted = min(math.prod(schema.shape), features)
        kept = step * max(1, wanted // step)
        if turned:
            kept += POSES
        return cls(schema.shape, schema.sides, kept, upright=turned)

    @classmethod
    def declared(
        cls,
        schema: ArraySchema,
        features: int,
        *,
        upright: bool = False,
    ) -> "Frame":
        """The same with the schema's norm: for sums that pull longer rows in, and
        nothing that trusts their length.
        """
        frame = cls.from_schema(schema, features, upright=upright)
        return replace(frame, norm=schema.norm or 1.0)

    @property
    def _slow(self) -> int:
        """How many coefficients are kept."""
        return self.features - self.poses

    @property
    def poses(self) -> int:
        """How many of the features say how an image was turned."""
        return POSES if self.upright else 0

    @cached_property
    def frequencies(self) -> NDArray[np.float64]:
        """How fast each value of a row's transform swings, (*shape): 0 for a mean, near
        1 for the fastest on a side.
        """
        sides = []
        for side, n in enumerate(self.shape):
            is_transformed = side < self.sides
            sides.append(np.arange(n) / n if is_transformed else np.zeros(n))
        grids = np.meshgrid(*sides, indexing="ij")
        squares = sum(np.square(grid) for grid in grids)
        return np.asarray(np.sqrt(squares))

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The places of the kept coefficients in a flat row, slow ones first."""
        rising = np.argsort(self.frequencies.ravel(), kind="stable")
        return rising[: self._slow]

    def coefficients(self, values: Values) -> Whole:
        """Rows (n, *shape) in [0, 1] as whole numbers, in steps of 1/4096: (n,
        features).
        """
        out = np.empty((len(values), self.features))
        frequency = np.unravel_index(self.order, self.shape)
        # of each side, faster ones are not needed
        sizes = [
            int(side_frequency.max()) + 1 for side_frequency in frequency[: self.sides]
        ]
        sides = self.shape[: self.sides]
        bases = [
            np.rint(dct(n) * UNIT)[:size] for n, size in zip(sides, sizes, strict=True)
        ]
        kept_shape = (*sizes, *self.shape[self.sides :])
        kept = np.ravel_multi_index(frequency, kept_shape)
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK].astype(np.float64)
            part = np.rint((chunk - 0.5) * UNIT)
            rows = out[start : start + len(part)]
            if self.upright:
                rows[:, :POSES], part = self._turned(part)
            for axis, basis in enumerate(bases, 1):
                last = np.moveaxis(part, axis, -1)
                part = np.moveaxis(last @ basis.T, -1, axis)
            flat = part.reshape(len(part), -1)[:, kept]
            rows[:, self.poses :] = np.rint(flat / float(UNIT**self.sides))
        return out

    def _turned(self, steps: Whole) -> tuple[Whole, Whole]:
        """The weighed poses of some images, and these upright."""
        images = torch.from_numpy(steps).view(len(steps), *self.shape[:2], -1)
        poses, standing = upright(images)
        weighed = np.rint((poses * self.weights).numpy())
        return weighed, standing.numpy().reshape(steps.shape)

    @cached_property
    def weights(self) -> Tensor:
        """In steps, what the numbers of `upright` are multiplied with: (3,)."""
        return UNIT * weights(*self.shape[:2])

    def leaning(self, values: Tensor, coefficients: Tensor) -> Tensor:
        """Flat values of upright images as these were before they were turned, by their
        coefficients: (n, values).
        """
        poses = coefficients[:, :POSES] / self.weights.to(coefficients)
        images = values.view(len(values), *self.shape[:2], -1)
        return leaning(images, poses).flatten(1)

    @property
    def reach(self) -> int:
        """The norm of a row's coefficients is at most this: that of a row of zeros, and
        what rounding adds. Edges: where a smaller `norm` is declared, rows may be
        longer, and who uses it pulls them in.
        """
        longest = UNIT * math.sqrt(math.prod(self.shape)) / 2
        turned = UNIT * reach(*self.shape[:2]) if self.upright else 0.0
        norm = self.norm * math.hypot(longest, turned)
        return math.ceil(norm * (1 + 2.0**-8)) + self.features

    @property
    def channels(self) -> int:
        """How many values there are at one place."""
        return math.prod(self.shape[self.sides :])

    def histograms(self, values: Values, bins: int) -> Whole:
        """How many of a row's values lie in each even bin of [0, 1], channel by
        channel: (n, channels · bins). Edges: what is outside counts in the bin that is
        next, and no number in the first.
        """
        width = self.channels * bins
        out = np.empty((len(values), width))
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK]
            part = chunk.reshape(-1, self.channels).astype(np.float64)
            cells = np.clip(np.floor(part * bins), 0, bins - 1)
            cells = np.nan_to_num(cells).astype(np.int64)
            cells += bins * np.arange(self.channels)
            rows = len(part) * self.channels // math.prod(self.shape)
            first_cells = width * np.arange(rows)[:, None]
            cells = cells.reshape(rows, -1) + first_cells
            counts = np.bincount(cells.ravel(), minlength=rows * width)
            out[start : start + rows] = counts.reshape(rows, width)
        return out

    def matrix(self) -> NDArray[np.float64]:
        """What turns coefficients back into flat values about 1/2: (features, values);
        `leaning` is still to come.
        """
        flat = np.ones((self._slow, 1))
        frequency = np.unravel_index(self.order, self.shape)
        for side, side_frequency in enumerate(frequency):
            n = self.shape[side]
            waves = dct(n) if side < self.sides else np.eye(n)
            wave = waves[side_frequency]  # (features, n)
            flat = (flat[:, :, None] * wave[:, None, :]).reshape(len(flat), -1)
        no_poses = np.zeros((self.poses, flat.shape[1]))
        return np.concatenate([no_poses, flat / UNIT])

    def describe(self) -> dict[str, Any]:
        description: dict[str, Any] = {
            "shape": list(self.shape),
            "sides": self.sides,
            "features": self.features,
        }
        if self.upright:
            description["upright"] = True
        return description

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Frame":
        """The inverse of `describe`; other keys are ignored."""
        return cls(
            tuple(description["shape"]),
            description["sides"],
            description["features"],
            upright=description.get("upright", False),
        )


def dct(n: int) -> NDArray[np.float64]:
    """The orthonormal DCT-II of n values: (frequencies, values)."""
    angles = np.pi * np.outer(np.arange(n), 2 * np.arange(n) + 1) / (2 * n)
    waves: NDArray[np.float64] = np.cos(angles) * math.sqrt(2 / n)
    waves[0] = math.sqrt(1 / n)
    return waves


def packed(moments: Tensor) -> Tensor:
    """The upper triangles of (…, d, d): (…, d(d+1)/2)."""
    upper = torch.triu_indices(moments.shape[-1], moments.shape[-1])
    return moments[..., upper[0], upper[1]]


def unpacked(triangles: Tensor, d: int) -> Tensor:
    upper = torch.triu_indices(d, d)
    full = triangles.new_zeros(*triangles.shape[:-1], d, d)
    full[..., upper[0], upper[1]] = triangles
    full[..., upper[1], upper[0]] = triangles
    return full


def on_diagonal(d: int) -> Tensor:
    """Which entries of a packed triangle stand on the diagonal: (d(d+1)/2,)."""
    upper = torch.triu_indices(d, d)
    return upper[0] == upper[1]


# Upright images


def upright(steps: Tensor) -> tuple[Tensor, Tensor]:
    """Images of whole numbers (n, height, width, channels), and how they were moved:
    poses (n, 3), as `leaning` takes them, in parts of a pixel and of a line, and the
    images upright.
    """
    _, height, width, channels = steps.shape
    ground = steps[..., 0] if channels == 1 else steps.sum(3)
    edge = _edge(ground).round()
    shown = (ground - edge[:, None, None]).abs_()
    # Twice the distance from the middle is a whole number.
    moments = shown.flatten(1) @ _places(height, width)
    s, sx, sy, sxx, sxy, syy = moments.unbind(1)
    s = s.clamp(min=1.0)
    covariance = sxy - sx * sy / s
    spread_across = sxx - sx * sx / s
    spread_down = syy - sy * sy / s
    spread = torch.maximum(spread_across, spread_down)
    spread = torch.maximum(spread, torch.ones_like(s))
    lean = covariance / spread
    aside = sx / s / 2
    down = sy / s / 2
    in_parts = torch.stack([lean, aside, down], 1) * FINE
    poses = in_parts.round().clamp(*_bounds(height, width))
    # Exact in 24 bits: steps have twelve, with their sign, and a part of a pixel,
    # twice, another twelve.
    moved = _moved(steps.float(), poses / FINE, back=False)
    return poses, moved.round().double()


def leaning(values: Tensor, poses: Tensor) -> Tensor:
    """Upright images (n, height, width, channels) as they were before, by poses (n, 3)
    as `upright` gave them.
    """
    _, height, width, _ = values.shape
    lower, upper = (bound.to(poses) for bound in _bounds(height, width))
    pixels = poses.clamp(lower, upper) / FINE
    return _moved(values, pixels, back=True)


def weights(height: int, width: int) -> Tensor:
    """What poses, as `upright` gives them, are multiplied with beside values: (3,)."""
    root = math.sqrt(height * width) / FINE
    lean, aside = WEIGHTS
    each = [lean, aside / width, aside / height]
    return torch.tensor(each, dtype=torch.float64) * root


def reach(height: int, width: int) -> float:
    """The largest norm of weighted poses."""
    _, most = _bounds(height, width)
    return float((most * weights(height, width)).norm())


def _moved(values: Tensor, poses: Tensor, *, back: bool) -> Tensor:
    """Images whose lines, and columns, are moved by these numbers of pixels, or back;
    between pixels by a line.
    """
    _, height, _, _ = values.shape
    lean, aside, down = poses.to(values.dtype).unsqueeze(2).unbind(1)  # (n, 1) each
    down = _fine(-down if back else down)
    lines = torch.arange(height, dtype=values.dtype, device=values.device)
    upper = lines + down if back else lines
    # (n, height)
    across = _fine(lean * (upper - (height - 1) / 2) + aside)
    if back:
        across = -across
    return _moved_across(_moved_down(values, down), across)


def _moved_down(values: Tensor, down: Tensor) -> Tensor:
    """The lines so far below, (n, height, channels, width); `down` is (n, 1)."""
    n, height, width, channels = values.shape
    device = values.device
    above = down.floor()
    # one more than there are
    lines = torch.arange(height + 1, dtype=values.dtype, device=device)
    line = (above + lines).long().clamp(0, height - 1)
    first_lines = height * torch.arange(n, device=device)[:, None]
    # a line of each colour after the other
    flat = values.transpose(2, 3).reshape(n * height, -1)
    index = (line + first_lines).flatten()
    rows = flat.index_select(0, index).view(n, height + 1, -1)
    part = (down - above)[..., None]
    between = torch.lerp(rows[:, :-1], rows[:, 1:], part)
    return between.view(n, height, channels, width)


def _moved_across(lines: Tensor, across: Tensor) -> Tensor:
    """The same lines so far to the right, as images (n, height, width, channels);
    `across` is (n, height).
    """
    n, height, channels, width = lines.shape
    device = lines.device
    left = across.floor()
    # farther, and all is the edge
    steps = torch.arange(-width, width + 1, device=device)[:, None]
    # one more than there are
    columns = torch.arange(width + 1, device=device)
    column = (steps + columns).clamp(0, width - 1)
    shift = left.long().clamp(-width, width) + width
    shifts = shift.flatten().repeat_interleave(channels)
    flat = lines.reshape(-1, width)
    pixels = flat.gather(1, column.index_select(0, shifts))
    pixels = pixels.view(n, height, channels, width + 1)
    part = (across - left)[:, :, None, None]
    between = torch.lerp(pixels[..., :-1], pixels[..., 1:], part)
    return between.transpose(2, 3)


def _fine(pixels: Tensor) -> Tensor:
    return (pixels * FINE).round() / FINE


def _bounds(height: int, width: int) -> tuple[Tensor, Tensor]:
    """The least and the largest poses."""
    pixels = [LEAN, ASIDE * width, ASIDE * height]
    limits = (torch.tensor(pixels, dtype=torch.float64) * FINE).floor()
    return -limits, limits


def _edge(ground: Tensor) -> Tensor:
    """The mean of the pixels at the edge of images (n, height, width): (n,)."""
    height, width = ground.shape[1:]
    inside = ground[:, 1:-1, 1:-1].sum((1, 2))
    inner_pixels = max(height - 2, 0) * max(width - 2, 0)
    at_edge = ground.sum((1, 2)) - inside
    return at_edge / (height * width - inner_pixels)


@lru_cache(maxsize=16)
def _places(height: int, width: int) -> Tensor:
    """1, x, y, x², xy and y² of every pixel, twice the distance from the middle: whole
    numbers, (pixels, 6).
    """
    down = 2.0 * torch.arange(height, dtype=torch.float64) - (height - 1)
    across = 2.0 * torch.arange(width, dtype=torch.float64) - (width - 1)
    grids = torch.meshgrid(down, across, indexing="ij")
    y, x = (grid.flatten() for grid in grids)
    return torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], 1)
