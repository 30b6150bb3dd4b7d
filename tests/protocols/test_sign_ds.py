"""SignDS-FL: every report is paid for by the person who gives it, and the model learns
from the reports alone.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from understudy.api.train import run_file, train
from understudy.data.encoding.population import Population
from understudy.data.samples import toy
from understudy.generators.classifier import Classifier
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    LedgerError,
    MessageError,
    PartyError,
    PrivacyError,
    SchemaError,
)
from understudy.models.cohort.training import ClassifierTraining
from understudy.privacy.accounts.accounting import PureDp, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.core.base import Keep, Return
from understudy.protocols.cross_device import rounds
from understudy.protocols.cross_device.host import BeginTraining, Reported, Round
from understudy.protocols.papers.sign_ds import protocol as sign_ds
from understudy.protocols.papers.sign_ds.protocol import Config
from understudy.runs.federation import Federation, Holder
from understudy.runs.result import Result
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

FREE = Budget(math.inf, 0.0)


def blobs(people: int, rows: int = 4, seed: int = 0) -> Population:
    """Two classes that a line parts; each person has a few rows of both."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, people * rows)
    x = np.clip(rng.normal(0.35 + 0.3 * y[:, None], 0.1, (len(y), 6)), 0, 1).astype(
        np.float32
    )
    return Population.from_arrays(x, y, classes=2, rows_per_person=rows)


def hosts(*populations: Population, budget: Budget, seed: int = 1) -> Federation:
    held = {
        f"host {number}": population for number, population in enumerate(populations)
    }
    return Federation.rehearsal(held, budget=budget, seed=seed)


class Recorded(LocalParties):
    """Local parties that remember what was asked in each round, and what was
    answered.
    """

    def __init__(self, federation: Federation, **more: Any) -> None:
        super().__init__(federation.parties("sign-ds", run="r", **more))
        self.rounds: list[tuple[str, Round, Reported]] = []

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        replies = super().ask(message)
        asks = message if isinstance(message, Mapping) else {}
        self.rounds += [
            (n, a, replies[n]) for n, a in asks.items() if isinstance(a, Round)
        ]
        return replies


SMALL = {
    "epsilon": 2.0,
    "chosen": 1,
    "rounds": 6,
    "clients_per_round": 5,
    "max_reports": 3,
    "epochs": 2,
    "device": "cpu",
}


def test_the_ledger_holds_for_every_person_what_their_reports_cost() -> None:
    federation = hosts(blobs(9), blobs(7, seed=1), budget=Budget(6.0, 1e-6))
    parties = Recorded(federation)
    outcome = sign_ds.train(Config(**SMALL), parties, federation.schemas)
    reports: Counter[tuple[str, int]] = Counter()
    for name, ask, _ in parties.rounds:
        reports.update((name, person) for person in ask.people.tolist())
    assert sum(reports.values()) == 30
    for name, holder in federation.holders.items():
        for person in range(holder.table.people):
            times = reports[name, person]
            assert holder.ledger.spend(person)[PureDp(2.0)] == times <= 3
            assert holder.ledger.spent(person) == epsilon({PureDp(2.0): times}, 1e-6)
        worst = max(count for (host, _), count in reports.items() if host == name)
        assert (
            outcome.privacy.epsilon(name)
            == holder.ledger.spent()
            == epsilon({PureDp(2.0): worst}, 1e-6)
        )
    assert outcome.trained.card["reports"] == {
        "all": 30,
        "of the busiest person": max(reports.values()),
    }


def test_the_statement_shows_the_tight_figure_and_the_plain_sum_and_what_one_person_means():
    federation = hosts(blobs(5), budget=Budget(15.0, 1e-3))
    settings = SMALL | {"epsilon": 0.5, "rounds": 30, "max_reports": 30}
    outcome = sign_ds.train(
        Config(**settings), Recorded(federation), federation.schemas
    )
    (party,) = outcome.privacy.to_dict()["parties"]
    assert party["epsilon_round"]["server"] == epsilon({PureDp(0.5): 1}, 1e-3)
    assert party["epsilon_sum"]["server"] == 15.0
    assert party["epsilon"]["server"] == epsilon({PureDp(0.5): 30}, 1e-3) < 12
    assert party["rounds"] == party["uses"]["insider"][0]["count"] == 30
    text = str(outcome.privacy)
    for words in (
        "replace the content of all reports",
        "ε at δ=0",
        "only one party holds each person",
        "15",
    ):
        assert words in text
    assert "intersection" not in text


