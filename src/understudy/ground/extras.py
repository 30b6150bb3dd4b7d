"""Libraries that only some parts of the package need, and the line that installs
them.
"""

import importlib.util

from understudy.ground.errors import ConfigError, Effect

# Extras of pyproject.toml, with the libraries that are missed without them.
EXTRAS: dict[str, tuple[str, ...]] = {
    "databases": ("sqlalchemy", "psycopg"),
    "demo": ("statsmodels",),
    "evidence": ("mlcroissant", "rdflib", "securesystemslib", "yaml"),
    "excel": ("openpyxl",),
    "exchange": ("fastapi", "httpx", "sqlalchemy", "uvicorn"),
    "flower": ("flwr",),
    "images": ("PIL",),
    "network": ("grpc",),
    "postgres": ("psycopg",),
    "sdmetrics": ("sdmetrics",),
    "zarr": ("zarr",),
}


def install_line(extra: str) -> str:
    """What to type where an extra is missing."""
    return f"pip install 'understudy[{extra}]'"


def install_library(name: str) -> str:
    """The same for a library by the name it is imported by; a driver that no extra has
    is installed by its own name.
    """
    extras = [
        extra
        for extra, libraries in EXTRAS.items()
        if name.partition(".")[0] in libraries
    ]
    return (
        install_line(extras[0]) if extras else f"pip install {name.partition('.')[0]}"
    )


def need_extra(
    extra: str,
    *libraries: str,
    what: str = "this",
    effect: Effect = Effect.NOTHING_COMPUTED,
) -> None:
    """ConfigError where a library of the extra is not installed; without names, any of
    them.
    """
    names = libraries or EXTRAS[extra]
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{what} needs {', '.join(missing)}: {install_line(extra)}.", effect=effect
        )
