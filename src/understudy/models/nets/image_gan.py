"""The networks of an image party in the vertical GANs: a convolutional branch of the generator, and a critic.

Jiang, Zhang, Zhou, Grossklags, "VertiGAN" (PoPETs 2023(2)), §7.1, proposes convolutions for parties with images
and gives no sizes. Ours are the two stride-2 layers of Radford et al., "DCGAN" (2016), without batch normalisation,
which would mix people.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

# Of the generator's branch, coarse to fine; the critic's are the same from fine to coarse.
CHANNELS = (32, 16)
_SCALE = (4, 2, 1)  # kernel, stride and padding: each layer doubles, or halves, both sides


def image_branch(shared: int, channels: Sequence[int], shape: Sequence[int]) -> nn.Sequential:
    """Common features (n, shared) → grey values in [0, 1], row by row: (n, height · width)."""
    coarse, fine = _checked(channels)
    height, width = (-(-side // 4) for side in shape)
    return nn.Sequential(
        nn.Linear(shared, coarse * height * width),
        nn.ReLU(),
        nn.Unflatten(1, (coarse, height, width)),
        nn.ConvTranspose2d(coarse, fine, *_SCALE),
        nn.ReLU(),
        nn.ConvTranspose2d(fine, 1, *_SCALE),
        Cut(shape),
        nn.Sigmoid(),
        nn.Flatten(),
    )


class Cut(nn.Module):
    """The upper left corner of this size."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.height, self.width = shape

    def forward(self, x: Tensor) -> Tensor:
        return x[..., : self.height, : self.width]


class ImageCritic(nn.Module):
    """Scores grey images: two strided convolutions with leaky ReLUs, and a linear output."""

    def __init__(
        self, shape: Sequence[int], channels: Sequence[int] = CHANNELS, *, slope: float = 0.2
    ) -> None:
        super().__init__()
        coarse, fine = _checked(channels)
        self.shape, self.slope = tuple(shape), slope
        self.spare = [-side % 4 for side in shape]  # zeros below and to the right, up to a multiple of 4
        self.first = nn.Conv2d(1, fine, *_SCALE)
        self.second = nn.Conv2d(fine, coarse, *_SCALE)
        self.last = nn.Linear(coarse * -(-shape[0] // 4) * -(-shape[1] // 4), 1)

    def forward(self, x: Tensor) -> Tensor:
        """Rows (n, height · width) → scores (n,)."""
        x = functional.pad(x.view(-1, 1, *self.shape), (0, self.spare[1], 0, self.spare[0]))
        for layer in (self.first, self.second):
            x = functional.leaky_relu(layer(x), self.slope)
        scores: Tensor = self.last(x.flatten(1)).squeeze(1)
        return scores


def _checked(channels: Sequence[int]) -> tuple[int, int]:
    if len(channels) != 2:
        raise ConfigError(f"an image's network has two layers of channels, not {list(channels)}.")
    coarse, fine = channels
    whole(channels=coarse)
    whole(channels=fine)
    return coarse, fine
