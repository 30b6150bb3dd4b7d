"""Vertical GANs whose parties hold a table, images or series: what is taken, what is
learned, what is refused.
"""

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from refusals import raises
from understudy.api.train import train
from understudy.data.images import Images, ImageSchema
from understudy.data.kinds import IMAGES, TABLE
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Real, Schema
from understudy.data.series import Series, SeriesSchema
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    AlignmentError,
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyError,
)
from understudy.models.nets.gan import BranchedGenerator, Critic, ImageCritic
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.papers.vd_gan import pate as vd_gan_pate
from understudy.protocols.papers.vd_gan import protocol as vd_gan
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

BUDGET = Budget(3.0, 1e-5)
SMALL: dict[str, Any] = {"rounds": 2, "critic_steps": 2, "batch": 16, "device": "cpu"}
PULSE = (Real(name="pulse", low=0, high=1),)


def images(count: int, *, people: Any = None, person: str | None = "id") -> Images:
    """The left half of each image is bright."""
    pixels = np.zeros((count, 4, 4), dtype=np.uint8)
    pixels[:, :, :2] = 230
    pixels[:, 0, 3] = np.arange(count) % 250  # so that an image tells whose it is
    return Images.from_array(
        pixels, ImageSchema(height=4, width=4, person=person), people
    )


def series(count: int, people: Any = None) -> Series:
    """Every series falls from high to low."""
    values = np.tile(np.array([0.9, 0.9, 0.1])[None, :, None], (count, 1, 1))
    schema = SeriesSchema(length=3, series="stay", person="id", channels=PULSE)
    return Series.from_array(values, schema, people)


def yes(ids: Any) -> tuple[pd.DataFrame, Schema]:
    """Nine people in ten say yes."""
    said = np.random.default_rng(0).random(len(ids)) < 0.9
    return pd.DataFrame({"id": ids, "said": said}), Schema(
        columns=(Boolean(name="said"),), person="id"
    )


def federation(people: int) -> Federation:
    ids = np.arange(people)
    table, schema = yes(ids)
    held = {
        "clinic": table,
        "radiology": images(people, people=ids),
        "monitor": series(people, ids),
    }
    return Federation.rehearsal(held, {"clinic": schema}, budget=BUDGET, seed=1)


def test_everybodys_row_follows_its_person_through_the_alignment() -> None:
    ids = np.random.default_rng(1).permutation(40)
    table, schema = yes(np.arange(40))
    held = {"clinic": table, "radiology": images(40, people=ids)}
    held_by = Federation.rehearsal(held, {"clinic": schema}, budget=BUDGET, seed=1)
    parties = held_by.parties("verti-gan", run="r")
    verti_gan.train(verti_gan.Config(**SMALL), LocalParties(parties), held_by.schemas)
    clinic = parties["clinic"]
    radiology = parties["radiology"]
    assert isinstance(clinic, verti_gan.VertiGanParty)
    assert isinstance(radiology, verti_gan.VertiGanParty)
    order = clinic.aligned.frame["id"].to_numpy()
    place = {person: number for number, person in enumerate(ids)}
    marks = (radiology.encoded().view(40, 4, 4)[:, 0, 3] * 255).round().long().tolist()
    assert marks == [place[person] % 250 for person in order]
    assert isinstance(clinic.critic_round.critic, Critic)
    assert isinstance(radiology.critic_round.critic, ImageCritic)


def test_images_and_series_are_read_from_files_by_their_schemas(tmp_path: Path) -> None:
    ids = np.arange(12)
    table, schema = yes(ids)
    np.savez(
        tmp_path / "scans.npz",
        images=np.zeros((12, 4, 4), dtype=np.uint8),
        id=ids[::-1],
    )
    steps = pd.DataFrame(
        {"id": np.repeat(ids, 3), "stay": np.repeat(ids, 3), "pulse": 0.5}
    )
    steps.to_csv(tmp_path / "stays.csv", index=False)
    described = {
        "clinic": schema,
        "radiology": images(2).schema,
        "monitor": series(2).schema,
    }
    for name, each in described.items():
        each.save(tmp_path / f"{name}.toml")
    held = {
        "clinic": table,
        "radiology": tmp_path / "scans.npz",
        "monitor": tmp_path / "stays.csv",
    }
    public = {name: tmp_path / f"{name}.toml" for name in described}
    result = train(
        "verti-gan", Federation.rehearsal(held, public, budget=BUDGET, seed=1), **SMALL
    )
    shapes = {
        name: part.shape for name, part in result.generator.parts(3, seed=0).items()
    }
    assert shapes == {"clinic": (3, 1), "radiology": (3, 4, 4), "monitor": (3, 3, 1)}
    assert result.people == 12


