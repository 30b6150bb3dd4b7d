"""Plain values ↔ bytes: tensors by safetensors, everything else by JSON. Never pickle.

A packed value is a safetensors file whose metadata holds one JSON text: the value with each tensor
replaced by its number. What can be packed is what can be written down: None, bool, int, float, str,
bytes, lists, dicts with string keys, and tensors. Tuples come back as lists.

Guarantee: unpacking runs no code and builds nothing but these kinds.
Edges: non-finite numbers and tensors are refused in both directions; so are bytes above `limit`,
left-over tensors, and anything that is not exactly such a file.
"""

import base64
import json
import math
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from understudy.errors import MessageError

Value: TypeAlias = (
    "Tensor | bool | int | float | str | bytes | list[Any] | tuple[Any, ...] | dict[str, Any] | None"
)

LIMIT = 1 << 30
DEPTH = 32
_TENSOR, _BYTES = "$tensor", "$bytes"
_NAMES = {
    torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def pack(value: Value, *, limit: int = LIMIT) -> bytes:
    """One value as bytes. MessageError if it cannot be written down."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_strip(value, tensors, 0), allow_nan=False, separators=(",", ":"))
    data = _file(tensors, text)
    if len(data) > limit:
        raise MessageError(
            f"A message of {len(data):,} bytes is above the limit of {limit:,}. Nothing was sent."
        )
    return data


def unpack(data: bytes, *, limit: int = LIMIT) -> Value:
    """The value that `pack` wrote. MessageError for anything else."""
    if len(data) > limit:
        raise MessageError(f"A message of {len(data):,} bytes is above the limit of {limit:,}.")
    try:
        tensors = load(data)
        text = _metadata(data)
        plain = json.loads(text, parse_constant=_no_constant)
    except (SafetensorError, ValueError, KeyError, RecursionError, TypeError) as error:
        raise MessageError(f"These bytes are not a message ({type(error).__name__}).") from None
    value = _fill(plain, tensors, 0)
    if tensors:
        raise MessageError(f"A message holds {len(tensors)} tensors that nothing refers to.")
    return value


def _file(tensors: dict[str, Tensor], text: str) -> bytes:
    """A safetensors file, copying each tensor once where the library's `save` copies it three times."""
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # so that each begins aligned
    header: dict[str, Any] = {"__metadata__": {"value": text}}
    parts, place = [], 0
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, place + size],
        }  # fmt: skip
        place += size
        parts.append(tensor.reshape(-1).view(torch.uint8).numpy().data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return b"".join((len(head).to_bytes(8, "little"), head, *parts))


def _strip(value: Value, tensors: dict[str, Tensor], depth: int) -> Any:
    if depth > DEPTH:
        raise MessageError(f"A message is nested deeper than {DEPTH}.")
    match value:
        case Tensor():
            if value.dtype not in _NAMES:
                raise MessageError(f"A tensor of {value.dtype} cannot be sent.")
            _finite_tensor(value)
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
            if any(not isinstance(key, str) or key in (_TENSOR, _BYTES) for key in value):
                raise MessageError("The keys of a message must be plain strings.")
            return {key: _strip(item, tensors, depth + 1) for key, item in value.items()}
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
        tensor = tensors.pop(plain[_TENSOR], None) if isinstance(plain[_TENSOR], str) else None
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


def _metadata(data: bytes) -> str:
    # safetensors reads metadata only from a file; its header is an 8-byte length and a JSON object.
    size = int.from_bytes(data[:8], "little")
    text = json.loads(data[8 : 8 + size])["__metadata__"]["value"]
    if not isinstance(text, str):
        raise ValueError("metadata")
    return text


def _finite_tensor(tensor: Tensor) -> None:
    if not tensor.is_floating_point() or not tensor.numel():
        return
    low, high = torch.aminmax(
        tensor
    )  # five times faster than isfinite on a large tensor; NaN spreads to both
    if not (math.isfinite(float(low)) and math.isfinite(float(high))):
        raise MessageError("A message holds a tensor with values that are not finite.")


def _no_constant(name: str) -> None:
    raise ValueError(name)
