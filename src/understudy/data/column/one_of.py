"""Columns of yes and no of which exactly one is yes: one column with as many levels, in
place of all of them.

Whether exactly one column of a group is 1 in every row is not told by names. It has to
be declared, by what made the columns: a form's one answer, a code that was written as
indicators. Then a person has one level of the group.

Edges: names and kinds suggest groups (`suggested`), and decide nothing.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from understudy.data.column.base import Boolean, Categorical, Column
from understudy.ground.errors import SchemaError

MIN_SUGGESTED = 3  # columns: two that are alike are too common to be worth a hint
_STEM = re.compile(r"(.*?)[ _.:=-]*(?:\d+|(?<=[ _.:=-])[^ _.:=-]+)")


@dataclass(frozen=True, kw_only=True)
class OneOf(Categorical):
    """Which of several columns is 1. `categories` are their names, `written` says how 0
    and 1 are written there.

    A table has all of these columns, real or synthetic. Where the group is nullable,
    none of them may be 1.
    """

    kind: ClassVar[str] = "one_of"
    written: tuple[str, ...] = ("0", "1")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.categories) < 2 or not all(
            isinstance(name, str) for name in self.categories
        ):
            raise self.error(
                "categories must be the names of two or more columns, not "
                f"{self.categories!r}."
            )
        first = Boolean(name=str(self.categories[0]), labels=self.written)
        self._set(written=first.labels)

    @property
    def part_names(self) -> tuple[str, ...]:
        return tuple(map(str, self.categories))

    @property
    def parts(self) -> tuple[Boolean, ...]:
        """The columns of a table that the group stands for."""
        return tuple(
            Boolean(name=name, labels=self.written) for name in self.part_names
        )

    @property
    def rule(self) -> str:
        """What is said of a row that has another number of ones."""
        allowed = "at most one may be" if self.nullable else "exactly one has to be"
        return f"is how many of its {self.levels} columns are 1, and {allowed}."


def table_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that a table has: those of a group in its place."""
    listed = [
        column.parts if isinstance(column, OneOf) else (column,) for column in columns
    ]
    return tuple(column for some in listed for column in some)


def suggested(kinds: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Columns of yes and no whose names are alike, by what the names have in common."""
    alike: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        stem = _stem(name)
        if stem is not None and (kind == Boolean.kind or isinstance(kind, Boolean)):
            alike.setdefault(stem, []).append(name)
    return {
        stem: tuple(names)
        for stem, names in alike.items()
        if len(names) >= MIN_SUGGESTED
    }


def with_groups(columns: Sequence[Column], one_of: object) -> tuple[Column, ...]:
    """The columns with one column for each declared group, where its first column was.

    A group is a pattern as "soil_*", or a list of names. Its name is what those of its
    columns begin with.
    """
    if isinstance(one_of, str) or not isinstance(one_of, Sequence):
        raise SchemaError(
            'one_of must be a list of patterns as "soil_*" or of lists of columns, '
            f"not {one_of!r}."
        )
    columns_by_name = {column.name: column for column in columns}
    for pattern in one_of:
        names = _matching(pattern, columns_by_name)
        group = _group([columns_by_name[name] for name in names], columns_by_name)
        remaining = {
            name: column
            for name, column in columns_by_name.items()
            if name not in names[1:]
        }
        columns_by_name = {
            group.name if name == names[0] else name: column
            for name, column in remaining.items()
        }
        columns_by_name[group.name] = group
    return tuple(columns_by_name.values())


def _stem(name: str) -> str | None:
    """What stands before the number or the word at the end: "soil" of "soil_3"; None
    where nothing does.
    """
    match = _STEM.fullmatch(name)
    return match[1] if match is not None and match[1] else None


def _matching(pattern: object, names: Collection[str]) -> list[str]:
    if isinstance(pattern, str):
        matches = [name for name in names if fnmatchcase(name, pattern)]
        if len(matches) < 2:
            raise SchemaError(
                f'one_of: "{pattern}" matches {len(matches)} columns, and a group has '
                "two "
                "or more."
            )
        return matches
    if (
        not isinstance(pattern, Sequence)
        or not all(isinstance(name, str) for name in pattern)
        or len(pattern) < 2
    ):
        raise SchemaError(
            'one_of: a group is a pattern as "soil_*" or a list of columns, not '
            f"{pattern!r}."
        )
    strange = [name for name in pattern if name not in names]
    if strange:
        raise SchemaError(
            f'one_of: there is no column "{strange[0]}" that is in no other group.'
        )
    return list(pattern)


def _group(parts: Sequence[Column], taken_names: Collection[str]) -> OneOf:
    """The group of these columns, which are all of yes and no, and written alike."""
    labels: dict[tuple[str, ...], str] = {}
    for part in parts:
        if not isinstance(part, Boolean):
            raise SchemaError(
                f'one_of: "{part.name}" is not boolean, and the columns of a group are.'
            )
        labels[part.labels] = part.name
    if len(labels) > 1:
        raise SchemaError(
            f"one_of: {' and '.join(labels.values())} are written in different ways."
        )
    names = tuple(part.name for part in parts)
    stems = {_stem(name) for name in names}
    stem = stems.pop() if len(stems) == 1 else None
    name = stem or " or ".join(names)
    return OneOf(
        name=f"one of {name}" if name in taken_names else name,
        categories=names,
        written=next(iter(labels)),
    )
