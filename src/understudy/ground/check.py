"""Argument checks in one voice, by keyword, so that messages name them:
`positive(epsilon=epsilon)`.
"""

import difflib
import hashlib
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from understudy.ground.errors import ConfigError, Effect, UnderstudyError


def is_number(value: object) -> bool:
    """Whether it is a number that a float holds, and no truth value: a whole number may
    be too large for one.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def require(
    holds: Callable[[Any], bool], condition: str, values: Mapping[str, object]
) -> None:
    """ConfigError that names the first value of which it does not hold."""
    for name, value in values.items():
        if not holds(value):
            raise ConfigError(f"{name} must {condition}, not {value!r}.")


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def positive(**values: float) -> None:
    require(lambda value: is_number(value) and value > 0, "be above 0", values)


def not_negative(**values: float) -> None:
    require(lambda value: is_number(value) and value >= 0, "be 0 or above", values)


def in_range(low: float, high: float, /, **values: float) -> None:
    condition = f"lie between {low} and {high}"
    require(lambda value: is_number(value) and low <= value <= high, condition, values)


def whole(**values: int) -> None:
    require(
        lambda value: is_whole(value) and value >= 1,
        "be a whole number of at least 1",
        values,
    )


def one_of(choices: Iterable[str], /, **values: str) -> None:
    """Every value is one of the choices; the message names the nearest one."""
    allowed = tuple(choices)
    for name, value in values.items():
        if value not in allowed:
            raise ConfigError(
                f"{name} must be one of {', '.join(allowed)}, not "
                f"{value!r}.{nearest(value, allowed)}"
            )


_LOOK = 1000  # words, and letters of one: a hint is not worth more


def repeated(values: Iterable[str]) -> list[str]:
    return [value for value, times in Counter(values).items() if times > 1]


def nearest(word: object, known: Iterable[str]) -> str:
    """A hint at the end of a message: ` Did you mean "rounds"?`, or nothing."""
    match = difflib.get_close_matches(
        str(word)[:_LOOK], list(islice(known, _LOOK)), n=1
    )
    return f' Did you mean "{match[0]}"?' if match else ""


def known_keys(
    data: Iterable[str],
    known: Iterable[str],
    where: str,
    *,
    raised: type[UnderstudyError] = ConfigError,
) -> None:
    """Refuse a key that means nothing here, and name the nearest one that does."""
    known = tuple(known)
    for key in data:
        if key not in known:
            hint = nearest(key, known) or f" Known keys: {', '.join(known)}."
            raise raised(
                f'{where}: unknown key "{key}".{hint}',
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )


_SPACES = "\n\t\u00a0\u2009\u202f"
# bytes of UTF-8: what a certificate takes, and a file system with an ending
LONGEST_NAME = 64


def plain_name(*, effect: Effect = Effect.NOTHING_WRITTEN, **values: str) -> None:
    """Every value can stand in a file name, a certificate, a page and an error text,
    and look like what it is. `effect` is that of the error. Edges: a
    space is allowed inside ("holder 0"), a letter of any script, too; ones that look
    alike are not told apart.
    """
    for what, value in values.items():
        fault = _name_fault(value)
        if fault:
            quoted = text if len(text := ascii(value)) <= 80 else f"{text[:80]}…"
            raise ConfigError(
                f"{what} must be a plain name, and {quoted} {fault}.", effect=effect
            )


def plain_names(
    values: Iterable[str], what: str, *, effect: Effect = Effect.NOTHING_WRITTEN
) -> None:
    """Every one is a name, and no two would be one file where upper and lower case are
    the same.
    """
    originals: dict[str, str] = {}
    for value in values:
        plain_name(effect=effect, **{what: value})
        other = originals.setdefault(value.casefold(), value)
        if other != value:
            raise ConfigError(
                f'"{other}" and "{value}" are two names of a {what} that some file '
                f"systems take for one.",
                effect=effect,
            )


def file_names(labels: Sequence[object]) -> list[str]:
    """A file name for each label: itself where it is short and plain, otherwise marked.
    Guarantee: a name needs no quoting and leads nowhere else; different labels have
    different ones, also where upper and lower case are the same.
    """
    texts = [str(label) for label in labels]
    short = [re.sub(r"[^0-9A-Za-z_]", "_", text[:32]) or "_" for text in texts]
    repeats = Counter(one.casefold() for one in short)
    marks = (
        hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
        for text in texts
    )
    return [
        one if one == text and repeats[one.casefold()] == 1 else f"{one}-{mark}"
        for one, text, mark in zip(short, texts, marks, strict=True)
    ]


def readable(text: str) -> str:
    """A text of others, to be shown: a mark stands for what steers a terminal, turns a
    line around or is unseen.
    """
    return "".join(one if one.isprintable() or one in _SPACES else "�" for one in text)


def pluralize(count: int, noun: str) -> str:
    """ "1 column", "1,200 columns"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def finite(value: float) -> float | None:
    """A number as a file holds it: None where it is without end."""
    return value if math.isfinite(value) else None


def _name_fault(value: object) -> str:
    if not isinstance(value, str) or not value:
        return "is not text, or is empty"
    # control characters, NUL, line ends, what turns the direction of writing
    if not value.isprintable():
        return "holds a character that cannot be seen"
    if len(value.encode()) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} bytes"
    strange = [letter for letter in value if letter in '/\\:"']
    if strange:
        return f"holds {strange[0]}"
    if value[0] in ".- " or value[-1] == " ":
        return "begins with a dot, a dash or a space, or ends with a space"
    if unicodedata.normalize("NFC", value) != value:
        return "is not in Unicode's composed form (NFC)"
    return ""
