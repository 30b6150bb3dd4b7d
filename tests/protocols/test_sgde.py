"""SGDE: what silos pay, send and get, and what the pool does with liars."""

import math
from collections import Counter
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.api.train import run_file, train
from understudy.data.encoding.population import Population
from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.data.schema import Categorical, Schema
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.generators.samplers import labelled_images
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    MessageError,
    PartyError,
    PrivacyError,
    SchemaError,
)
from understudy.models.nets.beta_vae import TableVae
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.papers.sgde import protocol as sgde
from understudy.protocols.papers.sgde import training as sgde_train
from understudy.protocols.papers.sgde.kinds import pooled
from understudy.protocols.papers.sgde.offer import Requirements, unpack_offer
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import Push, Subscribe, train_offers
from understudy.protocols.papers.sgde.pool import assess_offers
from understudy.protocols.papers.sgde.training import batches, fit
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

BUDGET = Budget(epsilon=1.5, delta=1e-5)
SMALL: dict[str, Any] = {"target": "smoker", "steps": 3, "latent": 2, "device": "cpu"}
LEVELS = ("a", "b", "c")
SCHEMA = Schema(
    columns=(
        Categorical(name="one", categories=LEVELS),
        Categorical(name="two", categories=LEVELS),
        Categorical(name="class", categories=("left", "right")),
    )
)


def few(rows: int, seed: int) -> tuple[pd.DataFrame, Schema]:
    """A toy table of four columns."""
    frame, schema = toy(rows=rows, seed=seed)
    some = ["colour", "grade", "smoker", "age"]
    return frame[["id", *some]], schema.select(some)


def silos(number: int = 3, rows: int = 60, **budget: Any) -> Federation:
    frame, schema = few(rows=rows, seed=3)
    tables = {f"silo {k}": frame.iloc[k::number] for k in range(number)}
    return Federation.rehearsal(
        tables,
        dict.fromkeys(tables, schema),
        budget=budget.get("budget", BUDGET),
        seed=5,
        same_people=False,
    )


def told_apart(silo: int, rows: int = 200) -> pd.DataFrame:
    """Rows whose class shows: "left" likes a, "right" likes c."""
    rng = np.random.default_rng(silo)
    left = rng.random(rows) < 0.5
    pick = lambda: np.where(  # noqa: E731
        left,
        rng.choice(LEVELS, rows, p=[0.8, 0.1, 0.1]),
        rng.choice(LEVELS, rows, p=[0.1, 0.1, 0.8]),
    )
    return pd.DataFrame(
        {"one": pick(), "two": pick(), "class": np.where(left, "left", "right")}
    )


@cache
def exchange(**settings: Any) -> sgde.PoolOutcome:
    """Four silos whose classes show, with little noise."""
    tables = {f"silo {k}": told_apart(k) for k in range(4)}
    federation = Federation.rehearsal(
        tables,
        dict.fromkeys(tables, SCHEMA),
        budget=Budget(100.0, 1e-5),
        seed=1,
        same_people=False,
    )
    config = sgde.Config(
        target="class",
        epsilon=100.0,
        steps=12,
        rate=0.5,
        learning_rate=0.14,
        latent=2,
        device="cpu",
        **settings,
    )
    return sgde.train(
        config, LocalParties(federation.parties("sgde", run="r")), federation.schemas
    )


def test_a_silo_pays_once_for_all_its_classes() -> None:
    federation = silos()
    result = train("sgde", federation, **SMALL)
    for name, holder in federation.holders.items():
        ((event, count),) = holder.ledger.spend().items()
        assert count == 3
        assert epsilon({event: count}, 1e-5) <= 1.5
        assert result.privacy.epsilon(name) == pytest.approx(holder.ledger.spent())
        assert holder.ledger.spent() >= 0.99 * 1.5
    assert {offer["epsilon"] for offer in result.generator.card["offers"]} == {
        result.privacy.epsilon("silo 0")
    }


