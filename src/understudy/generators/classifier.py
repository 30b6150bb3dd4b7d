"""A trained classifier, the public rule that it reads rows by, and the card that says
what it cost.

It answers as scikit-learn's classifiers do. On disk it is a folder:
`weights.safetensors`, `card.json` and, where a schema says how rows are read,
`schema.toml`. The network is rebuilt from a description in the card, by name; nothing
is unpickled or executed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from understudy.data.encoding.features import (
    ArrayFeatures,
    DeclaredFeatures,
    Features,
    TableFeatures,
    features_of,
)
from understudy.data.kinds import load_schema, one_kind_of_row
from understudy.generators.parts import ClassifierParts
from understudy.ground.durable import read_json
from understudy.ground.errors import ArtefactError
from understudy.ground.pack import read_header
from understudy.models.cohort.classifier import NETWORKS
from understudy.models.network import built
from understudy.privacy.accounts.budget import first_said

_DAMAGED = (
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    OverflowError,
    OSError,
    SafetensorError,
)


@dataclass(frozen=True, eq=False)
class Classifier(ClassifierParts):
    """Says the class of a row. Asking is post-processing: it costs nothing more. Rows
    are a DataFrame, a table's path or a `Table` where it was trained on tables (other
    columns are ignored), and an array (rows, …) where it was trained on arrays. Images
    and series that a schema declares may come as a file, too.
    """

    @classmethod
    def from_parts(cls, parts: ClassifierParts) -> "Classifier":
        return cls(parts.network, parts.weights, parts.features, parts.card)

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of `predict_proba`'s columns."""
        return np.array(self.features.labels)

    def predict_proba(self, rows: Any) -> NDArray[np.float32]:
        """The probability of each class: (rows, classes)."""
        return self.scores(self.features.rows(rows)).softmax(1).numpy()

    def predict(self, rows: Any) -> NDArray[Any]:
        """The likeliest class of each row: (rows,)."""
        return np.asarray(
            self.classes_[self.scores(self.features.rows(rows)).argmax(1).numpy()]
        )

    def score(self, rows: Any, labels: Any) -> float:
        """The share of rows whose class is said right."""
        return float(np.mean(self.predict(rows) == np.asarray(labels)))

    def save(self, folder: str | Path) -> Path:
        """Write the files. The card goes last: a folder without one is not a
        classifier.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        named = {
            name: value.contiguous()
            for name, value in self.network.views(self.weights).items()
        }
        save_file(
            named,
            folder / "weights.safetensors",
            metadata=first_said(self.card) or None,
        )
        if isinstance(self.features, TableFeatures | DeclaredFeatures):
            self.features.schema.save(folder / "schema.toml")
        described = {
            "network": self.network.describe(),
            "features": self.features.describe(),
        }
        card = {**first_said(self.card), **self.card, **described}
        (folder / "card.json").write_text(
            json.dumps(card, indent=2, ensure_ascii=False) + "\n"
        )
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Classifier":
        """The classifier in this folder. ArtefactError if it is missing or damaged."""
        folder = Path(folder)
        if (
            not (folder / "card.json").exists()
            and (folder / "model" / "card.json").exists()
        ):
            folder = folder / "model"
        for name in ("card.json", "weights.safetensors"):
            if not (folder / name).exists():
                raise ArtefactError(
                    f"{folder} does not hold a classifier: {name} is missing."
                )
        try:
            card = read_json(folder / "card.json")
            network = built(NETWORKS, card["network"])
            header = read_header(folder / "weights.safetensors").shapes
            if {name: shape for name, (_, shape) in header.items()} != network.shapes:
                raise ValueError(
                    "the weights are not those of the network on the card."
                )
            weights = network.flat(load_file(folder / "weights.safetensors"))
            features = _features(card["features"], folder / "schema.toml")
        except _DAMAGED as error:
            raise ArtefactError(
                f"{folder} holds a damaged classifier: {error}"
            ) from None
        return cls(network, weights, features, card)


def _features(described: Mapping[str, Any], file: Path) -> Features:
    if described["kind"] == "array":
        return ArrayFeatures(tuple(described["shape"]), tuple(described["classes"]))
    schema = one_kind_of_row(load_schema(file))
    return features_of(schema, described.get("target"))
