"""β-VAEs of all classes side by side, and the decoders that are cut from them.

Lomurno et al., "SGDE" (AIPR 2022), §IV-E and Table II, on Higgins et al., "β-VAE" (ICLR
2017), Eq. 4: L = −log p(x | z) + β KL(q(z | x) ‖ N(0, I)), one network per class.
Paper → code: the encoder is dense 64-32 and the decoder dense 64-128 with LeakyReLU on
tables (`TableVae`); three convolutions and three transposed ones, 3 × 3 of stride 2,
with Swish on images (`ImageVae`); g_k^y → `decoder(y)`.
Differs from the paper: it does not say how a row enters; a table's row is one-hot over
the levels of the public schema, and p(x | z) is one softmax per column, an image's
pixel a Bernoulli mean. Table II names no output layer: a linear one gives the logits (a
1 × 1 convolution on images). Images are 28 × 28: 28 → 14 → 7 → 4 and back. `channels`
are a quarter of the paper's 128-256-512, since noise grows with the number of weights;
the paper's are a setting away.

Parameters have a leading class axis, so all classes of a silo train as one batch. Only
a decoder ever leaves: the encoder, which reads rows, has no way out of here.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.nets.tapped import (
    SLOPE,
    Taps,
    dense_parameters,
    drawn_uniform,
    perceptron,
)
from understudy.models.network import (
    BlockSoftmax,
    Network,
    check_weights,
    each_whole,
    filled,
    widest,
)

# Table II, tabular data
ENCODER = (64, 32)
DECODER = (64, 128)
_MOST_LAYERS = 16  # of images
_LOG_VARIANCE = 8.0  # beyond it e^x says nothing more, and overflows in the end


class BetaVae(ABC):
    """Encoders and decoders of `classes` classes. `parameters` are (classes, …),
    encoders first, each in order.
    """

    classes: int
    latent: int
    parameters: list[Tensor]

    @abstractmethod
    def encode(self, x: Tensor, taps: Taps) -> Tensor:
        """Rows (classes, n, …) → means and log-variances side by side (classes, n, 2 ·
        latent).
        """

    @abstractmethod
    def decode(self, z: Tensor, taps: Taps) -> Tensor:
        """Latent points (classes, n, latent) → logits, in the shape of rows."""

    @abstractmethod
    def surprise(self, x: Tensor, logits: Tensor) -> Tensor:
        """−log p(x | z): (classes, n)."""

    def losses(self, x: Tensor, noise: Tensor, beta: float, taps: Taps) -> Tensor:
        """The loss of each row of each class, (classes, n). `noise` (classes, n,
        latent) is standard normal.
        """
        mean, log_variance = self.encode(x, taps).chunk(2, dim=2)
        log_variance = log_variance.clamp(-_LOG_VARIANCE, _LOG_VARIANCE)
        z = mean + (log_variance / 2).exp() * noise
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(2) / 2
        return self.surprise(x, self.decode(z, taps)) + beta * divergence

    def to(self, device: torch.device) -> "BetaVae":
        self.parameters = [parameter.to(device) for parameter in self.parameters]
        return self


class TableVae(BetaVae):
    """One-hot rows of columns with these `sizes` (the class column is not among
    them).
    """

    def __init__(
        self, classes: int, sizes: Sequence[int], latent: int, *, seed: int = 0
    ) -> None:
        whole(classes=classes, latent=latent, columns=len(sizes))
        self.classes = classes
        self.sizes = tuple(sizes)
        self.latent = latent
        self.softmax = BlockSoftmax(self.sizes)
        width = sum(sizes)
        generator = torch.Generator().manual_seed(seed)  # of no row, and public
        encoder = dense_parameters(classes, (width, *ENCODER, 2 * latent), generator)
        self.parameters = encoder + dense_parameters(
            classes, (latent, *DECODER, width), generator
        )
        self.cut = len(encoder)

    def encode(self, x: Tensor, taps: Taps) -> Tensor:
        return perceptron(x, self.parameters[: self.cut], taps)

    def decode(self, z: Tensor, taps: Taps) -> Tensor:
        return perceptron(z, self.parameters[self.cut :], taps)

    def surprise(self, x: Tensor, logits: Tensor) -> Tensor:
        """Σ over columns of logsumexp(block) − the logit of the row's own level."""
        flat = logits.flatten(0, 1).index_select(1, self.softmax.order.to(x.device))
        parts = torch.split(
            flat, [size * count for size, count in self.softmax.groups], 1
        )
        grouped = zip(parts, self.softmax.groups, strict=True)
        total = torch.stack(
            [part.view(-1, *group).logsumexp(1).sum(1) for part, group in grouped]
        ).sum(0)
        return total.view(x.shape[:2]) - (x * logits).sum(2)

    def decoder(self, number: int, place: int, levels: int) -> "ClassDecoder":
        """The decoder of a class, which draws rows with the class column put back at
        `place`, of `levels` levels.
        """
        sizes = (*self.sizes[:place], levels, *self.sizes[place:])
        decoder = ClassDecoder(self.latent, DECODER, sizes, (place, number))
        return filled(
            decoder, [learned[number] for learned in self.parameters[self.cut :]]
        )


