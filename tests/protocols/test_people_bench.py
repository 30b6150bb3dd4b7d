"""The people's benchmark: what its references are made of, and that its liars say what
they are told to.
"""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from understudy.data.samples import toy
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.one_report.party import BeginReports, MarginalsRound
from understudy.runs.registry import protocol_named


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("people")


def job(**changes: Any) -> dict[str, Any]:
    usual = {
        "dataset": "toy",
        "method": "bootstrap",
        "rows": 2,
        "level": "local",
        "epsilon_total": 2.0,
        "seed": 0,
        "data": None,
        "device": "cpu",
        "models": ("boosting",),
    }
    return usual | changes


def test_a_subsample_is_so_many_real_rows_as_often_as_it_takes(
    bench: ModuleType,
) -> None:
    data = bench.load("toy", None)
    rows, _ = bench.drawn(job(method="25 rows"), data)
    assert len(rows) == len(data.train)
    real = set(map(tuple, data.train.astype(str).to_numpy()))
    seen = set(map(tuple, rows.astype(str).to_numpy()))
    assert seen <= real
    assert len(seen) <= 25


def test_every_reference_has_its_figures_and_no_price(bench: ModuleType) -> None:
    row = bench.measure(
        job(method="independent columns", rows="", level="", epsilon_total="")
    )
    assert 0 < row["avd2"] < row["avd3"] < 1
    assert 0 <= row["auc"] <= 1
    assert set(row) <= set(bench.FIELDS)
    assert "bytes" not in row


def test_every_method_spends_the_total_on_one_report(bench: ModuleType) -> None:
    data = bench.load("toy", None)
    for method in (*bench.OURS, *bench.OTHERS):
        named = bench.settings(job(method=method), data, 1500)
        config = protocol_named(named.pop("protocol")).configured(named)
        price = (
            getattr(config, "epsilon_total", None)
            or config.epsilon * config.max_reports
        )
        assert price == 2.0
        assert getattr(config, "max_reports", 1) == 1


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_liars_name_the_first_cells_of_their_set_and_others_do_not(
    load_bench: Callable[..., ModuleType], bench: ModuleType, share: float
) -> None:
    liars = load_bench("people", "liars")
    frame, schema = toy(rows=200, seed=3)
    schema = replace(schema)
    budget = Budget(0.5, 0.0)
    party = liars.LyingParty(
        "a",
        read_table(frame, schema, name="a"),
        Ledger.rehearsal(holder="a", budget=budget),
        run="r",
        budget=budget,
        rng=SecureRng.from_seed(0),
    ).lie("one cell", share, 0)
    party.answer(
        BeginReports(
            config={"epsilon_total": 0.5},
            schema=Schema(columns=schema.columns).to_dict(),
        )
    )
    groups = torch.cat([torch.arange(size) for size in party.levels])
    reply = party.answer(
        MarginalsRound(
            round=1,
            people=torch.arange(200),
            which=torch.zeros(200, dtype=torch.int64),
            groups=groups,
            columns=[[0, 1]],
            listed=[torch.zeros(0, 2, dtype=torch.int64)],
        )
    )
    mechanism = SubsetSelection(cells=party.levels[0] * party.levels[1], epsilon=0.5)
    named, bad = mechanism.decode(reply.reports.value.view(200, -1))
    assert not bad.any()
    assert bool((named == torch.arange(mechanism.size)).all()) is bool(share)
