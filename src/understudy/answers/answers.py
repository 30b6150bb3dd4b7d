"""Questions to a generator of tables: rows that meet a condition, rows of other shares,
tables (docs/questions.md).

It reads no row of anybody and costs nothing. For a mixture (and a pool of mixtures)
answers are exact: its law given a condition has a closed form. Any other network is
asked by draws: rows that meet a condition are kept and have its exact law, while
probabilities and tables are means over latent points. An answer says which:
`frame.attrs["answer"]`. A mixture whose rows draw a target by effects of the others
draws them so given a condition, too, and keeps those that meet it, unless these are
rare.
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
    MOST_POINTS,
    Products,
    by_boxes,
    by_test,
    kept_rows,
    products_of,
)
from understudy.answers.question import Box, Levels, Question, rows_of
from understudy.answers.raking import Weights, by_value, rake, tests_of
from understudy.answers.release import Noisy, TableRelease, bias_of
from understudy.answers.rule_boxes import Boxed, rule_boxes
from understudy.answers.rules import refilled
from understudy.data.conditions import Condition
from understudy.data.encoding.codec import Uniform
from understudy.data.encoding.values import Pieced
from understudy.data.rules import cuts
from understudy.ground.check import not_negative
from understudy.ground.errors import ConfigError, Effect
from understudy.models.tables.mixture import MixtureOfProducts

POINTS = 1 << 13  # latent points that stand for a network which is no mixture
_NUMBERS = 1 << 25  # 256 MiB: of products given a condition
_MOST_BOXES = 256
# rows of a condition of at least this probability are drawn as without one, and kept
_OFTEN = 0.05
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
    release: TableRelease | None = None

    @cached_property
    def exact(self) -> Products | None:
        return products_of(self.network)

    def products(self, rng: Uniform) -> Products:
        """The network as products, or its latent points as such, given the rules."""
        products, pieces = self._in_pieces(rng)
        return products.levels(pieces, self.levels.sizes)

    def _in_pieces(
        self,
        rng: Uniform,
        about: Names = (),
        *,
        possible: bool = False,
    ) -> tuple[Products, Pieced]:
        """The same in the pieces that rules cut, which some columns have then; rules on
        columns `about` come first.
        """
        _, products, pieces = self._condition_on_rules(
            self._products(rng),
            about,
            possible=possible,
        )
        assert products is not None
        return products, pieces

    def _products(self, rng: Uniform) -> Products:
        if self.exact is not None:
            return self.exact
        return Products.from_rows(
            torch.cat(list(self.points(self._points, rng))),
            self.levels.sizes,
        )

    def _condition_on_rules(
        self,
        products: Products,
        about: Names = (),
        condition: Condition | None = None,
        boxes: int = 1,
        *,
        possible: bool = False,
    ) -> tuple[float, Products | None, Pieced]:
        """The probability of the rules, and of a condition besides that takes so many
        boxes, and products given these. `possible`: an order between columns allows
        wholly what it allows in part, for rows that are drawn and kept.
        """
        allowed, pieces, _ = self._rules(
            about,
            len(products.weight),
            condition,
            boxes,
        )
        if possible:
            allowed = [{j: mask > 0 for j, mask in box.items()} for box in allowed]
        share, conditioned = products.cut(pieces).condition_on(allowed)
        if conditioned is None and condition is None:
            raise ConfigError(
                "the model gives rows that keep the rules the probability 0.",
                effect=Effect.NOTHING_SAMPLED,
            )
        return share, conditioned, pieces

    def _rules(
        self,
        about: Names,
        products: int,
        condition: Condition | None = None,
        boxes: int = 1,
    ) -> Boxed:
        affordable = _NUMBERS // (8 * products * sum(self.levels.sizes))
        limit = max(4, boxes, min(_MOST_BOXES, affordable))
        return rule_boxes(self.levels, limit, about, condition)

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
        targets = tests_of(weights or {}, self.levels)
        columns = self.levels.schema.columns
        cuts_by_column = {
            j: [cut for test in targets_of_column for cut in cuts(test, columns[j])]
            for j, targets_of_column in targets.items()
        }
        if like is not None:
            cuts_by_column = {j: [] for j in known_cells(like, self.levels)}
        question = Question.read(where, self.levels, cuts_by_column)
        products = self.products(rng) if cuts_by_column else self.exact
        boxes = question.boxes(self._max_boxes(question.pieces, products))
        if not cuts_by_column or products is None:
            return self._rows(
                n,
                boxes,
                question,
                rng,
                where,
                as_drawn=True,
            )
        shares = {
            j: by_value(targets_of_column, question.pieces[j])
            for j, targets_of_column in targets.items()
        }
        if like is not None:
            shares = raking.like(like, self.levels, question.pieces)
        if boxes is None:
            raise ConfigError(
                f"{where!r} ties too many columns to be weighted as well.",
                effect=Effect.NOTHING_SAMPLED,
            )
        probability, conditioned = products.cut(question.pieces).condition_on(boxes)
        if conditioned is None:
            raise _nothing(where)
        factors = rake(conditioned, shares, self.levels.schema.names)
        frame = self._rows(
            n,
            [_weighed(box, factors) for box in boxes],
            question,
            rng,
            where,
        )
        return _with_answer(frame, frame.attrs["answer"], probability)

    def _rows(
        self,
        n: int,
        boxes: Sequence[Box] | None,
        question: Question,
        rng: Uniform,
        where: str | None,
        *,
        as_drawn: bool = False,
    ) -> pd.DataFrame:
        """Rows by the closed form where there is one, and by rejection where not.
        `as_drawn`: by rejection, too, where a target is drawn by effects, which the
        closed form does not have, and rows that fit are not rare.
        """
        pieces = question.pieces
        if self.exact is not None and boxes is not None:
            probability, conditioned = self.exact.cut(pieces).condition_on(boxes)
            if conditioned is None:
                raise _nothing(where)
            is_often = probability >= max(_OFTEN, 2 * n / MOST_POINTS)
            if as_drawn and is_often and self._has_effects:
                cells, _ = kept_rows(
                    n, self._drawn_rows(rng), pieces, by_boxes(boxes, rng)
                )
                frame = rows_of(cells, pieces, self.levels, rng)
                return _with_answer(frame, "by rejection", probability)
            frame = rows_of(
                conditioned.draw(n, rng.uniform).numpy(),
                pieces,
                self.levels,
                rng,
            )
            return _with_answer(frame, "exact", probability)
        keep = by_test(question, rng) if boxes is None else by_boxes(boxes, rng)
        cells, share = kept_rows(n, self._endless(rng), pieces, keep)
        return _with_answer(
            rows_of(cells, pieces, self.levels, rng),
            "by rejection",
            share,
        )

    def complete(
        self,
        frame: pd.DataFrame,
        draws: int,
        rng: Uniform,
    ) -> pd.DataFrame:
        products, pieces = self._in_pieces(rng, possible=True)

        def fill(rows: pd.DataFrame, draws: int) -> pd.DataFrame:
            return complete(
                rows,
                draws,
                self.levels,
                products,
                rng,
                pieces,
            )

        filled = fill(frame, draws)
        kept_filled = refilled(
            self.levels.schema,
            filled,
            lambda rows: fill(frame.iloc[rows // draws], 1),
        )
        kept_filled.attrs["answer"] = self._how()
        return kept_filled

    def predicted(
        self,
        frame: pd.DataFrame,
        target: str,
        rng: Uniform,
    ) -> Predicted:
        return Predicted.from_rows(
            frame,
            target,
            self.levels,
            *self._in_pieces(rng, [target]),
            how=self._how([target]),
        )

    def table(
        self,
        names: Names,
        where: str | None,
        rows: float | None,
        rng: Uniform,
    ) -> pd.DataFrame:
        """The share of each combination of these columns' levels among the rows that
        meet the condition.
        """
        if rows is not None:
            not_negative(rows=rows)
        axes_columns = self._positions(names)
        release = self.release if rows is None else None
        reserved = {"share", *_BARS} if release is not None else {"share", "count"}
        clash = reserved & set(names)
        if clash:
            raise ConfigError(
                f'a table has a column "{clash.pop()}" of its own.',
                effect=Effect.NOTHING_COMPUTED,
            )
        share, boxes, pieces, attributes = self._table_of(axes_columns, where, rng)
        marginals = (
            None
            if release is None
            else bars.ReleasedMarginals.from_release(
                release,
                axes_columns,
                boxes,
                pieces,
            )
        )
        labels_of_axes = map(self.levels.labels, axes_columns)
        axes = [
            pd.Series(labels, dtype="object" if None in labels else None)
            for labels in labels_of_axes
        ]
        cells = np.unravel_index(np.arange(share.numel()), share.shape)
        labels_of_cells = [
            axis.take(cell).reset_index(drop=True)
            for axis, cell in zip(axes, cells, strict=True)
        ]
        frame = pd.DataFrame(dict(zip(names, labels_of_cells, strict=True)))
        frame["share"] = share.flatten().numpy()
        if release is not None:
            rows = release.people * attributes.get("probability", 1.0)
        if rows is not None:
            frame["count"] = frame["share"] * rows
        frame.attrs |= attributes
        if marginals is not None and isinstance(noisy := marginals.table, Noisy):
            columns = (
                noisy.counts,
                noisy.deviation,
                noisy.counts - noisy.half,
                noisy.counts + noisy.half,
            )
            frame[list(_BARS[1:])] = np.stack(
                [column.flatten() for column in columns],
                axis=1,
            )
            assert release is not None
            counted = bars.released_table(
                release.as_counted,
                axes_columns,
                boxes,
                pieces,
            )
            assert isinstance(counted, Noisy)
            fitted = frame["count"].to_numpy().reshape(share.shape) * (
                1 - release.held_out
            )
            frame.attrs["bias"] = bias_of(fitted, counted) / (1 - release.held_out)
        elif marginals is not None:
            frame.attrs["released"] = marginals.table
        return frame

    def figures(
        self,
        names: Names,
        where: str | None,
        rng: Uniform,
    ) -> pd.DataFrame:
        """Total, means, correlation and odds ratio of a table: by the fit, and as
        released, with bars.
        """
        if self.release is None:
            raise ConfigError(
                "this generator came without what was released.",
                effect=Effect.NOTHING_COMPUTED,
            )
        positions = self._positions(names)
        share, boxes, pieces, attributes = self._table_of(positions, where, rng)
        counts = (
            share.numpy() * self.release.people * attributes.get("probability", 1.0)
        )
        marginals = bars.ReleasedMarginals.from_release(
            self.release,
            positions,
            boxes,
            pieces,
        )
        computed = bars.figures(
            positions,
            counts,
            marginals,
            self.levels,
            self.release,
        )
        frame = (
            pd.DataFrame([vars(figure) for figure in computed])
            .rename(columns={"name": "figure"})
            .drop(columns="why")
        )
        frame.attrs |= attributes | (
            {"released": marginals.table} if isinstance(marginals.table, str) else {}
        )
        why = {figure.name: figure.why for figure in computed if figure.why}
        if why:
            frame.attrs["why"] = why
        return frame

    def _positions(self, names: Names) -> list[int]:
        schema = self.levels.schema
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"a table is of different columns, at least one, not {names!r}."
            )
        return [schema.columns.index(schema.column(name)) for name in names]

    def _how(self, about: Names = ()) -> str:
        how = "exact" if self.exact is not None else f"by {self._points:,} draws"
        count = self._points if self.exact is None else len(self.exact.weight)
        left_out = self._rules(about, count)[2] if self.levels.schema.rules else 0
        return (
            f"{how}, but for {left_out} of the rules, which rows alone keep"
            if left_out
            else how
        )

    def _table_of(
        self,
        positions: Sequence[int],
        where: str | None,
        rng: Uniform,
    ) -> tuple[Tensor, Sequence[Box], Pieced, dict[str, Any]]:
        """The shares of a table, the boxes and pieces that the condition makes, and how
        the answer was found.
        """
        about = [self.levels.schema.names[position] for position in positions]
        attributes: dict[str, Any] = {"answer": self._how(about)}
        question = Question.read(where, self.levels)
        products = self._products(rng)
        boxes = question.boxes(self._max_boxes(question.pieces, products))
        if boxes is None:
            raise ConfigError(
                f"{where!r} ties too many columns for a table. Draw rows with it and "
                "count.",
                effect=Effect.NOTHING_COMPUTED,
            )
        rules_share, conditioned, pieces = self._condition_on_rules(products, about)
        if where is not None:
            share, conditioned, pieces = self._condition_on_rules(
                products,
                about,
                question.condition,
                len(boxes),
            )
            if conditioned is None:
                raise _nothing(where)
            attributes["probability"] = share / rules_share
        assert conditioned is not None
        products = conditioned.levels(pieces, self.levels.sizes)
        table = products.table(positions)
        return table, boxes, question.pieces, attributes

    def _max_boxes(self, pieces: Pieced, products: Products | None) -> int:
        """How many boxes a question may take, so that products given them are held at
        once.
        """
        if products is None or (self.exact is None and not self.levels.schema.rules):
            return _MOST_BOXES
        width = sum(self.levels.sizes) + sum(
            len(pieces_of_column.level) for pieces_of_column in pieces.values()
        )
        return max(1, min(_MOST_BOXES, _NUMBERS // (len(products.weight) * width)))

    def _endless(self, rng: Uniform) -> Iterator[Products]:
        while True:
            for rows in self.points(POINTS, rng):
                yield Products.from_rows(rows, self.levels.sizes)

    @property
    def _has_effects(self) -> bool:
        network = self.network
        return isinstance(network, MixtureOfProducts) and network.effects is not None

    def _drawn_rows(self, rng: Uniform) -> Iterator[Products]:
        """Rows as they are drawn without a condition, each as a product."""
        assert isinstance(self.network, MixtureOfProducts)
        sizes = torch.tensor(self.levels.sizes)
        starts = sizes.cumsum(0) - sizes
        while True:
            places = self.network.levels(POINTS, rng.uniform).long() + starts
            rows = torch.zeros(POINTS, int(sizes.sum()), dtype=torch.float64)
            yield Products.from_rows(rows.scatter_(1, places, 1.0), self.levels.sizes)


def _nothing(where: str | None) -> ConfigError:
    return ConfigError(
        f"nothing meets {where!r}: the model gives it the probability 0.",
        effect=Effect.NOTHING_SAMPLED,
    )


def _with_answer(
    frame: pd.DataFrame,
    answer: str,
    probability: float,
) -> pd.DataFrame:
    frame.attrs |= {"answer": answer, "probability": probability}
    return frame


def _weighed(box: Box, factors: Mapping[int, Tensor]) -> Box:
    """A box that allows pieces by their factors, the largest fully."""
    soft = {
        j: box.get(j, 1) * (factor / factor.max()).numpy()
        for j, factor in factors.items()
    }
    return {**box, **soft}
