"""Moments with several labels: one price, whatever a person has, and each label is
learned with the image.
"""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from odd_servers import Crooked, charged
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from understudy.api.train import train
from understudy.data.encoding.frame import Frame
from understudy.data.images import Images, ImageSchema
from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    MessageError,
    SchemaError,
)
from understudy.models.moments.fit import centres
from understudy.models.moments.released import COUNT, Labels
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.moments import Crowd, needed_multipliers
from understudy.protocols.joint.messages import Propose
from understudy.protocols.moments import protocol as moments
from understudy.protocols.moments.stages import (
    ArrayRows,
    First,
    Levels,
    Within,
    first_of,
)
from understudy.runs.federation import Federation

TINY = ImageSchema(
    height=2, width=1, high=1, labels={"side": ("left", "right"), "size": (1, 2, 3)}
)
MANY = replace(TINY, labels={"side": ("left", "right"), "size": tuple(range(40))})


def rows_of(schema: ImageSchema, values: Any, codes: Any, starts: Any) -> ArrayRows:
    frame = Frame.declared(schema, 2)
    values = np.asarray(values, dtype=np.float32)
    return ArrayRows(
        frame.coefficients(values),
        frame.histograms(values, 32),
        np.asarray(codes, np.int64),
        Crowd.from_starts(np.asarray(starts)),
    )


@pytest.mark.parametrize("schema", [TINY, MANY], ids=["combinations", "levels"])
def test_no_person_moves_the_first_release_by_more_than_its_reach_and_one_moves_it_by_just_that(
    schema: ImageSchema,
) -> None:
    """Every image of black, grey and white, with every combination; and every two of
    them as one person's.
    """
    frame = Frame.declared(schema, 2)
    labels = Labels(schema.label_sizes or (1,))
    stage = first_of(frame, labels)
    assert isinstance(stage, First if schema is TINY else Levels)
    grey = np.full((1, 2, 1), 0.5, np.float32)
    even = frame.histograms(grey, 32)  # of the largest norm
    rows = [
        np.array(one)
        for one in product((0.0, 0.6 * frame.reach, -1e9, np.nan), repeat=2)
    ]
    rows += [np.array([frame.reach, 0.0]), np.array([np.inf, 1.0])]
    places = range(0, labels.combinations, 1 if schema is TINY else 13)

    def moved(*some: tuple[Any, int]) -> float:
        """By one person, who has all of these rows."""
        found = ArrayRows(
            np.stack([row for row, _ in some]),
            np.repeat(even, len(some), 0),
            np.array([place for _, place in some]),
            Crowd.from_starts(np.array([0, len(some)])),
        )
        return float(stage.sums(found).double().norm())

    single = [(row, place) for row in rows for place in places]
    alone = [moved(one) for one in single]
    assert max(alone) <= stage.sensitivity
    assert max(alone) == pytest.approx(stage.sensitivity, rel=1e-9), (
        "who is at the bound moves it by all of that"
    )
    pairs = np.random.default_rng(0).integers(0, len(single), (60, 2))
    assert max(moved(single[a], single[b]) for a, b in pairs) <= stage.sensitivity


def test_who_has_the_same_level_of_the_first_label_shares_second_moments() -> None:
    basis = torch.eye(2, dtype=torch.int64) * 4096
    one = Within(
        torch.zeros(6, 2, dtype=torch.int64), basis, 1000, 1, 64, classes_per_group=3
    )
    values = np.full((6, 2, 1), 0.75, np.float32)
    for code in range(6):
        sums = one.sums(rows_of(TINY, values[:1], [code], [0, 1]))
        people = sums[: one.cells * 3].view(one.cells, 3)[:, 0]
        assert len(people) == 4
        assert int(people.argmax()) // 2 == code // 3
        weights = torch.where(one.diagonal, 0.5, 1.0)
        assert float((sums.double().square() * weights).sum().sqrt()) <= one.sensitivity


