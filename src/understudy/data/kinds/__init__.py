"""One object for each kind of rows: tables, images, series, people with events; and of generators what these are side
by side. What is done in another way for another kind is a method of the object, and nobody else asks which kind it is.

A new kind is a class here and a name in `brought`, and above a file or an entry under its name: how it is drawn
(`generators.kinds`), compared (`report.compared`), measured for a page (`report.measure`) and pooled
(`protocols.sgde.kinds`), as far as it is.
"""

from understudy.data.kinds.brought import BROUGHT as BROUGHT
from understudy.data.kinds.brought import EVENTS as EVENTS
from understudy.data.kinds.brought import FLAT as FLAT
from understudy.data.kinds.brought import VISITS as VISITS
from understudy.data.kinds.brought import MixedSchema as MixedSchema
from understudy.data.kinds.brought import kind_of as kind_of
from understudy.data.kinds.brought import load_any as load_any
from understudy.data.kinds.brought import load_schema as load_schema
from understudy.data.kinds.brought import one_kind_of_row as one_kind_of_row
from understudy.data.kinds.brought import population_of as population_of
from understudy.data.kinds.brought import read_rows as read_rows
from understudy.data.kinds.brought import schema_from as schema_from
from understudy.data.kinds.brought import side_by_side as side_by_side
from understudy.data.kinds.brought import sizes_of as sizes_of
from understudy.data.kinds.kind import ARRAYS as ARRAYS
from understudy.data.kinds.kind import IMAGES as IMAGES
from understudy.data.kinds.kind import SERIES as SERIES
from understudy.data.kinds.kind import TABLE as TABLE
from understudy.data.kinds.kind import Family as Family
from understudy.data.kinds.kind import Flat as Flat
from understudy.data.kinds.kind import Kind as Kind
from understudy.data.kinds.kind import places as places
