"""How rows of each kind are drawn: a file for each, found by the name of the kind that a schema says."""

from importlib import import_module
from typing import Any

from understudy.generators.kinds.kind import Drawing

FILES = {
    "table": "table",
    "image": "arrays",
    "series": "arrays",
    "visits": "visits",
    "several-visits": "visits",
    "mixed": "mixed",
}


def drawing_of(schema: Any) -> Drawing:
    """How rows of this schema are drawn."""
    drawing: Drawing = import_module(f"{__name__}.{FILES[schema.kind]}").DRAWING
    return drawing
