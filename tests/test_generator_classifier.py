"""A classifier made of a generator: it predicts real rows, reads no others, and says
that it cost nothing.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.data.arrays import ArrayTable
from understudy.data.images import Images, ImageSchema
from understudy.data.samples import toy
from understudy.data.series import SeriesSchema
from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, ConfigError, SchemaError
from understudy.runs.result import predict_rows

pytestmark = pytest.mark.usefixtures("short_fits")

IMAGES = ImageSchema(
    height=6, width=6, low=0, high=100, label="side", classes=("left", "right")
)


def halves(count: int, seed: int) -> tuple[Any, Any]:
    """Images that are bright on one side."""
    rng = np.random.default_rng(seed)
    sides = rng.integers(0, 2, count)
    images = rng.uniform(0, 60, (count, 6, 6))
    images[..., :3] += 40 * (sides == 0)[:, None, None]
    images[..., 3:] += 40 * (sides == 1)[:, None, None]
    return images, np.array(["left", "right"], dtype=object)[sides]


@pytest.fixture(scope="module")
def of_images() -> us.Result:
    images, sides = halves(2_000, 0)
    federation = us.Federation.rehearsal(
        {"one": Images.from_array(images, IMAGES, labels=sides)},
        budget=us.Budget(4, 1e-5),
        same_people=False,
    )
    return us.train("moments", federation, features=20)


@pytest.fixture(scope="module")
def of_tables() -> us.Result:
    frame, schema = toy(rows=2_000)
    federation = us.Federation.rehearsal(
        {"one": frame},
        {"one": schema},
        budget=us.Budget(8, 1e-5),
        same_people=False,
        seed=0,
    )
    return us.train(
        "gram", federation, fine=0.0, target="smoker", components=64, steps=100
    )


def test_images_are_told_apart_in_the_units_of_their_schema(
    of_images: us.Result,
) -> None:
    images, sides = halves(500, 1)
    model = of_images.generator.classifier("side")
    assert model.score(images, sides) > 0.95
    assert model.classes_.tolist() == ["left", "right"]
    assert (
        of_images.generator.classifier().predict(images) == model.predict(images)
    ).all()
    with pytest.raises(SchemaError, match="101"):
        model.predict(np.full((1, 6, 6), 101.0))
    with pytest.raises(SchemaError, match="shape"):
        model.predict(images[:, :5])
    with pytest.raises(SchemaError, match="nan"):
        model.predict(np.full((1, 6, 6), np.nan))


def test_a_row_of_a_table_is_predicted_better_than_by_the_commonest_class(
    of_tables: us.Result,
) -> None:
    real = toy(rows=1_000, seed=9)[0]
    model = of_tables.generator.classifier("smoker", rows=2_000)
    assert (
        model.score(real, real["smoker"])
        > max(real["smoker"].mean(), 1 - real["smoker"].mean()) + 0.1
    )
    again = of_tables.generator.classifier(rows=2_000)  # the run's target
    assert (again.predict_proba(real) == model.predict_proba(real)).all()


def test_a_target_that_may_be_missing_is_predicted_as_one_that_is_there(
    of_tables: us.Result,
) -> None:
    model = of_tables.generator.classifier("colour", rows=300)
    assert model.classes_.tolist() == ["red", "green", "blue"]
    real = toy(rows=50, seed=9)[0]
    assert real["colour"].isna().any()
    assert set(model.predict(real)) <= {"red", "green", "blue"}


def test_it_costs_nothing_and_its_card_says_so(
    of_images: us.Result, of_tables: us.Result
) -> None:
    for result, target in ((of_images, "side"), (of_tables, "grade")):
        before = result.privacy.to_dict()
        card = result.generator.classifier(
            target, **{} if target == "side" else {"rows": 200}
        ).card
        assert result.privacy.to_dict() == before
        assert card["classifier"]["price"].startswith("none beyond the generator's")
        assert card["config"]["target"] == target
        assert card["protocol"] == result.generator.card["protocol"]


def test_it_comes_back_from_its_folder_and_predicts_files(
    of_images: us.Result, tmp_path: Path
) -> None:
    images, sides = halves(50, 2)
    model = of_images.generator.classifier()
    again = Classifier.load(model.save(tmp_path / "model"))
    assert (again.predict_proba(images) == model.predict_proba(images)).all()
    np.savez(tmp_path / "new.npz", images=images, side=sides.astype(str))
    said = predict_rows(tmp_path / "model", tmp_path / "new.npz")
    assert said["side"].tolist() == model.predict(images).tolist()
    odds = predict_rows(tmp_path / "model", tmp_path / "new.npz", probabilities=True)
    assert list(odds) == ["left", "right"]


def test_what_cannot_be_predicted_is_refused(
    of_images: us.Result, of_tables: us.Result
) -> None:
    with pytest.raises(ConfigError, match="no column"):
        of_images.generator.classifier("colour")
    with pytest.raises(ConfigError, match="smoker"):
        of_tables.generator.classifier("smokes")
    with pytest.raises(ConfigError, match="categorical"):
        of_tables.generator.classifier("age")
    with pytest.raises(ConfigError, match="rows"):
        of_tables.generator.classifier("grade", rows=0)
    plain = ImageSchema(height=6, width=6, low=0, high=100)
    with pytest.raises(ConfigError, match="which column"):
        Generator(of_images.generator.network, plain, {}).classifier()
    with pytest.raises(ArtefactError, match="with a class"):
        Generator(of_images.generator.network, plain, {}).classifier("side")


def test_a_series_is_predicted_alike() -> None:
    channel = us.Real(name="level", low=-1, high=1)
    schema = SeriesSchema(
        channels=(channel,), length=8, series="id", label="way", classes=("up", "down")
    )
    rng = np.random.default_rng(0)
    ways = rng.integers(0, 2, 1_500)
    line = np.linspace(-0.7, 0.7, 8)
    values = np.where(ways[:, None] == 0, line, -line) + rng.uniform(
        -0.3, 0.3, (1_500, 8)
    )
    labels = np.array(["up", "down"], dtype=object)[ways]
    held = ArrayTable.from_array(values[:1_000, :, None], schema, labels=labels[:1_000])
    federation = us.Federation.rehearsal(
        {"one": held}, budget=us.Budget(4, 1e-5), same_people=False
    )
    model = us.train("moments", federation).generator.classifier()
    assert model.score(values[1_000:, :, None], labels[1_000:]) > 0.95
