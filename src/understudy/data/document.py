"""A public description kept in a file: plain keys in TOML or JSON, read and written in one voice.

Guarantee: whatever is read was checked by its class before anybody uses it.
Edges: an unreadable file, text that is no TOML or JSON, a strange key → SchemaError that names the file.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import tomli_w

from understudy.ground.durable import read_json, read_toml
from understudy.ground.errors import SchemaError

T = TypeVar("T")


class Document(ABC):
    """What can be written down as a table of keys, and read back."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain types."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return read(path, cls.from_dict)

    def save(self, path: str | Path) -> None:
        path = Path(path)
        text = self.to_toml() if _suffix(path) == ".toml" else json.dumps(self.to_dict(), indent=2) + "\n"
        path.write_text(text, encoding="utf-8")

    def to_toml(self) -> str:
        return tomli_w.dumps(_by_name(self.to_dict()))


def _by_name(data: Any) -> Any:
    """Lists of columns as tables under their names."""
    if not isinstance(data, dict):
        return data
    columns = data.get("columns")
    if isinstance(columns, list):
        own = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in columns}
        data = data | {"columns": own}
    return {key: _by_name(value) for key, value in data.items()}


def read(path: str | Path, build: Callable[[dict[str, Any]], T]) -> T:
    """What `build` makes of the keys in a .toml or .json file."""
    path = Path(path)
    read_file = read_toml if _suffix(path) == ".toml" else read_json
    try:
        data = read_file(path)
        if not isinstance(data, dict):
            raise SchemaError("the file holds no table of keys.")
        return build(data)
    except OSError as error:
        raise SchemaError(f"{path}: the schema cannot be read ({error.strerror}).") from error
    except SchemaError as error:
        raise SchemaError(f"{path.name}: {error}") from error
    except ValueError as error:  # what tomllib and json raise, and text that is not UTF-8
        raise SchemaError(f"{path.name}: not a valid {_suffix(path)[1:].upper()} file ({error}).") from error
    except (TypeError, AttributeError, KeyError, OverflowError) as error:  # a key of another kind of value
        raise SchemaError(f"{path.name}: this describes no rows ({error}).") from error


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in (".toml", ".json"):
        raise SchemaError(f"{path.name}: a schema is kept in a .toml or .json file.")
    return path.suffix.lower()


def public_of(schema: Any) -> dict[str, Any]:
    """What of a schema of images or series has to be alike at all holders: not how each reads its own file."""
    sizes = ("height", "width", "length", "channels")
    alike = ("kind", *sizes, "low", "high", "label", "classes", "labels", "norm")
    return {key: value for key, value in schema.to_dict().items() if key in alike}
