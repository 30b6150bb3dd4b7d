"""The words follow the figures: tables whose quality is known get the verdict that they
deserve.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from report_cases import columns_of

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Integer, Real, Schema
from understudy.evaluate.attacks.attack import Attack, Measure
from understudy.evaluate.attacks.rates import Rate
from understudy.evaluate.comparison import ColumnShares, Comparison, compare
from understudy.evaluate.figure import Figure, FigureKey
from understudy.evaluate.utility.predictions import Predictions
from understudy.privacy.accounts.budget import ADJACENCY
from understudy.report.findings import Finding, headline
from understudy.report.marks import (
    column_mark,
    dependence_mark,
    figure_mark,
    number_mark,
    scale_position,
)
from understudy.report.model_findings import (
    column_prediction_findings,
    leading_figure,
    prediction_findings,
)
from understudy.report.verdict import verdict


def test_columns_that_have_no_dependence_are_not_said_to_have_lost_it() -> None:
    rng = np.random.default_rng(3)
    schema = Schema(columns=tuple(Integer(name=n, low=0, high=5) for n in "abc"))
    real, made = (
        pd.DataFrame({n: rng.integers(0, 6, 3_000) for n in "abc"}) for _ in range(2)
    )
    for rows, words in (
        (made, "show no dependence to speak of, as in the real rows"),
        (made.assign(b=made["a"]), "show dependence that the real rows do not have"),
    ):
        found = {f.subject: f for f in verdict(compare(real, rows, schema), None)}
        assert {
            found[subject].statement for subject in ("pairs of columns", "correlations")
        } == {words}
        assert (found["correlations"].mark == "good") is (rows is made)


OWNERS = dict.fromkeys(
    ("colour", "grade", "smoker", "treated"), "clinic"
) | dict.fromkeys(("age", "visits", "income", "joined"), "insurer")


class Noise:
    """Seeded numbers in [0, 1)."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)


def lower(value: float | None, floor: float | None, ceiling: float | None) -> Figure:
    return Figure(
        FigureKey("f"),
        value=value,
        floor=floor,
        ceiling=ceiling,
        reason="" if value is not None else "r",
    )


@pytest.mark.parametrize(
    ("figure", "where", "said"),
    [
        (lower(0.1, 0.1, 0.5), 0.0, "good"),
        (lower(0.2, 0.1, 0.5), 0.25, "good"),
        (lower(0.3, 0.1, 0.5), 0.5, "partly"),
        (lower(0.45, 0.1, 0.5), 0.875, "poor"),
        (lower(0.9, 0.1, 0.5), 2.0, "poor"),
        (lower(0.1, 0.1, 0.105), None, "good"),
        (lower(0.3, 0.3, 0.305), None, "unknown"),
        (lower(0.4, 0.1, 0.105), None, "poor"),
        (lower(0.4, 0.1, None), None, "unknown"),
        (lower(None, None, None), None, "unknown"),
        (
            Figure(FigureKey("s"), value=0.9, floor=0.5, ceiling=0.9, better="higher"),
            0.0,
            "good",
        ),
        (
            Figure(FigureKey("s"), value=0.4, floor=0.5, ceiling=0.9, better="higher"),
            1.25,
            "poor",
        ),
        (
            Figure(FigureKey("s"), value=0.5, floor=0.5, ceiling=0.51, better="higher"),
            None,
            "unknown",
        ),
    ],
)
def test_a_figure_is_marked_by_its_place_between_its_ends(
    figure: Figure, where: float | None, said: str
) -> None:
    assert scale_position(figure) == (None if where is None else pytest.approx(where))
    assert figure_mark(figure) == said


@pytest.fixture(scope="module")
def population() -> pd.DataFrame:
    return toy(rows=4000, seed=3)[0].drop(columns="id")


def judged(
    real: pd.DataFrame, synthetic: pd.DataFrame, **settings: Any
) -> dict[str, Finding]:
    findings = verdict(
        compare(real, synthetic, toy(rows=2)[1], owners=OWNERS, **settings),
        None,
        "verti-gan",
    )
    return {finding.subject: finding for finding in findings}


