"""A header is read only where it fits its bytes exactly."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from understudy.ground.pack import DTYPES, read_header

PLAIN = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}


def file(head: object, body: bytes = bytes(12)) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.long
@given(
    st.dictionaries(
        st.text(max_size=4),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.integers(0, 5)),
    )
)
def test_what_the_library_wrote_is_read_as_it_was(
    tensors: dict[str, tuple[str, int]],
) -> None:
    state = {
        name: torch.zeros(2, length, dtype=DTYPES[kind])
        for name, (kind, length) in tensors.items()
    }
    data = save(state, metadata={"a": "b"})
    header = read_header(data)
    assert header.shapes == {
        name: (value.dtype, tuple(value.shape)) for name, value in state.items()
    }
    assert header.metadata == {"a": "b"}
    assert header.size == len(data)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            b'{"a":'
            + json.dumps(PLAIN).encode()
            + b',"a":'
            + json.dumps(PLAIN).encode()
            + b"}",
            "appears twice",
        ),
        (
            b'{"a":{"dtype":"F32","dtype":"F32","shape":[3],"data_offsets":[0,12]}}',
            "appears twice",
        ),
        ({"a": PLAIN, "b": PLAIN}, "does not begin where"),  # two in one place
        (
            {"a": PLAIN | {"shape": [2], "data_offsets": [4, 12]}},
            "does not begin where",
        ),
        ({"a": PLAIN | {"shape": [2], "data_offsets": [0, 8]}}, "belong to no tensor"),
        (
            {"a": PLAIN | {"shape": [4], "data_offsets": [0, 16]}},
            "does not begin where",
        ),
        ({"a": PLAIN | {"shape": [4]}}, "does not fit its place"),
        ({"a": PLAIN | {"shape": [0, 1 << 70], "data_offsets": [0, 0]}}, "no shape"),
        ({"a": PLAIN | {"shape": [True, 3]}}, "no shape"),
        ({"a": PLAIN | {"shape": [1] * 17 + [3]}}, "no shape"),
        ({"a": PLAIN | {"dtype": "F33"}}, "dtype"),
        ({"a": PLAIN | {"dtype": ["F32"]}}, "dtype"),
        ({"a": PLAIN | {"more": 1}}, "no tensor"),
        ({"a": 1}, "no tensor"),
        ({"__metadata__": {"a": 1}, "a": PLAIN}, "metadata"),
        ([], "no table"),
        (b"[" * 100_000, "too deep"),
        (b"{ ", "Expecting"),
        (b"\xff\xff", "decode"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_in_words(
    head: object, said: str, tmp_path: Path
) -> None:
    data = file(head)
    (tmp_path / "it").write_bytes(data)
    for source in (data, bytearray(data), tmp_path / "it"):
        with pytest.raises(ValueError, match=said):
            read_header(source)


def test_a_header_longer_than_the_file_or_the_bound_is_not_read() -> None:
    for data in (
        b"",
        b"\x02",
        (1 << 60).to_bytes(8, "little"),
        file({"a": PLAIN})[:20],
    ):
        with pytest.raises(ValueError, match="announcing a header"):
            read_header(data)
    with pytest.raises(ValueError, match="at most 20"):
        read_header(file({"a": PLAIN}), max_length=20)
