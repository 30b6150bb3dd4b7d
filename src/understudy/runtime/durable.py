"""Small files that are whole or not there, and secrets that their owner alone can read."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from understudy.errors import ConfigError


def replace(path: Path, data: bytes) -> Path:
    """Write the file in one piece: a kill leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    return draft.replace(path)


def replace_json(path: Path, value: Any) -> Path:
    """The same for a JSON value."""
    return replace(path, json.dumps(value, indent=1, ensure_ascii=False).encode())


def write_secret(path: Path, data: bytes) -> Path:
    """Write the file in one piece, readable by its owner alone from its first moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    return draft.replace(path)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file's values. ConfigError names the file, and `what` it should have been."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise ConfigError(f"{path.name} is not {what}.") from None
