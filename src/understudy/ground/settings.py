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
    """What a setting takes: in words, and as a check of one value. `kept`: how the
    value is kept. `named`: a check that says the setting's name, as those of
    `ground.check` do: it takes the value by that keyword.
    """

    said: str
    check: Callable[[Any], None] | None = None
    kept: Callable[[Any], Any] = lambda value: value
    named: Callable[..., None] | None = None

    def validate(self, name: str, value: Any) -> Any:
        """The value as it is kept. ConfigError where it is none of these."""
        if self.named is not None:
            self.named(**{name: value})
        if self.check is not None:
            self.check(value)
        return self.kept(value)


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
        f"between {low} and {high}", named=lambda **named: in_range(low, high, **named)
    )


def whole_to(most: int, least: int = 1) -> Takes:

    def check(**named: Any) -> None:
        whole(**named)
        in_range(least, most, **named)

    said = WHOLE.said if most >= _LARGE else f"a whole number from {least} to {most}"
    return Takes(said, named=check)


def choice(*choices: str) -> Takes:
    return Takes(", ".join(choices), named=lambda **named: one_of(choices, **named))


def listed(said: str, check: Callable[..., None] = lambda **named: None) -> Takes:
    """A list, kept as a tuple; the check takes the tuple by the setting's name."""

    def check_all(**named: Any) -> None:
        require(lambda values: isinstance(values, tuple | list), "be a list", named)
        check(**{name: tuple(values) for name, values in named.items()})

    return Takes(said, kept=tuple, named=check_all)


def _what_is(said: str, holds: Callable[[Any], bool]) -> Takes:
    """Values of which this holds; a refusal says the same words."""
    return Takes(said, named=lambda **named: require(holds, f"be {said}", named))


def _share(**named: Any) -> None:
    positive(**named)
    in_range(0, 1, **named)


WHOLE = Takes("a whole number of at least 1", named=whole)
POSITIVE = Takes("above 0", named=positive)
NOT_NEGATIVE = Takes("0 or above", named=not_negative)
NONE_OR_MORE = _what_is(
    "a whole number of 0 or above", lambda value: type(value) is int and value >= 0
)
SHARE = Takes("above 0, 1 at most", named=_share)
# what every generator of random numbers takes
SEED = _what_is(
    "a whole number from 0 to 2⁶³ − 1",
    lambda value: is_whole(value) and 0 <= value < 1 << 63,
)
TRUTH = _what_is("true or false", lambda value: type(value) is bool)
TEXT = _what_is("a text", lambda value: isinstance(value, str))
COLUMN = Takes("a column's name", named=TEXT.named)
A_LIST = listed("a list")
