"""How a holder's people are cut into messages, whatever a server says of them."""

import tracemalloc

import pytest

from understudy.ground.errors import MessageError
from understudy.protocols.joint.products import chunks_of

GROUPS = (("a",), ("b",))


def test_people_are_cut_in_their_order_into_chunks_of_one_cell() -> None:
    assert chunks_of("a", GROUPS, [[5, ["b"]]], 2, 5) == [
        (0, 2, ("b",)),
        (2, 4, ("b",)),
        (4, 5, ("b",)),
    ]


@pytest.mark.parametrize(
    "cells", [[[10**12, ["b"]]], [[5, ["b"]], [10**12, ["b"]]], [[4, ["b"]]]]
)
def test_another_number_of_people_is_refused_before_anything_of_its_size_is_made(
    cells: list[object],
) -> None:
    tracemalloc.start()
    with pytest.raises(MessageError, match="were aligned"):
        chunks_of("a", GROUPS, cells, 1, 5)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000
