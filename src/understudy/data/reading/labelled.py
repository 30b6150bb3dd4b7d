"""Images with a class each, from one .npz file: arrays of images, of classes and, where the schema says so, of people.

    np.savez("north.npz", images=x, digit=y, patient=who)     # (n, height, width), (n,), (n,)

Guarantee: pixels are held against the declared bounds and classes against the declared labels; nothing is fitted, and
nothing in the file is executed.
Edges: an array that is missing, of another length or of objects, a pixel outside its bounds, a class that was not
declared → SchemaError that names the file, and nothing was charged. Without `person` each image is a person of its own.
"""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.encoding.features import Label
from understudy.data.encoding.population import Population
from understudy.data.images import ImageSchema
from understudy.ground.errors import SchemaError


def read_labelled_images(
    path: str | Path, schema: ImageSchema, *, target: str, labels: Sequence[Label]
) -> Population:
    """The people of a .npz file, with images by this schema and, in the array `target`, the class of each."""
    path = Path(path)
    arrays = _arrays(path)
    wanted = ("images", target) if schema.person is None else ("images", target, schema.person)
    if missing := [name for name in wanted if name not in arrays]:
        raise SchemaError(
            f'{path.name} holds no array "{missing[0]}"; it holds {", ".join(sorted(arrays)) or "none"}. '
            "Nothing was read."
        )
    count = len(arrays["images"])
    for name in wanted[1:]:
        if arrays[name].shape != (count,):
            raise SchemaError(
                f'{path.name}: "{name}" has the shape {arrays[name].shape} beside {count:,} images. Nothing was read.'
            )
    people = None if schema.person is None else arrays[schema.person]
    pixels = schema.scaled(arrays["images"], path.name)
    try:
        return Population.from_arrays(pixels, arrays[target], classes=labels, people=people)
    except SchemaError as error:
        raise SchemaError(f"{path.name}: {error}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: np.atleast_1d(found[name]) for name in found.files}
    except OSError as error:
        raise SchemaError(
            f"{path}: the file cannot be read ({error.strerror or 'damaged'}). Nothing was read."
        ) from None
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
        raise SchemaError(
            f"{path.name}: labelled images come as a .npz file of plain arrays, and this is not one. Nothing was read."
        ) from None
