"""The parts of `one-report`: cells of rows, plans, and the fit, held against sums that
are written out.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
import torch

from refusals import raises
from understudy.ground.errors import Effect, MessageError
from understudy.privacy.local.naming import GRAIN, SubsetSelection
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.one_report import fit
from understudy.protocols.one_report.fit import (
    Heard,
    Term,
    fit_reports,
    noise_edge,
    one_ways,
)
from understudy.protocols.one_report.party import (
    MOST_CELLS,
    ColumnSet,
    as_sent,
    read_sets,
)
from understudy.protocols.one_report.plan import (
    ReportPlan,
    first_round,
    grouped,
    second_round,
)

LEVELS = (3, 1, 2, 4)
GROUPS = (
    torch.arange(3),
    torch.zeros(1, dtype=torch.int64),
    torch.tensor([1, 0]),
    torch.tensor([1, 0, 1, 2]),
)
LISTED = torch.tensor([[0, 1], [2, 0], [1, 1]])
SETS = [
    ColumnSet((0,), GROUPS[:1]),
    ColumnSet((0, 2, 3), (GROUPS[0], GROUPS[2], GROUPS[3])),
    ColumnSet((3, 2), (GROUPS[3], GROUPS[2]), LISTED),
]
ROWS = torch.tensor(list(product(*map(range, LEVELS))), dtype=torch.int32)


def probability(mechanism: SubsetSelection, *, named: bool) -> Fraction:
    """Of one report, for a cell that it names or for one that it does not."""
    share = Fraction(mechanism.kept_reports, GRAIN)
    others = mechanism.cells - 1
    return (share if named else 1 - share) / math.comb(others, mechanism.size - named)


def by_hand(one: ColumnSet, row: list[int]) -> int:
    groups = tuple(
        int(group[row[column]])
        for column, group in zip(one.columns, one.groups, strict=True)
    )
    if one.listed is None:
        return list(product(*map(range, one.sizes))).index(groups)
    listed = [tuple(cell) for cell in one.listed.tolist()]
    return listed.index(groups) if groups in listed else len(listed)


@pytest.mark.parametrize("one", SETS)
def test_every_row_has_the_cell_of_its_groups(one: ColumnSet) -> None:
    assert one.cell_of(ROWS).tolist() == [by_hand(one, row) for row in ROWS.tolist()]


def test_sets_come_through_a_message_as_they_were() -> None:
    again = read_sets(**as_sent(GROUPS, SETS), levels=LEVELS)
    for one, other in zip(SETS, again, strict=True):
        assert one.columns == other.columns
        assert one.cells == other.cells
        assert torch.equal(one.cell_of(ROWS), other.cell_of(ROWS))


GROUPED = torch.cat(GROUPS)
WHOLE = torch.zeros(0, 2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("groups", "columns", "listed"),
    [
        (GROUPED[:-1], [[0, 2]], [WHOLE]),
        (GROUPED.float(), [[0, 2]], [WHOLE]),
        (GROUPED + 1, [[0, 2]], [WHOLE]),
        (GROUPED - 1, [[0, 2]], [WHOLE]),
        (GROUPED * 2, [[0, 2]], [WHOLE]),
        (GROUPED, [], []),
        (GROUPED, [[]], [WHOLE]),
        (GROUPED, [[0, 0]], [WHOLE]),
        (GROUPED, [[0, 4]], [WHOLE]),
        (GROUPED, [[0, -1]], [WHOLE]),
        (GROUPED, [[0, True]], [WHOLE]),
        (GROUPED, [[1]], [WHOLE[:, :1]]),
        (GROUPED, [[0, 2]], []),
        (GROUPED, [[0, 2]], [WHOLE[:, :1]]),
        (GROUPED, [[0, 2]], [torch.tensor([[3, 0]])]),
        (GROUPED, [[0, 2]], [torch.tensor([[0, -1]])]),
        (GROUPED, [[0, 2]], [torch.tensor([[0.0, 1.0]])]),
        (GROUPED, "all", [WHOLE]),
        (GROUPED, [[0, 2]], [torch.zeros(MOST_CELLS, 2, dtype=torch.int64)]),
    ],
)
def test_sets_that_are_none_are_refused(
    groups: torch.Tensor, columns: object, listed: object
) -> None:
    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        read_sets(groups, columns, listed, LEVELS)


def some_odds(components: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    parts = [
        torch.rand(components, size, generator=generator, dtype=torch.float64)
        for size in LEVELS
    ]
    return torch.cat([part / part.sum(1, keepdim=True) for part in parts], 1)


def joint(odds: torch.Tensor) -> torch.Tensor:
    """The probability of each row of `ROWS`, written out."""
    parts = torch.split(odds, LEVELS, 1)
    return (
        torch.stack(
            [part[:, ROWS[:, column].long()] for column, part in enumerate(parts)]
        )
        .prod(0)
        .mean(0)
    )


def heard_of(one: ColumnSet, n: int = 40, epsilon: float = 1.0, seed: int = 0) -> Heard:
    mechanism = SubsetSelection(cells=one.cells, epsilon=epsilon)
    cells = torch.from_numpy(np.random.default_rng(seed).integers(0, one.cells, n))
    return Heard.from_reports(
        one, mechanism, mechanism(cells, SecureRng.from_seed(seed))
    )


@pytest.mark.parametrize("one", SETS)
def test_the_likelihood_is_that_of_every_row_and_every_report(one: ColumnSet) -> None:
    odds = some_odds(5)
    heard = heard_of(one)
    chance = joint(odds)
    cells = one.cell_of(ROWS)
    term = Term(heard, LEVELS, heard.mechanism.lift)
    table = torch.zeros(one.cells, dtype=torch.float64).index_add_(0, cells, chance)
    torch.testing.assert_close(
        term.table(odds.float()).double(), table, atol=1e-6, rtol=1e-5
    )
    expected = 0.0
    for report, times in zip(heard.named.tolist(), heard.times.tolist(), strict=True):
        law = sum(
            float(p) * float(probability(heard.mechanism, named=int(cell) in report))
            for p, cell in zip(chance, cells, strict=True)
        )
        even = float(probability(heard.mechanism, named=False))
        expected += times * math.log(law / even)
    assert float(term.log_likelihood(odds.float())) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("one", SETS[1:])
def test_the_slope_by_pairs_is_the_second_derivative_at_independent_columns(
    one: ColumnSet,
) -> None:
    """mean_k u_kᵀ R u_k / 2, of which λ takes the largest eigenvalue, against
    components a little apart.
    """
    ways = some_odds(1)
    heard = heard_of(one)
    term = Term(heard, LEVELS, heard.mechanism.lift)
    bounds = np.cumsum([0, *LEVELS])
    rise = torch.zeros(sum(LEVELS), sum(LEVELS))
    named = heard.named.repeat_interleave(heard.times.long(), 0)
    for i, j, found in term.pairs(ways.float(), term.slope(ways.float(), named)):
        a, b = (
            slice(bounds[one.columns[k]], bounds[one.columns[k] + 1]) for k in (i, j)
        )
        rise[a, b] += found
        rise[b, a] += found.T
    step = some_odds(1, seed=3) - ways
    for size in (0.01, 0.02):
        two = torch.cat([ways + size * step, ways - size * step]).float()
        gained = float(term.log_likelihood(two) - term.log_likelihood(ways.float()))
        expected = float(size**2 * (step.float() @ rise @ step.float().T) / 2)
        assert gained == pytest.approx(expected, rel=0.05, abs=2e-4)


def test_one_way_tables_are_the_likeliest_ones() -> None:
    one = ColumnSet((3,), (torch.arange(4),))
    mechanism = SubsetSelection(cells=4, epsilon=2.0)
    truth = torch.tensor([0.5, 0.3, 0.15, 0.05])
    cells = torch.from_numpy(
        np.random.default_rng(0).choice(
            4, 40_000, p=truth.double() / truth.double().sum()
        )
    )
    heard = Heard.from_reports(one, mechanism, mechanism(cells, SecureRng.from_seed(0)))
    *_, found = one_ways([heard], (1, 1, 1, 4))
    assert (found - truth).abs().max() < 0.015
    term = Term(heard, (1, 1, 1, 4), mechanism.lift)

    def likelihood(table: torch.Tensor) -> float:
        return float(
            term.log_likelihood(torch.cat([torch.ones(3), table.float()])[None])
        )

    best = likelihood(found)
    for i, j in combinations(range(4), 2):
        moved = found.clone()
        moved[i] += 0.01
        moved[j] -= 0.01
        assert likelihood(moved) < best


def test_an_uneven_table_has_more_turns_than_one_that_is_nearly_even(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets = [ColumnSet((column,), (torch.arange(6),)) for column in (0, 1)]
    rng = np.random.default_rng(1)
    rows = np.stack(
        [rng.integers(0, 6, 4000), rng.choice(6, 4000, p=(0.9, *[0.02] * 5))], 1
    )
    heard = told(torch.from_numpy(rows), sets, 1.0)

    def likelihoods() -> list[float]:
        odds = torch.cat(one_ways(heard, (6, 6))).float()[None]
        return [
            float(Term(one, (6, 6), one.mechanism.lift).log_likelihood(odds))
            for one in heard
        ]

    even, uneven = likelihoods()
    for name in ("_LEAST", "_MOST"):
        monkeypatch.setattr(fit, name, 1.0)
    alike = likelihoods()
    assert even < alike[0]
    assert uneven > alike[1]


def told(rows: torch.Tensor, sets: list[ColumnSet], epsilon: float) -> list[Heard]:
    """Each row's report about one of the sets, in turns."""
    out = []
    rng = SecureRng.from_seed(2)
    for number, one in enumerate(sets):
        mechanism = SubsetSelection(cells=one.cells, epsilon=epsilon)
        out.append(
            Heard.from_reports(
                one, mechanism, mechanism(one.cell_of(rows[number :: len(sets)]), rng)
            )
        )
    return out


