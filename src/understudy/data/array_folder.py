"""Arrays in files as rows: .npy and .npz by numpy, .zarr by zarr (extra `zarr`), PNG
and JPEG images by pillow (extra `images`), and folders of these, file after file in the
order of their names. Of image files the subfolder says the class; or a table
metadata.csv has the path of each in the column file_name, and person and classes by
their own names. Who only adds up over people (`moments`) walks over `parts` and holds
one batch at a time, of .npy and .npz one file; any other asks for `values`, and so
reads all of them.

Guarantee: nobody has rows in two batches, so that what is counted of a part is all that
its people have. Nothing in a file is executed: no pickled objects, and of Zarr's codecs
those alone that pack or shuffle. A chunk of Zarr's is unpacked only to the size that it
states (`reading.zarr_chunks`), a .npz file only to what its headers state, an image
only if its header says what the schema does.
Edges: another kind of file, a damaged one, an image of another size, a person with rows
in two batches → SchemaError when it is opened. Files that changed since → PartyError,
which quotes nothing. A missing chunk of Zarr's is its fill.
"""

import io
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.arrays import NO_CLASS, ArraySchema, ArrayTable, Codes, S, Values
from understudy.data.encoding.values import starts_of
from understudy.data.reading import files
from understudy.data.reading.judged import Reader, cell_reader, id_reader, read_columns
from understudy.ground.errors import ConfigError, Effect, PartyError, SchemaError

_NUMPY = (".npy", ".npz")
_ZARR = ".zarr"
_PICTURES = (".png", ".jpg", ".jpeg")
# bytes in which the header of an array must end: numpy takes 10,000 letters
_HEADER = 1 << 16
# bytes that a .npz file may unpack to, as one chunk of Zarr's; or, where that is more,
_UNPACKED = 1 << 31
# times its own size: scans and photographs pack five to one, zeros a thousand
_PACKED = 16
# as datasets of Hugging Face have them
_LIST = "metadata.csv"
_FILE = "file_name"

# an array of them, and by name those of whose they are and of their classes
Rows = tuple[Any, dict[str, Any]]


def read_arrays(
    source: object, schema: S, name: str | None = None
) -> ArrayTable[S] | None:
    """The rows of an array, a file, a store or a folder: held, unless they are too
    many. None of anything else.
    """
    if isinstance(source, np.ndarray):
        return ArrayTable.alone(source, schema, name)
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    suffixes = (*_NUMPY, _ZARR, *_PICTURES)
    if path.suffix in _NUMPY:
        return _part(path, schema, name)
    if path.suffix != _ZARR and not (
        path.is_dir()
        and any(file.suffix.lower() in suffixes for file in path.rglob("*"))
    ):
        return None
    opened = ArrayFolder([*_batches(path, schema)], schema, name or path.name)
    return (
        opened
        if opened.rows * math.prod(schema.shape) > files.LONG
        else opened.in_memory
    )


def _batches(path: Path, schema: S) -> Iterator[Callable[[], ArrayTable[S]]]:
    """One for each file, and of what is read where it is cut, for as many whole people
    as may be held.
    """
    paths = (
        [path]
        if path.suffix == _ZARR
        else sorted(file for file in path.iterdir() if not file.name.startswith("."))
    )
    if not paths or any(file.suffix not in (*_NUMPY, _ZARR) for file in paths):
        yield from _cut(_pictures_in(path, schema), schema, path)
        return
    for file in paths:
        if file.suffix == _ZARR:
            yield from _cut(rows_in(file, schema), schema, file)
        else:
            yield partial(_part, file, schema)


