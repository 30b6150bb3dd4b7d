"""How a holder's table is to be read, where its name alone does not say: a source
(docs/schema.md has its keys).

In a run file these keys stand beside `table`. Everywhere else a file with them,
NAME.source.toml, stands for the table: `understudy schema infer clinic.source.toml`.
Paths are relative to that file.

Guarantee: how a cell is read depends on what is declared here, on the first line and on
that cell. A password stands in no file that a run writes and in no message. Of a URL
only a user, a host, a port, a path and the keys of `KEYS` are taken; all else is
refused, and no message repeats any part of it.
Edges: a wrong key or value → ConfigError before anything is read. A password written as
a user, a host or a file's name cannot be told from one.
"""

import codecs
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from understudy.ground.check import known_keys
from understudy.ground.durable import load_toml
from understudy.ground.errors import ConfigError, Effect, SchemaError

SUFFIX = ".source.toml"
Part = tuple[int, int]  # of a long table: i of n, from 0
ALL: Part = (0, 1)
# how a file is written
WRITTEN = ("header", "separator", "encoding", "decimal", "missing", "sheet")
_NOTHING = Effect.NOTHING_READ


@dataclass(frozen=True, kw_only=True)
class TableSource:
    table: str
    header: bool | None = None  # None: the first line is one, if it reads as one
    separator: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    missing: tuple[str | float, ...] = ()
    sheet: str | None = None
    query: str | None = None
    password: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (
            len(self.separator) != 1 or self.separator in '"\r\n'
        ):
            raise ConfigError(
                f"separator must be one character, not {self.separator!r}.",
                effect=_NOTHING,
            )
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise ConfigError(
                'decimal must be "." or ",", and not the separator, not '
                f"{self.decimal!r}.",
                effect=_NOTHING,
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ConfigError(
                f'there is no encoding {self.encoding!r}; Windows has "cp1252", older '
                f'files "latin-1".',
                effect=_NOTHING,
            ) from None
        if any(
            isinstance(word, float) and not math.isfinite(word) for word in self.missing
        ):
            raise ConfigError(
                "missing must hold texts and finite numbers.", effect=_NOTHING
            )
        self._check_database()

    def _check_database(self) -> None:
        require_no_secret(self.table)
        if not is_url(self.table):
            if self.query is not None or self.password is not None:
                raise ConfigError(
                    f"{self.name} is a file: query and password are for databases.",
                    effect=_NOTHING,
                )
            return
        if not self.query:
            raise ConfigError(
                f'{self.name}: which rows? Say query = "select …".', effect=_NOTHING
            )
        # Texts between its quotes may be another database's address.
        if any(map(_SECRET.search, re.findall(r"'((?:[^']|'')*)'", self.query))):
            raise ConfigError(
                "the query has a text with a password in it, which would be kept "
                "beside the artefacts: make the other "
                "database known to this one instead.",
                effect=_NOTHING,
            )
        if self.password is not None and not re.fullmatch(
            "(?:env|file):.+", self.password
        ):
            raise ConfigError(
                f'{self.name}: password must be "env:NAME" or "file:PATH", never the '
                f"password itself.",
                effect=_NOTHING,
            )

    @property
    def is_database(self) -> bool:
        return is_url(self.table)

    @property
    def name(self) -> str:
        """What it is called in messages: no user and no password."""
        if not self.is_database:
            return Path(self.table).name
        url = urlsplit(self.table)
        return (
            f"{url.scheme.partition('+')[0]} {(url.hostname or '')}{url.path}".strip()
        )

    def within(self, folder: Path) -> "TableSource":
        """The same with paths relative to this folder made absolute."""
        changes: dict[str, Any] = {}
        if not self.is_database:
            changes["table"] = str((folder / self.table).resolve())
        elif (
            local := re.fullmatch(r"((?:sqlite|duckdb)[+\w]*:///)(?!/)(.+)", self.table)
        ) is not None:
            changes["table"] = f"{local[1]}{(folder / local[2]).resolve()}"
        if self.password is not None and self.password.startswith("file:"):
            changes["password"] = (
                f"file:{(folder / self.password.removeprefix('file:')).resolve()}"
            )
        return replace(self, **changes)

    def secret(self) -> str | None:
        """The password, read when it is needed and kept by nobody."""
        if self.password is None:
            return None
        kind, _, target = self.password.partition(":")
        if kind == "env" and target in os.environ:
            return os.environ[target]
        if kind == "file":
            try:
                return Path(target).read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, ValueError):
                pass
        raise ConfigError(
            f"{self.name}: {self.password} holds no password.", effect=_NOTHING
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> "TableSource":
        known_keys(data, [field.name for field in fields(cls)], where)
        if "table" not in data:
            raise ConfigError(f'{where}: "table" is missing.', effect=_NOTHING)
        for key, value in data.items():
            if key == "missing":
                if not isinstance(value, list | tuple) or not {*map(type, value)} <= {
                    str,
                    int,
                    float,
                }:
                    raise ConfigError(
                        f'{where}: "missing" must be a list of texts and numbers.',
                        effect=_NOTHING,
                    )
            elif key == "header":
                if not isinstance(value, bool):
                    raise ConfigError(
                        f'{where}: "header" must be true or false, not {value!r}.',
                        effect=_NOTHING,
                    )
            elif not isinstance(value, str):
                shown = "" if key == "password" else f", not {value!r}"
                raise ConfigError(
                    f'{where}: "{key}" must be a text{shown}.', effect=_NOTHING
                )
        return cls(**{**data, "missing": tuple(data.get("missing", ()))})

    @classmethod
    def load(cls, path: Path) -> "TableSource":
        return cls.from_dict(load_toml(path, "the source"), path.name).within(
            path.parent
        )


class EngineFrame(ABC):
    """A table that an engine has, in `n_parts` parts (`workers`)."""

    name = "the table"

    @property
    @abstractmethod
    def n_parts(self) -> int: ...

    @property
    @abstractmethod
    def header(self) -> list[str]: ...

    @abstractmethod
    def __call__(self, task: Any) -> Iterator[bytes]:
        """What workers answer to a task (`spread.Task`), each for a part."""

    @abstractmethod
    def narrowed(self, columns: list[str]) -> "EngineFrame":
        """Those of these columns that it has."""

    @abstractmethod
    def tables(self, columns: list[str]) -> Iterator[Any]:
        """All rows, brought here, as Arrow tables."""


def source_at(location: Any) -> TableSource:
    """What a path or a URL stands for: a file, a source in a TOML file; a source as it
    is.
    """
    if isinstance(location, TableSource):
        return location
    if not isinstance(location, str | os.PathLike):  # never its values
        kind = getattr(location, "dtype", None)
        described = (
            type(location).__name__
            if kind is None
            else f"an array of shape {location.shape} and type {kind}"
        )
        raise SchemaError(
            f"a table is a file, a database or a data frame, not {described}.",
            effect=Effect.NOTHING_READ,
        )
    text = str(location)
    return (
        TableSource.load(Path(location))
        if text.endswith(SUFFIX)
        else TableSource(table=text)
    )


def in_database(location: Any) -> bool:
    """Whether rows, or some of them, are in a database, not in a file or in memory."""
    if isinstance(location, TableSource):
        return location.is_database or in_database(Path(location.table))
    if not isinstance(location, str | Path):
        return False
    if is_url(str(location)):
        return True
    if Path(location).is_dir():  # a table of people and one of events
        return any(map(in_database, Path(location).glob(f"*{SUFFIX}")))
    return (
        str(location).endswith(SUFFIX) and TableSource.load(Path(location)).is_database
    )


def with_encoding(location: str | Path | TableSource, encoding: str) -> TableSource:
    """The same, where the text of the file is written in this encoding."""
    return replace(source_at(location), encoding=encoding)


def with_missing(
    location: str | Path | TableSource, words: Iterable[str]
) -> TableSource:
    """The same, where these words mean that there is no value, too; a word that is a
    number means that number.
    """
    source = source_at(location)
    return replace(source, missing=(*source.missing, *map(_number_or_text, words)))


def with_header(location: Any, header: bool | None) -> TableSource:
    """The same, where somebody said whether its first line is a header."""
    source = source_at(location)
    return source if header is None else replace(source, header=header)


def numbered_names(count: int) -> list[str]:
    """How the columns of a table without a header are called."""
    return [f"column_{number}" for number in range(1, count + 1)]


def _number_or_text(word: str) -> str | float:
    try:
        number = float(word)
    except ValueError:
        return word
    return int(number) if number.is_integer() else number


def is_url(text: str) -> bool:
    return "://" in text


# What may follow the "?": where a database is and how it is reached. Paths lead to
# files of the holder's own.
KEYS = (
    "application_name",
    "channel_binding",
    "charset",
    "connect_timeout",
    "driver",
    "encrypt",
    "gssencmode",
    "host",
    "hostaddr",
    "krbsrvname",
    "passfile",
    "port",
    "service",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "trusted_connection",
    "trustservercertificate",
)
_INSTEAD = 'Take it out, and say where it is: password = "env:NAME" or "file:PATH".'
# As SQLAlchemy reads it: all between the first colon and an @ is the password, slashes
# and question marks too.
_URL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/]*)(?P<password>:[^@]*)?@)?"
    r"(?P<host>\[[\w:.%]*\]|[\w.,-]*)(?P<port>:[\d,]*)?(?P<path>/[^?]*)?(?:\?(?P<keys>.*))?",
    re.DOTALL,
)
_SECRET = re.compile(
    # pwd=…, x://me:…@
    r"(?i)(?:pass(?:w\w*|phrase)?|pwd|secret\w*|token|api_?key|\w*_key)\s*=|://[^/:\s]*:[^\s@]*@"
)