def linked(n: int) -> torch.Tensor:
    rng = np.random.default_rng(1)
    first = rng.choice(3, n, p=(0.5, 0.3, 0.2))
    third = (rng.random(n) < np.array([0.1, 0.5, 0.9])[first]).astype(int)
    return torch.from_numpy(
        np.stack([first, 0 * first, third, rng.integers(0, 4, n)], 1)
    )


PAIRS = [
    ColumnSet(pair, tuple(torch.arange(LEVELS[column]) for column in pair))
    for pair in ((0, 2), (0, 3), (2, 3))
]
SMALL = {
    "strength": 1.0,
    "anchored": False,
    "components": 16,
    "steps": 60,
    "rate": 0.3,
    "batch": 40,
}


def strength_of(mixture: object, i: int, j: int) -> float:
    bounds = np.cumsum([0, *LEVELS])
    gram = mixture.gram()  # type: ignore[attr-defined]
    ways = gram.diagonal()
    a = slice(bounds[i], bounds[i + 1])
    b = slice(bounds[j], bounds[j + 1])
    return float((gram[a, b] - torch.outer(ways[a], ways[b])).abs().sum() / 2)


def test_dependence_is_found_where_it_is_and_nowhere_else() -> None:
    rows = linked(30_000)
    heard = told(rows, PAIRS, 2.0)
    ways = [
        torch.bincount(rows[:, c], minlength=size).double() / len(rows)
        for c, size in enumerate(LEVELS)
    ]
    mixture = fit_reports(heard, LEVELS, ways, **SMALL)  # type: ignore[arg-type]
    assert strength_of(mixture, 0, 2) > 0.2
    assert strength_of(mixture, 0, 3) < 0.02
    assert strength_of(mixture, 2, 3) < 0.02


