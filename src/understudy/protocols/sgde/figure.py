"""The two counts behind a figure of quality (`sums`), at the silo: their noise, and whom they count.

Guarantee: the classifier is made of what is offered alone, which was paid for; a person counts with one row, the first,
and moves each count by 1 at most. A row's class is said by itself, whoever else is there: in a batch, how a sum is
rounded may depend on how many rows it is made for.
Edges: a person without rows is nobody.
"""

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from understudy.data.described import Rows
from understudy.data.kinds import TABLE
from understudy.generators.kinds import drawing_of
from understudy.generators.parts import ClassifierParts, GeneratorParts
from understudy.ground.errors import ConfigError, PrivacyError
from understudy.models.moments.offered import OfferedMoments
from understudy.models.tables.offered import OfferedGram
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import needed_noise, noise
from understudy.protocols.sgde.kinds import pooled
from understudy.protocols.sgde.offer import Requirements
from understudy.protocols.sgde.pool import pool
from understudy.protocols.sgde.sums import MOVED

_DRAWN = 20_000  # rows, from which a classifier of a table learns


def figure_noise(epsilon: float, budget: Budget, requirements: Requirements) -> float:
    """The noise of a figure that costs this ε of the budget. PrivacyError above half of it; ConfigError: no classes."""
    if len(requirements.labels) < 2:
        raise ConfigError(
            "a figure of quality is how often classes are said right, and this pool has no two of them. "
            "Nothing was charged."
        )
    if not epsilon <= budget.epsilon / 2:
        raise PrivacyError(
            f"a figure of ε={epsilon:g} leaves too little for the offer: all together may cost "
            f"ε={budget.epsilon:g}, and the figure half of it. Nothing was charged."
        )
    return needed_noise(MOVED, Budget(epsilon, budget.delta))


def figure(
    offer: OfferedGram | OfferedMoments, data: Rows, requirements: Requirements, sigma: float, rng: Rng
) -> tuple[int, int]:
    """About how many people a classifier made of the offer is right, and how many there are. It has been paid for."""
    right, people = (judged(offer, data, requirements) + noise(Fraction(sigma), rng, MOVED)).tolist()
    return right, people


def judged(offer: OfferedGram | OfferedMoments, data: Rows, requirements: Requirements) -> Tensor:
    """The two counts without noise: (2,), int64."""
    one = GeneratorParts(offer, requirements.schema, {"silo": "", "label": None})  # type: ignore[arg-type]
    target = requirements.target if TABLE.holds(data) else None
    made = pool([one], requirements, {})
    kind = drawing_of(made.schema)
    network, weights, features, _ = kind.classifier(made, target or str(kind.label(made)), _DRAWN, 0)
    classifier = ClassifierParts(network, weights, features, {})
    if TABLE.holds(data):
        own = data.first_of_each().frame
        rows, codes = classifier.features.rows(own), classifier.features.codes(own)
    else:
        rows, codes = pooled(data.schema).first_rows(data, data.schema, requirements.target)
    right = int((_likeliest(classifier, rows) == codes).sum())
    return torch.tensor([right, len(rows)])


@torch.no_grad()
def _likeliest(classifier: ClassifierParts, rows: Tensor) -> Tensor:
    """The likeliest class of each row, by itself: (rows,)."""
    each: list[Any] = [
        classifier.network.forward(classifier.weights, classifier.features.expand(row[None])).argmax(1)
        for row in rows
    ]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *each])
