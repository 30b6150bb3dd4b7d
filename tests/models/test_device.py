import torch

from understudy.models.device import first_weights


def test_first_weights_follow_from_their_seed_and_disturb_no_other_draw():
    torch.manual_seed(7)
    expected = torch.rand(5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with first_weights(7):
        assert torch.equal(torch.rand(5), expected)
    assert torch.equal(torch.get_rng_state(), before)