def _cut(rows: Rows, schema: S, path: Path) -> Iterator[Callable[[], ArrayTable[S]]]:
    values, other_arrays = rows
    n_rows = values.shape[0]
    max_rows = max(1, files.LONG // math.prod(schema.shape))
    # its shape and type, before all is read
    schema.scaled(np.empty((0, *values.shape[1:]), values.dtype), path.name)
    mismatched = [
        key
        for key, values_of_key in other_arrays.items()
        if values_of_key.shape != (n_rows,)
    ]
    if mismatched:
        raise SchemaError(
            f'{path.name}: {n_rows:,} rows need as many values of "{mismatched[0]}".',
            effect=Effect.NOTHING_READ,
        )
    with _reading(path):
        people = (
            np.arange(n_rows)
            if schema.person is None
            else other_arrays[schema.person][:]
        )
    new = np.append(0, np.flatnonzero(people[1:] != people[:-1]) + 1)
    # the first person in each stretch of so many rows
    starts = new[np.unique(new // max_rows, return_index=True)[1]]
    for start, stop in pairwise([*starts.tolist(), n_rows]):
        title = (
            path.name
            if stop - start == n_rows
            else f"{path.name} from row {start + 1:,} on"
        )
        yield partial(_part, path, schema, title, rows, slice(start, stop))


def _part(
    path: Path,
    schema: S,
    name: str | None = None,
    rows: Rows | None = None,
    some: slice = slice(None),
) -> ArrayTable[S]:
    all_values, others = rows or rows_in(path, schema)
    with _reading(path):
        values = all_values[some]
        chosen = {key: array[some] for key, array in others.items()}
    for key, array in chosen.items():
        # texts, as pandas has them
        chosen[key] = array.astype(object) if array.dtype.kind == "T" else array
    return ArrayTable.from_array(
        values, schema, chosen.get(schema.person or ""), name or path.name, chosen
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a library stumbles over, in words: each format has errors of its own."""
    try:
        yield
    except (ConfigError, SchemaError):
        raise
    except ImportError as error:
        # which no file that can be read needs
        from understudy.ground.extras import install_library

        needed = install_library(error.name or "PIL")
        raise ConfigError(
            f"{path.name}: {error.name} is needed to read it ({needed}).",
            effect=Effect.NOTHING_READ,
        ) from None
    except Exception as error:
        why = (
            getattr(error, "strerror", None)
            or f"it is damaged, or holds objects: {type(error).__name__}"
        )
        raise SchemaError(
            f"{path}: the file cannot be read ({why}).", effect=Effect.NOTHING_READ
        ) from None


def rows_in(path: Path, schema: ArraySchema, *more: str) -> Rows:
    """The rows of a file or a store, the person of each where the schema names one, and
    classes, of `more`, too.
    """
    with _reading(path):
        arrays = (_zarr if path.suffix == _ZARR else _numpy)(path)
    names = [
        *filter(
            None, (schema.person, *(target.name for target in schema.targets), *more)
        )
    ]
    wanted: dict[str, Any] = {name: arrays.pop(name, None) for name in names}
    values = arrays.get(
        schema.array, next(iter(arrays.values())) if len(arrays) == 1 else None
    )
    missing = [
        key for key, array in ({schema.array: values} | wanted).items() if array is None
    ]
    if missing:
        raise SchemaError(
            f'{path.name} holds no array "{missing[0]}".', effect=Effect.NOTHING_READ
        )
    return values, wanted


def _numpy(path: Path) -> dict[str, Any]:
    if zipfile.is_zipfile(path):
        _require_bounded(path)
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {"": np.atleast_1d(loaded)}
    with loaded:
        return {name: np.atleast_1d(array) for name, array in loaded.items()}


def _require_bounded(path: Path) -> None:
    """SchemaError unless each member of a .npz file unpacks to what the header of its
    array states, and all of them together to no more than a file may. Headers alone are
    unpacked, each to a bounded length.
    """
    total = 0
    with zipfile.ZipFile(path) as packed:
        for member in packed.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # which unpacks piece by piece
                raise ValueError("numpy packs by deflate alone")
            with packed.open(member) as file:
                stated = _stated_size(io.BytesIO(file.read(_HEADER)))
            if member.file_size != stated:
                raise SchemaError(
                    f"{path.name}: a member unpacks to {member.file_size:,} bytes, and "
                    f"its array has {stated:,}.",
                    effect=Effect.NOTHING_READ,
                )
            total += member.file_size
    limit = max(_UNPACKED, _PACKED * path.stat().st_size)
    if total > limit:
        raise SchemaError(
            f"{path.name}: its arrays unpack to {total:,} bytes, and a file of its "
            f"size may have {limit:,}. Write them "
            "as .npy, or in several files.",
            effect=Effect.NOTHING_READ,
        )


def _stated_size(file: BinaryIO) -> int:
    """Bytes of an array in numpy's format with its header, by the header. ValueError
    where there is none.
    """
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds objects")
    return file.tell() + math.prod(shape) * dtype.itemsize


def _zarr(path: Path) -> dict[str, Any]:
    from understudy.data.reading.zarr_chunks import checked_arrays

    return checked_arrays(path)


def beside_readers(schema: ArraySchema) -> dict[str, Reader]:
    """How the columns of a table that say the person and the classes are read."""
    person = (
        {}
        if schema.person is None
        else {schema.person: id_reader(schema.person, one_row_each=False)}
    )
    return person | {
        target.name: cell_reader(target, NO_CLASS) for target in schema.targets
    }


def _pictures_in(folder: Path, schema: ArraySchema) -> Rows:
    """In the order of their names, or in that of the list person after person."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    names = sorted(
        path.as_posix()
        for path in paths
        if not any(part.startswith(".") for part in path.parts)
    )
    pictures = [name for name in names if name != _LIST]
    if (
        schema.array != "images"
        or not pictures
        or not all(name.lower().endswith(_PICTURES) for name in pictures)
    ):
        kinds = (
            f"{schema.array} holds .npy, .npz and .zarr files, or of images PNG and "
            "JPEG files"
        )
        raise SchemaError(
            f"{folder.name}: a folder of {kinds}, and no others. None was read."
        )
    folders = {
        target.name: [name.rpartition("/")[0] for name in pictures]
        for target in schema.targets[:1]
    }
    listed = (
        folder / _LIST if _LIST in names else pd.DataFrame({_FILE: pictures} | folders)
    )
    readers = {_FILE: id_reader(_FILE, one_row_each=False)} | beside_readers(schema)
    cells = pd.DataFrame(read_columns(listed, readers, folder.name)[1])
    if sorted(cells[_FILE].astype(str)) != pictures:
        raise SchemaError(
            f"{folder.name}: {_LIST} must list each image there once. None was read."
        )
    cells = cells.iloc[
        np.argsort(pd.factorize(cells[schema.person or _FILE])[0], kind="stable")
    ]
    files_of = _Pictures(folder, [*cells.pop(_FILE)], (len(cells), *schema.shape))
    return files_of, {str(name): cell.to_numpy() for name, cell in cells.items()}


@dataclass(frozen=True)
class _Pictures:
    """Image files as one array."""

    folder: Path
    names: list[str]
    shape: tuple[int, ...]
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)

    def __getitem__(self, some: slice) -> NDArray[Any]:
        return np.stack([self._pixels(self.folder / name) for name in self.names[some]])

    def _pixels(self, path: Path) -> NDArray[Any]:
        _, height, width, *colour = self.shape
        modes = ("RGB",) if colour else ("L", "I;16")  # grey of 8 or 16 bits
        with _reading(path):
            from PIL import Image

            with Image.open(path, formats=("PNG", "JPEG")) as image:  # the header alone
                if image.size == (width, height) and image.mode in modes:
                    return np.asarray(image)
                found_image = (
                    f"{image.height} × {image.width} pixels of the mode {image.mode}"
                )
        wanted = f"{height} × {width} of the mode {' or '.join(modes)}"
        raise SchemaError(
            f"{path.name}: the image has {found_image}, and by the schema {wanted}.",
            effect=Effect.NOTHING_READ_FURTHER,
        )


class ArrayFolder(ArrayTable[S]):
    """Rows that are read again whenever they are needed; whose they are is kept."""

    long: ClassVar[bool] = True

    def __init__(
        self, batches: list[Callable[[], ArrayTable[S]]], schema: S, source: str
    ) -> None:
        parts = [
            (part.ids, np.diff(part.starts)) for part in (read() for read in batches)
        ]
        ids = np.concatenate([fields_of_folder for fields_of_folder, _ in parts])
        starts = starts_of(np.concatenate([n for _, n in parts]))
        ids = np.arange(len(ids)) if schema.person is None else ids
        twice = int(pd.Series(ids).duplicated().sum())
        if twice:
            raise SchemaError(
                f"{source}: {twice:,} people have rows in two files, or far apart in "
                "one, and all rows of a person "
                "stand together.",
                effect=Effect.NOTHING_READ_FURTHER,
            )
        fields_of_folder = {
            "ids": ids,
            "starts": starts,
            "schema": schema,
            "source": source,
            "batches": batches,
            "seen": parts,
        }
        for key, value in fields_of_folder.items():
            object.__setattr__(self, key, value)  # as a frozen dataclass does

    batches: list[Callable[[], ArrayTable[S]]]
    # the people of each, and how many rows they have
    seen: list[tuple[NDArray[Any], NDArray[Any]]]

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def parts(self) -> Iterator[ArrayTable[S]]:
        for read, (ids, numbers) in zip(self.batches, self.seen, strict=True):
            try:
                part = read()
                if not np.array_equal(part.ids, ids) or not np.array_equal(
                    np.diff(part.starts), numbers
                ):
                    raise SchemaError(f"{part.source} has other people by now.")
            except SchemaError as error:
                raise PartyError(
                    "a file of the folder is not as it was when the folder was opened.",
                    effect=Effect.NOTHING_SENT_FURTHER,
                ) from error
            yield part

    @cached_property
    def in_memory(self) -> ArrayTable[S]:
        parts_read = [(part.values, part.classes) for part in self.parts()]
        values = np.concatenate([part for part, _ in parts_read])
        classes = [part for _, part in parts_read if part is not None]
        joined = np.concatenate(classes) if classes else None
        return ArrayTable(
            values, self.ids, self.starts, self.schema, self.source, joined
        )

    @property
    def values(self) -> Values:
        return self.in_memory.values

    @property
    def classes(self) -> Codes | None:
        return self.in_memory.classes

    def take(self, people: ArrayLike | NDArray[Any]) -> ArrayTable[S]:  # type: ignore[override]
        return self.in_memory.take(people)
