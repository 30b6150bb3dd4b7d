"""What swapping one person's row for another costs where ε is for adding or removing
one: docs/threat_model.md's table.

Exact on tiny domains: by how much more a swap moves what is released, over all pairs of
rows. Then the accountant.
"""

import math
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from scipy.optimize import brentq

from understudy.data.images import ImageSchema
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate, epsilon
from understudy.privacy.secure.counts import gram_matrix
from understudy.protocols.aggregators.moments import Config as MomentsConfig
from understudy.protocols.aggregators.moments import MomentsPlan
from understudy.protocols.aggregators.protocol import Config, TableTerms

DELTA = 1e-6
PAGE = (Path(__file__).parents[1] / "docs" / "threat_model.md").read_text()
TABLE = Schema(
    columns=(
        Boolean(name="a"),
        Categorical(name="b", categories=("x", "y", "z")),
        Boolean(name="c"),
    )
)


def stated(row: str) -> float:
    """The figure of the row of the table that begins so."""
    found = re.search(
        rf"^\| {re.escape(row)}.*\| (?:at most )?([\d.]+) \|$", PAGE, re.MULTILINE
    )
    assert found, row
    return float(found[1])


def gaussian(factor: float, row: float = 1.0) -> float:
    """ε of a swap that moves a Gaussian release by so much more than one person's row
    does, at this ε for the row.
    """
    noise = calibrate(
        lambda sigma: {GaussianDpEvent(sigma): 1},
        epsilon=row,
        delta=DELTA,
        tolerance=1e-6,
    )
    return epsilon({GaussianDpEvent(noise / factor): 1}, DELTA)


def test_a_swap_moves_counts_by_the_root_of_two() -> None:
    rows = np.array(
        [*product(*(range(column.levels) for column in TABLE.columns))], dtype=np.int32
    )
    sizes = [column.levels for column in TABLE.columns]
    counted = [np.triu(gram_matrix(row[None], sizes).numpy()).ravel() for row in rows]
    moved = [int(np.square(a - b).sum()) for a, b in product(counted, counted)]
    assert {int(np.square(a).sum()) for a in counted} == {3 * 4 // 2}
    assert max(moved) == 2 * (3 * 4 // 2)
    assert stated("counts of cells") == round(gaussian(math.sqrt(2)), 2)


def test_a_swap_of_an_upload_of_a_table_costs_what_the_page_says() -> None:
    """Each table has a cell that loses one and a cell that gains one: twice the uses of
    one row.
    """
    plan = TableTerms.joint(
        Config(aggregator="s", epsilon=1.0, delta=DELTA), {"a": TABLE, "s": TABLE}
    )
    assert epsilon(plan.price, DELTA) <= 1
    assert all(isinstance(event, DiscreteGaussian) for event in plan.price)
    swapped = epsilon(Counter({event: 2 * n for event, n in plan.price.items()}), DELTA)
    assert swapped == pytest.approx(stated("counts of cells"), abs=0.01)


def swap_of_moments(share: float, radius: float, weight: float) -> float:
    """(The longest swap over the longest row)², in units of the noise.

    Of the row's 1 are c the count's, m the mean's and s the second moments'. Between
    two classes counts and means are in other places: 2. Within one, of rows at an angle
    with cosine x: m(2 − 2x) + s(2 − 2x²), largest at x = −m/2s.
    """
    m = share * radius**2 / (radius**2 + weight**2)
    s = 1 - share
    x = max(-1.0, -m / (2 * s))
    return max(2.0, m * (2 - 2 * x) + s * (2 - 2 * x * x))


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("share", [0.25, 0.6, 0.95])
def test_no_swap_of_an_upload_of_moments_is_longer_than_the_formula_says(
    share: float, by_class: bool
) -> None:
    images = ImageSchema(height=1, width=2, label="y", classes=(0, 1))
    settings = MomentsConfig(
        aggregator="s",
        epsilon=1.0,
        delta=DELTA,
        features=2,
        bits=4,
        share=share,
        by_class=by_class,
    )
    plan = MomentsPlan.joint(settings, {"a": images, "s": images})
    radius = plan.cells.radius
    grid = np.array(
        [
            q
            for q in product(range(-radius, radius + 1), repeat=2)
            if q[0] ** 2 + q[1] ** 2 <= radius**2
        ]
    )
    # the longest are at the edge
    edge = grid[np.square(grid).sum(1) >= (radius - 1) ** 2]
    counted = (
        np.concatenate(
            [plan.cells.counted(np.full(len(edge), label), edge) for label in (0, 1)]
        )
        * plan.weights.numpy()
    )
    units = counted / plan.scales
    row = max(np.square(units).sum(1))
    swap = max(np.square(units - one).sum(1).max() for one in units)
    price = sum(event.noise_multiplier**-2 for event in plan.price)
    assert row <= price
    assert 1.9 * price <= swap * 1.2
    assert swap <= swap_of_moments(share, radius, plan.weight) * price


def test_a_swap_of_an_upload_of_moments_costs_what_the_page_says() -> None:
    settings = MomentsConfig(aggregator="s", epsilon=1.0, delta=DELTA)
    radius = 2 ** (settings.bits - 1) - 1
    factor = math.sqrt(swap_of_moments(settings.share, radius, radius // 4))
    assert stated("counts, means and second moments of one upload") == round(
        gaussian(factor), 2
    )


def test_a_swap_of_vectors_that_may_point_anywhere_and_of_pure_releases_costs_what_the_page_says():
    assert stated("sums of vectors") == round(gaussian(2), 2)
    assert stated("pure ε") == 2
    assert stated("reports") == 1
    # group privacy: (2ε, (1 + e^ε)δ)
    assert f"2 at δ = {DELTA * (1 + math.e) / 1e-6:.1f}·10⁻⁶" in PAGE


def in_secret_batches(row: float) -> float:
    """By group privacy at the δ′ with (1 + e^ε(δ′))·δ′ = δ."""

    def spend(noise: float) -> dict[PoissonSampledDpEvent, int]:
        return {PoissonSampledDpEvent(0.01, GaussianDpEvent(noise)): 1000}

    noise = calibrate(spend, epsilon=row, delta=DELTA)
    least = brentq(
        lambda x: (
            x
            + math.log1p(math.exp(epsilon(spend(noise), math.exp(x))))
            - math.log(DELTA)
        ),
        *map(math.log, (1e-8, DELTA)),
        xtol=1e-3,
    )
    return 2 * epsilon(spend(noise), math.exp(least))


def test_a_swap_in_secret_batches_costs_no_more_than_the_page_says() -> None:
    swapped = in_secret_batches(1.0)
    assert swapped <= stated("clipped gradients") <= swapped + 0.02


def test_the_advice_of_the_page_keeps_swaps_within_one() -> None:
    assert "ε = .68 for counts of cells, and for .45 elsewhere" in PAGE
    assert 0.95 < gaussian(math.sqrt(2), 0.68) <= 1
    assert 0.9 < max(gaussian(2, 0.45), in_secret_batches(0.45)) <= 1
