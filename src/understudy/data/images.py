"""Images of one size, grey or in colour: what is public about them, and how they are read (docs/moments.md).

A file is .npy, .npz (the array `images`, or the only one beside the person's and the class's), or a table with a column
for each pixel, row by row: pixel_0_0, pixel_0_1, …; in colour pixel_0_0_0, pixel_0_0_1, pixel_0_0_2, pixel_0_1_0, …
Colours are the last axis of an array, (images, height, width, 3).

A folder of .npy and .npz files is one set of rows, file after file in the order of their names. Who only adds up over
people (`moments`) walks over `parts` and holds one file at a time; any other asks for `values`, and so reads them all.

Guarantee: nothing is fitted on images. Without `person` each image is a person of its own. Nobody has rows in two
files, so that what is counted of a part is all that its people have.
Edges: images of another size, a pixel outside its bounds or not finite → SchemaError that names the file and the image.
A folder with no such file or another kind of file, a person with rows in two → SchemaError when it is opened. Files
that changed since → PartyError, which quotes nothing.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.arrays import NO_CLASS, ArraySchema, ArrayTable, Codes, Values
from understudy.data.column import Real
from understudy.data.encoding.values import starts_of
from understudy.data.reading import files
from understudy.data.reading.files import Source
from understudy.data.reading.judged import cell_reader, id_reader, read_columns
from understudy.ground.errors import ConfigError, PartyError, SchemaError

_MOST_PIXELS = 1 << 20
_SUFFIXES = (".npy", ".npz")
_GAP = "has no value, and an image has one in every pixel: fill it in, or leave that image out."


@dataclass(frozen=True, kw_only=True)
class ImageSchema(ArraySchema):
    """The size of the images and the bounds of a pixel; whole bounds mean whole pixels."""

    kind: ClassVar[str] = "image"
    sides: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("height", "width")
    height: int
    width: int
    channels: int = 1
    low: float = 0
    high: float = 255

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            if type(getattr(self, name)) is not int or not 0 < getattr(self, name) <= _MOST_PIXELS:
                raise SchemaError(f"{name} must be a whole number of at least 1, not {getattr(self, name)!r}.")
        if type(self.channels) is not int or self.channels not in (1, 3):
            raise SchemaError(f"channels are 1, for grey images, or 3, for colour, not {self.channels!r}.")
        if self.height * self.width * self.channels > _MOST_PIXELS:
            raise SchemaError(f"an image has at most {_MOST_PIXELS:,} values, not {' × '.join(map(str, self.shape))}.")
        Real(name="pixel", low=self.low, high=self.high)  # two finite numbers, the first below the second
        self.settle()
        for target in self.targets:
            pixel = target.name.startswith("pixel_") and target.name in self.names
            if pixel or target.name in (self.person, "images"):
                raise SchemaError(f'"{target.name}" has two meanings: every column has one.')

    @property
    def shape(self) -> tuple[int, ...]:
        """(height, width), and of colour images (height, width, 3)."""
        return (self.height, self.width) if self.channels == 1 else (self.height, self.width, self.channels)

    @property
    def grey_shape(self) -> tuple[int, int]:
        """(height, width), for networks that take grey images alone: ConfigError of colour ones."""
        if self.channels != 1:
            raise ConfigError(
                "this protocol takes grey images, and these are in colour: moments and tied take both. "
                "Nothing was charged."
            )
        return self.height, self.width

    @property
    def names(self) -> tuple[str, ...]:
        return tuple("_".join(map(str, ("pixel", *place))) for place in np.ndindex(*self.shape))

    @property
    def bounds(self) -> tuple[float, float]:
        return float(self.low), float(self.high)

    def read(self, source: Any, name: str | None = None) -> "Images":
        return read_images(source, self, name)

    def where(self, place: tuple[int, ...], value: str) -> str:
        return f"image {place[0] + 1:,}: {value} at pixel {place[1:]}"

    def unscaled(self, values: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """In declared units: uint8 where the bounds are 0 to 255, else floats."""
        pixels = super().unscaled(np.clip(values, 0, 1))
        return pixels.round().astype(np.uint8) if (self.low, self.high) == (0, 255) else pixels

    def frame(self, values: NDArray[np.floating[Any]], classes: Codes | None = None) -> pd.DataFrame:
        """A row for each image: its classes, and a column for each pixel."""
        frame = pd.DataFrame(self.unscaled(values).reshape(len(values), -1), columns=list(self.names))
        if classes is not None:
            for place, (label, named) in enumerate(self.class_table(classes).items()):
                frame.insert(place, label, named)
        return frame

    def to_dict(self) -> dict[str, Any]:
        keys = self.stated() | {"channels": self.channels if self.channels > 1 else None}
        return {"kind": self.kind} | {key: value for key, value in keys.items() if value not in (None, "", [])}

    def __str__(self) -> str:
        person = f"person {self.person}" if self.person else "each image a person"
        what = "".join(f", {target.name} of {target.levels} classes" for target in self.targets)
        images = "colour images" if self.channels > 1 else "images"
        size = f"{self.height} × {self.width} pixels"
        return f"{images} of {size} from {self.low:g} to {self.high:g}, {person}{what}"


Images = ArrayTable[ImageSchema]


def read_images(source: Source | NDArray[Any], schema: ImageSchema, name: str | None = None) -> Images:
    """Read an array, a .npy or .npz file, a folder of these, or a table of pixels. An array alone has no classes."""
    if isinstance(source, np.ndarray):
        return Images.alone(source, schema, name)
    if isinstance(source, str | Path) and Path(source).is_dir():
        return _read_folder(Path(source), schema, name)
    if isinstance(source, str | Path) and Path(source).suffix in _SUFFIXES:
        values, people, labels = load_images(Path(source), schema)
        return Images.from_array(values, schema, people, name or Path(source).name, labels)
    readers = {one: cell_reader(Real(name=one, low=schema.low, high=schema.high, bins=1), _GAP) for one in schema.names}
    if schema.person is not None:
        readers[schema.person] = id_reader(schema.person, one_row_each=False)
    readers |= {target.name: cell_reader(target, NO_CLASS) for target in schema.targets}
    raw, cells = read_columns(source, readers, name)
    values = np.stack([cells[column].to_numpy() for column in schema.names], axis=1).reshape(-1, *schema.shape)
    people = None if schema.person is None else cells[schema.person].to_numpy()
    labels = {target.name: cells[target.name].to_numpy() for target in schema.targets}
    return Images.from_array(values, schema, people, raw.name, labels)


def _read_folder(folder: Path, schema: ImageSchema, name: str | None) -> Images:
    """The images of all files: held, unless they are too many."""
    found = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    if not found or any(one.suffix not in _SUFFIXES for one in found):
        raise SchemaError(f"{folder.name}: a folder of images holds .npy and .npz files, and no others. None was read.")
    opened = ImageFolder(found, schema, name or folder.name)
    return opened if opened.starts[-1] * int(np.prod(schema.shape)) > files.LONG else opened.held()


class ImageFolder(Images):
    """Images that are read again whenever they are needed; whose they are is kept."""

    long: ClassVar[bool] = True

    def __init__(self, found: list[Path], schema: ImageSchema, source: str) -> None:
        parts = [(part.ids, np.diff(part.starts)) for part in (read_images(path, schema) for path in found)]
        ids, starts = np.concatenate([own for own, _ in parts]), starts_of(np.concatenate([n for _, n in parts]))
        ids = np.arange(len(ids)) if schema.person is None else ids
        if twice := int(pd.Series(ids).duplicated().sum()):
            raise SchemaError(
                f"{source}: {twice:,} people have rows in two files, and all rows of a person stand in one. Nothing "
                "was read further."
            )
        own = {"ids": ids, "starts": starts, "schema": schema, "source": source, "found": found}
        for key, value in (own | {"sizes": [len(some) for some, _ in parts]}).items():
            object.__setattr__(self, key, value)  # as a frozen dataclass does

    found: list[Path]
    sizes: list[int]  # people of each file

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def parts(self) -> Iterator[Images]:
        before = 0
        for path, size in zip(self.found, self.sizes, strict=True):
            try:
                part = read_images(path, self.schema)
            except SchemaError as error:
                raise self._changed() from error
            after = before + size
            same = self.schema.person is None or np.array_equal(part.ids, self.ids[before:after])
            if not same or not np.array_equal(np.diff(part.starts), np.diff(self.starts[before : after + 1])):
                raise self._changed()
            yield part
            before = after

    def _changed(self) -> PartyError:
        return PartyError("a file of the folder is not as it was when the folder was opened. Nothing more was sent.")

    @cached_property
    def values(self) -> Values:
        return np.concatenate([part.values for part in self.parts()])

    @cached_property
    def classes(self) -> Codes | None:
        own = [part.classes for part in self.parts() if part.classes is not None]
        return np.concatenate(own) if own else None

    def held(self) -> Images:
        whole: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(ArrayTable)}
        return Images(**whole)

    def take(self, people: ArrayLike | NDArray[Any]) -> Images:  # type: ignore[override]
        return self.held().take(people)


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a .npy or .npz file by name; the one of a .npy file is called images. Nothing in it is executed."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"images": found}
        with found:
            return {name: np.atleast_1d(array) for name, array in found.items()}
    except OSError as error:
        raise SchemaError(
            f"{path}: the file cannot be read ({error.strerror or 'damaged'}). Nothing was read."
        ) from None
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
        raise SchemaError(f"{path.name}: the file is damaged, or holds objects. Nothing was read.") from None


def load_images(
    path: Path, schema: ImageSchema, *more: str
) -> tuple[NDArray[Any], NDArray[Any] | None, dict[str, NDArray[Any]]]:
    """The images in a file, the person of each where the schema names one, and the classes, of `more` columns, too."""
    arrays = load_arrays(path)
    beside = [*filter(None, (schema.person, *(target.name for target in schema.targets), *more))]
    labels: dict[str, Any] = {name: arrays.pop(name, None) for name in beside}
    values = arrays.get("images", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if missing := [key for key, array in ({"images": values} | labels).items() if array is None]:
        raise SchemaError(f'{path.name} holds no array "{missing[0]}". Nothing was read.')
    return np.asarray(values), None if schema.person is None else labels.pop(schema.person), labels


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Grey (height, width) or colour (height, width, 3) as a PNG: header, unfiltered rows, end."""
    height, width, *colour = pixels.shape
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if colour else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    body = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)
