"""What is known of a column whose domain is to be bought: its kind, and the form in which its cells are written.

    "real"   "real .2"   "real 0,0 %"   "real 0,0 % .1"   "date DD.MM.YYYY"   "datetime minute"   "categorical"

A form is of the kind, and as public as the kind is: by how many decimals numbers are written (".2"), by the minute or
the hour times are. A column whose values are all known (a boolean, a time of day) is declared as it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from understudy.data.column import (
    DEFAULT_BINS,
    EXACT,
    MOST_DECIMALS,
    RESOLUTIONS,
    Boolean,
    Column,
    Date,
    Datetime,
    Integer,
    Ordinal,
    Real,
)
from understudy.data.reading.forms import A_DAY, ISO_DAY, NUMBER_FORMS, TIME_FORMS, is_day_form
from understudy.data.schema import KINDS
from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError

# column → the kind whose domain to buy, with its form ("date DD.MM.YYYY"), or all of it as public knowledge
Kinds = Mapping[str, str | Column]


@dataclass(frozen=True)
class Asked:
    """A kind whose domain is bought, with its form: "" and None where that is the plain one."""

    kind: str
    written: str = ""
    decimals: int | None = None
    resolution: str = ""

    @classmethod
    def of(cls, name: str, kind: str) -> "Asked":
        """From words. ConfigError where there is no such kind, or it has no such form."""
        plain, _, form = kind.partition(" ") if isinstance(kind, str) else (kind, "", "")
        one_of(KINDS, **{f"kind of {name}": plain})
        decimals = None
        if plain == "real" and (found := re.fullmatch(r"(?:(.*) )?\.([0-9]{1,2})", form)):
            form, decimals = found[1] or "", int(found[2])
        known = {"date": is_day_form(form), "real": form in NUMBER_FORMS, "datetime": form in RESOLUTIONS}
        if (form and not known.get(plain, False)) or (decimals or 0) > MOST_DECIMALS:
            raise ConfigError(f"kind of {name}: no {plain} is written {form!r}. Nothing was read or charged.")
        return cls(plain, "", None, form) if plain == "datetime" else cls(plain, form, decimals)

    def on(self, column: Column) -> Column:
        """The column with this form, where its bounds leave room for it."""
        if isinstance(column, Datetime) and self.resolution:
            step = RESOLUTIONS[self.resolution]
            high = column.high.replace(second=0, minute=column.high.minute if step < 3600 else 0)
            return replace(column, resolution=self.resolution, high=high)
        if isinstance(column, Date | Real) and self.written:
            column = replace(column, written=self.written)
        return column if self.decimals is None or not isinstance(column, Real) else _to(column, self.decimals)


def _to(column: Real, decimals: int) -> Real:
    """The column by so many decimals; where it holds few such numbers, with a bin for each."""
    unit = 10**decimals
    steps = int((column.high - column.low) * unit)
    if steps < 1 or max(abs(column.low), abs(column.high)) * unit > EXACT:
        return column
    bins = steps + 1 if steps < 2 * DEFAULT_BINS else None
    return replace(column, decimals=decimals, bins=bins)


def as_bought(column: Column) -> str | Column:
    """How a column of a draft is bought: its kind, with its form where that is not the plain one.

    A boolean is one of its two words, whichever, and a time of day lies between midnight and midnight: both are free,
    with gaps, as all that is bought.
    """
    if isinstance(column, Boolean) and column.labels != ("False", "True"):
        return replace(column, nullable=True)
    if isinstance(column, Integer) and column.written is not None:
        high = A_DAY // TIME_FORMS[column.written] - 1
        return Integer(name=column.name, low=0, high=high, written=column.written, nullable=True)
    if isinstance(column, Ordinal) and all(isinstance(value, int) for value in column.categories):
        return Integer.kind  # bounds show where single numbers of a list do not
    form = ""
    if isinstance(column, Date | Real) and column.written not in (None, ISO_DAY):
        form = f" {column.written}"
    if isinstance(column, Real) and column.decimals is not None:
        form += f" .{column.decimals}"
    if isinstance(column, Datetime) and column.resolution != "second":
        form = f" {column.resolution}"
    return column.kind + form


def in_words(kind: str | Column) -> str:
    """The kind of a column as it is said to somebody who has to decide."""
    if isinstance(kind, Boolean):
        return f"boolean, {' or '.join(kind.labels)}"
    if isinstance(kind, Column):
        return f"a time of day, {kind.written}" if isinstance(kind, Integer) and kind.written else kind.kind
    plain, mark, digits = kind.rpartition(" .")
    if not mark or not digits.isdigit():
        return kind
    return f"{plain} of {digits} decimal{'s' * (digits != '1')}"
