"""What is not known of rows, given what is: fill it, or predict one column of it.

A known cell is evidence about the product that a row comes from (Bayes' rule); given
the product, columns are independent. So all that is known of a row is in its posterior
over products. Columns that rules cut come in `pieces`: products have probabilities of
these, and what is known of them is known to the piece.

A gap in a column of the frame is to be filled: it gets a value, never "missing". A
column that the frame does not have is drawn as the model draws it, missing values
included. A target is predicted as something that is there, and there a gap says
nothing.

Edges: a cell outside its declared domain, or a column that is not declared →
SchemaError, and nothing is drawn. A row that the model holds to be impossible →
ConfigError.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    n = len(frame)
    known_codes = known_cells(frame, levels, pieces)
    all_pieces = {j: levels.pieces(j) for j in range(len(levels.sizes))} | dict(pieces)
    gaps = {}
    absent = {}
    for j, column_pieces in all_pieces.items():
        if j not in known_codes:
            absent[j] = column_pieces
        elif (known_codes[j] < 0).any():
            gaps[j] = column_pieces
    to_fill = {**gaps, **absent}
    whole_levels = {j: to_fill[j] for j in to_fill if j not in pieces}
    model = _without_missing(products.cut(whole_levels), gaps)
    widths = [model.probabilities[j].shape[1] for j in to_fill]
    row_size = draws * max(widths, default=1)
    posteriors = _posteriors(
        known_codes,
        n,
        products,
        model,
        gaps,
        row_size,
    )
    shape = (n, draws)
    cells = _sample_cells(
        posteriors,
        model,
        list(to_fill),
        shape,
        rng,
    )
    source_rows = np.repeat(np.arange(n), draws)
    columns = list(frame.columns)
    repeated = frame.loc[:, columns].iloc[source_rows]
    completed = repeated.reset_index(drop=True)
    for j, column_pieces in to_fill.items():
        column = levels.schema.columns[j]
        uniforms = rng.uniform(n * draws)
        values = column_pieces.values(cells[j], uniforms.numpy())
        if j in gaps:
            is_gap = np.repeat(known_codes[j] < 0, draws)
            values = _fill_gaps(
                column,
                completed[column.name],
                is_gap,
                values,
            )
        completed[column.name] = values
    return completed.set_axis(repeated.index)


def _sample_cells(
    posteriors: Iterator[tuple[slice, Tensor]],
    model: Products,
    columns: Sequence[int],
    shape: tuple[int, int],
    rng: Uniform,
) -> dict[int, Codes]:
    """The pieces of these columns, row by row and draw by draw: (rows · draws,)."""
    cells = {j: np.zeros(shape, dtype=np.int32) for j in columns}
    draws = shape[1]
    for rows, posterior in posteriors:
        uniforms = rng.uniform(len(posterior), draws)
        product = pick(posterior, uniforms).flatten()
        for j, codes in cells.items():
            probabilities = model.probabilities[j][product]
            level = invert(probabilities, rng.uniform(len(product)))
            codes[rows] = level.reshape(-1, draws).numpy()
    return {j: codes.flatten() for j, codes in cells.items()}


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
        j = levels.schema.columns.index(levels.schema.column(target))
        pieces = levels.pieces(j)
        features = frame.drop(columns=target, errors="ignore")
        known_codes = known_cells(features, levels, cut)
        if j in cut:
            model = _merge_pieces(products, j, cut[j], pieces)
        else:
            model = products.cut({j: pieces})
        model = _without_missing(model, {j: pieces})
        n = len(frame)
        target_probabilities = model.probabilities[j][:, : pieces.there]
        chances = np.zeros((n, pieces.there))
        for rows, posterior in _posteriors(
            known_codes,
            n,
            products,
            model,
            {},
        ):
            row_chances = posterior.exp() @ target_probabilities
            chances[rows] = row_chances.numpy()
        chances = chances / chances.sum(1, keepdims=True)
        return cls(frame, pieces, chances, how)

    def probabilities(self) -> pd.DataFrame:
        labels = labels_of(self.pieces.column)
        frame = pd.DataFrame(
            self.chances,
            index=self.frame.index,
            columns=labels[: self.pieces.there],
        )
        frame.attrs["answer"] = self.how
        return frame

    def mean(self) -> "pd.Series[float]":
        low, high = bounds(self.pieces)
        middle = (low + high) / 2
        return self._series(self.chances @ middle)

    def quantile(self, q: float) -> "pd.Series[float]":
        in_range(0, 1, q=q)
        values = quantile_of(self.pieces, self.chances, q)
        return self._series(values)

    def _series(self, values: NDArray[np.float64]) -> "pd.Series[float]":
        name = self.pieces.column.name
        series = pd.Series(values, index=self.frame.index, name=name)
        series.attrs["answer"] = self.how
        return series


def quantile_of(
    pieces: Pieces,
    chances: NDArray[np.float64],
    q: float,
) -> NDArray[np.float64]:
    """The value below which a number lies with probability `q`, where its pieces have
    these chances (…, pieces).
    """
    low, high = bounds(pieces)
    order = np.argsort(low)
    chances = chances[..., order]
    cumulative = np.cumsum(chances, axis=-1)
    n_below = (cumulative < q).sum(axis=-1)
    index = np.minimum(n_below, len(low) - 1)
    inside = _take(chances, index)
    below = _take(cumulative, index) - inside
    share = (q - below) / np.maximum(inside, np.finfo(float).tiny)
    lower = low[order][index]
    upper = high[order][index]
    values = lower + np.clip(share, 0, 1) * (upper - lower)
    # [low − ½, high + ½): the whole number there
    if pieces.edges is not None and pieces.edges.dtype.kind == "i":
        values = np.clip(np.rint(values), lower + 0.5, upper - 0.5)
    return np.asarray(values)


def _take(values: NDArray[np.float64], index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each row (…, n) the value at its index (…)."""
    taken = np.take_along_axis(values, index[..., None], -1)
    return taken[..., 0]


