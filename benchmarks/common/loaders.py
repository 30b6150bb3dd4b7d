"""Data sets that several benchmarks read."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.sources import need

IMAGES = {
    "mnist": ("mnist_train_a.npz", "mnist_test.npz"),
    "fashion_mnist": ("fashion_mnist_train15k.npz", "fashion_mnist_test.npz"),
}

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (n, 28, 28) and classes


def arrays(folder: Path, *files: str) -> list[Any]:
    """The arrays of these `.npz` files."""
    return [np.load(path) for path in need(folder, *files)]


def images(name: str, folder: Path) -> tuple[Images, Images]:
    """Training and test images."""
    train, test = arrays(folder, *IMAGES[name])
    return (train["X"], train["y"].astype(np.int64)), (
        test["X"],
        test["y"].astype(np.int64),
    )