def test_one_host_or_two_ask_the_same_people_and_pay_the_same() -> None:
    x = blobs(16).rows
    y = blobs(16).codes
    together = hosts(blobs(16), budget=Budget(6.0, 0.0))
    parts = [
        Population.from_arrays(x[part], y[part], classes=2, rows_per_person=4)
        for part in (slice(0, 28), slice(28, 64))
    ]
    apart = hosts(*parts, budget=Budget(6.0, 0.0))
    asked = []
    prices = []
    for federation in (together, apart):
        parties = Recorded(federation)
        outcome = sign_ds.train(Config(**SMALL), parties, federation.schemas)
        first = {"host 0": 0, "host 1": 7}
        asked.append(
            sorted(
                (a.round, first[n] + p)
                for n, a, _ in parties.rounds
                for p in a.people.tolist()
            )
        )
        prices.append(outcome.privacy.epsilon())
    assert asked[0] == asked[1]
    assert prices[0] == prices[1]


def test_the_server_takes_gamma_times_the_sum_of_the_signs() -> None:
    federation = hosts(blobs(9), blobs(7, seed=1), budget=Budget(6.0, 0.0))
    parties = Recorded(federation)
    config = Config(
        **SMALL | {"rounds": 1, "clients_per_round": 12, "chosen": 1, "top": 0.3}
    )
    model = sign_ds.train(config, parties, federation.schemas).trained
    start = model.network.init(FastRng(0))
    by_hand = torch.zeros(model.network.size)
    for _, _, reply in parties.rounds:
        value: Any = reply.reports.value
        for sign, places in zip(value["values"], value["indices"], strict=True):
            assert sign.item() in (-1, 1)
            by_hand[places.long()] += sign.item()
    torch.testing.assert_close(model.weights, start + 0.05 * by_hand)


def test_public_rows_are_begun_from_and_cost_nobody_anything() -> None:
    still = SMALL | {"rounds": 1, "max_reports": 1, "global_rate": 1e-9}
    tested = blobs(50, seed=3)
    learned, plain = (
        train("sign-ds", hosts(blobs(9), budget=Budget(6.0, 0.0)), **still | more)
        for more in (
            {"public": blobs(200, seed=2), "holdout": tested},
            {"holdout": tested},
        )
    )
    accuracies = [
        result.model.card["history"][-1]["accuracy"] for result in (learned, plain)
    ]
    assert accuracies[0] > 0.9 > accuracies[1]
    assert learned.privacy.epsilon() == plain.privacy.epsilon() == 2.0
    assert learned.model.card["public_rows"] == 800
    assert "public_rows" not in plain.model.card


def test_public_rows_of_a_table_are_read_by_its_schema_or_refused() -> None:
    frame, schema = toy(rows=60, seed=0, person=None)
    federation = Federation.rehearsal(
        {"host": frame}, {"host": schema}, budget=Budget(6.0, 0.0), seed=0
    )
    settings = SMALL | {"rounds": 1, "max_reports": 1, "target": "smoker"}
    public, _ = toy(rows=30, seed=1, person=None)
    result = train("sign-ds", federation, public=public, **settings)
    assert result.model.card["public_rows"] == 30
    with pytest.raises(ConfigError) as error:
        train("sign-ds", federation, public={"rows": public}, **settings)
    assert error.value.effect is Effect.NOTHING_CHARGED
    with pytest.raises((ConfigError, SchemaError)):
        train("sign-ds", federation, public=blobs(5), **settings)


def begun(population: Population, **settings: Any) -> Any:
    """A party that has begun, with an infinite budget."""
    federation = hosts(population, budget=FREE)
    config = Config(
        **{"reporter": "none", "device": "cpu", "max_reports": 2} | settings
    )
    (party,) = federation.parties("sign-ds", run="r").values()
    network = config.network_for(population.features)
    party.answer(
        BeginTraining(
            config=vars(config) | {"poison": None}, network=network.describe()
        )
    )
    return party


