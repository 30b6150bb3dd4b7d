"""Visits: what is released are the tables of people and events, once, and nothing
leaves that was not agreed to.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from odd_servers import OTHER_BEGINNINGS, Crooked, Leaving, changed, charged

from understudy.api.plan import plan
from understudy.api.train import train
from understudy.data.samples import toy
from understudy.data.visits import VisitLayout, Visits, VisitSchema, read_visits
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    DraftSchemaError,
    MessageError,
    PartyAway,
    PrivacyError,
    SchemaError,
)
from understudy.models.visits.fit import VisitTables
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.base import Keep
from understudy.protocols.joint.messages import Agree, Begin, Release
from understudy.protocols.joint.products import relayed
from understudy.protocols.visits import protocol as visits
from understudy.protocols.visits.protocol import UNITS, VisitStudy
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties
from visit_cases import AMPLE, USUAL, begin, clinic, frames, measured

COUNT = Release(stage="tables", inbox={}, corrections={})
SMALL: dict[str, Any] = {"kinds": 3, "states": 2, "steps": 5, "device": "cpu"}


def clinics(
    count: int,
    people: int = 60,
    budget: Budget = USUAL,
    seed: int = 7,
    schema: VisitSchema | None = None,
    **more: Any,
) -> Federation:
    """So many holders, each with its own people."""
    who, events = frames(people)
    names = [f"clinic {n}" for n in range(count)]
    held = {
        name: {
            "people": who[who["patient"] % count == n],
            "events": events[events["patient"] % count == n],
        }
        for n, name in enumerate(names)
    }
    schemas = dict.fromkeys(names, schema or clinic())
    return Federation.rehearsal(
        held, schemas, budget=budget, seed=seed, same_people=False, **more
    )


def released(fed: Federation, config: visits.Config) -> VisitTables:
    """The tables that a server gets."""
    found: VisitTables = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )["tables"]
    return found


@pytest.mark.parametrize("count", [1, 3])
def test_without_noise_the_release_is_the_tables_of_all_holders_rows(
    count: int,
) -> None:
    config = visits.Config(**SMALL, private=False)
    found = released(clinics(count, budget=AMPLE), config)
    who, events = frames()
    whole = read_visits({"people": who, "events": events}, clinic()).codes()
    exact = VisitTables.exact(whole, VisitLayout.from_schema(clinic()))
    assert found.noise == dict.fromkeys(exact.tables, 0.0)
    for block, table in exact.tables.items():
        torch.testing.assert_close(found.tables[block], table, rtol=0, atol=0)
    assert found.people == 60


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_noise_is_what_the_price_says(count: int) -> None:
    config = visits.Config(**SMALL)
    fed = clinics(count)
    found = released(fed, config)
    who, events = frames()
    whole = read_visits({"people": who, "events": events}, clinic()).codes()
    exact = VisitTables.exact(whole, VisitLayout.from_schema(clinic()))
    beside = torch.cat(
        [
            ((found.tables[b] - exact.tables[b]) / found.noise[b]).flatten()
            for b in exact.tables
        ]
    )
    assert float(beside.std()) == pytest.approx(1, rel=0.1)
    spend = fed.holders["clinic 0"].ledger.spend()
    (event,) = spend
    # A person weighs 1 in every table: the length of that, in units of each table's
    # noise, is what the price allows.
    reach = math.sqrt(sum(noise**-2 for noise in found.noise.values()))
    left = 1 if count == 1 else math.sqrt(count / (count - 1))
    assert reach <= 1 / (event.noise_multiplier * left) * 1.001
    assert fed.holders["clinic 0"].ledger.spent() <= 3.0


def test_a_part_alone_is_uniform_to_the_server() -> None:
    fed = clinics(2)
    parties = fed.parties("visits", run="r", config=visits.Config(**SMALL))
    replies = ask_all(parties, fed)
    for reply in replies.values():
        size = reply.parts.value["0×0"].abs().double().log2()
        assert float(size.median()) > 55


def ask_all(parties: Mapping[str, Any], fed: Federation) -> dict[str, Any]:
    told = begin(fed.schemas, visits.Config(**SMALL))
    begun = {name: party.answer(told) for name, party in parties.items()}
    keys = {name: reply.key.value for name, reply in begun.items()}
    most = [max(reply.needed.value[0] for reply in begun.values())]
    agree = Agree(keys=keys, noise=most, bits=64, seeds={}, chunk=1, cells=[])
    greetings = relayed({name: party.answer(agree) for name, party in parties.items()})
    return {
        name: party.answer(replace(COUNT, inbox=greetings[name]))
        for name, party in parties.items()
    }


def test_the_price_is_in_the_ledger_before_a_row_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = clinics(1)
    seen = []
    parties = fed.parties("visits", run="r", config=visits.Config(**SMALL))
    counted = Visits.codes
    monkeypatch.setattr(
        Visits,
        "codes",
        lambda self, *more: (
            seen.append(len(charged(fed.holders["clinic 0"]))) or counted(self, *more)
        ),
    )
    ask_all(parties, fed)
    assert seen == [1]


def with_schema(**other: Any) -> Any:
    """Other schemas for all parties."""
    return lambda ask: {name: schema | other for name, schema in ask.schemas.items()}


CROOKED = [
    *OTHER_BEGINNINGS,
    (
        changed(Begin, config=lambda a: a.config | {"max_colluding": 5}),
        MessageError,
        "was agreed to",
    ),
    (changed(Begin, schemas=with_schema(most_events=1)), SchemaError, "another schema"),
    (
        changed(Begin, schemas=with_schema(most_events=4000)),
        SchemaError,
        "another schema",
    ),
    (changed(Begin, schemas=with_schema(cut="draw")), SchemaError, "another schema"),
    (
        changed(Begin, schemas=with_schema(gaps=[0, 1, 2, 3, 4])),
        SchemaError,
        "another schema",
    ),
    (
        changed(Begin, schemas=lambda a: a.schemas | {"x": toy(4)[1].to_dict()}),
        SchemaError,
        "must differ",
    ),
    (changed(Agree, noise=[0.0]), PrivacyError, "its budget needs"),
    (changed(Agree, noise=[-1.0]), ConfigError, "must be 0 or above"),
    (changed(Agree, noise=[5e-324]), PrivacyError, "its budget needs"),
    (changed(Agree, noise=[float("nan")]), ConfigError, "must be 0 or above"),
    (changed(Agree, noise=[float("inf")]), ConfigError, "must be 0 or above"),
    (changed(Agree, noise=[1e9]), ConfigError, "more than can be drawn"),
    (changed(Agree, noise=[True]), ConfigError, "multiplier"),
    (changed(Agree, keys={}), MessageError, "one is missing"),
    (changed(Agree, seeds={"clinic 0": b"0" * 32}), MessageError, "seed"),
    (changed(Agree, chunk=0), ConfigError, "chunk"),
    (
        changed(Agree, keys=lambda a: a.keys | {"stranger": b"0" * 32}),
        MessageError,
        "not named",
    ),
]


@pytest.mark.parametrize(("change", "raised", "words"), CROOKED)
def test_a_server_that_asks_for_something_else_is_refused_and_nothing_is_charged(
    change: Any, raised: type[Exception], words: str
) -> None:
    fed = clinics(2)
    config = visits.Config(**SMALL)
    parties = Crooked(fed.parties("visits", run="r", config=config), change)
    with pytest.raises(raised, match=words):
        visits.train(config, parties, fed.schemas)
    assert not any(map(charged, fed.holders.values()))


@pytest.mark.parametrize(
    "bad",
    [
        {"private": None},
        {"max_colluding": 0.5},
        {"max_holders_per_person": 3},
        {"max_holders_per_person": True},
    ],
)
def test_settings_of_a_wrong_kind_are_refused_by_a_party_that_knows_none(
    bad: dict[str, Any],
) -> None:
    fed = clinics(1)
    party = fed.parties("visits", run="r")["clinic 0"]  # built without settings
    config = asdict(visits.Config(**SMALL)) | bad
    with pytest.raises(ConfigError):
        party.answer(begin({"clinic 0": clinic()}, config))
    assert not charged(fed.holders["clinic 0"])


def test_the_release_is_made_once_and_in_turn() -> None:
    fed = clinics(1)
    config = visits.Config(**SMALL)
    party: Any = fed.parties("visits", run="r", config=config)["clinic 0"]
    first = begin({"clinic 0": clinic()}, config)
    with pytest.raises(MessageError, match="not expected"):
        party.answer(COUNT)
    begun = party.answer(first)
    with pytest.raises(MessageError, match="not expected"):
        party.answer(Keep(round=1))
    agree = Agree(
        keys={"clinic 0": begun.key.value},
        noise=begun.needed.value,
        bits=64,
        seeds={},
        chunk=1,
        cells=[],
    )
    party.answer(agree)
    party.answer(agree)  # who takes part may change until the release
    party.answer(COUNT)
    for again in (COUNT, agree):
        with pytest.raises(MessageError, match="not expected"):
            party.answer(again)
    assert len(charged(fed.holders["clinic 0"])) == 1


def test_a_second_session_is_a_second_price() -> None:
    fed = clinics(1)
    parties = fed.parties("visits", run="r", config=visits.Config(**SMALL))
    ask_all(parties, fed)
    with pytest.raises(BudgetExceeded):
        ask_all(parties, fed)
    assert len(charged(fed.holders["clinic 0"])) == 1


def test_who_goes_away_before_the_release_is_left_out() -> None:
    fed = clinics(3)
    config = visits.Config(**SMALL, min_holders=2)
    outcome = visits.train(
        config,
        Leaving(
            fed.parties("visits", run="r", config=config), "clinic 1", Agree.kind()
        ),
        fed.schemas,
    )
    assert outcome.trained.card["left_out"] == ["clinic 1"]
    fed = clinics(3)
    with pytest.raises(PartyAway):
        visits.train(
            config,
            Leaving(
                fed.parties("visits", run="r", config=config),
                "clinic 1",
                Release.kind(),
            ),
            fed.schemas,
        )


def test_a_person_at_two_holders_is_priced_as_such() -> None:
    who, events = frames()
    held = {name: {"people": who, "events": events} for name in ("a", "b")}
    fed = Federation.rehearsal(
        held,
        dict.fromkeys(held, clinic()),
        budget=USUAL,
        seed=1,
        same_people=False,
        people_are_elsewhere=("a", "b"),
    )
    with pytest.raises(ConfigError, match="set max_holders_per_person"):
        train("visits", fed, **SMALL)
    assert not any(map(charged, fed.holders.values()))
    found = train("visits", fed, **SMALL, max_holders_per_person=2)
    assert found.privacy.epsilon("a", "server") <= 3.0
    (alone, one), (both, other) = noise_of(4.0), noise_of(4.0, max_holders_per_person=2)
    assert both / other == pytest.approx(2 * alone / one, rel=1e-3)


def noise_of(multiplier: float, **settings: Any) -> tuple[float, int]:
    """The noise of a release at this multiplier, and the unit."""
    study = VisitStudy(
        visits.Config(**settings), dict.fromkeys(("clinic", "other"), clinic())
    )
    stage = study.stage("tables", {}, multiplier, {})
    return study.pricing.sigmas(0, stage.blocks, multiplier)["0×0"], stage.unit


def test_parts_are_as_fine_as_the_noise_allows_and_never_change_it() -> None:
    seen = set()
    for multiplier in (0.0, 0.01, 1.0, 10.0, 100.0, 1000.0):
        sigma, unit = noise_of(multiplier)
        seen.add(unit)
        assert unit in UNITS
        least = multiplier * VisitLayout.from_schema(clinic()).sensitivity(unit)
        if multiplier * unit > 10:
            assert sigma == pytest.approx(least, rel=1e-2)
        assert sigma >= least
    assert len(seen) > 1
    with pytest.raises(ConfigError, match="more than can be drawn"):
        noise_of(1e7)


def test_the_statement_and_the_card_say_what_one_person_means() -> None:
    found = train("visits", clinics(2), **SMALL)
    assert "one person, with all their rows" in str(found.privacy)
    assert found.generator.card["events"]["events"]["most"] == 3
    assert found.privacy.epsilon("clinic 0", "outsider") <= 3.0
    assert found.people > 0


def test_holders_with_other_schemas_or_without_visits_are_refused_and_not_charged():
    who, events = frames()
    held = {name: {"people": who, "events": events} for name in ("a", "b")}
    other = {"a": clinic(), "b": clinic(most_events=4)}
    fed = Federation.rehearsal(held, other, budget=USUAL, seed=1, same_people=False)
    with pytest.raises(SchemaError, match="describe their rows differently"):
        train("visits", fed, **SMALL)
    assert not any(map(charged, fed.holders.values()))
    table, schema = toy(rows=20)
    plain = Federation.rehearsal(
        {"a": table}, {"a": schema}, budget=USUAL, seed=0, same_people=False
    )
    with pytest.raises(ConfigError, match="gram is for tables"):
        train("visits", plain, **SMALL)
    with pytest.raises(ConfigError, match="visits"):
        train("gram", clinics(1), steps=1, components=2)
    with pytest.raises(ConfigError, match="visits"):
        train("sgde", clinics(2))


@pytest.mark.parametrize("cut", ["first", "draw"])
def test_few_people_and_few_events_are_noise_and_no_error(cut: str) -> None:
    who = pd.DataFrame({"patient": [1], "sex": ["f"], "smoker": [True]})
    events = pd.DataFrame(
        {
            "patient": [1] * 5,
            "day": ["2020-01-03"] * 5,
            "severity": [1] * 5,
            "ward": ["a"] * 5,
        }
    )
    held = {"a": {"people": who, "events": events}}
    fed = Federation.rehearsal(
        held, {"a": clinic(cut=cut)}, budget=USUAL, seed=2, same_people=False
    )
    assert train("visits", fed, **SMALL).people >= 1


def test_a_plan_says_the_noise_that_a_run_then_has() -> None:
    fed = clinics(3)
    said = plan("visits", fed.schemas, budget=USUAL, people=40, **SMALL)
    found = released(fed, visits.Config(**SMALL))
    assert said.errors[0].largest == pytest.approx(next(iter(found.noise.values())))
    assert said.price["clinic 0"] <= 3.0
    assert "a person weighs 1" in str(said)
    assert said.warnings, "40 people are few"


def test_a_schema_that_was_read_from_rows_is_told_by_a_plan_and_refused_by_a_party():
    draft = clinic()
    draft = replace(draft, events=replace(draft.events, origin="rows"))
    assert "read from rows" in str(plan("visits", {"a": draft}, budget=USUAL, **SMALL))
    who, events = frames()
    fed = Federation.rehearsal(
        {"a": {"people": who, "events": events}},
        {"a": draft},
        budget=USUAL,
        same_people=False,
    )
    with pytest.raises(DraftSchemaError, match="schema of a"):
        train("visits", fed, **SMALL)


@pytest.mark.parametrize(
    "bad",
    [
        {"kinds": 0},
        {"states": 0},
        {"steps": 0},
        {"rate": 0.0},
        {"min_holders": 0},
        {"max_holders_per_person": 0},
        {"max_colluding": 0},
        {"private": 1},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        visits.Config(**bad)


@pytest.mark.parametrize("bad", [{"states": 1}, {"kinds": 10**9}])
def test_what_the_fit_would_refuse_is_refused_before_it_is_paid_for(
    bad: dict[str, Any],
) -> None:
    fed = clinics(1)
    with pytest.raises(ConfigError, match=r"two states|larger than"):
        train("visits", fed, **SMALL | bad)
    assert not charged(fed.holders["clinic 0"])
    with pytest.raises(ConfigError, match=r"two states|larger than"):
        plan("visits", fed.schemas, budget=USUAL, **SMALL | bad)


def test_counts_do_not_depend_on_the_order_of_the_files() -> None:
    who, events = frames()
    tables = []
    for seed in (None, 1):
        shuffled = events if seed is None else events.sample(frac=1, random_state=seed)
        # Two events at one time keep the order of the file, so days are made to differ.
        days = shuffled.assign(
            day=pd.Timestamp("2020-01-01") + pd.to_timedelta(shuffled.index % 31, "D")
        )
        days = (
            days.drop_duplicates(["patient", "day"]).sort_index()
            if seed is None
            else days
        )
        keep = tables[0][1] if tables else days.index
        read = read_visits(
            {"people": who, "events": days.loc[days.index.isin(keep)]}, clinic()
        )
        tables.append(
            (VisitTables.exact(read.codes(), VisitLayout.from_schema(clinic())), keep)
        )
    for block, table in tables[0][0].tables.items():
        assert np.array_equal(table, tables[1][0].tables[block])
