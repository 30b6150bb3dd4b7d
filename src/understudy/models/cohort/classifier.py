"""The classifiers of the experiments, as plain functions of one flat parameter vector.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Table 3.2: logistic regression on
tables, a network with one hidden layer of 96, and LeNet on 28 × 28 images. Its
parameter counts are met exactly (2,570 for logistic regression on USPS; 76,330 and
44,426 for the two networks on Fashion-MNIST).
Paper → code: LR → LogisticRegression, NN → Mlp, CNN → LeNet, d → size, M → params.
Differs from the paper: the initial weights are not stated there; these are PyTorch's
own defaults.

`forward` takes one model, with rows (rows, …), or one for every client of a cohort,
with rows (clients, rows, …).
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.encoding.frame import POSES, UNIT, upright, weights
from understudy.ground.errors import ConfigError
from understudy.models.kernels.clients import linear
from understudy.models.network import Flat, Shapes, dense_shapes, read


class Classifier(Flat):
    """A network from rows to one score per class: `forward` takes one model, or one per
    client.
    """

    classes: int

    def prepare(self, x: Tensor) -> Tensor:
        """What all epochs share of the rows (clients, rows, …): vectors, where a
        network has `features`.
        """
        rows = x.flatten(2)
        features = getattr(self, "features", None)
        if rows.shape[-1] != features:
            raise ConfigError(
                f"A {self.kind} takes rows of {features} features, not "
                f"{rows.shape[-1]}."
            )
        return rows

    @abstractmethod
    def scores(self, params: Tensor, prepared: Tensor) -> Tensor:
        """Logits (clients, rows, classes) of every client's own model on its own
        prepared rows.
        """

    def forward(self, params: Tensor, x: Tensor) -> Tensor:
        """Logits (rows, classes) of one model, or (clients, rows, classes) of one model
        per client.
        """
        if params.ndim == 2:
            return self.scores(params, self.prepare(x))
        return self.scores(params[None], self.prepare(x[None]))[0]


class Dense(Classifier):
    """Linear layers with ReLU between them. `tail` is all that follows the first, for
    `span`.
    """

    features: int

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Units after each linear layer; the last are the classes."""

    @property
    def shapes(self) -> Shapes:
        layers = {}
        sizes = pairwise((self.features, *self.widths))
        for number, (before, after) in enumerate(sizes, start=1):
            layers[f"layer{number}"] = after, before
        return dense_shapes(**layers)

    @property
    def row_floats(self) -> int:
        return self.features + 4 * sum(self.widths)

    def scores(self, params: Tensor, prepared: Tensor) -> Tensor:
        weight, bias, *tail = self.views(params).values()
        return _behind(linear(prepared, weight, bias), tail)

    def tail(self, params: Tensor, z: Tensor) -> Tensor:
        """Logits from the input layer's pre-activations z and the flat parameters
        behind that layer.
        """
        return _behind(z, read(params, list(self.shapes.values())[2:]))


@dataclass(frozen=True)
class LogisticRegression(Dense):
    """One linear layer; two classes have two rows of weights, as the paper counts them
    (248 on Adult).
    """

    kind: ClassVar[str] = "logistic_regression"
    features: int
    classes: int

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.classes,)


@dataclass(frozen=True)
class Mlp(Dense):
    """One hidden layer with ReLU; 96 units in the paper."""

    kind: ClassVar[str] = "mlp"
    features: int
    hidden: int
    classes: int

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.hidden, self.classes)


@dataclass(frozen=True)
class LeNet(Classifier):
    """LeNet on 28 × 28 images."""

    kind: ClassVar[str] = "lenet"
    classes: int

    @property
    def shapes(self) -> Shapes:
        return {
            "conv1.weight": (6, 1, 5, 5),
            "conv1.bias": (6,),
            "conv2.weight": (16, 6, 5, 5),
            "conv2.bias": (16,),
            "layer1.weight": (120, 256),
            "layer1.bias": (120,),
            "layer2.weight": (84, 120),
            "layer2.bias": (84,),
            "layer3.weight": (self.classes, 84),
            "layer3.bias": (self.classes,),
        }

    @property
    def row_floats(self) -> int:
        return 4 * (28 * 28 + 24 * 24 * 6 + 8 * 8 * 16)

    def prepare(self, x: Tensor) -> Tensor:
        """Every client's images as channels, by which a grouped convolution keeps
        clients apart: (rows, clients, …).
        """
        if math.prod(x.shape[2:]) != 28 * 28:
            raise ConfigError(
                "A lenet takes images of 28 × 28, not rows of shape "
                f"{tuple(x.shape[2:])}."
            )
        return x.reshape(*x.shape[:2], 28, 28).transpose(0, 1)

    def scores(self, params: Tensor, prepared: Tensor) -> Tensor:
        w1, b1, w2, b2, *dense = self.views(params).values()
        h = prepared  # (rows, clients · channels, height, width)
        for weight, bias in ((w1, b1), (w2, b2)):
            h = functional.conv2d(
                h,
                weight.flatten(0, 1),
                bias.flatten(),
                groups=len(params),
            )
            h = functional.max_pool2d(h, 2).relu()
        by_client = h.view(len(h), len(params), -1).transpose(0, 1)
        return _behind(by_client, dense)