def test_a_person_reports_what_the_person_s_own_rows_teach() -> None:
    x = blobs(6).rows
    y = blobs(6).codes
    population = Population.from_arrays(
        x, y, classes=2, rows_per_person=[5, 0, 10, 3, 6]
    )
    party = begun(population, epochs=3, learning_rate=0.5)
    weights = party.network.init(FastRng(4))
    asked = torch.tensor([3, 1, 0])
    told = party.answer(Round(round=1, people=asked, weights=weights)).reports.value[
        "values"
    ]
    for place, person in enumerate(asked.tolist()):
        own = slice(*population.starts[person : person + 2].tolist())
        train = ClassifierTraining(party.network, epochs=3, lr=0.5)
        alone = train(weights, x[own][None], y[own][None])[0]
        torch.testing.assert_close(told[place], alone, atol=1e-6, rtol=1e-4)
    assert not told[1].any(), "without rows there is nothing to learn"


def test_a_person_without_rows_or_with_an_update_that_is_not_finite_reports_like_any_other():
    rows = blobs(3).rows.clone()
    rows[0] = 3e38  # finite, but not what it leads to
    population = Population.from_arrays(
        rows, blobs(3).codes, classes=2, rows_per_person=[2, 0, 10]
    )
    party = begun(population, reporter="ps", epsilon=4.0, learning_rate=10.0)
    weights = party.network.init(FastRng(4))
    message = party.answer(
        Round(round=1, people=torch.arange(3), weights=weights)
    ).reports.value
    assert message["indices"].shape == (3, 1)
    bare = begun(population, learning_rate=10.0)
    message_of_none = bare.answer(
        Round(round=1, people=torch.arange(3), weights=weights)
    ).reports.value
    assert message_of_none["values"].any(1).tolist() == [False, False, True]
    assert message["values"].abs().tolist() == [[1], [1], [1]]


def test_an_ask_beyond_the_cap_or_for_nobody_is_refused_and_costs_nothing() -> None:
    party = begun(blobs(5), max_reports=1)
    weights = party.network.init(FastRng(0))
    party.answer(Round(round=1, people=torch.tensor([0, 4]), weights=weights))
    for people, words in (
        ([3, 4], "1 of 2 asked people have reported 1 times"),
        ([2, 2], "twice"),
        ([5], "not here"),
        ([-1], "not here"),
    ):
        with pytest.raises(PartyError, match=words):
            party.answer(Round(round=2, people=torch.tensor(people), weights=weights))
    with pytest.raises(MessageError, match="not expected"):
        party.answer(party.begun)  # to begin anew would forget who has reported
    assert [entry.people for entry in party.ledger.entries() if entry.count] == [2]


def test_a_party_that_comes_back_remembers_who_has_reported_and_on_which_people():
    def party(people: int) -> Any:
        (built,) = (
            hosts(blobs(people), budget=FREE).parties("sign-ds", run="r").values()
        )
        return built

    first = begun(blobs(5), max_reports=1)
    weights = first.network.init(FastRng(0))
    first.answer(Round(round=1, people=torch.tensor([0, 4]), weights=weights))
    again = party(5)
    again.load_state_dict(first.state_dict())
    with pytest.raises(PartyError, match="1 of 1 asked people"):
        again.answer(Round(round=2, people=torch.tensor([4]), weights=weights))
    again.answer(Round(round=2, people=torch.tensor([1]), weights=weights))
    with pytest.raises(ArtefactError, match=r"5 people.* 6"):
        party(6).load_state_dict(first.state_dict())


