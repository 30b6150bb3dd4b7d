"""Gram with three-way tables of any columns, found by a release of all threes in
halves.
"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import GaussianDpEvent
from numpy.typing import NDArray
from torch import Tensor

from refusals import raises
from understudy.api.train import train
from understudy.data.schema import Boolean, Ordinal, Schema
from understudy.data.table import open_table
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.gram.protocol import Config, Gram
from understudy.protocols.gram.stages import Pairs, TableRows, Threes
from understudy.protocols.joint.stage import Stage
from understudy.runs.federation import Federation

BITS = Schema(columns=tuple(Boolean(name=f"b{n}") for n in range(7)))
MIXED = Schema(
    columns=(
        *BITS.columns[:3],
        Ordinal(name="o", categories=(1, 2, 3)),
        Ordinal(name="p", categories=(1, 2, 3, 4)),
    )
)
SEARCH = Config(searched_triples=2)


def rows(schema: Schema, people: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    named = {c.name: rng.integers(0, c.size, people) for c in schema.columns}
    return pd.DataFrame(
        {n: v.astype(bool) if n.startswith("b") else v + 1 for n, v in named.items()}
    )


def stage(upper: Tensor, schema: Schema = MIXED) -> Threes:
    study = Gram(SEARCH, {"one": schema})
    made = study.stage(
        "threes", {"upper": upper}, 1.0, {"pairs": study.stage("pairs", {}, 1.0, {})}
    )
    assert isinstance(made, Threes)
    return made


@pytest.mark.parametrize("noise", [0.5, 3.0, 16.0, 900.0])
@pytest.mark.parametrize("searched", [True, False])
def test_what_is_released_in_place_of_what_was_agreed_on_costs_no_more(
    noise: float, searched: bool
) -> None:
    study = Gram(Config(target="b0", fine=0.0), {"one": MIXED})
    first: dict[str, Stage[TableRows]] = {"pairs": study.stage("pairs", {}, 1.0, {})}
    upper = torch.ones(sum(c.size for c in MIXED.columns) * searched, dtype=torch.bool)
    threes = study.stage("threes", {"upper": upper}, noise, first)
    tables = torch.tensor([[0, 1, 2], [0, 3, 4]])[: 2 * searched]
    for name, own in {
        "threes": threes,
        "again": study.stage("again", {"threes": tables}, noise, first),
    }.items():
        number = [*study.releases].index(name)
        (sigma,) = {*study.pricing.sigmas(number, own.blocks, noise).values()}
        ((_, agreed),) = study.spreads[name].moved
        cells = (
            math.comb(5, 3)
            if searched and name == "threes"
            else 4 + len(tables) * (name == "again")
        )
        assert cells == round(sum(one.sensitivity**2 for one in own.blocks.values()))
        paid = epsilon(study.pricing.spend(number, noise), 1e-6)
        assert (
            epsilon({GaussianDpEvent(math.sqrt((sigma**2 - 9) / cells)): 1}, 1e-6)
            <= paid
            if sigma > noise
            else True
        )
        assert cells / sigma**2 <= agreed / noise**2 * (1 + 1e-9)


def counted(own: Threes, frame: pd.DataFrame, schema: Schema = MIXED) -> Tensor:
    return own.count(TableRows(open_table(frame, schema), own.layout, 0))["threes"]


@pytest.mark.parametrize("seed", range(4))
def test_a_person_moves_every_sum_by_one_whichever_halves_are_named_and_that_is_paid_for(
    seed: int,
) -> None:
    width = sum(c.size for c in MIXED.columns)
    named = (
        torch.from_numpy(np.random.default_rng(seed).random(width) < 0.5)
        if seed
        else torch.zeros(width, dtype=torch.bool)
    )
    own = stage(named)
    frame = rows(MIXED, 30, seed)
    moved = counted(own, frame) - counted(own, frame[:-1])
    assert moved.abs().eq(1).all()
    (block,) = own.blocks.values()
    assert float(moved.double().norm()) == block.sensitivity


def test_sums_are_those_of_all_people_in_the_order_of_the_columns() -> None:
    upper = torch.tensor([0, 1] * 3 + [0, 0, 1] + [0, 1, 1, 1], dtype=torch.bool)
    frame = rows(MIXED, 40)
    signs = (
        np.stack(
            [frame[n] for n in ("b0", "b1", "b2")] + [frame["o"] > 2, frame["p"] > 1], 1
        )
        * 2
        - 1
    )
    wanted = [int(signs[:, one].prod(1).sum()) for one in combinations(range(5), 3)]
    assert counted(stage(upper), frame).tolist() == wanted


def test_by_default_few_people_have_pairs_in_place_of_a_search_and_others_than_were_asked_for_are_refused():
    study = Gram(Config(target="b0", fine=0.0), {"one": MIXED})
    first: dict[str, Stage[TableRows]] = {"pairs": study.stage("pairs", {}, 1.0, {})}
    instead = study.stage(
        "threes", {"upper": torch.empty(0, dtype=torch.bool)}, 5.0, first
    )
    assert isinstance(instead, Pairs)
    assert instead.wanted.nonzero().tolist() == [[0, 1], [0, 2], [0, 3], [0, 4]]
    asked = Gram(Config(target="b0", fine=0.0, searched_triples=8), {"one": MIXED})
    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        asked.stage("threes", {"upper": torch.empty(0, dtype=torch.bool)}, 5.0, first)
    for off in (Config(target="b0", searched_triples=0), Config()):
        assert "threes" not in Gram(off, {"one": MIXED}).releases


PARITY = rows(BITS, 20_000).assign(b6=lambda frame: frame["b0"] ^ frame["b3"])


def drawn(
    frame: pd.DataFrame, **settings: Any
) -> tuple[pd.DataFrame, Mapping[str, Any]]:
    federation = Federation.rehearsal(
        {"one": frame}, {"one": BITS}, budget=Budget(1.0, 1e-6), seed=5
    )
    result = train(
        "gram", federation, components=32, steps=400, device="cpu", **settings
    )
    return result.generator.sample(4_000, seed=1), result.artefact.card


@pytest.mark.long
def test_a_parity_of_three_columns_is_found_and_drawn_and_by_pairs_alone_it_is_not():
    kept = {}
    for many in (0, 1):
        made, card = drawn(PARITY, searched_triples=many)
        kept[many] = float((made["b6"] == (made["b0"] ^ made["b3"])).mean())
        assert len(card["releases"]) == 1 + 2 * many
    assert kept[0] < 0.6
    assert kept[1] > 0.9


@pytest.mark.long
@pytest.mark.parametrize(("people", "searched"), [(20_000, True), (300, False)])
def test_a_parity_is_found_by_default_where_people_are_many_and_card_and_ledger_say_so(
    people: int, searched: bool
) -> None:
    federation = Federation.rehearsal(
        {"one": PARITY[:people]}, {"one": BITS}, budget=Budget(1.0, 1e-6), seed=5
    )
    result = train(
        "gram",
        federation,
        components=32,
        steps=600 if searched else 5,
        device="cpu",
        target="b6",
    )
    made = result.generator.sample(4_000, seed=1)
    said = result.artefact.card["threes"]
    if searched:
        assert said == [["b0", "b3", "b6"]]
        assert float((made["b6"] == (made["b0"] ^ made["b3"])).mean()) > 0.8
    else:
        assert "not searched" in said


@pytest.mark.long
def test_echoes_of_an_effect_take_no_place_of_another() -> None:
    frame = PARITY.assign(b5=lambda frame: frame["b1"] ^ frame["b2"])
    also = np.random.default_rng(2).random(len(frame)) < 0.1
    frame["b4"] = frame["b3"] ^ also  # so that b0, b4 and b6 go together as well
    made, _ = drawn(frame, searched_triples=2)
    for one, two, three in (("b0", "b3", "b6"), ("b1", "b2", "b5")):
        assert float((made[three] == (made[one] ^ made[two])).mean()) > 0.9


RULED = Schema(
    columns=tuple(Ordinal(name=f"o{n}", categories=(1, 2, 3, 4)) for n in range(5))
)


def ruled(people: int, seed: int) -> pd.DataFrame:
    """The last column is the smaller of the first two, or the third where the fourth is
    large.
    """
    frame = rows(RULED, people, seed)
    smaller = np.minimum(frame["o0"], frame["o1"])
    return frame.assign(o4=np.where(frame["o3"] == 4, frame["o2"], smaller))


def far_from(real: pd.DataFrame, made: pd.DataFrame) -> float:
    """The mean distance of tables of two columns and the last one."""
    tables = list[NDArray[np.float64]]()
    for frame in (real, made):
        codes = frame.to_numpy() - 1
        places = [
            codes[:, [a, b, 4]] @ (16, 4, 1) for a, b in combinations(range(4), 2)
        ]
        counts = [np.bincount(one, minlength=64) for one in places]
        tables.append(np.stack(counts) / len(codes))
    gaps = np.abs(tables[0] - tables[1]).sum(1) / 2
    return float(gaps.mean())


@pytest.fixture(scope="module")
def by_price() -> dict[float, tuple[float, float, int]]:
    """At each ε, of two seeds: the mean distance, what parts them, and how many tables
    were measured.
    """
    found = {}
    real = ruled(6_000, seed=4)
    for price in (1.0, 8.0, 1000.0):
        distances = []
        for seed in (1, 2):
            federation = Federation.rehearsal(
                {"one": real}, {"one": RULED}, budget=Budget(price, 1e-6), seed=seed
            )
            result = train(
                "gram",
                federation,
                components=128,
                steps=600,
                target="o4",
                fine=0.0,
                device="cpu",
                seed=seed,
            )
            made = result.generator.sample(60_000, seed=1)
            distances.append(far_from(real, made[list(real)]))
        tables = len(result.artefact.card["threes"])
        found[price] = sum(distances) / 2, abs(distances[0] - distances[1]), tables
    return found


@pytest.mark.long
def test_no_distance_grows_by_more_than_its_spread_as_more_is_paid(
    by_price: dict[float, tuple[float, float, int]],
) -> None:
    (one, _, _), (eight, spread, _), (thousand, other, _) = by_price.values()
    assert eight < 0.8 * one
    assert thousand < eight + max(spread, other, 0.002)


@pytest.mark.long
def test_places_that_a_search_leaves_go_to_tables_with_the_target_where_noise_is_small(
    by_price: dict[float, tuple[float, float, int]],
) -> None:
    few, *many = (tables for _, _, tables in by_price.values())
    assert few < 4
    assert many == [6, 6]  # of so many pairs of four columns


def test_where_no_three_columns_have_an_effect_no_table_is_measured() -> None:
    found, _ = drawn(rows(BITS, 20_000, seed=3), searched_triples=3)
    pairs = found.corr().to_numpy()[np.triu_indices(7, 1)]
    assert np.abs(pairs).max() < 0.1


BAD: dict[str, Any] = {
    "more than agreed": torch.tensor([[0, 1, 2], [0, 1, 3], [0, 1, 4]]),
    "one twice": torch.tensor([[0, 1, 2], [0, 1, 2]]),
    "turned": torch.tensor([[1, 0, 2]]),
    "a column twice": torch.tensor([[1, 1, 2]]),
    "no such column": torch.tensor([[0, 1, 5]]),
    "below the first": torch.tensor([[-1, 0, 1]]),
    "not three": torch.tensor([[0, 1]]),
    "of another type": torch.tensor([[0.0, 1.0, 2.0]]),
    "no tensor": [[0, 1, 2]],
    "nothing": None,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_tables_that_are_none_are_refused_before_any_charge(bad: Any) -> None:
    study = Gram(SEARCH, {"one": MIXED})
    before: dict[str, Stage[TableRows]] = {"pairs": study.stage("pairs", {}, 1.0, {})}
    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        study.stage("again", {"threes": bad}, 1.0, before)
    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        study.stage("threes", {"upper": bad}, 1.0, before)


def test_columns_of_different_holders_and_too_many_columns_are_refused() -> None:
    split = {"a": MIXED.select(["b0", "b1"]), "b": MIXED.select(["b2", "o", "p"])}
    wide = Schema(columns=tuple(Boolean(name=f"b{n}") for n in range(65)))
    for schemas in (split, {"one": wide}, {"one": MIXED.select(["b0", "b1"])}):
        with pytest.raises(ConfigError, match="searched among 3 to 64 columns"):
            Gram(SEARCH, schemas)
