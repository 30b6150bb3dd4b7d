"""Moments of images or series, counted under noise, as a silo's one offer for all classes.

Not in the paper. What a decoder of a few hundred images cannot learn at ε = 1.5 stands in sums over people: counts and
means of the classes and second moments in a public frame (`protocols/moments`). A silo is alone: it makes the three
releases by itself, each with the full noise, and about what its own first one gave. A pool adds the sums of all silos,
with their noise, and fits once (`models/moments/offered.py`).

Guarantee: one person, with all rows, moves the three releases by no more than noise of the stated scales covers; they
cost one Gaussian mechanism together, whose 1/z² is the sum of theirs. A person with several rows counts with their
average. A figure of quality is two counts more, from the same budget.
Edges: a class without rows is noise alone; tables have no frame → ConfigError.
"""

from collections import Counter
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.frame import UNIT, Frame
from understudy.data.encoding.population import Population
from understudy.data.kinds import TABLE
from understudy.ground.errors import ConfigError
from understudy.models.moments.offered import OfferedMoments, middle
from understudy.models.moments.released import FIRST, bins_of, moments_sensitivity, read_first
from understudy.privacy.accounts.accounting import DpEvent, calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import noise_on, spend_of
from understudy.privacy.secure.moments import Crowd, doubled, moments_event, noise_for
from understudy.protocols.moments.rows import Rows, Sums
from understudy.protocols.moments.stages import First, Pooled, Within, finest
from understudy.protocols.sgde.offer import Requirements
from understudy.protocols.sgde.quality import MOVED
from understudy.protocols.sgde.rows import Held

SHARES = (0.5, 0.3, 0.2)  # of the budget: means, second moments of all rows, and of each class


@lru_cache(maxsize=64)
def multiplier_within(budget: Budget | None, figure: float = 0.0) -> float:
    """The noise multiplier of the three releases as one, within this budget; None: they are made without noise.

    `figure`: the noise of a figure of quality, which is paid from the same budget; 0: there is none.
    """
    if budget is None:
        return 0.0
    beside = spend_of([(figure, MOVED)]) if figure else Counter[DpEvent]()
    return calibrate(
        lambda z: Counter({moments_event(z): 1}) + beside, epsilon=budget.epsilon, delta=budget.delta
    )


def price(multiplier: float) -> Counter[DpEvent]:
    """What the three releases cost."""
    return Counter({moments_event(multiplier): 1})


def frame_of(requirements: Requirements, features: int, upright: bool = False) -> Frame:
    """The frame of the pool's rows."""
    if TABLE.describes(requirements.schema):
        raise ConfigError(
            'kind="moments" is for images and series: kind="gram" is for tables. Nothing was charged.'
        )
    return Frame.of(requirements.schema, features, upright=upright)


def blank(
    requirements: Requirements, features: int, multiplier: float, *, upright: bool = False
) -> OfferedMoments:
    """The offer, with its noise stated and nothing counted. ConfigError where it could be offered to nobody."""
    frame, classes = frame_of(requirements, features, upright), max(1, len(requirements.labels))
    each = [multiplier / share**0.5 for share in SHARES]
    scales = [finest(one, 1) for one in each[1:]]
    reaches = (FIRST, *map(moments_sensitivity, scales))
    noise = [noise_for(one, reach) for one, reach in zip(each, reaches, strict=True)]
    return OfferedMoments(frame, classes=classes, scales=scales, noise=noise)


def counted(offer: OfferedMoments, rows: Rows, rng: Rng) -> OfferedMoments:
    """The offer with the sums of these rows in it. They have been paid for."""
    frame, classes, d = offer.frame, offer.classes, offer.frame.features
    first = _released(First(frame, classes), rows, offer.noise[0], rng)
    noise = torch.full(first.shape, offer.noise[0], dtype=torch.float64)
    centre, radius = middle(read_first(frame, classes, first, noise), frame)
    means, basis = centre.expand(classes, -1), UNIT * torch.eye(d, dtype=torch.int64)
    pooled = _released(Pooled(means, radius, d, offer.scales[0]), rows, offer.noise[1], rng)
    cells = _released(Within(means, basis, radius, 0, offer.scales[1]), rows, offer.noise[2], rng)
    offer.load_state_dict(
        {
            "first": first,
            "pooled": pooled,
            "cells": cells.view(classes, -1),
            "centre": centre,
            "radius": torch.tensor([radius]),
        }
    )
    return offer


def _released(stage: Sums, rows: Rows, sigma: float, rng: Rng) -> Tensor:
    """The sums of a stage with the whole noise."""
    sums, diagonal = stage.sums(rows), stage.diagonal
    for cells, scale in ((~diagonal, Fraction(sigma)), (diagonal, doubled(sigma))):
        sums = sums + noise_on(cells, scale, rng)
    return sums


def rows_in(frame: Frame, data: Held) -> Rows:
    """A silo's rows in the frame, person after person."""
    if TABLE.holds(data):
        raise ConfigError("a table has no frame. Nothing was charged.")
    if isinstance(data, Population):
        values = data.features.expand(data.rows).numpy()
        codes, starts = data.codes.numpy(), data.starts.numpy()
    else:
        values, starts = data.values, data.starts
        codes = np.zeros(len(values), dtype=np.int64) if data.classes is None else data.classes
    return Rows(
        coefficients=frame.coefficients(values),
        histograms=frame.histograms(values, bins_of(frame)),
        classes=codes,
        crowd=Crowd.of(starts),
    )
