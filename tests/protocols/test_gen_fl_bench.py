"""The DP-GenFL benchmark measures what it says, on generated rows."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

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


@pytest.fixture(scope="module")
def shadows(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("gen_fl", "shadows")


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
    parts = bench.split(rows, (rows[0][:20], rows[1][:20]), clients=4, seed=0)
    found = bench.measure("noise", parts, method, seed=0, clients=4, **SMALL)
    assert found.row["guarantee"] == guarantee
    assert 0 <= found.row["accuracy"] <= 1
    assert found.row.keys() == set(bench.FIELDS)
    assert found.signals.shape == (100,)
    assert [point.keys() for point in found.curve] == [set(bench.CURVE_FIELDS)]


def test_each_seed_parts_all_images_anew_into_equal_shares_and_the_others(
    bench: ModuleType,
) -> None:
    numbers = np.arange(100)
    images = numbers[:, None, None].astype(np.uint8)
    train, test = (images[:83], numbers[:83]), (images[83:], numbers[83:])
    members = []
    for seed in (0, 1):
        parts = bench.split(train, test, clients=4, seed=seed)
        inside, outside = parts.part(of_clients=True), parts.part(of_clients=False)
        assert len(inside[1]) == 80
        assert sorted([*inside[1], *outside[1]]) == list(numbers)
        assert (inside[0][:, 0, 0] == inside[1]).all()
        members.append(set(inside[1]))
    assert members[0] != members[1]


def test_an_epoch_of_the_gan_is_as_many_steps_as_a_client_has_batches(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def stop(*args: object, **settings: object) -> None:
        seen.append(settings["gan_steps"])
        raise InterruptedError

    monkeypatch.setattr(bench, "train", stop)
    rows = np.zeros((80, 4, 4), np.uint8), np.arange(80) % 3
    parts = bench.split(rows, rows, clients=4, seed=0)
    with pytest.raises(InterruptedError):
        bench.measure(
            "noise", parts, "DP-GenFL γ=1", seed=0, clients=4, gan_epochs=6, batch=8
        )
    assert seen == [15]  # 20 images a client, batches of 8


def test_what_is_in_the_file_is_not_computed_again(
    bench: ModuleType, tmp_path: Path
) -> None:
    options = (
        "--only mnist --methods DP-FL DP-GenFL\xa0γ=1 --seeds 0 1 --learning-rate 0.02 0.2 "
        "--gan-epochs 10 50 --device cpu"
    )
    args = bench.parser().parse_args(
        [word.replace("\xa0", " ") for word in options.split(" ")]
    )
    known = {
        "dataset": "mnist",
        "model": "mlp",
        "method": "DP-FL",
        "gan_epochs": "",
        "seed": 0,
        "learning_rate": 0.02,
        "steps": 5,
    }
    bench.GRID.add([known], tmp_path / "ours.csv")
    jobs = bench.GRID.left(bench.jobs(args), tmp_path / "ours.csv")
    left = [
        (job["seed"], job["settings"]["learning_rate"], job["gan_epochs"])
        for job in jobs
    ]
    first = [(0, 0.2, ""), (0, 0.02, 10), (0, 0.2, 10), (0, 0.02, 50), (0, 0.2, 50)]
    second = [(1, *rest) for _, *rest in first]
    assert left == [*first, (1, 0.02, ""), *second]


def test_each_set_of_images_has_the_papers_network(bench: ModuleType) -> None:
    jobs = bench.jobs(bench.parser().parse_args([]))
    models = {(job["dataset"], job["settings"]["model"]) for job in jobs}
    assert models == {("mnist", "mlp"), ("fashion_mnist", "cnn")}


def test_membership_is_guessing_for_a_model_that_never_learned_and_sure_for_one_that_did(
    bench: ModuleType,
) -> None:
    rng = np.random.default_rng(0)
    is_member = np.arange(800) < 400
    guessing = bench.membership(rng.normal(size=800), is_member, seed=0)
    assert abs(guessing - 0.5) < 0.1
    sure = bench.membership(rng.random(800) + is_member, is_member, seed=0)
    assert sure > 0.95


def test_log_odds_are_those_of_the_softmax(bench: ModuleType) -> None:
    scores = np.random.default_rng(0).normal(size=(6, 3))
    labels = np.array([0, 1, 2, 0, 1, 2])
    odds = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    own = odds[np.arange(6), labels]
    assert np.allclose(bench.log_odds(scores, labels), np.log(own / (1 - own)))


def signals(folder: Path, learned: float, *, seed: int, images: int = 600) -> None:
    """A model whose members' log-odds are higher by `learned` than what is usual for
    the image.
    """
    usual = 3 * np.random.default_rng(0).normal(size=images)
    rng = np.random.default_rng(1 + seed)
    is_member = rng.random(images) < 0.7
    noise = rng.normal(size=images) / 2
    key = {"dataset": "mnist", "model": "mlp", "method": "DP-FL", "gan_epochs": ""}
    key |= {"learning_rate": "0.5", "steps": "5", "seed": str(seed)}
    np.savez_compressed(
        folder / f"{seed}.npz",
        log_odds=usual + noise + learned * is_member,
        is_member=is_member,
        **key,
    )


def test_shadow_models_find_members_that_a_threshold_does_not(
    bench: ModuleType, shadows: ModuleType, tmp_path: Path
) -> None:
    for seed in range(4):
        signals(tmp_path, 2.0, seed=seed)
    rows = shadows.rows_of(tmp_path)
    assert [row["shadows"] for row in rows] == [3, 3, 3, 3]
    assert all(set(row) == set(shadows.FIELDS) for row in rows)
    target = shadows.Model(tmp_path / "0.npz")
    threshold = bench.membership(target.log_odds, target.is_member, seed=0)
    assert np.mean([row["mia"] for row in rows]) > max(0.8, threshold + 0.1)


def test_shadow_models_guess_where_members_look_like_others(
    shadows: ModuleType, tmp_path: Path
) -> None:
    for seed in range(3):
        signals(tmp_path, 0.0, seed=seed)
    guessed = [row["mia"] for row in shadows.rows_of(tmp_path)]
    assert abs(np.mean(guessed) - 0.5) < 0.06


def test_one_model_alone_has_no_shadows(shadows: ModuleType, tmp_path: Path) -> None:
    signals(tmp_path, 2.0, seed=0)
    assert shadows.rows_of(tmp_path) == []
    signals(tmp_path, 2.0, seed=1)
    assert [row["shadows"] for row in shadows.rows_of(tmp_path)] == [1, 1]