def test_a_fresh_sample_of_the_same_people_is_close_in_everything(
    population: pd.DataFrame,
) -> None:
    found = judged(population[:2000], population[2000:].reset_index(drop=True))
    for subject in (
        "single columns",
        "pairs within a party",
        "pairs across parties",
        "correlations",
    ):
        assert found[subject].mark == "good", found[subject]


def test_independent_columns_are_called_that(population: pd.DataFrame) -> None:
    found = judged(population[:2000], columns_of(population[2000:], seed=5))
    assert found["single columns"].mark == "good"
    for subject in ("pairs within a party", "pairs across parties", "correlations"):
        assert found[subject].mark == "poor", found[subject]
    assert "does not learn" in found["pairs across parties"].detail
    assert "does not learn" not in found["pairs within a party"].detail


def test_levels_drawn_evenly_from_the_schema_are_called_that(
    population: pd.DataFrame,
) -> None:
    codec = Codec(toy(rows=2)[1])
    rng = np.random.default_rng(0)
    even = np.stack(
        [rng.integers(size, size=4000) for size in codec.sizes], axis=1
    ).astype(np.int32)
    found = judged(population, codec.decode(even))
    assert (
        found["single columns"].statement
        == "are no better than equal shares of every level"
    )


@pytest.mark.long
def test_a_perfect_table_is_close_even_where_rows_are_few_and_levels_many() -> None:
    rng = np.random.default_rng(4)
    names = [f"c{i}" for i in range(8)]
    weights = rng.normal(size=(2, 8))

    def draw() -> pd.DataFrame:
        cells = rng.normal(size=(1500, 2)) @ weights + rng.normal(size=(1500, 8))
        return pd.DataFrame(np.clip(cells, -5, 5), columns=names)

    schema = Schema(
        columns=tuple(Real(name=name, low=-5, high=5, bins=16) for name in names)
    )
    owners = {name: "clinic" if i < 4 else "insurer" for i, name in enumerate(names)}
    found = {
        f.subject: f
        for f in verdict(compare(draw(), draw(), schema, owners=owners), None)
    }
    for subject in (
        "single columns",
        "pairs within a party",
        "pairs across parties",
        "correlations",
    ):
        assert found[subject].mark == "good", found[subject]
    lost = {
        f.subject: f
        for f in verdict(
            compare(draw(), columns_of(draw(), 1), schema, owners=owners), None
        )
    }
    for subject in ("pairs within a party", "pairs across parties", "correlations"):
        assert lost[subject].mark == "poor", lost[subject]


def pareto(rows: int, seed: int) -> pd.DataFrame:
    """An income with a long tail, most of it within a thousandth of its bounds, and a
    tax that follows it.
    """
    rng = np.random.default_rng(seed)
    income = np.minimum(500 * (1 + rng.pareto(1.5, rows)), 9e6)
    return pd.DataFrame(
        {"income": income, "tax": np.log10(income) * 10 + rng.normal(0, 1, rows)}
    )


INCOMES = Schema(
    columns=(Real(name="income", low=0, high=1e7), Real(name="tax", low=0, high=100))
)


