"""The mean estimators: unbiased, with the variance of the papers, and within their
settings.
"""

import math
from fractions import Fraction
from math import comb

import pytest
import torch

from understudy.ground.errors import ConfigError
from understudy.privacy.local.piecewise import (
    THRESHOLD,
    Duchi,
    DuchiValue,
    FedSel,
    Hybrid,
    HybridValue,
    Piecewise,
    PiecewiseValue,
    PmSub,
)
from understudy.privacy.noise.rng import SecureRng

VALUES = (-1.0, -0.37, 0.0, 0.8, 1.0)


def variance_of(mechanism, values):
    """Of one answer to each value, as the papers have it; of a vector, of one client's
    claim about each coordinate.
    """
    match mechanism:
        case DuchiValue():
            return mechanism.bound**2 - values**2
        case PiecewiseValue():
            # Zhao et al.; with window = 1/2 that of Wang et al. For infinitely many
            # cells.
            e = math.exp(mechanism.epsilon)
            t = math.exp(mechanism.window * mechanism.epsilon)
            least = (e + t) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
            return values**2 * (t + 1) / (e - 1) + least
        case HybridValue():  # both are unbiased, so the variances mix
            share = mechanism.piecewise_share
            parts = (
                variance_of(mechanism.piecewise, values),
                variance_of(mechanism.duchi, values),
            )
            return share * parts[0] + (1 - share) * parts[1]
        case Duchi():
            return (mechanism.bound * mechanism.clip) ** 2 - values**2
    square = (
        variance_of(mechanism.single, values / mechanism.clip) * mechanism.clip**2
        + values**2
    )
    return mechanism.dims / mechanism.count * square - values**2


def bytes_per_client(report):
    sent = (
        (report.values,) if report.indices is None else (report.values, report.indices)
    )
    return sum(part.element_size() * part.shape[1] for part in sent)


def cell_law(mechanism, value):
    """The answers to one value and their probabilities, over all cells: two (cells,)
    tensors.
    """
    exact = (value + 1) * mechanism.outer / 2
    cells = torch.arange(mechanism.inner + mechanism.outer)
    law = torch.zeros(len(cells), dtype=torch.float64)
    for first, weight in (
        (math.floor(exact), 1 - exact % 1),
        (math.floor(exact) + 1, exact % 1),
    ):
        inside = (first <= cells) & (cells < first + mechanism.inner)
        high, low = (
            math.exp(mechanism.log_probability(inside=flag)) for flag in (True, False)
        )
        law += weight * (low + (high - low) * inside.double())
    return mechanism.value(cells), law


