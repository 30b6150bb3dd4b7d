"""Visits buys the levels of numbers without bins: by a first release of their fine
cells, and of nothing else.
"""

import math
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.api.plan import plan
from understudy.api.train import train
from understudy.data.kinds import kind_of, read_rows
from understudy.data.schema import Categorical, Date, Integer, Real, Schema
from understudy.data.visits import VisitSchema
from understudy.ground.errors import MessageError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import FastRng
from understudy.protocols.joint.stage import Holding, Stage
from understudy.protocols.visits import protocol as visits
from understudy.protocols.visits.fine import Bought, fine_tables, means_count
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties
from visit_cases import measured, study_of

USUAL = Budget(3.0, 1e-5)
SMALL: dict[str, Any] = {"kinds": 3, "states": 2, "steps": 5, "device": "cpu"}


def shop(**more: Any) -> VisitSchema:
    """A cost, a whole number and a time without bins, and an age; the basket has
    them.
    """
    given = {"most_events": 4, "time": "day"} | more
    return VisitSchema(
        person="id",
        people=Schema(
            columns=(
                Categorical(name="sex", categories=("f", "m")),
                Integer(name="age", low=0, high=9_999),
            )
        ),
        events=Schema(
            columns=(
                Date(name="day", low=date(2020, 1, 1), high=date(2029, 12, 31)),
                Real(name="cost", low=0, high=1e6, decimals=2, nullable=True),
                Integer(name="basket", low=0, high=99, bins=(0, 1, 5, 99)),
            )
        ),
        **given,
    )


def rows(people: int = 40, seed: int = 0) -> dict[str, pd.DataFrame]:
    """The first has no events, the last more than count."""
    rng = np.random.default_rng(seed)
    numbers = np.minimum(np.arange(people) % 4, 3)
    numbers[-1] = 9
    owner = np.repeat(np.arange(people), numbers)
    cost = rng.lognormal(5, 1, len(owner)).round(2)
    days = pd.Timestamp(2021, 1, 1) + pd.to_timedelta(
        rng.integers(0, 700, len(owner)), "D"
    )
    return {
        "people": pd.DataFrame(
            {
                "id": np.arange(people),
                "sex": rng.choice(["f", "m"], people),
                "age": rng.integers(18, 90, people),
            }
        ),
        "events": pd.DataFrame(
            {
                "id": owner,
                "day": days.strftime("%Y-%m-%d"),
                "cost": np.where(rng.random(len(owner)) < 0.1, np.nan, cost),
                "basket": rng.integers(0, 99, len(owner)),
            }
        ),
    }


def shops(
    count: int = 1,
    budget: Budget = USUAL,
    schema: VisitSchema | None = None,
    people: int = 40,
) -> Federation:
    both = rows(people)
    held = {
        f"shop {n}": {part: own[own["id"] % count == n] for part, own in both.items()}
        for n in range(count)
    }
    return Federation.rehearsal(
        held,
        dict.fromkeys(held, schema or shop()),
        budget=budget,
        seed=3,
        same_people=False,
    )


def counted(
    stage: Stage[Any], study: Any, schema: VisitSchema, held: dict[str, pd.DataFrame]
) -> torch.Tensor:
    table = read_rows(held, schema)
    own = study.rows(Holding("shop 0", table, None, lambda: FastRng(0)))
    return torch.cat([part.double() for part in stage.count(own).values()])


def some_cuts(fine: Any, rng: np.random.Generator, most: int) -> dict[str, Any]:
    """Levels of every column that begin anywhere, as no honest server would choose
    them.
    """
    found = {}
    for name, one in fine.columns.items():
        some = rng.choice(
            np.arange(1, one.last),
            min(rng.integers(0, most), one.last - 1),
            replace=False,
        )
        found[name] = torch.from_numpy(np.sort(np.append(0, some)))
    return {"cuts": found}


