"""SGDE by counts of all pairs: what they cost, that they add, and what is refused."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.api.train import train
from understudy.data.encoding.codec import bought_bins
from understudy.data.encoding.population import Population
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, ConfigError, PrivacyError
from understudy.models.offered import OfferedGram
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.papers.sgde.counted import PairCounts
from understudy.protocols.papers.sgde.offer import (
    Requirements,
    pack_offer,
    unpack_offer,
)
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import train_offers
from understudy.protocols.papers.sgde.pool import assess_offers, pool
from understudy.runs.federation import Federation, open_ledger, own_folder

BUDGET = Budget(4.0, 1e-5)
SCHEMA = Schema(
    columns=(
        Categorical(name="one", categories=("a", "b", "c")),
        Categorical(name="class", categories=("left", "right")),
        Categorical(name="two", categories=("x", "y")),
        Categorical(name="three", categories=("x", "y")),
    )
)
PAY = Integer(name="pay", low=0, high=1_000_000)
POOL = Requirements(schema=SCHEMA, target="class", epsilon=4.0, delta=1e-5)


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for four columns, but for how strong a dependence is."""
    monkeypatch.setitem(OfferedGram.added.__kwdefaults__, "steps", 60)


def rows(count: int, seed: int = 0) -> pd.DataFrame:
    """ "left" is a or b, "right" b or c; "two" and "three" are the same in nine of ten
    rows, whatever the class.
    """
    rng = np.random.default_rng(seed)
    left, b, two, odd = (rng.random(count) < share for share in (0.7, 0.3, 0.5, 0.1))
    return pd.DataFrame(
        {
            "one": np.where(b, "b", np.where(left, "a", "c")),
            "class": np.where(left, "left", "right"),
            "two": np.where(two, "x", "y"),
            "three": np.where(two ^ odd, "x", "y"),
        }
    )


def offers(
    frame: pd.DataFrame, silo: str = "s", seed: int = 1
) -> tuple[Generator, Ledger]:
    ledger = Ledger.rehearsal(silo, BUDGET)
    (made,) = train_offers(
        silo,
        read_table(frame, SCHEMA),
        ledger,
        POOL,
        budget=BUDGET,
        run="r",
        recipe=Recipe(kind="gram"),
        rng=SecureRng.from_seed(seed),
    )
    return made, ledger


def test_a_silo_pays_for_every_column_and_pair_and_offers_all_classes_in_one() -> None:
    made, ledger = offers(rows(100))
    network = made.network
    assert isinstance(network, OfferedGram)
    assert {event.sigma: count for event, count in ledger.spend().items()} == dict(
        zip(network.noise, (4, 6), strict=True)
    )
    assert made.card["label"] is None
    assert made.card["epsilon"] == pytest.approx(epsilon(ledger.spend(), 1e-5))
    assert 3.9 < made.card["epsilon"] <= 4.0
    assert network.noise[0] < network.noise[1]


def test_the_counts_without_noise_are_those_of_the_rows_and_a_person_adds_one_to_each_table():
    frame = rows(60)
    offering = PairCounts(POOL, Recipe(kind="gram"), None)

    def counted(some: pd.DataFrame) -> torch.Tensor:
        (offer,) = offering.make(read_table(some, SCHEMA), SecureRng.from_seed(0))
        assert isinstance(offer, OfferedGram)
        return offer.counts

    exact = counted(frame)
    assert exact.diagonal()[3:5].tolist() == [
        (frame["class"] == name).sum() for name in ("left", "right")
    ]
    both = ((frame["class"] == "left") & (frame["one"] == "c")).sum()
    assert exact[3, 2] == exact[2, 3] == both
    more = pd.concat([frame, frame[:1]])
    moved = (counted(more) - exact).triu()
    assert int(moved.sum()) == sum(offering.moved) == 10
    assert set(moved.flatten().tolist()) == {0, 1}


def test_a_pool_adds_the_counts_and_columns_depend_on_each_other_within_a_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(OfferedGram.added.__kwdefaults__, "steps", 200)
    made = [offers(rows(400, seed), f"s{seed}", seed)[0] for seed in range(4)]
    generator = Generator.from_parts(pool(made, POOL, {"protocol": "sgde"}))
    assert isinstance(generator.network, MixtureOfProducts)
    assert generator.card["members"] == [{"silo": "s0, s1, s2, s3", "label": None}]
    drawn = generator.sample(3000, seed=0)
    assert (drawn["two"] == drawn["three"]).mean() > 0.8
    assert (drawn["class"] == "left").mean() == pytest.approx(0.7, abs=0.06)
    assert ((drawn["class"] == "left") & (drawn["one"] == "c")).mean() < 0.06


@cache
def sent() -> dict[str, Any]:
    made, _ = offers(rows(100))
    return pack_offer(dict(made.card), made.network)  # type: ignore[arg-type]


