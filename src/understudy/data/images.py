"""Grey images of one size: what is public about them, and how they are read.

    kind = "image"
    height = 28
    width = 28
    low = 0                     # the bounds of a pixel
    high = 255
    person = "writer"           # the column, or the array of the file, that says whose image it is

A file is .npy, .npz (the array `images`, or the only one beside the person's), or a table with a column for each pixel,
row by row: pixel_0_0, pixel_0_1, …

Guarantee: nothing is fitted on images. Without `person` each image is a person of its own.
Edges: images of another size, a pixel outside its bounds or not finite → SchemaError that names the file and the image.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.check import known_keys
from understudy.data.arrays import ArrayTable, Values, checked, outside
from understudy.data.column import Real
from understudy.data.document import Document
from understudy.data.files import Source
from understudy.data.table import cell_reader, id_reader, read_columns
from understudy.errors import SchemaError

_MOST_PIXELS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ImageSchema(Document):
    """The size of the images and the bounds of a pixel; whole bounds mean whole pixels."""

    kind: ClassVar[str] = "image"
    height: int
    width: int
    low: float = 0
    high: float = 255
    person: str | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            if type(getattr(self, name)) is not int or not 0 < getattr(self, name) <= _MOST_PIXELS:
                raise SchemaError(
                    f"{name} must be a whole number of at least 1, not {getattr(self, name)!r}."
                )
        if self.height * self.width > _MOST_PIXELS:
            raise SchemaError(
                f"an image has at most {_MOST_PIXELS:,} pixels, not {self.height} × {self.width}."
            )
        Real(name="pixel", low=self.low, high=self.high)  # two finite numbers, the first below the second

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the pixels, row by row."""
        return tuple(f"pixel_{i}_{j}" for i in range(self.height) for j in range(self.width))

    def require_public(self) -> None:
        """Bounds of pixels are always declared: nothing drafts them from images."""

    def scaled(self, values: ArrayLike, source: str = "the array") -> Values:
        """Images (images, height, width) in declared units as numbers in [0, 1]."""
        array = checked(values, self.shape, source)
        if place := outside(array, self.low, self.high):
            raise SchemaError(
                f"{source}, image {place[0] + 1:,}: value {array[place]:g} at pixel {place[1:]} is outside the "
                f"declared {self.low:g} to {self.high:g}. Nothing was read further."
            )
        return np.asarray((array.astype(np.float32) - self.low) / (self.high - self.low), dtype=np.float32)

    def unscaled(self, values: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """Numbers in [0, 1] in declared units: uint8 where the bounds are 0 to 255, else floats."""
        pixels = np.asarray(self.low + np.clip(values, 0, 1).astype(np.float64) * (self.high - self.low))
        return pixels.round().astype(np.uint8) if (self.low, self.high) == (0, 255) else pixels

    def frame(self, values: NDArray[np.floating[Any]]) -> pd.DataFrame:
        """Numbers in [0, 1] (images, height, width) as a table: a row for each image, a column for each pixel."""
        return pd.DataFrame(self.unscaled(values).reshape(len(values), -1), columns=list(self.names))

    def to_dict(self) -> dict[str, Any]:
        """The schema in plain types, without an empty person or note."""
        keys = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind} | {key: value for key, value in keys.items() if value not in (None, "")}

    def __str__(self) -> str:
        person = f"person {self.person}" if self.person else "each image a person"
        return f"images of {self.height} × {self.width} pixels from {self.low:g} to {self.high:g}, {person}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        keys = {key: value for key, value in data.items() if key != "kind"}
        known_keys(keys, (field.name for field in fields(cls)), "an image schema", raised=SchemaError)
        if not {"height", "width"} <= keys.keys():
            raise SchemaError("an image schema needs height and width.")
        return cls(**keys)


Images = ArrayTable[ImageSchema]


def read_images(source: Source | NDArray[Any], schema: ImageSchema, name: str | None = None) -> Images:
    """Read an array, a .npy or .npz file, or a table of pixels."""
    if isinstance(source, np.ndarray):
        return Images.from_array(source, schema, source=name or "the array")
    if isinstance(source, str | Path) and Path(source).suffix in (".npy", ".npz"):
        values, people = _load(Path(source), schema)
        return Images.from_array(values, schema, people, name or Path(source).name)
    readers = {
        pixel: cell_reader(Real(name=pixel, low=schema.low, high=schema.high, bins=1))
        for pixel in schema.names
    }
    if schema.person is not None:
        readers[schema.person] = id_reader(schema.person, one_row_each=False)
    raw, cells = read_columns(source, readers, name)
    values = np.stack([cells[column].to_numpy() for column in schema.names], axis=1).reshape(
        -1, *schema.shape
    )
    people = None if schema.person is None else cells[schema.person].to_numpy()
    return Images.from_array(values, schema, people, raw.name)


def _load(path: Path, schema: ImageSchema) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The images in a .npy or .npz file, and the person of each where the schema names one."""
    try:
        found = np.load(path, allow_pickle=False)
        arrays = {"images": found} if isinstance(found, np.ndarray) else dict(found)
    except OSError as error:
        raise SchemaError(
            f"{path}: the file cannot be read ({error.strerror or 'damaged'}). Nothing was read."
        ) from None
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise SchemaError(f"{path.name}: the file is damaged, or holds objects. Nothing was read.") from None
    people = arrays.pop(schema.person, None) if schema.person else None
    values = arrays.get("images", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if values is None or (schema.person and people is None):
        wanted = "images" if values is None else schema.person
        raise SchemaError(f'{path.name} holds no array "{wanted}". Nothing was read.')
    return values, people
