"""A setting is declared once: its default, which values it takes, and what it means.

    @dataclass(frozen=True, kw_only=True)
    class Config(Declared):
        rounds: int = setting(500, WHOLE, "rounds of training")
        share: float = setting(0.8, between(0, 1), "expected share of …")

The check when a config is built, at its owner and at a party that a server sends one,
the pages and the command line follow from that. A config that inherits a setting may
give it another default, and needs no other declaration.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from understudy.ground.check import (
    in_range,
    is_whole,
    not_negative,
    one_of,
    positive,
    require,
    whole,
)

T = TypeVar("T")
_LARGE = 1 << 16  # a bound that nobody meets is not worth saying


@dataclass(frozen=True)
class Takes:
    """What a setting takes: its description, and a check of one value. `convert` gives
    the value that is kept. `check_named` takes the value by the setting's name as the
    keyword, as the checks of `ground.check` do, and its refusal says the name.
    """

    description: str
    check: Callable[[Any], None] | None = None
    convert: Callable[[Any], Any] = lambda value: value
    check_named: Callable[..., None] | None = None

    def validate(self, name: str, value: Any) -> Any:
        """The value as it is kept. ConfigError where it is none of these."""
        if self.check_named is not None:
            self.check_named(**{name: value})
        if self.check is not None:
            self.check(value)
        return self.convert(value)


def setting(default: T, takes: Takes, meaning: str) -> T:
    """One setting of a config. Where the default is None, None is no value, and is
    taken.
    """
    field: T = dataclasses.field(
        default=default, metadata={"takes": takes, "meaning": meaning}
    )
    return field


class Declared:
    """A config all of whose fields are settings."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name = field.name
            value = getattr(self, name)
            if value is not None or field.default is not None:
                takes, _ = declared(type(self), name)
                object.__setattr__(self, name, takes.validate(name, value))


def declared(config: Any, name: str) -> tuple[Takes, str]:
    """The values and the meaning of a setting, as the config or what it inherits from
    declares them.
    """
    for cls in config.__mro__:
        field = cls.__dict__.get("__dataclass_fields__", {}).get(name)
        if field is not None and field.metadata:
            return field.metadata["takes"], field.metadata["meaning"]
    raise TypeError(f"{config.__name__}.{name} is no declared setting")


def between(low: float, high: float) -> Takes:
    return Takes(
        f"between {low} and {high}",
        check_named=lambda **values: in_range(low, high, **values),
    )


def whole_to(highest: int, lowest: int = 1) -> Takes:

    def check(**values: Any) -> None:
        whole(**values)
        in_range(lowest, highest, **values)

    description = (
        WHOLE.description
        if highest >= _LARGE
        else f"a whole number from {lowest} to {highest}"
    )
    return Takes(description, check_named=check)


def choice(*choices: str) -> Takes:
    return Takes(
        ", ".join(choices), check_named=lambda **values: one_of(choices, **values)
    )


def listed(
    description: str, check: Callable[..., None] = lambda **values: None
) -> Takes:
    """A list, kept as a tuple; the check takes the tuple by the setting's name."""

    def check_all(**values: Any) -> None:
        require(lambda value: isinstance(value, tuple | list), "be a list", values)
        check(**{name: tuple(value) for name, value in values.items()})

    return Takes(description, convert=tuple, check_named=check_all)


def _what_is(description: str, holds: Callable[[Any], bool]) -> Takes:
    """Values of which this holds; a refusal says the same words."""
    return Takes(
        description,
        check_named=lambda **values: require(holds, f"be {description}", values),
    )


def _share(**values: Any) -> None:
    positive(**values)
    in_range(0, 1, **values)


WHOLE = Takes("a whole number of at least 1", check_named=whole)
POSITIVE = Takes("above 0", check_named=positive)
NOT_NEGATIVE = Takes("0 or above", check_named=not_negative)
NONE_OR_MORE = _what_is(
    "a whole number of 0 or above", lambda value: type(value) is int and value >= 0
)
SHARE = Takes("above 0, 1 at most", check_named=_share)
# what every generator of random numbers takes
SEED = _what_is(
    "a whole number from 0 to 2⁶³ − 1",
    lambda value: is_whole(value) and 0 <= value < 1 << 63,
)
TRUTH = _what_is("true or false", lambda value: type(value) is bool)
TEXT = _what_is("a text", lambda value: isinstance(value, str))
COLUMN = Takes("a column's name", check_named=TEXT.check_named)
A_LIST = listed("a list")
