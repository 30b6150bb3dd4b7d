"""The data sets of the SGDE paper, cut into silos, and the classifiers that are learned
on them.

Schemas stand in `schemas/`: levels, bounds and bins are declared there, by the data
sets' documentation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from torch.nn import functional

from common.loaders import IMAGES, images
from common.sources import need
from understudy.data.encoding.features import TableFeatures
from understudy.data.encoding.population import Population
from understudy.data.schema import Schema
from understudy.models.cohort.classifier import LeNet
from understudy.models.cohort.classifier import LogisticRegression as Linear
from understudy.models.cohort.training import ClassifierTraining
from understudy.models.network import pick_device
from understudy.privacy.noise.rng import FastRng

HERE = Path(__file__).parent
TARGETS = {
    "titanic": "survived",
    "breast_cancer_diagnostic": "target",
    "breast_cancer_wisconsin": "class",
    "mushroom": "class",
    "adult": "income",
    "wine_quality": "color",
}
ADULT_TRAIN = 32_561

Rows = tuple[NDArray[Any], NDArray[np.int64]]  # features, classes
# features → odds (rows, classes)
Predict = Callable[[NDArray[Any]], NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class Task:
    """What silos hold (for a federation), the same as features, and the test rows."""

    name: str
    classes: int
    held: dict[str, Any]
    schemas: dict[str, Schema]
    silos: list[Rows]
    test: Rows
    target: str | None

    @property
    def image(self) -> bool:
        return self.name in IMAGES

    def features(self, frame: pd.DataFrame) -> Rows:
        """A table drawn from a generator, as features."""
        assert self.target is not None
        return _features(
            TableFeatures(next(iter(self.schemas.values())), self.target), frame
        )


def load(name: str, folder: Path, *, silos: int = 20, seed: int = 0) -> Task:
    """Silos of equal shares of the training rows, disjoint and at random."""
    if name in IMAGES:
        return _images(name, folder, silos, seed)
    schema = Schema.load(HERE / "schemas" / f"{name}.toml")
    frame = _table(name, folder)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    cut = round(0.9 * len(frame))
    train = order[:cut]
    test = order[cut:]
    if name == "adult":  # its own split is kept, as in the paper (§IV)
        train = rng.permutation(ADULT_TRAIN)
        test = np.arange(ADULT_TRAIN, len(frame))
    return of_frames(
        name,
        schema,
        TARGETS[name],
        [frame.iloc[part] for part in np.array_split(train, silos)],
        frame.iloc[test],
    )


def of_frames(
    name: str,
    schema: Schema,
    target: str,
    frames: Sequence[pd.DataFrame],
    test: pd.DataFrame,
) -> Task:
    """A task of these tables."""
    rule = TableFeatures(schema, target)
    held = {
        f"silo {number:02}": frame.reset_index(drop=True)
        for number, frame in enumerate(frames)
    }
    own = [_features(rule, frame) for frame in held.values()]
    return Task(
        name,
        len(rule.labels),
        held,
        dict.fromkeys(held, schema),
        own,
        _features(rule, test),
        target,
    )


def _features(rule: TableFeatures, frame: pd.DataFrame) -> Rows:
    frame = frame.reset_index(drop=True)
    return rule.expand(rule.rows(frame)).numpy(), rule.codes(frame).numpy()


def _table(name: str, folder: Path) -> pd.DataFrame:
    if name == "breast_cancer_diagnostic":  # the paper's; it comes with scikit-learn
        return load_breast_cancer(as_frame=True).frame
    (path,) = need(folder, f"{name}.csv.gz")
    frame = pd.read_csv(path, keep_default_na=name != "adult")
    if name == "breast_cancer_wisconsin":
        frame["bare_nuclei"] = pd.to_numeric(frame["bare_nuclei"], errors="coerce")
    return frame


def _images(name: str, folder: Path, silos: int, seed: int) -> Task:
    (x, y), (test_x, test_y) = images(name, folder)
    order = np.random.default_rng(seed).permutation(len(y))
    parts = np.array_split(order, silos)
    held = {
        f"silo {number:02}": Population.from_arrays(x[part], y[part], classes=10)
        for number, part in enumerate(parts)
    }
    own = [(_scaled(x[part]), y[part]) for part in parts]
    return Task(name, 10, held, {}, own, (_scaled(test_x), test_y), None)


def _scaled(images: NDArray[Any]) -> NDArray[np.float32]:
    return images.astype(np.float32) / 255


def learn(task: Task, rows: Rows, *, seed: int, device: str) -> Predict:
    """Logistic regression on tables; on images LeNet, which stands in for the paper's
    VGG16.
    """
    x, y = rows
    if task.image:
        return _lenet(x, y, seed, pick_device(device))
    if len(set(y.tolist())) == 1:  # a small silo may know one class alone
        odds = np.eye(task.classes)[int(y[0])]
        return lambda rows: np.tile(odds, (len(rows), 1))
    model = LogisticRegression(max_iter=1000).fit(x, y)

    def predict(rows: NDArray[Any]) -> NDArray[np.floating[Any]]:
        out = np.zeros((len(rows), task.classes))
        out[:, model.classes_] = model.predict_proba(rows)
        return out

    return predict


def _lenet(
    x: NDArray[Any], y: NDArray[Any], seed: int, device: torch.device, steps: int = 600
) -> Predict:
    """Adam at 0.001 in batches of 64, as the paper trains its classifier (§IV-D)."""
    network = LeNet(10)
    weights = network.init(FastRng(seed)).to(device).requires_grad_()
    images = torch.from_numpy(x).to(device)
    labels = torch.from_numpy(y).to(device)
    optimizer = torch.optim.Adam([weights], lr=0.001)
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randint(len(y), (min(64, len(y)),), generator=order).to(device)
        loss = functional.cross_entropy(
            network.forward(weights, images[batch]), labels[batch]
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return _predict(network, weights.detach())


def _predict(network: Any, weights: torch.Tensor) -> Predict:
    def predict(rows: NDArray[Any]) -> NDArray[np.floating[Any]]:
        with torch.no_grad():
            parts = torch.split(
                torch.from_numpy(np.ascontiguousarray(rows, np.float32)), 2000
            )
            return torch.cat(
                [
                    network.forward(weights, part.to(weights.device)).softmax(1).cpu()
                    for part in parts
                ]
            ).numpy()

    return predict


def federated(
    task: Task, silos: Sequence[Rows], *, rounds: int, seed: int, device: str
) -> Predict:
    """FedAvg over all silos, five full-batch epochs a round: one model, no privacy."""
    place = pick_device(device)
    network = LeNet(10) if task.image else Linear(silos[0][0].shape[1], task.classes)
    weights = network.init(FastRng(seed)).to(place)
    most = max(len(y) for _, y in silos)
    x = torch.zeros(len(silos), most, *silos[0][0].shape[1:])
    y = torch.zeros(len(silos), most, dtype=torch.int64)
    mask = torch.zeros(len(silos), most, dtype=torch.bool)
    for place_of, (rows, codes) in enumerate(silos):
        x[place_of, : len(codes)], y[place_of, : len(codes)] = (
            torch.from_numpy(rows),
            torch.from_numpy(codes),
        )
        mask[place_of, : len(codes)] = True
    share = (mask.sum(1) / mask.sum()).to(place)
    how: dict[str, Any] = (
        {"lr": 0.002, "optimizer": "adam"}
        if task.image
        else {"lr": 0.5, "optimizer": "sgd"}
    )
    training = ClassifierTraining(network, epochs=5, device=place, **how)
    for _ in range(rounds):
        weights = weights + share @ training(weights, x, y, mask)
    return _predict(network, weights)


def scores(odds: NDArray[np.floating[Any]], y: NDArray[np.int64]) -> dict[str, float]:
    """Accuracy, F1 (of the second class, or the mean over classes) and AUC (one against
    the rest), in per cent.
    """
    classes = odds.shape[1]
    known = len(set(y.tolist())) == classes
    taken = odds.argmax(1)
    average = "binary" if classes == 2 else "macro"
    f1 = f1_score(y, taken, average=average, zero_division=0)
    auc = np.nan
    if known:
        auc = roc_auc_score(y, odds[:, 1] if classes == 2 else odds, multi_class="ovr")
    return {
        "accuracy": 100 * accuracy_score(y, taken),
        "f1": 100 * float(f1),
        "auc": 100 * float(auc),
    }
