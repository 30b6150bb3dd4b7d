"""Rows with one column in place of each group of which exactly one column is 1
(`data.column.one_of`), and back.

Guarantee: each row by itself and the public schema, so it costs no privacy. A person
has one level of a group.
Edges: a row in which not exactly one is 1 does not fit, as a value outside of a
declared domain. Rows that were folded before are taken as they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Boolean, OneOf
from understudy.data.encoding.values import Cells, Places
from understudy.data.reading.cells import Fault, read_cells
from understudy.data.reading.written import Raw
from understudy.ground.errors import SchemaError

Ones = NDArray[np.bool_]


def groups_of(schema: object) -> list[OneOf]:
    """The groups of a table's schema; none of any other."""
    return [
        column for column in getattr(schema, "columns", ()) if isinstance(column, OneOf)
    ]


def fold_raw(raw: Raw, groups: Iterable[OneOf]) -> Raw:
    """A table as it stands, or its header, with one column for each group whose columns
    are all there.
    """
    for group in groups:
        names = group.part_names
        if not all(raw.header.count(name) == 1 for name in names):
            continue
        columns = {
            name: cells for name, cells in raw.columns.items() if name not in names
        }
        faults = list(raw.faults)
        if all(name in raw.columns for name in names):
            columns[group.name], group_faults = _fold(
                group, [raw.columns[name] for name in names], raw.numbers
            )
            faults += group_faults
        remaining_labels = [label for label in raw.header if label not in names[1:]]
        header = [
            group.name if label == names[0] else label for label in remaining_labels
        ]
        raw = replace(raw, header=header, columns=columns, faults=tuple(faults))
    return raw


def fold(frame: pd.DataFrame, schema: object) -> pd.DataFrame:
    """Rows with one column for each group whose columns they have, without a value
    where all of these are missing.
    """
    for group in groups_of(schema):
        names = list(group.part_names)
        present = [name for name in names if name in frame]
        if not present:
            continue
        lacking = [name for name in names if name not in frame]
        if lacking:
            raise group.error(f'the rows have "{present[0]}" and lack "{lacking[0]}".')
        has_value = frame[names].notna().any(axis=1).to_numpy()
        cells = [frame.loc[has_value, name].reset_index(drop=True) for name in names]
        levels, faults = _fold(group, cells, np.flatnonzero(has_value) + 1)
        if faults:
            row = "" if faults[0].rows is None else f", row {int(faults[0].rows[0]):,}"
            raise SchemaError(
                f'column "{faults[0].column}"{row}: the cell {faults[0].reason}'
            )
        folded = np.full(len(frame), None, dtype=object)
        folded[has_value] = levels.to_numpy(object)
        frame = frame.drop(columns=names[1:]).rename(columns={names[0]: group.name})
        frame[group.name] = pd.Series(folded, index=frame.index, dtype=object)
    return frame


def unfold(frame: pd.DataFrame, schema: object) -> pd.DataFrame:
    """Rows with all columns of each group in place of the group."""
    groups = {group.name: group for group in groups_of(schema) if group.name in frame}
    if not groups:
        return frame
    columns: dict[Any, Cells] = {}
    for name, cells in frame.items():
        columns |= (
            _unfold(groups[str(name)], cells) if name in groups else {name: cells}
        )
    unfolded = pd.DataFrame(columns, index=frame.index)
    unfolded.attrs = frame.attrs
    return unfolded


def _unfold(group: OneOf, cells: Cells) -> dict[str, Cells]:
    chosen = cells.to_numpy(object)
    columns = {}
    for part in group.parts:
        no, yes = part.values
        dtype = object if isinstance(no, str) else type(no)
        values = np.where(chosen == part.name, yes, no)
        columns[part.name] = pd.Series(values, index=cells.index, dtype=dtype)
    return columns


def _fold(
    group: OneOf, cells: Sequence[Cells], numbers: Places
) -> tuple[Cells, list[Fault]]:
    """Of each row the name of the column that is 1, and every fault; `numbers`:
    rows'.
    """
    read = [
        _ones(part, column_cells, numbers)
        for part, column_cells in zip(group.parts, cells, strict=True)
    ]
    faults = [fault for _, column_faults in read for fault in column_faults]
    ones = np.stack([column_cells for column_cells, _ in read], axis=1)
    counts = ones.sum(axis=1)
    wrong = counts > 1 if group.nullable else counts != 1
    if wrong.any() and not faults:
        faults.append(
            Fault(
                column=group.name,
                rows=numbers[wrong],
                values=counts[wrong],
                reason=group.rule,
            )
        )
    # else it is a fault, which no second one has to repeat
    none = (counts == 0) & group.nullable
    levels = np.where(none, -1, ones.argmax(axis=1))
    names = pd.Index(group.part_names, dtype=object)
    return pd.Series(pd.Categorical.from_codes(levels, categories=names)), faults


def _ones(part: Boolean, cells: Cells, numbers: Places) -> tuple[Ones, list[Fault]]:
    """Which cells are 1, and what is wrong with others."""
    if (
        isinstance(cells.dtype, np.dtype)
        and cells.dtype.kind in "biu"
        and not isinstance(part.values[0], str)
    ):
        values = cells.to_numpy()
        if np.isin(values, (0, 1)).all():
            return values == 1, []
    read, faults = read_cells(part, cells, numbers)
    if faults:
        return np.zeros(len(cells), dtype=bool), faults
    return (read == part.values[1]).to_numpy(bool), []