@pytest.mark.parametrize("cut", ["first", "draw"])
def test_a_person_moves_no_stage_by_more_than_it_says_whatever_a_server_names(
    cut: str,
) -> None:
    """With all rows of a person who has more events than count, in every cell that
    these may lie in.
    """
    schema = shop(cut=cut)
    study = study_of({"shop 0": schema})
    both = rows()
    rng = np.random.default_rng(1)
    last = both["people"]["id"].max()
    without = {part: own[own["id"] != last] for part, own in both.items()}
    assert [*study.releases] == ["fine", "tables"]
    noise = study.pricing.needed(USUAL, None)
    prices = set()
    for trial in range(6):
        stage = fine = study.stage("fine", {}, noise[0], {})
        terms = {} if trial == 0 else some_cuts(fine, rng, study.most)
        if terms:
            stage = study.stage("tables", terms, noise[1], {"fine": fine})
        moved = counted(stage, study, schema, both) - counted(
            stage, study, schema, without
        )
        most = math.hypot(*(block.sensitivity for block in stage.blocks.values()))
        assert 0 < float(moved.norm()) <= most
        for sigma in study.pricing.sigmas(
            bool(terms), stage.blocks, noise[bool(terms)]
        ).values():
            assert sigma >= most * noise[bool(terms)] * (1 - 1e-9)
        prices.add(study.pricing.event(bool(terms), noise[bool(terms)]))
    assert len(prices) == 2  # of the fine cells, and of all tables, whichever they are


def bad_cuts(study: Any) -> list[Any]:
    good = {name: torch.tensor([0, 5]) for name in study.bought}
    cells = study.bought["cost"].fine.levels
    odd = [
        [1, 5],
        [0, 5, 5],
        [0, 7, 5],
        [0, -3],
        [0, cells],
        [],
        list(range(study.most + 1)),
        [0.0, 5.0],
        [[0, 5]],
    ]
    wrong: list[Any] = [
        good | {"cost": torch.tensor(one, dtype=None if one else torch.int64)}
        for one in odd
    ]
    more = [
        good | {"basket": torch.tensor([0, 1])},
        {"cost": good["cost"]},
        good | {"cost": [0, 5]},
        [good],
        None,
    ]
    return [*wrong, *more]


def test_levels_that_no_server_may_name_are_refused_and_nothing_more_is_charged():
    study = study_of({"shop 0": shop()})
    before = {"fine": study.stage("fine", {}, 1.0, {})}
    for cuts in bad_cuts(study):
        with pytest.raises(MessageError, match="were due"):
            study.stage("tables", {"cuts": cuts}, 1.0, before)
    for terms in ({}, {"cuts": {}, "more": 1}):
        with pytest.raises(MessageError):
            study.stage("tables", terms, 1.0, before)


def test_the_first_release_is_of_fine_cells_and_is_in_the_ledger_first() -> None:
    fed = shops(2)
    config = visits.Config(**SMALL)
    found = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )
    entries = [
        entry.description
        for entry in fed.holders["shop 0"].ledger.entries()
        if entry.count
    ]
    assert [what.split(" with ")[0] for what in entries] == [
        *found.study.releases.values()
    ]
    assert fed.holders["shop 0"].ledger.spent() <= 3.0
    assert found.stage("tables").split.layout.shape(("event", 0, 0)) == (
        len(found.record.terms["tables"]["cuts"]["cost"]) + 1,
    )


def test_without_noise_every_layer_has_the_people_of_its_cells() -> None:
    fed = shops(2, Budget(math.inf, 0.0))
    config = visits.Config(**SMALL, private=False)
    found = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )
    tables = fine_tables(found)
    both = rows()
    codes = read_rows(both, shop()).codes(FastRng(0))
    fine = found.study.bought["cost"].fine
    shares = np.bincount(
        codes.events[:, 0], 1 / codes.numbers[codes.owner], minlength=fine.size
    )
    np.testing.assert_allclose(tables["cost"].numpy(), shares, atol=1e-3)
    ages = np.bincount(both["people"]["age"], minlength=10_000)
    np.testing.assert_allclose(tables["age"].numpy(), ages)
    assert found["tables"].people == 40


def test_bins_that_are_declared_stay_and_nothing_is_bought() -> None:
    binned = shop().binned(dict.fromkeys(("day", "cost", "age"), 9))
    study = study_of({"shop 0": binned})
    assert not study.bought
    assert [*study.releases] == ["tables"]
    assert study.pricing.shares == (1.0,)
    generator = train("visits", shops(schema=binned), **SMALL, seed=0).generator
    assert generator.schema == binned


