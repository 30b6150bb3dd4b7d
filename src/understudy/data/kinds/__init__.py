"""One object for each kind of rows: tables, images, series, people with events; and of generators what these are side
by side. What is done in another way for another kind is a method of the object, and nobody else asks which kind it is.

A new kind is a file here and a name in `brought`, and above a file or an entry under its name: how it is drawn
(`generators.kinds`), compared (`report.compared`), measured for a page (`report.measure`) and pooled
(`protocols.sgde.kinds`), as far as it is.
"""

from understudy.data.kinds.arrays import ARRAYS
from understudy.data.kinds.brought import (
    BROUGHT,
    FLAT,
    kind_of,
    load_schema,
    one_kind_of_row,
    population_of,
    read_rows,
    schema_from,
)
from understudy.data.kinds.images import IMAGES
from understudy.data.kinds.kind import Family, Flat, Kind, places
from understudy.data.kinds.mixed import MixedSchema, load_any, side_by_side, sizes_of
from understudy.data.kinds.series import SERIES
from understudy.data.kinds.table import TABLE
from understudy.data.kinds.visits import EVENTS, VISITS

__all__ = [
    "ARRAYS",
    "BROUGHT",
    "EVENTS",
    "FLAT",
    "IMAGES",
    "SERIES",
    "TABLE",
    "VISITS",
    "Family",
    "Flat",
    "Kind",
    "MixedSchema",
    "kind_of",
    "load_any",
    "load_schema",
    "one_kind_of_row",
    "places",
    "population_of",
    "read_rows",
    "schema_from",
    "side_by_side",
    "sizes_of",
]