def test_a_fit_that_is_anchored_keeps_the_one_way_tables_and_finds_the_dependence():
    rows = linked(30_000)
    ways = [
        torch.tensor(way).double()
        for way in ([0.2, 0.5, 0.3], [1.0], [0.7, 0.3], [0.1, 0.4, 0.3, 0.2])
    ]
    mixture = fit_reports(
        told(rows, PAIRS, 2.0), LEVELS, ways, **SMALL | {"anchored": True}
    )  # type: ignore[arg-type]
    torch.testing.assert_close(
        mixture.gram().diagonal(), torch.cat(ways).float(), rtol=1e-3, atol=1e-4
    )
    assert strength_of(mixture, 0, 2) > 0.1


def test_reports_of_independent_columns_are_not_followed_and_without_the_penalty_they_are():
    rng = np.random.default_rng(5)
    rows = torch.stack(
        [linked(600)[rng.permutation(600), column] for column in range(4)], 1
    )
    heard = told(rows, PAIRS, 0.5)
    ways = [torch.full((size,), 1 / size).double() for size in LEVELS]
    held = fit_reports(heard, LEVELS, ways, **SMALL | {"strength": 1.5})  # type: ignore[arg-type]
    free = fit_reports(heard, LEVELS, ways, **SMALL | {"strength": 0.0})  # type: ignore[arg-type]
    apart = [(0, 2), (0, 3), (2, 3)]
    assert max(strength_of(held, *pair) for pair in apart) < 0.03
    assert max(strength_of(free, *pair) for pair in apart) > 0.1


