"""Visits over columns: events at one holder, tables of the same people at others, one
joint release.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.api.plan import plan
from understudy.api.train import train
from understudy.data.schema import Integer, Schema
from understudy.data.visits import VisitLayout, read_visits
from understudy.data.visits.counts import person_vectors
from understudy.ground.errors import (
    AlignmentError,
    ConfigError,
    MessageError,
    PrivacyError,
    SchemaError,
)
from understudy.models.visits.fit import VisitTables
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure import lwe
from understudy.privacy.secure.moments import moments_event
from understudy.protocols.core.alignment import align_people
from understudy.protocols.core.base import Ask
from understudy.protocols.joint.messages import Agree, Release, Swap
from understudy.protocols.joint.products import relayed
from understudy.protocols.visits import protocol as visits
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties
from visit_cases import (
    AMPLE,
    SMALL,
    USUAL,
    begin,
    beside_visits,
    clinic,
    joined,
    measured,
    random_codes,
    study_of,
)


def three(budget: Budget = USUAL, seed: int = 3, **more: Any) -> Federation:
    tables, schemas = beside_visits(**more)
    return Federation.rehearsal(tables, schemas, budget=budget, seed=seed)


def joint(**more: Any) -> VisitTables:
    """The tables of the people whom all three have, as one holder would count them."""
    tables, schemas = beside_visits(**more)
    split = study_of(schemas)
    held = joined(tables)
    return VisitTables.exact(read_visits(held, split.schema).codes(), split.layout)


def released(fed: Federation, config: visits.Config) -> VisitTables:
    found: VisitTables = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )["tables"]
    return found


def charged(holder: Any) -> list[Any]:
    """What stands in a holder's ledger at a price."""
    return [
        entry
        for entry in holder.ledger.entries()
        if entry.count and "NoOp" not in str(entry.event)
    ]


@pytest.mark.parametrize("most", [3, 6])  # of six events some are far apart
def test_without_noise_the_release_is_the_tables_of_the_shared_people(
    most: int,
) -> None:
    fed = three(AMPLE, most_events=most)
    found = released(fed, visits.Config(**SMALL, private=False))
    exact = joint(most_events=most)
    assert any(kind == "far" for kind, _, _ in found.layout.blocks) == (most == 6)
    assert found.layout == exact.layout
    assert found.people == exact.people == 53
    for block, table in exact.tables.items():
        torch.testing.assert_close(found.tables[block], table, rtol=0, atol=1e-9)


def test_the_noise_on_a_table_is_that_of_one_holder_or_of_two() -> None:
    fed = three()
    found = released(fed, visits.Config(**SMALL))
    exact = joint()
    least = min(found.noise.values())
    most = max(found.noise.values())
    assert most == pytest.approx(least * math.sqrt(2))
    (event,) = [
        event
        for event in fed.holders["bank"].ledger.spend()
        if hasattr(event, "noise_multiplier")
    ]
    assert least >= event.noise_multiplier * math.sqrt(len(found.layout.blocks)) * 0.999
    for noise in (least, most):
        here = [block for block, own in found.noise.items() if own == noise]
        beside = torch.cat(
            [(found.tables[block] - exact.tables[block]).flatten() for block in here]
        )
        assert float(beside.std()) == pytest.approx(noise, rel=0.15)
    for holder in fed.holders.values():
        assert 2.9 < holder.ledger.spent() <= 3.0
        assert len(charged(holder)) == 1


def test_a_person_pays_once_for_all_holders_together() -> None:
    result = train("visits", three(), **SMALL)
    assert result.people == 53
    assert result.privacy.epsilon(None, "outsider") <= 3.0
    assert result.privacy.one_release
    people, events = result.generator.visits(30, seed=1)
    assert set(people.columns) == {"patient", "sex", "smoker", "income"}
    assert set(events["patient"]) <= set(people["patient"])
    owners = result.generator.card["owners"]
    assert (
        owners["sex"],
        owners["income"],
        owners["severity"],
        owners["number_of_events"],
    ) == (
        "registry",
        "bank",
        "clinic",
        "clinic",
    )


