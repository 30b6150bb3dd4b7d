"""The public schema: which columns a table has, and which values each may take (docs/schema.md has the keys of a file).

Domains, bounds and bins are declared, never fitted on rows: they are known to everyone before any row
is read, and so they cost nothing. A schema that *was* read from rows says so (`origin="rows"`) and is
refused by everything that leaves a holder, until its domains are marked public or bought.

Each column has a number of levels: one for each of its categories, or a bin of numbers, days or times. Missing, where a
column is nullable, is one more level, the last. `bins` is a number of bins of equal width, or the edges, from
`low` to `high`. A bin holds its lower edge; the last bin also holds `high`. Whole numbers and days without `bins` get a
level each when there are at most 64 of them, and 16 bins otherwise; reals get 16 bins. A protocol that buys levels
(`gram`) chooses better ones for a column without `bins`, by what it releases first (`data.encoding.fine`).
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

from understudy.data.column import Boolean, Categorical, Column, Date, Datetime, Integer, Ordinal, Real
from understudy.data.document import Document
from understudy.data.rules import Rule, about, read_rules
from understudy.ground.check import known_keys, nearest, repeated, whole
from understudy.ground.errors import ConfigError, DraftSchemaError, SchemaError
from understudy.ground.html import grid

__all__ = [
    "Boolean", "Categorical", "Column", "Date", "Datetime", "Integer", "Ordinal", "Real", "Schema", "join",
    "was_bought",
]  # fmt: skip

Origin = Literal["public", "rows"]

KINDS: dict[str, type[Column]] = {k.kind: k for k in (Categorical, Ordinal, Boolean, Integer, Real, Date, Datetime)}
BOUGHT = "Bought on"  # how the note of a schema begins whose domains were bought from rows
MOST_LEVELS = 1 << 22  # bins of all columns together


@dataclass(frozen=True, kw_only=True)
class Schema(Document):
    """The columns of a table, in order, and the name of the column that identifies people. `person` names the id
    column. It is never encoded, learned or sampled; without it each row is a person of its own. `origin="rows"` marks a
    draft that was read from rows.
    """

    kind: ClassVar[str] = "table"  # which a file need not say
    columns: tuple[Column, ...]
    person: str | None = None
    origin: Origin = "public"
    note: str = ""
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError("a schema needs at least one column.")
        if strange := [c for c in self.columns if not isinstance(c, Column)]:
            raise SchemaError(f"a schema is made of columns, not of {strange[0]!r}.")
        if twice := repeated(self.names):
            raise SchemaError(f'column "{twice[0]}" is declared twice.')
        if self.person is not None and (not isinstance(self.person, str) or not self.person):
            raise SchemaError(f"person must name the id column, not {self.person!r}.")
        if self.person in self.names:
            raise SchemaError(
                f'"{self.person}" is declared as a column and as the person. '
                "An id is never learned: take it out of the columns."
            )
        if self.origin not in get_args(Origin):
            hint = nearest(self.origin, get_args(Origin))
            raise SchemaError(f'origin must be "public" or "rows", not {self.origin!r}.{hint}')
        if not isinstance(self.note, str):
            raise SchemaError(f"note must be text, not {self.note!r}.")
        object.__setattr__(self, "rules", read_rules(self.rules))
        for rule in self.rules:
            rule.check({name: self.column(name) for name in rule.columns})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def row_schema(self) -> Self:
        """What rules and conditions may speak of: all columns."""
        return self

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f'there is no column "{name}".{nearest(name, self.names)}')

    def select(self, names: Iterable[str]) -> Self:
        columns = tuple(map(self.column, names))
        return replace(self, columns=columns, rules=about(self.rules, (column.name for column in columns)))

    def drop(self, names: Iterable[str]) -> Self:
        gone = {self.column(name).name for name in names}
        return self.select(name for name in self.names if name not in gone)

    def require_public(self, which: str = "this schema") -> None:
        """Refuse a draft: its domains were read from rows and would leak them for free."""
        if self.origin != "public":
            raise DraftSchemaError(
                f"{which} was read from rows, so its categories, bounds and bins are private. "
                "If they are known publicly (a codebook, a form, the law), declare them: `understudy schema declare`, "
                'or origin = "public"; if not, buy them from the budget with the ledger. Nothing was sent.'
            )

    def to_dict(self) -> dict[str, Any]:
        """The schema in plain types. Columns are a list, so that no sorting of keys can reorder them."""
        head = {"person": self.person, "origin": self.origin, "note": self.note}
        rules = {"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {}
        columns = {"columns": [c.to_dict() for c in self.columns]}
        return {key: v for key, v in head.items() if v} | rules | columns

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read `to_dict`'s form, or a mapping from column names to columns."""
        if "kind" in data:
            said = f"rows of the kind {data['kind']!r}"
            raise SchemaError(f"this schema describes {said}, and a table is needed here.")
        known_keys(data, ("person", "origin", "note", "rules", "columns"), "the schema", raised=SchemaError)
        columns = data.get("columns", ())
        if isinstance(columns, Mapping):
            columns = [{"name": name} | _table(name, keys) for name, keys in columns.items()]
        if not isinstance(columns, list | tuple):
            raise SchemaError(f"columns must be tables or a list of tables, not {columns!r}.")
        if (levels := sum(_bins(column) for column in columns)) > MOST_LEVELS:
            raise SchemaError(f"its columns have {levels:,} bins together, more than {MOST_LEVELS:,}.")
        return cls(**{**data, "columns": tuple(map(_column, columns))})

    @property
    def _title(self) -> str:
        person = f"person {self.person}" if self.person else "each row a person"
        origin = "public" if self.origin == "public" else "a draft, read from rows"
        return f"{len(self.columns)} columns, {person}, {origin}"

    def _repr_html_(self) -> str:
        rows = ((c.name, c.kind, c.domain, "yes" if c.nullable else "") for c in self.columns)
        private = "" if self.origin == "public" else ": private until marked public or bought"
        return grid(("column", "kind", "values", "may be missing"), rows, title=f"{self._title}{private}")

    def __str__(self) -> str:
        width = max(map(len, self.names))
        rows = (f"  {c.name:<{width}}  {c.kind:<11}  {c.domain}{', or missing' * c.nullable}" for c in self.columns)
        return "\n".join((self._title, *rows, *(f"  rule: {rule}" for rule in self.rules)))