FREE = Budget(math.inf, 0.0)
LEARNS: dict[str, Any] = {
    "learning_rate": 0.003,
    "private": False,
    "latent": 4,
    "common": (16,),
    "device": "cpu",
}


def test_without_noise_a_table_and_series_are_both_learned(tmp_path: Path) -> None:
    ids = np.arange(80)
    table, schema = yes(ids)
    held = {"clinic": table, "monitor": series(80, ids)}
    result = train(
        "verti-gan",
        Federation.rehearsal(held, {"clinic": schema}, budget=FREE, seed=1),
        rounds=15,
        critic_steps=5,
        batch=32,
        critic_hidden=(16,),
        **LEARNS | {"learning_rate": 0.015},
    )
    drawn = result.generator.parts(200, seed=0)
    pulse = np.asarray(drawn["monitor"]).mean(0)[:, 0]  # 0.9, 0.9, 0.1 at the holder
    assert 0.7 < float(drawn["clinic"]["said"].mean()) < 1  # type: ignore[call-overload]
    assert min(pulse[:2]) > 0.6 > 0.45 > pulse[2]
    frame = result.generator.sample(5, seed=0)
    assert frame.shape == (5, 1 + 3)
    again = Generator.load(result.generator.save(tmp_path))
    pd.testing.assert_frame_equal(again.sample(5, seed=0), frame)


@pytest.mark.long
def test_without_noise_the_bright_half_of_the_images_is_learned() -> None:
    held = Federation.rehearsal({"radiology": images(100)}, budget=FREE, seed=1)
    settings = LEARNS | {"learning_rate": 0.006}
    result = train("central-gan", held, rounds=12, critic_steps=3, batch=16, **settings)
    pixels = result.generator.images(200, seed=0).mean(0)
    assert pixels[1:, :2].min() > 200  # 230 at the holder
    assert pixels[1:, 2:].max() < 50  # 0 at the holder


def test_one_party_with_images_alone_trains_centrally() -> None:
    held = Federation.rehearsal({"radiology": images(30)}, budget=BUDGET, seed=1)
    result = train("central-gan", held, **SMALL)
    assert result.generator.card["protocol"] == "central-gan"
    assert result.generator.sample(3, seed=0).shape == (3, 16)
    spent = held.holders["radiology"].ledger.spent()
    assert 0.99 * BUDGET.epsilon <= spent <= BUDGET.epsilon
    assert result.privacy.epsilon() == pytest.approx(spent)


def test_a_central_run_of_two_parties_is_refused() -> None:
    held = federation(20)
    with pytest.raises(ConfigError, match="not for 3"):
        train("central-gan", held, **SMALL)
    assert not any(
        entry.count
        for holder in held.holders.values()
        for entry in holder.ledger.entries()
    )


@pytest.mark.parametrize("protocol", ["vd-gan-dpsgd", "vd-gan-pate", "dplt"])
def test_a_method_for_tables_refuses_images_before_anything_is_charged(
    protocol: str,
) -> None:
    held = federation(20)
    with raises(
        ConfigError,
        effect=Effect.NOTHING_CHARGED,
        match="radiology holds rows of the kind 'image'",
    ):
        train(protocol, held)
    assert not any(
        entry.count
        for holder in held.holders.values()
        for entry in holder.ledger.entries()
    )


