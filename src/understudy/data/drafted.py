"""Where a schema comes from that was drafted from rows: kept when somebody declares it
to be public.

A draft keeps a short mark of each domain that was read from rows, so that whoever
declares it later is told, and says, how many of them were edited. A mark is 16 bits of
a digest: enough to see an edit, too little to find a domain by. It stays in the draft:
a schema that is public keeps the day, the numbers of columns and who answers for it.

Guarantee: nothing that is computed from rows is in the words of a public schema, but
how many domains were edited.
Edges: a draft without marks says that what was edited is not known. Whoever writes a
schema anew is not found out.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy.ground.errors import SchemaError

if TYPE_CHECKING:
    from understudy.data.column import Column

# how the note of a schema begins that was drafted from rows
DRAFTED = "Drafted from rows on"
HOW_DRAFTED = "how the schema of"  # how a privacy statement begins to say that
READ_FROM = "Domains read from"  # what a draft says of itself, with how many rows
BY_HAND = "marked public by hand"
# keys of a column that are not read from its values
_NO_DOMAIN = {"name", "nullable", "written"}
_MARK = 4  # hexadecimal digits
_BETWEEN = "; "  # notes of several schemas that are joined


@dataclass(frozen=True)
class Drafted:
    """The day of a draft, and a mark of each domain as it was read from rows, by the
    name of its column.
    """

    on: str
    marks: tuple[tuple[str, str], ...]

    @classmethod
    def from_columns(
        cls, on: str, columns: "Iterable[Column]", **bounds: int
    ) -> "Drafted":
        """`bounds`: what else was read from rows, such as the most events of a
        person.
        """
        marks = [(column.name, _mark_of(column)) for column in columns]
        marks += [(name, _mark(value)) for name, value in bounds.items()]
        return cls(on, tuple(marks))

    @classmethod
    def from_dict(cls, data: Any) -> "Drafted":
        if not isinstance(data, Mapping) or not isinstance(data.get("marks"), Mapping):
            raise SchemaError(
                "drafted must say on which day, and have a mark for each column."
            )
        marks = tuple((str(name), str(mark)) for name, mark in data["marks"].items())
        return cls(str(data.get("on", "")), marks)

    def to_dict(self) -> dict[str, Any]:
        return {"on": self.on, "marks": dict(self.marks)}

    def edited(self, columns: "Iterable[Column]", **bounds: int) -> tuple[int, int]:
        """How many of these domains are not as they were drafted, and of how many."""
        now = dict(Drafted.from_columns(self.on, columns, **bounds).marks)
        before = dict(self.marks)
        return sum(before.get(name) != mark for name, mark in now.items()), len(now)


def _mark_of(column: "Column") -> str:
    return _mark(
        {key: value for key, value in column.to_dict().items() if key not in _NO_DOMAIN}
    )


def _mark(domain: Any) -> str:
    text = json.dumps(domain, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_MARK]


def declaration(
    parts: Mapping[str, Any], *, by: str, because: str, **bounds: int
) -> str:
    """What a schema says once somebody answers for it: `parts` are its tables, `bounds`
    what else it bounds.
    """
    declared = f"declared public by {_plain(by)} because {_plain(because)}"
    return f"{_history(parts, bounds)}, {declared}."


def marked_by_hand(parts: Mapping[str, Any], **bounds: int) -> str:
    """The same where somebody took the word that it is a draft out of its file."""
    return f"{_history(parts, bounds)}, {BY_HAND}."


def _history(parts: Mapping[str, Any], bounds: Mapping[str, int]) -> str:
    drafted_parts = [part for part in parts.values() if part.drafted is not None]
    if not drafted_parts:
        return f"{DRAFTED} a day that is not known, with edits that are not known"
    counts = []
    for name, part in parts.items():
        drafted = part.drafted or Drafted(drafted_parts[0].drafted.on, ())
        part_bounds = bounds if name == "events" else {}
        counts.append(drafted.edited(part.columns, **part_bounds))
    edited, total = (sum(numbers) for numbers in zip(*counts, strict=True))
    noun = "columns and bounds" if bounds else "columns"
    return f"{DRAFTED} {drafted_parts[0].drafted.on}, {edited} of {total} {noun} edited"


def _plain(text: str) -> str:
    """One line without what parts the notes of several schemas."""
    return " ".join(text.replace(_BETWEEN.strip(), ",").split()).rstrip(".")


def provenance(described: Any) -> tuple[str, ...]:
    """What a schema, or one of several, says of having been drafted from rows; nothing
    where none was.
    """
    parts = getattr(described, "parts", ())
    inner_parts = [
        part
        for part in (parts.values() if isinstance(parts, Mapping) else parts)
        if part is not described
    ]
    tables = getattr(described, "tables", {})
    notes = [
        str(getattr(described, "note", "")),
        *(str(table.note) for table in tables.values()),
    ]
    notes += [note for part in inner_parts for note in provenance(part)]
    lines = (line for note in notes for line in note.split(_BETWEEN))
    return tuple(
        dict.fromkeys(line.rstrip(".") for line in lines if line.startswith(DRAFTED))
    )
