"""Write docs/settings.md from the settings that the protocols declare: `make
reference`.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from understudy.runs.registry import PROTOCOLS, Setting, settings_of


def reference() -> str:
    """docs/settings.md: what several protocols share in one table, then each protocol's
    own settings.
    """
    every = {protocol: settings_of(protocol) for protocol in PROTOCOLS}
    shared = _shared(every.values())
    lines = [
        f"- `{name}`{_range(values)}: {meaning}"
        for name, (values, meaning) in sorted(shared.items())
    ]
    parts = [_HEAD, *lines, ""]
    for protocol, record in PROTOCOLS.items():
        own = [
            one
            for one in every[protocol]
            if shared.get(one.name) != (one.values, one.meaning)
        ]
        others = ", ".join(
            f"`{one.name}={one.default}`" for one in every[protocol] if one not in own
        )
        parts += [f"## {protocol}\n", f"{record.title}\n"]
        parts += [*map(_line, own), ""] if own else []
        parts += [f"Shared: {others}.\n"]
    return "\n".join(map(_wrapped, parts))


def _wrapped(part: str) -> str:
    """Lines of prose have 120 characters at most."""
    return "\n".join(
        textwrap.fill(
            line,
            width=120,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in part.split("\n")
    )


def _shared(every: Iterable[list[Setting]]) -> dict[str, tuple[str, str]]:
    """Values and meaning of each name that means the same in several protocols."""
    count = Counter(
        (one.name, one.values, one.meaning) for settings in every for one in settings
    )
    return {
        name: (values, meaning)
        for (name, values, meaning), n in reversed(count.most_common())
        if n > 1
    }


_HEAD = """\
# Settings

The keys of `[settings]` in a run file, and the keywords of `us.train`. Written by `make reference` from the protocols'
own `Config`; `understudy protocols NAME` prints all settings of one. A range is what the `Config` refuses to leave;
where none stands: a whole number of at least 1. `–` is no value.

## Shared by several protocols
"""


def _line(setting: Setting) -> str:
    return (
        f"- `{setting.name}={setting.default}`{_range(setting.values)}: "
        f"{setting.meaning}"
    )


def _range(values: str) -> str:
    return "" if values == "a whole number of at least 1" else f" ({values})"


if __name__ == "__main__":
    (Path(__file__).parent / "settings.md").write_text(reference())
