"""Columns of two levels, read together: what is frequent among them is likelier for
each.

A wide table of bits leaves few reports to each column, and most bits are rare. The
shares of all columns' second levels have a law, which their reports tell: the likeliest
one on a grid (Kiefer, Wolfowitz, Annals of Mathematical Statistics 1956; by turns of
expectation and maximisation). Under it each column has the mean of its share given its
own reports (Efron, "Large-scale inference", 2010, §1). What reports say of a share is
normal around one Newton step from the table that is given, with the curvature there.

Guarantee: reads reports alone, so the tables have the privacy of the reports.
Edges: fewer than `_COLUMNS` of two levels, or one that nobody was asked about → its
table as it is given.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.protocols.one_report.fit import Heard, Term
from understudy.protocols.one_report.given_target import (
    likeliest_law,
    posterior_of,
    slope_and_curvature,
)

# fewer columns hardly tell a law: adult's two and bank's four keep their tables
_COLUMNS = 16
_GRID = 201  # shares from 0 to 1: finer than the noise of any report on many columns
_TURNS = 60  # nearly where they end, and the law is still smooth


def read_together(
    all_heard: Sequence[Heard],
    levels: Sequence[int],
    ways: Sequence[Tensor],
) -> list[Tensor]:
    """The one-way tables, those of two levels by what all of these say."""
    slope = torch.zeros(len(levels), dtype=torch.float64)
    curvature = torch.zeros(len(levels), dtype=torch.float64)
    for heard in all_heard:
        columns = [column for column in heard.about.columns if levels[column] == 2]
        if not heard.reports or not columns:
            continue
        term = Term(heard, levels, heard.mechanism.lift)
        moves = [_moved(term, ways, column) for column in columns]
        table = _table(term, ways)
        slopes, curvatures = slope_and_curvature(heard, table, torch.stack(moves, 1))
        slope[columns] += slopes
        curvature[columns] += curvatures.diagonal()
    bits = torch.nonzero(curvature)[:, 0]
    read = [way.clone() for way in ways]
    if len(bits) < _COLUMNS:
        return read
    given = torch.stack([ways[bit][1] for bit in bits.tolist()])
    precisions = curvature[bits]
    estimates = given + slope[bits] / precisions
    shares = _means(estimates, precisions)
    for bit, share in zip(bits.tolist(), shares, strict=True):
        read[bit] = torch.stack([1 - share, share])
    return read


def _moved(
    term: Term,
    ways: Sequence[Tensor],
    column: int,
) -> Tensor:
    """What each cell of a set gains as the column's second level takes all: (cells,).
    A cell's probability is linear in it.
    """
    ends = []
    for level in (1, 0):
        certain = [*ways]
        certain[column] = torch.eye(2, dtype=torch.float64)[level]
        ends.append(_table(term, certain))
    return ends[0] - ends[1]


def _table(term: Term, ways: Sequence[Tensor]) -> Tensor:
    """The probability of each cell of a set, were columns independent: (cells,)."""
    return term.table(torch.cat(list(ways)).float()[None]).double()


def _means(estimates: Tensor, precisions: Tensor) -> Tensor:
    """Each share's mean given its estimate, by the likeliest law of all: (columns,)."""
    grid = torch.linspace(
        0,
        1,
        _GRID,
        dtype=torch.float64,
    )
    squares = (estimates[:, None] - grid).square()
    logs = -precisions[:, None] * squares / 2
    likely = (logs - logs.amax(1, keepdim=True)).exp()  # (columns, grid)
    law = likeliest_law(likely, _TURNS)
    return posterior_of(likely, law) @ grid