def test_who_has_spent_too_much_elsewhere_stays_out_of_the_run() -> None:
    federation = hosts(blobs(10), budget=Budget(6.0, 0.0))
    ledger = federation.holders["host 0"].ledger
    spent = [0, 3, 4, 5, 7, 9]
    left = {1, 2, 6, 8}
    ledger.charge(PureDp(5.0), people=spent, run="earlier", description="a report")
    result = train(
        "sign-ds",
        federation,
        **SMALL | {"rounds": 2, "max_reports": 2, "clients_per_round": 4},
    )
    assert {person for person in range(10) if ledger.spent(person) == 4.0} == left
    assert all(ledger.spent(person) == 5.0 for person in spent)
    assert result.people == 4
    assert result.model.card["left_out"] == {"host 0": 6}
    with pytest.raises(ConfigError, match="people"):  # five of four
        train(
            "sign-ds",
            federation,
            **SMALL | {"rounds": 1, "max_reports": 1, "clients_per_round": 5},
        )


def test_a_party_whose_people_have_all_spent_too_much_does_not_begin() -> None:
    federation = hosts(blobs(10), budget=Budget(6.0, 0.0))
    train("sign-ds", federation, **SMALL | {"max_reports": 3})
    entries = len(federation.holders["host 0"].ledger.entries())
    with pytest.raises(BudgetExceeded, match="none of 10 people"):
        train("sign-ds", federation, **SMALL | {"rounds": 1, "max_reports": 1})
    assert len(federation.holders["host 0"].ledger.entries()) == entries


def test_places_are_those_of_the_people_who_take_part_also_after_a_return() -> None:
    (party,) = (
        (federation := hosts(blobs(5), budget=Budget(6.0, 0.0)))
        .parties("sign-ds", run="r")
        .values()
    )
    ledger = federation.holders["host 0"].ledger
    ledger.charge(PureDp(5.0), people=[0, 2], run="earlier", description="a report")
    config = Config(epsilon=2.0, chosen=1, max_reports=1, device="cpu")
    network = config.network_for(blobs(5).features)
    party.answer(BeginTraining(config=vars(config), network=network.describe()))
    (again,) = federation.parties("sign-ds", run="r").values()
    again.load_state_dict(party.state_dict())
    again.answer(
        Round(round=1, people=torch.tensor([1]), weights=network.init(FastRng(0)))
    )
    assert [ledger.spent(person) for person in range(5)] == [5.0, 0.0, 5.0, 2.0, 0.0]
    with pytest.raises(PartyError, match="one who is not here"):
        again.answer(
            Round(round=1, people=torch.tensor([3]), weights=network.init(FastRng(0)))
        )


def test_a_server_that_returns_to_an_earlier_state_cannot_spend_more_than_the_run_may_cost(
    tmp_path: Path,
) -> None:
    people = blobs(5)
    ledger = Ledger.rehearsal(holder="host", budget=Budget(100.0, 0.0))
    federation = Federation.from_holders(
        [Holder("host", people, ledger, Budget(4.0, 0.0), seed=1)], same_people=False
    )
    (party,) = federation.parties("sign-ds", run="r", folder=tmp_path).values()
    config = Config(epsilon=2.0, chosen=1, max_reports=2, device="cpu")
    network = config.network_for(people.features)
    weights = network.init(FastRng(0))
    party.answer(BeginTraining(config=vars(config), network=network.describe()))
    party.answer(Keep(round=0))
    for round in (1, 2):
        party.answer(Round(round=round, people=torch.tensor([0]), weights=weights))
    # also by a party that was restarted
    (again,) = federation.parties("sign-ds", run="r", folder=tmp_path).values()
    for returned in (party, again):
        returned.answer(Return(round=0))
        with pytest.raises(BudgetExceeded, match="limit of this run"):
            returned.answer(Round(round=1, people=torch.tensor([0]), weights=weights))
    # who has not reported yet, may
    again.answer(Round(round=1, people=torch.tensor([1]), weights=weights))
    assert [ledger.spent(person) for person in (0, 1, 2)] == [4.0, 2.0, 0.0]


