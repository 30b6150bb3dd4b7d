"""The header of a safetensors file: what tensors it holds, and where. Read strictly, before any of them.

A safetensors file is eight bytes of length, little-endian, then a JSON object of that length, then the tensors one
after the other.

Guarantee: what is returned fits the bytes. Every tensor lies within the file, takes exactly the bytes of its dtype and
shape, overlaps no other, and no byte belongs to nothing. Reading takes memory in proportion to the header alone.
Edges: a header above `most`, a name or key that stands twice, unknown dtypes and keys are a ValueError in words.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MOST_HEADER = 1 << 20
_MOST_SIDES = 16  # of one tensor
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: bytes `start` to `end`, counted from the end of the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    tensors: dict[str, Stored]  # in the order in which they lie
    metadata: dict[str, str]
    begin: int  # of the tensors, in the file
    size: int  # of the file

    @property
    def shapes(self) -> Shapes:
        """Each tensor's dtype and shape."""
        return {name: (stored.dtype, stored.shape) for name, stored in self.tensors.items()}


def read_header(source: str | Path | bytes | bytearray, *, most: int = MOST_HEADER) -> Header:
    """The header of a file, or of its bytes. ValueError for anything that is not exactly such a file."""
    if isinstance(source, bytes | bytearray):
        size, length = len(source), int.from_bytes(source[:8], "little")
        _check_length(length, size, most)
        text = bytes(source[8 : 8 + length])
    else:
        with Path(source).open("rb") as file:
            length, size = int.from_bytes(file.read(8), "little"), file.seek(0, 2)
            _check_length(length, size, most)
            file.seek(8)
            text = file.read(length)
    try:
        header = _decode(text.decode())
    except RecursionError:
        raise ValueError("its header is nested too deep.") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no table of keys.")
    metadata = _metadata(header.pop("__metadata__", {}))
    tensors = sorted(((name, _stored(name, entry)) for name, entry in header.items()), key=_place)
    _check_cover(tensors, size - 8 - length)
    return Header(dict(tensors), metadata, 8 + length, size)


def difference(expected: Shapes, found: Shapes) -> str:
    """The first tensor in which the two differ, in words."""
    name = min(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    return f'"{name}" is {_shape(found.get(name))}, not {_shape(expected.get(name))}'


def _check_length(length: int, size: int, most: int) -> None:
    if not 2 <= length <= min(most, size - 8):
        raise ValueError(
            f"it begins by announcing a header of {length:,} bytes; the file has {size:,}, a header at most {most:,}."
        )


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f'the key "{key}" appears twice in its header.')
        found[key] = value
    return found


_decode = json.JSONDecoder(object_pairs_hook=_once).decode


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("its metadata is no table of texts.")
    return value


def _stored(name: str, entry: Any) -> Stored:
    """One entry of the header, if it fits itself."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f'"{name}" in its header is no tensor.')
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    shape, offsets = entry["shape"], entry["data_offsets"]
    if dtype is None:
        raise ValueError(f'the tensor "{name}" has a dtype that is not known here.')
    if not _numbers(shape) or len(shape) > _MOST_SIDES or not _numbers(offsets) or len(offsets) != 2:
        raise ValueError(f'the tensor "{name}" has no shape or no place.')
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise ValueError(f'the tensor "{name}" of shape {shape} does not fit its place {offsets}.')
    return Stored(dtype, tuple(shape), *offsets)


def _numbers(value: Any) -> bool:
    """Whole numbers that a file can have so many bytes of."""
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 1 << 63 for number in value)


def _place(item: tuple[str, Stored]) -> tuple[int, int]:
    return item[1].start, item[1].end


def _check_cover(tensors: list[tuple[str, Stored]], size: int) -> None:
    """One after the other, from the first byte to the last."""
    place = 0
    for name, stored in tensors:
        if stored.start != place or stored.end > size:
            raise ValueError(f'the tensor "{name}" does not begin where the one before it ends.')
        place = stored.end
    if place != size:
        raise ValueError(f"{size - place:,} of its bytes belong to no tensor.")


def _shape(entry: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "absent" if entry is None else f"{str(entry[0]).removeprefix('torch.')} {list(entry[1])}"
