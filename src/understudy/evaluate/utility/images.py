"""Images: what a classifier learns from synthetic ones, and a sheet of them to look at.

Train on synthetic images, test on real ones, against train on real: Lomurno et al., SGDE (AIPR 2022), §IV,
and Jiang, dissertation (TUM 2024), §4.5.
Differs from the papers: one small convolutional network, trained here, in place of features of a network
that was trained elsewhere on other images, so that the figure depends on these images alone.
Images are (images, height, width) or (images, channels, height, width), as bytes or as numbers in [0, 1].

Guarantee: none. A figure is a function of real images, meant for their holder; a sheet shows what it is
given, so give it synthetic images. Edges: no images of a kind, or one class alone → figures with a reason.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from understudy.evaluate.figure import Figure, What
from understudy.evaluate.utility.downstream import SCORES, between, classification_scores
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.device import first_weights
from understudy.models.kernels.optimisers import Adam

Images = NDArray[Any]


def evaluate_images(
    real: tuple[Images, Sequence[int] | NDArray[Any]],
    synthetic: tuple[Images, Sequence[int] | NDArray[Any]],
    test: tuple[Images, Sequence[int] | NDArray[Any]],
    *,
    classes: int,
    rows: int = 10_000,
    epochs: int = 5,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """Accuracy, balanced accuracy, macro-F1 and AUC of `SmallCnn`, named like `tstr_cnn_acc`.

    Each argument is a pair of images and class numbers; at most `rows` of each are used, drawn by the seed.
    """
    whole(classes=classes, rows=rows, epochs=epochs)
    rng = np.random.default_rng([seed, 0])
    pairs = {"real": real, "synthetic": synthetic, "test": test}
    sets = [_labelled(name, images, labels, classes) for name, (images, labels) in pairs.items()]
    if reason := _hindrance(*sets):
        names = (What("tstr", part="cnn", score=score) for score in SCORES["classification"])
        return tuple(Figure.absent(name, reason, better="higher") for name in names)
    drawn = [(x[pick], y[pick]) for x, y in sets for pick in [rng.permutation(len(x))[:rows]]]
    (x, y), made, (test_x, test_y) = drawn
    score = partial(classification_scores, test_y.numpy())
    shares = np.bincount(y.numpy(), minlength=classes) / len(y)
    naive = score(np.tile(shares, (len(test_y), 1)))
    trtr, tstr = (
        score(SmallCnn.trained(*pair, classes=classes, epochs=epochs, seed=seed).probabilities(test_x))
        for pair in ((x, y), made)
    )
    note = (
        f"trained on {len(y):,} real and {len(made[1]):,} synthetic images, "
        f"tested on {len(test_y):,} real ones"
    )
    return tuple(between("cnn", tstr, trtr, naive, note))


class SmallCnn(nn.Module):
    """Two convolutions (16 and 32 maps of 3 × 3, halved by their maxima), 4 × 4 means, one hidden layer."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )

    @classmethod
    def trained(
        cls, images: Tensor, labels: Tensor, *, classes: int, epochs: int = 5, seed: int = 0
    ) -> "SmallCnn":
        """Adam at 0.002, batches of 64. Deterministic by the seed."""
        with first_weights(seed):
            network = cls(images.shape[1], classes)
            weights = list(network.parameters())
            adam = Adam(weights, lr=0.002)
            for batch in (b for _ in range(epochs) for b in torch.split(torch.randperm(len(images)), 64)):
                loss = nn.functional.cross_entropy(network.net(images[batch]), labels[batch])
                adam.step(torch.autograd.grad(loss, weights))
        return network

    @torch.no_grad()
    def probabilities(self, images: Tensor) -> NDArray[np.float64]:
        """(images, classes)"""
        parts = [self.net(x).double().softmax(dim=1) for x in torch.split(images, 1024)]
        return torch.cat(parts).numpy()


def sample_sheet(images: Images, path: str | Path, *, columns: int = 10, gap: int = 2) -> Path:
    """Write the images to a PNG file, row by row on white; returns the path."""
    whole(columns=columns)
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(
            "a sheet of images needs Pillow: pip install pillow. Nothing was written."
        ) from None
    pixels = (_pixels("images", images).permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
    if not len(pixels):
        raise ConfigError("there are no images to show. Nothing was written.")
    count, height, width, channels = pixels.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    size = rows * (height + gap) - gap, columns * (width + gap) - gap
    sheet = np.full((*size, channels), 255, dtype=np.uint8)
    for place, image in enumerate(pixels):
        top, left = place // columns * (height + gap), place % columns * (width + gap)
        sheet[top : top + height, left : left + width] = image
    Image.fromarray(sheet.squeeze(2) if channels == 1 else sheet).save(path, format="PNG")
    return Path(path)


def _pixels(name: str, images: Images) -> Tensor:
    """Numbers in [0, 1], (images, channels, height, width)."""
    array = np.asarray(images)
    array = array[:, None] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        shape = np.shape(images)
        raise ConfigError(
            f"{name}: images are (n, height, width) or (n, 1 or 3, height, width), not {shape}."
        )
    pixels = torch.as_tensor(array).float() / (255 if array.dtype == np.uint8 else 1)
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise ConfigError(f"{name}: pixels must be bytes or numbers in [0, 1].")
    return pixels


def _labelled(
    name: str, images: Images, labels: Sequence[int] | NDArray[Any], classes: int
) -> tuple[Tensor, Tensor]:
    pixels, numbers = _pixels(name, images), torch.as_tensor(np.asarray(labels, dtype=np.int64))
    if len(pixels) != len(numbers):
        raise ConfigError(f"{name}: {len(pixels)} images have {len(numbers)} labels.")
    if bool(((numbers < 0) | (numbers >= classes)).any()):
        raise ConfigError(f"{name}: labels must be class numbers from 0 to {classes - 1}.")
    return pixels, numbers


def _hindrance(
    real: tuple[Tensor, Tensor], synthetic: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> str:
    """Why nothing can be learned or tested, or nothing."""
    for name, (images, _) in (("real", real), ("synthetic", synthetic), ("test", test)):
        if not len(images):
            return f"there are no {name} images."
    if bool((real[1] == real[1][0]).all()):
        return "the real images are of one class: there is nothing to learn."
    return ""
