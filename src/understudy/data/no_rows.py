"""In the place of rows, at a party that holds nobody: an aggregator of other people's shares."""

from dataclasses import dataclass

from understudy.data.described import AnySchema


@dataclass(frozen=True)
class NoRows:
    """No rows, and what is public about those of others."""

    schema: AnySchema
    rows = people = 0
