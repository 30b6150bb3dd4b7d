"""What a party's rows are to a vertical GAN: one-hot vectors of a table, or values in [0, 1] of series and images.

Guarantee: the vector of a row depends on that row and the public schema alone.
"""

import pandas as pd
import torch
from torch import Tensor

from understudy.data.described import AnySchema, Rows
from understudy.data.encoding.codec import Codec
from understudy.data.images import ImageSchema
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.models.nets import Output, Values
from understudy.protocols.core.roster import places


def output_of(schema: AnySchema) -> Output:
    """What a branch of the generator ends in for rows of this schema."""
    if isinstance(schema, Schema):
        return Codec(schema).sizes
    if isinstance(schema, ImageSchema):
        return Values(schema.grey_shape, image=True)
    return Values(schema.shape)


def encode(rows: Rows, aligned: pd.DataFrame, device: torch.device) -> Tensor:
    """The rows that are left of the roster after alignment, in its order: (people, width)."""
    if isinstance(rows, Table):
        return Codec(rows.schema).encode(aligned, device)
    return torch.from_numpy(rows.values[places(aligned)]).flatten(1).to(device)