def test_nothing_tells_how_many_rows_a_silo_has() -> None:
    """The price, the messages' shapes and the statement are the same for 20 rows and
    for 60.
    """
    cards = []
    for rows in (60, 180):
        federation = silos(rows=rows)
        result = train("sgde", federation, leave_out="nothing", **SMALL)
        shapes = {
            key: value.shape
            for key, value in result.generator.network.state_dict().items()
        }  # type: ignore[attr-defined]
        spend = [holder.ledger.spend() for holder in federation.holders.values()]
        lines = {
            key: (line.up_bytes, line.down_bytes)
            for key, line in result.transcript.lines.items()
        }
        cards.append((shapes, spend, str(result.privacy).split("\n", 1)[1], lines))
    for one, other in zip(*cards, strict=True):
        assert one == other


def test_a_class_without_rows_is_offered_like_any_other() -> None:
    frame, schema = few(rows=60, seed=3)
    own = frame[frame["smoker"] == frame["smoker"].iloc[0]]
    federation = Federation.rehearsal(
        {"silo": own}, {"silo": schema}, budget=BUDGET, seed=5, same_people=False
    )
    outcome = train("sgde", federation, **SMALL)
    labels = Counter(outcome.generator.sample(2000, seed=0)["smoker"])
    assert all(count > 850 for count in labels.values())
    assert len(labels) == 2


def test_a_person_with_many_rows_counts_with_one() -> None:
    frame, schema = few(rows=60, seed=3)
    frame["id"] %= 20
    federation = Federation.rehearsal(
        {"silo": frame}, {"silo": schema}, budget=BUDGET, seed=5, same_people=False
    )
    table = federation.holders["silo"].table
    requirements = Requirements(schema=schema, target="smoker")
    rows, codes = pooled(schema).first_rows(table, schema, "smoker")
    assert len(rows) == len(codes) == 20
    assert not bool(requirements.labels[0])
    assert codes.tolist() == frame.drop_duplicates("id")["smoker"].astype(int).tolist()


def test_batches_hold_each_row_at_the_public_rate_whatever_its_class() -> None:
    codes = torch.tensor([0] * 5 + [2] * 95)
    seen = torch.zeros(100)
    steps = 300
    for places, mask in batches(codes, 3, 0.2, steps, SecureRng.from_seed(1)):
        assert places.shape == mask.shape
        assert len(mask) == 3
        assert not mask[1].any()
        assert all(
            bool((codes[row[own]] == label).all())
            for label, (row, own) in enumerate(zip(places, mask, strict=True))
        )
        seen[places[mask]] += 1
    deviation = math.sqrt(0.2 * 0.8 / steps)
    assert float((seen / steps - 0.2).abs().max()) < 5 * deviation
    assert float((seen / steps).mean()) == pytest.approx(0.2, abs=5 * deviation / 10)


