"""What a data protection officer files of a run: registry entry, catalogue records, checklists, signed statements."""

import importlib.util

from understudy.ground.errors import ConfigError

_LIBRARIES = ("mlcroissant", "rdflib", "securesystemslib", "yaml")


def need_libraries() -> None:
    """ConfigError where what it is written with is not installed."""
    if missing := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"this needs {', '.join(missing)}: pip install 'understudy[evidence]'.")