class ClassDecoder(Network):
    """Draws rows of one class: `label` says in which column, and which of its levels,
    the class stands.
    """

    kind = "class-decoder"
    keys = ("latent", "hidden", "sizes", "label")

    def __init__(
        self,
        latent: int,
        hidden: Sequence[int],
        sizes: Sequence[int],
        label: tuple[int, int],
    ) -> None:
        super().__init__()
        whole(latent=latent, columns=len(sizes))
        each_whole(sizes=(*hidden, *sizes))
        self.latent = latent
        self.hidden = tuple(hidden)
        self.sizes = tuple(sizes)
        self.place, self.level = self.label = tuple(label)
        known = {type(number) for number in label} == {int} and 0 <= self.place < len(
            sizes
        ) > 1
        if not known or not 0 <= self.level < sizes[self.place]:
            raise ConfigError(
                f"label {label!r} is no level of a column among columns of sizes "
                f"{list(sizes)}."
            )
        others = [*self.sizes[: self.place], *self.sizes[self.place + 1 :]]
        layers = (latent, *self.hidden, sum(others))
        check_weights("a decoder", sum(a * b for a, b in pairwise(layers)))
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(layers))
        self.softmax = BlockSoftmax(others)
        self.requires_grad_(False)

    @property
    def row_numbers(self) -> int:
        return widest(
            (self.latent, *self.hidden, sum(self.sizes) - self.sizes[self.place])
        )

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → probabilities (n, width); the class is
        certain.
        """
        *hidden, last = self.linears
        for linear in hidden:
            z = functional.leaky_relu(linear(z), SLOPE)
        probabilities = self.softmax(last(z))
        start = sum(self.sizes[: self.place])
        label = functional.one_hot(torch.tensor(self.level), self.sizes[self.place]).to(
            probabilities
        )
        return torch.cat(
            [
                probabilities[:, :start],
                label.expand(len(z), -1),
                probabilities[:, start:],
            ],
            1,
        )


class ImageVae(BetaVae):
    """Grey images (classes, n, height, width) with pixels in [0, 1]."""

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int],
        latent: int,
        *,
        channels: Sequence[int],
        seed: int = 0,
    ) -> None:
        whole(classes=classes, latent=latent)
        self.classes = classes
        self.latent = latent
        self.sides = sides_of(shape, len(channels))
        self.channels = tuple(channels)
        generator = torch.Generator().manual_seed(seed)  # of no row, and public
        encoder: list[Tensor] = []
        for a, b in pairwise((1, *channels)):
            encoder += [
                drawn_uniform(generator, 9 * a, classes, b, 9 * a),
                drawn_uniform(generator, 9 * a, classes, b),
            ]
        flat = channels[-1] * math.prod(self.sides[-1])
        encoder += dense_parameters(classes, (flat, 2 * latent), generator)
        self.cut = len(encoder)
        shapes = decoder_shapes(latent, self.channels, self.sides)
        decoder = [
            drawn_uniform(generator, fan_in, classes, *shape)
            for fan_in, *shape in shapes
        ]
        self.parameters = encoder + decoder

    def encode(self, x: Tensor, taps: Taps) -> Tensor:
        own = self.parameters[: self.cut]
        *convolutions, (weight, bias) = zip(own[::2], own[1::2], strict=True)
        x = x.unsqueeze(2)
        for kernel, shift in convolutions:
            x = functional.silu(taps.conv(x, kernel, shift))
        return taps.dense(x.flatten(2), weight, bias)

    def decode(self, z: Tensor, taps: Taps) -> Tensor:
        return _decode_images(z, self.parameters[self.cut :], self.sides, taps)

    def surprise(self, x: Tensor, logits: Tensor) -> Tensor:
        """Σ over pixels of the Bernoulli surprise."""
        return functional.binary_cross_entropy_with_logits(
            logits, x, reduction="none"
        ).sum((2, 3))

    def decoder(self, number: int) -> "ClassImageDecoder":
        decoder = ClassImageDecoder(self.latent, self.channels, self.sides[0])
        return filled(
            decoder,
            [learned[number : number + 1] for learned in self.parameters[self.cut :]],
        )


class ClassImageDecoder(Network):
    kind = "class-image-decoder"
    keys = ("latent", "channels", "shape")

    def __init__(
        self, latent: int, channels: Sequence[int], shape: tuple[int, int]
    ) -> None:
        super().__init__()
        if not 1 <= len(channels) <= _MOST_LAYERS or len(shape) != 2:
            raise ConfigError(
                f"no decoder of images has {len(channels)} layers and {len(shape)} "
                "sides."
            )
        whole(latent=latent, height=shape[0], width=shape[1])
        each_whole(channels=channels)
        self.latent = latent
        self.channels = tuple(channels)
        self.shape = tuple(shape)
        self.sides = sides_of(shape, len(channels))
        shapes = decoder_shapes(latent, self.channels, self.sides)
        check_weights("a decoder", sum(math.prod(shape) for _, *shape in shapes))
        self.parts = nn.ParameterList(
            nn.Parameter(torch.zeros(1, *shape)) for _, *shape in shapes
        )
        self.requires_grad_(False)

    @property
    def row_numbers(self) -> int:
        """A transposed convolution makes nine numbers a pixel, twice, and adds them up;
        these are shifted and bent.
        """
        pixels = [math.prod(side) for side in reversed(self.sides)]  # coarse to fine
        steps = zip(
            pairwise((self.channels[0], *self.channels)), pairwise(pixels), strict=True
        )
        numbers = max(
            (a + 18 * b) * small + 4 * b * large for (a, b), (small, large) in steps
        )
        return max(numbers, self.latent + self.channels[0] * pixels[0])

    def rows(self, z: Tensor) -> Tensor:
        with torch.no_grad():
            return _decode_images(z.unsqueeze(0), list(self.parts), self.sides, Taps())[
                0
            ].sigmoid()


def sides_of(shape: tuple[int, int], layers: int) -> list[tuple[int, int]]:
    """The size of an image before the first layer and after each: 28 → 14 → 7 → 4."""
    sides = [(shape[0], shape[1])]
    for _ in range(layers):
        sides.append((-(-sides[-1][0] // 2), -(-sides[-1][1] // 2)))
    return sides


def decoder_shapes(
    latent: int, channels: Sequence[int], sides: Sequence[tuple[int, int]]
) -> list[tuple[int, ...]]:
    """Fan-in and shape of each parameter: a dense layer onto the smallest image, up
    again, and one logit a pixel.
    """
    first = channels[0] * math.prod(sides[-1])
    shapes: list[tuple[int, ...]] = [(latent, first, latent), (latent, first)]
    for a, b in pairwise((channels[0], *channels)):
        shapes += [(9 * a, 9 * b, a), (9 * a, b)]
    return [*shapes, (channels[-1], 1, channels[-1]), (channels[-1], 1)]


def _decode_images(
    z: Tensor,
    parameters: Sequence[Tensor],
    sides: Sequence[tuple[int, int]],
    taps: Taps,
) -> Tensor:
    """Latent points (groups, n, latent) → a logit for each pixel (groups, n, height,
    width).
    """
    (weight, bias), *layers, (last, shift) = zip(
        parameters[::2], parameters[1::2], strict=True
    )
    x = functional.silu(taps.dense(z, weight, bias)).view(*z.shape[:2], -1, *sides[-1])
    for (kernel, offset), side in zip(layers, reversed(sides[:-1]), strict=True):
        x = functional.silu(taps.conv_transposed(x, kernel, offset, side))
    # (groups, n, pixels, 1)
    logits = taps.shift(taps.product(x.flatten(3).mT, last), shift)
    return logits.view(*z.shape[:2], *sides[0])
