"""Clipped sums are taken in full precision, whatever the process asked for."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from refusals import raises
from understudy.ground.errors import Effect, PrivacyError
from understudy.models.nets.gan import ImageCritic
from understudy.privacy.gradients import limits as precision
from understudy.privacy.gradients.critic import (
    clipped_gradient_sum,
    formed_critic_gradient,
)
from understudy.privacy.gradients.dp_sgd import clipped_sums
from understudy.privacy.gradients.limits import coarse, full
from understudy.privacy.noise.rng import FastRng

CPU = torch.device("cpu")


@pytest.fixture(params=["medium", "high", "by place"])
def hasty(request: pytest.FixtureRequest) -> Iterator[str]:
    """A process that asked for fewer bits."""
    before = torch.get_float32_matmul_precision()
    if request.param == "by place":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision(request.param)
    yield _setting()
    torch.set_float32_matmul_precision(before)


def _setting() -> str:
    try:
        common = torch.get_float32_matmul_precision()
    except RuntimeError:
        common = "none in common"
    places = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    return " ".join([common, *(str(place.fp32_precision) for place in places)])


class _Watched(TorchDispatchMode):
    """At which setting each matrix product of this shape was taken."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.shapes, self.settings = shapes, []  # type: ignore[var-annotated]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        product = func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
        if product and tuple(result.shape) in self.shapes:
            self.settings.append(_setting())
        return result


def test_within_full_all_bits_are_asked_for_and_then_as_before(hasty: str) -> None:
    with full(CPU):
        assert _setting().startswith("highest")
        with full(CPU):
            assert _setting().startswith("highest")
        assert _setting().startswith("highest")
    assert _setting() == hasty


def test_a_clipped_sum_within_coarse_products_is_taken_in_full(hasty: str) -> None:
    with coarse(worth=False):
        assert _setting() == hasty
    layers = [(torch.randn(1, 5), torch.randn(1))]
    with coarse(), _Watched((1, 5)) as watched:
        assert _setting().startswith("high ")
        clipped_gradient_sum(
            layers,
            torch.rand(7, 5),
            torch.rand(7, 5),
            torch.rand(7),
            clip_norm=1.0,
            penalty=10.0,
        )
        assert _setting().startswith("high ")
    assert _setting() == hasty
    assert [setting.startswith("highest") for setting in watched.settings] == [True]


def test_a_machine_whose_products_have_fewer_bits_even_so_is_refused(
    hasty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor,
        "__matmul__",
        lambda a, b: rounded(a.bfloat16().float(), b.bfloat16().float()),
    )
    precision._exact.cache_clear()
    try:
        with raises(PrivacyError, effect=Effect.NOTHING_COMPUTED), full(CPU):
            raise AssertionError("this was computed")
    finally:
        precision._exact.cache_clear()
    assert _setting() == hasty


def test_an_error_within_restores_the_setting(hasty: str) -> None:
    with pytest.raises(ZeroDivisionError), full(CPU):
        _ = 1 / 0
    assert _setting() == hasty


def test_two_threads_do_not_undo_each_others_setting(hasty: str) -> None:
    entered = threading.Event()
    found = []

    def other() -> None:
        with full(CPU):
            entered.set()
            found.append(_setting())

    thread = threading.Thread(target=other)
    with full(CPU):
        thread.start()
        # else it would take this thread's setting for the process's own
        assert not entered.wait(0.2)
        assert _setting().startswith("highest")
    thread.join(120)
    assert found[0].startswith("highest")
    assert _setting() == hasty


def test_a_critics_clipped_sum_is_taken_in_full(hasty: str) -> None:
    layers = [(torch.randn(3, 5), torch.randn(3)), (torch.randn(1, 3), torch.randn(1))]
    with _Watched((3, 5), (1, 3)) as watched:
        clipped_gradient_sum(
            layers,
            torch.rand(7, 5),
            torch.rand(7, 5),
            torch.rand(7),
            clip_norm=1.0,
            penalty=10.0,
        )
    assert len(watched.settings) == 2
    assert all(setting.startswith("highest") for setting in watched.settings)


def test_sums_and_norms_of_sampled_gradients_are_taken_in_full(hasty: str) -> None:
    read = torch.randn(2, 6, 4, 7)
    weight = torch.randn(2, 5, 7, requires_grad=True)
    given = read @ weight.mT[:, None]
    losses = given.square().sum((2, 3))
    with _Watched((2, 5, 7), (12, 4, 4)) as watched:
        clipped_sums(losses, [(read, given)], clip_norm=1.0)
    assert len(watched.settings) == 3  # the sum, and the two products of a norm
    assert all(setting.startswith("highest") for setting in watched.settings)


def test_an_image_critics_clipped_sum_is_taken_in_full(hasty: str) -> None:
    critic = ImageCritic((8, 8))
    shapes = [(1, parameter.numel()) for parameter in critic.parameters()]
    with _Watched(*shapes) as watched:
        formed_critic_gradient(
            critic,
            torch.rand(4, 64),
            torch.rand(4, 64),
            torch.rand(4),
            clip_norm=1.0,
            noise_multiplier=0.0,
            expected_batch=4,
            penalty=10.0,
            rng=FastRng(0),
        )
    # the last bias is one number, and its sum a dot product
    assert len(watched.settings) == len(shapes) - 1
    assert all(setting.startswith("highest") for setting in watched.settings)
