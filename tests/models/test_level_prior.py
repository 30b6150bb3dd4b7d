"""What the noisy cells of many tables say about how tables depart from independence."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from understudy.models.tables.priors import LevelPrior, common_share, level_prior

SIZES = (30, 12, 4)


def columns_of(sizes: tuple[int, ...] = SIZES) -> Tensor:
    return one_hot(torch.repeat_interleave(torch.tensor(sizes))).double()


def symmetric(draw: Tensor) -> Tensor:
    return draw.triu() + draw.triu(1).T


def departures(
    lengths: tuple[float, ...],
    *,
    spread: float,
    sizes: tuple[int, ...] = SIZES,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draws of the prior with these ℓ (0: no order) and v = spread², on levels of equal
    counts: residual, D, …
    """
    rng = torch.Generator().manual_seed(seed)
    columns = columns_of(sizes)
    expected = torch.cat(
        [torch.full((size,), 60.0 / size, dtype=torch.float64) for size in sizes]
    )
    roots = []
    for size, length in zip(sizes, lengths, strict=True):
        apart = (torch.arange(size)[:, None] - torch.arange(size)).abs().double()
        kernel = (
            torch.exp(-apart / length)
            if length
            else torch.eye(size, dtype=torch.float64)
        )
        roots.append(torch.linalg.cholesky(kernel))
    root = torch.block_diag(*roots)  # type: ignore[no-untyped-call]
    draw = symmetric(
        torch.randn(len(root), len(root), generator=rng, dtype=torch.float64)
    )
    residual = (
        spread * expected.sqrt()[:, None] * (root @ draw @ root.T) * expected.sqrt()
    )
    measured = (columns @ columns.T) == 0
    return residual * measured, expected, columns, measured


def posterior(noisy: Tensor, prior: LevelPrior, noise: float) -> Tensor:
    share = prior.variance / (prior.variance + noise)
    return prior.basis @ (prior.turned(noisy) * share) @ prior.basis.T


def with_noise(
    residual: Tensor, deviation: float, measured: Tensor, seed: int = 1
) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    draw = symmetric(torch.randn(residual.shape, generator=rng, dtype=torch.float64))
    return residual + deviation * draw * measured


def test_a_smooth_table_is_smoothed_and_nearer_to_the_truth_than_cell_by_cell() -> None:
    residual, expected, columns, measured = departures((12.0, 5.0, 0.0), spread=1.0)
    noisy = with_noise(residual, 5.0, measured)
    noise = torch.full_like(noisy, 25.0)
    smooth = posterior(
        noisy, level_prior(noisy, noise, measured, expected, columns), 25.0
    )
    scale = torch.outer(expected, expected)
    cellwise = noisy * scale / (scale + 25.0)  # the true v, without the order
    errors = [
        float((table - residual)[measured].square().mean())
        for table in (smooth, cellwise, noisy)
    ]
    assert errors[0] < 0.7 * errors[1] < errors[2]


def test_levels_without_order_are_left_as_they_are() -> None:
    residual, expected, columns, measured = departures((0.0, 0.0, 0.0), spread=1.0)
    noisy = with_noise(residual, 2.0, measured)
    prior = level_prior(noisy, torch.full_like(noisy, 4.0), measured, expected, columns)
    torch.testing.assert_close(prior.basis, torch.eye(len(noisy), dtype=torch.float64))


def test_the_dispersion_of_every_pair_is_found() -> None:
    residual, expected, columns, measured = departures(
        (0.0, 0.0, 0.0), spread=2.0, sizes=(40, 40, 3)
    )
    noisy = with_noise(residual, 1.0, measured)
    prior = level_prior(noisy, torch.ones_like(noisy), measured, expected, columns)
    found = (prior.variance / torch.outer(expected, expected))[0, 50]
    assert 2.0 < float(found) < 8.0, "v = 4, on a grid of factors of two"


def test_noise_alone_leaves_no_dispersion_to_speak_of() -> None:
    residual, expected, columns, measured = departures((0.0, 0.0, 0.0), spread=0.0)
    for seed in range(5):
        noisy = with_noise(residual, 5.0, measured, seed)
        prior = level_prior(
            noisy, torch.full_like(noisy, 25.0), measured, expected, columns
        )
        kept = (
            posterior(noisy, prior, 25.0)[measured].square().sum()
            / noisy[measured].square().sum()
        )
        assert float(kept) < 0.05


def test_the_basis_is_orthogonal_and_mixes_levels_of_one_column_alone() -> None:
    residual, expected, columns, measured = departures((12.0, 5.0, 0.0), spread=1.0)
    noisy = with_noise(residual, 3.0, measured)
    prior = level_prior(noisy, torch.full_like(noisy, 9.0), measured, expected, columns)
    torch.testing.assert_close(
        prior.basis @ prior.basis.T, torch.eye(len(noisy), dtype=torch.float64)
    )
    assert not (prior.basis * measured).any()
    assert (prior.basis - prior.basis.diag().diag()).any(), "a smooth column is turned"


def test_a_column_with_uneven_noise_or_gaps_keeps_its_levels() -> None:
    residual, expected, columns, measured = departures((12.0, 5.0, 0.0), spread=1.0)
    noise = torch.full_like(residual, 9.0)
    noise[0, 35] = noise[35, 0] = 1.0
    gaps = measured.clone()
    gaps[0, 35] = gaps[35, 0] = False
    for deviation, known in ((noise, measured), (torch.full_like(noise, 9.0), gaps)):
        prior = level_prior(
            with_noise(residual, 3.0, measured), deviation, known, expected, columns
        )
        torch.testing.assert_close(
            prior.basis, torch.eye(len(noise), dtype=torch.float64)
        )


@pytest.mark.parametrize(
    ("truth", "least", "most"), [(1.0, 0.8, 1.0), (0.5, 0.3, 0.7), (0.0, 0.0, 0.15)]
)
def test_the_common_part_is_trusted_as_far_as_it_foretells_unseen_noise(
    truth: float, least: float, most: float
) -> None:
    """`pool` says a fixed pattern, of which the true tables hold a part."""
    residual, _, _, measured = departures((0.0, 0.0, 0.0), spread=0.0)
    pattern = symmetric(
        torch.randn(residual.shape, generator=torch.Generator().manual_seed(3)).double()
    )
    pattern = 10.0 * pattern * measured
    counts = with_noise(truth * pattern, 5.0, measured)
    noise = torch.full_like(counts, 25.0)
    prior = LevelPrior(
        torch.eye(len(counts), dtype=torch.float64), torch.ones_like(counts)
    )
    share = common_share(
        counts, noise, measured, torch.zeros_like(counts), prior, lambda _: pattern
    )
    assert least <= share <= most


def test_a_common_part_that_repeats_the_noise_is_not_trusted() -> None:
    residual, _, _, measured = departures((0.0, 0.0, 0.0), spread=0.0)
    counts = with_noise(residual, 5.0, measured)
    noise = torch.full_like(counts, 25.0)
    prior = LevelPrior(
        torch.eye(len(counts), dtype=torch.float64), torch.ones_like(counts)
    )
    assert (
        common_share(
            counts, noise, measured, torch.zeros_like(counts), prior, lambda seen: seen
        )
        < 0.1
    )


def test_exact_counts_have_no_use_for_a_common_part() -> None:
    residual, expected, columns, measured = departures((12.0, 5.0, 0.0), spread=1.0)
    none = torch.zeros_like(residual)
    prior = level_prior(residual, none, measured, expected, columns)
    assert prior.variance.isfinite().all()
    assert common_share(residual, none, measured, none, prior, lambda seen: seen) == 0
