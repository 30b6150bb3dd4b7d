"""LoPub and LoCop: nobody reports beyond `max_reports`, everyone pays for each report, and
enough reports find the table.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from odd_servers import resumed
from phones import refuses_other_rows
from scipy.stats import multivariate_normal, norm

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
    PartyError,
)
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.local.rappor import Rappor
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.cross_device.host import Reported
from understudy.protocols.papers.fed_wae import lopub
from understudy.protocols.papers.fed_wae.lopub import LoPubBegin, LoPubRound
from understudy.protocols.papers.fed_wae.lopub_fit import (
    Estimates,
    _scores,
    _solve,
    lasso,
    mutual_information,
    parents_by_search,
)
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

FRAME, SCHEMA = toy(rows=60, seed=3)
FRAME["id"] %= 20  # three rows each


def federation(
    frame: pd.DataFrame = FRAME,
    schema: Schema = SCHEMA,
    epsilon: float = 300.0,
    **more: Any,
) -> Federation:
    budget = Budget(epsilon, 0.0)
    tables = {name: frame[frame["id"] % 2 == n] for n, name in enumerate(("a", "b"))}
    return Federation.rehearsal(
        tables,
        dict.fromkeys(tables, schema),
        budget=budget,
        seed=1,
        same_people=False,
        **more,
    )


def a_party(budget: float = 300.0, seed: int = 1) -> lopub.LoPubParty:
    return lopub.PROTOCOL.build(
        "a",
        read_table(FRAME, SCHEMA, name="a", one_row_each=False),
        Ledger.rehearsal(holder="a", budget=Budget(budget, 0.0)),
        run="r",
        budget=Budget(budget, 0.0),
        rng=SecureRng.from_seed(seed),
    )


def begin(**settings: Any) -> LoPubBegin:
    return LoPubBegin(config=settings, schema=Schema(columns=SCHEMA.columns).to_dict())


def asked(people: list[int], round: int = 1) -> LoPubRound:
    return LoPubRound(round=round, people=torch.tensor(people))


# Two columns that go together, and one that goes with neither: what the fits must find


def linked(n: int) -> tuple[pd.DataFrame, Schema]:
    rng = np.random.default_rng(0)
    kind = rng.choice(3, n, p=(0.5, 0.3, 0.2))
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "kind": np.array(["x", "y", "z"], dtype=object)[kind],
            "high": rng.random(n) < np.array([0.1, 0.5, 0.9])[kind],
            "coin": rng.random(n) < 0.5,
        }
    )
    columns = (
        Categorical(name="kind", categories=("x", "y", "z")),
        Boolean(name="high"),
        Boolean(name="coin"),
        Categorical(name="only", categories=("one",)),
    )
    return frame.assign(only="one"), Schema(columns=columns, person="id")


@pytest.mark.parametrize(("method", "near"), [("lopub", 0.02), ("locop", 0.03)])
def test_many_clear_reports_recover_all_two_way_tables(
    method: str, near: float
) -> None:
    frame, schema = linked(5_000)
    result = train(
        "lopub", federation(frame, schema, 200.0), method=method, epsilon_total=200.0
    )
    codec = Codec(schema)
    drawn = result.generator.sample(20_000, seed=1)
    real, synthetic = (codec.encode(part).double() for part in (frame, drawn))
    gap = (real.T @ real / len(real) - synthetic.T @ synthetic / len(synthetic)).abs()
    assert float(gap.max()) < near


def test_lopub_finds_the_dependent_pair_and_no_other() -> None:
    frame, schema = linked(20_000)
    network: Any = train(
        "lopub", federation(frame, schema, 60.0), epsilon_total=60.0
    ).generator.network
    assert sorted(map(len, network.parents)) == [0, 0, 0, 1]
    assert {0, 1} == {child for child, up in enumerate(network.parents) if up} | {
        p for up in network.parents for p in up
    }


def test_reports_that_are_noise_alone_give_independent_columns() -> None:
    frame, schema = linked(300)
    network: Any = train(
        "lopub", federation(frame, schema, 0.05), epsilon_total=0.05
    ).generator.network
    assert not any(network.parents)
    copula: Any = train(
        "lopub", federation(frame, schema, 0.05), epsilon_total=0.05, method="locop"
    ).generator.network
    assert torch.allclose(copula.factor, torch.eye(4).double(), atol=1e-3)


# Who reports, how often, and what it costs


def test_everyone_pays_for_each_report_and_for_no_more() -> None:
    fed = federation()
    result = train("lopub", fed, epsilon_total=300.0, max_reports=2, batch=4)
    for holder in fed.holders.values():
        for person in np.unique(holder.table.people):
            assert holder.ledger.spend(int(person)) == {PureDp(150.0): 2}
    card = result.generator.card
    assert card["reports"] == {"all": 40, "of the busiest person": 2}
    assert (
        card["epsilon_of_a_report"]["tight"]
        <= card["epsilon_of_a_report"]["charged"]
        == 150.0
    )
    assert result.privacy.epsilon("a") == 300.0
    assert "replace the content" in str(result.privacy)


def test_a_person_beyond_the_cap_is_refused_and_nothing_is_charged() -> None:
    party = a_party()
    party.answer(begin(epsilon_total=300.0, max_reports=2))
    for round in (1, 2):
        party.answer(asked([0, 1], round))
    with pytest.raises(PartyError, match="2 times, which is the most in this run"):
        party.answer(asked([5, 1], 3))
    assert party.ledger.spend(int(party.population.ids[5])) == {}


def test_a_person_reports_on_different_rows_while_there_are_any() -> None:
    party = a_party()
    party.answer(begin(epsilon_total=300.0, max_reports=6))
    # as good as no flips: a report tells its row
    party.mechanism = replace(party.mechanism, epsilon=1e6)
    everyone = list(range(20))
    seen = [party.answer(asked(everyone, round)) for round in range(1, 7)]
    assert all(isinstance(reply, Reported) for reply in seen)
    bits = torch.stack([reply.reports.value for reply in seen])  # type: ignore[attr-defined]
    # three rows each: the fourth report is on the first row again
    assert torch.equal(bits[:3], bits[3:])
    rows = party.population.rows.view(20, 3, -1)
    for person in everyone:
        told = {tuple(one.tolist()) for one in bits[:3, person]}
        assert len(told) == len({tuple(one.tolist()) for one in rows[person]})
    first = a_party(seed=2)
    first.answer(begin(epsilon_total=300.0))
    first.answer(asked(everyone))
    assert len(first.first.unique()) == 3  # type: ignore[union-attr]


def test_who_takes_part_reports_on_all_their_rows_also_where_others_cannot_pay():
    party = a_party(budget=60.0)
    spent = FRAME["id"].unique()[:5].tolist()
    party.ledger.charge(
        PureDp(30.0), run="before", description="another run", people=spent
    )
    party.answer(begin(epsilon_total=60.0, max_reports=3))
    assert party.places.tolist() == list(range(5, 20))
    # as good as no flips: a report tells its row
    party.mechanism = replace(party.mechanism, epsilon=1e6)
    seen = [party.answer(asked(list(range(15)), round)) for round in range(1, 4)]
    bits = torch.stack([reply.reports.value for reply in seen])  # type: ignore[attr-defined]
    rows = party.population.rows.view(20, 3, -1)[5:]
    for person in range(15):
        told = {tuple(one.tolist()) for one in bits[:, person]}
        assert len(told) == len({tuple(one.tolist()) for one in rows[person]})


def test_a_budget_below_the_reports_is_refused_at_the_beginning() -> None:
    with raises(Exception, effect=Effect.NOTHING_SENT):
        a_party(budget=5.0).answer(begin(epsilon_total=6.0))


def test_a_round_that_was_cut_off_is_asked_again_and_nobody_counts_as_having_answered(
    tmp_path: Path,
) -> None:
    fed = federation()
    config = lopub.Config(epsilon_total=100.0, batch=6)
    outcome = resumed(
        lopub.train,
        config,
        lambda: fed.parties("lopub", run="r", folder=tmp_path / "one", config=config),
        fed.schemas,
        tmp_path / "server",
        after=(LoPubRound, 2),
    )
    assert outcome.trained.card["ended"] == "after all rounds"
    assert outcome.trained.card["reports"]["all"] == 20  # one each
    # what was cut off was paid for, too
    assert max(outcome.privacy.epsilon(name) for name in fed.holders) == 200.0


def test_a_budget_that_is_spent_before_the_first_report_leaves_nothing_to_fit() -> None:
    fed = federation(epsilon=8.0)
    ledger = fed.holders["a"].ledger

    class Meanwhile(LocalParties):
        def ask(
            self, message: Any, *, min_holders: int | None = None
        ) -> dict[str, Any]:
            replies = super().ask(message, min_holders=min_holders)
            if isinstance(message["a"], LoPubBegin):
                ledger.charge(PureDp(1.0), run="another", description="another run")
            return replies

    parties = Meanwhile(fed.parties("lopub", run="r", config=lopub.Config()))
    with pytest.raises(BudgetExceeded, match="ended after 0 of 1 rounds: a: "):
        lopub.train(lopub.Config(), parties, fed.schemas)


# Bad input


def test_columns_with_too_many_cells_together_are_named() -> None:
    with pytest.raises(ConfigError, match=r'"age" and "visits" have 110 cells'):
        train("lopub", federation(), cells=100)


def test_a_table_of_columns_with_one_level_has_nothing_to_report() -> None:
    schema = Schema(
        columns=(Categorical(name="colour", categories=("red",)),), person="id"
    )
    frame = pd.DataFrame({"id": [0, 1], "colour": ["red", "red"]})
    with pytest.raises(ConfigError, match="nothing to report"):
        train("lopub", federation(frame, schema))


def test_parties_with_other_columns_or_arrays_are_refused() -> None:
    refuses_other_rows("lopub", a_party(), LoPubBegin, (FRAME, SCHEMA))


def test_reports_of_another_shape_are_discarded() -> None:
    class Short(LocalParties):
        def ask(
            self, message: Any, *, min_holders: int | None = None
        ) -> dict[str, Any]:
            replies = super().ask(message)
            for name, reply in replies.items():
                if isinstance(reply, Reported):
                    replies[name] = replace(
                        reply, reports=replace(reply.reports, value=torch.zeros(1, 2))
                    )
            return replies

    fed = federation()
    with pytest.raises(MessageError, match="discarded"):
        lopub.train(
            lopub.Config(epsilon_total=300.0),
            Short(fed.parties("lopub", run="r")),
            fed.schemas,
        )


@pytest.mark.parametrize(
    "bad",
    [
        {"method": "copula"},
        {"epsilon_total": 0.0},
        {"max_reports": 0},
        {"threshold": 1.5},
        {"clique": 0},
        {"bound": "none"},
        {"seed": -1},
        {"batch": 0},
    ],
)
def test_settings_without_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        lopub.Config(**bad)


# The fit's parts


def test_without_flips_the_joint_table_is_the_counted_one() -> None:
    rappor = Rappor(sizes=(3, 1, 4), epsilon=1e4)
    codes = torch.stack([torch.randint(0, size, (500,)) for size in rappor.sizes], 1)
    packed = torch.from_numpy(
        np.packbits(rappor(codes, SecureRng.from_seed(1)).numpy(), axis=1)
    )
    counted = np.zeros((3, 1, 4))
    np.add.at(counted, tuple(codes.numpy().T), 1 / 500)
    table = Estimates(rappor, packed).joint((0, 1, 2))
    assert table is not None
    np.testing.assert_allclose(table, counted, atol=1e-4)


def test_the_lasso_leaves_nothing_where_noise_could_have_made_it() -> None:
    design = np.eye(50)
    noise = np.random.default_rng(0).normal(0, 0.1, (200, 50))
    assert np.mean([lasso(design, moments, 0.1) is None for moments in noise]) > 0.75
    found = lasso(design, np.eye(50)[7], 0.1)
    assert found is not None
    assert found.argmax() == 7


def test_mutual_information_of_a_table_by_hand() -> None:
    assert mutual_information(np.outer([0.3, 0.7], [0.5, 0.5])) == pytest.approx(
        0, abs=1e-12
    )
    assert mutual_information(np.array([[0.5, 0], [0, 0.5]])) == pytest.approx(
        math.log(2)
    )


def test_on_a_chordal_graph_every_columns_parents_know_each_other() -> None:
    edges = {
        (0, 1): 3.0,
        (0, 2): 2.0,
        (1, 2): 1.0,
        (2, 3): 5.0,
        (3, 4): 4.0,
        (2, 4): 0.5,
    }
    strength = np.zeros((6, 6))
    for (j, k), weight in edges.items():
        strength[j, k] = strength[k, j] = weight
    parents = parents_by_search(strength, [2] * 6, clique=9, cells=1 << 20)
    assert sum(map(len, parents)) == len(edges)  # nothing of the graph is lost
    for up in parents:
        assert all(strength[a, b] > 0 for a in up for b in up if a != b)
    assert (
        max(map(len, parents_by_search(strength, [2] * 6, clique=2, cells=1 << 20)))
        == 1
    )
    assert not any(parents_by_search(strength, [2] * 6, clique=9, cells=3))


@pytest.mark.parametrize("rho", [-0.9, -0.3, 0.0, 0.5, 0.95])
def test_the_copulas_correlation_is_the_one_that_made_the_table(rho: float) -> None:
    one = np.array([0.3, 0.7])
    other = np.array([0.2, 0.5, 0.3])
    law = multivariate_normal(cov=[[1, rho], [rho, 1]])
    at: Any = norm.ppf(0.3), norm.ppf([0.2, 0.7])
    corner = np.diff([0, *(law.cdf([at[0], cut]) for cut in at[1]), 0.3])
    table = np.array([corner, other - corner])
    (first, left), (second, right) = _scores(one), _scores(other)
    wanted = first @ (table - np.outer(one, other)) @ second
    assert _solve((left * right)[None], np.array([wanted]))[0] == pytest.approx(
        rho, abs=2e-3
    )