@pytest.mark.long
def test_what_is_drawn_lies_where_people_are_and_a_plan_says_what_is_bought() -> None:
    """Bounds are thousands of times too wide: cut evenly, every cost would be in one of
    sixteen bins.
    """
    fed = shops(budget=Budget(1000.0, 1e-5), people=400)
    generator = train("visits", fed, **SMALL | {"steps": 30}, seed=0).generator
    people, events = generator.visits(400, seed=0)
    real = rows(400)
    assert float(people["age"].median()) == pytest.approx(
        real["people"]["age"].median(), abs=12
    )
    assert float(np.log(events["cost"]).median()) == pytest.approx(
        np.log(real["events"]["cost"]).median(), abs=0.3
    )
    assert float(events["cost"].max()) < 30_000
    assert generator.schema.events.column("cost").decimals == 2
    assert (
        events.groupby("id")["day"].first().between("2020-12-01", "2023-03-01").mean()
        > 0.9
    )
    said = plan("visits", fed.schemas, budget=USUAL, people=400)
    assert [stage.what for stage in said.stages] == ["fine cells", "all tables"]
    assert not [warning for warning in said.warnings if "cut evenly" in warning]


@pytest.mark.parametrize("private", [False, True])
def test_a_table_beside_the_events_has_its_numbers_bought_too(private: bool) -> None:
    """Over columns: every holder counts the cells of its own, and tables across holders
    are on the levels of both.
    """
    both = rows()
    rng = np.random.default_rng(5)
    bank = pd.DataFrame(
        {"client": both["people"]["id"], "wealth": rng.lognormal(9, 1, 40).round(0)}
    )
    schemas = {
        "shop": shop(),
        "bank": Schema(
            person="client", columns=(Real(name="wealth", low=0, high=1e7),)
        ),
    }
    budget = USUAL if private else Budget(math.inf, 0.0)
    fed = Federation.rehearsal(
        {"shop": both, "bank": bank}, schemas, budget=budget, seed=3
    )
    if private:
        people, _ = train("visits", fed, **SMALL, seed=0).generator.visits(50, seed=0)
        assert people["wealth"].between(0, 1e7).all()
        assert fed.holders["bank"].ledger.spent() <= 3.0
        return
    config = visits.Config(**SMALL, private=False)
    found = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )
    assert {name: one.group for name, one in found.study.bought.items()} == {  # type: ignore[attr-defined]
        "age": 0,
        "first_day": 0,
        "cost": 0,
        "day_gap": 0,
        "wealth": 1,
    }
    stage: Any = found.stage("tables")
    place = stage.split.schema.person_schema.names.index("wealth")
    edges = stage.bought["wealth"].fine.edges[stage.bought["wealth"].cuts]
    levels = np.searchsorted(edges, bank["wealth"], side="right") - 1
    np.testing.assert_allclose(
        found["tables"].tables["person", place, place], np.bincount(levels)
    )


def test_the_canary_of_an_audit_moves_the_first_release_by_all_that_a_person_may():
    study = study_of({"shop 0": shop()})
    made = kind_of(shop()).made_up(shop(), 4)
    stage = study.stage("fine", {}, 1.0, {})
    everybody, others = (
        stage.count(
            study.rows(Holding("shop 0", made.take(np.arange(first, 4)), None, FastRng))
        )
        for first in (0, 1)
    )
    for name, block in stage.blocks.items():
        moved = float((everybody[name] - others[name]).double().norm())
        assert moved <= block.sensitivity
        # the first of four events has no gap, so that no cell has all of a person: no
        # rows move gaps by all that is paid for
        share = 3 / 4 if name == "day_gap" else 1
        assert moved >= share * block.sensitivity * (1 - 1e-9)


def test_what_is_drawn_keeps_values_apart_that_stand_out_and_nothing_lies_beyond_all_people():
    column = Integer(name="minutes", low=0, high=999)
    table = torch.zeros(1000, dtype=torch.float64)
    table[0:50:5] = 100.0
    finer = Bought(
        "minutes",
        column,
        replace(column, bins=1000),
        0,
        "events",
        0,
        np.array([0, 12, 30]),
    ).finer(table)
    assert {0, 12, 30} <= {*finer.cuts.tolist()}
    assert {cut for value in range(0, 50, 5) for cut in (value, value + 1)} <= {
        *finer.cuts.tolist()
    }
    held = np.add.reduceat(table.numpy(), finer.cuts)
    assert held[-1] == 0
    assert set(held) == {0.0, 100.0}


