"""Moments: what is drawn resembles the holders' images and series, and nothing leaves
that was not agreed to.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from odd_servers import OTHER_BEGINNINGS, Crooked, Leaving, changed, charged, proposed

from understudy.api.train import train
from understudy.data.array_folder import ArrayFolder
from understudy.data.encoding.frame import UNIT, Frame
from understudy.data.images import Images, ImageSchema
from understudy.data.reading import files
from understudy.data.samples import sines, toy
from understudy.data.series import Series
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ConfigError,
    MessageError,
    PartyError,
    PrivacyError,
    SchemaError,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.moments import Crowd
from understudy.protocols.joint.messages import Agree, Begin, Propose, Release
from understudy.protocols.moments import protocol as moments
from understudy.protocols.moments.stages import ArrayRows, First
from understudy.runs.federation import Federation

SCHEMA = ImageSchema(height=6, width=5, label="sign", classes=("bar", "dash"))
AMPLE = Budget(epsilon=1e6, delta=1e-5)
SMALL: dict[str, Any] = {"features": 20}


def signs(people: int, seed: int = 0) -> tuple[Any, Any]:
    """Bars that stand and dashes that lie, each a little elsewhere and of its own
    brightness.
    """
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 40, (people, 6, 5))
    which = rng.integers(0, 2, people)
    place = rng.integers(0, 2, people)
    bright = rng.integers(120, 215, people)
    for n in range(people):
        if which[n]:
            pixels[n, 2 + place[n], :] += bright[n]
        else:
            pixels[n, :, 1 + place[n]] += bright[n]
    return pixels, np.array(SCHEMA.classes, dtype=object)[which]


def silos(
    count: int, people: int = 900, budget: Budget = AMPLE, **more: Any
) -> Federation:
    pixels, labels = signs(people)
    held = {
        f"silo {n}": Images.from_array(
            pixels[n::count], SCHEMA, labels=labels[n::count]
        )
        for n in range(count)
    }
    return Federation.rehearsal(
        held, {}, budget=budget, seed=7, same_people=False, **more
    )


def test_each_class_has_its_own_mean_and_covariance() -> None:
    generator = train("moments", silos(3), features=30, bits=0).generator
    network: Any = generator.network
    pixels, real = signs(900)
    rows = network.frame.coefficients((pixels / 255).astype(np.float32))
    basis = network.basis.detach().numpy()
    tail = network.tail.detach().numpy()
    for number, name in enumerate(SCHEMA.classes):
        theirs = rows[real == name]
        factor = network.factors[number].detach().numpy()
        ours = basis @ factor @ factor.T @ basis.T + np.diag(tail**2)
        assert np.corrcoef(ours.ravel(), np.cov(theirs.T).ravel())[0, 1] > 0.999
        assert (
            np.abs(network.means[number].detach().numpy() - theirs.mean(0)).max()
            < 0.01 * UNIT
        )
    drawn, labels = generator.labelled(2000, seed=1)
    assert drawn.shape == (2000, 6, 5)
    assert abs((labels == "bar").mean() - (real == "bar").mean()) < 0.05
    bars = drawn[labels == "bar"].mean(0)
    assert bars[:, 1:3].min() > bars[:, 3:].max() + 30, (
        "bars stand in the second or third column"
    )


def test_colour_images_are_drawn_in_the_colours_of_their_class() -> None:
    schema = ImageSchema(
        height=5, width=4, channels=3, label="side", classes=("left", "right")
    )
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, 600)
    pixels = rng.integers(0, 60, (600, 5, 4, 3))
    pixels[side == 0, :, :2, 0] += 150  # red on the left
    pixels[side == 1, :, 2:, 2] += 150  # blue on the right
    held = {
        "one": Images.from_array(pixels, schema, labels=np.array(schema.classes)[side])
    }
    fed = Federation.rehearsal(held, {}, budget=AMPLE, seed=3, same_people=False)
    generator = train("moments", fed, features=60).generator
    drawn, labels = generator.labelled(1000, seed=1)
    assert drawn.shape == (1000, 5, 4, 3)
    for number, name in enumerate(schema.classes):
        assert (
            np.abs(drawn[labels == name].mean(0) - pixels[side == number].mean(0)).max()
            < 20
        )
    told = generator.classifier().predict(pixels[:100])
    assert (np.asarray(told) == np.array(schema.classes)[side[:100]]).all()


def test_with_a_declared_norm_means_have_less_noise_and_longer_rows_are_pulled_in():
    """Images near an even grey, and one that is black: it moves the sums by no more
    than any other may.
    """
    pixels = np.random.default_rng(0).integers(108, 148, (400, 6, 5))
    off = []
    pixels[0] = 0
    values = (pixels / 255).astype(np.float32)
    for norm in (None, 0.2):
        schema = ImageSchema(height=6, width=5, norm=norm)
        frame = Frame.declared(schema, 30)
        first = First(frame, 1)
        black = ArrayRows(
            frame.coefficients(values[:1]),
            frame.histograms(values[:1], 32),
            np.zeros(1, np.int64),
            Crowd.from_starts(np.arange(2)),
        )
        assert float(first.sums(black).double().norm()) <= first.sensitivity
        held = {"one": Images.from_array(pixels, schema)}
        fed = Federation.rehearsal(
            held, {}, budget=Budget(0.5, 1e-5), seed=3, same_people=False
        )
        network: Any = train(
            "moments", fed, features=30, shares=(0.5, 0.5, 0.0)
        ).generator.network
        off.append(
            np.linalg.norm(
                network.means.detach().numpy()[0]
                - frame.coefficients(values[1:]).mean(0)
            )
        )
    assert off[1] < 0.5 * off[0]


def test_a_bought_norm_is_paid_for_once_and_means_have_less_noise() -> None:
    """Images near an even grey, and one that is black: what is bought is near the grey
    ones' length.
    """
    pixels = np.random.default_rng(0).integers(108, 148, (1000, 12, 12))
    off = []
    pixels[0] = 0
    schema = ImageSchema(height=12, width=12)
    rows = Frame.from_schema(schema, 144).coefficients(
        (pixels[1:] / 255).astype(np.float32)
    )
    for norms in (0.0, 0.1):
        held = {f"silo {n}": Images.from_array(pixels[n::2], schema) for n in range(2)}
        fed = Federation.rehearsal(
            held, {}, budget=Budget(0.5, 1e-5), seed=3, same_people=False
        )
        result = train(
            "moments", fed, features=144, shares=(0.5, 0.5, 0.0), norms=norms
        )
        network: Any = result.generator.network
        off.append(np.linalg.norm(network.means.detach().numpy()[0] - rows.mean(0)))
        paid = [
            entry.description.partition(" with ")[0]
            for entry in charged(fed.holders["silo 0"])
        ]
        assert paid == ["how long rows are"] * bool(norms) + [
            "counts, means and histograms",
            "second moments of all rows",
        ]
        assert 0.45 < result.privacy.epsilon("silo 0", "server") <= 0.5, (
            "the budget is spent either way, and no more"
        )
    card = result.generator.card
    assert (
        np.linalg.norm(rows, axis=1).max() / Frame.from_schema(schema, 144).reach
        < card["norm"]
        < 0.5
    )
    assert list(card["noise"]) == ["norms", "means", "pooled"]
    assert off[1] < 0.6 * off[0]


def test_cells_by_signs_tell_apart_what_one_gaussian_blurs() -> None:
    """Half of the bars stand in one column and half in the next: a Gaussian puts most
    of its draws between them.
    """

    def between(bits: int) -> float:
        drawn, labels = train(
            "moments", silos(1), **SMALL, bits=bits
        ).generator.labelled(3000, seed=1)
        bars = drawn[labels == "bar"].astype(float)
        left = bars[:, :, 1].mean(1)
        right = bars[:, :, 2].mean(1)
        return float((np.abs(left - right) < 40).mean())

    assert between(1) < 0.5 * between(0)


def test_what_leans_each_in_its_own_way_is_drawn_as_sharp_as_it_was() -> None:
    """Strokes that lean: a Gaussian of pixels draws fans of them, unless it is told of
    what was turned upright.
    """
    rng = np.random.default_rng(0)
    y, x = np.indices((12, 12)) - 5.5
    lean = rng.uniform(-0.7, 0.7, 800)[:, None, None]
    pixels = np.rint(
        255 * np.exp(-np.square(x - lean * y) / 4) * (np.abs(y) < 5)
    ).astype(np.uint8)
    held = {"one": Images.from_array(pixels, ImageSchema(height=12, width=12))}

    def away(**settings: Any) -> float:
        """How far what is drawn is from the nearest real stroke."""
        fed = Federation.rehearsal(held, {}, budget=AMPLE, seed=3, same_people=False)
        drawn = train(
            "moments", fed, features=100, bits=0, **settings
        ).generator.images(200, seed=1)
        sides = (
            torch.from_numpy(some.reshape(len(some), -1) / 255)
            for some in (drawn, pixels)
        )
        return float(torch.cdist(*sides).amin(1).mean())

    assert away(upright=True) < 0.6 * away()


def test_silos_together_give_what_one_holder_would_have() -> None:
    networks = [
        train("moments", silos(count), **SMALL, bits=0).generator.network.state_dict()
        for count in (1, 3)
    ]
    for name in ("shares", "means", "tail"):
        torch.testing.assert_close(
            networks[0][name], networks[1][name], rtol=1e-2, atol=3.0
        )


def test_series_keep_their_covariance_over_time_and_channels() -> None:
    values, schema = sines(1200, length=12, channels=2, seed=2)
    held = {"host": Series.from_array(values, schema, np.arange(1200) // 3)}
    fed = Federation.rehearsal(held, {}, budget=AMPLE, seed=3, same_people=False)
    generator = train("moments", fed, shares=(0.4, 0.6, 0.0)).generator
    assert "from one value to the next; the release says" in generator.card["expected"]
    drawn = generator.series(3000, seed=0)
    ours, theirs = (
        np.cov(x.reshape(len(x), -1).T) for x in (drawn, values.astype(float))
    )
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.97
    assert np.abs(drawn.mean(0) - values.mean(0)).max() < 0.03


def test_a_generator_is_saved_and_loaded_and_draws_the_same(tmp_path: Path) -> None:
    result = train("moments", silos(2, 60), **SMALL)
    result.save(tmp_path)
    again = Generator.load(tmp_path / "generator")
    frame = again.sample(20, seed=4)
    assert frame.columns[0] == "sign"
    assert set(frame["sign"]) <= {"bar", "dash"}
    assert frame.equals(result.generator.sample(20, seed=4))
    assert again.images(3, seed=0).dtype == np.uint8


@pytest.mark.parametrize(
    "people",
    [pytest.param(1, id="one image"), pytest.param(2, id="two people at two silos")],
)
def test_few_people_are_noise_and_no_error(people: int) -> None:
    pixels, labels = signs(people, seed=1)
    held = {
        f"silo {n}": Images.from_array(
            pixels[n : n + 1], SCHEMA, labels=labels[n : n + 1]
        )
        for n in range(people)
    }
    fed = Federation.rehearsal(
        held, {}, budget=Budget(1.0, 1e-5), seed=1, same_people=False
    )
    drawn = train("moments", fed, **SMALL).generator.images(5, seed=0)
    assert drawn.shape == (5, 6, 5)


def test_constant_images_and_an_empty_class_are_no_error() -> None:
    flat = Images.from_array(np.full((50, 6, 5), 90), SCHEMA, labels=["bar"] * 50)
    fed = Federation.rehearsal(
        {"silo": flat}, {}, budget=AMPLE, seed=1, same_people=False
    )
    drawn, labels = train("moments", fed, **SMALL).generator.labelled(200, seed=0)
    assert np.abs(drawn[labels == "bar"].astype(int) - 90).max() <= 8, (
        "a bin of the histogram"
    )


def test_rows_that_do_not_fit_are_refused_before_anything_is_charged() -> None:
    pixels, labels = signs(4)
    with pytest.raises(SchemaError, match="is not one of the 2 declared classes"):
        Images.from_array(pixels, SCHEMA, labels=["bar", "bar", "cross", "bar"])
    with pytest.raises(SchemaError, match='as many values of "sign"'):
        Images.from_array(pixels, SCHEMA)
    with pytest.raises(SchemaError, match="value nan"):
        Images.from_array(np.where(pixels > 100, np.nan, pixels), SCHEMA, labels=labels)
    table, schema = toy(rows=20)
    fed = Federation.rehearsal(
        {"a": table}, {"a": schema}, budget=AMPLE, seed=0, same_people=False
    )
    with pytest.raises(ConfigError, match="moments takes image or series"):
        train("moments", fed)
    other = Images.from_array(pixels, replace(SCHEMA, high=300), labels=labels)
    fed = Federation.rehearsal(
        {"a": Images.from_array(pixels, SCHEMA, labels=labels), "b": other},
        {},
        budget=AMPLE,
        seed=0,
        same_people=False,
    )
    with pytest.raises(SchemaError, match="a and b "):
        train("moments", fed, **SMALL)
    assert not any(map(charged, fed.holders.values()))


def begin(config: dict[str, Any], schemas: dict[str, Any]) -> Begin:
    return Begin(family="moments", config=config, schemas=schemas)


def agreed(begun: Any, name: str) -> Agree:
    """One holder alone, at the noise that it needs."""
    return Agree(
        keys={name: begun.key.value},
        noise=begun.needed.value,
        bits=64,
        chunk=1,
        seeds={},
        cells=[],
    )


def due(stage: str) -> Release:
    return Release(stage=stage, inbox={}, corrections={})


BIG = torch.iinfo(torch.int64).min
CROOKED = [
    *OTHER_BEGINNINGS,
    (
        changed(Begin, config=lambda a: a.config | {"shares": (0.9, 0.05, 0.05)}),
        MessageError,
        "was agreed to",
    ),
    (changed(Agree, noise=[0.0, 0.0, 0.0]), PrivacyError, "its budget needs"),
    (changed(Agree, noise=[9.0]), MessageError, "scales of noise were due"),
    (changed(Agree, noise=[float("nan")] * 3), ConfigError, "must be 0 or above"),
    (changed(Agree, noise=[1e9] * 3), ConfigError, "more than can be drawn"),
    (proposed("means", norm=float("nan")), ConfigError, "norm must lie between"),
    (proposed("means", norm=2.0), ConfigError, "norm must lie between"),
    (proposed("means", norm=-1e-300), ConfigError, "norm must lie between"),
    (proposed("means", norm=None), ConfigError, "norm must lie between"),
    (
        proposed("pooled", means=torch.zeros(2, 3, dtype=torch.int64)),
        MessageError,
        "means are whole numbers",
    ),
    (
        proposed("pooled", means=torch.zeros(2, 20)),
        MessageError,
        "means are whole numbers",
    ),
    (
        proposed("pooled", means=torch.full((2, 20), BIG)),
        MessageError,
        "means are whole numbers",
    ),
    (proposed("pooled", radius=0), ConfigError, "radius"),
    (proposed("pooled", radius=1.5), ConfigError, "radius"),
    (proposed("pooled", features=21), ConfigError, "features"),
    (
        proposed("cells", basis=torch.zeros(20, 0, dtype=torch.int64)),
        MessageError,
        "not directions",
    ),
    (
        proposed("cells", basis=torch.full((20, 2), 1 << 40)),
        MessageError,
        "directions are whole numbers",
    ),
    (proposed("cells", bits=9), ConfigError, "bits"),
]


@pytest.mark.parametrize(("change", "raised", "words"), CROOKED)
def test_a_server_that_asks_for_something_else_is_refused_and_nothing_more_is_charged(
    change: Any, raised: type[Exception], words: str
) -> None:
    bought = change.stage == "means"
    fed = silos(2, 40, Budget(3.0, 1e-5))
    config = moments.Config(**SMALL, norms=0.1 * bought)
    parties = Crooked(fed.parties("moments", run="r", config=config), change)
    with pytest.raises(raised, match=words):
        moments.train(config, parties, fed.schemas)
    due = {"": 0, "means": 1, "pooled": 1, "cells": 2}[change.stage]
    assert [len(charged(holder)) for holder in fed.holders.values()] == [due, due], (
        "no refused release is charged"
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"features": "12"},
        {"features": 10**9},
        {"private": None},
        {"shares": 3},
        {"max_colluding": 0.5},
        {"norms": 1e-9},
        {"norms": "all"},
        {"norms": False},
        {"upright": 1},
    ],
)
def test_settings_of_a_wrong_kind_are_refused_by_a_party_that_knows_none(
    bad: dict[str, Any],
) -> None:
    fed = silos(1, 20, Budget(3.0, 1e-5))
    party = fed.parties("moments", run="r")["silo 0"]  # built without settings
    config = asdict(moments.Config(**SMALL)) | bad
    with pytest.raises(ConfigError):
        party.answer(begin(config, schemas={"silo 0": SCHEMA.to_dict()}))
    assert not charged(fed.holders["silo 0"])


def test_extreme_choices_of_a_server_move_nobody_farther() -> None:
    """Means at the end of their range, a radius of one step, a norm of nothing: still
    answered, and no longer than the scale.
    """
    fed = silos(1, 30, Budget(3.0, 1e-5))
    config = moments.Config(**SMALL, norms=0.1)
    far = proposed("pooled", means=torch.full((2, 20), (1 << 18) - 1), radius=1)
    short = proposed("means", norm=5e-324)
    parties = Crooked(
        fed.parties("moments", run="r", config=config),
        lambda name, ask: far(name, short(name, ask)),
    )
    outcome = moments.train(config, parties, fed.schemas)
    assert Generator.from_parts(outcome.trained).images(2, seed=0).shape == (2, 6, 5)


def test_a_release_is_made_once_and_in_turn() -> None:
    fed = silos(1, 30, Budget(3.0, 1e-5))
    config = moments.Config(**SMALL)
    party = fed.parties("moments", run="r", config=config)["silo 0"]
    for early in (due("means"), due("norms")):
        with pytest.raises(MessageError, match="not expected"):
            party.answer(early)
    begun: Any = party.answer(
        begin(asdict(config), schemas={"silo 0": SCHEMA.to_dict()})
    )
    agree = agreed(begun, "silo 0")
    party.answer(agree)
    with pytest.raises(MessageError, match="not expected"):
        party.answer(due("norms"))  # which nobody agreed to pay for
    with pytest.raises(MessageError, match="no terms were due, not norm"):
        party.answer(Propose(stage="means", terms={"norm": 0.5}, inbox={}))
    party.answer(due("means"))
    for again in (due("means"), agree):
        with pytest.raises(MessageError, match="not expected"):
            party.answer(again)
    assert len(charged(fed.holders["silo 0"])) == 1


def test_the_noise_is_what_the_price_says() -> None:
    """Two rehearsals with other seeds differ by noise alone, of the stated
    deviation.
    """
    config = moments.Config(**SMALL)
    stage = First(Frame.from_schema(SCHEMA, 20), 2)
    sums = []
    for seed in (1, 2):
        pixels, labels = signs(40)
        held = {"a": Images.from_array(pixels, SCHEMA, labels=labels)}
        fed = Federation.rehearsal(
            held, {}, budget=Budget(2.0, 1e-5), seed=seed, same_people=False
        )
        party = fed.parties("moments", run="r", config=config)["a"]
        begun: Any = party.answer(
            begin(asdict(config), schemas={"a": SCHEMA.to_dict()})
        )
        party.answer(agreed(begun, "a"))
        answer: Any = party.answer(due("means"))
        sums.append(answer.parts.value["sums"].double())
    found = float((sums[0] - sums[1]).std()) / 2**0.5
    assert found == pytest.approx(begun.needed.value[0] * stage.sensitivity, rel=0.35)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("means", "only norms were released"),
        ("pooled", "only counts and means"),
        ("cells", "3 of 4 releases"),
    ],
)
def test_who_goes_away_between_releases_leaves_what_was_released(
    at: str, words: str
) -> None:
    fed = silos(3, 60)
    config = moments.Config(**SMALL, min_holders=2, norms=0.1)
    parties = Leaving(fed.parties("moments", run="r", config=config), "silo 1", at)
    if words.startswith("only"):
        with pytest.raises(ConfigError, match=words):
            moments.train(config, parties, fed.schemas)
        return
    outcome = moments.train(config, parties, fed.schemas)
    assert words in outcome.trained.card["ended"]
    assert "silo 1 went away" in str(outcome.privacy)
    assert Generator.from_parts(outcome.trained).images(3, seed=0).shape == (3, 6, 5)


def test_who_goes_away_before_the_first_release_is_left_out() -> None:
    fed = silos(3, 60)
    config = moments.Config(**SMALL, min_holders=2)
    inside = fed.parties("moments", run="r", config=config)
    parties = Leaving(inside, "silo 1", Agree.kind())
    outcome = moments.train(config, parties, fed.schemas)
    assert outcome.trained.card["left_out"] == ["silo 1"]


def test_a_person_at_two_holders_is_priced_as_such() -> None:
    pixels, labels = signs(40)
    held = {
        name: Images.from_array(pixels, SCHEMA, labels=labels) for name in ("a", "b")
    }
    budget = Budget(2.0, 1e-5)
    fed = Federation.rehearsal(
        held,
        {},
        budget=budget,
        seed=1,
        same_people=False,
        people_are_elsewhere=("a", "b"),
    )
    with pytest.raises(ConfigError, match="set max_holders_per_person"):
        train("moments", fed, **SMALL)
    found = train("moments", fed, **SMALL, max_holders_per_person=2)
    assert found.privacy.epsilon("a", "server") <= 2.0


@pytest.mark.parametrize(
    "bad",
    [
        {"features": 0},
        {"features": 5000},
        {"shares": (0.5, 0.5)},
        {"shares": (0.0, 0.5, 0.5)},
        {"shares": (0.5, 0.5, 1e-9)},
        {"bits": 9},
        {"bits": -1},
        {"min_holders": 0},
        {"max_holders_per_person": 0},
        {"max_colluding": 0},
        {"private": 1},
        {"norms": 0.005},
        {"norms": 0.9},
        {"norms": float("nan")},
        {"upright": 1},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        moments.Config(**bad)


@pytest.mark.parametrize("several", [False, True])
def test_a_long_folder_of_files_is_released_as_the_rows_that_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    (pixels, labels), schema = (
        signs(150),
        replace(SCHEMA, person="writer") if several else SCHEMA,
    )
    who = np.arange(150) // 3
    for number, some in enumerate(np.split(np.arange(150), [3, 24, 90])):
        beside = {"writer": who[some]} if several else {}
        np.savez(
            tmp_path / f"{number}.npz",
            images=pixels[some],
            sign=labels[some].astype(str),
            **beside,
        )
    made = []
    for long in (0, 10**9):
        monkeypatch.setattr(files, "LONG", long)
        federation = Federation.rehearsal(
            {"one": tmp_path}, {"one": schema}, budget=AMPLE, seed=7
        )
        held = federation.holders["one"].table
        assert held.long == (not long)
        assert (held.rows, len(held.ids)) == (150, 50 if several else 150)
        with monkeypatch.context() as context:
            if not long:
                context.delattr(ArrayFolder, "values")
            made.append(
                train("moments", federation, run="r", norms=0.1, **SMALL).generator
            )
    assert made[0].card == made[1].card
    one, other = (generator.network.state_dict() for generator in made)
    assert all(torch.equal(one[key], other[key]) for key in one)
    whole = Images.from_array(pixels, schema, who if several else None, labels=labels)
    assert np.array_equal(held.values, whole.values)
    monkeypatch.setattr(files, "LONG", 0)
    opened = schema.read(tmp_path)
    np.savez(
        tmp_path / "3.npz",
        images=pixels[:60],
        sign=labels[:60].astype(str),
        writer=who[:60],
    )
    if several:
        with pytest.raises(SchemaError, match="20 people have rows in two files"):
            schema.read(tmp_path)
    (tmp_path / "3.npz").write_bytes(b"other")
    with pytest.raises(PartyError, match="is not as it was when the folder was opened"):
        list(opened.parts())
    (tmp_path / "a.txt").touch()
    with pytest.raises(SchemaError, match="files, and no others"):
        schema.read(tmp_path)
