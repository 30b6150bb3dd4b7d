"""The public frame: whole numbers that depend on nobody else's row."""

import numpy as np
import pytest
from scipy.fft import dctn

from refusals import raises
from understudy.data.encoding.frame import MOST_VALUES, UNIT, Frame
from understudy.data.images import ImageSchema
from understudy.data.samples import sines
from understudy.ground.errors import ConfigError, Effect

RNG = np.random.default_rng(0)


def test_coefficients_are_those_of_the_cosine_transform_slow_ones_first() -> None:
    images = RNG.random((5, 6, 4)).astype(np.float32)
    frame = Frame((6, 4), 2, 10)
    wanted = dctn(images.astype(float) - 0.5, axes=(1, 2), norm="ortho").reshape(5, -1)[
        :, frame.order
    ]
    found = frame.coefficients(images)
    assert np.array_equal(found, np.rint(found))
    np.testing.assert_allclose(found / UNIT, wanted, atol=2e-3)
    assert (
        frame.frequencies.ravel()[frame.order].tolist()
        == sorted(frame.frequencies.ravel())[:10]
    )


def test_of_series_the_time_alone_is_transformed_and_channels_stay_together() -> None:
    values, schema = sines(7, length=8, channels=3)
    frame = Frame.from_schema(schema, 13)
    assert frame.features == 12, (
        "four frequencies of three channels: a fifth would not fit"
    )
    assert frame.order.tolist() == list(range(12))
    wanted = dctn(values.astype(float) - 0.5, axes=1, norm="ortho").reshape(7, -1)[
        :, :12
    ]
    np.testing.assert_allclose(frame.coefficients(values) / UNIT, wanted, atol=2e-3)


def test_histograms_count_the_values_of_each_channel() -> None:
    frame = Frame((3, 2), 1, 4)
    values = np.array([[[0.0, 0.3], [1.0, 0.2], [0.25, 0.6]]], dtype=np.float32)
    assert frame.histograms(values, 4).tolist() == [[1, 1, 0, 1, 1, 1, 1, 0]]


def test_all_coefficients_give_the_row_back() -> None:
    images = RNG.random((3, 5, 7)).astype(np.float32)
    frame = Frame((5, 7), 2, 35)
    back = 0.5 + frame.coefficients(images) @ frame.matrix()
    np.testing.assert_allclose(back.reshape(images.shape), images, atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (28, 28), (64, 64)])
def test_no_row_of_bounded_values_reaches_beyond_the_bound(
    shape: tuple[int, int],
) -> None:
    frame = Frame(shape, 2, min(1024, shape[0] * shape[1]))
    worst = np.stack(
        [
            np.zeros(shape),
            np.ones(shape),
            np.indices(shape).sum(0) % 2,
            RNG.random(shape) > 0.5,
        ]
    )
    assert (
        np.linalg.norm(frame.coefficients(worst.astype(np.float32)), axis=1).max()
        <= frame.reach
    )


def test_a_declared_norm_is_for_who_asks_for_it() -> None:
    schema = ImageSchema(height=4, width=4, norm=0.25)
    assert Frame.from_schema(schema, 16) == Frame((4, 4), 2, 16)
    small = Frame.declared(schema, 16).reach
    whole = Frame.from_schema(schema, 16).reach
    assert whole / 4 <= small <= whole / 4 + 16


def test_a_row_becomes_the_same_whole_numbers_whoever_else_is_in_the_batch() -> None:
    frame = Frame((9, 9), 2, 40)
    images = RNG.random((130, 9, 9)).astype(np.float32)
    together = frame.coefficients(images)
    for others in (1, 3, 64):
        assert np.array_equal(frame.coefficients(images[others:]), together[others:])


def test_what_is_too_large_is_refused_before_anything_is_charged() -> None:
    for shape, features in (((MOST_VALUES, 2), 4), ((256, 256), 4), ((28, 28), 2000)):
        with raises(ConfigError, effect=Effect.NOTHING_CHARGED):
            Frame(shape, 2, features)
    assert Frame.from_schema(ImageSchema(height=4, width=4), 400).features == 16
    assert (
        Frame.from_schema(ImageSchema(height=64, width=64, channels=3), 400).channels
        == 3
    )
