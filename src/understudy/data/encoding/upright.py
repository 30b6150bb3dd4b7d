"""Images turned upright and moved to their middle, and back: a public map of each image alone.

What an image shows is what differs from the mean of its edge. By its first and second moments it has a middle and a
lean: its lines are moved sideways, each by `lean` more than the one above, until the two sides do not go together (as
handwriting is deskewed; LeCun et al., Proc. IEEE 1998), and the middle of it comes to the middle of the image. The
three numbers by which that was done are kept, and undo it. So what leans differently need not be told by a Gaussian of
pixels.

Guarantee: all is done in whole numbers below 2⁵³, or by single rounded operations on the numbers of one image: what
becomes of an image is the same to the last bit whoever else is in the batch. Values stay between the least and the
largest of the image.
Edges: an image of one value stays as it is. What would lean or lie farther than the bounds is moved up to them; what is
moved over an edge is lost, and values at the edge are repeated.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

POSES = 3  # numbers that say how an image was moved: its lean, and its middle, sideways and down
FINE = 64  # parts of a pixel
LEAN, ASIDE = 0.75, 0.125  # the largest: pixels aside for each line, and of the side of the image
# What a lean of 1, and a middle that is a whole side away, weigh beside values: of the root of the number of pixels.
WEIGHTS = (0.18, 0.7)


def upright(steps: Tensor) -> tuple[Tensor, Tensor]:
    """Images of whole numbers (n, height, width, channels), and how they were moved: poses (n, 3), as `leaning` takes
    them, in parts of a pixel and of a line, and the images upright."""
    _, height, width, channels = steps.shape
    ground = steps[..., 0] if channels == 1 else steps.sum(3)
    shown = (ground - _edge(ground).round()[:, None, None]).abs_()
    # Twice the distance from the middle is a whole number.
    s, sx, sy, sxx, sxy, syy = (shown.flatten(1) @ _places(height, width)).unbind(1)
    s = s.clamp(min=1.0)
    both = sxy - sx * sy / s
    longest = torch.maximum(torch.maximum(sxx - sx * sx / s, syy - sy * sy / s), torch.ones_like(s))
    found = torch.stack([both / longest, sx / s / 2, sy / s / 2], 1)
    poses = (found * FINE).round().clamp(*_bounds(height, width))
    # Exact in 24 bits: steps have twelve, with their sign, and a part of a pixel, twice, another twelve.
    return poses, _moved(steps.float(), poses / FINE, back=False).round().double()


def leaning(values: Tensor, poses: Tensor) -> Tensor:
    """Upright images (n, height, width, channels) as they were before, by poses (n, 3) as `upright` gave them."""
    _, height, width, _ = values.shape
    least, most = (bound.to(poses) for bound in _bounds(height, width))
    return _moved(values, poses.clamp(least, most) / FINE, back=True)


def weights(height: int, width: int) -> Tensor:
    """What poses, as `upright` gives them, are multiplied with beside values: (3,)."""
    root = math.sqrt(height * width) / FINE
    lean, aside = WEIGHTS
    return torch.tensor([lean, aside / width, aside / height], dtype=torch.float64) * root


def reach(height: int, width: int) -> float:
    """The largest norm of weighted poses."""
    return float((_bounds(height, width)[1] * weights(height, width)).norm())


def _moved(values: Tensor, poses: Tensor, *, back: bool) -> Tensor:
    """Images whose lines, and columns, are moved by these numbers of pixels, or back; between pixels by a line."""
    n, height, width, channels = values.shape
    lean, aside, down = poses.to(values.dtype).unsqueeze(2).unbind(1)  # (n, 1) each
    down = _fine(-down if back else down)
    lines = torch.arange(height + 1, dtype=values.dtype, device=values.device)  # one more than there are
    upper = lines[:-1] + down if back else lines[:-1]
    across = _fine(lean * (upper - (height - 1) / 2) + aside) * (-1 if back else 1)  # (n, height)
    above, left = down.floor(), across.floor()
    flat = values.transpose(2, 3).reshape(n * height, -1)  # a line of each colour after the other
    at = (above + lines).long().clamp(0, height - 1) + height * torch.arange(n, device=values.device)[:, None]
    rows = flat.index_select(0, at.flatten()).view(n, height + 1, -1)
    rows = torch.lerp(rows[:, :-1], rows[:, 1:], (down - above)[..., None]).reshape(-1, width)
    steps = torch.arange(-width, width + 1, device=values.device)[:, None]  # farther, and all is the edge
    places = (steps + torch.arange(width + 1, device=values.device)).clamp(0, width - 1)
    some = (left.long().clamp(-width, width) + width).flatten().repeat_interleave(channels)
    rows = rows.gather(1, places.index_select(0, some)).view(n, height, channels, -1)
    part = (across - left)[:, :, None, None]
    return torch.lerp(rows[..., :-1], rows[..., 1:], part).transpose(2, 3)


def _fine(pixels: Tensor) -> Tensor:
    return (pixels * FINE).round() / FINE


def _bounds(height: int, width: int) -> tuple[Tensor, Tensor]:
    most = torch.tensor([LEAN, ASIDE * width, ASIDE * height], dtype=torch.float64) * FINE
    return -most.floor(), most.floor()


def _edge(ground: Tensor) -> Tensor:
    """The mean of the pixels at the edge of images (n, height, width): (n,)."""
    height, width = ground.shape[1:]
    inside = ground[:, 1:-1, 1:-1].sum((1, 2))
    return (ground.sum((1, 2)) - inside) / (height * width - max(height - 2, 0) * max(width - 2, 0))


@lru_cache(maxsize=16)
def _places(height: int, width: int) -> Tensor:
    """1, x, y, x², xy and y² of every pixel, twice the distance from the middle: whole numbers, (pixels, 6)."""
    y, x = (2.0 * torch.arange(side, dtype=torch.float64) - (side - 1) for side in (height, width))
    y, x = (grid.flatten() for grid in torch.meshgrid(y, x, indexing="ij"))
    return torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], 1)
