"""Sheets of synthetic images: MNIST and Fashion-MNIST at ε = ∞, 8 and 4, two images a
person, each person once.

The paper's Figure 4.14 shows such sheets. A sheet is 8 × 8 images, drawn from the prior
with a fixed seed.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from common.loaders import IMAGES, arrays
from understudy.api.train import train
from understudy.data.arrays import ArrayTable
from understudy.data.images import ImageSchema
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

SETS = {"mnist": "mnist", "fmnist": "fashion_mnist"}


def draw_all(
    folder: Path, *, device: str, quick: bool, out: Path, settings: dict[str, Any]
) -> None:
    if quick:
        images = np.random.default_rng(0).integers(0, 255, (40, 28, 28))
        print(sheet(images, 8.0, device="cpu", rounds=2, clients_per_round=5).shape)
        return
    for name, source in SETS.items():
        (train_part,) = arrays(folder, IMAGES[source][0])
        images = train_part["X"]
        for epsilon in (math.inf, 8.0, 4.0):
            pixels = sheet(images, epsilon, device=device, **settings)
            path = (
                out / f"{name}_{'inf' if math.isinf(epsilon) else f'{epsilon:g}'}.png"
            )
            Image.fromarray(pixels).resize((448, 448), Image.Resampling.NEAREST).save(
                path
            )
            print(path, flush=True)


def sheet(
    images: NDArray[Any],
    epsilon: float,
    *,
    device: str,
    clients_per_round: int = 10,
    **more: Any,
) -> NDArray[np.uint8]:
    """64 synthetic images on one sheet (224, 224), from people who report once each."""
    people = len(images) // 2
    rows = ArrayTable.from_array(
        images[: 2 * people],
        ImageSchema(height=28, width=28),
        np.arange(2 * people) // 2,
    )
    federation = Federation.rehearsal(
        {"phones": rows}, budget=Budget(math.inf, 0.0), seed=0, same_people=False
    )
    price = {"reporter": "none"} if math.isinf(epsilon) else {"epsilon": epsilon}
    result = train(
        "fed-wae",
        federation,
        clients_per_round=clients_per_round,
        device=device,
        **price | {"rounds": people // clients_per_round} | more,
    )
    drawn = result.generator.images(64, seed=0).astype(np.uint8)
    return np.ascontiguousarray(
        drawn.reshape(8, 8, 28, 28).swapaxes(1, 2).reshape(224, 224)
    )