def test_without_reports_columns_are_what_they_began_as_and_independent() -> None:
    ways = [torch.full((size,), 1 / size).double() for size in LEVELS]
    mixture = fit_reports([heard_of(SETS[0], 0)], LEVELS, ways, **SMALL)  # type: ignore[arg-type]
    torch.testing.assert_close(mixture.gram().diagonal(), torch.cat(ways).float())


def test_who_expects_liars_trusts_a_report_less() -> None:
    heard = heard_of(SETS[1], 500, epsilon=6.0)
    lifts = [heard.assumed_lift(share) for share in (0.0, 0.01, 0.1, 0.5)]
    assert lifts == sorted(lifts, reverse=True)
    assert lifts[0] == heard.mechanism.lift
    # The same law, written out: (1 − η)(1 + L·P)/(1 + L·s/K) + η, for reports that hold
    # a share P of the people.
    lift = lifts[0]
    even = 1 + lifts[0] * heard.mechanism.size / heard.mechanism.cells
    law = [0.9 * (1 + lift * share) / even + 0.1 for share in (0.0, 0.3)]
    assert law[1] / law[0] == pytest.approx(1 + lifts[2] * 0.3)


# The plan


def test_the_first_round_asks_about_every_column_that_tells_anything() -> None:
    asking = first_round(LEVELS)
    assert [one.columns for one in asking.sets] == [(0,), (2,), (3,)]
    assert [one.cells for one in asking.sets] == [3, 2, 4]


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 8.0, 50.0])
@pytest.mark.parametrize("target", [None, 2])
def test_the_second_round_asks_about_every_wanted_pair(
    epsilon: float, target: int | None
) -> None:
    ways = [torch.full((size,), 1 / size).double() for size in (3, 1, 2, 4, 6, 2)]
    plan = ReportPlan.rule(
        epsilon, [len(way) for way in ways], 10_000, target=target is not None
    )
    ordered = [0, 0, 0, 4, 5, 0]  # a number, and one that may be missing
    asking = second_round(
        plan,
        ways,
        ordered=ordered,
        epsilon=epsilon,
        people=10_000,
        target=target,
        seed=0,
    )
    pairs = {pair for one in asking.sets for pair in combinations(one.columns, 2)}
    told = [0, 2, 3, 4, 5]
    wanted = {
        tuple(sorted(pair))
        for pair in combinations(told, 2)
        if target is None or target in pair or plan.others > 0
    }
    assert wanted <= pairs
    assert all(column in told for one in asking.sets for column in one.columns)
    again = read_sets(
        **as_sent(asking.groups, asking.sets), levels=[len(way) for way in ways]
    )  # what a party will take
    assert [one.cells for one in again] == [one.cells for one in asking.sets]


