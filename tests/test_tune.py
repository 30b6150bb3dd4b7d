"""A choice among settings: its scores, its price, and who is refused."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.api.plan import plan_file
from understudy.api.train import run_file as train_file
from understudy.api.tune import PARTS, Shares, misplaced_parts, shares_of
from understudy.data.schema import Categorical, Schema
from understudy.data.table import Table
from understudy.evidence.claims import (
    EvidenceError,
    ledger_witness,
    require_witnessed,
)
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.federation import Federation
from understudy.runs.registry import protocol_named
from understudy.runs.runfile import RunFile

LEVELS = ("0", "1", "2")
QUICK = {"steps": 30, "products": "dealt"}


def schema_of(names: str) -> Schema:
    columns = tuple(Categorical(name=name, categories=LEVELS) for name in names)
    return Schema(columns=columns, person="id")


def copied_column(people: int, seed: int) -> pd.DataFrame:
    """Column b is column a, and c is neither."""
    rng = np.random.default_rng(seed)
    a, c = rng.choice(LEVELS, (2, people))
    return pd.DataFrame({"id": np.arange(people), "a": a, "b": a, "c": c})


def federation(budget: Budget, **more: Any) -> Federation:
    return Federation.rehearsal(
        {"x": copied_column(2_000, 1)},
        {"x": schema_of("abc")},
        budget=budget,
        seed=3,
        **more,
    )


def ledger_spend(of: Federation, name: str) -> Counter[Any]:
    return Counter(of.holders[name].ledger.spend())


def test_a_score_counts_people_in_a_wrong_cell() -> None:
    frame = pd.DataFrame({"id": [1, 2, 3, 4], "a": list("0012"), "b": list("0012")})
    table = Table(frame, schema_of("ab"), "rows")
    assert misplaced_parts(table, frame) == 0
    elsewhere = frame.assign(b=list("1120"))  # every cell is another one
    assert misplaced_parts(table, elsewhere) == 4 * PARTS
    half = pd.concat([frame, elsewhere])
    assert misplaced_parts(table, half) == 2 * PARTS


def test_a_person_with_several_rows_counts_once() -> None:
    several = pd.DataFrame({"id": [1, 1, 1, 2], "a": list("0001"), "b": list("0001")})
    drawn = pd.DataFrame({"a": list("01"), "b": list("01")})
    assert misplaced_parts(Table(several, schema_of("ab"), "rows"), drawn) == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_person_moves_a_score_by_one_person_and_its_rounding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(3, 12))
    columns = rng.choice(LEVELS, (3, rows))
    frame = pd.DataFrame(dict(zip("abc", columns, strict=True)))
    frame.insert(0, "id", rng.integers(0, 4, rows))
    drawn = pd.DataFrame(dict(zip("abc", rng.choice(LEVELS, (3, 7)), strict=True)))
    schema = schema_of("abc")
    whole = misplaced_parts(Table(frame, schema, "rows"), drawn)
    for person in frame.id.unique():
        rest = frame[frame.id != person]
        if len(rest):
            moved = whole - misplaced_parts(Table(rest, schema, "rows"), drawn)
            assert abs(moved) <= PARTS + 1


def test_the_better_candidate_is_kept_and_all_are_paid_for() -> None:
    budget = Budget(4.0, 1e-6)
    held = federation(budget)
    result = us.train("gram", held, tune={"components": [1, 16]}, **QUICK)
    told = result.generator.card["tuned"]
    assert told["candidates"] == [{"components": 1}, {"components": 16}]
    assert told["chosen"] == 1  # one component is independent columns
    assert result.generator.card["config"]["components"] == 16
    rows = result.generator.sample(2_000, seed=0)
    assert (rows.a == rows.b).mean() > 0.9
    (party,) = result.privacy.parties
    assert party.budget == budget
    assert Counter(party.insider) == ledger_spend(held, "x")
    assert result.generator.card["privacy"] == result.privacy.to_dict()
    assert 0.95 * budget.epsilon < result.privacy.epsilon() <= budget.epsilon


def test_scores_of_joint_releases_are_charged_for_all_holders_of_a_person() -> None:
    budgets = {"x": Budget(2.0, 1e-6), "y": Budget(2.0, 1e-6)}
    candidates = [{"components": 8}, {"components": 16}, {"components": 32}]

    def moved(protocol: str, same_people: bool, tuned: Any, **settings: Any) -> int:
        record = protocol_named(protocol)
        shares = shares_of(record, budgets, tuned, settings, same_people=same_people)
        return shares["x"].moved

    assert moved("gram", True, candidates) == 6
    assert moved("gram", False, candidates) == 3
    assert moved("gram", False, candidates, max_holders_per_person=2) == 6
    votes = [{"threshold": 0.1}, {"threshold": 0.2}]
    assert moved("vd-gan-pate", True, votes) == 2  # its parties' prices compose


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_shares_that_add_up_stay_within_the_budget(delta: float) -> None:
    budget = Budget(1.0, delta)
    shares = Shares.from_budget(
        budget, candidates=4, holders_of_person=2, spends=lambda part: None
    )
    scores = epsilon({shares.noise.event: shares.moved}, shares.scores.delta)
    assert scores <= shares.scores.epsilon + 1e-9
    assert 4 * shares.candidate.epsilon + scores <= 1.0 + 1e-9
    assert 4 * shares.candidate.delta + shares.scores.delta <= delta * (1 + 1e-9)


def test_a_run_that_was_stopped_pays_for_no_candidate_twice(tmp_path: Path) -> None:
    budget = Budget(4.0, 1e-6)
    held = federation(budget)
    tuned = {"tune": {"components": [1, 16]}, "run": "chosen", **QUICK}
    first = us.train("gram", held, folder=tmp_path, **tuned)
    paid = ledger_spend(held, "x")
    again = us.train("gram", held, folder=tmp_path, resume=True, **tuned)
    assert ledger_spend(held, "x") == paid
    assert again.generator.card["tuned"] == first.generator.card["tuned"]
    assert Counter(again.privacy.parties[0].insider) == paid


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_run_goes_on_with_the_candidate_that_it_stopped_at(
    tmp_path: Path, share: float
) -> None:
    budget = Budget(4.0, 1e-6)
    tuned = {"tune": {"components": [1, 16]}, "run": "chosen", **QUICK}
    seen: list[Any] = []
    whole = federation(budget)
    us.train("gram", whole, folder=tmp_path / "whole", watch=seen.append, **tuned)
    stop_at = int(share * len(seen))
    held = federation(budget)

    def watch(progress: Any) -> None:
        nonlocal stop_at
        stop_at -= 1
        if stop_at == 0:
            raise KeyboardInterrupt

    folder = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        us.train("gram", held, folder=folder, watch=watch, **tuned)
    result = us.train("gram", held, folder=folder, resume=True, **tuned)
    assert ledger_spend(held, "x") == ledger_spend(whole, "x")
    assert Counter(result.privacy.parties[0].insider) == ledger_spend(held, "x")


@pytest.mark.parametrize(
    ("protocol", "tune", "settings", "said"),
    [
        ("lopub", {"max_reports": [1, 2]}, {"epsilon_total": 1.0}, "report themselves"),
        ("gram", {"components": [1, 2]}, {"private": False}, "no finite price"),
        ("gram", {"components": [1]}, {}, "2 to 16 candidates"),
        ("gram", {"components": 3}, {}, "must be a list"),
        ("gram", {"component": [1, 2]}, {}, "component"),
        ("gram", {"components": [1, 2]}, {"public": "rows.csv"}, "no public rows"),
        ("verti-gan", {"batch": [1, 2]}, {"sampling": "shared"}, "two prices"),
    ],
)
def test_what_cannot_be_chosen_is_refused_before_anything_is_charged(
    protocol: str, tune: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    held = federation(Budget(1.0, 1e-6))
    with pytest.raises(ConfigError, match=said):
        us.train(protocol, held, tune=tune, **settings)
    assert not ledger_spend(held, "x")


def test_a_budget_without_end_has_no_shares() -> None:
    held = federation(Budget(math.inf, 0.0))
    with pytest.raises(ConfigError, match="without end"):
        us.train("gram", held, tune={"components": [1, 2]}, **QUICK)


def test_a_ledger_with_too_little_left_is_not_charged_for_a_part() -> None:
    held = federation(Budget(1.0, 1e-6))
    us.train("gram", held, **QUICK)
    paid = ledger_spend(held, "x")
    with pytest.raises(ConfigError, match="left"):
        us.train("gram", held, tune={"components": [1, 2]}, **QUICK)
    assert ledger_spend(held, "x") == paid


def run_file(home: Path, **more: Any) -> dict[str, Any]:
    copied_column(2_000, 1).to_csv(home / "x.csv", index=False)
    schema_of("abc").save(home / "x.toml")
    party = {"table": "x.csv", "schema": "x.toml", "epsilon": 4.0, "delta": 1e-6}
    return {
        "protocol": "gram",
        "out": "out",
        "settings": QUICK,
        "tune": {"components": [1, 16]},
        "parties": {"x": party},
    } | more


def test_a_run_file_tunes_and_its_plan_says_the_price(tmp_path: Path) -> None:
    file = RunFile.from_dict(run_file(tmp_path), folder=tmp_path)
    forecast = plan_file(file)
    assert forecast.price == {"x": 4.0}
    assert "2 candidates" in str(forecast)
    result, out = train_file(file)
    assert result.generator.card["tuned"]["chosen"] == 1
    assert RunFile.load(out / "run.toml").tune == {"components": [1, 16]}
    assert result.privacy.epsilon() <= 4.0
    assert not result.privacy.rehearsal
    with Ledger(tmp_path / "ledgers" / "x.ledger") as book:
        witness = ledger_witness(book, result.run)
    # candidates stand under names of their own
    with pytest.raises(EvidenceError, match="no entry"):
        require_witnessed("x", witness, result.privacy.to_dict(), "gram")


def test_a_setting_stands_once_and_holders_elsewhere_do_not_tune(
    tmp_path: Path,
) -> None:
    twice = run_file(tmp_path, settings={"components": 3})
    with pytest.raises(ConfigError, match='"components" stands in'):
        RunFile.from_dict(twice, folder=tmp_path)
    elsewhere = run_file(tmp_path)
    del elsewhere["parties"]["x"]["table"]
    with pytest.raises(ConfigError, match="in one process"):
        RunFile.from_dict(elsewhere, folder=tmp_path, elsewhere=True)
