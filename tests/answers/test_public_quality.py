"""What is said publicly of quality follows from releases, their noise and the fit:
exact on made-up tables.
"""

import re

import numpy as np
import pytest
import torch

from understudy.answers.public_quality import NOISY, PublicQuality

NAMES = ("a", "b", "c")
SIZES = (2, 2, 3)
PEOPLE = 10_000
BLOCKS = np.cumsum([0, *SIZES])


def tables(seed: int = 0) -> torch.Tensor:
    """Counts of all pairs of levels: b is mostly a, c goes with neither."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, PEOPLE)
    b = np.where(rng.random(PEOPLE) < 0.9, a, 1 - a)
    c = rng.integers(0, 3, PEOPLE)
    levels = np.zeros((PEOPLE, sum(SIZES)))
    for start, own in zip(BLOCKS, (a, b, c), strict=False):
        levels[np.arange(PEOPLE), start + own] = 1
    return torch.from_numpy(levels.T @ levels)


def quality(sigma: float, fitted: torch.Tensor | None = None) -> PublicQuality:
    true = tables()
    noise = torch.full_like(true, sigma)
    rng = torch.Generator().manual_seed(1)
    drawn = torch.randn(true.shape, generator=rng, dtype=torch.float64).triu()
    released = true + sigma * (drawn + drawn.T - torch.diag(drawn.diagonal()))
    counted = released.diagonal(), noise.diagonal()
    return PublicQuality.from_release(
        NAMES, SIZES, counted, (released, noise), true if fitted is None else fitted
    )


def test_a_pair_is_below_the_noise_where_its_dependence_cannot_be_told_from_none():
    clear = quality(20.0)
    assert clear.pairs == 3
    assert ("a", "b") not in clear.below
    assert {("a", "c"), ("b", "c")} >= set(clear.below)
    assert ("a", "c") in clear.below
    assert len(quality(50_000.0).below) == 3


def test_noise_of_a_column_is_about_half_of_what_it_moves() -> None:
    found = quality(1_000.0)
    rng = np.random.default_rng(3)
    for name, size in zip(NAMES, SIZES, strict=True):
        moved = (
            np.abs(rng.normal(0, 1_000.0, (20_000, size))).sum(1).mean() / 2 / PEOPLE
        )
        assert found.columns[name] == pytest.approx(moved, rel=0.15)
    assert set(found.noisy) == set(NAMES)
    assert not quality(20.0).noisy
    assert max(quality(20.0).columns.values()) < NOISY


def test_what_the_fit_misses_is_named_and_words_name_every_noisy_column() -> None:
    true = tables()
    lost = torch.outer(true.diagonal(), true.diagonal()) / PEOPLE
    found = quality(20.0, lost)
    assert found.missed == (("a", "b"),)
    assert "The fit misses 1 (“a” × “b”)." in found.sentences[1]
    noisy = quality(1_000.0).sentences[0]
    assert all(f"“{name}” by about" in noisy for name in NAMES)
    assert (
        quality(20.0)
        .sentences[0]
        .startswith("By the release, noise moves the shares of every column by about")
    )
    assert found.card["quality"]["missed"] == [["a", "b"]]


def test_the_headline_claims_no_more_than_the_noisiest_column_and_counts_what_is_below_the_noise():
    for sigma in (20.0, 1_000.0, 50_000.0):
        found = quality(sigma)
        said = found.headline(PEOPLE, "1")
        within = re.search(
            r"to within about ([\d,]+) % by noise \(furthest “(.)”\)", said
        )
        assert within is not None
        assert int(within[1].replace(",", "")) >= 100 * max(found.columns.values())
        assert found.columns[within[2]] == max(found.columns.values())
        assert (
            f"{len(found.below)} of 3 pairs show no dependence beyond the noise" in said
        )
    true = tables()
    lost = torch.outer(true.diagonal(), true.diagonal()) / PEOPLE
    assert quality(20.0, lost).headline(PEOPLE, "1").endswith("; the fit misses 1.")
