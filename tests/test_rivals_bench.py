"""The stress set has the laws that it says; what the reading of losses puts in a part's
place is perfect.
"""

from collections.abc import Callable
from itertools import combinations
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.encoding.codec import Codec


@pytest.fixture(scope="module")
def stress(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("rivals", "stress")


def _exact(law: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    return law.groupby(list(names))["p"].sum()


def test_every_table_fits_its_public_schema_and_holds_no_impossible_row(
    stress: ModuleType,
) -> None:
    for name in stress.NAMES:
        table = stress.load(name, seed=3, people=1_000)
        assert len(table.train) == 1_000, name
        codes = Codec(table.schema).codes(pd.concat([table.train, table.test]))
        assert (codes.min(0) >= 0).all(), name
        assert table.target == table.schema.names[-1] == "y"
        if table.impossible is not None:
            assert not table.impossible(table.train).any(), name
            mixed = table.train.assign(y=~table.train["y"], a=0, price=0.1)
            assert table.impossible(mixed).mean() > 0.3, name


def test_a_seed_gives_the_same_rows_again_and_another_other_ones(
    stress: ModuleType,
) -> None:
    for name in stress.NAMES:
        first = stress.load(name, seed=1, people=200).train
        stress.load.cache_clear()
        assert first.equals(stress.load(name, seed=1, people=200).train), name
        assert not first.equals(stress.load(name, seed=2, people=200).train), name


def test_rows_come_as_often_as_their_exact_law_says(stress: ModuleType) -> None:
    for name in ("parity3", "parity4", "chain", "rare"):
        table = stress.load(name)
        law = table.law
        assert law["p"].sum() == pytest.approx(1), name
        names = list(table.schema.names)
        assert not law.duplicated(names).any(), name
        if table.impossible is not None:
            assert not table.impossible(law).any(), name
        found = table.train.groupby(names).size().rename("found")
        both = law.set_index(names).join(found).fillna(0)
        assert both["found"].sum() == len(table.train), (
            f"{name}: a row that the law does not know"
        )
        expected = both["p"] * len(table.train)
        often = expected >= 5
        z = ((both["found"] - expected) ** 2 / expected)[often].sum() - often.sum()
        assert abs(z) < 5 * np.sqrt(2 * often.sum()), name


@pytest.mark.parametrize(("name", "order"), [("parity3", 3), ("parity4", 4)])
def test_no_table_of_fewer_columns_shows_a_parity_and_one_of_its_order_shows_it_whole(
    stress: ModuleType, name: str, order: int
) -> None:
    law = stress.load(name, people=10).law
    columns = [column for column in law.columns if column != "p"]
    for few in combinations(columns, order - 1):
        assert np.allclose(_exact(law, few), 0.5 ** (order - 1)), few
    whole = _exact(law, (*"abc"[: order - 1], "y"))
    assert len(whole) == 2 ** (order - 1)
    assert np.allclose(whole, 0.5 ** (order - 1))


def test_the_rule_is_of_all_nine_columns_and_of_no_other(stress: ModuleType) -> None:
    levels = np.tile(stress.RULE_AT, (10, 1))
    levels[np.arange(9), np.arange(9)] -= 1
    assert stress.ruled(levels).all(), (
        "eight of nine are reached, and six are asked for"
    )
    for j in range(9):
        six = np.where(
            np.isin(np.arange(9), [*range(9), *range(9)][j : j + 6]), stress.RULE_AT, 0
        )
        less = six.copy()
        less[j] -= 1
        assert stress.ruled(six[None]).all()
        assert not stress.ruled(less[None]).any()


def test_in_the_chain_a_column_gives_the_next_and_not_the_one_before(
    stress: ModuleType,
) -> None:
    law = stress.load("chain", people=10).law
    for before, after in zip("abcd", "bcde", strict=True):
        assert (law.groupby(before)[after].nunique() == 1).all()
        assert (law.groupby(after)[before].nunique() > 1).any()


def test_ten_of_two_hundred_columns_sway_the_label_and_the_others_none(
    stress: ModuleType,
) -> None:
    table = stress.load("wide200")
    bits = table.train.drop(columns="y").to_numpy(float)
    label = table.train["y"].to_numpy(float)
    strength = np.abs([np.corrcoef(bits[:, j], label)[0, 1] for j in range(200)])
    assert len(set(np.argsort(strength)[-10:]) & set(stress.SWAYS)) >= 9
    others = np.setdiff1d(np.arange(200), [*stress.SWAYS, *(stress.SWAYS + 1)])
    assert strength[others].max() < 0.05


def test_points_levels_spikes_rare_class_and_gaps_are_as_the_head_says(
    stress: ModuleType,
) -> None:
    points = stress.load("clusters").train.drop(columns="y").to_numpy()
    assert len(np.unique(stress.POINTS, axis=0)) == 60
    near = (points[:, None] == stress.POINTS).sum(2).max(1)
    assert (near >= 6).mean() > 0.98
    levels = stress.load("levels60").train.drop(columns="y")
    assert (levels.nunique() == 60).all()
    ties = stress.load("ties").train
    assert (ties["loss"] == 0).mean() > 0.6
    assert (ties["week"] == 40).mean() > 0.6
    assert stress.load("rare").train["y"].mean() == pytest.approx(0.01, abs=0.003)
    gaps = stress.load("missing").train
    assert gaps["age"].notna().all()
    left_out = gaps["debt"].isna()
    assert 0.05 < left_out.mean() < 0.2
    assert (
        gaps["income"].isna()[left_out].mean()
        > 1.3 * gaps["income"].isna()[~left_out].mean()
    )


@pytest.fixture(scope="module")
def oracles(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("rivals", "oracles")


def test_the_oracle_of_three_finds_a_parity_that_no_pair_shows(
    stress: ModuleType, oracles: ModuleType
) -> None:
    table = stress.load("parity3")
    codes = Codec(table.schema).codes(table.train).astype(np.int64)
    target = table.schema.names.index("y")
    names = table.schema.names
    assert [
        names[j] for j in oracles.strongest_of_three(codes, [2] * 7, target, 1)[0]
    ] == ["a", "b"]
    assert oracles.information(np.diag([50.0, 50.0])) == pytest.approx(
        np.log(2) - 1 / 200
    )
    assert abs(oracles.information(np.full((3, 4), 1000.0))) < 1e-3


def test_along_a_tree_every_pair_is_that_of_the_exact_chain(
    stress: ModuleType, oracles: ModuleType
) -> None:
    law = stress.load("chain", people=10).law
    sizes = [24, 12, 8, 5, 3]
    names = "abcde"
    hot = np.concatenate(
        [np.eye(k)[law[n].to_numpy()] for n, k in zip(names, sizes, strict=True)],
        axis=1,
    )
    gram = torch.tensor(hot.T @ (law["p"].to_numpy()[:, None] * hot))
    made = oracles.along_tree(
        gram.triu(), sizes, frozenset((i, i + 1) for i in range(4))
    )
    across = torch.block_diag(*(torch.ones(k, k) for k in sizes)) == 0
    assert torch.allclose(made[across], gram[across], atol=1e-6)


def test_a_perfect_reading_is_never_farther_than_independent_columns_nor_than_what_was_released(
    oracles: ModuleType,
) -> None:
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, 3, 500), rng.integers(0, 4, 500)], 1)
    codes[:, 1] = np.where(rng.random(500) < 0.5, codes[:, 0], codes[:, 1])
    true = oracles.counts(codes, [3, 4])
    noisy = true + torch.tensor(rng.normal(0, 40, true.shape)).triu()
    made, left = oracles.shrunk(noisy, true, [3, 4], torch.full_like(true, 40.0))
    ways = true.diagonal()
    apart = torch.outer(ways[:3], ways[3:]) / 500
    off = [
        (table - true[:3, 3:]).square().sum()
        for table in (made[:3, 3:], apart, noisy[:3, 3:])
    ]
    assert off[0] <= min(off[1:])
    assert float(left[0, 3]) == pytest.approx(float(off[0] / 12) ** 0.5)


