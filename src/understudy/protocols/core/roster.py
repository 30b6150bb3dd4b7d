"""Who has a row, whatever the rows are: what of tables, series, images and people with events is aligned.

Guarantee: nobody has two places, so that a place is no less than a person; of people with events, or with several
series or images, it is a person with all of them.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.described import AnyRows
from understudy.data.schema import Integer, Schema
from understudy.data.table import Table
from understudy.data.visits import Visits
from understudy.ground.errors import PartyError

_PLACE = "row"


def roster(rows: AnyRows, *, several: bool = False) -> Table:
    """The table itself, or the ids of series, images and people with events, with their places.

    `several`: a person may have more than one series or image, and a place is that of the person among those who have
    any. Edges: without it such a person → PartyError, since a row would then be less than a person.
    """
    if isinstance(rows, Table):
        return rows
    if isinstance(rows, Visits):
        return _placed(rows.people, rows.schema.person, rows.source)
    if several:
        return _placed(rows.ids[np.diff(rows.starts) > 0], rows.schema.person, rows.source)
    if (np.diff(rows.starts) > 1).any():
        raise PartyError(
            f"{rows.source} has {rows.rows:,} rows of {len(rows.ids):,} people, and where parties hold the same people "
            "each has one row of every person. Nothing was charged."
        )
    return _placed(rows.people, rows.schema.person, rows.source)


def _placed(people: NDArray[Any], person: str | None, source: str) -> Table:
    frame = pd.DataFrame({_PLACE: np.arange(len(people))})
    if person is not None:
        frame.insert(0, person, people)
    place = Integer(name=_PLACE, low=0, high=len(people), bins=1)
    return Table(frame=frame, schema=Schema(columns=(place,), person=person), source=source)


def places(aligned: pd.DataFrame) -> NDArray[np.int64]:
    """Of all but tables: which rows are left of the roster after alignment, in its order."""
    return np.asarray(aligned[_PLACE].to_numpy(), dtype=np.int64)
