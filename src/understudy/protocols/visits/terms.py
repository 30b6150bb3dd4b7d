"""What a run of visits fixes before anything is counted: the one schema, the tables, and their noise.

Guarantee: made of public schemas, settings and the agreed noise multiplier; every party computes it by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from understudy.check import whole
from understudy.data.visits import VisitLayout, VisitSchema
from understudy.errors import ConfigError, SchemaError
from understudy.privacy.secure import noise_share
from understudy.privacy.secure.moments import LARGEST, noise_for

SETTLED = ("colluding", "most_holders", "private")
# What a person weighs in a table, in whole parts: the finest whose noise can be drawn. Divisible by many numbers.
UNITS = (27_720, 5_040, 2_520, 840, 360, 120, 60, 24, 12, 6, 2, 1)


@dataclass(frozen=True)
class Terms:
    """The tables, the parts in which they count, and the scale of all holders' noise on a cell, in these parts."""

    layout: VisitLayout
    unit: int
    sigma: float

    @classmethod
    def of(cls, schema: VisitSchema, multiplier: float, most_holders: int) -> "Terms":
        """Noise of this multiplier for a person who is with so many holders.

        Edges: more noise than can be drawn → ConfigError.
        """
        layout = VisitLayout.of(schema)
        for unit in UNITS:
            if multiplier * most_holders * layout.reach(unit) * 1.03 <= LARGEST / 1.5:
                break
        return cls(layout, unit, noise_for(multiplier, most_holders * layout.reach(unit)))

    def share(self, parties: int, colluding: int) -> Fraction:
        """The scale of one holder's noise."""
        return noise_share(Fraction(self.sigma), parties, colluding=colluding)

    def deviation(self, parties: int, colluding: int) -> float:
        """Of the noise of all holders together, in parts."""
        return float(self.share(parties, colluding)) * (parties**0.5 if parties > 1 else 1.0)


def public_of(schema: VisitSchema) -> dict[str, Any]:
    """What of a schema has to be alike at all parties: not what each calls the person."""
    return {key: value for key, value in schema.to_dict().items() if key not in ("person", "note")}


def common(schemas: Mapping[str, Any]) -> VisitSchema:
    """The one schema of all parties."""
    for name, schema in schemas.items():
        if not isinstance(schema, VisitSchema):
            raise ConfigError(
                f"{name} holds no people with events, and visits takes nothing else: gram is for tables. "
                "Nothing was charged."
            )
    first, *others = schemas.items()
    for name, schema in others:
        if public_of(schema) != public_of(first[1]):
            raise SchemaError(f"{first[0]} and {name} describe their rows differently. Nothing was charged.")
    found: VisitSchema = first[1]
    return found


def check_settled(config: Mapping[str, Any], parties: int) -> None:
    """The settings that a price depends on."""
    whole(colluding=config["colluding"], most_holders=config["most_holders"])
    if type(config["private"]) is not bool:
        raise ConfigError(f"private is true or false, not {config['private']!r}. Nothing was charged.")
    if config["most_holders"] > parties:
        raise ConfigError(
            f"most_holders={config['most_holders']}, and there are {parties} parties. Nothing was charged."
        )
