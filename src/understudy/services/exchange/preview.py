"""A sheet of synthetic samples: what a generator draws, to look at before pulling it. Drawing costs no privacy.

Sums of all classes have a line of images for each class, and of series a picture of lines for each class and channel.
"""

import base64
import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from understudy.data.images import ImageSchema, png
from understudy.data.kinds import IMAGES
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError
from understudy.models.moments.offered import OfferedMoments
from understudy.models.tables.offered import OfferedGram, of_column
from understudy.privacy.noise import FastRng

ROWS = 12
CLASSES = 24  # that are shown
_BESIDE = 6  # images in a line of the sheet: a phone still shows them
_SIDE = 56  # pixels on the screen for an image of the sheet, about


def preview_of(generator: Generator, *, seed: int) -> dict[str, Any]:
    """The same for the same seed: a few rows as text, or a row of images as one PNG in a data URL."""
    if isinstance(generator.network, OfferedMoments):
        return _class_sheet(generator.network, seed) | _told(generator.network)
    if IMAGES.describes(generator.schema):
        return _image_sheet(_bytes(generator.images(ROWS, seed=seed), generator.schema))
    frame = generator.sample(ROWS, seed=seed)
    figures = _told(generator.network) if isinstance(generator.network, OfferedGram) else {}
    return figures | {
        "columns": [str(name) for name in frame.columns],
        "rows": [[_text(value) for value in row] for row in frame.itertuples(index=False)],
    }


def _told(network: OfferedMoments | OfferedGram) -> dict[str, Any]:
    """What released sums say of themselves: about how many people of each class there are, give or take two deviations
    of the noise.
    """
    if isinstance(network, OfferedMoments):
        first, _, _ = network.read()
        people, noise = first["people"], float(first["people_noise"])
    else:
        own = of_column(network.sizes, network.target)
        people, noise = network.counts.diagonal()[own].double(), network.noise[0]
    return {"people": [max(0, round(one)) for one in people.tolist()], "beside": math.ceil(2 * noise)}


def _text(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    return str(value)


def _class_sheet(network: OfferedMoments, seed: int) -> dict[str, Any]:
    """Rows of each class in a line: images as they are, series as lines, channel after channel."""
    fit, rng, lines = network.fit, FastRng(seed), []
    for one in range(min(network.classes, CLASSES)):
        with torch.no_grad():
            rows = fit.rows(fit.aimed(rng.normal(_BESIDE, fit.latent), one)).double().numpy()
        if not np.isfinite(rows).all():
            raise ArtefactError("nothing can be fitted to these sums. Nothing was exchanged.")
        if network.frame.sides == 1:
            channels = [_lines(rows[:, :, channel]) for channel in range(min(rows.shape[2], _BESIDE))]
            rows = np.stack(channels + [np.zeros_like(channels[0])] * (_BESIDE - len(channels)))
        lines.append(rows)
    return _image_sheet((255 * np.concatenate(lines)).round().astype(np.uint8)) | {"classes": len(lines)}


def _lines(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Series in [0, 1], (n, length), as lines in one picture, (_SIDE, _SIDE)."""
    picture = np.zeros((_SIDE, _SIDE))
    at = np.linspace(0, series.shape[1] - 1, _SIDE)
    for one in series:
        level = np.rint((1 - np.interp(at, np.arange(len(one)), one)) * (_SIDE - 1)).astype(int)
        for place, (low, high) in enumerate(zip(level, np.append(level[1:], level[-1]), strict=True)):
            picture[min(low, high) : max(low, high) + 1, place] = 1.0
    return picture


def _bytes(images: NDArray[Any], schema: ImageSchema) -> NDArray[np.uint8]:
    """Images in declared units as bytes."""
    scaled = 255 * (images.astype(np.float64) - schema.low) / (schema.high - schema.low)
    return scaled.round().astype(np.uint8)


def _image_sheet(images: NDArray[np.uint8]) -> dict[str, Any]:
    """Images (n, height, width), or with colours, side by side in lines, a blank one between them."""
    _, height, width, *colours = images.shape
    padded = np.pad(images, ((0, 0), (0, 1), (0, 1), *((0, 0) for _ in colours)))
    tiles = padded.reshape(-1, _BESIDE, height + 1, width + 1, *colours).swapaxes(1, 2)
    sheet = tiles.reshape(len(tiles) * (height + 1), _BESIDE * (width + 1), *colours)
    scale = max(1, round(_SIDE / height))
    url = "data:image/png;base64," + base64.b64encode(png(sheet)).decode()
    return {"image": url, "width": scale * sheet.shape[1], "height": scale * sheet.shape[0]}
