"""In the place of rows, at a party that holds nobody: an aggregator of other people's shares, or who collects them."""

from dataclasses import dataclass, field
from typing import Any

from understudy.data.described import AnySchema


@dataclass(frozen=True)
class NoRows:
    """No rows, and what is public about those of others."""

    schema: AnySchema
    # of its own key, where that lasts longer than a run
    secret: bytes | None = field(default=None, repr=False)
    # that people put their uploads into, at a party that collects them
    box: Any = field(default=None, repr=False)
    rows = people = 0
