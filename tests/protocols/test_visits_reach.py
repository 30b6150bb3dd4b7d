"""Visits over columns without bounds: where numbers, days and times are is released
first, and by nothing else.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gram_cases import Seen, asked
from test_visits_fine import SMALL, USUAL, counted, rows, shop, some_cuts

from refusals import raises
from understudy.api.plan import plan
from understudy.api.train import train
from understudy.data.column import Integer, Real, is_unbounded
from understudy.data.encoding.fine import reach
from understudy.data.kinds import read_rows
from understudy.data.schema import Schema
from understudy.data.visits import VisitSchema
from understudy.ground.errors import Effect, MessageError, SchemaError, UnderstudyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import FastRng
from understudy.protocols.joint.messages import Propose, Release
from understudy.protocols.visits import protocol as visits
from understudy.protocols.visits.fine import fine_tables
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties
from visit_cases import measured, study_of

ANY = ("age", "day", "cost")  # of people, of events, and the time


def opened(**more: Any) -> VisitSchema:
    """The shop without a bound, but for the basket, which has bins."""
    declared = shop(**more)
    tables = {
        part: replace(
            own,
            columns=tuple(
                replace(c, low=None, high=None) if c.name in ANY else c
                for c in own.columns
            ),  # type: ignore[call-arg]
        )
        for part, own in declared.tables.items()
    }
    return replace(declared, **tables)  # type: ignore[arg-type]


def shops(count: int = 2, budget: Budget = USUAL, people: int = 40) -> Federation:
    both = rows(people)
    held = {
        f"shop {n}": {part: own[own["id"] % count == n] for part, own in both.items()}
        for n in range(count)
    }
    return Federation.rehearsal(
        held, dict.fromkeys(held, opened()), budget=budget, seed=3, same_people=False
    )


def some_runs(study: Any, rng: np.random.Generator) -> torch.Tensor:
    """Anywhere, as no honest server would say it."""
    return torch.tensor(
        [sorted(rng.integers(0, one.fine.levels, 2)) for one in study.public.values()]
    )


@pytest.mark.parametrize("cut", ["first", "draw"])
def test_a_person_moves_no_stage_by_more_than_it_says_wherever_a_server_says_that_people_are(
    cut: str,
) -> None:
    schema = opened(cut=cut)
    both = rows()
    rng = np.random.default_rng(1)
    study = study_of({"shop 0": schema})
    assert [*study.releases] == ["reach", "fine", "tables"]
    assert {*study.public} == {*ANY}
    last = both["people"]["id"].max()
    without = {part: own[own["id"] != last] for part, own in both.items()}
    noise = study.pricing.needed(USUAL, None)
    for _ in range(3):
        fine: Any = study.stage("fine", {"runs": some_runs(study, rng)}, noise[1], {})
        cuts = some_cuts(fine, rng, study.most)
        stages = [
            study.stage("reach", {}, noise[0], {}),
            fine,
            study.stage("tables", cuts, noise[2], {"fine": fine}),
        ]
        for number, stage in enumerate(stages):
            moved = counted(stage, study, schema, both) - counted(
                stage, study, schema, without
            )
            most = math.hypot(*(block.sensitivity for block in stage.blocks.values()))
            assert 0 < float(moved.norm()) <= most
            for sigma in study.pricing.sigmas(
                number, stage.blocks, noise[number]
            ).values():
                assert sigma >= most * noise[number] * (1 - 1e-9)


def test_without_noise_bounds_hold_everybody_and_every_layer_has_the_people_of_its_cells():
    fed = shops(budget=Budget(math.inf, 0.0))
    both = rows()
    config = visits.Config(**SMALL, private=False)
    found = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )
    within: Any = found.stage("fine").within  # type: ignore[attr-defined]
    schema = within.schemas["shop 0"]
    cost = schema.events.column("cost")
    assert (
        cost.low
        <= both["events"]["cost"].min()
        <= both["events"]["cost"].max()
        <= cost.high
    )
    assert (str(schema.clock.low), str(schema.clock.high)) == (
        "2020-01-01",
        "2029-12-31",
    )
    # by the same bounds, as if they had been declared
    codes = read_rows(both, schema).codes(FastRng(0))
    fine = within.bought["cost"].fine
    shares = np.bincount(
        codes.events[:, 0], 1 / codes.numbers[codes.owner], minlength=fine.size
    )
    np.testing.assert_allclose(fine_tables(found)["cost"].numpy(), shares, atol=1e-3)
    first = np.bincount(
        codes.people[:, 2], minlength=within.bought["first_day"].fine.size
    )
    np.testing.assert_allclose(fine_tables(found)["first_day"].numpy(), first)
    loose = read_rows(both, opened()).codes(FastRng(0), schema)
    for part in ("people", "events", "starts"):
        np.testing.assert_array_equal(getattr(loose, part), getattr(codes, part))


def wrong_runs(study: Any) -> list[Any]:
    last = torch.tensor([[0, one.fine.levels - 1] for one in study.public.values()])
    absurd = [[0, 2**40], [-1, 1], [3, 2], [0, reach(Integer(name="n")).levels]]
    odd: list[Any] = [torch.cat([torch.tensor([one]), last[1:]]) for one in absurd]
    return [
        *odd,
        last[:-1],
        last.double(),
        last.flatten(),
        last.T,
        last.tolist(),
        None,
        torch.tensor(math.nan),
    ]


def test_runs_that_there_are_not_and_stages_out_of_turn_are_refused_and_nothing_more_is_charged():
    fed = shops()
    config = visits.Config(**SMALL)
    parties = fed.parties("visits", run="r", config=config)
    study = visits.VisitStudy(config, fed.schemas)
    ledgers = [holder.ledger for holder in fed.holders.values()]
    again: list[Any] = []

    def paid() -> list[int]:
        return [
            len([entry for entry in ledger.entries() if entry.count])
            for ledger in ledgers
        ]

    def change(name: str, message: Any) -> Any:
        if isinstance(message, Release) and not again:
            again.append(message)
        if not asked(message, "fine", Propose):
            return message
        assert paid() == [1, 1]
        for early in (again[0], replace(message, stage="tables", terms={"cuts": {}})):
            # the first release once more, or the last one before its turn
            with pytest.raises(UnderstudyError):
                parties[name].answer(early)
        for runs in wrong_runs(study):
            with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
                parties[name].answer(replace(message, terms={"runs": runs}))
        return replace(message, terms={})

    with raises(MessageError, effect=Effect.NOTHING_CHARGED):
        measured(Seen(parties, change), fed.schemas, config)  # type: ignore[arg-type]
    assert paid() == [1, 1]


def test_other_runs_for_one_holder_are_found_out_before_anything_is_released_on_them():
    fed = shops()
    config = visits.Config(**SMALL)
    parties = fed.parties("visits", run="r", config=config)
    study = visits.VisitStudy(config, fed.schemas)

    def change(name: str, message: Any) -> Any:
        if name != "shop 0" or not asked(message, "fine", Propose):
            return message
        return replace(
            message, terms={"runs": some_runs(study, np.random.default_rng(4))}
        )

    with pytest.raises(MessageError, match="was told other terms"):
        measured(Seen(parties, change), fed.schemas, config)  # type: ignore[arg-type]
    assert all(
        len([e for e in one.ledger.entries() if e.count]) == 1
        for one in fed.holders.values()
    )


@pytest.mark.parametrize("value", ["inf", "-inf", "1e400"])
def test_what_is_not_finite_is_refused_where_it_is_read_and_missing_is_not(
    value: str,
) -> None:
    both = rows()
    both["events"] = both["events"].astype({"cost": object})
    both["events"].loc[3, "cost"] = value
    with pytest.raises(SchemaError, match="cost"):
        read_rows(both, opened())
    both["events"].loc[3, "cost"] = np.nan
    held = read_rows(both, opened())
    assert int(np.isnan(held.loose["cost"]).sum()) == int(
        both["events"]["cost"].isna().sum()
    )
    both["people"] = both["people"].astype({"age": float})
    both["people"].loc[1, "age"] = np.nan
    with pytest.raises(SchemaError, match="age"):
        read_rows(both, opened())


@pytest.mark.long
def test_every_release_is_in_the_ledger_first_and_what_is_drawn_lies_where_people_are():
    fed = shops(1, Budget(1000.0, 1e-5), people=400)
    real = rows(400)
    generator = train("visits", fed, **SMALL | {"steps": 30}, seed=0).generator
    entries = [
        entry.description
        for entry in fed.holders["shop 0"].ledger.entries()
        if entry.count
    ]
    study = study_of(fed.schemas)
    assert [what.split(" with ")[0] for what in entries] == [*study.releases.values()]
    people, events = generator.visits(400, seed=0)
    assert not any(
        is_unbounded(c) for own in generator.schema.tables.values() for c in own.columns
    )
    assert float(people["age"].median()) == pytest.approx(
        real["people"]["age"].median(), abs=12
    )
    assert float(np.log(events["cost"]).median()) == pytest.approx(
        np.log(real["events"]["cost"]).median(), abs=0.3
    )
    assert events["day"].between("2020-01-01", "2029-12-31").all()
    assert generator.schema.events.column("cost").decimals == 2
    said = plan("visits", fed.schemas, budget=USUAL, people=400)
    assert [stage.what for stage in said.stages] == [
        "public cells",
        "fine cells",
        "all tables",
    ]
    assert sum(stage.share for stage in said.stages) == pytest.approx(1)


def test_a_table_beside_the_events_needs_no_bounds_either_and_gaps_longer_than_all_of_the_time_go():
    both = rows()
    rng = np.random.default_rng(5)
    bank = pd.DataFrame(
        {"client": both["people"]["id"], "wealth": rng.lognormal(9, 1, 40).round(0)}
    )
    schemas = {
        "shop": replace(opened(), gaps=(0, 7, 365, 36_500)),
        "bank": Schema(person="client", columns=(Real(name="wealth"),)),
    }
    fed = Federation.rehearsal(
        {"shop": both, "bank": bank}, schemas, budget=Budget(math.inf, 0.0), seed=3
    )
    config = visits.Config(**SMALL, private=False)
    found = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )
    stage: Any = found.stage("tables")
    assert stage.split.schema.gaps == (0, 7, 365)
    place = stage.split.schema.person_schema.names.index("wealth")
    edges = stage.bought["wealth"].fine.edges[stage.bought["wealth"].cuts]
    levels = np.searchsorted(edges, bank["wealth"], side="right") - 1
    np.testing.assert_allclose(
        found["tables"].tables["person", place, place], np.bincount(levels)
    )