@pytest.mark.parametrize("module", [vd_gan, vd_gan_pate])
def test_a_party_for_tables_cannot_be_built_on_images(module: ModuleType) -> None:
    ledger = Ledger.rehearsal(holder="radiology", budget=BUDGET)
    with pytest.raises(ConfigError, match="takes table"):
        module.PROTOCOL.build("radiology", images(5), ledger, run="r", budget=BUDGET)


@pytest.mark.parametrize("person", ["id", None])
def test_a_person_with_two_images_is_refused_before_anything_is_charged(
    person: str | None,
) -> None:
    twice = images(6, people=[1, 2, 3, 4, 4, 5], person=person)
    ledger = Ledger.rehearsal(holder="radiology", budget=BUDGET)
    with raises(PartyError, effect=Effect.NOTHING_CHARGED, match="6 rows of 5 people"):
        verti_gan.PROTOCOL.build("radiology", twice, ledger, run="r", budget=BUDGET)


def test_images_without_ids_do_not_meet_a_table_with_ids() -> None:
    table, schema = yes(np.arange(20))
    held = {"clinic": table, "radiology": images(20, person=None)}
    with pytest.raises(AlignmentError):
        train(
            "verti-gan",
            Federation.rehearsal(held, {"clinic": schema}, budget=BUDGET, seed=1),
            **SMALL,
        )


def test_a_network_for_other_pixels_is_refused() -> None:
    held = federation(20)
    party = held.parties("verti-gan", run="r")["radiology"]
    assert isinstance(party, verti_gan.VertiGanParty)
    network = BranchedGenerator.for_parties({"radiology": (2, 3)})
    with pytest.raises(PartyError, match="does not fit"):
        party.open(verti_gan.VertiGanBegin(config={}, network=network.describe()))


def test_a_table_is_its_own_roster_and_arrays_keep_their_places() -> None:
    frame, schema = toy(rows=5, seed=0)
    held = (
        Federation.rehearsal({"a": frame}, {"a": schema}, budget=BUDGET)
        .holders["a"]
        .table
    )
    assert TABLE.roster(held) is held
    rows = images(5, people=[9, 8, 7, 6, 5])
    people = IMAGES.roster(rows)
    picked = people.take([3, 0])
    assert picked.people.tolist() == [6, 9]
    assert torch.equal(
        IMAGES.encode(rows, picked), torch.from_numpy(rows.values[[3, 0]]).flatten(1)
    )


def test_a_second_beginning_is_refused_and_a_round_after_the_last_is_not_sent() -> None:
    held = federation(20)
    parties = LocalParties(held.parties("verti-gan", run="r"))
    verti_gan.train(verti_gan.Config(**SMALL), parties, held.schemas)
    party = parties.parties["clinic"]
    ledger = held.holders["clinic"].ledger
    assert isinstance(party, verti_gan.VertiGanParty)
    begun = party.begun
    spent = ledger.spend()
    assert begun is not None
    for begin in (
        begun,
        replace(begun, config=begun.config | {"rounds": 1, "critic_steps": 1}),
    ):
        with raises(MessageError, effect=Effect.NOTHING_COMPUTED_OR_SENT):
            party.answer(begin)  # fewer rounds would have less noise
    assert party.begun is begun
    weights = torch.zeros(sum(p.numel() for p in party.network.parameters()))
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        party.answer(verti_gan.VertiGanRound(round=3, seed=1, weights=weights))
    assert ledger.spend() == spent


def test_a_refused_beginning_leaves_nothing_begun() -> None:
    held = federation(20)
    parties = LocalParties(held.parties("verti-gan", run="r"))
    ledger = held.holders["clinic"].ledger
    ledger.charge(
        PureDp(BUDGET.epsilon / 5),
        run="earlier",
        description="a fifth: less than the alignment foresees",
    )
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        verti_gan.train(verti_gan.Config(**SMALL), parties, held.schemas)
    party = parties.parties["clinic"]
    assert isinstance(party, verti_gan.VertiGanParty)
    assert party.begun is None
    with pytest.raises(MessageError, match="not expected"):
        party.answer(verti_gan.VertiGanRound(round=1, seed=1, weights=torch.zeros(3)))
