"""What a party's rows are to a vertical GAN: one-hot vectors of a table, or values in [0, 1] of series and images.

Guarantee: the vector of a row depends on that row and the public schema alone, and nobody has two rows.
"""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from understudy.data.codec import Codec
from understudy.data.described import AnySchema, Rows
from understudy.data.images import ImageSchema
from understudy.data.schema import Integer, Schema
from understudy.data.table import Table
from understudy.errors import PartyError
from understudy.models.nets import Output, Values

_PLACE = "row"


def output_of(schema: AnySchema) -> Output:
    """What a branch of the generator ends in for rows of this schema."""
    if isinstance(schema, Schema):
        return Codec(schema).sizes
    return Values(schema.shape, image=isinstance(schema, ImageSchema))


def roster(rows: Rows) -> Table:
    """Who has a row, to be aligned: the table itself, or the ids of series and images with their places.

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


def encode(rows: Rows, aligned: pd.DataFrame, device: torch.device) -> Tensor:
    """The rows that are left of the roster after alignment, in its order: (people, width)."""
    if isinstance(rows, Table):
        return Codec(rows.schema).encode(aligned, device)
    return torch.from_numpy(rows.values[aligned[_PLACE].to_numpy()]).flatten(1).to(device)
