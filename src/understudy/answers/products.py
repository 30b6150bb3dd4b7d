"""Weighted products of columns: what a mixture is, and what it is again once something
is known of a row.

A row comes from one product, picked by weight, and within it each column is drawn by
itself. Given that the row lies in a box, the weights are multiplied by the box's
probability under each product (Bayes' rule) and each column's odds are cut to the box:
products again. So conditions, tables and predictions all have closed forms.

Any other network makes such a product of every latent point. There a point is kept with
the probability that its product gives the condition, and its row is drawn from the
product cut to it (`kept_rows`): so a row that is kept has exactly the network's law
given the condition.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.question import Box, Question
from understudy.data.encoding.codec import Uniform
from understudy.data.encoding.values import Pieced
from understudy.ground.errors import ArtefactError, ConfigError, Effect
from understudy.models.plan import Pool
from understudy.models.tables.mixture import MixtureOfProducts, invert, latin

MOST_CELLS = 1 << 22  # of a table of answers
MOST_POINTS = 1 << 23  # latent points that are drawn for one question
FIRST = 1 << 16  # after which it is seen whether these will do
_AT_ONCE = 1 << 22  # numbers held beside the products themselves

Cells = NDArray[np.int32]
Uniforms = Callable[[int], Tensor]


@dataclass(frozen=True, eq=False)
class Products:
    """`weight` (G,) sums to 1; `probabilities` has (G, levels) for each column, every
    row of which sums to 1. All float64.
    """

    weight: Tensor
    probabilities: tuple[Tensor, ...]

    @classmethod
    def from_rows(cls, rows: Tensor, sizes: Sequence[int]) -> "Products":
        """Equally likely products from probabilities side by side, (G, width).
        ArtefactError where they are none.
        """
        blocks = torch.split(rows.detach().cpu().double(), list(sizes), 1)
        probabilities = tuple(block / block.sum(1, keepdim=True) for block in blocks)
        if not all(torch.isfinite(block).all() for block in probabilities):
            raise ArtefactError(
                "the network gives odds that are not finite.",
                effect=Effect.NOTHING_SAMPLED,
            )
        return cls(
            torch.full((len(rows),), 1 / max(1, len(rows)), dtype=torch.float64),
            probabilities,
        )

    @property
    def width(self) -> int:
        return sum(block.shape[1] for block in self.probabilities)

    def cut(self, pieces: Pieced) -> "Products":
        """The same in pieces of these columns, instead of levels."""
        probabilities = list(self.probabilities)
        for j, column_pieces in pieces.items():
            probabilities[j] = probabilities[j][
                :,
                column_pieces.level.astype(np.int64),
            ] * torch.from_numpy(column_pieces.share)
        return Products(self.weight, tuple(probabilities))

    def levels(self, pieces: Pieced, sizes: Sequence[int]) -> "Products":
        """The inverse of `cut`: levels of these columns again, whatever was learned of
        their pieces.
        """
        probabilities = list(self.probabilities)
        for j, column_pieces in pieces.items():
            whole = torch.zeros(len(self.weight), sizes[j], dtype=torch.float64)
            probabilities[j] = whole.index_add_(
                1,
                torch.from_numpy(column_pieces.level.astype(np.int64)),
                probabilities[j],
            )
        return Products(self.weight, tuple(probabilities))

    def inside(self, box: Box) -> Tensor:
        """The logarithm of a box's probability under each product, (G,)."""
        parts = [
            (self.probabilities[j] @ torch.from_numpy(mask * 1.0)).log()
            for j, mask in box.items()
        ]
        return (
            torch.stack(parts).sum(0)
            if parts
            else torch.zeros(len(self.weight), dtype=torch.float64)
        )

    def condition_on(self, boxes: Sequence[Box]) -> tuple[float, "Products | None"]:
        """The probability of boxes that do not overlap, and products given that a row
        lies in one; 0 → no products.
        """
        chances = [self.weight.log() + self.inside(box) for box in boxes]
        everything = (
            torch.cat(chances) if chances else torch.empty(0, dtype=torch.float64)
        )
        total = float(everything.logsumexp(0)) if len(everything) else -math.inf
        if total == -math.inf:
            return 0.0, None
        possible = [chance > -math.inf for chance in chances]
        parts = [
            self._cut_to(box, keep) for box, keep in zip(boxes, possible, strict=True)
        ]
        probabilities = tuple(torch.cat(column) for column in zip(*parts, strict=True))
        return math.exp(total), Products(
            (everything - total).exp()[torch.cat(possible)],
            probabilities,
        )

    def _cut_to(self, box: Box, keep: Tensor) -> list[Tensor]:
        probabilities = [block[keep] for block in self.probabilities]
        for j, mask in box.items():
            part = probabilities[j] * torch.from_numpy(mask * 1.0)
            probabilities[j] = part / part.sum(1, keepdim=True)
        return probabilities

    def draw(self, n: int, uniform: Uniforms) -> Tensor:
        """`n` rows of levels, int32 (n, columns), by Latin hypercubes: each product as
        its weight says, about.
        """
        cumulative = self.weight.cumsum(0)
        quantiles = (torch.arange(n) + uniform(1)) / max(1, n) * cumulative[-1]
        pick = torch.searchsorted(cumulative, quantiles, right=True).clamp(
            max=len(cumulative) - 1
        )
        return latin(pick, self.probabilities, uniform)[torch.argsort(uniform(n))]

    def table(self, columns: Sequence[int]) -> Tensor:
        """The joint probabilities of these columns' levels, one axis for each.
        ConfigError where there are too many.
        """
        sizes = [self.probabilities[j].shape[1] for j in columns]
        cells = math.prod(sizes)
        if cells > MOST_CELLS:
            raise ConfigError(
                f"a table of {cells:,} cells is larger than {MOST_CELLS:,}.",
                effect=Effect.NOTHING_COMPUTED,
            )
        *first, last = columns
        table = torch.zeros(cells // sizes[-1], sizes[-1], dtype=torch.float64)
        for some in torch.split(
            torch.arange(len(self.weight)),
            max(1, _AT_ONCE // len(table)),
        ):
            heap = self.weight[some, None]  # (products, cells of the columns so far)
            for j in first:
                heap = (heap[:, :, None] * self.probabilities[j][some, None]).flatten(1)
            table += heap.T @ self.probabilities[last][some]
        return table.reshape(sizes)

    def with_known(self, known_codes: Mapping[int, Tensor], n: int) -> Tensor:
        """log P(product, what is known of each of `n` rows), (n, G), from levels of
        known columns, −1 where unknown.
        """
        chance = self.weight.log().expand(n, -1).clone()
        for j, levels in known_codes.items():
            rows = (levels >= 0).nonzero()[:, 0]
            by_level = self.probabilities[j].log().T.contiguous()  # (levels, G)
            if len(rows) == n:
                chance += by_level[levels.long()]
            else:
                chance[rows] += by_level[levels[rows].long()]
        return chance


def products_of(network: object) -> Products | None:
    """A network that is products itself, as a mixture and a pool of mixtures. None for
    any other.
    """
    if isinstance(network, MixtureOfProducts):
        return Products.from_rows(network.odds(), network.sizes)
    if not isinstance(network, Pool):
        return None
    converted = [products_of(member) for member in network.members]
    members = [member for member in converted if member is not None]
    if (
        len(members) < len(converted)
        or len(
            {
                tuple(block.shape[1] for block in member.probabilities)
                for member in members
            }
        )
        > 1
    ):
        return None
    total = math.fsum(network.shares)
    weight = torch.cat(
        [
            member.weight * share / total
            for member, share in zip(members, network.shares, strict=True)
        ]
    )
    return Products(
        weight,
        tuple(
            torch.cat(column)
            for column in zip(*(m.probabilities for m in members), strict=True)
        ),
    )


def pick(chance: Tensor, uniform: Tensor) -> Tensor:
    """Products by log-probabilities (n, G), one for each number (n, draws): (n, draws);
    never of probability 0.
    """
    heap = chance.exp().cumsum(1)
    total = heap[:, -1:]
    target = torch.minimum(
        uniform * total,
        torch.nextafter(total, torch.zeros_like(total)),
    )
    return torch.searchsorted(heap, target, right=True)


# rows that are kept, and how many are to be expected
Keep = Callable[[Products], tuple[Cells, float]]


def kept_rows(
    n: int,
    points: Iterator[Products],
    pieces: Pieced,
    keep: Keep,
) -> tuple[Cells, float]:
    """`n` rows of pieces and levels that were kept, (n, columns), and the share of
    points that is. `points` yields products of latent points for as long as it is
    asked; `keep` draws the rows of those that are kept and says how many are to be
    expected. ConfigError where that is too rare.
    """
    parts: list[Cells] = []
    n_tried = 0
    n_kept = 0
    expected = 0.0
    for some in points:
        rows, likely = keep(some.cut(pieces))
        parts.append(rows)
        n_tried = n_tried + len(some.weight)
        n_kept = n_kept + len(rows)
        expected = expected + likely
        if n_kept >= n:
            return np.concatenate(parts)[:n], expected / n_tried
        if n_tried >= MOST_POINTS or (
            n_tried >= FIRST and expected / n_tried * MOST_POINTS < n / 2
        ):
            break
    raise ConfigError(
        f"{n_kept:,} of {n_tried:,} draws fit: the model gives what is asked the "
        f"probability {expected / n_tried:.2g}, about, and {n:,} rows would take too "
        "long. Ask for fewer rows or for less.",
        effect=Effect.NOTHING_SAMPLED,
    )


def by_boxes(boxes: Sequence[Box], rng: Uniform) -> Keep:
    """Keep a point with the probability of the boxes under its product; draw within one
    of them.
    """

    def keep(products: Products) -> tuple[Cells, float]:
        if not boxes:
            return np.zeros((0, len(products.probabilities)), dtype=np.int32), 0.0
        # (points, boxes), logs
        chance = torch.stack([products.inside(box) for box in boxes], 1)
        total = chance.logsumexp(1)
        inside = rng.uniform(len(total)) < total.exp()
        which = pick(
            chance[inside] - total[inside, None],
            rng.uniform(int(inside.sum()), 1),
        )[:, 0]
        rows = drawn_in(
            boxes,
            which,
            [block[inside] for block in products.probabilities],
            rng.uniform,
        )
        return rows, float(total.exp().sum())

    return keep


def by_test(question: Question, rng: Uniform) -> Keep:
    """Draw a row of every point, and keep it where it meets the condition."""

    def keep(products: Products) -> tuple[Cells, float]:
        rows = (
            torch.stack(
                [
                    invert(block, rng.uniform(len(block)))
                    for block in products.probabilities
                ],
                1,
            )
            .int()
            .numpy()
        )
        met = question.met({j: rows[:, j] for j in question.pieces})
        return rows[met], float(met.sum())

    return keep


def drawn_in(
    boxes: Sequence[Box],
    which: Tensor,
    probabilities: Sequence[Tensor],
    uniform: Uniforms,
) -> Cells:
    """A row in each of these boxes, by its number, from its own probabilities of every
    column (rows, levels).
    """
    return (
        torch.stack(
            [
                invert(
                    block * _allowed(boxes, which, j, block.shape[1]),
                    uniform(len(block)),
                )
                for j, block in enumerate(probabilities)
            ],
            1,
        )
        .int()
        .numpy()
    )


def _allowed(
    boxes: Sequence[Box],
    which: Tensor,
    j: int,
    size: int,
) -> Tensor:
    """How far each row's own box allows each piece of a column: (rows, size), or 1
    where no box speaks of it.
    """
    if all(j not in box for box in boxes):
        return torch.ones(1, dtype=torch.float64)
    return torch.from_numpy(
        np.stack([box.get(j, np.ones(size)) * 1.0 for box in boxes])
    )[which]