@pytest.mark.parametrize(
    "sizes", [(3, 2, 2), (5, 4, 5)], ids=["combinations", "levels"]
)
def test_under_little_noise_people_and_means_are_those_of_the_rows(
    sizes: tuple[int, ...],
) -> None:
    """Of levels, means are the sum of what each level adds; of combinations they are
    whatever they are.
    """
    labels = Labels(sizes)
    rng = np.random.default_rng(0)
    schema = ImageSchema(
        height=2,
        width=1,
        high=1,
        labels={str(n): tuple(range(k)) for n, k in enumerate(sizes)},
    )
    level = [rng.integers(0, k, 4000) for k in sizes]
    places = np.ravel_multi_index(level, sizes)
    apart = (
        0.1 * np.stack([one % 2 for one in level]).sum(0)
        if not labels.joint
        else 0.5 * rng.random(12)[places]
    )
    values = np.stack([0.5 + apart, 1 - apart], 1)[:, :, None]
    frame = Frame.declared(schema, 2)
    stage = first_of(frame, labels)
    total = stage.sums(rows_of(schema, values, places, np.arange(4001)))
    found = centres(stage.read_sums(total, 300.0), frame, labels)
    rows = frame.coefficients(values.astype(np.float32))
    people = np.bincount(places, minlength=labels.combinations)
    own = np.stack(
        [rows[places == place].mean(0) for place in range(labels.combinations)]
    )
    assert np.abs(found.means.numpy() - own).max() < 0.02 * frame.reach
    assert (
        np.abs(found.people.numpy() - people).sum()
        < (0.01 if labels.joint else 0.25) * 4000
    )


DIGITS = ImageSchema(
    height=8,
    width=8,
    high=16,
    labels={
        "digit": tuple(range(10)),
        "parity": ("even", "odd"),
        "size": ("small", "large"),
    },
)


def digits() -> tuple[Any, pd.DataFrame]:
    """Handwritten digits, whether they are even, and whether above four."""
    pixels, which = load_digits(return_X_y=True)
    parity = np.array(DIGITS.targets[1].categories)
    size = np.array(DIGITS.targets[2].categories)
    named = {
        "digit": which,
        "parity": parity[which % 2],
        "size": size[(which > 4).astype(int)],
    }
    return pixels.reshape(-1, 8, 8), pd.DataFrame(named)


@pytest.fixture(scope="module")
def drawn() -> Generator:
    pixels, labels = digits()
    held = {
        f"silo {n}": Images.from_array(
            pixels[n:1200:2], DIGITS, labels=labels[n:1200:2]
        )
        for n in range(2)
    }
    fed = Federation.rehearsal(
        held, {}, budget=Budget(8.0, 1e-5), seed=5, same_people=False
    )
    result = train("moments", fed, features=40)
    assert result.privacy.epsilon("silo 0", "server") <= 8.0
    return result.generator


def test_each_label_is_learned_with_the_image(drawn: Generator) -> None:
    """Train on what is drawn, test on real digits: each label by a plain model, and by
    Bayes' rule on the fit.
    """
    pixels, labels = digits()
    pixels = pixels[1200:]
    labels = labels[1200:]
    images, made = drawn.labelled(3000, seed=1)
    assert list(made.columns) == list(labels.columns)
    for label in labels:
        plain = KNeighborsClassifier(5).fit(
            images.reshape(len(images), -1), made[label]
        )
        score = plain.score(pixels.reshape(len(pixels), -1), labels[label])
        ours = drawn.classifier(label).score(pixels, labels[label])
        assert score > 0.85
        assert ours > 0.85
    right = (made["parity"] == "odd") == (made["digit"] % 2 == 1)
    assert right.mean() > 0.95, "labels are drawn together"


def tiny(schema: ImageSchema, people: int = 12) -> Any:
    rng = np.random.default_rng(0)
    named = {
        one.name: [one.categories[n % one.levels] for n in range(people)]
        for one in schema.targets
    }
    return Images.from_array(rng.random((people, 2, 1)), schema, labels=named)


