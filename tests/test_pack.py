"""Plain values survive the trip to bytes; everything else is refused."""

import contextlib
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from understudy.errors import MessageError
from understudy.pack import pack, unpack

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.binary(max_size=40)
)
keys = st.text(max_size=8).filter(lambda key: key[:1] != "$")
plain = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=200, deadline=None)
def test_plain_values_come_back_equal(value: object) -> None:
    assert unpack(pack(value)) == value


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
)
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype) -> None:
    tensor = (torch.rand(3, 5) * 9).to(dtype)
    back = unpack(pack({"a": [tensor, {"b": tensor[0]}], "empty": torch.zeros(0, 4)}))
    assert back["a"][0].dtype == dtype
    assert torch.equal(back["a"][0], tensor)
    assert torch.equal(back["a"][1]["b"], tensor[0])
    assert back["empty"].shape == (0, 4)


BAD = [
    math.nan,
    math.inf,
    torch.tensor([1.0, math.nan]),
    torch.tensor(-math.inf),
    {1: 2},
    {"$tensor": "0"},
    {1, 2},
]


@pytest.mark.parametrize("bad", [*BAD, object()])
def test_what_cannot_be_written_down_is_refused(bad: object) -> None:
    with pytest.raises(MessageError):
        pack({"value": bad} if not isinstance(bad, dict) else bad)


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused_without_a_crash(data: bytes) -> None:
    with pytest.raises(MessageError):
        unpack(data)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_changed_or_cut_message_is_refused_or_reads_as_plain_values(place: int, byte: int) -> None:
    data = bytearray(pack({"weights": torch.arange(6.0), "round": 3}))
    place %= len(data)
    for damaged in (bytes(data[:place]), bytes(data[:place] + bytes([byte]) + data[place + 1 :])):
        with contextlib.suppress(MessageError):
            unpack(damaged)


def test_non_finite_numbers_are_refused_on_arrival_too() -> None:
    text = json.dumps({"$tensor": "0"})
    with pytest.raises(MessageError, match="not finite"):
        unpack(save({"0": torch.tensor([math.inf])}, metadata={"value": text}))
    for constant in ("NaN", "Infinity", "1e999"):
        with pytest.raises(MessageError):
            unpack(save({}, metadata={"value": constant}))


def test_tensors_that_nothing_refers_to_are_refused() -> None:
    with pytest.raises(MessageError, match="nothing refers"):
        unpack(
            save({"0": torch.zeros(1), "1": torch.zeros(1)}, metadata={"value": json.dumps({"$tensor": "0"})})
        )


def test_a_message_above_the_limit_is_refused_on_both_sides() -> None:
    data = pack(torch.zeros(1000))
    with pytest.raises(MessageError, match="above the limit"):
        pack(torch.zeros(1000), limit=1000)
    with pytest.raises(MessageError, match="above the limit"):
        unpack(data, limit=1000)


def test_deep_nesting_is_refused() -> None:
    value: object = 1
    for _ in range(60):
        value = [value]
    with pytest.raises(MessageError, match="deeper"):
        pack(value)
    with pytest.raises(MessageError):
        unpack(save({}, metadata={"value": "[" * 5000 + "]" * 5000}))
