"""One report a person: everyone pays once and for one report, whatever a server makes
up; what is none is counted.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from odd_servers import Spoiling, resumed
from phones import refuses_other_rows

from refusals import raises
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.data.table import read_table
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyAway,
    PartyError,
)
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.core import Ask
from understudy.protocols.core.base import Settle
from understudy.protocols.cross_device.host import Reported
from understudy.protocols.one_report import protocol
from understudy.protocols.one_report.party import (
    BeginReports,
    MarginalsRound,
    OneReportParty,
)
from understudy.report import view
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

FRAME, SCHEMA = toy(rows=60, seed=3)
SCHEMA = SCHEMA.drop(["treated", "visits", "income"])
FRAME = FRAME[["id", *SCHEMA.names]].assign(id=FRAME["id"] % 20)  # three rows each
QUICK: dict[str, Any] = {"components": 4, "steps": 3, "device": "cpu"}
WIDTH = sum(Codec(SCHEMA).sizes)


def federation(
    frame: pd.DataFrame = FRAME,
    schema: Schema = SCHEMA,
    epsilon: float = 8.0,
    hosts: int = 2,
) -> Federation:
    tables = {
        name: frame[frame["id"] % hosts == n]
        for n, name in enumerate("abcdefg"[:hosts])
    }
    return Federation.rehearsal(
        tables,
        dict.fromkeys(tables, schema),
        budget=Budget(epsilon, 0.0),
        seed=1,
        same_people=False,
    )


def a_party(
    epsilon: float = 8.0,
    seed: int = 1,
    frame: pd.DataFrame = FRAME,
    schema: Schema = SCHEMA,
) -> OneReportParty:
    party = protocol.PROTOCOL.build(
        "a",
        read_table(frame, schema, name="a", one_row_each=False),
        Ledger.rehearsal(holder="a", budget=Budget(epsilon, 0.0)),
        run="r",
        budget=Budget(epsilon, 0.0),
        rng=SecureRng.from_seed(seed),
    )
    party.answer(
        BeginReports(
            config={"epsilon_total": epsilon},
            schema=Schema(columns=schema.columns).to_dict(),
        )
    )
    return party


def asked(
    people: list[int], columns: list[list[int]] | None = None, **more: Any
) -> MarginalsRound:
    columns = [[0], [0, 1]] if columns is None else columns
    sizes = Codec(SCHEMA).sizes
    plain: dict[str, Any] = {
        "round": 1,
        "people": torch.tensor(people),
        "which": torch.zeros(len(people), dtype=torch.int64),
        "groups": torch.cat([torch.arange(size) for size in sizes]),
        "columns": columns,
        "listed": [torch.zeros(0, len(one), dtype=torch.int64) for one in columns],
    }
    return MarginalsRound(**plain | more)


# What is learned


def linked(n: int, each: int = 1) -> tuple[pd.DataFrame, Schema]:
    rng = np.random.default_rng(0)
    kind = rng.choice(3, n, p=(0.5, 0.3, 0.2))
    frame = pd.DataFrame(
        {
            "id": np.arange(n) // each,
            "kind": np.array(["x", "y", "z"], dtype=object)[kind],
            "high": rng.random(n) < np.array([0.1, 0.5, 0.9])[kind],
            "coin": rng.random(n) < 0.5,
            "only": "one",
        }
    )
    columns = (
        Categorical(name="kind", categories=("x", "y", "z")),
        Boolean(name="high"),
        Boolean(name="coin"),
        Categorical(name="only", categories=("one",)),
    )
    return frame, Schema(columns=columns, person="id")


@pytest.mark.parametrize(
    ("epsilon", "target", "near"), [(8.0, None, 0.02), (2.0, "high", 0.05)]
)
def test_many_reports_recover_all_two_way_tables(
    epsilon: float, target: str | None, near: float
) -> None:
    frame, schema = linked(10_000, each=2)
    result = train(
        "one-report",
        federation(frame, schema, epsilon),
        epsilon_total=epsilon,
        target=target,
        device="cpu",
        components=16,
        steps=80,
    )
    codec = Codec(schema)
    real, synthetic = (
        codec.encode(part).double()
        for part in (frame, result.generator.sample(20_000, seed=1))
    )
    gap = (real.T @ real / len(real) - synthetic.T @ synthetic / len(synthetic)).abs()
    assert float(gap.max()) < near
    card = result.generator.card
    assert card["reports"] == {"all": 5_000, "refused": 0, "of the busiest person": 1}
    assert card["bytes"] <= 2 * 5_000
    assert card["law"] == "of a random row of a random person"


# What a person pays, and what is asked of them


def test_a_person_without_rows_reports_by_no_row_of_anybody() -> None:
    party = a_party(epsilon=40.0)  # at this ε a report tells the cell
    people = party.population
    rows = torch.ones_like(people.rows)
    starts = torch.tensor([0, 0, *range(3, len(rows) + 1, 3)])
    party.population = replace(
        people, rows=rows, starts=starts, ids=np.arange(len(starts) - 1)
    )
    sent = party.reports(asked([0, 1]))
    assert sent.tolist() == [0, 1]


def test_everyone_pays_once_for_one_report() -> None:
    fed = federation()
    result = train(
        "one-report", fed, epsilon_total=8.0, target="smoker", batch=3, **QUICK
    )
    for holder in fed.holders.values():
        for person in np.unique(holder.table.people):
            assert holder.ledger.spend(int(person)) == {PureDp(8.0): 1}
    assert result.generator.card["reports"] == {
        "all": 20,
        "refused": 0,
        "of the busiest person": 1,
    }
    assert result.privacy.epsilon("a") == 8.0
    assert "replace the content" in str(result.privacy)


def test_the_price_of_a_report_is_stated_against_everybody_alone_and_together() -> None:
    fed = federation()
    config = protocol.Config(**QUICK)
    privacy = protocol.train(
        config,
        LocalParties(fed.parties("one-report", run="r", config=config)),
        fed.schemas,
    ).privacy
    table = str(privacy).split("A person over all parties")[1].split("Assumed")[0]
    page = view.privacy_cells(privacy.to_dict())
    assert page is not None
    for who in (
        "an outsider who sees the release",
        "the server",
        "another party",
        "all others together",
    ):
        assert f"{who}  " in table
        assert (who, "8") in [(words, price) for words, price, *_ in page["person"]]
    assert table.count("  8\n") == 4


def test_everyone_is_asked_in_one_round_about_one_set() -> None:
    heeded: list[tuple[str, MarginalsRound]] = []

    class Heeding(LocalParties):
        def ask(
            self, message: Any, *, min_holders: int | None = None
        ) -> dict[str, Any]:
            if isinstance(message, dict):
                heeded.extend(
                    (name, one)
                    for name, one in message.items()
                    if isinstance(one, MarginalsRound)
                )
            return super().ask(message, min_holders=min_holders)

    fed = federation()
    config = protocol.Config(batch=3, share=0.4, **QUICK)
    parties = Heeding(fed.parties("one-report", run="r", config=config))
    protocol.train(config, parties, fed.schemas)
    seen = Counter(
        (name, person) for name, ask in heeded for person in ask.people.tolist()
    )
    assert set(seen.values()) == {1}
    assert len(seen) == 20
    assert {len(one) for _, ask in heeded[:2] for one in ask.columns} == {1}
    assert all(len(one) > 1 for one in heeded[-1][1].columns)


def test_nobody_reports_twice_whatever_they_are_asked_about() -> None:
    party = a_party()
    party.answer(asked([0, 1]))
    with pytest.raises(PartyError, match="1 times, which is the most in this run"):
        party.answer(asked([5, 1], [[2]]))
    with pytest.raises(PartyError, match="names a person twice"):
        party.answer(asked([5, 5]))
    assert party.ledger.spend(int(party.population.ids[5])) == {}
    assert party.ledger.spend(int(party.population.ids[1])) == {PureDp(8.0): 1}


def test_a_report_about_malicious_sets_has_the_law_that_was_paid_for() -> None:
    """A set that tells two people apart whatever else they hold: the odds of every
    report stay within e^ε.
    """
    rows = pd.DataFrame(
        {"id": range(4000), "kind": "x", "high": False, "coin": False, "only": "one"}
    )
    rows.loc[2000:, ["kind", "high", "coin"]] = ["z", True, True]
    schema = linked(1)[1]
    party = a_party(1.0, frame=rows, schema=schema)
    ask = asked(
        list(range(4000)),
        [[0, 1, 2]],
        groups=torch.tensor([0, 1, 2, 0, 1, 0, 1, 0]),
        listed=[torch.tensor([[2, 1, 1]])],
    )
    reply = party.answer(ask)
    assert isinstance(reply, Reported)
    mechanism = SubsetSelection(cells=2, epsilon=1.0)
    named, bad = mechanism.decode(reply.reports.value.view(-1, mechanism.bytes))  # type: ignore[union-attr]
    assert not bad.any()
    shares = [float((part == 0).double().mean()) for part in named[:, 0].split(2000)]
    wanted = math.exp(1) / (1 + math.exp(1))
    np.testing.assert_allclose(shares, [1 - wanted, wanted], atol=0.04)
    assert party.ledger.spent(0) == 1.0


def test_of_several_rows_one_is_drawn_by_the_person() -> None:
    """At ε = 50 a report tells its cell: each of a person's rows is told about as often
    as any other.
    """
    frame = pd.DataFrame(
        {"id": np.repeat(np.arange(3000), 3), "kind": ["x", "y", "z"] * 3000}
    ).assign(high=False, coin=False, only="one")
    party = a_party(50.0, frame=frame, schema=linked(1)[1])
    reply = party.answer(
        asked(list(range(3000)), [[0]], groups=torch.tensor([0, 1, 2, 0, 1, 0, 1, 0]))
    )
    counts = torch.bincount(reply.reports.value.long(), minlength=3)  # type: ignore[attr-defined]
    assert int(counts.sum()) == 3000
    assert (counts - 1000).abs().max() < 150


def changed(**more: Any) -> Callable[[], MarginalsRound]:
    return lambda: asked([0, 1], **more)


@pytest.mark.parametrize(
    "ask",
    [
        changed(which=torch.tensor([0])),
        changed(which=torch.tensor([0, 2])),
        changed(which=torch.tensor([-1, 0])),
        changed(which=torch.tensor([0.0, 1.0])),
        changed(columns=[[0, 0], [1]]),
        changed(columns=[[0], [99]]),
        changed(groups=torch.zeros(3, dtype=torch.int64)),
        changed(listed=[]),
    ],
)
def test_an_ask_that_makes_no_sense_is_refused_before_anybody_is_charged(
    ask: Callable[[], MarginalsRound],
) -> None:
    party = a_party()
    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        party.answer(ask())
    assert party.ledger.spend(0) == {}


def test_a_budget_below_the_report_is_refused_at_the_beginning() -> None:
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        train("one-report", federation(epsilon=5.0), epsilon_total=6.0, **QUICK)


# What comes back


def test_what_is_no_report_is_refused_and_counted_and_the_others_stay() -> None:
    fed = federation(hosts=7)
    config = protocol.Config(share=0.5, **QUICK)
    inside = fed.parties("one-report", run="r", config=config)
    spoil: dict[str, Callable[[torch.Tensor], Any]] = {
        "b": lambda value: value[:-1],
        "c": lambda value: value.repeat(2),
        "d": lambda value: value.float(),
        "e": lambda value: value[:, None],
        "f": lambda value: "nothing",
        "g": lambda value: torch.full_like(value, 255),
    }
    parties = Spoiling(inside, Reported, spoil)
    card = protocol.train(config, parties, fed.schemas).trained.card
    assert (card["reports"]["refused"], card["reports"]["all"]) == (17, 3)


def test_a_report_about_another_set_than_was_dealt_is_refused_where_it_is_none_of_its_own():
    """All are of kind z, the last of three cells, and say so, whatever they were asked.
    Of two cells none is third.
    """
    frame, schema = linked(30)
    frame["kind"] = "z"
    fed = Federation.rehearsal(
        {"b": frame}, {"b": schema}, budget=Budget(40.0, 0.0), seed=1, same_people=False
    )
    config = protocol.Config(share=1.0, **QUICK | {"epsilon_total": 40.0})
    dealt: list[int] = []

    class Others(LocalParties):
        def ask(
            self, message: Any, *, min_holders: int | None = None
        ) -> dict[str, Any]:
            if isinstance(message, dict) and isinstance(
                ask := message.get("b"), MarginalsRound
            ):
                kind = ask.columns.index([0])
                dealt.append(int((ask.which == kind).sum()))
                message = {"b": replace(ask, which=torch.full_like(ask.which, kind))}
            return super().ask(message, min_holders=min_holders)

    inside = fed.parties("one-report", run="r", config=config)
    card = protocol.train(config, Others(inside), fed.schemas).trained.card
    assert 0 < dealt[0] < 30
    assert card["reports"] == {
        "all": dealt[0],
        "refused": 30 - dealt[0],
        "of the busiest person": 1,
    }


def test_a_run_that_was_cut_off_keeps_the_reports_that_it_has(tmp_path: Path) -> None:
    fed = federation(epsilon=16.0)
    config = protocol.Config(share=0.5, **QUICK)
    outcome = resumed(
        protocol.train,
        config,
        lambda: fed.parties(
            "one-report", run="r", folder=tmp_path / "a", config=config
        ),
        fed.schemas,
        tmp_path / "server",
        after=(MarginalsRound, 2),
    )
    assert outcome.trained.card["ended"] == "after all rounds"
    assert outcome.trained.card["reports"]["all"] == 20
    assert outcome.privacy.epsilon("a") == 16.0  # what was cut off was paid for, too


class GoneAtTheEnd(LocalParties):
    """One host does not say what its ledger holds."""

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        asks = (
            dict.fromkeys(self.names, message)
            if isinstance(message, Ask)
            else dict(message)
        )
        if isinstance(asks.get("b"), Settle):
            if min_holders is None:
                raise PartyAway("b is away.")
            del asks["b"]
        return super().ask(asks)


def test_a_host_that_is_gone_when_all_have_reported_takes_no_report_along() -> None:
    fed = federation()
    config = protocol.Config(**QUICK)
    inside = GoneAtTheEnd(fed.parties("one-report", run="r", config=config))
    outcome = protocol.train(config, inside, fed.schemas)
    assert outcome.trained.card["reports"]["all"] == 20
    assert list(outcome.trained.card["gone"]) == ["b"]
    assert outcome.privacy.epsilon("b") == 8.0, "what it was asked"
    assert "what b has charged in its own ledger" in str(outcome.privacy)


def test_everyone_on_single_columns_leaves_the_columns_independent() -> None:
    frame, schema = linked(2000)
    result = train("one-report", federation(frame, schema), share=1.0, **QUICK)
    gram = result.generator.network.gram()  # type: ignore[operator]
    ways = gram.diagonal()
    torch.testing.assert_close(
        gram[:3, 3:5], torch.outer(ways[:3], ways[3:5]), atol=1e-4, rtol=0
    )
    assert float(ways[0]) == pytest.approx(0.5, abs=0.08)


def test_one_person_is_enough_to_end_a_run() -> None:
    fed = federation(FRAME[FRAME["id"] == 0], hosts=1)
    card = train("one-report", fed, **QUICK).generator.card
    assert card["reports"]["all"] == card["people"] == 1


# Bad input


def test_a_target_that_is_no_column_or_tells_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match='target "wage" is no column'):
        train("one-report", federation(), target="wage", **QUICK)
    frame, schema = linked(10)
    with pytest.raises(ConfigError, match='target "only" has one level'):
        train("one-report", federation(frame, schema), target="only", **QUICK)
    with pytest.raises(ConfigError, match="nothing to report"):
        train("one-report", federation(frame, schema.select(["only"])), **QUICK)


def test_parties_with_other_columns_or_arrays_are_refused() -> None:
    party = protocol.PROTOCOL.build(
        "a",
        read_table(FRAME, SCHEMA, name="a", one_row_each=False),
        Ledger.rehearsal(holder="a", budget=Budget(8.0, 0.0)),
        run="r",
        budget=Budget(8.0, 0.0),
        rng=SecureRng.from_seed(0),
    )
    refuses_other_rows("one-report", party, BeginReports, (FRAME, SCHEMA), **QUICK)


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon_total": 0.0},
        {"epsilon_total": 51.0},
        {"liars": 0.6},
        {"share": 1.1},
        {"share": math.nan},
        {"liars": -0.1},
        {"components": 0},
        {"steps": 0},
        {"batch": 0},
        {"seed": -1},
        {"target": 3},
        {"min_holders": 0},
    ],
)
def test_settings_without_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        protocol.Config(**bad)
