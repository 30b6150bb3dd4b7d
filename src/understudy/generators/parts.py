"""What generators and classifiers are made of: a network, the rule of its rows, the
card.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from understudy.answers.release import TableRelease
    from understudy.data.encoding.codec import Levels
    from understudy.data.encoding.features import Features
    from understudy.data.encoding.population import Population
    from understudy.data.kinds import MixedSchema, PublicSchema
    from understudy.data.visits import SeveralVisits
    from understudy.models.cohort.classifier import Classifier as ClassifierNetwork
    from understudy.models.network import Network

CHUNK = 4096  # rows at a time, so that memory does not grow with their number
# and of what a network makes of them: a fit of several labels may have thousands of
# Gaussians
MOST_FLOATS = 1 << 27


@dataclass(frozen=True)
class GeneratorParts:
    network: "Network"
    schema: "PublicSchema | MixedSchema | SeveralVisits"
    card: Mapping[str, Any]
    # of a table, where they are not as its schema declares them
    levels: "Levels | None" = None
    # the noisy tables that were released, as they came
    release: "TableRelease | None" = None


@dataclass(frozen=True, eq=False)
class ClassifierParts:
    network: "ClassifierNetwork"
    weights: Tensor = field(repr=False)
    features: "Features" = field(repr=False)
    card: Mapping[str, Any] = field(repr=False)

    def scores(self, rows: Tensor) -> Tensor:
        """What the network says of encoded rows: (rows, classes)."""
        some = max(1, min(CHUNK, MOST_FLOATS // max(1, self.network.row_floats)))
        with torch.no_grad():
            inputs = map(self.features.expand, torch.split(rows, some))
            return torch.cat([self.network.forward(self.weights, x) for x in inputs])

    def accuracy(self, population: "Population") -> float:
        return self.tested(population)[0]

    def tested(self, population: "Population") -> tuple[float, float]:
        """The share of rows whose class is said right, and their mean cross-entropy."""
        scores = self.scores(population.rows)
        right = (scores.argmax(1) == population.codes).double().mean()
        loss = functional.cross_entropy(scores.double(), population.codes)
        return float(right), float(loss)