@pytest.mark.long
def test_encrypted_products_are_the_same_tables_but_for_a_hundredth_of_a_person() -> (
    None
):
    fed = three(AMPLE, most_events=3)
    config = visits.Config(**SMALL, private=False, products="encrypted")
    found = released(fed, config)
    exact = joint(most_events=3)
    off = [
        float((found.tables[block] - table).abs().max())
        for block, table in exact.tables.items()
    ]
    assert max(off) < 0.05


def test_encrypted_products_are_paid_for_before_tables_and_need_no_dealer() -> None:
    fed = three()
    config = visits.Config(**SMALL, products="encrypted")
    parties = LocalParties(fed.parties("visits", run="r", config=config))
    found = measured(parties, fed.schemas, config)
    study = visits.VisitStudy(config, fed.schemas)
    assert not any("deals" in text for text in study.composition()["unguarded"])
    (noise,) = found.record.noise
    for holder in fed.holders.values():
        answers, tables = charged(holder)
        assert "sums of encrypted rows" in answers.description
        assert "tables of people" in tables.description
        spent = holder.ledger.spend(run="r")
        assert spent.pop(moments_event(noise)) == 1
        ((event, count),) = spent.items()
        # three pairs of holders
        assert count / (2 * event.noise_multiplier**2) <= 3 * lwe.MOST
        spent = holder.ledger.spend(run="r")
        assert epsilon(spent, USUAL.delta) <= USUAL.epsilon


def test_more_people_than_fit_under_encryption_are_refused_in_the_plan() -> None:
    _, schemas = beside_visits()
    budgets = dict.fromkeys(schemas, Budget(1.0, 1e-6))
    config = visits.Config(**SMALL, products="encrypted")
    ahead = visits.forecast(config, schemas, budgets, 100_000)
    assert 1 < ahead.takes["encryption"] < 60
    with pytest.raises(ConfigError, match="do not fit into 64 bits"):
        visits.forecast(config, schemas, budgets, 10_000_000)


def test_what_goes_together_across_holders_is_learned() -> None:
    """Income at the bank goes with smoking, which the clinic knows, and so with the
    severity of visits.
    """
    fed = three(Budget(1e5, 1e-5), people=150)
    found = train("visits", fed, kinds=8, states=2, steps=60, device="cpu").generator
    people, events = found.visits(1500, seed=2)
    assert people.groupby("smoker")["income"].mean().diff().iloc[-1] < -1.2
    mean = events.merge(people, on="patient").groupby("income")["severity"].mean()
    assert mean[0] > mean[3] + 0.4


