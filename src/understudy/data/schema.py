"""The public schema: which columns a table has, and which values each may take
(docs/schema.md has the keys of a file).

Domains, bounds and bins are declared, never fitted on rows: they are known to everyone
before any row is read, and so they cost nothing. A schema that *was* read from rows
says so (`origin="rows"`) and is refused by everything that leaves a holder, until its
domains are marked public or bought.

Each column has a number of levels: one for each of its categories, or a bin of numbers,
days or times; missing, where a column is nullable, is the last. `bins` is a number of
bins of equal width, or the edges, from `low` to `high`. A bin holds its lower edge; the
last bin also holds `high`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

import tomli_w

from understudy.data.column import (
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Integer,
    OneOf,
    Ordinal,
    Real,
    with_groups,
)
from understudy.data.column import table_columns as columns_of_tables
from understudy.data.drafted import READ_FROM, Drafted, marked_by_hand
from understudy.data.id_form import IdForm
from understudy.data.id_names import id_names
from understudy.data.rules import Rule, about, read_rules
from understudy.ground.check import known_keys, nearest, repeated, whole
from understudy.ground.durable import read_json, read_toml
from understudy.ground.errors import ConfigError, DraftSchemaError, Effect, SchemaError
from understudy.ground.html import grid

# of others
__all__ = [
    "Boolean",
    "Categorical",
    "Column",
    "Date",
    "Datetime",
    "Integer",
    "OneOf",
    "Ordinal",
    "Real",
]

Origin = Literal["public", "rows"]

_COLUMNS: tuple[type[Column], ...] = (
    Categorical,
    Ordinal,
    Boolean,
    Integer,
    Real,
    Date,
    Datetime,
    OneOf,
)
KINDS: dict[str, type[Column]] = {column.kind: column for column in _COLUMNS}
# how the note of a schema begins whose domains were bought from rows
BOUGHT = "Bought on"
MOST_LEVELS = 1 << 22  # bins of all columns together
T = TypeVar("T")


class Document(ABC):
    """A public description that is kept in a file, as plain keys in TOML or JSON.
    Guarantee: whatever is read was checked by its class before anybody uses it. Edges:
    an unreadable file, text that is no TOML or JSON, a strange key → SchemaError that
    names the file.
    """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain types."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return read(path, cls.from_dict)

    def save(self, path: str | Path) -> None:
        path = Path(path)
        text = (
            self.to_toml()
            if _suffix(path) == ".toml"
            else json.dumps(self.to_dict(), indent=2) + "\n"
        )
        path.write_text(text, encoding="utf-8")

    def to_toml(self) -> str:
        return tomli_w.dumps(_by_name(self.to_dict()))


def _by_name(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    columns = data.get("columns")
    if isinstance(columns, list):
        by_name = {
            column["name"]: {
                key: value for key, value in column.items() if key != "name"
            }
            for column in columns
        }
        data = data | {"columns": by_name}
    return {key: _by_name(value) for key, value in data.items()}


def read(path: str | Path, build: Callable[[dict[str, Any]], T]) -> T:
    """What `build` makes of the keys in a .toml or .json file."""
    path = Path(path)
    read_file = read_toml if _suffix(path) == ".toml" else read_json
    try:
        data = read_file(path)
        if not isinstance(data, dict):
            raise SchemaError("the file holds no table of keys.")
        return build(data)
    except OSError as error:
        raise SchemaError(
            f"{path}: the schema cannot be read ({error.strerror})."
        ) from error
    except SchemaError as error:
        raise error.restated(f"{path.name}: {error.message}") from error
    except ValueError as error:
        # what tomllib and json raise, and text that is not UTF-8
        raise SchemaError(
            f"{path.name}: not a valid {_suffix(path)[1:].upper()} file ({error})."
        ) from error
    except (TypeError, AttributeError, KeyError, OverflowError) as error:
        # a key of another kind of value
        raise SchemaError(f"{path.name}: this describes no rows ({error}).") from error


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in (".toml", ".json"):
        raise SchemaError(f"{path.name}: a schema is kept in a .toml or .json file.")
    return path.suffix.lower()


def require_one_unit(person: str | None, rows_are_people: object) -> None:
    """SchemaError where both a column and a declaration say who a person is, or the
    declaration is no truth value.
    """
    if not isinstance(rows_are_people, bool):
        raise SchemaError(
            f"rows_are_people must be true or false, not {rows_are_people!r}."
        )
    if rows_are_people and person is not None:
        raise SchemaError(
            f'"{person}" says whose each row is, and rows_are_people that every row '
            "is another person: declare one."
        )


def each_by_itself(unit: str, is_person: bool) -> str:
    """What one person is where no column says so, in words."""
    return (
        f"each {unit} a person"
        if is_person
        else f"each {unit} by itself, whoever it is of"
    )


def public_of(schema: Any) -> dict[str, Any]:
    """What of a schema of images or series has to be alike at all holders: not how each
    reads its own file.
    """
    sizes = ("height", "width", "length", "channels")
    alike = ("kind", *sizes, "low", "high", "label", "classes", "labels", "norm")
    return {key: value for key, value in schema.to_dict().items() if key in alike}


@dataclass(frozen=True, kw_only=True)
class Schema(Document):
    """The columns of a table, in order. `person` names the id column, which is never
    encoded, learned or sampled. Without it a run protects rows; `rows_are_people`
    declares that every row is another person, whom it protects then. `origin="rows"`
    marks a draft that was read from rows, and `drafted` what it was when it was
    drafted: one in which that word was changed by hand says so in its note.
    `person_written`: how ids are written before they are compared with other holders'
    (`data.id_form`).
    """

    kind: ClassVar[str] = "table"  # which a file need not say
    columns: tuple[Column, ...]
    person: str | None = None
    rows_are_people: bool = False
    origin: Origin = "public"
    note: str = ""
    rules: tuple[Rule, ...] = ()
    drafted: Drafted | None = field(default=None, compare=False)
    person_written: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "person_written", tuple(self.person_written))
        IdForm.from_names(self.person_written)
        if not self.columns:
            raise SchemaError("a schema needs at least one column.")
        strange = [c for c in self.columns if not isinstance(c, Column)]
        if strange:
            raise SchemaError(f"a schema is made of columns, not of {strange[0]!r}.")
        parts = [
            part.name
            for column in self.columns
            if isinstance(column, OneOf)
            for part in column.parts
        ]
        twice = repeated([*self.names, *parts])
        if twice:
            raise SchemaError(f'column "{twice[0]}" is declared twice.')
        if self.person is not None and (
            not isinstance(self.person, str) or not self.person
        ):
            raise SchemaError(f"person must name the id column, not {self.person!r}.")
        if self.person in (*self.names, *parts):
            raise SchemaError(
                f'"{self.person}" is declared as a column and as the person. '
                "An id is never learned: take it out of the columns."
            )
        require_one_unit(self.person, self.rows_are_people)
        if self.origin not in get_args(Origin):
            hint = nearest(self.origin, get_args(Origin))
            raise SchemaError(
                f'origin must be "public" or "rows", not {self.origin!r}.{hint}'
            )
        if not isinstance(self.note, str):
            raise SchemaError(f"note must be text, not {self.note!r}.")
        if self.origin == "public" and (
            self.drafted is not None or READ_FROM in self.note
        ):
            object.__setattr__(self, "note", marked_by_hand({"": self}))
            object.__setattr__(self, "drafted", None)
        object.__setattr__(self, "rules", read_rules(self.rules))
        for rule in self.rules:
            rule.check({name: self.column(name) for name in rule.columns})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def unit(self) -> str:
        """What a run over such rows protects: a person, or a row."""
        return "person" if self.person or self.rows_are_people else "row"

    @property
    def row_schema(self) -> Self:
        """What rules and conditions may speak of: all columns."""
        return self

    def as_drawn(self) -> Self:
        """The schema of rows that were drawn or made up, each of somebody else."""
        return replace(self, person=None, rows_are_people=True)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f'there is no column "{name}".{nearest(name, self.names)}')

    def select(self, names: Iterable[str]) -> Self:
        columns = tuple(map(self.column, names))
        return replace(
            self,
            columns=columns,
            rules=about(self.rules, (column.name for column in columns)),
        )

    def drop(self, names: Iterable[str]) -> Self:
        gone = {self.column(name).name for name in names}
        return self.select(name for name in self.names if name not in gone)

    def expanded(self, keep: str | None = None) -> Self:
        """With the columns that a table has in place of each group of which one is 1,
        but for the column `keep`.
        """
        listed = [
            (column,) if column.name == keep else columns_of_tables([column])
            for column in self.columns
        ]
        columns = tuple(column for some in listed for column in some)
        if columns == self.columns:
            return self
        return replace(
            self,
            columns=columns,
            rules=about(self.rules, (column.name for column in columns)),
        )

    def binned(self, bins: Mapping[str, Any]) -> Self:
        """With these bins of its columns, by their names."""

        def cut(column: Column) -> Column:
            changes: dict[str, Any] = (
                {"bins": bins[column.name]} if column.name in bins else {}
            )
            return replace(
                column,
                **changes
                | ({"ends": False} if changes and isinstance(column, Real) else {}),
            )

        return replace(self, columns=tuple(map(cut, self.columns)))

    def require_public(self, which: str = "this schema") -> None:
        """Refuse a draft: its domains were read from rows and would leak them for
        free.
        """
        if self.origin != "public":
            raise DraftSchemaError(
                f"{which} was read from rows, so its categories, bounds and bins are "
                "private. "
                "If they are known publicly (a codebook, a form, the law), declare "
                "them: `understudy schema declare`, "
                'or origin = "public"; if not, buy them from the budget with the '
                "ledger.",
                effect=Effect.NOTHING_SENT,
            )

    def require_unit(self, which: str = "this schema") -> None:
        """Refuse a column of ids where nobody said whose rows these are: one person may
        have several of them.
        """
        ids = id_names(self.names)
        if ids and self.unit != "person":
            raise SchemaError(
                f'{which}: is a row a person? The column "{ids[0]}" is named like an '
                "id, and one person may have "
                "several rows. If it says whose each row is, take it out of the "
                "columns, and declare person = "
                f'"{ids[0]}". If every row is another person, declare rows_are_people '
                "= true.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def to_dict(self) -> dict[str, Any]:
        """The schema in plain types. Columns are a list, so that no sorting of keys can
        reorder them.
        """
        head: dict[str, Any] = {"person": self.person}
        head |= {"person_written": list(self.person_written)}
        head |= {"rows_are_people": self.rows_are_people}
        head |= {"origin": self.origin, "note": self.note}
        rules = {"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {}
        columns = {"columns": [c.to_dict() for c in self.columns]}
        is_draft = self.origin == "rows" and self.drafted is not None
        drafted = (
            {"drafted": self.drafted.to_dict()} if is_draft and self.drafted else {}
        )
        return {key: v for key, v in head.items() if v} | drafted | rules | columns

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read `to_dict`'s form, or a mapping from column names to columns."""
        if "kind" in data:
            described = f"rows of the kind {data['kind']!r}"
            raise SchemaError(
                f"this schema describes {described}, and a table is needed here."
            )
        allowed = (
            "person",
            "person_written",
            "rows_are_people",
            "origin",
            "note",
            "drafted",
            "rules",
            "one_of",
            "columns",
        )
        known_keys(data, allowed, "the schema", raised=SchemaError)
        columns = data.get("columns", ())
        if isinstance(columns, Mapping):
            columns = [
                {"name": name} | _table(name, keys) for name, keys in columns.items()
            ]
        if not isinstance(columns, list | tuple):
            raise SchemaError(
                f"columns must be tables or a list of tables, not {columns!r}."
            )
        bins = [column.get("bins") for column in columns if isinstance(column, Mapping)]
        levels = sum(number for number in bins if isinstance(number, int))
        if levels > MOST_LEVELS:
            raise SchemaError(
                f"its columns have {levels:,} bins together, more than {MOST_LEVELS:,}."
            )
        written = data.get("person_written", ())
        if not isinstance(written, list | tuple) or (
            written and not data.get("person")
        ):
            raise SchemaError("person_written is a list, beside a person.")
        declared = with_groups(tuple(map(_column, columns)), data.get("one_of", ()))
        drafted = Drafted.from_dict(data["drafted"]) if "drafted" in data else None
        values = {key: value for key, value in data.items() if key != "one_of"}
        return cls(**values | {"columns": declared, "drafted": drafted})

    @property
    def _title(self) -> str:
        person = (
            f"person {self.person}"
            if self.person
            else each_by_itself("row", self.rows_are_people)
        )
        origin = "public" if self.origin == "public" else "a draft, read from rows"
        return f"{len(self.columns)} columns, {person}, {origin}"

    def _repr_html_(self) -> str:
        rows = (
            (c.name, c.kind, c.domain, "yes" if c.nullable else "")
            for c in self.columns
        )
        private = (
            "" if self.origin == "public" else ": private until marked public or bought"
        )
        return grid(
            ("column", "kind", "values", "may be missing"),
            rows,
            title=f"{self._title}{private}",
        )

    def __str__(self) -> str:
        width = max(map(len, self.names))
        rows = (
            (
                f"  {c.name:<{width}}  {c.kind:<11}  "
                f"{c.domain}{', or missing' * c.nullable}"
            )
            for c in self.columns
        )
        return "\n".join(
            (self._title, *rows, *(f"  rule: {rule}" for rule in self.rules))
        )


