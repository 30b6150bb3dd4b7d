"""Gaussians from moments: what is noise is left out, and what is not is kept."""

import math

import numpy as np
import pytest
import torch

from understudy.api.train import train
from understudy.data.encoding.frame import UNIT, Frame
from understudy.data.schema import Real
from understudy.data.series import Series, SeriesSchema
from understudy.evaluate.utility.series import autocorrelation
from understudy.ground.errors import ConfigError
from understudy.models.moments.fit import (
    Centres,
    centres,
    directions,
    fit_cells,
)
from understudy.models.moments.gaussians import (
    BURST,
    CellGaussians,
    mapped_through,
    match_shades,
    shades_map,
)
from understudy.models.moments.lags import (
    Memory,
    fill_tail,
    lag_1,
    lag_1_noise,
    memory,
)
from understudy.models.moments.released import CELLS, bought_norm
from understudy.models.plan import on_paper, shapes_of
from understudy.models.simplex import to_simplex
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

FRAME = Frame((4, 5), 2, 12)
RNG = torch.Generator().manual_seed(0)


WIDE = Frame((64, 64), 2, 40)


def crowd(people: float) -> Centres:
    """So many people of one class."""
    return Centres(
        torch.tensor([people]).double(), torch.zeros(1, 1), torch.zeros(1), 1.0, 1.2
    )


def symmetric(d: int, scale: float) -> torch.Tensor:
    """Noise of a symmetric matrix: √2 of it on the diagonal."""
    noise = torch.randn(d, d, generator=RNG, dtype=torch.float64) * scale
    return noise.triu(1) + noise.triu(1).T + noise.diagonal().diag() * math.sqrt(2)


def lengths(people: float, longest: float, noise: float) -> dict[str, torch.Tensor]:
    """So many people with norms spread evenly up to a part of the largest, counted
    under noise.
    """
    table = torch.zeros(CELLS, dtype=torch.float64)
    table[: int(longest * CELLS)] = people / int(longest * CELLS)
    found = table + noise * torch.randn(CELLS, generator=RNG, dtype=torch.float64)
    return {"people": found, "people_noise": torch.tensor(noise).double()}


def test_a_bought_norm_is_a_quantile_that_falls_as_noise_grows_and_people_become_fewer():
    known = {"numbers": 300, "classes": 1}
    assert bought_norm(lengths(30_000, 0.5, 0.0), **known, noise=1e-9) == 0.5, (
        "nobody is pulled in for nothing"
    )
    found = [
        bought_norm(lengths(30_000, 0.5, 1.0), **known, noise=noise)
        for noise in (3.0, 80.0, 300.0)
    ]
    assert 0.3 < found[1] < found[0] < 0.6
    assert found[2] < 0.9 * found[1]
    assert bought_norm(lengths(300, 0.5, 0.0), **known, noise=30.0) < 0.3


def test_a_norm_that_its_own_noise_hides_stays_where_it_was() -> None:
    assert (
        bought_norm(lengths(20, 0.5, 1000.0), numbers=300, classes=1, noise=1.0) > 0.9
    )


def test_directions_of_noise_alone_hold_nothing() -> None:
    noise = 50.0
    found = directions(
        {"moments": symmetric(200, noise), "moments_noise": torch.tensor(noise)},
        crowd(1000.0),
        Frame((20, 20), 2, 200),
    )
    assert found.values.sum() < 0.2 * 200 * 2 * noise * math.sqrt(200) / 1000


def test_directions_above_the_edge_come_back_shrunk() -> None:
    basis = torch.linalg.qr(torch.randn(200, 3, generator=RNG, dtype=torch.float64)).Q
    strong = torch.tensor([40.0, 30.0, 20.0]).double()
    people = 1000.0
    noise = 200.0
    edge = 2 * noise * math.sqrt(200) / people
    moments = people * (basis * strong) @ basis.T + symmetric(200, noise)
    found = directions(
        {"moments": moments, "moments_noise": torch.tensor(noise)},
        crowd(people),
        Frame((20, 20), 2, 200),
    )
    assert len(found.values) == 3
    np.testing.assert_allclose(found.values, strong - edge**2 / 4 / strong, rtol=0.1)
    assert ((basis.T @ found.basis).square().sum(0) > 0.9).all()