def test_many_rare_bits_fit_into_one_set_and_the_unlikely_rest_shares_a_cell() -> None:
    ways = [torch.tensor([0.98, 0.02]).double() for _ in range(40)]
    plan = replace(ReportPlan.rule(8.0, [2] * 40, 10_000, target=True), sets=20)
    asking = second_round(
        plan, ways, ordered=[0] * 40, epsilon=8.0, people=10_000, target=0, seed=0
    )
    assert min(len(one.columns) for one in asking.sets) > 10
    for one in asking.sets:
        assert one.listed is not None
        held = sum(
            math.prod(0.02 if level else 0.98 for level in cell)
            for cell in one.listed.tolist()
        )
        assert plan.mass <= held < 1
        assert one.cells <= plan.reach * math.exp(8.0)


def test_everyone_is_dealt_one_set_in_the_shares_that_were_planned() -> None:
    asking = first_round((3, 2, 2))
    which = asking.deal(1000, np.random.default_rng(0))
    counts = torch.bincount(which, minlength=3)
    assert int(counts.sum()) == 1000
    np.testing.assert_allclose(
        counts / 1000, asking.shares / asking.shares.sum(), atol=1e-3
    )


def test_rare_levels_share_a_group_and_two_levels_never_do() -> None:
    assert grouped(torch.tensor([0.6, 0.01, 0.38, 0.01]), 0.05).tolist() == [0, 2, 1, 2]
    assert grouped(torch.tensor([0.6, 0.39, 0.01]), 0.05).tolist() == [0, 1, 2]
    assert grouped(torch.tensor([0.999, 0.001]), 0.5).tolist() == [0, 1]
    assert sorted(set(grouped(torch.full((5,), 0.2), 0.5).tolist())) == [0, 1]


def test_rare_levels_in_order_go_with_their_neighbours_and_a_missing_value_stays_apart():
    way = torch.tensor([0.02, 0.07, 0.4, 0.04, 0.26, 0.2, 0.01])
    assert grouped(way, 0.08, ordered=7).tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert grouped(way, 0.08, ordered=6).tolist() == [0, 0, 1, 2, 2, 3, 4]
    assert grouped(torch.tensor([0.9, 0.05, 0.05]), 0.5, ordered=2).tolist() == [
        0,
        1,
        2,
    ]
    assert grouped(torch.full((8,), 0.125), 0.2, ordered=8).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    # one group would tell nothing
    assert max(grouped(torch.full((8,), 0.125), 9.0, ordered=8).tolist()) == 1
    assert grouped(torch.tensor([1.0, 0.0]), 0.5, ordered=1).tolist() == [0, 1]


def test_noise_shows_a_larger_eigenvalue_the_more_reports_there_are() -> None:
    ways = [torch.full((size,), 1 / size).double() for size in LEVELS]
    few, many = (
        noise_edge([heard_of(PAIRS[0], n)], LEVELS, ways) for n in (100, 10_000)
    )
    assert 0 < few < many < 100 * few  # as √n, not as n


def test_few_people_and_a_small_price_without_a_target_are_asked_about_single_columns_alone():
    levels = [5] * 10
    assert ReportPlan.rule(8.0, levels, 100, target=True).share == 1.0
    assert ReportPlan.rule(1.0, levels, 10**6, target=False).share == 1.0
    assert ReportPlan.rule(1.0, levels, 10**6, target=True).share < 1.0
    assert ReportPlan.rule(8.0, levels, 10**6, target=False).share < 0.2
