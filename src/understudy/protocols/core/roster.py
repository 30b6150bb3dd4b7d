"""Who has a row, whatever the rows are: what of tables, series and images is aligned.

Guarantee: nobody has two rows, so that a row is no less than a person.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.described import Rows
from understudy.data.schema import Integer, Schema
from understudy.data.table import Table
from understudy.errors import PartyError

_PLACE = "row"


def roster(rows: Rows) -> Table:
    """The table itself, or the ids of series and images with their places.

    Edges: a person with several series or images → PartyError, since a row would then be less than a person.
    """
    if isinstance(rows, Table):
        return rows
    if (np.diff(rows.starts) > 1).any():
        raise PartyError(
            f"{rows.source} has {rows.rows:,} rows of {len(rows.ids):,} people, and where parties hold the same people "
            "each has one row of every person. Nothing was charged."
        )
    person = rows.schema.person
    frame = pd.DataFrame({_PLACE: np.arange(rows.rows)})
    if person is not None:
        frame.insert(0, person, rows.people)
    place = Integer(name=_PLACE, low=0, high=rows.rows, bins=1)
    return Table(frame=frame, schema=Schema(columns=(place,), person=person), source=rows.source)


def places(aligned: pd.DataFrame) -> NDArray[np.int64]:
    """Of series and images: which rows are left of the roster after alignment, in its order."""
    return np.asarray(aligned[_PLACE].to_numpy(), dtype=np.int64)