def drawn_in_bins(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the same levels, evenly drawn inside their bins."""
    codec = Codec(INCOMES)
    return codec.decode(codec.codes(frame), Noise(torch.Generator().manual_seed(0)))


def test_an_income_that_is_right_in_its_bins_and_wrong_in_them_gets_no_tick() -> None:
    real = pareto(4000, 1)
    found = compare(real, drawn_in_bins(pareto(4000, 2)), INCOMES)
    income, _ = found.shares
    assert income.figure is not None
    assert income.numbers is not None
    assert income.numbers.median is not None
    true, made = income.numbers.median
    assert made > 100 * true
    assert figure_mark(income.figure) == "good"
    assert (number_mark(income.numbers), column_mark(income)) == ("poor", "poor")
    said = {finding.subject: finding for finding in verdict(found, None)}
    assert said["single columns"].mark in ("partly", "poor")
    assert (
        f"“income”: KS {income.numbers.figures[0].value:.3f}"
        in said["single columns"].detail
    )
    assert said["correlations"].mark in ("partly", "poor"), said["correlations"]
    fresh = compare(real, pareto(4000, 3), INCOMES)
    assert [column_mark(share) for share in fresh.shares] == ["good", "good"]
    assert {f.subject: f.mark for f in verdict(fresh, None)}["correlations"] == "good"


def test_zeros_that_are_lost_get_no_tick() -> None:
    rng = np.random.default_rng(5)
    schema = Schema(columns=(Real(name="gain", low=0, high=100, bins=50),))
    real, fresh = (
        pd.DataFrame({"gain": rng.exponential(0.4, 2000) * (rng.random(2000) < 0.3)})
        for _ in range(2)
    )
    near = fresh.assign(gain=fresh["gain"].where(fresh["gain"] > 0, 1e-6))
    assert [
        column_mark(compare(real, made, schema).shares[0]) for made in (fresh, near)
    ] == ["good", "poor"]


@pytest.mark.parametrize("seed", range(3))
def test_too_few_real_rows_can_show_that_numbers_are_wrong_and_never_that_they_are_close(
    seed: int,
) -> None:
    real = pareto(60, seed)
    other = pareto(60, seed + 10)
    assert compare(real, other, INCOMES).shares[0].numbers is not None
    assert column_mark(compare(real, other, INCOMES).shares[0]) != "good"
    assert column_mark(compare(real, drawn_in_bins(other), INCOMES).shares[0]) == "poor"


def test_weak_dependence_that_is_noise_is_not_called_lost() -> None:
    assert dependence_mark(lower(0.013, 0.010, 0.0105)) == "good"
    assert dependence_mark(lower(0.09, 0.010, 0.0105)) == "partly"
    assert dependence_mark(lower(0.09, 0.010, 0.1)) == "poor"
    assert dependence_mark(lower(None, None, None)) == "unknown"


def test_a_copy_of_the_training_rows_is_caught_by_an_attack(
    population: pd.DataFrame,
) -> None:
    train = population[:150]
    unseen = population[150:300].reset_index(drop=True)
    found = judged(train, train.copy(), holdout=unseen)
    (attacks,) = [finding for finding in found.values() if finding.section == "attacks"]
    assert attacks.mark == "poor"
    assert "beat their control" in attacks.statement
    assert "more than chance, at 2.5 % for all together" in attacks.detail


def test_without_outsiders_attacks_are_not_known_and_the_reason_is_given(
    population: pd.DataFrame,
) -> None:
    found = judged(population[:200], population[200:400].reset_index(drop=True))
    assert found["attacks"].mark == "unknown"
    assert "secret coin" in found["attacks"].detail


def attack(p: float, people: int = 100) -> Attack:
    rates = Rate(0.6, 0.5, 0.7), Rate(0.5, 0.4, 0.6), Rate.from_exact(0.5)
    return Attack(
        key=FigureKey("mia"), measures=(Measure("acc", *rates, p),), control=people
    )


@pytest.mark.parametrize(
    ("attacks", "said", "words"),
    [
        (
            (attack(0.3),),
            "good",
            "1 attack was tried; none did better than its control by more than chance",
        ),
        (
            (attack(0.03), attack(0.9)),
            "good",
            "2 attacks were tried; none did better than its control",
        ),
        (
            (attack(0.01), attack(0.9)),
            "poor",
            "2 attacks were tried; mia did better than the control by more",
        ),
        ((attack(0.01, people=19), attack(0.9)), "good", "1 attack was tried; none"),
        ((attack(0.01, people=19),), "unknown", "Its control has 19 people"),
    ],
)
def test_attacks_are_judged_together_at_5_per_cent_and_the_words_say_so(
    population: pd.DataFrame, attacks: tuple[Attack, ...], said: str, words: str
) -> None:
    plain = compare(population[:50], population[50:99], toy(rows=2)[1])
    comparison = Comparison(
        evaluation=plain.evaluation, figures=(), shares=(), attacks=attacks
    )
    (found,) = [f for f in verdict(comparison, None) if f.section == "attacks"]
    assert found.mark == said
    assert words in found.detail
    assert ("at 2.5 % for all together" in found.detail) == (said != "unknown")


def statement(
    *, server: float | None, unguarded: list[str] | None = None
) -> dict[str, Any]:
    person = {
        "same_people": True,
        "delta": 1e-5,
        "epsilon": {"outsider": 0.5, "server": server},
    }
    return {
        "person": person,
        "parties": [{}, {}],
        "unguarded": unguarded or [],
        "adjacency": ADJACENCY,
    }


@pytest.mark.parametrize(
    ("server", "said", "badge"),
    [(0.9, "good", "strong"), (5.0, "partly", "reasonable"), (20.0, "poor", "weak")],
)
def test_the_price_is_the_worst_over_everyone_named(
    server: float, said: str, badge: str
) -> None:
    (found,) = verdict(None, statement(server=server))
    assert (found.mark, found.badge) == (said, badge)
    assert f"{server:g}" in found.statement
    assert "over 2 parties" in found.statement


@pytest.mark.parametrize("server", [None, math.inf])
def test_an_infinite_price_is_no_guarantee(server: float | None) -> None:
    (found,) = verdict(None, statement(server=server))
    assert found.mark == "poor"
    assert "no formal guarantee" in found.statement


def test_an_unguarded_part_spoils_a_small_epsilon() -> None:
    (found,) = verdict(None, statement(server=0.6, unguarded=["the synthetic rows"]))
    assert found.mark == "poor"


def test_an_assumption_that_nobody_colludes_is_said_and_is_no_failure() -> None:
    (found,) = verdict(
        None,
        statement(
            server=0.6, unguarded=["rows against the server together with a holder"]
        ),
    )
    assert (found.mark, found.badge) == ("partly", "strong, if they do not collude")
    assert "do not pool what they know" in found.detail
    (found,) = verdict(
        None, statement(server=0.6, unguarded=["rows against a holder that departs"])
    )
    assert found.badge == "strong, if all follow the protocol"


def test_a_column_of_even_shares_is_close_although_a_naive_table_is_too() -> None:
    column = Boolean(name="sex")
    even = Figure(
        FigureKey("avd", 1), value=0.012, floor=0.004, ceiling=0.006, better="lower"
    )
    shares = ColumnShares(
        column=column, owner=None, synthetic=np.array([0.49, 0.51]), figure=even
    )
    assert figure_mark(even) == "poor"
    assert column_mark(shares) == "good"
    off = replace(even, value=0.05)
    assert column_mark(replace(shares, figure=off)) == "poor"


def test_the_headline_says_each_judgement_once_with_all_its_subjects() -> None:
    findings = [
        Finding("poor", "pairs within a party", "are mostly lost", "", "utility"),
        Finding("good", "single columns", "are close to the real rows", "", "utility"),
        Finding("poor", "correlations", "are mostly lost", "", "correlations"),
    ]
    expected = (
        "Pairs within a party and correlations are mostly lost. Single columns are "
        "close to the real rows."
    )
    assert headline(findings) == expected


def score(model: str, real: float, synthetic: float, deviation: float) -> Figure:
    return Figure(
        FigureKey("tstr", part=model, score="auc"),
        value=synthetic,
        floor=0.5,
        ceiling=real,
        better="higher",
        deviation=deviation,
    )


def test_of_models_that_learn_alike_the_one_that_loses_most_is_judged() -> None:
    kind = score("mlp", 1.0, 0.99, 0.001)
    unkind = score("boosting", 0.985, 0.9, 0.001)
    weak = score("linear", 0.8, 0.5, 0.001)
    leading = leading_figure((kind, unkind, weak))
    assert leading == unkind
    (finding,) = prediction_findings(leading, "predictions of “class”")
    assert finding.mark == "partly"
    assert leading_figure((kind, weak)) == kind


@pytest.mark.parametrize(
    ("deviation", "mark"), [(0.001, "good"), (0.02, "good"), (0.03, "unknown")]
)
def test_predictions_are_not_close_where_the_tested_rows_are_too_few_to_say_so(
    deviation: float, mark: str
) -> None:
    (finding,) = prediction_findings(
        score("mlp", 0.8, 0.79, deviation), "predictions of “class”"
    )
    assert finding.mark == mark
    quick = score("quick", 0.8, 0.79, deviation)
    column = replace(quick, key=replace(quick.key, column="age"))
    (of_columns,) = column_prediction_findings(Predictions((column,)))
    assert of_columns.mark == mark
    assert ("it may be up to 0.059 below" in of_columns.detail) is (mark == "unknown")