def join(schemas: Mapping[str, Schema]) -> Schema:
    """The columns of several parties side by side; the person where all call it the same; a draft makes it a draft."""
    if not schemas:
        raise SchemaError("there is no schema to join.")
    holder: dict[str, str] = {}
    for party, schema in schemas.items():
        for name in schema.names:
            if name in holder:
                raise SchemaError(
                    f'column "{name}" is declared by "{holder[name]}" and by "{party}". '
                    "Columns of several parties must differ: rename one, or leave it out of one schema."
                )
            holder[name] = party
    persons = {schema.person for schema in schemas.values()}
    if clash := sorted(p for p in persons if p in holder):
        raise SchemaError(
            f'"{clash[0]}" identifies people at one party and is a column of "{holder[clash[0]]}". Rename one.'
        )
    return Schema(
        columns=tuple(column for schema in schemas.values() for column in schema.columns),
        person=persons.pop() if len(persons) == 1 else None,
        origin="rows" if any(schema.origin == "rows" for schema in schemas.values()) else "public",
        note="; ".join(dict.fromkeys(schema.note for schema in schemas.values() if schema.note)),
        rules=tuple(dict.fromkeys(rule for schema in schemas.values() for rule in schema.rules)),
    )


def was_bought(schema: Schema) -> bool:
    """Whether its domains were bought from rows, and so may not hold all of them."""
    return schema.note.startswith(BOUGHT)


def _bins(column: object) -> int:
    bins = column.get("bins") if isinstance(column, Mapping) else None
    return bins if isinstance(bins, int) else 0


def _column(data: Mapping[str, Any]) -> Column:
    keys = _table(data.get("name", "?") if isinstance(data, Mapping) else "?", data)
    where = f'column "{keys.get("name", "?")}"'
    kind = keys.pop("kind", None)
    if kind not in KINDS:
        said = "has no kind" if kind is None else f"has the unknown kind {kind!r}"
        raise SchemaError(f"{where} {said}; the kinds are {', '.join(KINDS)}.{nearest(kind, KINDS)}")
    known = {f.name: f.default is MISSING for f in fields(KINDS[kind])}
    known_keys(keys, known, where, raised=SchemaError)
    if lacking := [key for key, needed in known.items() if needed and key not in keys]:
        raise SchemaError(f"{where} is {kind} and needs {' and '.join(lacking)}.")
    return KINDS[kind](**keys)


def _table(name: str, keys: object) -> dict[str, Any]:
    if not isinstance(keys, Mapping):
        raise SchemaError(f'column "{name}" must be a table of keys, not {keys!r}.')
    return dict(keys)


T = TypeVar("T")
Block = tuple[int, int]  # two groups, the lower number first


@dataclass(frozen=True)
class Grid:
    """The holders by group; groups and holders in the order in which they were named."""

    groups: tuple[tuple[str, ...], ...]

    @classmethod
    def from_schemas(cls, schemas: Mapping[str, Schema]) -> "Grid":
        return cls.alike({name: schema.columns for name, schema in schemas.items()})

    @classmethod
    def alike(cls, held: Mapping[str, Hashable]) -> "Grid":
        """Holders of equal things are a group."""
        groups: dict[Hashable, list[str]] = {}
        for name, what in held.items():
            groups.setdefault(what, []).append(name)
        return cls(tuple(map(tuple, groups.values())))

    @property
    def partition(self) -> str:
        """ "rows", "columns" or "grid"."""
        if len(self.groups) == 1:
            return "rows"
        return "grid" if any(len(group) > 1 for group in self.groups) else "columns"

    def group_of(self, name: str) -> int:
        return next(number for number, group in enumerate(self.groups) if name in group)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every group by itself, and every two: what holders of both, or of one, have a part in."""
        return tuple(combinations_with_replacement(range(len(self.groups)), 2))

    def holders(self, block: Block) -> tuple[str, ...]:
        """Who has a part in the block."""
        return tuple(name for group in sorted(set(block)) for name in self.groups[group])

    def one_each(self, values: Mapping[str, T]) -> dict[str, T]:
        return {group[0]: values[group[0]] for group in self.groups}

    def check_most_holders(self, most_holders: int) -> None:
        """ConfigError unless a person can be with so many holders of every column."""
        whole(most_holders=most_holders)
        if most_holders > (most := min(map(len, self.groups))):
            raise ConfigError(
                f"most_holders={most_holders} is for rows at so many holders or more, and here {most} have the same "
                "columns; where columns are split, alignment makes sure that a person is with one holder of each "
                "column. Nothing was charged."
            )

    def join(self, schemas: Mapping[str, Schema]) -> Schema:
        """The columns of all groups side by side. Edges: a column in two groups → SchemaError."""
        joint = join(self.one_each(schemas))
        return replace(joint, rules=tuple(dict.fromkeys(r for one in schemas.values() for r in one.rules)))