def join(schemas: Mapping[str, Schema]) -> Schema:
    """The columns of several parties side by side; the person where all call it the
    same; a draft makes it a draft.
    """
    if not schemas:
        raise SchemaError("there is no schema to join.")
    holder: dict[str, str] = {}
    for party, schema in schemas.items():
        for name in schema.names:
            if name in holder:
                raise SchemaError(
                    f'column "{name}" is declared by "{holder[name]}" and by '
                    f'"{party}". '
                    "Columns of several parties must differ: rename one, or say in "
                    "shared_columns whose copy is used."
                )
            holder[name] = party
    persons = {schema.person for schema in schemas.values()}
    of_people = all(schema.unit == "person" for schema in schemas.values())
    clash = sorted(p for p in persons if p in holder)
    if clash:
        raise SchemaError(
            f'"{clash[0]}" identifies people at one party and is a column of '
            f'"{holder[clash[0]]}". Rename one.'
        )
    person = persons.pop() if len(persons) == 1 else None
    return Schema(
        columns=tuple(
            column for schema in schemas.values() for column in schema.columns
        ),
        person=person,
        rows_are_people=of_people and person is None,
        origin="rows"
        if any(schema.origin == "rows" for schema in schemas.values())
        else "public",
        note="; ".join(
            dict.fromkeys(schema.note for schema in schemas.values() if schema.note)
        ),
        rules=tuple(
            dict.fromkeys(rule for schema in schemas.values() for rule in schema.rules)
        ),
    )


