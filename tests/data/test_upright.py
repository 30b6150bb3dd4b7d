"""Images turned upright, and back."""

import numpy as np
import pytest
import torch

from understudy.data.encoding.frame import FINE, UNIT, Frame, leaning, upright
from understudy.ground.errors import ConfigError

RNG = np.random.default_rng(0)


def strokes(leans: list[float], side: int = 16) -> torch.Tensor:
    """Soft strokes from top to bottom that lean, a little to the right and lower than
    the middle: whole numbers.
    """
    y, x = np.indices((side, side)) - (side - 1) / 2
    inside = np.clip(5 - np.abs(y - 1), 0, 1)
    lines = [
        inside * np.exp(-np.square(x - 1.5 - lean * (y - 1)) / 2) for lean in leans
    ]
    return torch.from_numpy(np.rint((np.stack(lines) - 0.5) * UNIT))[..., None]


def test_what_leans_is_turned_upright_moved_to_the_middle_and_comes_back() -> None:
    images = strokes([-0.6, 0.0, 0.4])
    poses, turned = upright(images)
    np.testing.assert_allclose(poses[:, 0] / FINE, [-0.6, 0.0, 0.4], atol=0.06)
    np.testing.assert_allclose(poses[:, 1:] / FINE, [[1.5, 1.0]] * 3, atol=0.1)
    assert (turned - turned[1]).abs().max() < 0.2 * UNIT, "they look alike now"
    assert (images - images[1]).abs().max() > 0.8 * UNIT
    assert upright(turned)[0].abs().max() <= 0.1 * FINE, "and stay as they are"
    assert (leaning(turned, poses) - images).abs().max() < 0.25 * UNIT, (
        "but for what two moves between pixels blur"
    )


def test_an_image_of_one_value_stays_and_what_lies_far_aside_is_moved_up_to_a_bound():
    flat = torch.full((1, 8, 8, 1), 700.0).double()
    poses, turned = upright(flat)
    assert not poses.any()
    assert torch.equal(turned, flat)
    corner = torch.zeros(1, 8, 8, 1).double()
    corner[0, 7, 7] = 4000.0
    poses, turned = upright(corner)
    assert (poses[0, 1:] == FINE).all(), "an eighth of the side"
    assert turned[0, 6, 6] == 4000
    assert turned.min() >= 0


def test_all_colours_of_an_image_are_moved_alike() -> None:
    images = strokes([0.5]).repeat(1, 1, 1, 3) * torch.tensor([1.0, 0.5, -1.0])
    poses, turned = upright(images.round())
    alone = upright(strokes([0.5]))[0]
    torch.testing.assert_close(poses, alone, rtol=0, atol=3)
    torch.testing.assert_close(turned[..., 0], -turned[..., 2])


def test_an_image_becomes_the_same_whole_numbers_whoever_else_is_in_the_batch() -> None:
    frame = Frame((9, 7), 2, 33, upright=True)
    images = RNG.random((40, 9, 7)).astype(np.float32)
    together = frame.coefficients(images)
    assert np.array_equal(together, np.rint(together))
    assert all(
        np.array_equal(frame.coefficients(images[n : n + 1])[0], together[n])
        for n in range(len(images))
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (28, 28), (8, 8, 3)])
def test_no_image_reaches_beyond_the_bound(shape: tuple[int, ...]) -> None:
    frame = Frame(shape, 2, 3 + min(300, int(np.prod(shape))), upright=True)
    far = np.zeros(shape)
    far[-1, -1] = 1
    lying = np.ones(shape) * (np.indices(shape)[0] < np.indices(shape)[1])
    worst = np.stack(
        [np.zeros(shape), np.ones(shape), far, 1 - far, lying, RNG.random(shape) > 0.5]
    )
    assert (
        np.linalg.norm(frame.coefficients(worst.astype(np.float32)), axis=1).max()
        <= frame.reach
    )


def test_series_and_frames_that_keep_nothing_else_are_not_turned() -> None:
    for bad in (
        {"shape": (9, 2), "sides": 1, "features": 12},
        {"shape": (4, 4), "sides": 2, "features": 3},
    ):
        with pytest.raises(ConfigError, match="upright"):
            Frame(**bad, upright=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="upright"):
        Frame((4, 4), 2, 9, upright=1)  # type: ignore[arg-type]
