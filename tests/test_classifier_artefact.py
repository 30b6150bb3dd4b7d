"""A trained classifier: it answers as scikit-learn's do, and comes back from its folder
as it went in.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.encoding.features import ArrayFeatures, TableFeatures
from understudy.data.encoding.population import Population
from understudy.data.samples import toy
from understudy.generators import parts
from understudy.generators.classifier import Classifier
from understudy.ground.errors import ArtefactError, SchemaError
from understudy.models.cohort.classifier import LeNet, LogisticRegression
from understudy.privacy.noise.rng import FastRng


@pytest.fixture
def of_tables() -> Classifier:
    features = TableFeatures(toy()[1], "grade")
    network = LogisticRegression(*features.shape, len(features.labels))
    return Classifier(network, FastRng(1).normal(network.size), features, {"rounds": 3})


@pytest.fixture
def of_images() -> Classifier:
    network = LeNet(3)
    features = ArrayFeatures((28, 28), ("cat", "dog", "owl"))
    return Classifier(network, FastRng(2).normal(network.size) / 10, features, {})


def test_it_predicts_the_likeliest_class_in_the_schema_s_own_labels(
    of_tables: Classifier,
) -> None:
    frame = toy(rows=300, seed=5)[0]
    odds = of_tables.predict_proba(frame)
    assert odds.shape == (300, 4)
    assert odds.sum(1) == pytest.approx(np.ones(300), abs=1e-5)
    assert of_tables.classes_.tolist() == [1, 2, 3, 4]
    answers = of_tables.predict(frame)
    assert (answers == of_tables.classes_[odds.argmax(1)]).all()
    assert len(set(answers)) > 1
    assert of_tables.score(frame, answers) == 1.0
    assert of_tables.score(frame, frame["grade"]) == np.mean(
        answers == frame["grade"].to_numpy()
    )


def test_the_target_the_person_and_unknown_columns_are_not_needed(
    of_tables: Classifier,
) -> None:
    frame = toy(rows=20, seed=6)[0]
    bare = frame.drop(columns=["id", "grade"]).assign(shoe=41)
    assert (of_tables.predict(bare) == of_tables.predict(frame)).all()


def test_a_row_outside_the_schema_is_refused(of_tables: Classifier) -> None:
    with pytest.raises(SchemaError, match="age"):
        of_tables.predict(toy(rows=5)[0].assign(age=500))
    with pytest.raises(SchemaError, match="income"):
        of_tables.predict(toy(rows=5)[0].drop(columns="income"))


def test_many_rows_are_scored_in_pieces(
    of_images: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "CHUNK", 8)
    images = np.random.default_rng(0).integers(0, 255, (21, 28, 28), dtype=np.uint8)
    population = Population.from_arrays(
        images, np.zeros(len(images), dtype=int), classes=range(3)
    )
    answers = of_images.predict(images)
    assert (answers[-5:] == of_images.predict(images[-5:])).all()
    assert set(answers) <= {"cat", "dog", "owl"}
    assert of_images.accuracy(population) == pytest.approx(np.mean(answers == "cat"))


def test_it_comes_back_from_its_folder(
    of_tables: Classifier, of_images: Classifier, tmp_path: Path
) -> None:
    frame = toy(rows=30, seed=7)[0]
    again = Classifier.load(of_tables.save(tmp_path / "run" / "model").parent)
    assert torch.equal(again.weights, of_tables.weights)
    assert (again.predict_proba(frame) == of_tables.predict_proba(frame)).all()
    assert again.card["rounds"] == 3
    assert again.card["network"] == {
        "kind": "logistic_regression",
        "features": of_tables.network.features,
        "classes": 4,
    }  # type: ignore[attr-defined]
    images = np.random.default_rng(1).random((6, 28, 28), dtype=np.float32)
    folder = of_images.save(tmp_path / "images")
    assert sorted(file.name for file in folder.iterdir()) == [
        "card.json",
        "weights.safetensors",
    ]
    assert (
        Classifier.load(folder).predict(images).tolist()
        == of_images.predict(images).tolist()
    )


@pytest.mark.parametrize("gone", ["card.json", "weights.safetensors", "schema.toml"])
def test_a_missing_file_is_named(
    of_tables: Classifier, tmp_path: Path, gone: str
) -> None:
    (of_tables.save(tmp_path) / gone).unlink()
    with pytest.raises(ArtefactError, match=gone):
        Classifier.load(tmp_path)


def test_damage_is_seen(of_tables: Classifier, tmp_path: Path) -> None:
    weights = of_tables.save(tmp_path) / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-40])
    with pytest.raises(ArtefactError, match="damaged"):
        Classifier.load(tmp_path)
    weights.write_bytes(whole)
    card = json.loads((tmp_path / "card.json").read_text())
    for spoiled in (
        {"network": {"kind": "os.system"}},
        {"features": {"kind": "table"}},
        {"network": None},
    ):
        (tmp_path / "card.json").write_text(json.dumps(card | spoiled))
        with pytest.raises(ArtefactError, match="damaged"):
            Classifier.load(tmp_path)


def test_labels_may_be_booleans() -> None:
    frame, schema = toy(rows=40, seed=8)
    features = TableFeatures(schema, "smoker")
    network = LogisticRegression(*features.shape, 2)
    model = Classifier(network, network.init(FastRng(0)), features, {})
    answers = model.predict(frame)
    assert answers.dtype == bool
    assert model.score(frame, frame["smoker"]) == pytest.approx(
        float((pd.Series(answers) == frame["smoker"]).mean())
    )