def test_no_row_is_touched_before_the_price_is_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    party = begun(blobs(5))
    order: list[str] = []
    charge = Ledger.charge
    gather = Population.gather

    def full(*_: Any, **__: Any) -> Any:
        raise LedgerError("the disk is full.", effect=Effect.NOTHING_COMPUTED_OR_SENT)

    monkeypatch.setattr(
        Ledger, "charge", lambda *a, **k: (order.append("paid"), charge(*a, **k))[1]
    )
    monkeypatch.setattr(
        Population, "gather", lambda *a, **k: (order.append("read"), gather(*a, **k))[1]
    )
    ask = Round(
        round=1, people=torch.tensor([2]), weights=party.network.init(FastRng(0))
    )
    party.answer(ask)
    both = ["paid", "read"]
    assert order == both
    monkeypatch.setattr(Ledger, "charge", full)
    with pytest.raises(LedgerError):
        party.answer(ask)
    assert order == both
    assert party.participations.tolist() == [0, 0, 1, 0, 0]


def test_the_watcher_sees_what_the_worst_off_person_has_spent_so_far() -> None:
    seen: list[float] = []
    federation = hosts(blobs(5), budget=Budget(12.0, 0.0))
    settings = SMALL | {"max_reports": 6}
    result = train(
        "sign-ds",
        federation,
        watch=lambda p: seen.append(p.epsilon()["host 0"]),
        **settings,
    )
    assert seen == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert result.privacy.per_party() == {"host 0": 12.0}


def digits() -> tuple[Population, Population]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x = (x[order] / 16).astype(np.float32)
    y = y[order]
    return (
        Population.from_arrays(x[:1400], y[:1400], classes=10, rows_per_person=10),
        Population.from_arrays(x[1400:], y[1400:], classes=10),
    )


def test_without_a_mechanism_it_learns_digits() -> None:
    people, holdout = digits()
    result = train(
        "sign-ds",
        hosts(people, budget=FREE),
        holdout=holdout,
        reporter="none",
        rounds=12,
        clients_per_round=40,
        max_reports=12,
        learning_rate=0.2,
        evaluate_every=4,
    )
    history = result.model.card["history"]
    assert [point["round"] for point in history] == [4, 8, 12]
    assert history[-1]["accuracy"] == result.model.accuracy(holdout) > 0.85
    assert result.privacy.epsilon() == math.inf
    assert "no guarantee" in str(result.privacy)


def accuracy(budget: Budget, *, seed: int = 1, **settings: Any) -> float:
    """What 1,200 people teach who report once each."""
    usual = {
        "rounds": 15,
        "clients_per_round": 80,
        "global_rate": 1.0,
        "epochs": 3,
        "learning_rate": 0.3,
        "top": 0.3,
        "device": "cpu",
    }
    result = train(
        "sign-ds", hosts(blobs(1200), budget=budget, seed=seed), **usual | settings
    )
    assert result.privacy.epsilon() <= budget.epsilon
    return result.model.accuracy(blobs(200, seed=9))


@pytest.mark.long
@pytest.mark.parametrize("reporter", ["em-mds", "ps"])
def test_at_epsilon_8_it_learns_what_is_easy_and_at_almost_none_it_does_not(
    reporter: str,
) -> None:
    assert accuracy(Budget(8.0, 0.0), reporter=reporter, epsilon_total=8.0) > 0.95
    assert (
        accuracy(Budget(8.0, 0.0), reporter=reporter, epsilon_total=0.001, chosen=1)
        < 0.7
    )


@pytest.mark.long
def test_poisoned_people_change_the_result() -> None:
    plain = {"reporter": "none", "rounds": 5, "learning_rate": 1.6}
    assert accuracy(FREE, **plain) > 0.95
    for kind in ("random", "flip"):
        assert (
            accuracy(FREE, **plain, poison={"kind": kind, "share": 0.4, "scale": 20.0})
            < 0.85
        )
    for share, learns in ((0.1, True), (0.6, False)):  # most people decide
        told = accuracy(
            Budget(8.0, 0.0), epsilon=8.0, poison={"kind": "flip", "share": share}
        )
        assert (told > 0.9) == learns


def test_liars_are_refused_where_the_ledger_is_real(tmp_path: Path) -> None:
    federation = Federation(
        {"phones": blobs(9)}, budget=Budget(8.0, 0.0), ledgers=tmp_path
    )
    with pytest.raises(PrivacyError, match="poisoned clients are for rehearsals"):
        train("sign-ds", federation, **SMALL, poison={"kind": "flip"})
    assert not any(
        entry.count for entry in federation.holders["phones"].ledger.entries()
    )


