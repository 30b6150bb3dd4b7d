"""What a party's rows are to a vertical GAN: one-hot vectors of a table, or values in [0, 1] of series and images.

Guarantee: the vector of a row depends on that row and the public schema alone.
"""

from collections.abc import Callable
from typing import Any

from understudy.data.described import AnySchema
from understudy.data.kinds import IMAGES, SERIES, TABLE
from understudy.models.nets.gan import Output, Values

_OUTPUTS: dict[str, Callable[[Any], Output]] = {
    TABLE.name: TABLE.sizes,
    IMAGES.name: lambda schema: Values(schema.grey_shape, image=True),
    SERIES.name: lambda schema: Values(schema.shape),
}


def output_of(schema: AnySchema) -> Output:
    """What a branch of the generator ends in for rows of this schema."""
    return _OUTPUTS[schema.kind](schema)
