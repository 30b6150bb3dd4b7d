"""The settings of every protocol, with meaning, default and range: `understudy protocols NAME`, and docs/settings.md.

Names, types and defaults are those of the protocol's `Config`. Ranges are what `Config` itself says when it refuses a
value that nobody would choose. Meanings stand below, where several protocols share a word, and else in the docstring of
the `Config`.
"""

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from understudy.ground.errors import UnderstudyError
from understudy.ground.settings import declaration
from understudy.runs.registry import PROTOCOLS, protocol_named

_ABSURD: tuple[Any, ...] = (-1e300, "?", -1, 10**400, (-1.0,), ("?",))
_REQUIRED = {"epsilon_total": 1.0}  # what some configs cannot be without

WORDS = {
    "components": "products in the mixture that is fitted",
    "steps": "the most steps of the fit",
    "rate": "learning rate of the fit",
    "target": "the column to predict from the others",
    "at_least": "over rows: the run continues while at least this many holders are there; without it all must stay",
    "most_holders": "how many holders of the same columns may hold the same person, as the holders state it",
    "colluding": "ε still holds if this many holders share with each other all that they know",
    "chunk": "people per message",
    "private": "false: no noise, for rehearsals on public rows alone",
    "device": "where the server computes",
    "seed": "seed of what is public (initial weights, batches of synthetic rows), never of noise",
    "fine": "share of the budget for fine tables, by which levels are chosen where none are declared; 0: even bins",
    "refined": "how many other pairs are measured a second time: the strongest by the first release",
    "scouting": "share of the budget for all pairs, where some are measured twice; by default .8, less for few people",
    "public_people": "about how many people there are, if that is public; for few, a target's pairs get more budget",
    "chosen_triples": "three-way tables of the target, chosen by the first release; 4 with many public people",
    "triples": "further three-way tables to measure, each with columns of one holder only",
}  # fmt: skip
VALUES = {
    "fine": "0, or between 0.02 and 0.9",
    "triples": "a list of lists of three columns",
    "target": "a column's name",
    "device": "auto, cpu, cuda",
}  # where a config's own refusal says less


@dataclasses.dataclass(frozen=True)
class Setting:
    """One key of `[settings]`."""

    name: str
    default: str
    values: str
    meaning: str


def settings_of(protocol: str) -> list[Setting]:
    """Every setting of a protocol. ConfigError names the nearest protocol where there is none of that name."""
    config: Any = protocol_named(protocol).config
    return [
        Setting(
            field.name,
            _plain(field.default),
            _values(protocol, config, field),
            _meaning(protocol, config, field.name),
        )
        for field in dataclasses.fields(config)
    ]


def reference() -> str:
    """docs/settings.md: what several protocols share in one table, then each protocol's own settings."""
    every = {protocol: settings_of(protocol) for protocol in PROTOCOLS}
    shared = _shared(every.values())
    lines = [f"- `{name}`{_range(values)}: {meaning}" for name, (values, meaning) in sorted(shared.items())]
    parts = [_HEAD, *lines, ""]
    for protocol, record in PROTOCOLS.items():
        own = [one for one in every[protocol] if shared.get(one.name) != (one.values, one.meaning)]
        others = ", ".join(f"`{one.name}={one.default}`" for one in every[protocol] if one not in own)
        parts += [f"## {protocol}\n", f"{record.title}\n"]
        parts += [*map(_line, own), ""] if own else []
        parts += [f"Shared: {others}.\n"]
    return "\n".join(parts)


def _shared(every: Iterable[list[Setting]]) -> dict[str, tuple[str, str]]:
    """Values and meaning of each name that means the same in several protocols."""
    count = Counter((one.name, one.values, one.meaning) for settings in every for one in settings)
    return {name: (values, meaning) for (name, values, meaning), n in reversed(count.most_common()) if n > 1}


_HEAD = """\
# Settings

The keys of `[settings]` in a run file, and the keywords of `us.train`. Written by `make reference` from the protocols'
own `Config`; `understudy protocols NAME` prints all settings of one. A range is what the `Config` refuses to leave;
where none stands: a whole number of at least 1. `–` is no value.

## Shared by several protocols
"""


def _line(setting: Setting) -> str:
    return f"- `{setting.name}={setting.default}`{_range(setting.values)}: {setting.meaning}"


def _range(values: str) -> str:
    return "" if values == "a whole number of at least 1" else f" ({values})"


def _plain(value: object) -> str:
    """A default as a run file would have it."""
    if value is None or value is dataclasses.MISSING:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return (
        f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _meaning(protocol: str, config: type, name: str) -> str:
    if (declared := declaration(config, name)) is not None:
        return declared[1]
    return WORDS.get(f"{protocol}.{name}") or WORDS.get(name) or _told(config, name)


def _told(config: type, name: str) -> str:
    """What a docstring of the config, or of what it inherits, says of the setting: the first sentence that names it."""
    for cls in config.__mro__:
        text = " ".join((inspect.getdoc(cls) or "").split()) if cls.__doc__ else ""
        for sentence in re.split(r"(?<=[.;])\s+(?=[A-Z`])", text):
            if f"`{name}`" in sentence:
                return re.sub(rf"^`{name}`:\s*", "", sentence).rstrip(".;")
    return ""


def _values(protocol: str, config: type, field: "dataclasses.Field[Any]") -> str:
    """What a config says that a value must be when it refuses one; its type where it refuses none by name."""
    if (declared := declaration(config, field.name)) is not None:
        return declared[0].said
    if stated := VALUES.get(f"{protocol}.{field.name}") or VALUES.get(field.name):
        return stated
    for said in _refusals(config, field.name):
        if found := re.match(rf"{re.escape(field.name)} must (?:be |lie )?(.+?),? not ", said):
            return found[1].removeprefix("one of ")
    kind = str(getattr(field.type, "__name__", field.type)).removesuffix(" | None")
    return {"bool": "true or false", "str": "a text", "tuple": "a list"}.get(kind, kind)


def _refusals(config: type, name: str) -> Iterator[str]:
    base = {
        key: value for key, value in _REQUIRED.items() if key in {f.name for f in dataclasses.fields(config)}
    }
    for value in _ABSURD:
        for given in (base, {}):
            try:
                config(**{**given, name: value})
            except UnderstudyError as error:
                yield str(error)
            except (TypeError, ValueError, OverflowError, AttributeError):
                continue
