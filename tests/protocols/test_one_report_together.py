"""One report a person at a small price: never farther off than single columns alone."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.noise import FastRng
from understudy.protocols.one_report.fit import Heard, one_ways
from understudy.protocols.one_report.given_target import fit_given_target
from understudy.protocols.one_report.plan import (
    Asking,
    ReportPlan,
    first_round,
    second_round,
)
from understudy.protocols.one_report.together import read_together

PEOPLE = 3_000
LEVELS = (*(4,) * 24, 2)  # many, so that a few runs tell a mean
TARGET = 24


def heard(asking: Asking, rows: Tensor, epsilon: float, seed: int) -> list[Heard]:
    """What these people report of the sets that they are dealt."""
    rng = FastRng(seed)
    which = asking.deal(len(rows), np.random.default_rng(seed))
    found = []
    for number, about in enumerate(asking.sets):
        mechanism = SubsetSelection(cells=about.cells, epsilon=epsilon)
        cells = about.cell_of(rows[which == number])
        found.append(Heard.from_reports(about, mechanism, mechanism(cells, rng)))
    return found


def distance(
    rows: Tensor, pair_table: Sequence[Tensor], levels: Sequence[int]
) -> float:
    """The mean distance of all pairs of the rows from those of a mixture's odds."""
    one_hot = [
        torch.nn.functional.one_hot(rows[:, column], size).double()
        for column, size in enumerate(levels)
    ]
    return float(
        np.mean(
            [
                float(
                    (
                        one_hot[a].T @ one_hot[b] / len(rows)
                        - pair_table[a].T @ pair_table[b] / len(pair_table[a])
                    )
                    .abs()
                    .sum()
                    / 2
                )
                for a in range(len(levels))
                for b in range(a)
            ]
        )
    )


def people(tie: float, seed: int) -> Tensor:
    """Rows of uneven columns, a share `tie` of which follows the target."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, PEOPLE)
    columns = []
    for size in LEVELS[:-1]:
        own = np.minimum(rng.geometric(0.4, PEOPLE) - 1, size - 1)
        columns.append(np.where(rng.random(PEOPLE) < tie, target * (size - 1), own))
    return torch.from_numpy(np.stack([*columns, target], 1))


@pytest.mark.long
@pytest.mark.parametrize(("tie", "epsilon"), [(0.0, 2.0), (0.1, 2.0), (0.0, 1.0)])
def test_pairs_with_a_target_cost_hardly_more_than_they_tell(
    tie: float, epsilon: float
) -> None:
    plan = ReportPlan.rule(epsilon, LEVELS, PEOPLE, target=True)
    with_target = []
    single = []
    for seed in range(6):
        rows = people(tie, seed)
        cut = round(plan.share * len(rows))
        first = heard(first_round(LEVELS), rows[:cut], epsilon, seed)
        asking = second_round(
            plan,
            one_ways(first, LEVELS),
            ordered=[0] * len(LEVELS),
            epsilon=epsilon,
            people=len(rows) - cut,
            target=TARGET,
            seed=seed,
        )
        every = [*first, *heard(asking, rows[cut:], epsilon, seed + 100)]
        mixture = fit_given_target(
            every,
            LEVELS,
            one_ways(every, LEVELS),
            target=TARGET,
            ordered=[0] * len(LEVELS),
            components=32,
        )
        odds = torch.split(mixture.odds().double(), list(LEVELS), 1)
        with_target.append(distance(rows, odds, LEVELS))
        # the same people and reports, and the others about single columns, too
        others = heard(first_round(LEVELS), rows[cut:], epsilon, seed + 200)
        ways = [way[None] for way in one_ways([*first, *others], LEVELS)]
        single.append(distance(rows, ways, LEVELS))
    assert np.mean(with_target) <= 1.05 * np.mean(single)


def test_the_fewer_people_the_more_are_asked_about_single_columns() -> None:
    shares = [
        ReportPlan.rule(2.0, LEVELS, people, target=True).share
        for people in (100_000, 20_000, 3_000)
    ]
    assert shares[0] == 0.5
    assert shares == sorted(shares)
    assert shares[-1] == 0.9


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_rare_bits_are_nearer_where_they_are_read_together(epsilon: float) -> None:
    levels = (2,) * 60
    rng = np.random.default_rng(3)
    shares = rng.choice([0.01, 0.05, 0.4], len(levels), p=[0.6, 0.3, 0.1])
    rows = torch.from_numpy(
        (rng.random((6_000, len(levels))) < shares).astype(np.int64)
    )
    first = heard(first_round(levels), rows, epsilon, 0)
    apart = one_ways(first, levels)
    together = read_together(first, levels, apart)
    off = [
        np.abs([float(way[1]) - share for way, share in zip(ways, shares, strict=True)])
        for ways in (apart, together)
    ]
    assert off[1].mean() < 0.8 * off[0].mean()
    for way in together:
        assert float(way.sum()) == pytest.approx(1)
        assert (way >= 0).all()


def test_few_bits_and_columns_of_more_levels_are_read_alone() -> None:
    for levels in ((2,) * 15, (3,) * 16):
        rows = torch.zeros(500, len(levels), dtype=torch.int64)
        first = heard(first_round(levels), rows, 4.0, 0)
        ways = one_ways(first, levels)
        for way, read in zip(ways, read_together(first, levels, ways), strict=True):
            torch.testing.assert_close(way, read)


def test_what_many_reports_say_of_a_bit_stays_whatever_the_others_are() -> None:
    levels = (2,) * 20
    rows = torch.zeros(40_000, len(levels), dtype=torch.int64)
    rows[:, 7] = torch.arange(len(rows)) % 10 < 3
    first = heard(first_round(levels), rows, 6.0, 0)
    together = read_together(first, levels, one_ways(first, levels))
    assert float(together[7][1]) == pytest.approx(0.3, abs=0.03)
    assert float(together[8][1]) < 0.01
