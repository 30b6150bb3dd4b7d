"""Plain values ↔ bytes: tensors by safetensors, everything else by JSON. Never pickle.

A packed value is a safetensors file whose metadata holds one JSON text: the value with
each tensor replaced by its number. What can be packed is what can be written down:
None, bool, int, float, str, bytes, lists, dicts with string keys, and tensors. Tuples
come back as lists. A file is eight bytes of length, little-endian, then a JSON object
of that length, its header, then the tensors one after the other; `read_header` says
what tensors it holds, and where, before any of them is read.

Guarantee: unpacking runs no code and builds nothing but these kinds. What `read_header`
returns fits the bytes: every tensor lies within the file, takes exactly the bytes of
its dtype and shape, overlaps no other, and no byte belongs to nothing. Reading it takes
memory in proportion to the header alone.
Edges: non-finite numbers and tensors are refused in both directions; so are bytes above
`limit`, left-over tensors, and anything that is not exactly such a file. Tensors that
come out of a bytearray share its memory; those out of bytes are copies. A header above
`most`, a name or key that stands twice, unknown dtypes and keys are a ValueError in
words.
"""

import base64
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from understudy.ground.errors import Effect, MessageError

Value: TypeAlias = (
    "Tensor | bool | int | float | str | bytes | list[Any] | tuple[Any, ...] | "
    "dict[str, Any] | None"
)

MOST_HEADER = 1 << 20
_MOST_SIDES = 16  # of one tensor
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]
LIMIT = 1 << 30
DEPTH = 32
_LARGEST_HEADER = 100_000_000  # as the safetensors library has it
_TENSOR = "$tensor"
_BYTES = "$bytes"
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def _no_constant(name: str) -> None:
    raise ValueError(name)


# Made once: `json.dumps` and `json.loads` make these anew at each call, which is half
# of the work on a small message.
_write_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_read_json = json.JSONDecoder(parse_constant=_no_constant).decode


def pack(value: Value, *, limit: int = LIMIT) -> bytes:
    """One value as bytes. MessageError if it cannot be written down."""
    tensors: dict[str, Tensor] = {}
    text = _write_json(_strip(value, tensors, 0))
    data = _file(tensors, text)
    if len(data) > limit:
        raise MessageError(
            f"A message of {len(data):,} bytes is above the limit of {limit:,}.",
            effect=Effect.NOTHING_SENT,
        )
    return data


def unpack(data: bytes | bytearray, *, limit: int = LIMIT) -> Value:
    """The value that `pack` wrote. MessageError for anything else."""
    if len(data) > limit:
        raise MessageError(
            f"A message of {len(data):,} bytes is above the limit of {limit:,}."
        )
    try:
        text, tensors = _read(data if isinstance(data, bytearray) else bytearray(data))
        plain = _read_json(text)
    except (
        ValueError,
        KeyError,
        RecursionError,
        TypeError,
        AttributeError,
        RuntimeError,
    ) as error:
        raise MessageError(
            f"These bytes are not a message ({type(error).__name__})."
        ) from None
    value = _fill(plain, tensors, 0)
    if tensors:
        raise MessageError(
            f"A message holds {len(tensors)} tensors that nothing refers to."
        )
    return value


def _file(tensors: dict[str, Tensor], text: str) -> bytes:
    """A safetensors file, copying each tensor once where the library's `save` copies it
    three times.
    """
    # so that each begins aligned
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, Any] = {"__metadata__": {"value": text}}
    parts = []
    offset = 0
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
        # One value of a column counts as contiguous whatever its stride, and `view`
        # wants a stride of 1.
        flat = tensor.as_strided((tensor.numel(),), (1,))
        parts.append(flat.view(torch.uint8).numpy().data)
    head = _write_json(header).encode()
    head += b" " * (-len(head) % 8)
    return b"".join((len(head).to_bytes(8, "little"), head, *parts))


def _strip(value: Value, tensors: dict[str, Tensor], depth: int) -> Any:
    if depth > DEPTH:
        raise MessageError(f"A message is nested deeper than {DEPTH}.")
    match value:
        case Tensor():
            if value.dtype not in _NAMES:
                raise MessageError(f"A tensor of {value.dtype} cannot be sent.")
            _finite_tensor(value.detach())
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().contiguous()
            return {_TENSOR: name}
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise MessageError("A message holds a number that is not finite.")
            return value
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case list() | tuple():
            return [_strip(item, tensors, depth + 1) for item in value]
        case dict():
            if any(
                not isinstance(key, str) or key in (_TENSOR, _BYTES) for key in value
            ):
                raise MessageError("The keys of a message must be plain strings.")
            return {
                key: _strip(item, tensors, depth + 1) for key, item in value.items()
            }
        case _:
            raise MessageError(f"A {type(value).__name__} cannot be sent.")


def _fill(plain: Any, tensors: dict[str, Tensor], depth: int) -> Value:
    if depth > DEPTH:
        raise MessageError(f"A message is nested deeper than {DEPTH}.")
    if isinstance(plain, list):
        return [_fill(item, tensors, depth + 1) for item in plain]
    if not isinstance(plain, dict):
        if isinstance(plain, float) and not math.isfinite(plain):  # 1e999 parses to inf
            raise MessageError("A message holds a number that is not finite.")
        return plain  # type: ignore[no-any-return]
    if plain.keys() == {_TENSOR}:
        tensor = (
            tensors.pop(plain[_TENSOR], None)
            if isinstance(plain[_TENSOR], str)
            else None
        )
        if tensor is None:
            raise MessageError("A message refers to a tensor that it does not hold.")
        _finite_tensor(tensor)
        return tensor
    if plain.keys() == {_BYTES}:
        try:
            return base64.b64decode(plain[_BYTES], validate=True)
        except (ValueError, TypeError):
            raise MessageError("A message holds bytes that cannot be read.") from None
    return {key: _fill(item, tensors, depth + 1) for key, item in plain.items()}


