"""Maps of correlations: a pixel for each pair of columns, and several maps side by side."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema

PIXELS = 3  # of a pair of columns, on each side
GAP = 6
GREY = 128


def correlation_map(frame: pd.DataFrame, schema: Schema) -> NDArray[np.uint8]:
    """One square: (columns, columns, 3), red above 0 and blue below; a column of one
    value is white.
    """
    codes = Codec(schema).codes(frame).astype(float)
    centred = codes - codes.mean(axis=0)
    norms = np.sqrt((centred**2).sum(axis=0))
    norms[norms == 0] = np.inf
    strength = (centred / norms).T @ (centred / norms)
    paler = 255 * (1 - np.abs(strength))
    red = np.where(strength < 0, paler, 255)
    blue = np.where(strength > 0, paler, 255)
    return np.stack([red, paler, blue], axis=2).round().astype(np.uint8)


def side_by_side(maps: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The maps in a line, enlarged."""
    large = [square.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1) for square in maps]
    gap = np.full((len(large[0]), GAP, 3), GREY, np.uint8)
    parts = [part for square in large for part in (square, gap)]
    return np.concatenate(parts[:-1], axis=1)


def save(maps: list[NDArray[np.uint8]], path: Path) -> None:
    """A PNG file of few colours."""
    picture = Image.fromarray(side_by_side(maps))
    few_colours = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    few_colours.save(path, optimize=True)
