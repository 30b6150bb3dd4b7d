"""What is said before a run of columns of events whose bounds are too wide for their
mean to be told from noise.
"""

from dataclasses import replace

import numpy as np
import pytest

from understudy.api.plan import plan
from understudy.data.schema import Categorical, Integer, Real, Schema
from understudy.data.visits import VisitLayout, VisitSchema
from understudy.models.visits import fit
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.visits.wide import middles, uncertain, wide_columns
from visit_cases import two_kinds

USUAL = Budget(1.0, 1e-5)
NARROW = (0, 1, 20, 50, 100, 200, 400, 800, 2_000)
COST = Real(name="cost", low=0, high=2_000, bins=NARROW)
WIDE = Real(name="cost", low=0, high=40_000, bins=(*NARROW, 10_000, 40_000))


def schema(*columns: Real | Integer) -> VisitSchema:
    return VisitSchema(
        person="id",
        most_events=5,
        people=Schema(columns=(Categorical(name="sex", categories=("f", "m")),)),
        events=Schema(columns=columns),
    )


def test_a_plan_warns_of_a_bound_that_holds_every_outlier_and_not_of_one_where_amounts_are_cut():
    wide, narrow = (
        plan("visits", {"clinic": schema(column)}, budget=USUAL, people=5_912).warnings
        for column in (WIDE, COST)
    )
    assert not narrow
    (said,) = wide
    assert '"cost" reaches from 0 to 40,000' in said
    assert "Cut amounts" in said
    more = plan(
        "visits", {"clinic": schema(WIDE)}, budget=Budget(8.0, 1e-6), people=200_000
    )
    assert not more.warnings, "many people and a large budget make up for it"
    assert not plan("visits", {"clinic": schema(WIDE)}, budget=USUAL).warnings, (
        "nobody said how many people"
    )


def test_a_column_that_is_cut_evenly_is_held_against_half_of_its_first_level() -> None:
    column = Real(name="cost", low=0, high=40_000, bins=20)
    few, many = (
        plan("visits", {"a": schema(column)}, budget=USUAL, people=n).warnings
        for n in (1_000, 90_000)
    )
    assert "it is cut evenly" in few[0]
    assert "Declare bins" in few[0]
    assert not many
    bought = plan(
        "visits", {"a": schema(replace(column, bins=None))}, budget=USUAL, people=1_000
    )
    assert not bought.warnings, "its levels lie where people are"
    assert not plan(
        "visits",
        {"a": schema(Integer(name="days", low=0, high=3))},
        budget=USUAL,
        people=1_000,
    ).warnings


def test_a_plan_names_what_is_counted_of_events_that_are_far_apart() -> None:
    day = Integer(name="day", low=0, high=30, bins=3)
    ordered = replace(schema(COST, day), time="day")
    assert "a count of people by two events with three between" in {
        e.what for e in plan("visits", {"a": ordered}, budget=USUAL).errors
    }


def test_a_plan_says_seconds_that_grow_with_people_columns_and_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # of this machine, which does more than one thing
    monkeypatch.setattr(fit, "unit_seconds", lambda: 2e-3)

    def seconds(own: VisitSchema, people: int = 1_000) -> float:
        said = plan("visits", {"a": own}, budget=USUAL, people=people)
        assert "Takes about" in str(said)
        return said.seconds or 0.0

    one = schema(COST)
    two = schema(COST, replace(COST, name="fee"))
    assert (
        seconds(one)
        < seconds(two)
        < seconds(two, 9_000)
        < seconds(replace(two, most_events=500), 9_000)
    )


def test_a_plan_of_events_at_another_holder_than_people_says_how_long_their_alignment_takes():
    whole = schema(COST)
    assert whole.people is not None
    apart = {
        "a": replace(whole.people, person=whole.person),
        "b": replace(whole, people=None),
    }
    takes = plan("visits", apart, budget=USUAL, people=20_000).takes
    assert takes["alignment"] == pytest.approx(20_000 * 2**2 * 1e-4)
    assert (
        "alignment"
        not in plan("visits", {"a": whole}, budget=USUAL, people=20_000).takes
    )


def test_the_uncertainty_is_that_of_the_best_estimate_from_all_tables_of_the_column():
    other = Integer(name="days", low=0, high=3)
    layout = VisitLayout.from_schema(schema(WIDE, other))
    noise = {block: 3.0 if block[0] == "event" else 2.0 for block in layout.blocks}
    rng = np.random.default_rng(0)
    draws = 20_000
    levels = WIDE.size
    # its own table, one with days (4 levels), and with sex (2) and the number of events
    # (6)
    estimates = [
        (rng.normal(0, sd, (draws, levels, beside)).sum(2), 1 / (beside * sd**2))
        for sd, beside in ((3.0, 1), (3.0, 4), (2.0, 2), (2.0, 6))
    ]
    best = sum(weight * found for found, weight in estimates) / sum(
        weight for _, weight in estimates
    )
    found = middles(WIDE)
    off = best @ (found - np.median(found))
    assert uncertain(WIDE, 0, "events", layout, noise) == pytest.approx(
        off.std(), rel=0.03
    )


def test_middles_are_those_of_what_a_level_holds() -> None:
    assert middles(Integer(name="n", low=0, high=9, bins=(0, 5, 9))).tolist() == [
        2.0,
        7.0,
    ]
    assert middles(COST)[:2].tolist() == [0.5, 10.5]


def test_of_several_kinds_of_events_each_is_told_by_its_own_tables_and_what_may_be_negative_is_left_out():
    _, schemas = two_kinds()
    insurer = schemas["insurer"]
    columns = (
        *insurer.events.columns,
        WIDE,
        Real(name="change", low=-40_000, high=40_000, bins=9),
    )
    wide = schemas | {"insurer": replace(insurer, events=Schema(columns=columns))}
    said = [
        word
        for word in plan("visits", wide, budget=USUAL, people=3_000).warnings
        if "reaches" in word
    ]
    assert [word.split('"')[1] for word in said] == ["cost"]


def test_without_noise_nothing_is_uncertain() -> None:
    layout = VisitLayout.from_schema(schema(WIDE))
    assert not list(
        wide_columns(schema(WIDE), layout, dict.fromkeys(layout.blocks, 0.0), 100)
    )