def test_holders_with_other_labels_and_what_learns_one_label_are_refused_and_nothing_is_charged():
    other = replace(TINY, labels={"side": ("left", "right"), "size": (1, 2, 4)})
    for protocol, held, words in [
        ("moments", {"a": TINY, "b": other}, "a and b describe their rows differently"),
        (
            "sgde",
            {"a": TINY},
            "a pool learns one column of classes, and the schema declares side "
            "and size",
        ),
        ("class-means", {"a": TINY}, "class-means learns one column"),
    ]:
        rows = {name: tiny(schema) for name, schema in held.items()}
        fed = Federation.rehearsal(
            rows, {}, budget=Budget(2.0, 1e-5), seed=1, same_people=False
        )
        settings = {"kind": "moments"} if protocol == "sgde" else {}
        with pytest.raises(SchemaError, match=words):
            train(protocol, fed, **settings)
        assert not any(
            entry.count
            for holder in fed.holders.values()
            for entry in holder.ledger.entries()
        )


@pytest.mark.parametrize("stage", ["pooled", "cells"])
def test_means_of_classes_and_not_of_combinations_are_refused_before_anything_more_is_charged(
    stage: str,
) -> None:
    fed = Federation.rehearsal(
        {"a": tiny(TINY)}, {}, budget=Budget(2.0, 1e-5), seed=1, same_people=False
    )
    config = moments.Config(features=2)

    def fewer(name: str, ask: Any) -> Any:
        if not isinstance(ask, Propose) or ask.stage != stage:
            return ask
        return replace(ask, terms=ask.terms | {"means": ask.terms["means"][:2]})

    with pytest.raises(MessageError, match="means are whole numbers"):
        moments.train(
            config,
            Crooked(fed.parties("moments", run="r", config=config), fewer),
            fed.schemas,
        )
    assert len(charged(fed.holders["a"])) == (1 if stage == "pooled" else 2)


def test_a_generator_and_its_classifiers_are_saved_and_loaded(
    drawn: Generator, tmp_path: Path
) -> None:
    again = Generator.load(drawn.save(tmp_path / "generator"))
    frame = again.sample(20, seed=4)
    assert list(frame.columns[:3]) == ["digit", "parity", "size"]
    assert frame.equals(drawn.sample(20, seed=4))
    pixels, labels = digits()
    model = Classifier.load(again.classifier("parity").save(tmp_path / "model"))
    assert set(model.predict(pixels[:40])) == {"even", "odd"}
    np.savez(
        tmp_path / "some.npz",
        images=pixels[:40],
        **{name: labels[name][:40].tolist() for name in labels},
    )
    codes = model.features.codes(tmp_path / "some.npz").tolist()
    assert codes == (labels["digit"][:40] % 2).tolist()
    with pytest.raises(ConfigError, match="the labels are digit, parity, size"):
        again.classifier("hand")
    replace(
        DIGITS,
        labels={"digit": tuple(range(10)), "hand": (1, 2)},
        label=None,
        classes=(),
    ).save(tmp_path / "generator" / "schema.toml")
    with pytest.raises(ArtefactError, match=r"40 classes.* 20"):
        Generator.load(tmp_path / "generator")


@pytest.mark.parametrize("schema", [TINY, MANY], ids=["combinations", "levels"])
def test_a_forecast_says_what_is_counted_and_the_noise_that_it_will_have(
    schema: ImageSchema,
) -> None:
    config = moments.Config(features=2)
    budget = Budget(1.0, 1e-5)
    told = moments.forecast(config, {"a": schema}, {"a": budget})
    counted = (
        "6 combinations of classes"
        if schema is TINY
        else "the table of every two labels"
    )
    assert any(counted in fact for fact in told.facts)
    (error,) = told.errors
    reach = first_of(
        Frame.declared(schema, 2), Labels(schema.label_sizes or (1,))
    ).sensitivity
    assert error.least == pytest.approx(
        needed_multipliers(budget, config.shares)[0] * reach / COUNT, rel=1e-3
    )


@pytest.mark.parametrize("schema", [TINY, MANY], ids=["combinations", "levels"])
def test_one_person_without_noise_is_drawn_and_no_error(schema: ImageSchema) -> None:
    held = {"a": tiny(schema, 1)}
    nothing = Budget(math.inf, 1e-5)
    fed = Federation.rehearsal(held, {}, budget=nothing, seed=1, same_people=False)
    pixels, labels = train(
        "moments", fed, features=2, private=False
    ).generator.labelled(50, seed=0)
    assert np.isfinite(pixels).all()
    assert set(labels["side"]) == {"left"}