@pytest.mark.parametrize("inner", [1, 2, 7, 4096])
@pytest.mark.parametrize("window", [1 / 2, 1 / 3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_piecewise_is_exactly_private_and_unbiased_for_every_number_of_cells(
    epsilon, window, inner
):
    mechanism = PiecewiseValue(epsilon, window, inner)
    laws = []
    for value in VALUES:
        answers, law = cell_law(mechanism, value)
        assert float(law.sum()) == pytest.approx(1.0, abs=1e-12)
        assert float(law @ answers) == pytest.approx(value, abs=1e-10)
        laws.append(law)
    table = torch.stack(laws)
    ratio = float((table.amax(0) / table.amin(0)).max())
    assert ratio == pytest.approx(math.exp(epsilon), rel=1e-9)


@pytest.mark.parametrize("window", [1 / 2, 1 / 3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_with_the_default_cells_the_variance_is_the_papers(epsilon, window):
    mechanism = PiecewiseValue(epsilon, window)
    for value in VALUES:
        answers, law = cell_law(mechanism, value)
        variance = float(law @ answers**2) - value**2
        assert variance == pytest.approx(
            float(variance_of(mechanism, torch.tensor(value, dtype=torch.float64))),
            rel=1e-4,
        )


def test_piecewise_with_half_a_window_is_that_of_wang_et_al():
    for epsilon in (0.5, 2.0, 6.0):
        mechanism = PiecewiseValue(epsilon)
        root = math.exp(epsilon / 2)
        # outer / inner is rounded
        assert mechanism.outside == pytest.approx(1 / (root + 1), rel=1e-3)
        furthest = float(
            mechanism.value(torch.tensor(mechanism.inner + mechanism.outer - 1))
        )
        assert furthest == pytest.approx((root + 1) / (root - 1), rel=1e-3)
        for value in VALUES:
            wang = value**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
            assert float(
                variance_of(mechanism, torch.tensor(value, dtype=torch.float64))
            ) == pytest.approx(wang, rel=1e-12)


@pytest.mark.parametrize(
    "mechanism",
    [
        DuchiValue(1.0),
        PiecewiseValue(1.0),
        PiecewiseValue(4.0, 1 / 3),
        HybridValue(0.5),
        HybridValue(2.0),
    ],
    ids=repr,
)
def test_single_values_are_unbiased_with_the_stated_variance(mechanism):
    n = 100_000
    rng = SecureRng.from_seed(11)
    for value in VALUES:
        answers = mechanism(torch.full((n,), value), rng)
        variance = float(
            variance_of(mechanism, torch.tensor(value, dtype=torch.float64))
        )
        assert abs(float(answers.mean()) - value) < 4 * math.sqrt(variance / n)
        assert float(answers.var()) == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize(
    "mechanism",
    [
        Duchi(dims=3, epsilon=1.0, clip=2.0),
        Duchi(dims=4, epsilon=1.0, clip=2.0),
        Piecewise(dims=4, epsilon=1.0, clip=2.0),
        Piecewise(dims=4, epsilon=6.0, clip=2.0),
        PmSub(dims=4, epsilon=4.0, clip=2.0),
        Hybrid(dims=4, epsilon=2.0, clip=2.0, sampled=3),
    ],
    ids=repr,
)
def test_vectors_are_unbiased_after_clipping_with_the_stated_variance(mechanism):
    n = 40_000
    update = torch.tensor([3.0, -1.5, 0.25, -2.0])[: mechanism.dims]
    clipped = update.clamp(-2, 2).double()
    report = mechanism.report(update.repeat(n, 1), SecureRng.from_seed(12))
    claims = torch.zeros(n, mechanism.dims, dtype=torch.float64)
    if report.indices is None:
        claims += report.values * report.scale
    else:
        claims.scatter_(1, report.indices.long(), report.values.double() * report.scale)
    variance = variance_of(mechanism, clipped)
    assert ((claims.mean(0) - clipped).abs() < 4 * (variance / n).sqrt()).all()
    squares = (claims - clipped) ** 2
    assert (
        (squares.mean(0) - variance).abs() <= 4 * (squares.var(0) / n).sqrt() + 1e-9
    ).all()
    torch.testing.assert_close(report.total() / n, claims.mean(0), rtol=1e-4, atol=1e-5)


def test_the_bound_of_duchi_is_exact():
    for dims in (1, 2, 3, 4, 9, 10, 401, 1000):
        for epsilon in (0.3, 4.0):
            lift = Fraction(math.exp(epsilon)) - 1
            strict = sum(comb(dims, a) for a in range(dims // 2 + 1, dims + 1))
            bound = (lift * strict + 2**dims) / (lift * comb(dims - 1, dims // 2))
            mechanism = Duchi(dims=dims, epsilon=epsilon)
            assert mechanism.bound == pytest.approx(float(bound), rel=1e-10)
            assert mechanism.agreeing == pytest.approx(
                float(Fraction(strict, 2**dims)), rel=1e-10
            )
    assert Duchi(dims=1, epsilon=2.0).bound == pytest.approx(DuchiValue(2.0).bound)
    assert 1000 < Duchi(dims=10_000_000, epsilon=4.0).bound < 1e5


def test_hybrid_has_a_worst_variance_no_larger_than_either_part():
    values = torch.linspace(-1, 1, 41, dtype=torch.float64)
    for epsilon in (0.3, THRESHOLD, 0.62, 1.0, 3.0, 8.0):
        hybrid = HybridValue(epsilon)
        parts = [
            variance_of(hybrid.piecewise, values).max(),
            variance_of(hybrid.duchi, values).max(),
        ]
        assert float(variance_of(hybrid, values).max()) <= float(min(parts)) * (
            1 + 1e-12
        )
        if epsilon > THRESHOLD:
            assert float(variance_of(hybrid, values).std()) < 1e-12
    assert pytest.approx(0.61, abs=0.005) == THRESHOLD


def test_pm_sub_is_better_than_pm_for_a_large_epsilon():
    worst = torch.ones((), dtype=torch.float64)
    assert variance_of(PiecewiseValue(5.0, 1 / 3), worst) < variance_of(
        PiecewiseValue(5.0), worst
    )
    assert PmSub(dims=3, epsilon=2.0).single == PiecewiseValue(2.0, 1 / 3)


@pytest.mark.parametrize(
    ("epsilon", "count"), [(1.0, 1), (4.9, 1), (5.0, 2), (12.0, 4), (49.0, 5)]
)
def test_the_number_of_coordinates_grows_with_epsilon(epsilon, count):
    mechanism = Piecewise(dims=5, epsilon=epsilon)
    assert mechanism.count == count
    assert mechanism.single.epsilon == pytest.approx(epsilon / count)
    report = mechanism.report(torch.zeros(10, 5), SecureRng.from_seed(1))
    assert bytes_per_client(report) == 8 * count
    assert all(len(set(row)) == count for row in report.indices.tolist())


def test_even_the_largest_epsilon_draws_whole_cells():
    mechanism = PiecewiseValue(50.0)
    answers = mechanism(torch.tensor([-1.0, 0.3, 1.0]), SecureRng.from_seed(1))
    torch.testing.assert_close(
        answers, torch.tensor([-1.0, 0.3, 1.0], dtype=torch.float64), atol=1e-3, rtol=0
    )


def test_fedsel_sends_a_noisy_value_of_a_large_coordinate():
    mechanism = FedSel(dims=50, top=5, epsilon=40.0, split=0.5, clip=2.0)
    updates = torch.rand(300, 50).mul_(0.1)
    updates[:, :5] = torch.tensor([-1.0, 1.5, -2.0, 2.5, 1.0])
    report = mechanism.report(updates, SecureRng.from_seed(2))
    expected = updates.clamp(-2, 2).gather(1, report.indices.long())
    assert (report.indices < 5).all()
    torch.testing.assert_close(
        report.values * report.scale, expected, atol=0.05, rtol=0
    )
    assert bytes_per_client(report) == 8


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Piecewise(dims=3, epsilon=1.0, sampled=4),
            "sampled must be at most dims=3, not 4",
        ),
        (
            lambda: Piecewise(dims=3, epsilon=1.0, sampled=0),
            "sampled must be a whole number",
        ),
        (lambda: Hybrid(dims=3, epsilon=1.0, clip=0.0), "clip must be above 0"),
        (lambda: PmSub(dims=0, epsilon=1.0), "dims must be a whole number"),
        (lambda: Duchi(dims=3, epsilon=1.0, clip=-1.0), "clip must be above 0"),
        (lambda: FedSel(dims=3, top=3, epsilon=1.0), "top must be below dims=3"),
        (
            lambda: FedSel(dims=3, top=1, epsilon=1.0, split=1.0),
            "split must be below 1",
        ),
        (
            lambda: FedSel(dims=3, top=1, epsilon=1.0, split=0.0),
            "split must be above 0",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()
