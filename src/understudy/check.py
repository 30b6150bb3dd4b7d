"""Argument checks, in one place and in one voice.

Each takes keyword arguments, so that the message can name them: `positive(epsilon=epsilon)`.
"""

import difflib
import sys
from collections.abc import Iterable

from understudy.errors import ConfigError


def positive(**values: float) -> None:
    """Every value is a finite number above zero."""
    for name, value in values.items():
        if not _number(value) or not value > 0:
            raise ConfigError(f"{name} must be above 0, not {value!r}.")


def not_negative(**values: float) -> None:
    """Every value is a finite number, zero or above."""
    for name, value in values.items():
        if not _number(value) or value < 0:
            raise ConfigError(f"{name} must be 0 or above, not {value!r}.")


def in_range(low: float, high: float, /, **values: float) -> None:
    """Every value lies in [low, high]."""
    for name, value in values.items():
        if not _number(value) or not low <= value <= high:
            raise ConfigError(f"{name} must lie between {low} and {high}, not {value!r}.")


def whole(**values: int) -> None:
    """Every value is an integer of at least 1."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}.")


def one_of(choices: Iterable[str], /, **values: str) -> None:
    """Every value is one of the choices; the message names the nearest one."""
    known = tuple(choices)
    for name, value in values.items():
        if value not in known:
            raise ConfigError(
                f"{name} must be one of {', '.join(known)}, not {value!r}.{nearest(value, known)}"
            )


def nearest(word: object, known: Iterable[str]) -> str:
    """A hint at the end of a message: ` Did you mean "rounds"?`, or nothing."""
    match = difflib.get_close_matches(str(word), list(known), n=1)
    return f' Did you mean "{match[0]}"?' if match else ""


def _number(value: object) -> bool:
    """Whether it is a number that a float holds: a whole number may be too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max
