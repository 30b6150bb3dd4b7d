"""Attributes that several holders of the same people have: whose copy a run uses.

Jiang, Zhang, Zhou, Grossklags, "VertiGAN" (PoPETs 2023(2)), §4: "the attribute sets can
be either partially overlapping or non-overlapping". A run says for each such column
whose copy it uses, or "each" for everybody's, under names of their own:

    shared_columns = {"age": "clinic", "sex": "each"}
    # the columns of the run: age, and sex (clinic), sex (insurer)

Guarantee: with one holder's copy the others do not read theirs, so that nothing is
learned of it and nothing is compared. No error says that copies disagree: how many
people that concerns is a figure of rows. "each" buys it, with all that a run measures
of these columns. Edges: a column that one holder alone has, or that holders declare in
different ways, a holder who does not have it, a rule that speaks of a copy that is left
out, a holder with nothing else → SchemaError, before a row is read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.ground.errors import ConfigError, Effect, SchemaError

EACH = "each"
Owners = Mapping[str, str]  # of a column: its holder's name, or EACH


def own_name(column: str, holder: str) -> str:
    """What a holder's copy is called where each is used."""
    return f"{column} ({holder})"


def check_owners(schemas: Mapping[str, Any], shared: Owners) -> None:
    """SchemaError where these owners are not of columns that several tables have."""
    tables = TABLE.among(schemas)
    for column, owner in shared.items():
        copies = {
            name: schema.column(column)
            for name, schema in tables.items()
            if column in schema.names
        }
        named = ", ".join(copies) or "nobody"
        if len(copies) < 2:
            raise SchemaError(
                f'shared_columns: "{column}" is a column of {named} alone.',
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
        if owner != EACH and owner not in copies:
            raise SchemaError(
                f'shared_columns: "{column}" is a column of {named}, not of {owner!r}; '
                f'"{EACH}" uses every copy.',
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
        if len(set(copies.values())) > 1:
            raise SchemaError(
                f'shared_columns: {named} declare "{column}" in different ways. '
                "Declare it alike, or rename one.",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )


def read_schema(holder: str, schema: Any, shared: Owners) -> Any:
    """What the holder reads of its table: all but what another's copy stands for."""
    if not TABLE.describes(schema):
        return schema
    others = [
        name for name in schema.names if shared.get(name, EACH) not in (EACH, holder)
    ]
    if not others:
        return schema
    if len(others) == len(schema.names):
        raise SchemaError(
            f"shared_columns: nothing is left of the columns of {holder}.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    remaining = schema.drop(others)
    _require_rules(holder, schema, remaining)
    return remaining


def run_schema(holder: str, schema: Any, shared: Owners) -> Any:
    """The same, each copy that is used under its own name."""
    read = read_schema(holder, schema, shared)
    names = _new_names(holder, read, shared)
    if not names:
        return read
    renamed = replace(
        read,
        columns=tuple(
            replace(column, name=names.get(column.name, column.name))
            for column in read.columns
        ),
        rules=tuple(rule for rule in read.rules if not names.keys() & {*rule.columns}),
    )
    _require_rules(holder, read, renamed)
    return renamed


def run_schemas(schemas: Mapping[str, Any], shared: Owners) -> dict[str, Any]:
    """What each holder brings to a run with these shared columns."""
    check_owners(schemas, shared)
    return {name: run_schema(name, schema, shared) for name, schema in schemas.items()}


def with_own_names(holder: str, rows: Any, shared: Owners) -> Any:
    """Rows that were read by `read_schema`, as `run_schema` has them."""
    schema = getattr(rows, "schema", None)
    names = _new_names(holder, schema, shared)
    if not names:
        return rows
    if type(rows) is not Table:
        raise ConfigError(
            f"{holder}: {rows.source} is read in batches, and its copy of "
            f'"{next(iter(names))}" cannot be renamed. Choose one holder\'s copy.',
            effect=Effect.NOTHING_CHARGED,
        )
    frame = rows.frame.rename(columns=names)
    return Table(frame, run_schema(holder, schema, shared), rows.source)


def _new_names(holder: str, schema: Any, shared: Owners) -> dict[str, str]:
    if not TABLE.describes(schema):
        return {}
    return {
        name: own_name(name, holder)
        for name in schema.names
        if shared.get(name) == EACH
    }


def _require_rules(holder: str, before: Schema, after: Schema) -> None:
    """A rule that goes with a copy would go without a word."""
    gone = [rule for rule in before.rules if rule not in after.rules]
    if gone:
        columns = ", ".join(gone[0].columns)
        raise SchemaError(
            f"shared_columns: a rule of {holder} speaks of {columns}, and not all of "
            "them are in the run under these names. State it in the run's [[rules]].",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