def require_no_secret(text: str) -> None:
    """Refuse a path or a URL that may have a password in it. ConfigError, before
    anything is read.
    """
    if not is_url(text):
        if _SECRET.search(text):
            raise ConfigError(
                "this table reads as a connection string with a password in it, which "
                f"would be kept beside the artefacts: give a URL. {_INSTEAD}",
                effect=_NOTHING,
            )
        return
    parts = _URL.fullmatch(text)
    if parts is None or _odd(parts):
        raise ConfigError(
            "the database's URL has a password in it, or something that may be one and "
            "would be kept beside the artefacts; it looks like "
            f"postgresql://user@host:port/name?sslmode=require. {_INSTEAD}",
            effect=_NOTHING,
        )
    parameters = parse_qsl(parts["keys"] or "", keep_blank_values=True)
    if any(
        key.lower() not in KEYS or not value or re.search(r"[;=@{}]", value)
        for key, value in parameters
    ):
        raise ConfigError(
            'what follows the "?" of the database\'s URL may be a password, and is '
            "kept beside the artefacts; only "
            f"these may stand there, each with a plain value: {', '.join(KEYS)}. "
            f"{_INSTEAD}",
            effect=_NOTHING,
        )


def without(secret: str, text: str) -> str:
    """The text without a secret in any writing in which a driver may have quoted it."""
    forms = {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        repr(secret)[1:-1],
    }
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(form, "…")
    return text


def _odd(parts: re.Match[str]) -> bool:
    """Whether there is a password before the host, or a sign in user or path by which
    one could be meant.
    """
    file = parts["scheme"].startswith(("sqlite", "duckdb")) and not parts["host"]
    path = unquote(parts["path"] or "")
    return bool(
        parts["password"] is not None
        or "@" in (parts["user"] or "")
        or re.search(r"[:;=?#&\s]", unquote(parts["user"] or ""))
        or _SECRET.search(path)
        or (not file and re.search(r"[;=#@]", path))
    )
