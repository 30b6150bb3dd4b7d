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
from typing import cast

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

    def losses(
        self,
        x: Tensor,
        noise: Tensor,
        beta: float,
        taps: Taps,
    ) -> Tensor:
        """The loss of each row of each class, (classes, n). `noise` (classes, n,
        latent) is standard normal.
        """
        mean, log_variance = self.encode(x, taps).chunk(2, dim=2)
        log_variance = log_variance.clamp(-_LOG_VARIANCE, _LOG_VARIANCE)
        deviation = (log_variance / 2).exp()
        z = mean + deviation * noise
        terms = mean.square() + log_variance.exp() - 1 - log_variance
        divergence = terms.sum(2) / 2
        logits = self.decode(z, taps)
        return self.surprise(x, logits) + beta * divergence

    def to(self, device: torch.device) -> "BetaVae":
        self.parameters = [parameter.to(device) for parameter in self.parameters]
        return self


class TableVae(BetaVae):
    """One-hot rows of columns with these `sizes` (the class column is not among
    them).
    """

    def __init__(
        self,
        classes: int,
        sizes: Sequence[int],
        latent: int,
        *,
        seed: int = 0,
    ) -> None:
        whole(classes=classes, latent=latent, columns=len(sizes))
        self.classes = classes
        self.sizes = tuple(sizes)
        self.latent = latent
        self.softmax = BlockSoftmax(self.sizes)
        width = sum(sizes)
        generator = torch.Generator().manual_seed(seed)  # of no row, and public
        encoder_sizes = (width, *ENCODER, 2 * latent)
        encoder = dense_parameters(classes, encoder_sizes, generator)
        self.parameters = encoder + dense_parameters(
            classes,
            (latent, *DECODER, width),
            generator,
        )
        self.cut = len(encoder)

    def encode(self, x: Tensor, taps: Taps) -> Tensor:
        return perceptron(x, self.parameters[: self.cut], taps)

    def decode(self, z: Tensor, taps: Taps) -> Tensor:
        return perceptron(z, self.parameters[self.cut :], taps)

    def surprise(self, x: Tensor, logits: Tensor) -> Tensor:
        """Σ over columns of logsumexp(block) − the logit of the row's own level."""
        groups = self.softmax.groups
        order = self.softmax.order.to(x.device)
        ordered = logits.flatten(0, 1).index_select(1, order)
        parts = torch.split(ordered, [size * count for size, count in groups], 1)
        log_sums = []
        for part, (size, count) in zip(parts, groups, strict=True):
            by_column = part.view(-1, size, count).logsumexp(1)
            log_sums.append(by_column.sum(1))
        total = torch.stack(log_sums).sum(0)
        of_levels = (x * logits).sum(2)
        return total.view(x.shape[:2]) - of_levels

    def decoder(
        self,
        number: int,
        place: int,
        levels: int,
    ) -> "ClassDecoder":
        """The decoder of a class, which draws rows with the class column put back at
        `place`, of `levels` levels.
        """
        sizes = (*self.sizes[:place], levels, *self.sizes[place:])
        decoder = ClassDecoder(
            self.latent,
            DECODER,
            sizes,
            (place, number),
        )
        learned = [parameter[number] for parameter in self.parameters[self.cut :]]
        return filled(decoder, learned)


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
        are_whole = {type(number) for number in label} == {int}
        is_column = are_whole and len(sizes) > 1 and 0 <= self.place < len(sizes)
        if not is_column or not 0 <= self.level < sizes[self.place]:
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
        others = sum(self.sizes) - self.sizes[self.place]
        return widest((self.latent, *self.hidden, others))

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
        for before, after in pairwise((1, *channels)):
            fan_in = 9 * before
            kernel = drawn_uniform(
                generator,
                fan_in,
                classes,
                after,
                fan_in,
            )
            shift = drawn_uniform(generator, fan_in, classes, after)
            encoder += [kernel, shift]
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
        encoder = self.parameters[: self.cut]
        *convolutions, last = zip(encoder[::2], encoder[1::2], strict=True)
        x = x.unsqueeze(2)
        for kernel, shift in convolutions:
            outputs = taps.conv(x, kernel, shift)
            x = functional.silu(outputs)
        weight, bias = last
        return taps.dense(x.flatten(2), weight, bias)

    def decode(self, z: Tensor, taps: Taps) -> Tensor:
        return _decode_images(
            z,
            self.parameters[self.cut :],
            self.sides,
            taps,
        )

    def surprise(self, x: Tensor, logits: Tensor) -> Tensor:
        """Σ over pixels of the Bernoulli surprise."""
        return functional.binary_cross_entropy_with_logits(
            logits,
            x,
            reduction="none",
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
        self,
        latent: int,
        channels: Sequence[int],
        shape: tuple[int, int],
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
        first = self.channels[0]
        channels = pairwise((first, *self.channels))
        numbers = [self.latent + first * pixels[0]]
        for (a, b), (small, large) in zip(channels, pairwise(pixels), strict=True):
            numbers.append((a + 18 * b) * small + 4 * b * large)
        return max(numbers)

    def rows(self, z: Tensor) -> Tensor:
        with torch.no_grad():
            (logits,) = _decode_images(
                z.unsqueeze(0),
                list(self.parts),
                self.sides,
                Taps(),
            )
            return cast(Tensor, logits.sigmoid())


def sides_of(shape: tuple[int, int], layers: int) -> list[tuple[int, int]]:
    """The size of an image before the first layer and after each: 28 → 14 → 7 → 4."""
    height, width = shape
    sides = [(height, width)]
    for _ in range(layers):
        height = -(-height // 2)
        width = -(-width // 2)
        sides.append((height, width))
    return sides


def decoder_shapes(
    latent: int,
    channels: Sequence[int],
    sides: Sequence[tuple[int, int]],
) -> list[tuple[int, ...]]:
    """Fan-in and shape of each parameter: a dense layer onto the smallest image, up
    again, and one logit a pixel.
    """
    first = channels[0]
    last = channels[-1]
    smallest = first * math.prod(sides[-1])
    shapes: list[tuple[int, ...]] = [(latent, smallest, latent), (latent, smallest)]
    for before, after in pairwise((first, *channels)):
        fan_in = 9 * before
        shapes += [(fan_in, 9 * after, before), (fan_in, after)]
    return [*shapes, (last, 1, last), (last, 1)]


def _decode_images(
    z: Tensor,
    parameters: Sequence[Tensor],
    sides: Sequence[tuple[int, int]],
    taps: Taps,
) -> Tensor:
    """Latent points (groups, n, latent) → a logit for each pixel (groups, n, height,
    width).
    """
    groups, n = z.shape[:2]
    first, *layers, last = zip(parameters[::2], parameters[1::2], strict=True)
    weight, bias = first
    smallest = functional.silu(taps.dense(z, weight, bias))
    x = smallest.view(groups, n, -1, *sides[-1])
    for (kernel, offset), side in zip(layers, reversed(sides[:-1]), strict=True):
        outputs = taps.conv_transposed(x, kernel, offset, side)
        x = functional.silu(outputs)
    weight, shift = last
    products = taps.product(x.flatten(3).mT, weight)  # (groups, n, pixels, 1)
    logits = taps.shift(products, shift)
    return logits.view(groups, n, *sides[0])
