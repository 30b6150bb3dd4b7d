"""What is known of a column whose domain is to be bought: its kind, and the form in
which its cells are written.

    "real"    "real .2"    "real 0,0 %"    "real 0,0 % .1"
    "date DD.MM.YYYY"    "datetime minute"    "categorical"

A form is of the kind, and as public as the kind is: by how many decimals numbers are
written (".2"), by the minute or the hour times are (`steps`). A column whose values are
all known (a boolean, a time of day) is declared as it is. Where no schema says so,
kinds are taken from a table without a price (`kinds_of`).

Guarantee: a DataFrame's kinds are those of its dtypes, with the step in which numbers
and times are written, and a warning lists them; a file's are seen from its rows, which
is refused unless somebody says that they are publicly known.
Edges: a column without a value, of free text, or named like an id is left out, with a
UtilityWarning; names that repeat or look like cells (`data/header.py`) → SchemaError; a
type that no kind describes → ConfigError; `require_kinds`: a cell that is not of its
kind → SchemaError. A column that looks misread → ConfigError, said to the holder alone.
"""

import re
import shlex
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd

from understudy.data.column import (
    MOST_DECIMALS,
    RESOLUTIONS,
    Column,
    shorten,
    suggested,
    with_groups,
)
from understudy.data.header import require_header
from understudy.data.id_names import id_names, is_id_name
from understudy.data.infer import IDS, draft, few_odd_words, looks_like
from understudy.data.reading.files import Source, batches_of, is_long
from understudy.data.reading.forms import (
    A_DAY,
    ISO_DAY,
    NUMBER_FORMS,
    TIME_FORMS,
    is_day_form,
)
from understudy.data.reading.storage import dtype_kind, has_range_objects, is_range
from understudy.data.schema import (
    KINDS,
    Boolean,
    Categorical,
    Date,
    Datetime,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.data.table import open_table
from understudy.ground.check import one_of, pluralize
from understudy.ground.errors import (
    ConfigError,
    Effect,
    PrivacyWarning,
    SchemaError,
    UtilityWarning,
)
from understudy.privacy.steps import drop_times, step_of_frame, with_step

# a column of more different texts, none of them that of so many, is free text
MOST_TEXTS = 1_000
_SHARED = 0.005
_LOOKED_AT = 10_000  # rows of a frame, for a word about what texts look like

# column → the kind whose domain to buy, with its form ("date DD.MM.YYYY"), or all of it
# as public knowledge
Kinds = Mapping[str, str | Column]


@dataclass(frozen=True)
class RequestedKind:
    """A kind whose domain is bought, with its form: "" and None where that is the plain
    one.
    """

    kind: str
    written: str = ""
    decimals: int | None = None
    resolution: str = ""

    @classmethod
    def from_words(cls, name: str, kind: str) -> "RequestedKind":
        """From words. ConfigError where there is no such kind, or it has no such
        form.
        """
        plain, _, form = (
            kind.partition(" ") if isinstance(kind, str) else (kind, "", "")
        )
        one_of(KINDS, **{f"kind of {name}": plain})
        if plain == "ordinal":
            raise ConfigError(
                f"{name}: an order of texts cannot be bought: declare it.",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
        decimals = None
        if plain == "real" and (
            match := re.fullmatch(r"(?:(.*) )?\.([0-9]{1,2})", form)
        ):
            form = match[1] or ""
            decimals = int(match[2])
        has_form = {
            "date": is_day_form(form),
            "real": form in NUMBER_FORMS,
            "datetime": form in RESOLUTIONS,
        }
        if (form and not has_form.get(plain, False)) or (decimals or 0) > MOST_DECIMALS:
            raise ConfigError(
                f"kind of {name}: no {plain} is written {form!r}.",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
        return (
            cls(plain, "", None, form)
            if plain == "datetime"
            else cls(plain, form, decimals)
        )

    def column(self, name: str) -> Column | None:
        """The column, where nothing of it has to be known before a run; None for a list
        of texts.
        """
        forms: dict[str, Any] = {
            "boolean": {},
            "integer": {},
            "real": {"decimals": self.decimals, "written": self.written or None},
            "date": {"written": self.written or ISO_DAY},
            "datetime": {"resolution": self.resolution or "second"},
        }
        return (
            None
            if self.kind not in forms
            else KINDS[self.kind](name=name, nullable=True, **forms[self.kind])
        )


def without_bounds(kinds: Kinds) -> dict[str, str | Column]:
    """The same, numbers and booleans as columns of which nothing has to be bought:
    `gram` finds where they are.
    """
    return {
        name: replace(kind, name=name)
        if isinstance(kind, Column)
        else RequestedKind.from_words(name, kind).column(name) or kind
        for name, kind in kinds.items()
    }


def with_one_of(kinds: Kinds, declared: Sequence[Any]) -> dict[str, str | Column]:
    """The same with one column for each declared group of which exactly one column is
    1; or ConfigError.
    """
    columns = [_as_part(name, kind) for name, kind in kinds.items()]
    try:
        grouped = with_groups(columns, declared)
    except SchemaError as error:
        raise ConfigError(
            error.message,
            effect=Effect.NOTHING_READ_OR_CHARGED,
        ) from None
    return {column.name: kinds.get(column.name, column) for column in grouped}


def _as_part(name: str, kind: str | Column) -> Column:
    """A column that a group may have: of yes and no, or of whole numbers, which are
    then read as 0 and 1.
    """
    if isinstance(kind, Column):
        return replace(kind, name=name)
    labels = {Boolean.kind: ("False", "True"), Integer.kind: ("0", "1")}
    return (
        Boolean(name=name, labels=labels[kind]) if kind in labels else Real(name=name)
    )


def hint_at_groups(kinds: Kinds) -> None:
    """A UtilityWarning where names and kinds, and nothing else, suggest columns of
    which exactly one is 1.
    """
    groups = suggested(kinds)
    if not groups:
        return
    named = "; ".join(shorten(names) for names in groups.values())
    declarations = ", ".join(
        _pattern(stem, names, kinds) for stem, names in groups.items()
    )
    warnings.warn(
        f"columns are named alike, and of yes and no: {named}. If in every row exactly "
        f"one of them is 1, by what made them, declare it: one_of=[{declarations}] "
        "(--one-of). They are drawn as one column then, and exactly one is 1. If not, "
        "one_of=[] says so.",
        UtilityWarning,
        stacklevel=4,
    )


def _pattern(stem: str, names: Sequence[str], kinds: Kinds) -> str:
    """How a group is declared: by what its names begin with, where no other column
    begins so; or by all of them.
    """
    rest = names[0].removeprefix(stem)
    pattern = f"{stem}{rest[: len(rest) - len(rest.lstrip(' _.:=-'))]}*"
    alone = [name for name in kinds if fnmatchcase(name, pattern)] == list(names)
    return f'"{pattern}"' if alone else str(list(names))


def as_bought(column: Column) -> str | Column:
    """How a draft's column is bought: its kind and form. Booleans and times of day are
    free, with gaps.
    """
    if isinstance(column, Boolean) and column.labels != ("False", "True"):
        return replace(column, nullable=True)
    if isinstance(column, Integer) and column.written is not None:
        high = A_DAY // TIME_FORMS[column.written] - 1
        return Integer(
            name=column.name,
            low=0,
            high=high,
            written=column.written,
            nullable=True,
        )
    if isinstance(column, Datetime) and column.written is not None:
        return replace(column, low=None, high=None, bins=None, nullable=True)
    if isinstance(column, Ordinal) and not isinstance(column.categories[0], str):
        return _of_numbers(column)
    form = ""
    if isinstance(column, Date | Real) and column.written not in (None, ISO_DAY):
        form = f" {column.written}"
    if isinstance(column, Real) and column.decimals is not None:
        form += f" .{column.decimals}"
    if isinstance(column, Datetime) and column.resolution != "second":
        form = f" {column.resolution}"
    return column.kind + form


def _of_numbers(column: Ordinal) -> str:
    """The kind of numbers that a draft lists: where they are shows, and single numbers
    of a list do not.
    """
    if all(isinstance(value, int) for value in column.categories):
        return Integer.kind
    numbers = np.array(column.categories, dtype=float)
    fits = [
        d
        for d in range(MOST_DECIMALS + 1)
        if np.array_equal(numbers, np.round(numbers, d))
    ]
    return f"{Real.kind} .{fits[0]}" if fits else Real.kind


def in_words(kind: str | Column) -> str:
    """The kind of a column as it is said to somebody who has to decide."""
    if isinstance(kind, Boolean):
        return f"boolean, {' or '.join(kind.labels)}"
    if isinstance(kind, Column):
        return (
            f"a time of day, {kind.written}"
            if isinstance(kind, Integer) and kind.written
            else kind.kind
        )
    plain, mark, digits = kind.rpartition(" .")
    if not mark or not digits.isdigit():
        return kind
    return f"{plain} of {pluralize(int(digits), 'decimal')}"


def kinds_of(
    source: Source,
    declared: Kinds | None = None,
    *,
    person: str | None = None,
    confirmed: bool = False,
    header: bool | None = None,
    without: Collection[str] = (),
    price: str = "",
) -> dict[str, str | Column]:
    """Each column's kind: declared, by dtypes, or by rows where `confirmed`; or
    ConfigError, with a list. SchemaError where names look like cells of a first row,
    unless somebody said that they are a `header`.

    Columns `without` which the caller goes on have none. `price` is what going on
    costs, for a refusal.
    """
    names = require_header(source, header)
    settled = {*(declared or {}), *without}
    if isinstance(source, pd.DataFrame):
        for column in source.columns:
            if column == person or column in settled:
                continue
            if is_range(source[column].dtype):
                raise _no_kind(column, source[column].dtype)
            if has_range_objects(source[column]):
                raise ConfigError(
                    f'column "{column}" has intervals or periods of pandas among its '
                    "values, which no kind describes: "
                    "convert it (.astype(str)), or drop it. This follows from the "
                    "rows: keep it to yourself.",
                    effect=Effect.NOTHING_CHARGED,
                )
    if confirmed or (declared is None and not isinstance(source, pd.DataFrame)):
        drafted = draft(
            _beginning(source, len(names)),
            person,
            most_categories=MOST_TEXTS,
            shared=_SHARED,
            header=True,
        )
        columns = [
            column for column in drafted.schema.columns if not is_id_name(column.name)
        ]
        kinds_by_column = {
            column.name: as_bought(with_step(column, drafted.cells[column.name]))
            for column in columns
        }
        # an order cannot be bought
        kinds_by_column |= {
            c: "categorical"
            for c, kind in kinds_by_column.items()
            if kind == Ordinal.kind
        }
        if confirmed:
            left_out = drafted.left_out | dict.fromkeys(
                id_names(drafted.schema.names),
                IDS,
            )
            texts = {
                c for c, kind in kinds_by_column.items() if kind == Categorical.kind
            } | drafted.left_out.keys()
            _require_few_odd(
                {
                    c: drafted.cells[c]
                    for c in drafted.cells
                    if c in texts - settled and c != person
                },
                price,
            )
            _say_left_out({c: why for c, why in left_out.items() if c not in settled})
            _say_unread(
                {c: looks for c, looks in drafted.unread.items() if c not in settled}
            )
            return {
                c: kind for c, kind in kinds_by_column.items() if c not in without
            } | dict(declared or {})
        listed = ", ".join(
            f"{column} ({in_words(kind)})" for column, kind in kinds_by_column.items()
        )
        raise ConfigError(
            "without a schema, names and kinds of columns are taken from the rows "
            f"for free: {listed}. If they are "
            "publicly known, say so (names_and_kinds_are_public); if not, declare a "
            "schema.",
            effect=Effect.NOTHING_CHARGED,
        )
    if not isinstance(source, pd.DataFrame):
        return dict(declared or {})
    others = [c for c in source.columns if c != person and c not in settled]
    _say_left_out(dict.fromkeys(id_names(others), IDS))
    others = [c for c in others if not is_id_name(c)]
    typed = {
        c: step_of_frame(_dtype_kind(c, source[c].dtype), source[c]) for c in others
    }
    texts = {c for c, kind in typed.items() if kind == Categorical.kind}
    _require_few_odd({c: source[c] for c in others if c in texts}, price)
    _say_unread(_unread(source, [c for c in others if c in texts]))
    if typed:
        shown = [f"{column} ({in_words(kind)})" for column, kind in typed.items()]
        warnings.warn(
            "names and kinds of columns are taken from the frame for free, and have "
            f"to be publicly known: {', '.join(shown)}.",
            PrivacyWarning,
            stacklevel=3,
        )
    return typed | dict(declared or {})


def _require_few_odd(texts: Mapping[str, "pd.Series[Any]"], price: str) -> None:
    """ConfigError that names columns which would be numbers or days, were it not for a
    few cells.
    """
    odd = [column for column, cells in texts.items() if few_odd_words(cells)]
    if not odd:
        return
    named = ", ".join(f'"{column}"' for column in odd)
    options = " ".join(f"--without {shlex.quote(column)}" for column in odd)
    raise ConfigError(
        f"a few cells of {named} are neither numbers nor days, and all the others are: "
        "it would be read as a list of texts, and little or nothing of it would be "
        "kept. Correct these cells; or say which words mean that there is no value: "
        f"missing=[…] (--missing WORD); or go on without: without=[{named}] "
        f"({options}). Going on costs {price}. This follows from the rows: keep it to "
        "yourself.",
        effect=Effect.NOTHING_CHARGED,
    )


def require_kinds(source: Source, declared: Kinds) -> None:
    """SchemaError where a cell is not of its column's kind: after a purchase it would
    be too late.
    """
    columns = tuple(
        kind for kind in without_bounds(declared).values() if isinstance(kind, Column)
    )
    if columns:
        open_table(source, Schema(columns=columns))


def without_times(source: Source, kinds: Kinds, declared: Kinds | None) -> Source:
    """The same source; in a frame's columns whose kind is a date and was not declared,
    times are midnight.

    A step is that of nearly all, so that a few times among days become their days.
    """
    if not isinstance(source, pd.DataFrame):
        return source
    dates = [
        c
        for c, kind in kinds.items()
        if kind == Date.kind and c not in (declared or {})
    ]
    return drop_times(
        source,
        [c for c in dates if pd.api.types.is_datetime64_any_dtype(source[c].dtype)],
    )


def _say_left_out(why: Mapping[str, str]) -> None:
    """A UtilityWarning that names columns which nothing is bought for, where there are
    any.
    """
    if why:
        named = "; ".join(f'"{column}" ({reason})' for column, reason in why.items())
        warnings.warn(
            f"left out: {named}. Declare a column to keep it.",
            UtilityWarning,
            stacklevel=4,
        )


def _unread(frame: pd.DataFrame, columns: list[str]) -> dict[str, str]:
    """What texts of these columns look like, where no form reads them."""
    some = frame[columns].head(_LOOKED_AT)
    words = {
        name: {value for value in some[name] if isinstance(value, str)}
        for name in columns
    }
    looks_by_column = {name: looks_like(texts) for name, texts in words.items()}
    return {name: looks for name, looks in looks_by_column.items() if looks is not None}


def _say_unread(alike: Mapping[str, str]) -> None:
    """A UtilityWarning that names columns whose texts are more than texts, where there
    are any.
    """
    if alike:
        named = "; ".join(f'"{column}" ({looks})' for column, looks in alike.items())
        looks = (
            f"as your rows have them, which is said here alone: {named}. Nothing was "
            "charged so far."
        )
        warnings.warn(looks, UtilityWarning, stacklevel=4)


def _beginning(source: Source, columns: int) -> Source:
    """The first rows of a long table: kinds are seen from them, and held against all
    rows before anything is bought.
    """
    if not is_long(source, max(1, columns)):
        return source
    return pd.DataFrame(next(batches_of(source, None, long=True)).columns)


def _dtype_kind(column: object, dtype: Any) -> str:
    if not isinstance(column, str):
        raise ConfigError(
            f"a column is called {column!r}, and names are text.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    kind = dtype_kind(dtype)
    if kind is not None:
        return kind
    raise _no_kind(column, dtype)


def _no_kind(column: object, dtype: Any) -> ConfigError:
    """The refusal of a type. Its values, such as the bounds of intervals, are not
    told.
    """
    problem = (
        f'column "{column}" is of the type {dtype}, which no kind describes: convert '
        "it (.astype(str)), or drop it"
    )
    return ConfigError(f"{problem}.", effect=Effect.NOTHING_READ_OR_CHARGED)