def tampered(place: Any = None, value: int = 0, **changes: Any) -> dict[str, Any]:
    offer = deepcopy(sent())
    offer["card"]["network"] = {**offer["card"]["network"], **changes}
    if place is not None:
        offer["weights"]["gram"] = offer["weights"]["gram"].clone()
        offer["weights"]["gram"][place] = value
    return offer


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"noise": [1.0, 1.0]}, PrivacyError, "is worth ε="),
        ({"noise": [0.0, 0.0]}, PrivacyError, "is worth ε=inf"),
        ({"noise": [float("inf"), 5.0]}, ConfigError, "noise"),
        ({"noise": [5.0, 1e200]}, ConfigError, "noise"),
        ({"noise": [5.0]}, ConfigError, "noise of two"),
        ({"target": 2}, ArtefactError, "draws another class"),
        ({"target": 9}, ConfigError, "a column for its target"),
        ({"sizes": [3, 2, 2, 1 << 40]}, ConfigError, "at most 1,024 levels"),
        ({"sizes": [3, 2, 2, 3]}, ArtefactError, "draws no rows"),
        ({"place": 0, "value": -(10**6)}, ArtefactError, "fewer people than none"),
        ({"place": 0, "value": 10**6}, ArtefactError, "different numbers of people"),
        ({"place": 1, "value": 1}, ArtefactError, "two levels of one column"),
        ({"place": 3, "value": 10**6}, ArtefactError, "more people than one of them"),
        ({"place": 3, "value": -(1 << 63)}, ArtefactError, "beyond 2⁵²"),
    ],
)
def test_counts_that_people_cannot_have_or_whose_noise_is_not_its_price_are_refused(
    changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        unpack_offer(POOL, tampered(**changes))


def test_counts_that_nobody_changed_are_taken() -> None:
    assert unpack_offer(POOL, tampered()).card["silo"] == sent()["card"]["silo"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_silo_with_one_person_or_an_empty_class_offers_as_any_other_does(
    count: int,
) -> None:
    made, _ = offers(rows(50)[lambda frame: frame["class"] == "left"][:count])
    assert len(Generator.from_parts(made).sample(5, seed=0)) == 5


def test_images_have_no_pairs() -> None:
    images = Population.from_arrays(
        np.zeros((4, 3, 3), dtype=np.float32), [0, 1, 0, 1], classes=2
    )
    federation = Federation.rehearsal(
        {"a": images, "b": images}, budget=BUDGET, seed=0, same_people=False
    )
    with pytest.raises(ConfigError, match='kind="gram" is for tables'):
        train("sgde", federation, kind="gram", epsilon=4.0)


@pytest.mark.long
def test_swapped_classes_show_in_a_pool_of_counts() -> None:
    made = [offers(rows(400, seed), f"s{seed}", seed)[0] for seed in range(4)]
    lie = rows(400, 9)
    lie["class"] = lie["class"].map({"left": "right", "right": "left"})
    judged = assess_offers(POOL, [*made, offers(lie, "liar")[0]])
    assert [one.flagged for one in judged] == [False] * 4 + [True]


@pytest.mark.long
def test_a_run_of_counts_is_one_generator_and_lies_are_found() -> None:
    held = {f"s{seed}": rows(300, seed) for seed in range(5)}
    federation = Federation.rehearsal(
        held, dict.fromkeys(held, SCHEMA), budget=BUDGET, seed=0, same_people=False
    )
    result = train(
        "sgde", federation, kind="gram", target="class", epsilon=4.0, poison="flip"
    )
    assert [one["flagged"] for one in result.generator.card["offers"]].count(True) == 1
    assert len(result.generator.sample(10, seed=0)) == 10
    assert torch.isfinite(result.generator.network.logits).all()  # type: ignore[union-attr]


@pytest.mark.long
def test_levels_that_one_silo_bought_are_the_pools_and_its_ledger_has_their_price_and_the_offers(
    tmp_path: Path,
) -> None:
    """Pay is skewed: cut evenly between wide bounds, nearly all people are in the first
    bin.
    """
    rng = np.random.default_rng(0)
    schema = Schema(columns=(PAY, Boolean(name="class")))
    budget = Budget(1.0, 1e-5)
    pay = (500 * (1 + rng.pareto(1.5, 4_000))).clip(max=1e6).round()
    held = {
        silo: pd.DataFrame({"pay": part, "class": part > 800})
        for silo, part in (("north", pay[::2]), ("south", pay[1::2]))
    }

    def median(levels: Schema, ledgers: str) -> float:
        silos = Federation(
            held,
            dict.fromkeys(held, levels),
            budget=budget,
            ledgers=tmp_path / ledgers,
            same_people=False,
        )
        pooled = train(
            "sgde", silos, kind="gram", target="class", epsilon=1.0
        ).generator
        return float(pooled.sample(2_000, seed=0)["pay"].median())

    ledger = open_ledger(
        own_folder(tmp_path / "ledgers") / "north.ledger", "north", Budget(2.0, 1e-5)
    )
    alone = Federation(
        {"north": held["north"]},
        {"north": schema},
        budget=budget,
        ledgers=tmp_path / "ledgers",
    )
    bought = train("gram", alone, components=16, steps=20).generator.levels
    assert bought is not None
    levels = ledger.spend()
    assert median(bought_bins(bought), "ledgers") == pytest.approx(
        np.median(pay), rel=0.15
    )
    offer = ledger.spend() - levels
    assert 0.9 < epsilon(levels, 1e-5) <= 1.0
    assert 0.9 < epsilon(offer, 1e-5) <= 1.0
    assert 1.0 < epsilon(levels + offer, 1e-5) <= 2.0
    assert median(schema, "others") > 10 * np.median(pay)