def _read(data: bytearray) -> tuple[str, dict[str, Tensor]]:
    """The text and the tensors of a safetensors file, which lie one after the other in
    the memory of these bytes.
    """
    header = read_header(data, max_length=_LARGEST_HEADER)
    tensors = {
        name: _tensor(
            data, header.begin + at.start, header.begin + at.end, at.dtype
        ).reshape(at.shape)
        for name, at in header.tensors.items()
    }
    return header.metadata["value"], tensors


def _tensor(data: bytearray, start: int, end: int, dtype: torch.dtype) -> Tensor:
    if start == end:
        return torch.empty(0, dtype=dtype)
    if start % dtype.itemsize:  # `pack` aligns; others may not
        data, start, end = data[start:end], 0, end - start
    tensor = torch.frombuffer(
        data, dtype=dtype, offset=start, count=(end - start) // dtype.itemsize
    )
    if dtype is torch.bool and int(tensor.view(torch.uint8).max()) > 1:
        raise ValueError("a truth value that is neither 0 nor 1")
    return tensor


def _finite_tensor(tensor: Tensor) -> None:
    if not tensor.is_floating_point() or not tensor.numel():
        return
    # one that is not finite makes the sum so; reads every value once
    if math.isfinite(float(tensor.sum())):
        return
    low, high = torch.aminmax(tensor)  # or the sum was too large
    if not (math.isfinite(float(low)) and math.isfinite(float(high))):
        raise MessageError("A message holds a tensor with values that are not finite.")


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: bytes `start` to `end`, counted from the end of the
    header.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    tensors: dict[str, Stored]  # in the order in which they lie
    metadata: dict[str, str]
    begin: int  # of the tensors, in the file
    size: int  # of the file

    @property
    def shapes(self) -> Shapes:
        return {
            name: (stored.dtype, stored.shape) for name, stored in self.tensors.items()
        }


def read_header(
    source: str | Path | bytes | bytearray, *, max_length: int = MOST_HEADER
) -> Header:
    """The header of a file, or of its bytes. ValueError for anything that is not
    exactly such a file.
    """
    if isinstance(source, bytes | bytearray):
        size = len(source)
        length = int.from_bytes(source[:8], "little")
        _check_length(length, size, max_length)
        text = bytes(source[8 : 8 + length])
    else:
        with Path(source).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = file.seek(0, 2)
            _check_length(length, size, max_length)
            file.seek(8)
            text = file.read(length)
    try:
        header = _decode(text.decode())
    except RecursionError:
        raise ValueError("its header is nested too deep.") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no table of keys.")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(text, str) for text in metadata.values()
    ):
        raise ValueError("its metadata is no table of texts.")
    stored = {name: _stored(name, entry) for name, entry in header.items()}
    tensors = sorted(stored.items(), key=lambda item: (item[1].start, item[1].end))
    _check_cover(tensors, size - 8 - length)
    return Header(dict(tensors), metadata, 8 + length, size)


def difference(expected: Shapes, found: Shapes) -> str:
    name = min(
        name
        for name in expected.keys() | found.keys()
        if expected.get(name) != found.get(name)
    )
    return f'"{name}" is {_shape(found.get(name))}, not {_shape(expected.get(name))}'


def _check_length(length: int, size: int, max_length: int) -> None:
    if not 2 <= length <= min(max_length, size - 8):
        raise ValueError(
            f"it begins by announcing a header of {length:,} bytes; the file has "
            f"{size:,}, a header at most {max_length:,}."
        )


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f'the key "{key}" appears twice in its header.')
        members[key] = value
    return members


_decode = json.JSONDecoder(object_pairs_hook=_once).decode


def _stored(name: str, entry: Any) -> Stored:
    if not isinstance(entry, dict) or entry.keys() != {
        "dtype",
        "shape",
        "data_offsets",
    }:
        raise ValueError(f'"{name}" in its header is no tensor.')
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    shape = entry["shape"]
    offsets = entry["data_offsets"]
    if dtype is None:
        raise ValueError(f'the tensor "{name}" has a dtype that is not known here.')
    if (
        not _numbers(shape)
        or len(shape) > _MOST_SIDES
        or not _numbers(offsets)
        or len(offsets) != 2
    ):
        raise ValueError(f'the tensor "{name}" has no shape or no place.')
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise ValueError(
            f'the tensor "{name}" of shape {shape} does not fit its place {offsets}.'
        )
    return Stored(dtype, tuple(shape), *offsets)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(number) is int and 0 <= number < 1 << 63 for number in value
    )


def _check_cover(tensors: list[tuple[str, Stored]], size: int) -> None:
    """One after the other, from the first byte to the last."""
    offset = 0
    for name, stored in tensors:
        if stored.start != offset or stored.end > size:
            raise ValueError(
                f'the tensor "{name}" does not begin where the one before it ends.'
            )
        offset = stored.end
    if offset != size:
        raise ValueError(f"{size - offset:,} of its bytes belong to no tensor.")


def _shape(entry: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return (
        "absent"
        if entry is None
        else f"{str(entry[0]).removeprefix('torch.')} {list(entry[1])}"
    )
