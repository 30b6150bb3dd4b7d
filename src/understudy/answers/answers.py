"""Questions to a generator of tables: rows that meet a condition, rows of other shares, tables.

All of it is post-processing of what was released: it reads no row of anybody and costs nothing. For a mixture (and a
pool of mixtures) answers are exact: its law given a condition has a closed form. Any other network is asked by draws:
rows that meet a condition are kept and have its exact law, while probabilities and tables are means over latent
points. An answer says which of the two it is: `frame.attrs["answer"]`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from understudy.answers import completing
from understudy.answers.products import Products, products_of
from understudy.answers.question import Box, Levels, Question
from understudy.answers.rejection import Cells, by_boxes, by_test, kept_rows
from understudy.check import not_negative
from understudy.data.codec import Uniform
from understudy.data.pieces import Pieces
from understudy.errors import ConfigError

POINTS = 1 << 13  # latent points that stand for a network which is no mixture
_NUMBERS = 1 << 25  # 256 MiB: of products given a condition
_MOST_BOXES = 256

Points = Callable[
    [int, Any], Iterable[Tensor]
]  # so many latent points, a source of them → their probabilities

_Frame = TypeVar("_Frame", pd.DataFrame, "pd.Series[float]")


@dataclass(frozen=True, eq=False)
class Answers:
    """Asks `network`, which draws `levels`. `points` draws latent points and yields their probabilities."""

    network: object
    levels: Levels
    points: Points

    @cached_property
    def exact(self) -> Products | None:
        """The network as products where it is that."""
        return products_of(self.network)

    def products(self, rng: Uniform) -> Products:
        """The network as products, or as many of its latent points."""
        if self.exact is not None:
            return self.exact
        count = max(1, min(POINTS, _NUMBERS // sum(self.levels.sizes)))
        return Products.of_rows(torch.cat(list(self.points(count, rng))), self.levels.sizes)

    def sample(self, n: int, where: str, rng: Uniform) -> pd.DataFrame:
        """`n` rows that meet the condition; `attrs["probability"]` is what the model gives it."""
        not_negative(n=n)
        question = Question.read(where, self.levels)
        boxes = question.boxes(self._most_boxes(question.pieces))
        if self.exact is not None and boxes is not None:
            return self._drawn(n, boxes, question.pieces, rng, f"the condition {where!r}")
        keep = by_test(question, rng) if boxes is None else by_boxes(boxes, rng)
        return self._kept(n, keep, question.pieces, rng)

    def complete(self, frame: pd.DataFrame, draws: int, rng: Uniform) -> pd.DataFrame:
        """Rows with what they lack drawn from the model given what they have."""
        products = self.products(rng)
        return self._said(completing.complete(frame, draws, self.levels, products, rng), products)

    def predict_proba(self, frame: pd.DataFrame, target: str, rng: Uniform) -> pd.DataFrame:
        """The probability of each value of the target for each row."""
        products = self.products(rng)
        return self._said(completing.probabilities(frame, target, self.levels, products), products)

    def expectation(self, frame: pd.DataFrame, target: str, rng: Uniform) -> "pd.Series[float]":
        """The mean of a numeric target for each row."""
        products = self.products(rng)
        return self._said(completing.expectation(frame, target, self.levels, products), products)

    def quantile(self, frame: pd.DataFrame, target: str, q: float, rng: Uniform) -> "pd.Series[float]":
        """A quantile of a numeric target for each row."""
        products = self.products(rng)
        return self._said(completing.quantile(frame, target, q, self.levels, products), products)

    def table(
        self, names: Sequence[str], where: str | None, rows: float | None, rng: Uniform
    ) -> pd.DataFrame:
        """The share of each combination of these columns' levels among the rows that meet the condition."""
        schema = self.levels.schema
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"a table is of different columns, at least one, not {names!r}.")
        if clash := {"share", "count"} & set(names):
            raise ConfigError(f'a table has a column "{clash.pop()}" of its own. Nothing was computed.')
        if rows is not None:
            not_negative(rows=rows)
        places = [schema.columns.index(schema.column(name)) for name in names]
        share, said = self._shares(places, where, rng)
        axes = [pd.Series(labels, dtype=_dtype(labels)) for labels in map(self.levels.labels, places)]
        cells = np.unravel_index(np.arange(share.numel()), share.shape)
        frame = pd.DataFrame(
            {
                name: axis.take(cell).reset_index(drop=True)
                for name, axis, cell in zip(names, axes, cells, strict=True)
            }
        )
        frame["share"] = share.flatten().numpy()
        if rows is not None:
            frame["count"] = frame["share"] * rows
        frame.attrs |= said
        return frame

    def _said(self, answer: _Frame, products: Products) -> _Frame:
        """The answer, with how it was found."""
        answer.attrs["answer"] = self._how(products)
        return answer

    def _how(self, products: Products) -> str:
        return "exact" if self.exact is not None else f"by {len(products.weight):,} draws"

    def _shares(
        self, places: Sequence[int], where: str | None, rng: Uniform
    ) -> tuple[Tensor, dict[str, Any]]:
        products = self.products(rng)
        answer = self._how(products)
        if where is None:
            return products.table(places), {"answer": answer}
        question = Question.read(where, self.levels)
        if (boxes := question.boxes(self._most_boxes(question.pieces))) is None:
            raise ConfigError(
                f"{where!r} ties too many columns for a table. Draw rows with it and count. Nothing was computed."
            )
        probability, left = products.cut(question.pieces).given(boxes)
        if left is None:
            raise _nothing(f"the condition {where!r}", answer)
        said = {"answer": answer, "probability": probability}
        return left.levels(question.pieces, self.levels.sizes).table(places), said

    def _most_boxes(self, pieces: Mapping[int, Pieces]) -> int:
        if self.exact is None:
            return _MOST_BOXES
        width = sum(self.levels.sizes) + sum(len(own.level) for own in pieces.values())
        return max(1, min(_MOST_BOXES, _NUMBERS // (len(self.exact.weight) * width)))

    def _drawn(
        self, n: int, boxes: Sequence[Box], pieces: Mapping[int, Pieces], rng: Uniform, what: str
    ) -> pd.DataFrame:
        """Rows by the closed form."""
        assert self.exact is not None
        probability, left = self.exact.cut(pieces).given(boxes)
        if left is None:
            raise _nothing(what, "exact")
        frame = self._frame(left.draw(n, rng.uniform).numpy(), pieces, rng)
        frame.attrs |= {"answer": "exact", "probability": probability}
        return frame

    def _kept(
        self,
        n: int,
        keep: Callable[[Products], tuple[Cells, float]],
        pieces: Mapping[int, Pieces],
        rng: Uniform,
    ) -> pd.DataFrame:
        """Rows by rejection."""
        cells, share = kept_rows(n, self._endless(rng), pieces, keep)
        frame = self._frame(cells, pieces, rng)
        frame.attrs |= {"answer": "by rejection", "probability": share}
        return frame

    def _endless(self, rng: Uniform) -> Iterator[Products]:
        while True:
            for rows in self.points(POINTS, rng):
                yield Products.of_rows(rows, self.levels.sizes)

    def _frame(self, drawn: Cells, pieces: Mapping[int, Pieces], rng: Uniform) -> pd.DataFrame:
        """A table from the pieces of some columns and the levels of the others."""
        codes = np.array(drawn, dtype=np.int32)
        for j, own in pieces.items():
            codes[:, j] = own.level[drawn[:, j]]
        frame = self.levels.decode(codes, rng)
        for j, own in pieces.items():
            frame[own.column.name] = own.values(drawn[:, j], rng.uniform(len(drawn)).numpy())
        return frame


def _nothing(what: str, answer: str) -> ConfigError:
    return ConfigError(
        f"nothing meets {what}: the model gives it the probability 0 ({answer}). Nothing was drawn."
    )


def _dtype(labels: list[Any]) -> str | None:
    """Of an axis: as its labels are, where none is missing."""
    return "object" if None in labels else None
