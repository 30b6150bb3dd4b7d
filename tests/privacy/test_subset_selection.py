"""Subset selection: the law of every report, listed and exact; what is sent, and what
is not taken for a report.
"""

import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from refusals import NothingDrawn
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.naming import GRAIN, MOST_CELLS, SubsetSelection
from understudy.privacy.noise.rng import SecureRng

EPSILONS = [1e-6, 0.01, 0.5, 1.0, math.log(3), 2.0, 4.0, 8.0, 36.0, 50.0]
DOMAINS = [2, 3, 4, 5, 7]


def probability(mechanism: SubsetSelection, *, named: bool) -> Fraction:
    """Of one report, for a cell that it names or for one that it does not."""
    share = Fraction(mechanism.kept_reports, GRAIN)
    others = mechanism.cells - 1
    return (share if named else 1 - share) / math.comb(others, mechanism.size - named)


def law(mechanism: SubsetSelection, cell: int) -> dict[tuple[int, ...], Fraction]:
    """The probability of every report for a person in this cell."""
    sets = itertools.combinations(range(mechanism.cells), mechanism.size)
    return {one: probability(mechanism, named=cell in one) for one in sets}


def exactly_exp(epsilon: float) -> Fraction:
    with localcontext() as context:
        context.prec = 80
        return Fraction(Decimal(epsilon).exp())


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("cells", DOMAINS)
def test_no_report_is_more_than_exp_epsilon_times_likelier_for_any_other_cell(
    cells: int, epsilon: float
) -> None:
    mechanism = SubsetSelection(cells=cells, epsilon=epsilon)
    laws = [law(mechanism, cell) for cell in range(cells)]
    assert all(sum(one.values()) == 1 for one in laws)
    worst = max(
        one[report] / other[report] for one in laws for other in laws for report in one
    )
    assert worst == mechanism.odds <= exactly_exp(epsilon)
    if epsilon < 36:  # beyond, the grain of 2⁻⁶² is coarser than what is left over
        assert float(worst) == pytest.approx(math.exp(epsilon), rel=1e-9)


@pytest.mark.parametrize("cells", [2, 9, 84, 257, 4096, MOST_CELLS])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_odds_as_they_are_drawn_never_exceed_exp_epsilon(
    cells: int, epsilon: float
) -> None:
    mechanism = SubsetSelection(cells=cells, epsilon=epsilon)
    assert 1 <= mechanism.size <= max(1, cells // 2)
    assert 1 < mechanism.odds <= exactly_exp(epsilon)
    assert mechanism.event == PureDp(epsilon)


@pytest.mark.parametrize(
    ("cells", "epsilon"), [(2, 1.0), (4, 0.3), (5, 0.5), (6, 2.0), (6, 0.2)]
)
def test_what_is_drawn_follows_the_law(cells: int, epsilon: float) -> None:
    mechanism = SubsetSelection(cells=cells, epsilon=epsilon)
    people = 20_000
    rng = SecureRng.from_seed(4)
    for cell in (0, cells - 1):
        named = mechanism(torch.full((people,), cell), rng)
        seen = Counter(map(tuple, named.tolist()))
        expected = {
            report: float(chance) * people
            for report, chance in law(mechanism, cell).items()
        }
        assert seen.keys() <= expected.keys()
        assert (
            chisquare(
                [seen[report] for report in expected], list(expected.values())
            ).pvalue
            > 1e-4
        )


def test_at_size_one_it_is_randomized_response() -> None:
    mechanism = SubsetSelection(cells=10, epsilon=4.0)
    assert mechanism.size == 1
    assert float(probability(mechanism, named=True)) == pytest.approx(
        math.exp(4) / (math.exp(4) + 9)
    )


def test_counts_by_the_stated_weight_are_unbiased() -> None:
    """The sum over reports of (named − P(named | other cell)) · weight has the count as
    its mean, exactly.
    """
    for cells, epsilon in itertools.product(DOMAINS, (0.5, 2.0)):
        mechanism = SubsetSelection(cells=cells, epsilon=epsilon)
        inside = [
            sum(p for report, p in law(mechanism, cell).items() if 0 in report)
            for cell in (0, 1)
        ]
        assert float(inside[0] - inside[1]) * mechanism.most_weight == pytest.approx(1)


@pytest.mark.parametrize(
    ("cells", "epsilon"),
    [(2, 1.0), (11, 2.0), (20, 0.5), (84, 4.0), (256, 8.0), (257, 8.0), (1200, 3.0)],
)
def test_reports_come_out_of_their_bytes_as_they_went_in(
    cells: int, epsilon: float
) -> None:
    mechanism = SubsetSelection(cells=cells, epsilon=epsilon)
    named = mechanism(torch.arange(300) % cells, SecureRng.from_seed(1))
    assert (named.diff(dim=1) > 0).all()
    sent = mechanism.encode(named)
    assert sent.shape == (300, mechanism.bytes)
    assert mechanism.bytes <= math.ceil(cells / 8) or mechanism.size == 1
    found, bad = mechanism.decode(sent)
    assert torch.equal(found, named)
    assert not bad.any()


@pytest.mark.parametrize(
    ("cells", "epsilon"), [(5, 8.0), (13, 0.5), (300, 8.0), (84, 4.0), (11, 2.0)]
)
def test_bytes_that_no_report_has_are_told_from_reports(
    cells: int, epsilon: float
) -> None:
    """All one-byte and many longer texts: what is taken for a report is one, and the
    others are marked.
    """
    mechanism = SubsetSelection(cells=cells, epsilon=epsilon)
    rng = np.random.default_rng(0)
    texts = torch.from_numpy(
        rng.integers(0, 256, (4000, mechanism.bytes)).astype(np.uint8)
    )
    found, bad = mechanism.decode(texts)
    assert bad.any()
    assert (found >= 0).all()
    assert (found < cells).all()
    assert (found.diff(dim=1) > 0).all()
    assert torch.equal(mechanism.encode(found[~bad]), texts[~bad])


def test_settings_and_cells_without_sense_are_refused() -> None:
    for bad in (
        {"cells": 1},
        {"cells": MOST_CELLS + 1},
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": 51.0},
    ):
        with pytest.raises(ConfigError):
            SubsetSelection(**({"cells": 4, "epsilon": 1.0} | bad))  # type: ignore[arg-type]
    mechanism = SubsetSelection(cells=4, epsilon=1.0)
    for cells in (
        torch.tensor([4]),
        torch.tensor([-1]),
        torch.tensor([0.0]),
        torch.zeros(1, 1, dtype=torch.int64),
    ):
        with pytest.raises(ValueError, match="cells"):
            mechanism(cells, NothingDrawn())
    assert mechanism(
        torch.zeros(0, dtype=torch.int64), SecureRng.from_seed(0)
    ).shape == (0, mechanism.size)
