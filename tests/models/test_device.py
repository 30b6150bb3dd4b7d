import pytest
import torch

from understudy.models.network import first_weights, on_device


def test_first_weights_follow_from_their_seed_and_disturb_no_other_draw():
    torch.manual_seed(7)
    expected = torch.rand(5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with first_weights(7):
        assert torch.equal(torch.rand(5), expected)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_tensor_is_sent_from_the_host_and_left_where_it_is_there():
    there = on_device(torch.arange(5), torch.device("cuda"))
    assert on_device(there, there.device) is there
    assert there.tolist() == [0, 1, 2, 3, 4]
