"""What every column has, and columns of a few values that are listed: categories, and
false or true.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, ClassVar

from understudy.ground.check import is_number
from understudy.ground.errors import Effect, SchemaError

Category = str | int | float

EXACT = 2**53  # whole numbers up to here are exact as floats
TRUE_WORDS = ("true", "yes", "1", "1.0")
FALSE_WORDS = ("false", "no", "0", "0.0")
WHOLE_NUMBER = r"0|-?[1-9][0-9]{0,14}"


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
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
        return self.levels + self.nullable

    def to_dict(self) -> dict[str, Any]:
        """The column in plain types, without what is at its default."""
        declared = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != f.default
        }
        return {"name": declared.pop("name"), "kind": self.kind} | {
            key: _plain(v) for key, v in declared.items()
        }

    def error(self, problem: str, *, effect: Effect | None = None) -> SchemaError:
        return SchemaError(f'column "{self.name}": {problem}', effect=effect)

    def _set(self, **values: object) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, value)


def shorten(values: Sequence[object], between: str = ", ", limit: int = 6) -> str:
    shown = between.join(map(str, values[:limit]))
    return (
        shown if len(values) <= limit else f"{shown}{between}… ({len(values)} in all)"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.isoformat() if isinstance(value, date) else value


OTHER = "(other)"  # the category of every text that is none of the others


@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of a few values: all text, all whole numbers, or all numbers."""

    kind: ClassVar[str] = "categorical"
    categories: tuple[Category, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.categories, Sequence) or isinstance(
            self.categories, str
        ):
            raise self.error(f"categories must be a list, not {self.categories!r}.")
        values = tuple(self.categories)
        if not values:
            raise self.error("categories is empty.")
        if not all(isinstance(v, str) for v in values):
            if not all(map(is_number, values)):
                raise self.error("categories must be all text or all finite numbers.")
            if not all(isinstance(v, int) and abs(v) <= EXACT for v in values):
                values = tuple(map(float, values))
        if len(set(values)) < len(values):
            twice = next(v for i, v in enumerate(values) if v in values[:i])
            raise self.error(f"category {twice!r} is declared twice.")
        self._set(categories=values)

    @property
    def levels(self) -> int:
        return len(self.categories)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.categories))

    @property
    def domain(self) -> str:
        return shorten(self.labels)


@dataclass(frozen=True, kw_only=True)
class Ordinal(Categorical):
    """One of a few values whose order means something: `categories` runs from low to
    high.
    """

    kind: ClassVar[str] = "ordinal"

    @property
    def domain(self) -> str:
        return shorten(self.labels, " < ")


@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """False or true. `labels` says how the two are written, false first: ("No", "Yes"),
    (0, 1).
    """

    kind: ClassVar[str] = "boolean"
    labels: tuple[str, ...] = ("False", "True")

    def __post_init__(self) -> None:
        super().__post_init__()
        declared = self.labels
        if (
            isinstance(declared, str)
            or not isinstance(declared, Sequence)
            or len(declared) != 2
        ):
            raise self.error(
                f"labels must be two, for false and for true, not {declared!r}."
            )
        if not all(isinstance(label, str | int) for label in declared):
            raise self.error(f"labels must be text or whole numbers, not {declared!r}.")
        no, yes = labels = tuple(map(str, declared))
        if no == yes or any(not label or label != label.strip() for label in labels):
            raise self.error(
                f"labels must differ, and have no blanks around them, not {declared!r}."
            )
        if no.lower() in TRUE_WORDS or yes.lower() in FALSE_WORDS:
            raise self.error(
                f"labels are false first and true second, not {declared!r}."
            )
        self._set(labels=labels)

    @property
    def values(self) -> tuple[Category, ...]:
        """False and true as they stand in a table: booleans, whole numbers, or the
        labels.
        """
        if tuple(label.lower() for label in self.labels) == ("false", "true"):
            return (False, True)
        whole = all(re.fullmatch(WHOLE_NUMBER, label) for label in self.labels)
        return tuple(map(int, self.labels)) if whole else self.labels

    @property
    def levels(self) -> int:
        return 2

    @property
    def domain(self) -> str:
        return ", ".join(self.labels)
