"""RMSprop: torch.optim's, without its compiler."""

import pytest
import torch

from understudy.models.kernels import clients
from understudy.models.kernels.clients import RmsProp


def _parameters() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator).requires_grad_()
        for shape in ((3, 4), (4,), (2,))
    ]


@pytest.mark.parametrize("large", [False, True], ids=["many at once", "one by one"])
def test_it_steps_as_torch_optim_does(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(
            clients, "_is_large", lambda parameter: parameter.numel() > 2
        )
    ours = _parameters()
    theirs = _parameters()
    optimizer = RmsProp(ours, lr=0.01)
    reference = torch.optim.RMSprop(theirs, lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for step in range(50):
        optimizer.zero_grad()
        reference.zero_grad()
        # in every other step one has none
        for mine, other in zip(ours[: 3 - step % 2], theirs, strict=False):
            mine.grad = torch.randn(mine.shape, generator=generator) * 10.0 ** (
                step % 7 - 3
            )
            other.grad = mine.grad.clone()
        optimizer.step()
        reference.step()
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)


def test_it_goes_on_from_saved_squares_in_place() -> None:
    ours = _parameters()
    optimizer = RmsProp(ours, lr=0.1)
    ours[0].grad = torch.ones_like(ours[0])
    optimizer.step()
    again = RmsProp(_parameters(), lr=0.1)
    places = [square.data_ptr() for square in again.squares]
    again.load(optimizer.squares)
    assert all(map(torch.equal, again.squares, optimizer.squares))
    assert places == [square.data_ptr() for square in again.squares]


def test_without_any_gradient_nothing_moves() -> None:
    parameters = _parameters()
    before = [parameter.detach().clone() for parameter in parameters]
    RmsProp(parameters, lr=0.1).step()
    assert all(map(torch.equal, parameters, before))
