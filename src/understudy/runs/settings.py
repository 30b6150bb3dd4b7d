"""The settings of every protocol, with meaning, default and range: `understudy protocols NAME`, and docs/settings.md.

All of it is what the protocol's `Config` declares (`ground.settings`).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable

from understudy.ground.settings import declared
from understudy.runs.registry import PROTOCOLS, protocol_named


@dataclasses.dataclass(frozen=True)
class Setting:
    """One key of `[settings]`."""

    name: str
    default: str
    values: str
    meaning: str


def settings_of(protocol: str) -> list[Setting]:
    """Every setting of a protocol. ConfigError names the nearest protocol where there is none of that name."""
    record = protocol_named(protocol)
    return [
        Setting(name, _plain(field.default), takes.said, meaning)
        for name, field in record.settings.items()
        for takes, meaning in [declared(record.config, name)]
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