def was_bought(schema: Schema) -> bool:
    """Whether its domains were bought from rows, and so may not hold all of them."""
    return schema.note.startswith(BOUGHT)


def _column(data: Mapping[str, Any]) -> Column:
    keys = _table(data.get("name", "?") if isinstance(data, Mapping) else "?", data)
    where = f'column "{keys.get("name", "?")}"'
    kind = keys.pop("kind", None)
    if kind not in KINDS:
        problem = "has no kind" if kind is None else f"has the unknown kind {kind!r}"
        raise SchemaError(
            f"{where} {problem}; the kinds are "
            f"{', '.join(KINDS)}.{nearest(kind, KINDS)}"
        )
    required = {f.name: f.default is MISSING for f in fields(KINDS[kind])}
    known_keys(keys, required, where, raised=SchemaError)
    lacking = [key for key, needed in required.items() if needed and key not in keys]
    if lacking:
        raise SchemaError(f"{where} is {kind} and needs {' and '.join(lacking)}.")
    return KINDS[kind](**keys)


def _table(name: str, keys: object) -> dict[str, Any]:
    if not isinstance(keys, Mapping):
        raise SchemaError(f'column "{name}" must be a table of keys, not {keys!r}.')
    return dict(keys)


Block = tuple[int, int]  # two groups, the lower number first