def test_means_that_are_noise_become_the_mean_of_all_and_others_stay() -> None:
    people = torch.full((8,), 100.0).double()
    noise = 500.0
    apart = torch.zeros(8, 40, dtype=torch.float64)
    apart[:, :20] = 400 * torch.randn(8, 20, generator=RNG, dtype=torch.float64)
    sums = people[:, None] * apart + noise * torch.randn(
        8, 40, generator=RNG, dtype=torch.float64
    )
    first = {
        "people": people,
        "sums": sums,
        "sums_noise": torch.tensor(noise),
        "energy": torch.tensor(8e8).double(),
        "energy_noise": torch.tensor(1.0),
    }
    found = centres(first, WIDE)
    assert (found.means - apart).square().mean() < 2 * (noise / 100) ** 2
    quiet = centres(
        first | {"sums": sums * 0 + noise * torch.randn(8, 40, generator=RNG).double()},
        WIDE,
    )
    assert quiet.means.std(0).mean() < 0.5 * noise / 100
    # What noise has left in the means: all of it where they lie apart, little where
    # they are shrunk away.
    own = (noise / 100) ** 2
    assert ((found.marks[:10] > 0.9 * own) & (found.marks <= own).all()).all()
    assert quiet.marks.mean() < 0.3 * own
    assert not centres(first | {"sums_noise": torch.tensor(0.0)}, WIDE).marks.any()


def test_a_class_without_people_and_without_energy_is_no_error() -> None:
    first = {
        "people": torch.tensor([-30.0, 200.0]).double(),
        "sums": torch.zeros(2, 5).double(),
        "sums_noise": torch.tensor(1.0),
        "energy": torch.tensor(-5.0).double(),
        "energy_noise": torch.tensor(1.0),
    }
    found = centres(first, FRAME)
    assert found.people.min() >= 1
    assert found.radius >= 1
    assert found.means.isfinite().all()


def test_without_a_third_release_all_classes_have_the_pooled_covariance() -> None:
    first = {
        "people": torch.tensor([50.0, 70.0]).double(),
        "sums": torch.randn(2, 12, generator=RNG).double() * 1e4,
        "sums_noise": torch.tensor(1.0),
        "energy": torch.tensor(1e9).double(),
        "energy_noise": torch.tensor(1.0),
    }
    centre = centres(first, WIDE)
    kept = directions(
        {"moments": 1e6 * torch.eye(12).double(), "moments_noise": torch.tensor(0.0)},
        centre,
        FRAME,
    )
    network = fit_cells(FRAME, centre, kept, None)
    assert torch.allclose(network.factors[0], network.factors[1])
    assert network.rows(torch.randn(7, network.latent, generator=RNG)).shape == (
        7,
        4,
        5,
    )


def test_values_are_spread_as_the_histogram_says() -> None:
    network = CellGaussians(FRAME, classes=1, cells=1, directions=3)
    with torch.no_grad():
        network.tail.fill_(3000.0)
    wanted = torch.tensor([[700.0, 0.0, 100.0, 200.0]]).double()
    assert match_shades(network, wanted, noise=0.1, people=1000.0)
    drawn = (
        network.rows(torch.randn(4000, network.latent, generator=RNG))
        .detach()
        .flatten()
    )
    shares = torch.histc(drawn, 4, 0, 1) / len(drawn)
    assert torch.allclose(shares.double(), wanted[0] / 1000, atol=0.02)


def test_histograms_of_noise_are_left_aside() -> None:
    network = CellGaussians(FRAME, classes=1, cells=1, directions=3)
    assert not match_shades(
        network, torch.tensor([[9.0, -4.0, 3.0, 2.0]]).double(), noise=5.0, people=10.0
    )
    z = 9 * torch.randn(50, network.latent, generator=RNG)
    torch.testing.assert_close(
        network.rows(z).flatten(),
        network.raw(z).clamp(0, 1).flatten(),
        rtol=0,
        atol=1e-5,
    )


