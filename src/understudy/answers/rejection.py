"""Rows that meet a condition, from any network: draw, and keep what meets it.

A network makes of every latent point a product of columns. A point is kept with the probability that its product
gives the condition, and its row is then drawn from the product cut to it, so that a row that is kept has exactly the
network's law given the condition.

Guarantee: at most `MOST` points are drawn, and when the first ones show that these would not do, no more than those.
Edges: a condition that is too rare for that → ConfigError that says how rare.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.products import Products, pick
from understudy.answers.question import Box, Question
from understudy.data.encoding.codec import Uniform
from understudy.data.encoding.values import Pieces
from understudy.ground.errors import ConfigError
from understudy.models.tables.bayes import invert

MOST = 1 << 23  # latent points for one question
FIRST = 1 << 16  # after which it is seen whether these will do

Cells = NDArray[np.int32]


def kept_rows(
    n: int,
    points: Iterator[Products],
    pieces: Mapping[int, Pieces],
    keep: Callable[[Products], tuple[Cells, float]],
) -> tuple[Cells, float]:
    """`n` rows of pieces and levels that were kept, (n, columns), and the share of points that is.

    `points` yields products of latent points for as long as it is asked; `keep` draws the rows of those that are kept
    and says how many are to be expected.
    """
    found: list[Cells] = []
    tried, have, expected = 0, 0, 0.0
    for some in points:
        rows, likely = keep(some.cut(pieces))
        found.append(rows)
        tried, have, expected = tried + len(some.weight), have + len(rows), expected + likely
        if have >= n:
            return np.concatenate(found)[:n], expected / tried
        if tried >= MOST or (tried >= FIRST and expected / tried * MOST < n / 2):
            break
    raise ConfigError(
        f"{have:,} of {tried:,} draws fit: the model gives what is asked the probability {expected / tried:.2g}, "
        f"about, and {n:,} rows would take too long. Ask for fewer rows or for less. Nothing was drawn."
    )


def by_boxes(boxes: Sequence[Box], rng: Uniform) -> Callable[[Products], tuple[Cells, float]]:
    """Keep a point with the probability of the boxes under its product; draw within one of them."""

    def keep(products: Products) -> tuple[Cells, float]:
        if not boxes:
            return np.zeros((0, len(products.odds)), dtype=np.int32), 0.0
        chance = torch.stack([products.inside(box) for box in boxes], 1)  # (points, boxes), logs
        total = chance.logsumexp(1)
        there = rng.uniform(len(total)) < total.exp()
        which = pick(chance[there] - total[there, None], rng.uniform(int(there.sum()), 1))[:, 0]
        drawn = [
            invert(own[there] * _allowed(boxes, j, which, own.shape[1]), rng.uniform(len(which)))
            for j, own in enumerate(products.odds)
        ]
        return torch.stack(drawn, 1).int().numpy(), float(total.exp().sum())

    return keep


def by_test(question: Question, rng: Uniform) -> Callable[[Products], tuple[Cells, float]]:
    """Draw a row of every point, and keep it where it meets the condition."""

    def keep(products: Products) -> tuple[Cells, float]:
        drawn = [invert(own, rng.uniform(len(own))) for own in products.odds]
        rows = torch.stack(drawn, 1).int().numpy()
        met = question.met({j: rows[:, j] for j in question.pieces})
        return rows[met], float(met.sum())

    return keep


def _allowed(boxes: Sequence[Box], j: int, which: Tensor, size: int) -> Tensor:
    """How far each row's own box allows each piece of a column: (rows, size), or 1 where no box speaks of it."""
    if all(j not in box for box in boxes):
        return torch.ones(1, dtype=torch.float64)
    return torch.from_numpy(np.stack([box.get(j, np.ones(size)) * 1.0 for box in boxes]))[which]