def test_bare_updates_are_refused_where_the_budget_is_finite() -> None:
    federation = hosts(blobs(9), budget=Budget(1e6, 0.1))
    with pytest.raises(BudgetExceeded, match="cost ε=inf"):
        train("sign-ds", federation, reporter="none", rounds=1, clients_per_round=1)
    assert not any(
        entry.count for entry in federation.holders["host 0"].ledger.entries()
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"top": 1.0}, "top must be below dims=14"),
        ({"top": 0.15, "chosen": 3}, "chosen must be at most top=2"),
        ({"chosen": None, "epsilon": 0.5}, "share=0.8 is out of reach"),
        (
            {"reporter": "sub-mds", "rate": 0.5, "epsilon": 0.5},
            "share=0.8 is out of reach",
        ),
        ({"max_reports": 1}, "Missing: 14. Raise max_reports to 2"),
        ({"clients_per_round": 20}, "Missing: 24. Ask fewer"),
        ({"model": "lenet"}, "28 × 28"),
        ({"model": "logistics"}, 'Did you mean "logistic"?'),
        ({"poison": {"kind": "flop"}}, 'Did you mean "flip"?'),
        ({"seed": -1}, "seed must be"),
        (
            {"epsilon": 2.5},
            "3 reports of one person cost ε=7.5 at δ=0, but this run may cost ε=6",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_charged(
    settings: dict[str, Any], words: str
) -> None:
    federation = hosts(blobs(9), blobs(7, seed=1), budget=Budget(6.0, 0.0))
    with pytest.raises((ConfigError, BudgetExceeded)) as error:
        train("sign-ds", federation, **SMALL | settings)
    assert words in str(error.value)
    for holder in federation.holders.values():
        assert not any(entry.count for entry in holder.ledger.entries())


def of_tables(**changes: Any) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    frame, schema = toy(rows=60, seed=3)
    frame["id"] %= 20
    tables = {"one": frame[frame["id"] < 9], "two": frame[frame["id"] >= 9]}
    return tables, {"one": schema, "two": changes.get("two", schema)}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (None, "target is missing"),
        ("agee", 'Did you mean "age"?'),
        ("age", "is integer"),
        ("treated", "nullable"),
    ],
)
def test_a_table_needs_a_target_that_is_a_class(target: str | None, words: str) -> None:
    federation = Federation.rehearsal(
        *of_tables(), budget=Budget(6.0, 0.0), same_people=False
    )
    with pytest.raises(ConfigError) as error:
        train("sign-ds", federation, **SMALL, target=target)
    assert words in str(error.value)


def test_parties_must_describe_their_rows_alike() -> None:
    tables, schemas = of_tables(two=toy()[1].drop(["income"]))
    federation = Federation.rehearsal(
        tables, schemas, budget=Budget(6.0, 0.0), same_people=False
    )
    with pytest.raises(ConfigError, match="one and two"):
        train("sign-ds", federation, **SMALL, target="smoker")
    wrong = Population.from_arrays(np.zeros((2, 3)), [0, 1], classes=2)
    with pytest.raises(ConfigError, match="host 0 and the holdout"):
        train(
            "sign-ds", hosts(blobs(9), budget=Budget(6.0, 0.0)), **SMALL, holdout=wrong
        )


def test_a_protocol_gets_the_federation_that_it_is_for() -> None:
    tables, schemas = of_tables()
    with pytest.raises(SchemaError, match="a person has one row"):
        Federation.rehearsal(tables, schemas, budget=Budget(6.0, 0.0), same_people=True)
    federation = Federation.rehearsal(tables, schemas, budget=Budget(6.0, 1e-5))
    assert federation.same_people is False, (
        "the same columns are taken to be of different people"
    )
    with pytest.raises(ConfigError, match="same_people=True"):
        train("verti-gan", federation)
    vertical = Federation.rehearsal(
        {"one": tables["one"].drop_duplicates("id")},
        schemas,
        budget=Budget(6.0, 0.0),
        same_people=True,
    )
    with pytest.raises(ConfigError, match="same_people=False"):
        train("sign-ds", vertical, **SMALL, target="smoker")


