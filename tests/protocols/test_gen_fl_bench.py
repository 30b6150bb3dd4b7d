"""The DP-GenFL benchmark measures what it says, on generated rows."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from understudy.data.encoding.features import ArrayFeatures
from understudy.generators.classifier import Classifier
from understudy.models.cohort.classifier import LogisticRegression
from understudy.privacy.noise.rng import FastRng

SMALL = {
    "rounds": 1,
    "clients_per_round": 4,
    "max_reports": 1,
    "gan_steps": 2,
    "gan_hidden": 4,
    "hidden": 4,
    "batch": 8,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("gen_fl")


@pytest.mark.parametrize(
    ("method", "guarantee"),
    [
        ("no privacy", "none"),
        ("DP-FL", "yes"),
        ("DP-GenFL γ=0.6", "none"),
        ("DP-GenFL γ=1, private GAN", "yes"),
    ],
)
def test_every_method_says_what_it_guarantees(
    bench: ModuleType, method: str, guarantee: str
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (80, 4, 4)).astype(np.uint8), rng.integers(0, 3, 80)
    row = bench.measure("noise", rows, rows, method, seed=0, clients=4, **SMALL)
    assert row["guarantee"] == guarantee
    assert 0 <= row["accuracy"] <= 1
    assert row.keys() == set(bench.FIELDS)


def test_what_is_in_the_file_is_not_computed_again(
    bench: ModuleType, tmp_path: Path
) -> None:
    args = Namespace(
        only=["mnist"],
        methods=["DP-FL", "no privacy"],
        seeds=2,
        steps=[5],
        learning_rate=[0.02, 0.2],
        rounds=2,
        gan_steps=1,
        device="cpu",
        data=Path(),
    )
    known = {
        "dataset": "mnist",
        "method": "DP-FL",
        "seed": 0,
        "learning_rate": 0.02,
        "steps": 5,
    }
    bench.GRID.add([known], tmp_path / "ours.csv")
    jobs = bench.GRID.left(bench.jobs(args), tmp_path / "ours.csv")
    left = [
        (job["seed"], job["settings"]["learning_rate"], job["method"]) for job in jobs
    ]
    assert left[:3] == [
        (0, 0.02, "no privacy"),
        (0, 0.2, "DP-FL"),
        (0, 0.2, "no privacy"),
    ]
    assert len(left) == 7


def test_membership_is_guessing_for_a_model_that_never_learned_and_sure_for_one_that_did(
    bench: ModuleType,
) -> None:
    rng = np.random.default_rng(0)
    network = LogisticRegression(8, 2)
    model = Classifier(
        network, network.init(FastRng(0)), ArrayFeatures((8,), (0, 1)), {}
    )
    members, others = (
        (rng.random((400, 8), dtype=np.float32), rng.integers(0, 2, 400))
        for _ in range(2)
    )
    assert abs(bench.membership(model, members, others, seed=0) - 0.5) < 0.1
    right = members[0], model.predict(members[0])
    wrong = others[0], 1 - model.predict(others[0])
    assert bench.membership(model, right, wrong, seed=0) > 0.95
