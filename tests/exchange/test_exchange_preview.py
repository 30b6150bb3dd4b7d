"""What a visitor sees of a generator: rows as text, images as a picture."""

import base64
import io
import math

import numpy as np
import torch
from exchange_cases import generator
from PIL import Image
from torch import Tensor

from understudy.data.images import ImageSchema
from understudy.generators.generator import Generator
from understudy.services.exchange.check_worker import ROWS, preview_of


class Slope(torch.nn.Linear):
    """Images whose values grow from left to right, and from colour to colour."""

    latent = row_numbers = 1

    def __init__(self, *shape: int) -> None:
        super().__init__(1, 1)
        self.shape = shape

    def rows(self, z: Tensor) -> Tensor:
        height, *line = self.shape
        return (
            torch.linspace(0, 1, math.prod(line))
            .view(*line)
            .expand(len(z), height, *line)
        )

    def describe(self) -> dict[str, str]:
        return {"kind": "slope"}


def test_a_sheet_of_rows_is_the_same_for_the_same_seed_and_says_what_is_missing():
    sheet = preview_of(generator(seed=3), seed=5)
    assert sheet == preview_of(generator(seed=3), seed=5)
    assert sheet != preview_of(generator(seed=3), seed=6)
    assert {len(row) for row in sheet["rows"]} == {len(sheet["columns"])}
    assert {row[sheet["columns"].index("smoker")] for row in sheet["rows"]} == {"no"}
    assert not {"nan", "None", "<NA>", "NaT"} & {
        cell for row in sheet["rows"] for cell in row
    }


def test_a_sheet_of_images_is_a_png_with_all_of_them_side_by_side_in_two_lines():
    sheet = preview_of(
        Generator(Slope(3, 4), ImageSchema(height=3, width=4), {}), seed=1
    )
    kind, _, data = sheet["image"].partition(",")
    assert kind == "data:image/png;base64"
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    one = np.array([0, 85, 170, 255, 0], dtype=np.uint8)  # and a line between
    line = np.vstack([np.tile(one, (3, ROWS // 2)), np.zeros((1, 5 * ROWS // 2))])
    np.testing.assert_array_equal(pixels, np.vstack([line, line]))
    assert sheet["width"] / sheet["height"] == pixels.shape[1] / pixels.shape[0]


def test_a_sheet_of_colour_images_keeps_their_colours() -> None:
    schema = ImageSchema(height=1, width=2, channels=3)
    sheet = preview_of(Generator(Slope(1, 2, 3), schema, {}), seed=1)
    pixels = np.asarray(
        Image.open(io.BytesIO(base64.b64decode(sheet["image"].partition(",")[2])))
    )
    assert pixels.shape == (2 * 2, 6 * 3, 3)
    assert (pixels[0, :3] == [[0, 51, 102], [153, 204, 255], [0, 0, 0]]).all()
