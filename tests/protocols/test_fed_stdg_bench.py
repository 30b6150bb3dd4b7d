"""The benchmark of FedSTDG on a handful of series."""

import csv
import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from understudy.data.samples import sines
from understudy.models.nets.autoencoder import Rwae
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.noise import FastRng

HERE = Path(__file__).parents[2] / "benchmarks" / "fed_stdg"
BENCH, SPEED = (runpy.run_path(str(HERE / name)) for name in ("bench.py", "speed.py"))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """People and the centre take one step each."""
    from understudy.protocols.papers.fed_stdg import protocol as fed_stdg

    names = BENCH["measure"].__globals__
    real = names["central"]
    monkeypatch.setitem(fed_stdg.Config.__init__.__kwdefaults__, "epochs", 1)
    monkeypatch.setitem(
        names, "central", lambda config, people, steps: real(config, people, steps=1)
    )


def job(**more: Any) -> dict[str, Any]:
    plain = {
        "dataset": "sine",
        "method": "real",
        "poison": "",
        "epsilon_round": 0.0,
        "seed": 0,
        "rounds": 1,
    }
    return (
        plain
        | {"data": Path(), "device": "cpu", "most": 60, "predictor_steps": 3}
        | more
    )


@pytest.mark.usefixtures("short")
def test_a_cell_states_the_price_of_a_report_and_of_the_run() -> None:
    row = BENCH["measure"](job(method="AdaSubMDS, once", epsilon_round=8.0))
    assert set(row) == set(BENCH["FIELDS"])
    assert (
        row["people"],
        row["rounds"],
        row["participations"],
        row["epsilon_run"],
    ) == (5, 1, 1, 8.0)
    assert (row["dims"], row["indices"]) == (29_269, 16)
    assert np.isfinite([row["mmd"], row["coverage"], row["next_step_mae"]]).all()


@pytest.mark.usefixtures("short")
def test_even_shares_of_epsilon_pay_for_as_many_indices_as_em_mds_sends() -> None:
    for price, indices in ((2.0, 1), (8.0, 2)):
        for method in ("SignDS-E", "SignDS-M"):
            row = BENCH["measure"](job(method=method, epsilon_round=price))
            assert row["indices"] == indices


@pytest.mark.usefixtures("short")
def test_liars_and_the_references_are_cells_like_any_other() -> None:
    for method, poison in (("FL", "flip"), ("central", ""), ("real", "")):
        row = BENCH["measure"](job(method=method, poison=poison))
        assert row["epsilon_run"] == ""
        assert np.isfinite(row["next_step_mae"])


def test_every_cell_has_a_name_of_its_own() -> None:
    args: Any = type(
        "Args",
        (),
        {
            "datasets": BENCH["DATASETS"],
            "methods": BENCH["METHODS"],
            "honest": False,
            "seeds": 2,
            "epsilons": BENCH["EPSILONS"],
        },
    )
    for name in ("rounds", "data", "device", "most", "predictor_steps"):
        setattr(args, name, None)
    titles = [BENCH["title"](cell) for cell in BENCH["jobs"](args)]
    assert len(set(titles)) == len(titles) == 4 * 2 * (6 * 3 + 3 + 14)
    assert "stock/AdaSubMDS, once/0.5/1" in titles


def test_a_long_file_is_cut_into_windows_of_24_and_a_missing_one_is_named(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.random((50, 6)), columns=list("abcdef")).to_csv(
        tmp_path / "timegan_stock.csv.gz", index=False
    )
    data = BENCH["load"]("stock", tmp_path)
    assert data.people.schema.shape == (24, 6)
    assert (len(data.test), data.people.rows) == (2, 20)  # of 27 windows
    with pytest.raises(SystemExit, match=r"air_quality_uci\.csv\.gz is missing"):
        BENCH["load"]("air", tmp_path)


def test_the_papers_figures_are_of_our_methods() -> None:
    with (HERE / "paper.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} - {"central DP-SGD"} <= set(BENCH["METHODS"])
    assert {row["dataset"] for row in rows} == set(BENCH["DATASETS"])
    assert all(0 < float(row["next_step_mae"]) < 1 for row in rows)


@pytest.fixture(scope="module")
def further(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("fed_stdg", "further")


def test_a_person_moves_the_clipped_sum_of_central_dp_sgd_by_at_most_the_clip(
    further: ModuleType,
) -> None:
    network = Rwae(length=4, channels=2, hidden=3, latent=2)
    weights = network.init(FastRng(0))
    training = further.LocalTraining(network, optimizer="sgd", epochs=1, lr=1.0)
    series = FastRng(1).uniform(5, 3, 4, 2)
    clip = 0.01
    for person in series.split(1):
        alone = further.clipped_sum(training, weights, person, FastRng(2), clip)
        assert 0.99 * clip < float(alone.norm()) <= clip * (1 + 1e-5)
    others = torch.cat([series[:4], 1 - series[4:]])
    every, replaced = (
        further.clipped_sum(training, weights, part, FastRng(2), clip)
        for part in (series, others)
    )
    assert 0 < float((every - replaced).norm()) <= 2 * clip * (1 + 1e-5)
    free = further.clipped_sum(training, weights, series, FastRng(2), 1e9)
    assert float(free.norm()) > 5 * clip


def test_the_noise_of_central_dp_sgd_is_what_its_epsilon_takes(
    further: ModuleType,
) -> None:
    noise = further.noise_multiplier(0.1, 20, 2.0)
    spend = {PoissonSampledDpEvent(0.1, GaussianDpEvent(noise)): 20}
    assert 1.99 < epsilon(spend, further.DELTA) <= 2.0


@pytest.mark.parametrize("method", ["Central DP-SGD", "SubMDS"])
def test_a_further_cell_has_all_its_figures(further: ModuleType, method: str) -> None:
    cell = {
        "dataset": "sine",
        "method": method,
        "pretrain": 1 if method == "SubMDS" else 0,
        "epsilon": 8.0,
        "clip": 0.01,
        "seed": 0,
        "rounds": 1,
        "rows": 60,
        "data": Path(),
        "device": "cpu",
        "most": 1400,
        "predictor_steps": 2,
        "machine": "here",
    }
    row = further.measure(cell)
    assert set(row) == set(further.FIELDS)
    found = [row[name] for name in ("mmd", "coverage", "next_step_mae", "mia_acc")]
    assert np.isfinite(found).all()


def test_the_attack_on_series_finds_members_that_were_copied_and_no_others(
    further: ModuleType,
) -> None:
    series, _ = sines(300, seed=0)
    targets = series[:100]  # the first half of them are members
    assert further.right_guesses(targets, np.repeat(series[:50], 3, axis=0)) == 1
    assert 0.3 < further.right_guesses(targets, series[100:]) < 0.7


def test_speed_puts_a_cohort_beside_one_client_at_a_time() -> None:
    row = SPEED["race"]("cpu", clients=2, epochs=1, repeats=0)
    assert row["ratio"] == pytest.approx(row["loop_ms"] / row["cohort_ms"], rel=0.1)