def test_what_was_asked_twice_after_a_crash_is_stated_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = hosts(blobs(5), budget=Budget(100.0, 0.0))
    config = Config(**SMALL | {"max_reports": 6, "checkpoint_every": 2})

    def go(*, resume: bool) -> Any:
        parties = Recorded(federation, folder=tmp_path / "parties")
        return sign_ds.train(
            config,
            parties,
            federation.schemas,
            checkpoint=tmp_path / "server",
            resume=resume,
        )

    plain = rounds.from_message
    calls = 0

    def dies(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        # the reports of round 4 are paid for, and lost; round 3 was not saved either
        if calls == 4:
            raise RuntimeError("power cut")
        return plain(*arguments)

    monkeypatch.setattr(rounds, "from_message", dies)
    with pytest.raises(RuntimeError):
        go(resume=False)
    outcome = go(resume=True)
    ledger = federation.holders["host 0"].ledger
    assert outcome.trained.card["rounds"] == 6
    assert ledger.spend()[PureDp(2.0)] == 8
    assert outcome.privacy.epsilon("host 0") == ledger.spent() == 16.0


def test_a_run_is_resumed_as_it_was(tmp_path: Path) -> None:
    federation = hosts(blobs(10), budget=Budget(6.0, 0.0))
    train("sign-ds", federation, folder=tmp_path, run="r", **SMALL)
    with pytest.raises(ArtefactError, match=r"epsilon=2\.0, not 1\.0"):
        train(
            "sign-ds",
            federation,
            folder=tmp_path,
            run="r",
            resume=True,
            **SMALL | {"epsilon": 1.0},
        )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tables, schemas = of_tables()
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        schemas[name].save(tmp_path / f"{name}.toml")
    toy(rows=40, seed=8)[0].drop(columns="id").to_csv(
        tmp_path / "public.csv", index=False
    )
    return tmp_path


def carried_out(home: Path, **changes: Any) -> tuple[Result, Path]:
    party = {"epsilon": 6.0, "delta": 1e-6}
    body = {
        "protocol": "sign-ds",
        "out": "out",
        "holdout": "public.csv",
        "settings": SMALL | {"target": "smoker", "evaluate_every": 3},
        "parties": {
            n: {"table": f"{n}.csv", "schema": f"{n}.toml"} | party
            for n in ("one", "two")
        },
    }
    body |= changes
    return run_file(RunFile.from_dict(body, folder=home))


def test_a_run_file_leaves_a_model_a_true_ledger_and_a_history(home: Path) -> None:
    result, out = carried_out(home)
    model = Classifier.load(out)
    rows = toy(rows=12, seed=5)[0]
    assert (model.predict(rows) == result.model.predict(rows)).all()
    assert [point["round"] for point in model.card["history"]] == [3, 6]
    privacy = json.loads((out / "privacy.json").read_text())
    assert model.card["privacy"] == privacy
    with Ledger(home / "ledgers" / "one.ledger") as ledger:
        assert ledger.spent() == privacy["parties"][0]["epsilon"]["server"]
        assert ledger.spend(3).total() <= 3
    assert not (out / "synthetic.parquet").exists()
    with pytest.raises(ArtefactError, match="draws no rows"):
        _ = result.generator
    again = RunFile.load(out / "run.toml")
    assert again.holdout == str((home / "public.csv").resolve())


def test_a_refused_run_file_leaves_its_folder_free(home: Path) -> None:
    for words, changes in (
        ("draws no rows", {"rows": 5}),
        ("nowhere.csv", {"holdout": "nowhere.csv"}),
        ('"holdout" must be a text', {"holdout": 7}),
        ('Did you mean "smoker"?', {"settings": SMALL | {"target": "smokes"}}),
        ("Missing: 10", {"settings": SMALL | {"target": "smoker", "max_reports": 1}}),
    ):
        with pytest.raises((ConfigError, SchemaError)) as error:
            carried_out(home, **changes)
        assert words in str(error.value)
    for file in home.rglob("*.ledger"):
        with Ledger(file) as ledger:
            assert not any(entry.count for entry in ledger.entries())
    carried_out(home)
