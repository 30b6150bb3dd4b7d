"""A folder of .npy and .npz files as one set of rows, file after file in the order of their names.

Who only adds up over people (`moments`) walks over `parts` and holds one file at a time: of rows that are held there is
one part. Any other asks for `values`, and so reads all of them.

Guarantee: nobody has rows in two files, so that what is counted of a part is all that its people have.
Edges: no such file, another kind of file, a person with rows in two → SchemaError when the folder is opened. Files that
changed since → PartyError, which quotes nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.arrays import ArrayTable, Codes, S, Values
from understudy.data.places import starts_of
from understudy.data.reading import files
from understudy.ground.errors import PartyError, SchemaError

SUFFIXES = (".npy", ".npz")


def read_folder(folder: Path, schema: S, name: str | None, read: Callable[[Path], ArrayTable[S]]) -> ArrayTable[S]:
    """The rows of all files, each read by `read`: held, unless they are too many."""
    found = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    if not found or any(one.suffix not in SUFFIXES for one in found):
        raise SchemaError(f"{folder.name}: a folder of images holds .npy and .npz files, and no others. None was read.")
    opened = ArrayFolder(found, schema, name or folder.name, read)
    return opened if opened.starts[-1] * int(np.prod(schema.shape)) > files.LONG else opened.held()


class ArrayFolder(ArrayTable[S]):
    """Rows that are read again whenever they are needed; whose they are is kept."""

    long: ClassVar[bool] = True

    def __init__(self, found: list[Path], schema: S, source: str, read: Callable[[Path], ArrayTable[S]]) -> None:
        parts = [(len(part.ids), part.ids, np.diff(part.starts)) for part in map(read, found)]
        ids, starts = np.concatenate([own for _, own, _ in parts]), starts_of(np.concatenate([n for *_, n in parts]))
        ids = np.arange(len(ids)) if schema.person is None else ids
        if twice := int(pd.Series(ids).duplicated().sum()):
            raise SchemaError(
                f"{source}: {twice:,} people have rows in two files, and all rows of a person stand in one. Nothing "
                "was read further."
            )
        own = {"ids": ids, "starts": starts, "schema": schema, "source": source, "found": found, "read": read}
        for key, value in (own | {"sizes": [size for size, *_ in parts]}).items():
            object.__setattr__(self, key, value)  # as a frozen dataclass does

    found: list[Path]
    read: Callable[[Path], ArrayTable[S]]
    sizes: list[int]  # people of each file

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def parts(self) -> Iterator[ArrayTable[S]]:
        before = 0
        for path, size in zip(self.found, self.sizes, strict=True):
            try:
                part = self.read(path)
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

    def held(self) -> ArrayTable[S]:
        whole: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(ArrayTable)}
        return ArrayTable(**whole)

    def take(self, people: ArrayLike | NDArray[Any]) -> ArrayTable[S]:  # type: ignore[override]
        return self.held().take(people)
