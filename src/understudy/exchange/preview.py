"""A sheet of synthetic samples: what a generator draws, to look at before pulling it. Drawing costs no privacy."""

import base64
import struct
import zlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.images import ImageSchema
from understudy.generator import Generator

ROWS = 12
_BESIDE = 6  # images in a line of the sheet: a phone still shows them
_SIDE = 56  # pixels on the screen for an image of the sheet, about


def preview_of(generator: Generator, *, seed: int) -> dict[str, Any]:
    """The same for the same seed: a few rows as text, or a row of images as one PNG in a data URL."""
    if isinstance(generator.schema, ImageSchema):
        return _image_sheet(generator.images(ROWS, seed=seed), generator.schema)
    frame = generator.sample(ROWS, seed=seed)
    return {
        "columns": [str(name) for name in frame.columns],
        "rows": [[_text(value) for value in row] for row in frame.itertuples(index=False)],
    }


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


def _image_sheet(images: NDArray[Any], schema: ImageSchema) -> dict[str, Any]:
    """Images side by side in lines, a blank one between them."""
    grey = (
        (255 * (images.astype(np.float64) - schema.low) / (schema.high - schema.low)).round().astype(np.uint8)
    )
    tiles = np.pad(grey, ((0, 0), (0, 1), (0, 1))).reshape(-1, _BESIDE, grey.shape[1] + 1, grey.shape[2] + 1)
    sheet = tiles.transpose(0, 2, 1, 3).reshape(len(tiles) * tiles.shape[2], -1)
    scale = max(1, round(_SIDE / grey.shape[1]))
    url = "data:image/png;base64," + base64.b64encode(_png(sheet)).decode()
    return {"image": url, "width": scale * sheet.shape[1], "height": scale * sheet.shape[0]}


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Grey pixels (height, width) as a PNG file: a header, the rows (each after a 0: unfiltered), the end."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape
    rows = np.pad(pixels, ((0, 0), (1, 0))).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
