"""`one-report` at a small ε: columns that depend on each other by the target alone,
held against sums written out.
"""

import numpy as np
import pytest
import torch

from understudy.models.tables.mixture import MixtureOfProducts
from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.one_report import given_target
from understudy.protocols.one_report.fit import Heard
from understudy.protocols.one_report.given_target import (
    _parts,
    fit_given_target,
    slope_and_curvature,
)
from understudy.protocols.one_report.party import ColumnSet
from understudy.protocols.one_report.plan import ReportPlan, second_round

LEVELS = (3, 6, 2, 4)
TARGET = 2
ORDERED = (0, 6, 0, 0)
WAYS = [
    torch.tensor(way).double()
    for way in ([0.5, 0.3, 0.2], [1 / 6] * 6, [0.7, 0.3], [0.25] * 4)
]
IN_PAIRS = torch.tensor([0, 0, 1, 1, 2, 2])


def rows(n: int, seed: int = 1) -> torch.Tensor:
    """The first column tells of the target, the second, in order, a little, the last
    nothing.
    """
    rng = np.random.default_rng(seed)
    target = (rng.random(n) < 0.3).astype(int)
    first = np.where(
        target,
        rng.choice(3, n, p=(0.1, 0.4, 0.5)),
        rng.choice(3, n, p=(0.67, 0.26, 0.07)),
    )
    rising = np.arange(1, 7) / 21
    second = np.where(
        target,
        rng.choice(6, n, p=rising),
        rng.choice(6, n, p=(0.5 - 1.5 * rising) / 1.5),
    )
    return torch.from_numpy(np.stack([first, second, target, rng.integers(0, 4, n)], 1))


def told(table: torch.Tensor, epsilon: float) -> list[Heard]:
    """Each row's report about one column and the target, in turns; the second column's
    levels come in pairs.
    """
    groups = [torch.arange(3), IN_PAIRS, torch.arange(2), torch.arange(4)]
    sets = [
        ColumnSet(pair, tuple(groups[column] for column in pair))
        for pair in ((0, 2), (1, 2), (2, 3))
    ]
    out = []
    rng = SecureRng.from_seed(2)
    for number, one in enumerate(sets):
        mechanism = SubsetSelection(cells=one.cells, epsilon=epsilon)
        out.append(
            Heard.from_reports(
                one, mechanism, mechanism(one.cell_of(table[number::3]), rng)
            )
        )
    return out


def fitted(heard: list[Heard], **more: object) -> MixtureOfProducts:
    settings = {"target": TARGET, "ordered": ORDERED, "components": 50} | more
    return fit_given_target(heard, LEVELS, WAYS, **settings)  # type: ignore[arg-type]


def pair(mixture: MixtureOfProducts, i: int, j: int) -> torch.Tensor:
    bounds = np.cumsum([0, *LEVELS])
    return mixture.gram()[bounds[i] : bounds[i + 1], bounds[j] : bounds[j + 1]].double()


@pytest.mark.parametrize("liars", [0.0, 0.2])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_what_reports_say_of_a_table_is_the_slope_and_curvature_of_their_likelihood(
    epsilon: float, liars: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_target, "_AT_ONCE", 40)  # in several parts
    heard = told(rows(300), epsilon)[1]
    generator = torch.Generator().manual_seed(3)
    table = torch.rand(6, generator=generator).double() + 0.1
    table = table / table.sum()
    moves = torch.randn(6, 3, generator=generator).double()
    lift = heard.assumed_lift(liars)

    move = torch.zeros(3).double().requires_grad_()
    likelihood = (
        heard.times * torch.log1p(lift * (table + moves @ move)[heard.named].sum(1))
    ).sum()
    (first,) = torch.autograd.grad(likelihood, move, create_graph=True)
    second = torch.stack(
        [torch.autograd.grad(each, move, retain_graph=True)[0] for each in first]
    )
    slope, curvature = slope_and_curvature(heard, table, moves, liars)
    torch.testing.assert_close(slope, first)
    torch.testing.assert_close(curvature, -second)


