"""What every local mechanism must keep, checked on domains small enough to list every
output.

A case gives the probability of each output for each of a list of inputs. The listed
probabilities must sum to one and differ by at most e^ε between any two inputs, and what
`report` really draws must follow them.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from scipy.stats import chisquare

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp, epsilon
from understudy.privacy.local.piecewise import (
    Duchi,
    DuchiValue,
    FedSel,
    Hybrid,
    HybridValue,
    Piecewise,
    PmSub,
)
from understudy.privacy.local.selection import (
    EmMds,
    MagRr,
    Naive,
    Proportional,
    Ps,
    SubMds,
)
from understudy.privacy.noise.rng import SecureRng

Law = dict[tuple, float]


def top_set(update, sign, top, among=None):
    among = range(len(update)) if among is None else among
    return set(sorted(among, key=lambda i: -sign * update[i])[:top])


@cache
def chance(mechanism, inside) -> float:
    """Of one given set with so many of the top set."""
    if isinstance(mechanism, Naive):  # so many draws of their own
        return chance(mechanism.single, 1) ** inside * chance(mechanism.single, 0) ** (
            mechanism.chosen - inside
        )
    one = getattr(mechanism, "choice", mechanism)
    alike = math.comb(one.top, inside) * math.comb(
        one.dims - one.top, one.chosen - inside
    )
    return float(one.law[int(inside)]) / alike


def set_law(mechanism, update, among=None) -> Law:
    """Of sign and ascending indices; the mechanism sees `among` only."""
    among = tuple(range(len(update))) if among is None else among
    law: Law = {}
    for sign in (1, -1):
        best = top_set(update, sign, mechanism.top, among)
        for chosen in itertools.combinations(among, getattr(mechanism, "chosen", 1)):
            law[sign, *chosen] = chance(mechanism, len(best & set(chosen))) / 2
    return law


def naive_law(mechanism, update) -> Law:
    law: Law = {}
    for sign in (1, -1):
        best = top_set(update, sign, mechanism.top)
        for chosen in itertools.product(range(mechanism.dims), repeat=mechanism.chosen):
            law[sign, *chosen] = chance(mechanism, sum(i in best for i in chosen)) / 2
    return law


def sub_law(mechanism, update) -> Law:
    """The drawn dimensions stay with the client: the mixture over all of them."""
    law: Counter = Counter()
    parts = list(itertools.combinations(range(mechanism.dims), mechanism.inputs))
    for part in parts:
        for output, probability in set_law(mechanism.inner, update, among=part).items():
            law[output] += probability / len(parts)
    return dict(law)


def race_law(mechanism, update) -> Law:
    """Of sign and index: the mixture over all sets that a draw without replacement, by
    size, may find.
    """
    law: Counter = Counter()
    for order in itertools.permutations(
        [i for i, x in enumerate(update) if x], mechanism.top
    ):
        left = sum(map(abs, update))
        likely = 1.0
        for i in order:
            likely *= abs(update[i]) / left
            left -= abs(update[i])
        drawn = {(math.copysign(1, update[i]), i) for i in order}
        for signed in itertools.product((1, -1), range(mechanism.dims)):
            law[signed] += likely * chance(mechanism, signed in drawn)
    return dict(law)


@cache
def value_law(mechanism, value) -> dict[float, float]:
    """Of the answers to one value in [−1, 1], as float32."""
    law: Counter = Counter()
    if isinstance(mechanism, HybridValue):
        share = mechanism.piecewise_share
        for part, weight in (
            (mechanism.piecewise, share),
            (mechanism.duchi, 1 - share),
        ):
            for answer, probability in value_law(part, value).items() if weight else ():
                law[answer] += weight * probability
    elif isinstance(mechanism, DuchiValue):
        against = float(mechanism.against(torch.tensor(value)))
        bound = as_float32(math.copysign(mechanism.bound, value))
        law.update({bound: 1 - against, -bound: against})
    else:
        exact = (value + 1) * mechanism.outer / 2
        for first, weight in (
            (math.floor(exact), 1 - exact % 1),
            (math.floor(exact) + 1, exact % 1),
        ):
            for cell in range(mechanism.inner + mechanism.outer):
                inside = first <= cell < first + mechanism.inner
                probability = math.exp(mechanism.log_probability(inside=inside))
                law[as_float32(float(mechanism.value(torch.tensor(cell))))] += (
                    weight * probability
                )
    return dict(law)


def as_float32(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))


def sampled_law(mechanism, update) -> Law:
    law: Law = {}
    orders = list(itertools.permutations(range(mechanism.dims), mechanism.count))
    for order in orders:
        answers = [
            value_law(mechanism.single, max(-1.0, min(1.0, update[i] / mechanism.clip)))
            for i in order
        ]
        for values in itertools.product(*answers):
            probability = math.prod(
                answer[value] for answer, value in zip(answers, values, strict=True)
            )
            law[*values, *order] = probability / len(orders)
    return law


def duchi_law(mechanism, update) -> Law:
    signs = list(itertools.product((-1, 1), repeat=mechanism.dims))
    law: Counter = Counter()
    lift = {
        agree: math.exp(mechanism.log_lift(agree=agree)) / len(signs)
        for agree in (False, True)
    }
    for rounded in signs:
        weight = math.prod(
            (1 + v * x) / 2 for v, x in zip(rounded, update, strict=True)
        )
        for answer in signs:
            agree = (
                2 * sum(a == v for a, v in zip(answer, rounded, strict=True))
                > mechanism.dims
            )
            law[answer] += weight * lift[agree]
    return dict(law)


def fedsel_law(mechanism, update) -> Law:
    best = top_set([abs(x) for x in update], 1, mechanism.top)
    law: Law = {}
    for index in range(mechanism.dims):
        chosen = chance(mechanism.choice, int(index in best))
        for value, probability in value_law(mechanism.value, update[index]).items():
            law[value, index] = chosen * probability
    return law


@dataclass(frozen=True)
class Case:
    mechanism: object
    law: Callable[[object, tuple], Law]
    inputs: tuple[tuple[float, ...], ...]

    def __str__(self) -> str:
        return repr(self.mechanism).replace(" ", "")

    def outputs(self, update, n, seed) -> Counter:
        report = self.mechanism.report(
            torch.tensor([update]).repeat(n, 1), SecureRng.from_seed(seed)
        )
        parts = (
            [report.values]
            if report.indices is None
            else [report.values, report.indices]
        )
        return Counter(
            zip(*(column.tolist() for part in parts for column in part.T), strict=True)
        )


def rankings(dims):
    return tuple(
        tuple(float(x - 1.5) for x in order)
        for order in itertools.permutations(range(dims))
    )


def ends(dims, top):
    """One ranking for each pair of a top set and a bottom set, where nothing else of a
    ranking matters.
    """
    found = {
        (frozenset(top_set(x, 1, top)), frozenset(top_set(x, -1, top))): x
        for x in rankings(dims)
    }
    return tuple(found.values())


def grid(dims):
    return tuple(itertools.product((-1.0, -0.4, 0.0, 1.0), repeat=dims))


def untied(dims):
    """Vectors whose absolute values differ, so that there is one top set."""
    sizes = itertools.permutations([(i + 1) / dims for i in range(dims)])
    signs = list(itertools.product((-1, 1), repeat=dims))
    return tuple(
        tuple(a * b for a, b in zip(x, s, strict=True)) for x in sizes for s in signs
    )


def filled(dims, top):
    """Vectors with at least `top` values that are not 0, so that no 0 fills a drawn
    set.
    """
    return tuple(update for update in grid(dims) if sum(x != 0 for x in update) >= top)


CASES = [
    Case(Ps(dims=5, top=2, epsilon=1.0), set_law, ends(5, 2)),
    Case(Ps(dims=4, top=3, epsilon=4.0), set_law, rankings(4)),
    Case(Naive(dims=4, top=2, epsilon=2.0, chosen=2), naive_law, rankings(4)),
    Case(Naive(dims=3, top=1, epsilon=3.0, chosen=3), naive_law, rankings(3)),
    Case(EmMds(dims=5, top=2, epsilon=1.0, chosen=2), set_law, ends(5, 2)),
    Case(EmMds(dims=5, top=3, epsilon=3.0, chosen=3), set_law, ends(5, 3)),
    Case(EmMds(dims=6, top=3, epsilon=0.5, chosen=2), set_law, ends(6, 3)),
    Case(EmMds(dims=6, top=4, epsilon=2.0, chosen=3), set_law, ends(6, 4)),
    Case(
        SubMds(dims=5, top=2, epsilon=1.5, rate=0.8, wanted=0.6), sub_law, rankings(5)
    ),
    Case(
        SubMds(dims=5, top=2, epsilon=2.0, rate=1.0, wanted=0.6), sub_law, rankings(5)
    ),
    Case(
        SubMds(dims=5, top=1, epsilon=1.0, rate=0.4, wanted=0.6), sub_law, rankings(5)
    ),
    Case(Proportional(dims=4, top=2, epsilon=1.0), race_law, filled(4, 2)),
    Case(Proportional(dims=3, top=1, epsilon=3.0), race_law, filled(3, 1)),
    Case(Proportional(dims=4, top=3, epsilon=4.0), race_law, filled(4, 3)),
    Case(Duchi(dims=1, epsilon=1.0), duchi_law, grid(1)),
    Case(Duchi(dims=2, epsilon=1.0), duchi_law, grid(2)),
    Case(Duchi(dims=3, epsilon=2.0), duchi_law, grid(3)),
    Case(Duchi(dims=4, epsilon=0.5), duchi_law, grid(4)),
    Case(Piecewise(dims=2, epsilon=1.0, cells=3), sampled_law, grid(2)),
    Case(Piecewise(dims=2, epsilon=2.0, cells=2, sampled=2), sampled_law, grid(2)),
    Case(PmSub(dims=2, epsilon=3.0, cells=3), sampled_law, grid(2)),
    Case(Hybrid(dims=2, epsilon=1.0, cells=3), sampled_law, grid(2)),
    Case(Hybrid(dims=2, epsilon=0.5, cells=3), sampled_law, grid(2)),
    Case(FedSel(dims=3, top=1, epsilon=2.0, split=0.1, cells=3), fedsel_law, untied(3)),
    Case(FedSel(dims=3, top=2, epsilon=2.0, split=0.5, cells=3), fedsel_law, untied(3)),
]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@every_case
def test_probabilities_sum_to_one_and_no_two_inputs_differ_by_more_than_exp_epsilon(
    case,
):
    laws = [case.law(case.mechanism, update) for update in case.inputs]
    # an output that only one input has would tell
    assert all(law.keys() == laws[0].keys() for law in laws)
    table = torch.tensor(
        [list(map(law.get, laws[0])) for law in laws], dtype=torch.float64
    )
    torch.testing.assert_close(
        table.sum(1), torch.ones(len(laws), dtype=torch.float64), rtol=0, atol=1e-12
    )
    worst = float((table.amax(0) / table.amin(0)).max())
    bound = math.exp(case.mechanism.epsilon)
    assert worst <= bound * (1 + 1e-9)
    assert worst >= bound * (1 - 1e-9), "a part of the budget is wasted"


@pytest.mark.long
@every_case
def test_what_is_sent_follows_the_listed_probabilities(case):
    n = 12_000 if case.mechanism.epsilon >= 1 else 20_000  # a fifth more ε would show
    for seed, update in enumerate(case.inputs[:: max(1, len(case.inputs) // 2)][:2]):
        law = case.law(case.mechanism, update)
        seen = case.outputs(update, n, seed)
        assert seen.keys() <= law.keys()
        observed = [seen[output] for output in law]
        expected = [n * law[output] for output in law]
        total = n / sum(expected)  # chisquare wants the sums equal to the last digit
        assert chisquare(observed, [total * e for e in expected]).pvalue > 1e-4


@every_case
def test_one_use_costs_epsilon(case):
    assert case.mechanism.event == PureDp(case.mechanism.epsilon)
    assert epsilon({case.mechanism.event: 3}, 0.0) == pytest.approx(
        3 * case.mechanism.epsilon
    )


@every_case
def test_the_total_of_a_report_is_the_sum_of_its_claims(case):
    updates = torch.tensor(case.inputs)[:7]
    report = case.mechanism.report(updates, SecureRng.from_seed(5))
    dense = torch.zeros(len(updates), case.mechanism.dims, dtype=torch.float64)
    for row in range(len(updates)):
        where = (
            range(report.dims)
            if report.indices is None
            else report.indices[row].tolist()
        )
        for slot, index in enumerate(where):
            dense[row, index] += report.scale * float(
                report.values[row, min(slot, report.values.shape[1] - 1)]
            )
    torch.testing.assert_close(report.total(), dense.sum(0))
    assert len(report.values) == len(updates)
    assert report.total().shape == (case.mechanism.dims,)


class NothingDrawn:
    def __getattr__(self, name):
        raise AssertionError(f"{name} was drawn")


@every_case
def test_an_update_that_is_not_finite_counts_as_zero_and_changes_no_other(case):
    zero = torch.rand(4, case.mechanism.dims)
    zero[2] = 0
    other = case.mechanism.report(zero, SecureRng.from_seed(4))
    for bad in (math.nan, math.inf, -math.inf):
        updates = zero.clone()
        updates[2, -1] = bad
        one = case.mechanism.report(updates, SecureRng.from_seed(4))
        assert torch.equal(one.values, other.values), bad
        assert one.indices is other.indices or torch.equal(
            one.indices, other.indices
        ), bad


@every_case
def test_updates_of_another_shape_are_refused_before_anything_is_drawn(case):
    dims = case.mechanism.dims
    for updates in (
        torch.zeros(dims),
        torch.zeros(2, dims + 1),
        torch.zeros(2, dims, dtype=torch.int64),
    ):
        with pytest.raises(ValueError, match=r"updates must be \(clients"):
            case.mechanism.report(updates, NothingDrawn())


@every_case
def test_no_clients_give_an_empty_report(case):
    report = case.mechanism.report(
        torch.zeros(0, case.mechanism.dims), SecureRng.from_seed(1)
    )
    assert len(report.values) == 0
    assert torch.equal(
        report.total(), torch.zeros(case.mechanism.dims, dtype=torch.float64)
    )


@every_case
def test_the_same_generator_gives_the_same_report_and_leaves_the_updates_alone(case):
    updates = torch.tensor(case.inputs)
    kept = updates.clone()
    one, other = (
        case.mechanism.report(updates, SecureRng.from_seed(8)) for _ in range(2)
    )
    assert torch.equal(one.values, other.values)
    assert one.indices is other.indices or torch.equal(one.indices, other.indices)
    assert torch.equal(updates, kept)


@every_case
def test_an_epsilon_that_promises_nothing_is_refused(case):
    for bad in (0.0, -1.0, math.nan, math.inf, 51.0):
        with pytest.raises(ConfigError, match="epsilon must be"):
            replace(case.mechanism, epsilon=bad)


def test_mag_rr_answers_differ_by_exactly_exp_epsilon_and_follow_their_law():
    n = 10_000
    rate = 2.0
    for budget in (0.3, 2.0):
        mechanism = MagRr(epsilon=budget)
        assert mechanism.event == PureDp(budget)
        assert (1 - mechanism.flip) / mechanism.flip == pytest.approx(
            math.exp(budget), rel=1e-12
        )
        # the border, 0.5 · 2, is not small
        for update, small in (([0.2, -0.9], True), ([0.2, -1.0], False)):
            flags = mechanism.flags(
                torch.tensor([update]).repeat(n, 1), rate, SecureRng.from_seed(3)
            )
            right = int((flags == small).sum())
            expected = [n * (1 - mechanism.flip), n * mechanism.flip]
            assert chisquare([right, n - right], expected).pvalue > 1e-4
