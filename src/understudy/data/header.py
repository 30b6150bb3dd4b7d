"""Whether the names of a table's columns are names, or the cells of its first row, read
as a header.

Names of columns are public: they stand in every schema, synthetic table and page. A
file without a header would publish its first person there.

Guarantee: a table one of whose names is a number, a day, a time or empty is refused
before a row below is read, and the refusal repeats no name. It depends on the first
line alone, and is shown to the holder alone.
Edges: a first row of texts alone ("weiblich", "F32.1") cannot be told from names.
Repeated names are always refused.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from understudy.data.reading.files import Source, described_source, open_source
from understudy.data.reading.sources import TableSource, numbered_names
from understudy.ground.check import repeated
from understudy.ground.errors import ConfigError, Effect, SchemaError

_AGAIN = r"(?:\.[0-9]+)?"  # what pandas puts after a name that it has met before
_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?"
_NO_NAMES = (
    r"|nan|Unnamed: [0-9]+.*",
    r"[-+]?\s*[€$£]?\s*[-+]?[.,]?[0-9][0-9.,' ]*(?:[eE][-+]?[0-9]+)?\s*[%€$£]?"
    + _AGAIN,
    r"[0-9]{1,4}([./-])[0-9]{1,2}\1[0-9]{1,4}(?:[ T]+"
    + _TIME
    + r"(?:Z|[-+][0-9:]+)?)?"
    + _AGAIN,
    _TIME,
)
_MOST_NAMED = 5  # positions in a refusal


def require_header(source: Source, header: bool | None = None) -> list[Any]:
    """The names of the columns, with no row read; SchemaError where they look like
    cells (`require_names`). `header`: what was said of them, if not by the source
    itself. Edges: columns of a frame numbered 0, 1, … have no names.
    """
    raw = open_source(source, {})
    described = described_source(source)
    if header is None and isinstance(described, TableSource):
        header = described.header
    if not _is_numbered(source):
        require_names(raw.header, raw.name, header)
    return raw.header


def apply_header(source: Source, header: bool | None) -> Source:
    """The same, read with or without a header; columns of a frame that are numbered 0,
    1, … get names.
    """
    if header is not True and _is_numbered(source):
        assert isinstance(source, pd.DataFrame), "it has numbered columns"
        return source.set_axis(numbered_names(source.shape[1]), axis=1)
    if header is None:
        return source
    described = described_source(source)
    if isinstance(described, TableSource):
        return replace(described, header=header)
    if header is False:
        raise ConfigError(
            "the frame has names: header=False is for files, and for frames whose "
            "columns are numbered 0, 1, …, as "
            "pandas.read_csv(…, header=None) makes them.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    return source


def _is_numbered(source: object) -> bool:
    """Whether it is a frame whose columns are 0, 1, …, as pandas calls them where there
    is no header.
    """
    return isinstance(source, pd.DataFrame) and source.columns.equals(
        pd.RangeIndex(source.shape[1])
    )


def require_names(labels: Sequence[Any], table: str, header: bool | None) -> None:
    """SchemaError where names repeat, or, unless somebody said that they are a
    `header`, look like cells.
    """
    names = [str(label) for label in labels]
    twice = set(repeated(names))
    same = [number for number, name in enumerate(names, 1) if name in twice]
    cells = [
        number
        for number, name in enumerate(names, 1)
        if _is_cell(name) and header is not True
    ]
    problems = [f"{_places(same)} have the same name"] if same else []
    if cells:
        problems.append(f"the name of {_places(cells)} is a number, a date or empty")
    if not problems:
        return
    ways = "Give each column a name of its own."
    if header is not True:
        ways = (
            "If it has none, --no-header (header=False) reads the first line as a "
            "row; if it has one, rename those "
            "columns, or say --header (header=True) where none is repeated."
        )
    raise SchemaError(
        f"{table}: {' and '.join(problems)}: has the file a header? {ways}",
        effect=Effect.NOTHING_READ_OR_CHARGED,
    )


def _is_cell(name: str) -> bool:
    return any(re.fullmatch(pattern, name.strip()) for pattern in _NO_NAMES)


def _places(numbers: list[int]) -> str:
    """Where columns are: their names may be cells."""
    if len(numbers) == 1:
        return f"column {numbers[0]}"
    shown = [str(place) for place in numbers[:_MOST_NAMED]]
    if len(numbers) > _MOST_NAMED:
        return f"columns {', '.join(shown)} and others"
    return f"columns {', '.join(shown[:-1])} and {shown[-1]}"