def test_columns_are_independent_given_the_target_and_keep_their_one_way_tables():
    mixture = fitted(told(rows(3000), 1.0))
    torch.testing.assert_close(
        mixture.gram().diagonal(), torch.cat(WAYS).float(), atol=1e-5, rtol=1e-4
    )
    with_target = [pair(mixture, column, TARGET) for column in (0, 1)]
    expected = with_target[0] / WAYS[TARGET] @ with_target[1].T
    torch.testing.assert_close(pair(mixture, 0, 1), expected, atol=2e-3, rtol=0)


def test_many_reports_are_followed_to_the_table_that_they_tell_of() -> None:
    mixture = fitted(told(rows(300_000), 2.0), components=200)
    truth = (
        torch.tensor([[0.67, 0.26, 0.07], [0.1, 0.4, 0.5]]).double().T * WAYS[TARGET]
    )
    assert (pair(mixture, 0, TARGET) - truth).abs().max() < 0.02
    alone = torch.outer(WAYS[3], WAYS[TARGET])
    assert (pair(mixture, 3, TARGET) - alone).abs().max() < 0.005


def test_levels_in_order_rise_within_a_group_and_others_do_not() -> None:
    heard = told(rows(300_000), 2.0)
    share = {
        name: pair(fitted(heard, ordered=ordered, components=200), 1, TARGET)[:, 1] * 6
        for name, ordered in (("in order", ORDERED), ("not", (0,) * 4))
    }
    assert (share["in order"].diff() > 0.01).all()
    torch.testing.assert_close(share["not"][::2], share["not"][1::2])


def test_columns_that_tell_nothing_and_columns_nobody_was_asked_about_stay_independent():
    mixed = rows(3000)[:, [0, 1, 2, 3]]
    mixed[:, TARGET] = mixed[
        torch.randperm(3000, generator=torch.Generator().manual_seed(0)), TARGET
    ]
    nothing = fitted(told(mixed, 1.0))
    for column in (0, 1, 3):
        shift = pair(nothing, column, TARGET) - torch.outer(WAYS[column], WAYS[TARGET])
        assert shift.abs().sum() / 2 < 0.05
    alone = fitted([])
    torch.testing.assert_close(
        pair(alone, 0, TARGET), torch.outer(WAYS[0], WAYS[TARGET]), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("components", [1, 7, 128])
def test_components_are_parts_of_the_people_in_the_order_of_their_target(
    components: int,
) -> None:
    way = torch.tensor([0.06, 0.0, 0.33, 0.61]).double()
    parts = _parts(way, components)
    torch.testing.assert_close(parts.mean(0), way)
    torch.testing.assert_close(parts.sum(1), torch.ones(components).double())
    assert int(((parts > 1e-9) & (parts < 1 - 1e-9)).any(1).sum()) <= 2


def test_at_a_small_price_everyone_of_the_second_round_is_asked_about_a_column_and_the_target():
    ways = [torch.full((size,), 1 / size).double() for size in (2, 1, *[2] * 50, 3)]
    plan = ReportPlan.rule(1.0, [len(way) for way in ways], 100_000, target=True)
    asking = second_round(
        plan,
        ways,
        ordered=[0] * len(ways),
        epsilon=1.0,
        people=50_000,
        target=0,
        seed=0,
    )
    assert sorted(one.columns for one in asking.sets) == [
        (0, column) for column in range(2, len(ways))
    ]
    assert not ReportPlan.rule(1.0, [2] * 100, 100_000, target=True).paired, (
        "so few people a pair tell less than sets of rare bits"
    )
    assert not ReportPlan.rule(
        1.0, [2] * 50, 100_000, target=True, classes=10
    ).paired, "ten classes are told from each other by what columns have in common"
