"""Plain values survive the trip to bytes; everything else is refused."""

import contextlib
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from understudy.ground.errors import MessageError
from understudy.ground.pack import pack, unpack

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
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=40)
def test_plain_values_come_back_equal(value: object) -> None:
    assert unpack(pack(value)) == value


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool],
)
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype) -> None:
    tensor = (torch.rand(3, 5) * 9).to(dtype)
    back = unpack(pack({"a": [tensor, {"b": tensor[0]}], "empty": torch.zeros(0, 4)}))
    assert back["a"][0].dtype == dtype
    assert torch.equal(back["a"][0], tensor)
    assert torch.equal(back["a"][1]["b"], tensor[0])
    assert back["empty"].shape == (0, 4)


def test_the_only_value_of_a_column_comes_back() -> None:
    column = torch.arange(9.0).view(1, 9)[:, 4]
    assert column.stride() == (9,)
    assert torch.equal(unpack(pack({"a": column}))["a"], column)


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
@settings(max_examples=60)
def test_random_bytes_are_refused_without_a_crash(data: bytes) -> None:
    with pytest.raises(MessageError):
        unpack(data)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=60)
def test_a_changed_or_cut_message_is_refused_or_reads_as_plain_values(
    place: int, byte: int
) -> None:
    data = bytearray(pack({"weights": torch.arange(6.0), "round": 3}))
    place %= len(data)
    for damaged in (
        bytes(data[:place]),
        bytes(data[:place] + bytes([byte]) + data[place + 1 :]),
    ):
        with contextlib.suppress(MessageError):
            unpack(damaged)


def test_non_finite_numbers_are_refused_on_arrival_too() -> None:
    text = json.dumps({"$tensor": "0"})
    with pytest.raises(MessageError, match="not finite"):
        unpack(save({"0": torch.tensor([math.inf])}, metadata={"value": text}))
    for constant in ("NaN", "Infinity", "1e999"):
        with pytest.raises(MessageError):
            unpack(save({}, metadata={"value": constant}))


def test_a_sum_that_overflows_is_no_value_that_is_not_finite() -> None:
    large = torch.full((64,), 3e38)
    assert torch.equal(unpack(pack(large)), large)
    half = torch.full((64,), 6e4, dtype=torch.float16)
    assert torch.equal(unpack(pack(half)), half)


def test_tensors_of_a_bytearray_share_its_memory_and_those_of_bytes_do_not() -> None:
    data = bytearray(pack({"a": torch.zeros(3), "b": torch.ones(2, dtype=torch.uint8)}))
    shared = unpack(data)
    copied = unpack(bytes(data))
    data[-14] ^= 255  # in the last float, before the two bytes
    assert shared["a"].abs().max() > 0
    assert copied["a"].abs().max() == 0
    shared["b"] += 1  # they can be written to
    assert bytes(data[-2:]) == b"\x02\x02"


@pytest.mark.parametrize(
    "names", [{}, {"0": torch.arange(3), "1": torch.ones(3, 2), "2": torch.zeros(0, 4)}]
)
def test_a_file_of_the_library_is_read_as_the_library_reads_it(
    names: dict[str, torch.Tensor],
) -> None:
    value = [{"$tensor": name} for name in names]
    back = unpack(save(names, metadata={"value": json.dumps(value)}))
    assert all(
        torch.equal(one, other) for one, other in zip(back, names.values(), strict=True)
    )
    assert load(pack(list(names.values()))).keys() == names.keys()


@pytest.mark.parametrize(
    "entry",
    [
        {"data_offsets": [0, 8]},  # not all of the bytes
        {"data_offsets": [4, 16]},  # begins later
        {"data_offsets": [0, 20]},  # more than there are
        {"shape": [4]},
        {"shape": [-3]},
        {"shape": [True, 3]},
        {"shape": [1 << 62, 1 << 62, 0], "data_offsets": [0, 0]},
        {"shape": "3"},
        {"dtype": "F33"},
        {"dtype": "BOOL", "shape": [12]},  # bytes that are neither 0 nor 1
    ],
)
def test_a_header_that_does_not_fit_its_bytes_is_refused(
    entry: dict[str, object],
) -> None:
    plain = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
    header = {"__metadata__": {"value": '{"$tensor":"0"}'}, "0": plain | entry}
    head = json.dumps(header).encode()
    with pytest.raises(MessageError):
        unpack(
            len(head).to_bytes(8, "little")
            + head
            + torch.arange(1.0, 4.0).numpy().tobytes()
        )


def test_tensors_that_nothing_refers_to_are_refused() -> None:
    with pytest.raises(MessageError, match="nothing refers"):
        unpack(
            save(
                {"0": torch.zeros(1), "1": torch.zeros(1)},
                metadata={"value": json.dumps({"$tensor": "0"})},
            )
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