def test_merged_levels_parted_again_are_as_often_as_before(oracles: ModuleType) -> None:
    rng = np.random.default_rng(1)
    real = np.minimum(rng.geometric(0.2, (20_000, 2)) - 1, 11)
    groups = [
        oracles.grouped(real[:, j], 12, 3, named, False)
        for j, named in enumerate((False, True))
    ]
    assert [int(group.max()) + 1 for group in groups] == [3, 3]
    assert (np.diff(groups[0]) >= 0).all(), "neighbours"
    few = np.stack([group[real[:, j]] for j, group in enumerate(groups)], 1)
    back = oracles.parted(few, real, groups, 0)
    assert all((group[back[:, j]] == few[:, j]).all() for j, group in enumerate(groups))
    for j in range(2):
        before, after = (
            np.bincount(codes[:, j], minlength=12) / 20_000 for codes in (real, back)
        )
        assert np.abs(before - after).max() < 0.01
    assert (oracles.grouped(real[:, 0], 12, 3, False, True) == np.arange(12)).all(), (
        "the target stays as it is"
    )


def test_an_exact_law_of_errors_is_found_again_by_extrapolation(
    load_bench: Callable[..., ModuleType],
) -> None:
    images = load_bench("rivals", "images")
    people = np.array([3_750, 7_500, 15_000, 30_000] * 3)
    said = []
    for power in (0.5, 1.0):
        runs = pd.DataFrame(
            {"people": people, "accuracy": 1 - 0.02 - 0.1 * (3_750 / people) ** power}
        )
        errors = images.laws(runs, 60_000, np.random.default_rng(0))
        low, high = np.quantile(errors, (0.05, 0.95))
        truth = 0.02 + 0.1 * (3_750 / 60_000) ** power
        assert low < truth < high
        said.append(errors.mean())
    assert said[1] < said[0]
