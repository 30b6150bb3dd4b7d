"""Questions to a generator of tables: rows that meet a condition, rows of other shares,
tables (docs/questions.md).

It reads no row of anybody and costs nothing. For a mixture (and a pool of mixtures)
answers are exact: its law given a condition has a closed form. Any other network is
asked by draws: rows that meet a condition are kept and have its exact law, while
probabilities and tables are means over latent points. An answer says which:
`frame.attrs["answer"]`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from understudy.answers import bars, raking
from understudy.answers.completing import Predicted, complete, known_cells
from understudy.answers.products import (
    Products,
    by_boxes,
    by_test,
    kept_rows,
    products_of,
)
from understudy.answers.question import Box, Levels, Question, rows_of
from understudy.answers.raking import Weights, by_value, rake, tests_of
from understudy.answers.release import Noisy, Release, bias_of
from understudy.answers.rule_boxes import Boxed, rule_boxes
from understudy.answers.rules import refilled
from understudy.data.conditions import Condition
from understudy.data.encoding.codec import Uniform
from understudy.data.encoding.values import Pieced
from understudy.data.rules import cuts
from understudy.ground.check import not_negative
from understudy.ground.errors import ConfigError, Effect

POINTS = 1 << 13  # latent points that stand for a network which is no mixture
_NUMBERS = 1 << 25  # 256 MiB: of products given a condition
_MOST_BOXES = 256
_BARS = ("count", "released", "sd", "low", "high")

Names = Sequence[str]
# so many latent points, a source of them → their probabilities
Points = Callable[[int, Any], Iterable[Tensor]]


@dataclass(frozen=True, eq=False)
class Answers:
    """Asks `network`, which draws `levels`, by `points` of its latents; `release`: what
    it was fitted to, if known.
    """

    network: object
    levels: Levels
    points: Points
    release: Release | None = None

    @cached_property
    def exact(self) -> Products | None:
        return products_of(self.network)

    def products(self, rng: Uniform) -> Products:
        """The network as products, or its latent points as such, given the rules."""
        products, pieces = self._in_pieces(rng)
        return products.levels(pieces, self.levels.sizes)

    def _in_pieces(
        self, rng: Uniform, about: Names = (), *, possible: bool = False
    ) -> tuple[Products, Pieced]:
        """The same in the pieces that rules cut, which some columns have then; rules on
        columns `about` come first.
        """
        _, products, pieces = self._given_rules(
            self._products(rng), about, possible=possible
        )
        assert products is not None
        return products, pieces

    def _products(self, rng: Uniform) -> Products:
        if self.exact is not None:
            return self.exact
        return Products.of_rows(
            torch.cat(list(self.points(self._points, rng))), self.levels.sizes
        )

    def _given_rules(
        self,
        own: Products,
        about: Names = (),
        also: Condition | None = None,
        boxes: int = 1,
        *,
        possible: bool = False,
    ) -> tuple[float, Products | None, Pieced]:
        """The probability of the rules, and of a condition besides that takes so many
        boxes, and products given these. `possible`: an order between columns allows
        wholly what it allows in part, for rows that are drawn and kept.
        """
        found, pieces, _ = self._rules(about, len(own.weight), also, boxes)
        if possible:
            found = [{j: mask > 0 for j, mask in box.items()} for box in found]
        share, left = own.cut(pieces).given(found)
        if left is None and also is None:
            raise ConfigError(
                "the model gives rows that keep the rules the probability 0.",
                effect=Effect.NOTHING_SAMPLED,
            )
        return share, left, pieces

    def _rules(
        self, about: Names, products: int, also: Condition | None = None, boxes: int = 1
    ) -> Boxed:
        most = _NUMBERS // (8 * products * sum(self.levels.sizes))
        return rule_boxes(
            self.levels, max(4, boxes, min(_MOST_BOXES, most)), about, also
        )

    @property
    def _points(self) -> int:
        return max(1, min(POINTS, _NUMBERS // sum(self.levels.sizes)))

    def sample(
        self,
        n: int,
        rng: Uniform,
        where: str | None,
        weights: Weights | None,
        like: pd.DataFrame | None,
    ) -> pd.DataFrame:
        """`n` rows that meet the condition, of the shares that are asked for."""
        not_negative(n=n)
        if weights is not None and like is not None:
            raise ConfigError(
                "shares come from weights or from a frame that rows are to be like, "
                "not from both."
            )
        asked = tests_of(weights or {}, self.levels)
        columns = self.levels.schema.columns
        also = {
            j: [place for test in own for place in cuts(test, columns[j])]
            for j, own in asked.items()
        }
        if like is not None:
            also = {j: [] for j in known_cells(like, self.levels)}
        question = Question.read(where, self.levels, also)
        products = self.products(rng) if also else self.exact
        boxes = question.boxes(self._most_boxes(question.pieces, products))
        if not also or products is None:
            return self._rows(n, boxes, question, rng, where)
        shares = {j: by_value(own, question.pieces[j]) for j, own in asked.items()}
        if like is not None:
            shares = raking.like(like, self.levels, question.pieces)
        if boxes is None:
            raise ConfigError(
                f"{where!r} ties too many columns to be weighted as well.",
                effect=Effect.NOTHING_SAMPLED,
            )
        probability, left = products.cut(question.pieces).given(boxes)
        if left is None:
            raise _nothing(where)
        factors = rake(left, shares, self.levels.schema.names)
        frame = self._rows(
            n, [_weighed(box, factors) for box in boxes], question, rng, where
        )
        return _with_answer(frame, frame.attrs["answer"], probability)

    def _rows(
        self,
        n: int,
        boxes: Sequence[Box] | None,
        question: Question,
        rng: Uniform,
        where: str | None,
    ) -> pd.DataFrame:
        """Rows by the closed form where there is one, and by rejection where not."""
        pieces = question.pieces
        if self.exact is not None and boxes is not None:
            probability, left = self.exact.cut(pieces).given(boxes)
            if left is None:
                raise _nothing(where)
            frame = rows_of(left.draw(n, rng.uniform).numpy(), pieces, self.levels, rng)
            return _with_answer(frame, "exact", probability)
        keep = by_test(question, rng) if boxes is None else by_boxes(boxes, rng)
        cells, share = kept_rows(n, self._endless(rng), pieces, keep)
        return _with_answer(
            rows_of(cells, pieces, self.levels, rng), "by rejection", share
        )

    def complete(self, frame: pd.DataFrame, draws: int, rng: Uniform) -> pd.DataFrame:
        products, pieces = self._in_pieces(rng, possible=True)

        def drawn(rows: pd.DataFrame, draws: int) -> pd.DataFrame:
            return complete(rows, draws, self.levels, products, rng, pieces)

        filled = drawn(frame, draws)
        again = refilled(
            self.levels.schema, filled, lambda rows: drawn(frame.iloc[rows // draws], 1)
        )
        again.attrs["answer"] = self._how()
        return again

    def predicted(self, frame: pd.DataFrame, target: str, rng: Uniform) -> Predicted:
        return Predicted.from_rows(
            frame,
            target,
            self.levels,
            *self._in_pieces(rng, [target]),
            how=self._how([target]),
        )

    def table(
        self, names: Names, where: str | None, rows: float | None, rng: Uniform
    ) -> pd.DataFrame:
        """The share of each combination of these columns' levels among the rows that
        meet the condition.
        """
        if rows is not None:
            not_negative(rows=rows)
        places = self._places(names)
        beside = self.release if rows is None else None
        own = {"share", *_BARS} if beside is not None else {"share", "count"}
        clash = own & set(names)
        if clash:
            raise ConfigError(
                f'a table has a column "{clash.pop()}" of its own.',
                effect=Effect.NOTHING_COMPUTED,
            )
        share, boxes, pieces, said = self._table_of(places, where, rng)
        found = (
            None
            if beside is None
            else bars.ReleasedMarginals.from_release(beside, places, boxes, pieces)
        )
        named = map(self.levels.labels, places)
        axes = [
            pd.Series(labels, dtype="object" if None in labels else None)
            for labels in named
        ]
        cells = np.unravel_index(np.arange(share.numel()), share.shape)
        taken = [
            axis.take(cell).reset_index(drop=True)
            for axis, cell in zip(axes, cells, strict=True)
        ]
        frame = pd.DataFrame(dict(zip(names, taken, strict=True)))
        frame["share"] = share.flatten().numpy()
        if beside is not None:
            rows = beside.people * said.get("probability", 1.0)
        if rows is not None:
            frame["count"] = frame["share"] * rows
        frame.attrs |= said
        if found is not None and isinstance(noisy := found.table, Noisy):
            columns = (
                noisy.counts,
                noisy.deviation,
                noisy.counts - noisy.half,
                noisy.counts + noisy.half,
            )
            frame[list(_BARS[1:])] = np.stack(
                [column.flatten() for column in columns], axis=1
            )
            assert beside is not None
            counted = bars.released_table(beside.as_counted, places, boxes, pieces)
            assert isinstance(counted, Noisy)
            fitted = frame["count"].to_numpy().reshape(share.shape) * (
                1 - beside.held_out
            )
            frame.attrs["bias"] = bias_of(fitted, counted) / (1 - beside.held_out)
        elif found is not None:
            frame.attrs["released"] = found.table
        return frame

    def figures(self, names: Names, where: str | None, rng: Uniform) -> pd.DataFrame:
        """Total, means, correlation and odds ratio of a table: by the fit, and as
        released, with bars.
        """
        if self.release is None:
            raise ConfigError(
                "this generator came without what was released.",
                effect=Effect.NOTHING_COMPUTED,
            )
        places = self._places(names)
        share, boxes, pieces, said = self._table_of(places, where, rng)
        counts = share.numpy() * self.release.people * said.get("probability", 1.0)
        found = bars.ReleasedMarginals.from_release(self.release, places, boxes, pieces)
        made = bars.figures(places, counts, found, self.levels, self.release)
        frame = (
            pd.DataFrame([vars(one) for one in made])
            .rename(columns={"name": "figure"})
            .drop(columns="why")
        )
        frame.attrs |= said | (
            {"released": found.table} if isinstance(found.table, str) else {}
        )
        why = {one.name: one.why for one in made if one.why}
        if why:
            frame.attrs["why"] = why
        return frame

    def _places(self, names: Names) -> list[int]:
        schema = self.levels.schema
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"a table is of different columns, at least one, not {names!r}."
            )
        return [schema.columns.index(schema.column(name)) for name in names]

    def _how(self, about: Names = ()) -> str:
        how = "exact" if self.exact is not None else f"by {self._points:,} draws"
        count = self._points if self.exact is None else len(self.exact.weight)
        left = self._rules(about, count)[2] if self.levels.schema.rules else 0
        return (
            f"{how}, but for {left} of the rules, which rows alone keep"
            if left
            else how
        )

    def _table_of(
        self, places: Sequence[int], where: str | None, rng: Uniform
    ) -> tuple[Tensor, Sequence[Box], Pieced, dict[str, Any]]:
        """The shares of a table, the boxes and pieces that the condition makes, and how
        the answer was found.
        """
        about = [self.levels.schema.names[place] for place in places]
        said: dict[str, Any] = {"answer": self._how(about)}
        question = Question.read(where, self.levels)
        products = self._products(rng)
        boxes = question.boxes(self._most_boxes(question.pieces, products))
        if boxes is None:
            raise ConfigError(
                f"{where!r} ties too many columns for a table. Draw rows with it and "
                "count.",
                effect=Effect.NOTHING_COMPUTED,
            )
        every, left, pieces = self._given_rules(products, about)
        if where is not None:
            share, left, pieces = self._given_rules(
                products, about, question.condition, len(boxes)
            )
            if left is None:
                raise _nothing(where)
            said["probability"] = share / every
        assert left is not None
        products = left.levels(pieces, self.levels.sizes)
        table = products.table(places)
        return table, boxes, question.pieces, said

    def _most_boxes(self, pieces: Pieced, products: Products | None) -> int:
        """How many boxes a question may take, so that products given them are held at
        once.
        """
        if products is None or (self.exact is None and not self.levels.schema.rules):
            return _MOST_BOXES
        width = sum(self.levels.sizes) + sum(len(own.level) for own in pieces.values())
        return max(1, min(_MOST_BOXES, _NUMBERS // (len(products.weight) * width)))

    def _endless(self, rng: Uniform) -> Iterator[Products]:
        while True:
            for rows in self.points(POINTS, rng):
                yield Products.of_rows(rows, self.levels.sizes)


def _nothing(where: str | None) -> ConfigError:
    return ConfigError(
        f"nothing meets {where!r}: the model gives it the probability 0.",
        effect=Effect.NOTHING_SAMPLED,
    )


def _with_answer(frame: pd.DataFrame, answer: str, probability: float) -> pd.DataFrame:
    frame.attrs |= {"answer": answer, "probability": probability}
    return frame


def _weighed(box: Box, factors: Mapping[int, Tensor]) -> Box:
    """A box that allows pieces by their factors, the largest fully."""
    soft = {
        j: box.get(j, 1) * (factor / factor.max()).numpy()
        for j, factor in factors.items()
    }
    return {**box, **soft}
