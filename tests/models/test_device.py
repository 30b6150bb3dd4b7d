"""Where tensors live: the work of several parties beside each other."""

import pytest
import torch

from understudy.models.device import SideBySide

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_without_a_gpu_work_beside_each_other_is_work_in_turn() -> None:
    beside, seen = SideBySide(), []
    for name in ("a", "b", "a"):
        with beside.of(name):
            seen.append(name)
    beside.join()
    assert seen == ["a", "b", "a"]


@GPU
def test_what_parties_compute_on_streams_of_their_own_is_there_after_the_join() -> None:
    start = torch.randn(512, 512, device="cuda", dtype=torch.float64) / 30
    beside, found = SideBySide(), {}
    for turn in range(20):
        state = start + turn  # made on the caller's stream, read on the parties'
        for name in ("a", "b"):
            with beside.of(name):
                product = state
                for _ in range(20):
                    product = (product @ start).tanh()
                found[name] = product
        beside.join()
        assert torch.equal(found["a"], found["b"])
        expected = state
        for _ in range(20):
            expected = (expected @ start).tanh()
        assert torch.equal(found["a"], expected)