@dataclass(frozen=True)
class Cnn(Classifier):
    """Three 3 × 3 convolutions of 64, 128 and 256 filters, each before 2 × 2 max
    pooling and ReLU, then layers of 128 and 256 units: the CNN of Li, Wei, Ma, Shu,
    "DP-GenFL" (supplementary file), Appendix E.2.
    """

    kind: ClassVar[str] = "cnn"
    height: int
    width: int
    channels: int
    classes: int

    FILTERS: ClassVar[tuple[int, ...]] = (64, 128, 256)
    UNITS: ClassVar[tuple[int, ...]] = (128, 256)

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.pooled) < 1:
            raise ConfigError(
                "A cnn takes images of 8 × 8 at least, not "
                f"{self.height} × {self.width}."
            )

    @property
    def features(self) -> int:
        return self.height * self.width * self.channels

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width after the last pooling."""
        shrunk = 2 ** len(self.FILTERS)
        return self.height // shrunk, self.width // shrunk

    @property
    def shapes(self) -> Shapes:
        shapes: Shapes = {}
        for number, (before, after) in enumerate(
            pairwise((self.channels, *self.FILTERS)), start=1
        ):
            shapes[f"conv{number}.weight"] = (after, before, 3, 3)
            shapes[f"conv{number}.bias"] = (after,)
        flat = self.FILTERS[-1] * math.prod(self.pooled)
        layers = {}
        sizes = pairwise((flat, *self.UNITS, self.classes))
        for number, (before, after) in enumerate(sizes, start=1):
            layers[f"layer{number}"] = after, before
        return shapes | dense_shapes(**layers)

    @property
    def row_floats(self) -> int:
        return 4 * self.height * self.width * self.FILTERS[0]

    def images(self, rows: Tensor) -> Tensor:
        """Rows of values, channels last, as images (…, channels, height, width)."""
        sides = rows.shape[:-1]
        images = rows.view(
            *sides,
            self.height,
            self.width,
            self.channels,
        )
        return images.movedim(-1, -3)

    def prepare(self, x: Tensor) -> Tensor:
        """Every client's images as channels, as `LeNet` has them."""
        return self.images(super().prepare(x)).transpose(0, 1)

    def scores(self, params: Tensor, prepared: Tensor) -> Tensor:
        convolutions, dense = self.layers(params)
        h = prepared.flatten(1, 2)  # (rows, clients · channels, height, width)
        for weight, bias in convolutions:
            h = functional.conv2d(
                h,
                weight.flatten(0, 1),
                bias.flatten(),
                padding=1,
                groups=len(params),
            )
            h = functional.max_pool2d(h, 2).relu()
        by_client = h.view(len(h), len(params), -1).transpose(0, 1)
        weight, bias, *behind = dense
        return _behind(linear(by_client, weight, bias), behind)

    def layers(
        self, params: Tensor
    ) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
        """Weight and bias of each convolution, and those of the layers behind, in
        turn.
        """
        views = list(self.views(params).values())
        cut = 2 * len(self.FILTERS)
        pairs = zip(views[:cut:2], views[1:cut:2], strict=True)
        return list(pairs), views[cut:]


@dataclass(frozen=True)
class Quadratic(Classifier):
    """A score for each of a class's `cells`, quadratic along shared `directions`:
    Bayes' rule of Gaussians.
    """

    kind: ClassVar[str] = "quadratic"
    features: int
    directions: int
    cells: int
    classes: int

    @property
    def shapes(self) -> Shapes:
        count = self.classes * self.cells
        k = self.directions
        return {
            "linear.weight": (count, self.features),
            "linear.bias": (count,),
            "centre": (self.features,),
            "directions": (k, self.features),
            "factors": (count, k, k),
            "shifts": (count, k),
        }

    @property
    def row_floats(self) -> int:
        return 2 * self.features + (self.directions + 2) * self.cells * self.classes

    def scores(self, params: Tensor, prepared: Tensor) -> Tensor:
        weight, bias, centre, directions, factors, shifts = self.views(params).values()
        clients, n_rows, _ = prepared.shape
        rows = prepared - centre[:, None]
        projected = rows @ directions.mT
        whitened = torch.einsum("brk,bcjk->brcj", projected, factors)
        along = whitened - shifts[:, None]
        linear_scores = rows @ weight.mT + bias[:, None]
        cells = linear_scores + along.square().sum(-1) / 2
        by_class = cells.reshape(
            clients,
            n_rows,
            self.classes,
            self.cells,
        )
        return by_class.logsumexp(-1)


@dataclass(frozen=True)
class UprightQuadratic(Quadratic):
    """The same for images that are turned upright; how they were turned stands before
    their values.
    """

    kind: ClassVar[str] = "upright_quadratic"
    height: int
    width: int

    def prepare(self, x: Tensor) -> Tensor:
        clients, rows = x.shape[:2]
        pixels = self.height * self.width
        size = math.prod(x.shape[2:])
        if size % pixels or POSES + size != self.features:
            raise ConfigError(
                f"A {self.kind} takes images of {self.height} × {self.width}, not "
                f"rows of {size}."
            )
        steps = ((x.double() - 0.5) * UNIT).round()
        images = steps.reshape(
            clients * rows,
            self.height,
            self.width,
            -1,
        )
        poses, turned = upright(images)
        weighted_poses = poses * weights(self.height, self.width)
        values = turned.flatten(1) / UNIT + 0.5
        features = torch.cat([weighted_poses, values], 1).to(x.dtype)
        return features.view(clients, rows, -1)


def _behind(h: Tensor, layers: list[Tensor]) -> Tensor:
    """ReLU and a linear layer, as often as there are layers (weight, bias, weight,
    bias, …).
    """
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        h = linear(h.relu(), weight, bias)
    return h


NETWORKS: dict[str, type[Classifier]] = {
    network.kind: network
    for network in (LogisticRegression, Mlp, LeNet, Cnn, Quadratic, UprightQuadratic)
}
