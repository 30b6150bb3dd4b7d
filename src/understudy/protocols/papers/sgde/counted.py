"""Offers that are sums of all classes (kinds "gram" and "moments"), and a figure of
their quality.

Guarantee, for add/remove one person, who is one row, the first. Gram: 1 in one cell for
each column and pair, of which the m with the class have noise of one scale and the
m(m−1)/2 others of another. Moments: a person counts with the average of all rows, and
moves three releases by no more than noise of the stated scales covers; they cost one
Gaussian mechanism together, whose 1/z² is the sum of theirs. A figure of quality
(`sums`) is two counts more, from the same budget, that a person moves by 1 at most: its
classifier is made of what is offered alone, which was paid for, and a row's class is
said by itself, whoever else is there; in a batch, how a sum is rounded may depend on
how many rows it is made for.
Edges: those of `offering`; a figure without two classes → ConfigError, above half of
the budget → PrivacyError.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.frame import UNIT, Frame, packed
from understudy.data.kinds import TABLE, Rows
from understudy.generators.parts import ClassifierParts, GeneratorParts
from understudy.generators.samplers import sampler_of
from understudy.ground.errors import ConfigError, Effect, PrivacyError
from understudy.models.moments.fit import middle
from understudy.models.moments.released import FIRST, moments_sensitivity
from understudy.models.offered import OfferedGram, OfferedMoments
from understudy.privacy.accounts.accounting import DpEvent, calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import needed_noise, noise, shared_noise, spend_of
from understudy.privacy.secure.moments import moments_event, noise_for
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.stages import Pairs
from understudy.protocols.gram.stages import TableRows as GramRows
from understudy.protocols.joint.pricing import NoiseAllocation, VectorPricing
from understudy.protocols.joint.stage import Stage
from understudy.protocols.moments.stages import ArrayRows as MomentRows
from understudy.protocols.moments.stages import First, Pooled, Within, finest
from understudy.protocols.papers.sgde.kinds import pooled
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.protocols.papers.sgde.offering import Offering
from understudy.protocols.papers.sgde.pool import pool
from understudy.protocols.papers.sgde.sums import FIGURE_COUNTS

_CLASSIFIER_ROWS = 20_000  # rows, from which a classifier of a table learns


class SumsOffering(Offering):
    """One offer of all classes: `blank` is it with its noise stated, and nothing
    counted.
    """

    blank: Any

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        epsilon = self.recipe.quality_epsilon
        if epsilon is None:
            return
        assert self.budget is not None, "a recipe without noise has no figure"
        if len(self.requirements.labels) < 2:
            raise ConfigError(
                "a figure of quality is how often classes are said right, and this "
                "pool has no two of them.",
                effect=Effect.NOTHING_CHARGED,
            )
        if not epsilon <= self.budget.epsilon / 2:
            raise PrivacyError(
                f"a figure of ε={epsilon:g} leaves too little for the offer: all "
                f"together may cost ε={self.budget.epsilon:g}, and the figure half of "
                "it.",
                effect=Effect.NOTHING_CHARGED,
            )
        self.figure = needed_noise(FIGURE_COUNTS, Budget(epsilon, self.budget.delta))

    def describe(self) -> dict[str, Any]:
        return self.blank.describe()  # type: ignore[no-any-return]

    def _filled(self, sums: dict[str, Tensor]) -> Sequence[nn.Module]:
        offer = type(self.blank).from_description(self.describe())
        offer.load_state_dict(sums)
        return [offer]


class PairCounts(SumsOffering):
    words = "counts of all pairs of levels, and so"
    for_tables = True
    suited_to = 'tables: kind="moments" is for images and series'
    shares = (0.8, 0.2)  # of the budget: cells of the class, and all others

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        m = len(self.schema.columns)
        # cells that a person moves: of the class, and others
        self.moved = (m, m * (m - 1) // 2)
        releases = tuple(
            (((1.0, cells),), share)
            for cells, share in zip(self.moved, self.shares, strict=True)
        )
        figure_releases = ((self.figure, FIGURE_COUNTS),) if self.figure else ()
        sigmas = (
            (0.0, 0.0)
            if self.budget is None
            else shared_noise(releases, self.budget, fixed=figure_releases)
        )
        self.target = self.schema.names.index(self.requirements.target)
        self.blank = OfferedGram(
            Codec(self.schema).sizes, target=self.target, noise=sigmas
        )

    @property
    def spend(self) -> Counter[DpEvent]:
        return spend_of(zip(self.blank.noise, self.moved, strict=True))

    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        layout = Layout({"silo": self.schema})
        table_rows = GramRows(rows.first_of_each(), layout, 0)
        of_class = torch.zeros(layout.columns, layout.columns, dtype=torch.bool)
        of_class[self.target] = of_class[:, self.target] = True
        counts = torch.zeros((), dtype=torch.int64)
        pairs = layout.all_pairs()
        for measured_pairs, sigma in zip(
            (pairs & of_class, pairs & ~of_class), self.blank.noise, strict=True
        ):
            stage = Pairs(
                layout,
                measured_pairs,
                (),
                NoiseAllocation.even(layout.grid, int(measured_pairs.sum())),
            )
            noisy = release_alone(stage, table_rows, sigma, rng)
            counts = counts + stage.read(noisy, dict.fromkeys(noisy, sigma)).gram
        return self._filled({"gram": packed(counts)})


class MomentSums(SumsOffering):
    words = "counts, means and second moments"
    for_tables = False
    suited_to = 'images and series: kind="gram" is for tables'
    # of the budget: means, second moments of all rows, and of each class
    shares = (0.5, 0.3, 0.2)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        frame = Frame.from_schema(
            self.schema, self.recipe.features, upright=self.recipe.upright
        )
        self.multiplier = (
            0.0 if self.budget is None else _multiplier_within(self.budget, self.figure)
        )
        multipliers = [self.multiplier / share**0.5 for share in self.shares]
        scales = [finest(multiplier, 1) for multiplier in multipliers[1:]]
        sensitivities = (FIRST, *map(moments_sensitivity, scales))
        sigmas = [
            noise_for(multiplier, sensitivity)
            for multiplier, sensitivity in zip(multipliers, sensitivities, strict=True)
        ]
        classes = max(1, len(self.requirements.labels))
        self.blank = OfferedMoments(frame, classes=classes, scales=scales, noise=sigmas)

    @property
    def spend(self) -> Counter[DpEvent]:
        return Counter({moments_event(self.multiplier): 1})

    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        """Each release about what the first gave: a silo is alone, and knows no other
        centre.
        """
        blank = self.blank
        frame = self.blank.frame
        classes = self.blank.classes
        moment_rows = MomentRows.framed(rows, frame)
        d = frame.features

        def release(stage: First | Pooled | Within, number: int) -> Tensor:
            return release_alone(
                stage, lambda: [moment_rows], blank.noise[number], rng
            )["sums"]

        start = First(frame, classes)
        first = release(start, 0)
        centre, radius = middle(start.read_sums(first, blank.noise[0]), frame)
        means = centre.expand(classes, -1)
        basis = UNIT * torch.eye(d, dtype=torch.int64)
        pooled = release(Pooled(means, radius, d, blank.scales[0]), 1)
        cells = release(Within(means, basis, radius, 0, blank.scales[1]), 2).view(
            classes, -1
        )
        sums = {"first": first, "pooled": pooled, "cells": cells, "centre": centre}
        return self._filled(sums | {"radius": torch.tensor([radius])})


@lru_cache(maxsize=64)
def _multiplier_within(budget: Budget, release_figure: float) -> float:
    """The noise multiplier of the three releases as one, within this budget and beside
    a figure of quality.
    """
    figure_spend = (
        spend_of([(release_figure, FIGURE_COUNTS)])
        if release_figure
        else Counter[DpEvent]()
    )
    return calibrate(
        lambda z: Counter({moments_event(z): 1}) + figure_spend,
        epsilon=budget.epsilon,
        delta=budget.delta,
    )


def release_alone(
    stage: Stage[Any], rows: Any, sigma: float, rng: Rng
) -> dict[str, Tensor]:
    """The sums of a stage with one holder, who adds the whole noise: nobody else's
    hides anything.
    """
    pricing = VectorPricing()
    blocks = stage.blocks
    return {
        name: part + pricing.noise(blocks[name], sigma, 1, rng)
        for name, part in stage.count(rows).items()
    }


# A figure of quality


def release_figure(
    offer: OfferedGram | OfferedMoments,
    data: Rows,
    requirements: Requirements,
    sigma: float,
    rng: Rng,
) -> tuple[int, int]:
    """About how many people a classifier made of the offer is right, and how many there
    are. It has been paid for.
    """
    right, people = (
        count_right(offer, data, requirements)
        + noise(Fraction(sigma), rng, FIGURE_COUNTS)
    ).tolist()
    return right, people


def count_right(
    offer: OfferedGram | OfferedMoments, data: Rows, requirements: Requirements
) -> Tensor:
    """The two counts without noise: (2,), int64."""
    parts = GeneratorParts(offer, requirements.schema, {"silo": "", "label": None})
    target = requirements.target if TABLE.holds(data) else None
    generator = pool([parts], requirements, {})
    sampler = sampler_of(generator)
    network, weights, features, _ = sampler.classifier(
        target or str(sampler.label), _CLASSIFIER_ROWS, 0
    )
    classifier = ClassifierParts(network, weights, features, {})
    if TABLE.holds(data):
        first_rows = data.first_of_each().frame
        rows = classifier.features.rows(first_rows)
        codes = classifier.features.codes(first_rows)
    else:
        rows, codes = pooled(data.schema).first_rows(
            data, data.schema, requirements.target
        )
    right = int((_likeliest(classifier, rows) == codes).sum())
    return torch.tensor([right, len(rows)])


@torch.no_grad()
def _likeliest(classifier: ClassifierParts, rows: Tensor) -> Tensor:
    """The likeliest class of each row, by itself: (rows,)."""
    weights = classifier.weights
    expand = classifier.features.expand
    predictions: list[Any] = [
        classifier.network.forward(weights, expand(row[None])).argmax(1) for row in rows
    ]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *predictions])
