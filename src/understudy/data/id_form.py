"""How ids are written before they are compared: one public rule, which every holder
applies to its own ids before anything is hashed.

A schema declares it beside the person, as `person_written = ["case", "zeros"]`:

    case        letters of both cases are the same: "ab12" for "AB12"
    spaces      spaces anywhere are left out
    umlauts     ä, ö, ü and ß are ae, oe, ue and ss; other letters lose their accents
    zeros       zeros at the beginning are left out: "7" for "007"
    date:ORDER  a day, written as dmy, mdy or ymd: 1980-12-31 for "31.12.1980"
    phone:CODE  a telephone number of a country, as 49: +4930123 for "030/123"

The first four go together, in this order. How a holder writes days, and its country,
are its own; what comes out is not. Holders must declare the same of the rest, or their
ids are of different kinds and nothing is sent.

Guarantee: a function of the id and the declaration alone. Two ids of one holder that
become the same are refused as any id that comes twice.
Edges: an id that the rule cannot read → ValueError, which does not repeat it.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from understudy.ground.check import nearest
from understudy.ground.errors import SchemaError

STEPS = ("spaces", "umlauts", "case", "zeros")
_ORDERS = ("dmy", "mdy", "ymd")
_UMLAUTS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}
)
_DAY = re.compile(r"(\d+)[\s./-]+(\d+)[\s./-]+(\d+)")
_BETWEEN = re.compile(r"[\s()/.\u2010-\u2015-]+")
_LEAST_DIGITS = 6  # of a telephone number with its country


@dataclass(frozen=True)
class IdForm:
    """`steps`: those of `STEPS` that are declared; or `order` of a day's parts; or the
    `country` of telephone numbers. None of them: ids as they stand.
    """

    steps: tuple[str, ...] = ()
    order: str = ""
    country: str = ""

    @classmethod
    def from_names(cls, names: Iterable[str]) -> "IdForm":
        """What a schema declares. Edges: anything else → SchemaError."""
        steps = []
        more: dict[str, str] = {}
        for name in names:
            if not isinstance(name, str):
                raise SchemaError(f"person_written is a list of texts, not {name!r}.")
            word, _, value = name.partition(":")
            if name in STEPS:
                steps.append(name)
            elif word == "date" and value in _ORDERS:
                more["order"] = value
            elif word == "phone" and re.fullmatch(r"[1-9]\d{0,2}", value):
                more["country"] = value
            else:
                known = [*STEPS, *(f"date:{order}" for order in _ORDERS), "phone:49"]
                raise SchemaError(
                    f"person_written has {name!r}, and knows {', '.join(known)}."
                    + nearest(name, known)
                )
        if len(set(steps)) < len(steps) or len(more) + bool(steps) > 1:
            raise SchemaError(
                "person_written has one of date and phone, or each of "
                f"{', '.join(STEPS)} at most once."
            )
        return cls(tuple(step for step in STEPS if step in steps), **more)

    def __bool__(self) -> bool:
        return bool(self.steps or self.order or self.country)

    @property
    def kind(self) -> str:
        """What holders have to have in common."""
        if self.order:
            return "day"
        if self.country:
            return "telephone number"
        return f"text ({', '.join(self.steps)})" if self.steps else "text"

    def write(self, text: str) -> str:
        """The id as it is compared."""
        if self.order:
            return self._day(text)
        if self.country:
            return self._number(text)
        for step in self.steps:
            text = _STEPS[step](text)
        return text

    def _day(self, text: str) -> str:
        text = text.strip()
        match = _DAY.fullmatch(text) or re.fullmatch(self._compact, text)
        if match is None:
            raise ValueError(f"is no day written as {self.order}")
        parts = dict(zip(self.order, match.groups(), strict=True))
        if len(parts["y"]) != 4:
            raise ValueError("has no year of four digits")
        try:
            return date(*(int(parts[part]) for part in "ymd")).isoformat()
        except ValueError:
            raise ValueError(f"is no day written as {self.order}") from None

    @property
    def _compact(self) -> str:
        """A day in eight digits."""
        sizes = {"y": 4, "m": 2, "d": 2}
        return "".join(rf"(\d{{{sizes[part]}}})" for part in self.order)

    def _number(self, text: str) -> str:
        number = _BETWEEN.sub("", text.replace("(0)", ""))
        if number.startswith("00"):
            number = "+" + number[2:]
        elif number.startswith("0"):
            number = f"+{self.country}{number[1:]}"
        elif not number.startswith("+"):
            number = f"+{self.country}{number}"
        digits = number[1:]
        if not re.fullmatch(r"[0-9]+", digits) or len(digits) < _LEAST_DIGITS:
            raise ValueError("is no telephone number")
        return number


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _without_umlauts(text: str) -> str:
    parted = unicodedata.normalize("NFC", text).translate(_UMLAUTS)
    letters = unicodedata.normalize("NFKD", parted)
    return "".join(one for one in letters if not unicodedata.combining(one))


def _without_zeros(text: str) -> str:
    return text.lstrip("0") or text[:1]


_STEPS = {
    "spaces": _without_spaces,
    "umlauts": _without_umlauts,
    "case": str.casefold,
    "zeros": _without_zeros,
}