@dataclass(frozen=True)
class Grid:
    """The holders by group; groups and holders in the order in which they were
    named.
    """

    groups: tuple[tuple[str, ...], ...]

    @classmethod
    def from_schemas(cls, schemas: Mapping[str, Schema]) -> "Grid":
        return cls.alike({name: schema.columns for name, schema in schemas.items()})

    @classmethod
    def alike(cls, columns_by_holder: Mapping[str, Hashable]) -> "Grid":
        groups: dict[Hashable, list[str]] = {}
        for name, what_is_held in columns_by_holder.items():
            groups.setdefault(what_is_held, []).append(name)
        return cls(tuple(map(tuple, groups.values())))

    @property
    def partition(self) -> str:
        """ "horizontal", "vertical" or "grid"."""
        if len(self.groups) == 1:
            return "horizontal"
        several = any(len(group) > 1 for group in self.groups)
        return "grid" if several else "vertical"

    def group_of(self, name: str) -> int:
        return next(number for number, group in enumerate(self.groups) if name in group)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every group by itself, and every two: what holders of both, or of one, have a
        part in.
        """
        return tuple(combinations_with_replacement(range(len(self.groups)), 2))

    def holders(self, block: Block) -> tuple[str, ...]:
        return tuple(
            name for group in sorted(set(block)) for name in self.groups[group]
        )

    def one_each(self, values: Mapping[str, T]) -> dict[str, T]:
        return {group[0]: values[group[0]] for group in self.groups}

    def check_max_holders_per_person(self, max_holders_per_person: int) -> None:
        """ConfigError unless a person can be with so many holders of every column."""
        whole(max_holders_per_person=max_holders_per_person)
        if max_holders_per_person > (limit := min(map(len, self.groups))):
            raise ConfigError(
                f"max_holders_per_person={max_holders_per_person} is for rows at so "
                f"many holders or more, and here {limit} have the same columns; where "
                "columns are split, alignment makes sure that a person is with one "
                "holder of each column.",
                effect=Effect.NOTHING_CHARGED,
            )

    def join(self, schemas: Mapping[str, Schema]) -> Schema:
        """The columns of all groups side by side. Edges: a column in two groups →
        SchemaError.
        """
        joint = join(self.one_each(schemas))
        rules = dict.fromkeys(
            rule for schema in schemas.values() for rule in schema.rules
        )
        notes = dict.fromkeys(schema.note for schema in schemas.values() if schema.note)
        return replace(joint, rules=tuple(rules), note="; ".join(notes))
