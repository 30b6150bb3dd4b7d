"""Tables, series and images about the same people, side by side: what their joint generator speaks.

    kind = "mixed"

    [parts.clinic.columns.age]      # a table's schema, as it is kept by itself
    kind = "integer"
    …
    [parts.radiology]
    kind = "image"
    height = 28
    width = 28

A row is one person. As a table it has the columns of the tables as they are, `radiology.pixel_0_0`, … for images, and
`monitor.heart_rate.0`, … for the steps of a series.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd
from numpy.typing import NDArray

from understudy.data.described import AnySchema, PublicSchema
from understudy.data.document import Document, read
from understudy.data.grid import Grid
from understudy.data.kinds.brought import kind_of, one_kind_of_row, schema_from
from understudy.data.kinds.table import TABLE
from understudy.data.schema import join
from understudy.data.visits import SeveralVisits
from understudy.ground.check import known_keys, repeated
from understudy.ground.errors import SchemaError


@dataclass(frozen=True, kw_only=True)
class MixedSchema(Document):
    """The schema of each party, in their order."""

    kind: ClassVar[str] = "mixed"
    parts: Mapping[str, AnySchema]

    def __post_init__(self) -> None:
        if not self.parts:
            raise SchemaError("a mixed schema needs at least one part.")
        if tables := TABLE.among(self.parts):
            join(tables)
        if twice := repeated(self.names):
            raise SchemaError(f'column "{twice[0]}" has two meanings: rename a column or a party.')

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of a row, party after party."""
        return tuple(column for name, part in self.parts.items() for column in _names(name, part))

    @property
    def owners(self) -> dict[str, str]:
        """The party of each column."""
        return {column: name for name, part in self.parts.items() for column in _names(name, part)}

    def frame(self, drawn: Mapping[str, pd.DataFrame | NDArray[Any]]) -> pd.DataFrame:
        """One table from each party's: frames of tables, (n, *shape) arrays of series and images."""
        frames = [
            rows
            if isinstance(rows := drawn[name], pd.DataFrame)
            else pd.DataFrame(rows.reshape(len(rows), -1), columns=_names(name, part))
            for name, part in self.parts.items()
        ]
        return pd.concat(frames, axis=1)

    def require_public(self, which: str = "this schema") -> None:
        """Refuse a draft among the parts."""
        for name, part in self.parts.items():
            part.require_public(f"{which}, {name},")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": {name: part.to_dict() for name, part in self.parts.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        known_keys(data, ("kind", "parts"), "a mixed schema", raised=SchemaError)
        parts = data.get("parts")
        if not isinstance(parts, Mapping) or not all(isinstance(part, Mapping) for part in parts.values()):
            raise SchemaError("a mixed schema needs parts, a table of keys for each party.")
        return cls(parts={name: one_kind_of_row(schema_from(dict(part))) for name, part in parts.items()})


def distinct(parts: Mapping[str, AnySchema]) -> dict[str, AnySchema]:
    """One holder for each set of columns; whatever is no table stays as it is."""
    tables = TABLE.among(parts)
    first = {group[0] for group in Grid.of(tables).groups}
    return {name: part for name, part in parts.items() if name in first or name not in tables}


def side_by_side(parts: Mapping[str, AnySchema]) -> AnySchema | MixedSchema:
    """What parties' rows about the same people are together: one table where all have tables."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    tables = TABLE.among(parts)
    return join(tables) if len(tables) == len(parts) else MixedSchema(parts=dict(parts))


def sizes_of(schema: PublicSchema | MixedSchema | SeveralVisits) -> tuple[int, ...]:
    """What a row has (`Kind.sizes`), part after part."""
    parts: Any = getattr(schema, "parts", (schema,))
    each = parts.values() if isinstance(parts, Mapping) else parts
    return tuple(size for part in each for size in kind_of(part).sizes(part))


def load_any(path: str | Path) -> PublicSchema | MixedSchema | SeveralVisits:
    """Read the schema of a generator, of whichever kind, from a .toml or .json file."""
    joint: dict[Any, type[MixedSchema] | type[SeveralVisits]] = {
        schema.kind: schema for schema in (MixedSchema, SeveralVisits)
    }

    def build(data: dict[str, Any]) -> PublicSchema | MixedSchema | SeveralVisits:
        kind = data.get("kind")
        return joint[kind].from_dict(data) if isinstance(kind, str) and kind in joint else schema_from(data)

    return read(path, build)


def _names(party: str, part: AnySchema) -> list[str]:
    return kind_of(part).names(part, party)