@settings(max_examples=50)
@given(
    n=st.integers(0, 3000),
    root=st.sampled_from([1, 2, 12, 60, 180]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_person_weighs_root_in_every_column_however_many_events(
    n: int, root: int, seed: int
) -> None:
    layout = VisitLayout((2, 3), (3, 2), ordered=True)
    rng = np.random.default_rng(seed)
    codes = random_codes(rng, layout, np.array([2, n, 0, 1]))
    found = person_vectors(codes, layout, root)
    assert (found >= 0).all()
    blocks = np.split(found, np.cumsum([2, 3, 3]), axis=1)
    assert [block.sum(1).tolist() for block in blocks] == [
        [root] * 4,
        [root] * 4,
        [root, root if n else 0, 0, root],
        [root, root if n else 0, 0, root],
    ]
    assert np.array_equal(
        found[1:3], person_vectors(codes.take(np.arange(1, 3)), layout, root)
    ), "whoever is there"


def test_masked_rows_are_uniform_to_the_server_and_to_the_other_holder() -> None:
    fed = three()
    parties = LocalParties(
        fed.parties("visits", run="r", config=visits.Config(**SMALL))
    )
    seen: list[Any] = []
    ask = parties.ask

    def watched(message: Any, **more: Any) -> Any:
        replies = ask(message, **more)
        asks = message.values() if isinstance(message, dict) else [message]
        if any(isinstance(one, Release) for one in asks):
            parts = [
                pair for reply in replies.values() for pair in reply.parts.value.items()
            ]
            seen.extend(part for name, part in parts if len(set(name.split("×"))) > 1)
        return replies

    parties.ask = watched  # type: ignore[method-assign]
    visits.train(visits.Config(**SMALL), parties, fed.schemas)
    assert len(seen) == 6
    for part in seen:
        assert float(part.abs().double().log2().median()) > 55


def asked_until_agreed(fed: Federation) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parties that have begun, and what each is to be told."""
    parties: Any = fed.parties("visits", run="r", config=visits.Config(**SMALL))
    people = align_people(LocalParties(parties))
    told_first = begin(fed.schemas, visits.Config(**SMALL))
    begun = {name: party.answer(told_first) for name, party in parties.items()}
    keys = {name: reply.key.value for name, reply in begun.items()}
    most = [max(reply.needed.value[0] for reply in begun.values())]
    told = {
        name: Agree(
            keys=keys,
            noise=most,
            bits=64,
            seeds={
                peer: bytes([n]) * 32 for n, peer in enumerate(parties) if peer != name
            },
            chunk=7,
            cells=[[people, [peer for peer in parties if peer != name]]],
        )
        for name in parties
    }
    return parties, told


CROOKED: list[tuple[Any, type[Exception], str]] = [
    (lambda a: replace(a, noise=[0.5]), PrivacyError, "its budget needs"),
    (lambda a: replace(a, noise=[float("nan")]), ConfigError, "must be 0 or above"),
    (lambda a: replace(a, seeds={}), MessageError, "seed is missing"),
    (
        lambda a: replace(a, seeds=dict.fromkeys(a.seeds, b"0" * 32)),
        MessageError,
        "seed is missing or new",
    ),
    (
        lambda a: replace(a, seeds=a.seeds | {"x": b"1" * 32}),
        MessageError,
        "seed is missing or new",
    ),
    (
        lambda a: replace(a, keys={k: v for k, v in a.keys.items() if k != "bank"}),
        MessageError,
        "one is missing",
    ),
    (lambda a: replace(a, chunk=0), ConfigError, "chunk"),
    (
        lambda a: replace(a, cells=[]),
        MessageError,
        "about 0 people, but 53 were aligned",
    ),
    (
        lambda a: replace(a, cells=[[54, a.cells[0][1]]]),
        MessageError,
        "about 54 people",
    ),
    (
        lambda a: replace(a, cells=[[53, ["bank"]]]),
        MessageError,
        "one holder of each group",
    ),
    (
        lambda a: replace(a, cells=[[53, ["bank", "clinic"]]]),
        MessageError,
        "one holder of each group",
    ),
    (
        lambda a: replace(a, cells=[[-1, a.cells[0][1]], [54, a.cells[0][1]]]),
        ConfigError,
        "people must be",
    ),
    (lambda a: replace(a, cells=[[53]]), MessageError, "their other holders were due"),
    (
        lambda a: replace(a, cells=[[53, [0, 1]]]),
        MessageError,
        "their other holders were due",
    ),
]


def test_other_terms_are_refused_and_nothing_is_charged() -> None:
    fed = three()
    parties, told = asked_until_agreed(fed)
    for change, raised, words in CROOKED:
        with pytest.raises(raised, match=words):
            parties["clinic"].answer(change(told["clinic"]))
    assert not any(map(charged, fed.holders.values()))
    parties["clinic"].answer(told["clinic"])


def test_asks_out_of_turn_are_refused_and_nothing_is_charged() -> None:
    fed = three()
    parties, told = asked_until_agreed(fed)
    clinic_party = parties["clinic"]
    count = Release(stage="tables", inbox={}, corrections={})
    for early in (Swap(chunk=0, inbox={}), count):
        with pytest.raises(MessageError, match="not expected"):
            clinic_party.answer(early)
    greetings = relayed(
        {name: party.answer(told[name]) for name, party in parties.items()}
    )
    wrong: list[Ask] = [told["clinic"], count, Swap(chunk=1, inbox={})]
    for ask in wrong:
        with pytest.raises(MessageError, match="not expected"):
            clinic_party.answer(ask)
    with pytest.raises(MessageError, match="a handshake of another holder is missing"):
        clinic_party.answer(Swap(chunk=0, inbox={}))
    clinic_party.answer(Swap(chunk=0, inbox=greetings["clinic"]))
    with pytest.raises(MessageError):
        clinic_party.answer(Swap(chunk=0, inbox={}))
    with pytest.raises(MessageError):
        clinic_party.answer(Swap(chunk=1, inbox={}))
    assert not any(map(charged, fed.holders.values()))


def test_people_who_are_aligned_anew_end_what_was_begun() -> None:
    fed = three()
    parties, told = asked_until_agreed(fed)
    parties["clinic"].answer(told["clinic"])
    align_people(LocalParties(parties))
    with pytest.raises(MessageError, match="not expected"):
        parties["clinic"].answer(Swap(chunk=0, inbox={}))


def test_holders_that_cannot_be_put_together_are_refused_before_anything_is_charged():
    _, schemas = beside_visits()
    fees = Schema(columns=(Integer(name="fee", low=0, high=2),))
    other = replace(clinic(time=None), people=None, events=fees)
    with pytest.raises(SchemaError, match="called"):
        study_of({"clinic": schemas["clinic"], "other": other, "bank": schemas["bank"]})
    nameless = replace(schemas["bank"], person=None)
    with pytest.raises(ConfigError, match="a table with ids"):
        study_of({"clinic": schemas["clinic"], "bank": nameless})
    same = replace(schemas["bank"], columns=schemas["clinic"].people.columns)
    with pytest.raises(SchemaError, match="smoker"):
        study_of({"clinic": schemas["clinic"], "bank": same})
    with pytest.raises(ConfigError, match="max_holders_per_person"):
        train("visits", three(), **SMALL, max_holders_per_person=2)


def test_two_holders_without_common_people_are_told_so() -> None:
    tables, schemas = beside_visits()
    tables["bank"] = tables["bank"].assign(client=tables["bank"]["client"] + 10_000)
    fed = Federation.rehearsal(tables, schemas, budget=USUAL, seed=1)
    with pytest.raises(AlignmentError, match="No person is held by all"):
        train("visits", fed, **SMALL)
    assert not any(map(charged, fed.holders.values()))


def test_a_plan_over_a_vertical_partition_says_both_noises() -> None:
    fed = three()
    said = plan("visits", fed.schemas, budget=USUAL, people=53, **SMALL)
    found = released(fed, visits.Config(**SMALL))
    assert said.errors[0].least == pytest.approx(min(found.noise.values()))
    assert said.errors[0].largest == pytest.approx(max(found.noise.values()))
    assert "other columns of the same people" in str(said)


def test_rules_across_holders_are_kept_by_what_is_drawn() -> None:
    tables, schemas = beside_visits()
    schemas["bank"] = replace(schemas["bank"], rules=({"always": "income != 3"},))
    federation = Federation.rehearsal(tables, schemas, budget=USUAL, seed=3)
    said = ({"when": "income >= 1", "then": "severity <= 1"},)
    people, events = train("visits", federation, rules=said, **SMALL).generator.visits(
        300, seed=1
    )
    rich = (
        people.set_index("patient")["income"].reindex(events["patient"]).to_numpy() >= 1
    )
    assert len(events)
    assert not (events["severity"][rich] > 1).any()
    assert (people["income"] != 3).all()