def test_loud_histograms_of_series_move_values_by_what_all_channels_have_in_common():
    frame = Frame((8, 20), 1, 40)
    people = 400.0
    noise = 12.0
    low = torch.tensor([0.5, 0.3, 0.15, 0.05]).repeat_interleave(4).double() / 4
    loud = noise * torch.randn(20, 16, generator=RNG, dtype=torch.float64)
    moved = {}
    for name, shares in (("low", low), ("own", None)):
        network = CellGaussians(frame, classes=1, cells=1, directions=1).requires_grad_(
            False
        )
        network.tail.fill_(1000.0)
        z = torch.randn(2000, network.latent, generator=RNG)
        before = network.rows(z).mean()
        if shares is None:
            shares = (
                torch.histc(network.raw(z), 16, 0, 1).double() / network.raw(z).numel()
            )
        assert not match_shades(network, people * shares + loud, noise, people), (
            "too loud for a channel"
        )
        moved[name] = float(network.rows(z).mean() - before)
    wanted = float((low * (torch.arange(16) + 0.5) / 16).sum()) - 0.5
    assert wanted < -0.15
    assert moved["low"] == pytest.approx(wanted, abs=0.03)
    assert moved["own"] == pytest.approx(0.0, abs=0.02), "noise alone moves nothing"


def test_shares_are_the_nearest_ones() -> None:
    found = to_simplex(
        torch.tensor([[0.5, 0.7, -0.2]]).double(), torch.ones(1).double()
    )
    assert found[0].tolist() == pytest.approx([0.4, 0.6, 0.0])


def test_a_line_with_steps_is_followed_and_kept_to_its_ends() -> None:
    line = torch.tensor([0.0, 1.0, 1.0, 2.0]), torch.tensor([0.0, 0.2, 0.6, 1.0])
    at = torch.tensor([-3.0, 0.5, 1.5, 9.0])
    assert mapped_through(at, *line).tolist() == pytest.approx([0.0, 0.1, 0.8, 1.0])


