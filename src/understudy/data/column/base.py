"""What every column has: a name, whether a value may be missing, and a short list of levels."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, ClassVar

from understudy.ground.errors import SchemaError

EXACT = 2**53  # whole numbers up to here are exact as floats


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One column of a table. Use one of the kinds below."""

    kind: ClassVar[str]
    name: str
    nullable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a column needs a name, not {self.name!r}.")
        if not isinstance(self.nullable, bool):
            raise self.error(f"nullable must be true or false, not {self.nullable!r}.")

    @property
    @abstractmethod
    def levels(self) -> int:
        """How many levels, without the missing one."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """A short text for each level, without the missing one."""

    @property
    @abstractmethod
    def domain(self) -> str:
        """The declared values in a few words."""

    @property
    def size(self) -> int:
        """How many levels, with the missing one."""
        return self.levels + self.nullable

    def to_dict(self) -> dict[str, Any]:
        """The column in plain types, without what is at its default."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return {"name": given.pop("name"), "kind": self.kind} | {key: _plain(v) for key, v in given.items()}

    def error(self, what: str) -> SchemaError:
        """An error that names this column."""
        return SchemaError(f'column "{self.name}": {what}')

    def _set(self, **values: object) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, value)


def shorten(values: Sequence[object], between: str = ", ", most: int = 6) -> str:
    """The first few of the values as text."""
    shown = between.join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown}{between}… ({len(values)} in all)"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.isoformat() if isinstance(value, date) else value
