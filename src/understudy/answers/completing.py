"""What is not known of rows, given what is: fill it, or predict one column of it.

A known cell is evidence about the product that a row comes from (Bayes' rule); given
the product, columns are independent. So all that is known of a row is in its posterior
over products. Columns that rules cut come in `pieces`: products have odds of these, and
what is known of them is known to the piece.

A gap in a column of the frame is to be filled: it gets a value, never "missing". A
column that the frame does not have is drawn as the model draws it, missing values
included. A target is predicted as something that is there, and there a gap says
nothing.

Edges: a cell outside its declared domain, or a column that is not declared →
SchemaError, and nothing is drawn. A row that the model holds to be impossible →
ConfigError.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.products import Products, pick
from understudy.answers.question import Levels
from understudy.data.column import Boolean, Categorical, Column, Date, Datetime, Real
from understudy.data.encoding.codec import Codes, Uniform
from understudy.data.encoding.values import Pieced, Pieces, dtype, labels_of, places_of
from understudy.ground.check import in_range, nearest, whole
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.models.tables.mixture import invert

_AT_ONCE = 1 << 21  # numbers of posteriors at a time

Known = Mapping[int, Codes]
_NONE: Pieced = MappingProxyType({})


def complete(
    frame: pd.DataFrame,
    draws: int,
    levels: Levels,
    products: Products,
    rng: Uniform,
    pieces: Pieced = _NONE,
) -> pd.DataFrame:
    """Each row `draws` times, what it lacks drawn given what it has, which stays;
    columns it had not come last.
    """
    whole(draws=draws)
    known = known_cells(frame, levels, pieces)
    every = {j: levels.pieces(j) for j in range(len(levels.sizes))} | dict(pieces)
    gaps = {j: every[j] for j, codes in known.items() if (codes < 0).any()}
    absent = {j: own for j, own in every.items() if j not in known}
    whole_levels = {j: own for j, own in {**gaps, **absent}.items() if j not in pieces}
    model = _there(products.cut(whole_levels), gaps)
    cells = {j: np.zeros((len(frame), draws), dtype=np.int32) for j in (*gaps, *absent)}
    widest = max((model.odds[j].shape[1] for j in cells), default=1)
    for rows, chance in _posteriors(
        known, len(frame), products, model, gaps, each=draws * widest
    ):
        own = pick(chance, rng.uniform(len(chance), draws)).flatten()
        for j, cell in cells.items():
            cell[rows] = (
                invert(model.odds[j][own], rng.uniform(len(own)))
                .reshape(-1, draws)
                .numpy()
            )
    whole_rows = frame.loc[:, list(frame.columns)].iloc[
        np.repeat(np.arange(len(frame)), draws)
    ]
    index = whole_rows.index
    whole_rows = whole_rows.reset_index(drop=True)
    for j, part in {**gaps, **absent}.items():
        column = levels.schema.columns[j]
        values = part.values(
            cells[j].flatten(), rng.uniform(len(frame) * draws).numpy()
        )
        if j in gaps:
            values = _filled(
                column, whole_rows[column.name], np.repeat(known[j] < 0, draws), values
            )
        whole_rows[column.name] = values
    return whole_rows.set_axis(index)


@dataclass(frozen=True, eq=False)
class Predicted:
    """A target that is there, for each row of a frame: its pieces, and the probability
    of each, (rows, pieces).
    """

    frame: pd.DataFrame
    pieces: Pieces
    chances: NDArray[np.float64]
    how: str

    @classmethod
    def from_rows(
        cls,
        frame: pd.DataFrame,
        target: str,
        levels: Levels,
        products: Products,
        cut: Pieced,
        how: str,
    ) -> "Predicted":
        """From all that is known of each row besides."""
        place = levels.schema.columns.index(levels.schema.column(target))
        pieces = levels.pieces(place)
        known = known_cells(frame.drop(columns=target, errors="ignore"), levels, cut)
        whole_target = (
            _merged(products, place, cut[place], pieces)
            if place in cut
            else products.cut({place: pieces})
        )
        model = _there(whole_target, {place: pieces})
        chances = np.zeros((len(frame), pieces.there))
        for rows, chance in _posteriors(known, len(frame), products, model, {}):
            chances[rows] = (
                chance.exp() @ model.odds[place][:, : pieces.there]
            ).numpy()
        return cls(frame, pieces, chances / chances.sum(1, keepdims=True), how)

    def probabilities(self) -> pd.DataFrame:
        names = labels_of(self.pieces.column)[: self.pieces.there]
        found = pd.DataFrame(self.chances, index=self.frame.index, columns=names)
        found.attrs["answer"] = self.how
        return found

    def mean(self) -> "pd.Series[float]":
        low, high = bounds(self.pieces)
        return self._series(self.chances @ ((low + high) / 2))

    def quantile(self, q: float) -> "pd.Series[float]":
        in_range(0, 1, q=q)
        return self._series(quantile_of(self.pieces, self.chances, q))

    def _series(self, values: NDArray[np.float64]) -> "pd.Series[float]":
        found = pd.Series(values, index=self.frame.index, name=self.pieces.column.name)
        found.attrs["answer"] = self.how
        return found


def quantile_of(
    pieces: Pieces, chances: NDArray[np.float64], q: float
) -> NDArray[np.float64]:
    """The value below which a number lies with probability `q`, where its pieces have
    these chances (…, pieces).
    """
    low, high = bounds(pieces)
    order = np.argsort(low)
    chances = chances[..., order]
    low = low[order]
    high = high[order]
    heap = np.cumsum(chances, axis=-1)
    place = np.minimum((heap < q).sum(axis=-1), len(low) - 1)
    own = np.take_along_axis(chances, place[..., None], -1)[..., 0]
    before = np.take_along_axis(heap, place[..., None], -1)[..., 0] - own
    share = np.clip((q - before) / np.maximum(own, np.finfo(float).tiny), 0, 1)
    values = low[place] + share * (high - low)[place]
    # [low − ½, high + ½): the whole number there
    if pieces.edges is not None and pieces.edges.dtype.kind == "i":
        values = np.clip(np.rint(values), low[place] + 0.5, high[place] - 0.5)
    return np.asarray(values)


def known_cells(frame: pd.DataFrame, levels: Levels, pieces: Pieced = _NONE) -> Known:
    """The levels of a frame's cells, or their `pieces`, column by column, −1 where one
    is missing.
    """
    names = levels.schema.names
    person = levels.schema.person
    if not frame.columns.is_unique:
        raise SchemaError(
            "the frame has two columns of one name.", effect=Effect.NOTHING_SAMPLED
        )
    strange = [name for name in frame.columns if name not in names and name != person]
    if strange:
        raise SchemaError(
            f'there is no column "{strange[0]}".{nearest(strange[0], names)}',
            effect=Effect.NOTHING_SAMPLED,
        )
    known = {
        j: levels.known_levels(j, frame[name])
        for j, name in enumerate(names)
        if name in frame.columns
    }
    for j in known.keys() & pieces.keys():
        places = places_of(pieces[j], frame[names[j]]).astype(np.int32)
        known[j] = np.where(known[j] < 0, np.int32(-1), places)
    return known


def _merged(products: Products, j: int, finer: Pieces, pieces: Pieces) -> Products:
    """Products in finer pieces of a column in the pieces that these are parts of."""
    whole_pieces = np.arange(len(finer.level))
    if finer.edges is not None and pieces.edges is not None:
        whole_pieces = np.searchsorted(pieces.edges, finer.edges[:-1], side="right") - 1
        whole_pieces = np.append(whole_pieces, len(pieces.level) - 1)[
            : len(finer.level)
        ]
    odds = torch.zeros(len(products.weight), len(pieces.level), dtype=torch.float64)
    odds.index_add_(1, torch.from_numpy(whole_pieces), products.odds[j])
    return Products(
        products.weight, (*products.odds[:j], odds, *products.odds[j + 1 :])
    )


def _there(products: Products, pieces: Pieced) -> Products:
    """The odds of these columns without their missing piece. They no longer sum
    to 1.
    """
    odds = list(products.odds)
    for j, own in pieces.items():
        odds[j] = odds[j].clone()
        odds[j][:, own.there :] = 0
    return Products(products.weight, tuple(odds))


def _posteriors(
    known: Known,
    n: int,
    products: Products,
    model: Products,
    gaps: Pieced,
    each: int = 1,
) -> Iterator[tuple[slice, Tensor]]:
    """log P(product | row), some rows at a time, of `each` numbers; by known cells, and
    that gaps hold values.
    """
    there = {
        j: model.odds[j].sum(1).log() for j, own in gaps.items() if own.column.nullable
    }
    step = max(1, _AT_ONCE // max(each, len(products.weight)))
    for start in range(0, n, step):
        rows = slice(start, min(n, start + step))
        some = {j: torch.from_numpy(codes[rows]) for j, codes in known.items()}
        chance = products.with_known(some, rows.stop - start)
        for j, own in there.items():
            chance[some[j] < 0] += own
        total = chance.logsumexp(1, keepdim=True)
        impossible = torch.isneginf(total[:, 0])
        if impossible.any():
            raise ConfigError(
                f"row {start + int(impossible.int().argmax()) + 1:,}: none of the "
                f"model's {len(products.weight):,} kinds of rows has what is known of "
                "it. Leave out cells that matter less.",
                effect=Effect.NOTHING_SAMPLED,
            )
        yield rows, chance - total


def _filled(
    column: Column,
    own: "pd.Series[Any]",
    gap: NDArray[np.bool_],
    drawn: "pd.Series[Any]",
) -> "pd.Series[Any]":
    if isinstance(column, Boolean):
        own = own.eq(1)
    elif isinstance(column, Date | Datetime):
        own = pd.to_datetime(own)
    return pd.Series(
        np.where(gap, drawn.to_numpy(object), own.to_numpy(object)), dtype=dtype(column)
    )


def bounds(pieces: Pieces) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between which numbers each piece lies, whole numbers ± ½. SchemaError where a
    column has no numbers.
    """
    column = pieces.column
    if isinstance(column, Categorical) and not isinstance(column.categories[0], str):
        values = np.array(column.categories, dtype=np.float64)
        return values, values
    if pieces.edges is None or isinstance(column, Date | Datetime):
        raise column.error(
            f"a {column.kind} column has no mean and no quantiles. See predict_proba."
        )
    half = 0.5 if pieces.edges.dtype.kind == "i" else 0.0
    return pieces.edges[:-1] - half, pieces.edges[1:] - half


def number_bounds(pieces: Pieces) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same, with numbers of so many decimals ± ½ of the last one: their mean is
    then the middle of a piece.
    """
    low, high = bounds(pieces)
    decimals = pieces.column.decimals if isinstance(pieces.column, Real) else None
    half = 0.0 if decimals is None else 0.5 * 10.0**-decimals
    return low - half, high - half
