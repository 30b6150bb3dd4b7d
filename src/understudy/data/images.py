"""Images of one size, grey or in colour: what is public about them, and how they are
read (docs/moments.md).

A file is .npy, .npz or .zarr (the array `images`, or the only one beside the person's
and the class's), or a table with a column for each pixel, row by row: pixel_0_0,
pixel_0_1, …; in colour pixel_0_0_0, pixel_0_0_1, pixel_0_0_2, pixel_0_1_0, … Colours
are the last axis of an array, (images, height, width, 3). Folders: `array_folder`.

Guarantee: nothing is fitted on images. Without `person` each image is a person of its
own.
Edges: images of another size, a pixel outside its bounds or not finite → SchemaError
that names the file and the image.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.array_folder import beside_readers, read_arrays
from understudy.data.arrays import ArraySchema, ArrayTable, Codes
from understudy.data.column import Real
from understudy.data.reading.files import Source
from understudy.data.reading.judged import cell_reader, read_columns
from understudy.data.schema import each_by_itself
from understudy.ground.errors import ConfigError, Effect, SchemaError

_MOST_PIXELS = 1 << 20
_GAP = (
    "has no value, and an image has one in every pixel: fill it in, or leave that "
    "image out."
)


@dataclass(frozen=True, kw_only=True)
class ImageSchema(ArraySchema):
    """The size of the images and the bounds of a pixel; whole bounds mean whole
    pixels.
    """

    kind: ClassVar[str] = "image"
    array: ClassVar[str] = "images"
    sides: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("height", "width")
    height: int
    width: int
    channels: int = 1
    low: float = 0
    high: float = 255

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            if (
                type(getattr(self, name)) is not int
                or not 0 < getattr(self, name) <= _MOST_PIXELS
            ):
                raise SchemaError(
                    f"{name} must be a whole number of at least 1, not "
                    f"{getattr(self, name)!r}."
                )
        if type(self.channels) is not int or self.channels not in (1, 3):
            raise SchemaError(
                "channels are 1, for grey images, or 3, for colour, not "
                f"{self.channels!r}."
            )
        if self.height * self.width * self.channels > _MOST_PIXELS:
            raise SchemaError(
                f"an image has at most {_MOST_PIXELS:,} values, not "
                f"{' × '.join(map(str, self.shape))}."
            )
        # two finite numbers, the first below the second
        Real(name="pixel", low=self.low, high=self.high)
        self.settle()
        for target in self.targets:
            pixel = target.name.startswith("pixel_") and target.name in self.names
            if pixel or target.name in (self.person, "images"):
                raise SchemaError(
                    f'"{target.name}" has two meanings: every column has one.'
                )

    @property
    def shape(self) -> tuple[int, ...]:
        return (
            (self.height, self.width)
            if self.channels == 1
            else (self.height, self.width, self.channels)
        )

    @property
    def grey_shape(self) -> tuple[int, int]:
        """(height, width), for networks that take grey images alone: ConfigError of
        colour ones.
        """
        if self.channels != 1:
            raise ConfigError(
                "this protocol takes grey images, and these are in colour: moments and "
                "tied take both.",
                effect=Effect.NOTHING_CHARGED,
            )
        return self.height, self.width

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            "_".join(map(str, ("pixel", *position)))
            for position in np.ndindex(*self.shape)
        )

    @property
    def bounds(self) -> tuple[float, float]:
        return float(self.low), float(self.high)

    def read(self, source: Any, name: str | None = None) -> "Images":
        return read_images(source, self, name)

    def where(self, position: tuple[int, ...], value: str) -> str:
        return f"image {position[0] + 1:,}: {value} at pixel {position[1:]}"

    def unscaled(self, values: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """In declared units: uint8 where the bounds are 0 to 255, else floats."""
        pixels = super().unscaled(np.clip(values, 0, 1))
        return (
            pixels.round().astype(np.uint8)
            if (self.low, self.high) == (0, 255)
            else pixels
        )

    def frame(
        self, values: NDArray[np.floating[Any]], classes: Codes | None = None
    ) -> pd.DataFrame:
        frame = pd.DataFrame(
            self.unscaled(values).reshape(len(values), -1), columns=list(self.names)
        )
        if classes is not None:
            for index, (label, named) in enumerate(self.class_table(classes).items()):
                frame.insert(index, label, named)
        return frame

    def to_dict(self) -> dict[str, Any]:
        keys = self.stated() | {
            "channels": self.channels if self.channels > 1 else None
        }
        keys["rows_are_people"] = self.rows_are_people or None
        return {"kind": self.kind} | {
            key: value for key, value in keys.items() if value not in (None, "", [])
        }

    def __str__(self) -> str:
        person = (
            f"person {self.person}"
            if self.person
            else each_by_itself("image", self.rows_are_people)
        )
        classes = "".join(
            f", {target.name} of {target.levels} classes" for target in self.targets
        )
        images = "colour images" if self.channels > 1 else "images"
        size = f"{self.height} × {self.width} pixels"
        return (
            f"{images} of {size} from {self.low:g} to {self.high:g}, {person}{classes}"
        )


Images = ArrayTable[ImageSchema]


def read_images(
    source: Source | NDArray[Any], schema: ImageSchema, name: str | None = None
) -> Images:
    """Read an array, what holds arrays or image files, or a table of pixels. An array
    alone has no classes.
    """
    arrays = read_arrays(source, schema, name)
    if arrays is not None:
        return arrays
    readers = {
        pixel: cell_reader(
            Real(name=pixel, low=schema.low, high=schema.high, bins=1), _GAP
        )
        for pixel in schema.names
    }
    assert not isinstance(source, np.ndarray)  # which is read above
    raw, cells = read_columns(source, readers | beside_readers(schema), name)
    values = np.stack(
        [cells[column].to_numpy() for column in schema.names], axis=1
    ).reshape(-1, *schema.shape)
    people = None if schema.person is None else cells[schema.person].to_numpy()
    labels = {target.name: cells[target.name].to_numpy() for target in schema.targets}
    return Images.from_array(values, schema, people, raw.name, labels)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Grey (height, width) or colour (height, width, 3) as a PNG: header, unfiltered
    rows, end.
    """
    height, width, *colour = pixels.shape
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if colour else 0, 0, 0, 0)
    parts = (
        (b"IHDR", head),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    number = struct.Struct(">I").pack
    body = (
        number(len(data)) + kind + data + number(zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)