def rising(people: int, seed: int = 0, *, tied: bool = True) -> dict[str, pd.DataFrame]:
    """Events of whom the old have twice as many, or anybody as many."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 90, people)
    mean = np.where(age < 45, 3.0, 8.0) if tied else np.full(people, 5.0)
    numbers = np.minimum(rng.poisson(mean), 16)
    owner = np.repeat(np.arange(people), numbers)
    days = pd.Timestamp(2021, 1, 1) + pd.to_timedelta(
        rng.integers(0, 700, len(owner)), "D"
    )
    sex = rng.choice(["f", "m"], people)
    return {
        "people": pd.DataFrame({"id": np.arange(people), "sex": sex, "age": age}),
        "events": pd.DataFrame(
            {
                "id": owner,
                "day": days.strftime("%Y-%m-%d"),
                "cost": rng.lognormal(5, 1, len(owner)).round(2),
                "basket": rng.integers(0, 99, len(owner)),
            }
        ),
    }


def by_age(people: pd.DataFrame, events: pd.DataFrame) -> list[float]:
    """The mean number of events below 45, and from there on."""
    number = people["id"].map(events.groupby("id").size()).fillna(0)
    return [
        float(number[old].mean()) for old in (people["age"] < 45, people["age"] > 44)
    ]


def test_numbers_of_events_have_few_levels_and_tables_on_them_are_those_of_rows() -> (
    None
):
    """Without noise: people by age and number of events, as a loop over rows finds
    them.
    """
    schema = shop(most_events=16)
    both = rising(300)
    fed = Federation.rehearsal(
        {"shop": both}, {"shop": schema}, budget=Budget(math.inf, 0.0), seed=3
    )
    config = visits.Config(**SMALL, private=False)
    found = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )
    stage: Any = found.stage("tables")
    number, age = stage.bought["number_of_events"], stage.bought["age"]
    assert number.cuts[:2].tolist() == [0, 1]
    assert len(number.cuts) <= found.study.most  # type: ignore[attr-defined]
    numbers = np.bincount(both["events"]["id"], minlength=300)
    table = np.zeros((len(age.cuts), len(number.cuts)))
    for person, events in zip(both["people"]["age"], numbers, strict=True):
        row = np.searchsorted(age.cuts, person, side="right") - 1
        table[row, np.searchsorted(number.cuts, events, side="right") - 1] += 1
    np.testing.assert_allclose(found["tables"].tables["person", 1, 3].numpy(), table)
    starts = stage.split.schema.person_schema.columns[-1].edges[:-1]
    assert starts.tolist() == number.cuts.tolist()


@pytest.mark.parametrize(("noise", "levels"), [(1e9, 3), (42.0, 6), (12.0, 9), (0, 32)])
def test_there_are_as_many_levels_as_the_cube_root_of_people_by_noise(
    noise: float, levels: int
) -> None:
    assert means_count(8_000, noise, 32) == levels


def test_what_ties_people_to_events_has_fewer_levels_than_what_else_an_event_has():
    study = study_of({"shop 0": shop(most_events=32)})
    even = {
        name: torch.full((one.fine.size,), 8_000 / one.fine.levels).double()
        for name, one in study.bought.items()
    }
    levels = {
        name: len(one.chosen(even[name], 42.0, study.most))
        for name, one in study.bought.items()
    }
    assert levels == {
        "age": 6,
        "first_day": 6,
        "number_of_events": 7,  # none of them, and six
        "day_gap": 6,
        "cost": 13,
    }


def test_nobody_without_events_is_in_a_level_with_others() -> None:
    study = study_of({"shop 0": shop(most_events=16)})
    number = study.bought["number_of_events"]
    table = torch.tensor([1.0, 2.0, *[50.0] * 15], dtype=torch.float64)
    cuts = number.chosen(table, 30.0, study.most)
    assert cuts[:2].tolist() == [0, 1]
    before = {"fine": study.stage("fine", {}, 1.0, {})}
    good = {name: torch.tensor([0, 1]) for name in study.bought}
    study.stage("tables", {"cuts": good}, 1.0, before)
    wrong = good | {"number_of_events": torch.tensor([0, 2])}
    with pytest.raises(MessageError, match="were due"):
        study.stage("tables", {"cuts": wrong}, 1.0, before)


@pytest.mark.long
@pytest.mark.parametrize("tied", [True, False])
def test_who_has_how_many_events_is_drawn_as_it_is(tied: bool) -> None:
    """Those who are old have more where they do, and else nobody has."""
    both = rising(1_500, tied=tied)
    fed = Federation.rehearsal(
        {"shop": both},
        {"shop": shop(most_events=16)},
        budget=Budget(20.0, 1e-5),
        seed=3,
    )
    settings = SMALL | {"kinds": 64, "states": 4, "steps": 600}
    generator = train("visits", fed, **settings, seed=0).generator
    drawn = by_age(*generator.visits(1_500, seed=0))
    assert drawn == pytest.approx(by_age(**both), rel=0.15)
