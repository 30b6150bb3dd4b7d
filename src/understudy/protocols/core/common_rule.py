"""The one rule by which the rows of all parties in a horizontal partition become
numbers, or features and a class.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from understudy.data.encoding.features import (
    Features,
    Slots,
    TableFeatures,
    Values,
    rule_of,
)
from understudy.data.kinds import FLAT, TABLE, AnySchema
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, Effect

R = TypeVar("R")


def common_features(
    schemas: Mapping[str, Schema | Features], target: str | None
) -> Features:
    """The one rule by which all parties' rows become features. ConfigError where they
    differ.
    """
    return all_alike(
        {name: _features(schema, target) for name, schema in schemas.items()}
    )


def common_rule(schemas: Mapping[str, AnySchema | Features]) -> Slots | Values:
    """The one rule by which all parties' rows, which have no class, become numbers.
    ConfigError where they differ.
    """
    return all_alike({name: _rule(name, schema) for name, schema in schemas.items()})


def _rule(name: str, described: AnySchema | Features) -> Slots | Values:
    if isinstance(described, Slots | Values):
        described = described.schema
    if not FLAT.describes(described):
        raise ConfigError(
            f"{name} brings people from arrays with classes; here rows are tables, "
            "series or images by a schema.",
            effect=Effect.NOTHING_CHARGED,
        )
    # Who holds the rows may call the person, and note things, as they like.
    return rule_of(replace(described, person=None, rows_are_people=False, note=""))


def all_alike(rules: Mapping[str, R]) -> R:
    """What all parties have. ConfigError where one has another."""
    (first, rule), *others = rules.items()
    for name, other in others:
        if other != rule:
            raise ConfigError(
                f"{first} and {name} do not describe their rows in the same way: over "
                "rows, all parties have the same "
                "columns, levels and bounds.",
                effect=Effect.NOTHING_CHARGED,
            )
    return rule


def _features(schema: Schema | Features, target: str | None) -> Features:
    if TABLE.describes(schema):
        if target is None:
            raise ConfigError(
                "target is missing: which column is the class?",
                effect=Effect.NOTHING_CHARGED,
            )
        schema = TableFeatures(schema, target)
    if not isinstance(schema, TableFeatures):
        return schema
    if target not in (None, schema.target):
        raise ConfigError(
            f"target is {target!r}, but a population's is {schema.target!r}.",
            effect=Effect.NOTHING_CHARGED,
        )
    # Who holds the rows may call the person, and note things, as they like.
    return TableFeatures(
        replace(schema.schema, person=None, rows_are_people=False, note=""),
        schema.target,
    )