def test_cells_are_drawn_by_their_shares_and_know_their_class() -> None:
    network = CellGaussians(FRAME, classes=2, cells=2, directions=1)
    with torch.no_grad():
        network.shares.copy_(torch.tensor([0.1, 0.0, 0.3, 0.6]))
    z = torch.randn(20_000, network.latent, generator=RNG)
    shares = torch.bincount(network.pick(z), minlength=4) / len(z)
    assert torch.allclose(shares, network.shares, atol=0.02)
    assert shares[1] == 0
    assert torch.equal(network.classes_of(z), network.pick(z) // 2)


def test_a_description_that_asks_for_too_much_is_refused_before_it_takes_memory():
    honest = CellGaussians(FRAME, classes=2, cells=2, directions=3).describe()
    assert shapes_of(on_paper(honest))["factors"][1] == (4, 3, 3)
    for bad in (
        {"classes": 1 << 20},
        {"directions": 13},
        {"features": 1 << 30},
        {"shape": [1 << 20, 1 << 20]},
        {"cells": 0},
        {"upright": "yes"},
    ):
        with pytest.raises(ConfigError):
            CellGaussians.from_description(honest | bad)


def test_where_the_mean_is_known_values_have_it_within_the_bins_of_their_histogram():
    """Nine tenths of all values are 0: even in the lowest bin they would be far too
    bright.
    """
    raw = torch.randn(500, 8, 1, generator=torch.Generator().manual_seed(0))
    shades = torch.tensor([[900.0, 0, 0, 100]], dtype=torch.float64)
    even, placed = (
        shades_map(raw, shades, 0.0, 1000.0, means)
        for means in (None, torch.tensor([0.09]))
    )
    assert even is not None
    assert placed is not None
    assert float(even[1].mean()) == pytest.approx(0.9 * 0.125 + 0.1 * 0.875, abs=0.01)
    assert float(placed[1].mean()) == pytest.approx(0.09, abs=0.001)
    for _, outer in (even, placed):
        assert bool((outer.diff() >= 0).all())
        assert float((outer <= 0.25).double().mean()) == pytest.approx(0.9, abs=0.01)


def test_nobody_whom_a_gaussian_has_past_an_end_is_drawn_on_it() -> None:
    frame = Frame((8, 20), 1, 40)
    network = CellGaussians(frame, classes=1, cells=1, directions=1).requires_grad_(
        False
    )
    network.tail.fill_(3000.0)
    z = torch.randn(2000, network.latent, generator=RNG)
    raw = network.raw(z)
    past = float(((raw < 0) | (raw > 1)).double().mean())
    assert past > 0.05
    shares = torch.histc(raw.clamp(0, 1), 16, 0, 1).double() / raw.numel()
    assert not match_shades(
        network, 400 * shares.repeat(20, 1), noise=12.0, people=400.0
    ), "too loud for a channel"
    drawn = network.rows(z)
    assert not ((drawn == 0) | (drawn == 1)).any()
    order = raw.reshape(-1, 20)[:, 0].argsort()
    assert (drawn.reshape(-1, 20)[:, 0][order].diff() >= 0).all(), (
        "ranks stay, and with them the memory of series"
    )


def toeplitz(frame: Frame, fades: list[float]) -> torch.Tensor:
    """Second moments of channels whose correlation fades by these factors a step."""
    steps, channels = frame.shape
    apart = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    values = np.zeros((steps, channels, steps, channels))
    for channel, fade in enumerate(fades):
        values[:, channel, :, channel] = (1 + channel) * fade**apart
    turn = torch.from_numpy(frame.matrix()) * UNIT**2  # back to steps of coefficients
    flat = torch.from_numpy(values).reshape(steps * channels, -1)
    return turn @ flat @ turn.T


def test_lag_1_of_second_moments_is_that_of_the_law_they_are_of() -> None:
    frame = Frame((12, 2), 1, 24)
    back = torch.from_numpy(frame.matrix())
    second = toeplitz(frame, [0.9, 0.3])
    assert lag_1(second, back, 2).tolist() == pytest.approx([0.9, 0.3])


@pytest.mark.long
def test_the_noise_of_lag_1_is_that_of_lags_of_noisy_moments() -> None:
    frame = Frame((12, 2), 1, 24)
    back = torch.from_numpy(frame.matrix())
    second = toeplitz(frame, [0.9, 0.3])
    small = 1e-4 * float(second.diagonal().mean())
    noisy = [second + symmetric(24, small) for _ in range(4000)]
    lags = torch.stack([lag_1(one, back, 2).mean() for one in noisy])
    assert lag_1_noise(second, back, 2, small) == pytest.approx(
        float(lags.std()), rel=0.06
    )


@pytest.mark.parametrize("people", [[900.0], [900.0, 100.0]])
def test_the_memory_of_a_network_is_that_of_what_it_draws(people: list[float]) -> None:
    frame = Frame((12, 2), 1, 24)
    second = toeplitz(frame, [0.9, 0.3]) * 400.0**2 / UNIT**2
    shares = torch.tensor(people).double()
    means = 300 * torch.randn(len(people), 24, generator=RNG, dtype=torch.float64)
    centre = Centres(shares, means, torch.zeros(24), 1.0, 1.4)
    pooled = {"moments": second * shares.sum(), "moments_noise": torch.tensor(0.0)}
    network = fit_cells(frame, centre, directions(pooled, centre, frame), None)
    found = memory(network, pooled, shares, means, ["a", "b"])
    with torch.no_grad():
        z = torch.randn(40_000, network.latent, generator=RNG)
        drawn = network.raw(z).double().numpy()
    about = drawn - drawn.mean((0, 1))
    lag = (about[:, 1:] * about[:, :-1]).mean((0, 1)) / (about**2).mean((0, 1))
    assert found.drawn == pytest.approx(lag.mean(), abs=0.01)
    assert found.released == pytest.approx(found.drawn, abs=1e-4)
    assert found.noise == 0
    furthest = found.furthest
    assert furthest is not None
    assert furthest.drawn == pytest.approx(lag["ab".index(furthest.channel)], abs=0.01)


def test_memory_names_the_channel_that_is_furthest_off() -> None:
    one = Memory(released=0.5, noise=0.02, drawn=0.8, channel="heart")
    found = Memory(released=0.7, noise=0.01, drawn=0.85, furthest=one).sentence
    assert "heart: 0.80, and 0.50 ± 0.02" in found
    hidden = Memory(released=0.7, noise=0.3, drawn=0.85, furthest=one).sentence
    assert "heart" not in hidden


def test_memory_says_what_noise_hides() -> None:
    clear = Memory(released=0.82, noise=0.031, drawn=0.98).sentence
    assert "about 0.98" in clear
    assert "0.82 ± 0.031" in clear
    hidden = Memory(released=1.4, noise=0.44, drawn=0.7).sentence
    assert "1.4" not in hidden
    assert "noise hides" in hidden
    assert "±" not in Memory(released=0.82, noise=0.0, drawn=0.98).sentence
    assert "nan" not in Memory(released=math.nan, noise=math.inf, drawn=0.98).sentence
    assert "constant" in Memory(released=math.nan, noise=0.0, drawn=math.nan).sentence


def autoregression(fade: float, people: int, seed: int) -> Series:
    """One series each of 32 steps and two channels that fade by this factor a step."""
    frame = Frame((32, 2), 1, 64)
    second = toeplitz(frame, [fade, fade]) / UNIT**2
    back = frame.matrix() * UNIT
    root = np.linalg.cholesky(back.T @ second.numpy() @ back + 1e-12 * np.eye(64))
    normals = np.random.default_rng(seed).normal(size=(people, 64))
    values = np.clip(0.5 + 0.08 * normals @ root.T, 0, 1).reshape(-1, 32, 2)
    channels = tuple(Real(name=name, low=0, high=1) for name in "ab")
    return Series.from_array(
        values, SeriesSchema(channels=channels, length=32), np.arange(people), "people"
    )


@pytest.mark.long
@pytest.mark.parametrize("fade", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize(("people", "epsilon"), [(500, 8.0), (4000, 1.0)])
def test_drawn_series_have_the_lag_1_of_real_ones(
    fade: float, people: int, epsilon: float
) -> None:
    """Within three deviations of the release's noise, and .06 that the map to
    histograms may take.
    """
    real = autoregression(fade, people, seed=1)
    fed = Federation.rehearsal(
        {"holder": real}, budget=Budget(epsilon, 1e-5), seed=2, same_people=False
    )
    generator = train("moments", fed, shares=(0.3, 0.7, 0.0)).generator
    drawn = generator.series(3000, seed=0)
    noise = float(generator.card["expected"].split("±")[1].split()[0])
    assert 0 < noise < 0.05
    lags = (autocorrelation(values, 1).mean() for values in (real.values, drawn))
    lag_of_real, lag_of_drawn = lags
    assert abs(lag_of_drawn - lag_of_real) < 3 * noise + 0.06


def test_the_tail_has_the_power_and_the_lag_1_that_were_released() -> None:
    frame = Frame((12, 2), 1, 24)
    back = torch.from_numpy(frame.matrix())
    second = toeplitz(frame, [0.9, 0.3])
    tail = fill_tail(second, 0.0, frame)
    assert bool((tail >= 0).all())
    assert lag_1(tail.diag(), back, 2).tolist() == pytest.approx([0.9, 0.3], abs=1e-4)
    power = ((second @ back) * back).sum(0).view(-1, 2).mean(0)
    kept = ((tail.diag() @ back) * back).sum(0).view(-1, 2).mean(0)
    assert kept.tolist() == pytest.approx(power.tolist(), rel=1e-4)


def test_a_tail_of_noise_alone_is_almost_nothing() -> None:
    frame = Frame((12, 4), 1, 48)
    tails = [float(fill_tail(symmetric(48, 1.0), 1.0, frame).sum()) for _ in range(200)]
    assert np.mean(np.array(tails) == 0) > 0.5
    assert np.mean(tails) < 0.1 * 48


def test_a_row_has_little_or_much_beside_its_directions_and_its_variance_on_average():
    network = CellGaussians(Frame((12, 2), 1, 24), classes=1, cells=1, directions=1)
    network.requires_grad_(False).tail.fill_(3.0)
    z = torch.randn(100_000, network.latent, generator=RNG)
    squares = network.coefficients(z).double().square().mean(1)
    assert float(squares.mean()) == pytest.approx(9, rel=0.3)
    assert float(squares.median()) == pytest.approx(
        9 * math.exp(-2 * BURST**2), rel=0.1
    )


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (3, 5)])
def test_the_shortest_series_have_a_tail(shape: tuple[int, int]) -> None:
    frame = Frame(shape, 1, math.prod(shape))
    moments = torch.eye(frame.features, dtype=torch.float64)
    assert torch.allclose(fill_tail(moments, 0.0, frame), moments.diagonal(), rtol=1e-3)
