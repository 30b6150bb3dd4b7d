"""Top-k upload: what is sent of a vector, and what becomes of it."""

import pytest
import torch

from understudy.ground.errors import MessageError
from understudy.ground.pack import pack
from understudy.models.nets.gan import densify, sparsify


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100, 1001])
@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.75, 0.999])
def test_the_largest_entries_come_back_in_place_and_all_others_are_zero(
    size: int, share: float
) -> None:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(size))
    kept = max(1, round(share * size))
    least = vector.abs().sort(descending=True).values[kept - 1]
    expected = torch.where(vector.abs() >= least, vector, 0)
    assert torch.equal(densify(sparsify(vector, share), size), expected)


def test_all_of_a_vector_is_sent_as_it_is() -> None:
    vector = torch.randn(10)
    assert list(sparsify(vector, 1)) == ["values"]
    assert torch.equal(densify(sparsify(vector, 1), 10), vector)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_share_of_the_entries_takes_that_share_of_the_bytes_and_a_bit_each(
    share: float,
) -> None:
    vector = torch.randn(100_000)
    whole, part = (len(pack(sparsify(vector, s))) for s in (1, share))
    assert part == pytest.approx((share + 1 / 32) * whole, rel=0.01)


@pytest.mark.parametrize(
    "sent",
    [
        {"values": torch.zeros(9)},
        # too few places
        {"values": torch.zeros(2), "places": torch.zeros(2, dtype=torch.uint8)},
        # beyond the end
        {"values": torch.zeros(1), "places": torch.tensor([1, 128], dtype=torch.uint8)},
        {"values": torch.zeros(1), "places": torch.tensor([1], dtype=torch.uint8)},
        {"values": torch.zeros(1), "places": torch.tensor([1, 0], dtype=torch.int32)},
    ],
)
def test_what_is_no_part_of_such_a_vector_is_refused(
    sent: dict[str, torch.Tensor],
) -> None:
    with pytest.raises(MessageError):
        densify(sent, 10)