def known_cells(
    frame: pd.DataFrame,
    levels: Levels,
    pieces: Pieced = _NONE,
) -> Known:
    """The levels of a frame's cells, or their `pieces`, column by column, −1 where one
    is missing.
    """
    names = levels.schema.names
    person = levels.schema.person
    if not frame.columns.is_unique:
        raise SchemaError(
            "the frame has two columns of one name.",
            effect=Effect.NOTHING_SAMPLED,
        )
    strange = [name for name in frame.columns if name not in names and name != person]
    if strange:
        raise SchemaError(
            f'there is no column "{strange[0]}".{nearest(strange[0], names)}',
            effect=Effect.NOTHING_SAMPLED,
        )
    known_codes = {
        j: levels.known_levels(j, frame[name])
        for j, name in enumerate(names)
        if name in frame.columns
    }
    for j in known_codes.keys() & pieces.keys():
        positions = places_of(pieces[j], frame[names[j]]).astype(np.int32)
        is_missing = known_codes[j] < 0
        known_codes[j] = np.where(is_missing, np.int32(-1), positions)
    return known_codes


def _merge_pieces(
    products: Products,
    j: int,
    finer: Pieces,
    pieces: Pieces,
) -> Products:
    """Products in finer pieces of a column in the pieces that these are parts of."""
    n_finer = len(finer.level)
    n_pieces = len(pieces.level)
    if finer.edges is None or pieces.edges is None:
        piece_of = np.arange(n_finer)
    else:
        after = np.searchsorted(pieces.edges, finer.edges[:-1], side="right")
        missing = n_pieces - 1
        piece_of = np.append(after - 1, missing)[:n_finer]
    blocks = list(products.probabilities)
    merged = torch.zeros(len(products.weight), n_pieces, dtype=torch.float64)
    merged.index_add_(1, torch.from_numpy(piece_of), blocks[j])
    blocks[j] = merged
    return Products(products.weight, tuple(blocks))


def _without_missing(products: Products, pieces: Pieced) -> Products:
    """The same products, but for the missing piece of these columns: their
    probabilities no longer sum to 1.
    """
    blocks = list(products.probabilities)
    for j, column in pieces.items():
        present = blocks[j].clone()
        present[:, column.there :] = 0
        blocks[j] = present
    return Products(products.weight, tuple(blocks))


def _posteriors(
    known: Known,
    n: int,
    products: Products,
    model: Products,
    gaps: Pieced,
    row_size: int = 1,
) -> Iterator[tuple[slice, Tensor]]:
    """log P(product | row), some rows at a time, of `row_size` numbers; by known cells,
    and that gaps hold values.
    """
    log_present = {
        j: model.probabilities[j].sum(1).log()
        for j, pieces in gaps.items()
        if pieces.column.nullable
    }
    step = max(1, _AT_ONCE // max(row_size, len(products.weight)))
    for start in range(0, n, step):
        rows = slice(start, min(n, start + step))
        codes = {j: torch.from_numpy(column[rows]) for j, column in known.items()}
        joint = products.with_known(codes, rows.stop - start)
        for j, log_chance in log_present.items():
            joint[codes[j] < 0] += log_chance
        evidence = joint.logsumexp(1, keepdim=True)
        impossible = torch.isneginf(evidence[:, 0])
        if impossible.any():
            first_impossible = start + int(impossible.int().argmax())
            raise ConfigError(
                f"row {first_impossible + 1:,}: none of the "
                f"model's {len(products.weight):,} kinds of rows has what is known of "
                "it. Leave out cells that matter less.",
                effect=Effect.NOTHING_SAMPLED,
            )
        yield rows, joint - evidence


def _fill_gaps(
    column: Column,
    values: "pd.Series[Any]",
    gap: NDArray[np.bool_],
    sampled: "pd.Series[Any]",
) -> "pd.Series[Any]":
    if isinstance(column, Boolean):
        values = values.eq(1)
    elif isinstance(column, Date | Datetime):
        values = pd.to_datetime(values)
    filled = np.where(gap, sampled.to_numpy(object), values.to_numpy(object))
    return pd.Series(filled, dtype=dtype(column))


def bounds(pieces: Pieces) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between which numbers each piece lies, whole numbers ± ½. SchemaError where a
    column has no numbers.
    """
    column = pieces.column
    edges = pieces.edges
    if isinstance(column, Categorical) and not isinstance(column.categories[0], str):
        values = np.array(column.categories, dtype=np.float64)
        return values, values
    if edges is None or isinstance(column, Date | Datetime):
        raise column.error(
            f"a {column.kind} column has no mean and no quantiles. See predict_proba."
        )
    half = 0.5 if edges.dtype.kind == "i" else 0.0
    centred = edges - half
    return centred[:-1], centred[1:]


def number_bounds(pieces: Pieces) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same, with numbers of so many decimals ± ½ of the last one: their mean is
    then the middle of a piece.
    """
    low, high = bounds(pieces)
    column = pieces.column
    if not isinstance(column, Real) or column.decimals is None:
        return low, high
    half = 0.5 * 10.0**-column.decimals
    return low - half, high - half