def test_a_batch_in_pieces_trains_as_a_whole_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    rows = torch.eye(6)[torch.from_numpy(rng.integers(0, 6, 60))]
    codes = torch.from_numpy(rng.integers(0, 2, 60))

    def weights() -> list[torch.Tensor]:
        vae = TableVae(2, (6,), 2)
        fit(vae, rows, codes, Recipe(steps=3, rate=0.5), 0.5, SecureRng.from_seed(1))
        return vae.parameters

    whole = weights()
    # four rows of each class at a time
    monkeypatch.setattr(sgde_train, "_AT_ONCE", 2 * 6 * 4)
    for one, other in zip(whole, weights(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_offers_draw_their_own_class_and_resemble_it() -> None:
    outcome = exchange()
    assert not any(one.flagged for one in outcome.assessments)
    drawn = Generator.from_parts(outcome.trained).sample(4000, seed=1)
    assert abs((drawn["class"] == "left").mean() - 0.5) < 0.05
    for label, level in (("left", "a"), ("right", "c")):
        assert (drawn.loc[drawn["class"] == label, "one"] == level).mean() > 0.5


@pytest.mark.long
@pytest.mark.parametrize("poison", ["flip", "random"])
def test_liars_are_flagged_and_left_out(poison: str) -> None:
    outcome = exchange(poison=poison, poison_share=1 / 4)
    flagged = {one.silo for one in outcome.assessments if one.flagged}
    order = np.random.default_rng((0, 4)).permutation(4)[:1]
    liars = {f"silo {k}" for k in order}
    assert flagged
    assert flagged <= liars
    if poison == "flip":
        assert flagged == liars
        assert all(
            one.looks_like != one.label
            for one in outcome.assessments
            if one.silo in liars
        )
    members = {member["silo"] for member in outcome.trained.card["members"]}
    assert members >= {f"silo {k}" for k in range(4)} - liars
    assert len(members) + len(flagged) == 4 or poison == "random"


def test_a_puller_may_keep_what_was_flagged() -> None:
    outcome = exchange(poison="flip", poison_share=1 / 4, leave_out="nothing")
    assert any(one.flagged for one in outcome.assessments)
    assert len(outcome.trained.card["members"]) == 8


def test_a_pool_of_two_silos_flags_nobody() -> None:
    federation = silos(2)
    outcome = train("sgde", federation, poison="flip", poison_share=0.5, **SMALL)
    assert [offer["agreement"] for offer in outcome.generator.card["offers"]] == [
        None
    ] * 4


def test_lies_are_refused_where_the_ledger_is_real(tmp_path: Path) -> None:
    frame, schema = few(rows=60, seed=3)
    federation = Federation(
        {"silo": frame},
        {"silo": schema},
        budget=BUDGET,
        ledgers=tmp_path,
        same_people=False,
    )
    with pytest.raises(PartyError, match="rehearsals"):
        train("sgde", federation, poison="flip", poison_share=1.0, **SMALL)
    assert federation.holders["silo"].ledger.spent() == 0


def test_a_pull_chooses_by_class_silo_and_price() -> None:
    outcome = exchange()
    offers = outcome.offers
    price = offers[0].card["epsilon"]

    def chosen(without: tuple[int, ...] = (), **settings: Any) -> list[int]:
        return sgde.choose(sgde.Config(**settings), offers, without)

    assert len(chosen()) == 8
    assert {offers[k].card["label"] for k in chosen(labels=("left",))} == {"left"}
    assert {offers[k].card["silo"] for k in chosen(silos=("silo 2",))} == {"silo 2"}
    assert chosen((0, 3), silos=("silo 0",)) == [1]
    assert len(chosen(cheapest=price)) == 8
    with pytest.raises(ConfigError, match="no offer"):
        chosen(cheapest=price / 2)


def test_a_holder_who_allows_less_offers_less(tmp_path: Path) -> None:
    federation = silos(
        3,
        budget={
            "silo 0": Budget(0.5, 1e-5),
            "silo 1": BUDGET,
            "silo 2": Budget(9.0, 1e-4),
        },
    )
    result = train("sgde", federation, folder=tmp_path, **SMALL)
    by_silo = {
        offer["silo"]: (offer["epsilon"], offer["delta"])
        for offer in result.generator.card["offers"]
    }
    assert by_silo["silo 0"][0] <= 0.5
    assert 0.5 < by_silo["silo 1"][0] <= 1.5
    assert by_silo["silo 2"][0] <= 1.5
    assert by_silo["silo 2"][1] == 1e-5
    kept = sorted((tmp_path / "parties" / "silo 1" / "pool").iterdir())
    assert len(kept) == 6
    assert len(Generator.load(kept[0]).sample(5, seed=0)) == 5


def test_a_spent_budget_stops_before_anything_is_charged() -> None:
    federation = silos(2)
    ledger = federation.holders["silo 1"].ledger
    ledger.set_budget(Budget(0.1, 1e-5))
    with pytest.raises(BudgetExceeded):
        train("sgde", federation, **SMALL)
    assert all(holder.ledger.spent() == 0 for holder in federation.holders.values())


def test_an_offer_that_was_tampered_with_is_refused() -> None:
    federation = silos(1)
    requirements = Requirements(schema=few(rows=4, seed=0)[1], target="smoker")
    (party,) = federation.parties("sgde", run="r").values()
    party.answer(
        Subscribe(requirements=requirements.to_dict(), config={"steps": 2, "latent": 2})
    )
    offer = party.answer(Push()).offers.value[0]  # type: ignore[attr-defined]
    unpack_offer(requirements, offer)
    weights = dict(offer["weights"])
    name = next(iter(weights))
    spoilt: list[tuple[dict[str, Any], type[Exception]]] = [
        (offer | {"card": offer["card"] | {"epsilon": 1.6}}, PrivacyError),
        (offer | {"weights": weights | {name: weights[name][:1]}}, ArtefactError),
        (offer | {"weights": {}}, ArtefactError),
        (
            offer | {"card": offer["card"] | {"network": {"kind": "class-decoder"}}},
            ConfigError,
        ),
        ({"card": offer["card"]}, MessageError),
    ]
    for changed, error in spoilt:
        with pytest.raises(error):
            unpack_offer(requirements, changed)


def test_silos_that_describe_their_rows_differently_are_refused() -> None:
    frame, schema = few(rows=60, seed=3)
    federation = Federation.rehearsal(
        {"a": frame, "b": frame.drop(columns="age")},
        {"a": schema, "b": schema.drop(["age"])},
        budget=BUDGET,
        seed=1,
        same_people=False,
    )
    with pytest.raises(ConfigError, match="in the same way"):
        train("sgde", federation, **SMALL)


def test_a_silo_can_train_for_a_pool_elsewhere() -> None:
    schema = few(rows=4, seed=3)[1]
    federation = silos(1)
    ledger = Ledger.rehearsal(holder="north", budget=BUDGET)
    offers = train_offers(
        "north",
        federation.holders["silo 0"].table,
        ledger,  # type: ignore[arg-type]
        Requirements(schema=schema, target="smoker", epsilon=1.0),
        budget=BUDGET,
        run="push",
        recipe=Recipe(steps=3, latent=2, device="cpu"),
    )
    assert [offer.card["label"] for offer in offers] == [False, True]
    assert all(offer.card["epsilon"] <= 1.0 for offer in offers)
    assert ledger.spent() == pytest.approx(offers[0].card["epsilon"])
    assert (
        assess_offers(Requirements(schema=schema, target="smoker"), offers)[0].agreement
        is None
    )


def images(silo: int) -> Population:
    """Twelve-pixel images: class 0 is bright above, class 1 below. A person has two of
    them.
    """
    rng = np.random.default_rng(silo)
    y = rng.integers(0, 2, 80)
    x = rng.integers(0, 60, (80, 6, 4)).astype(np.uint8)
    x[y == 0, :3] += 180
    x[y == 1, 3:] += 180
    return Population.from_arrays(x, y, classes=2, rows_per_person=2)


def test_labelled_images_are_exchanged_too(tmp_path: Path) -> None:
    federation = Federation.rehearsal(
        {f"silo {k}": images(k) for k in range(3)},
        budget=Budget(50.0, 1e-5),
        seed=1,
        same_people=False,
    )
    result = train(
        "sgde",
        federation,
        epsilon=50.0,
        steps=12,
        rate=0.5,
        learning_rate=0.05,
        latent=2,
        channels=(4, 6),
        device="cpu",
    )
    again = Generator.load(result.generator.save(tmp_path / "pool"))
    drawn, labels = labelled_images(again, 200, seed=0)
    assert drawn.shape == (200, 6, 4)
    assert drawn.dtype == np.uint8
    above = drawn[np.array(labels) == 0].mean((0, 2))
    below = drawn[np.array(labels) == 1].mean((0, 2))
    assert above[:3].mean() > above[3:].mean() + 20
    assert below[3:].mean() > below[:3].mean() + 20
    assert 70 < labels.count(0) < 130


def test_images_outside_their_bounds_are_refused_at_the_holder() -> None:
    x = np.full((4, 6, 4), 2.0, dtype=np.float32)
    federation = Federation.rehearsal(
        {"silo": Population.from_arrays(x, [0, 1, 0, 1], classes=2)},
        budget=BUDGET,
        seed=1,
        same_people=False,
    )
    with pytest.raises(SchemaError, match="values outside"):
        # nobody has asked yet: the server sees no refusal that rows decide
        federation.parties("sgde", run="r")
    assert federation.holders["silo"].ledger.spent() == 0


@pytest.mark.parametrize("labels", [[0, 1, 0, 1], [0, 1, 2, 1]])
def test_classes_that_are_not_the_silos_are_refused_whether_or_not_it_has_rows_of_them(
    labels: list[int],
) -> None:
    rows = Population.from_arrays(
        np.full((4, 4, 4), 0.5, dtype=np.float32), labels, classes=3
    )
    silo = sgde.PROTOCOL.build(
        "silo", rows, ledger := Ledger.rehearsal("silo", BUDGET), run="r", budget=BUDGET
    )
    fewer = Requirements(
        schema=ImageSchema(height=4, width=4), target="label", classes=(0, 1)
    )
    recipe = asdict(Recipe(steps=20, latent=2, channels=(2,), device="cpu"))
    with pytest.raises(SchemaError, match="classes"):
        silo.answer(Subscribe(requirements=fewer.to_dict(), config=recipe))
    assert ledger.spent() == 0


def test_a_silo_pushes_once_although_its_ledger_could_pay_again() -> None:
    frame, schema = few(rows=60, seed=3)
    ledger = Ledger.rehearsal("silo", Budget(20.0, 1e-5))
    requirements = sgde.build_requirements(
        sgde.Config(target="smoker"), {"silo": schema}
    ).to_dict()
    table = read_table(frame, schema)
    silo = sgde.PROTOCOL.build("silo", table, ledger, run="r", budget=BUDGET)
    silo.answer(
        Subscribe(
            requirements=requirements,
            config=asdict(Recipe(steps=2, latent=2, device="cpu")),
        )
    )
    silo.answer(Push())
    spent = ledger.spent()
    state = silo.state_dict()
    silo.load_state_dict(state)
    with pytest.raises(MessageError, match="not expected"):
        silo.answer(Push())
    assert ledger.spent() == spent <= BUDGET.epsilon


def test_a_holder_who_allows_no_delta_is_not_given_one_by_the_pool() -> None:
    frame, schema = few(rows=60, seed=3)
    ledger = Ledger.rehearsal("silo", Budget(20.0, 1e-5))
    requirements = sgde.build_requirements(
        sgde.Config(target="smoker"), {"silo": schema}
    ).to_dict()
    silo = sgde.PROTOCOL.build(
        "silo", read_table(frame, schema), ledger, run="r", budget=Budget(1.5, 0.0)
    )
    with pytest.raises(PrivacyError, match="δ=0"):
        silo.answer(
            Subscribe(
                requirements=requirements, config=asdict(Recipe(steps=2, device="cpu"))
            )
        )
    assert ledger.spent() == 0


def test_a_run_file_carries_it_out(tmp_path: Path) -> None:
    frame, schema = few(rows=60, seed=3)
    schema.save(tmp_path / "schema.toml")
    for name, part in (("north", frame.iloc[::2]), ("south", frame.iloc[1::2])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    silo = (
        '[parties.{0}]\ntable = "{0}.csv"\nschema = "schema.toml"\nepsilon = '
        "1.5\ndelta = 1e-5\n"
    )
    (tmp_path / "run.toml").write_text(
        (
            'protocol = "sgde"\nout = "pool"\nrows = 40\n[settings]\ntarget = '
            '"smoker"\nsteps = 3\nlatent = 2\n'
        )
        + silo.format("north")
        + silo.format("south")
    )
    result, out = run_file(RunFile.load(tmp_path / "run.toml"))
    assert len(pd.read_parquet(out / "synthetic.parquet")) == 40
    assert len(Generator.load(out).sample(5)) == 5
    assert len(list((out / "parties" / "north" / "pool").iterdir())) == 4
    assert result.privacy.epsilon("north") <= 1.5
