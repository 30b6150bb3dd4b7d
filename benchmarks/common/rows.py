"""Rows of figures: read from a CSV file, written into one, said on a line."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from common.markdown import table

Row = dict[str, Any]


def read(path: Path | None) -> list[Row]:
    """The rows that stand in the file; none where there is no file."""
    if path is None or not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def as_it_stands(path: Path, align: str = "l") -> str:
    """The table of a file as it stands, for figures that were measured once: its head
    and its cells.
    """
    rows = read(path)
    return table(list(rows[0]), [list(row.values()) for row in rows], align)


def write(path: Path | None, rows: Iterable[Row], fields: Sequence[str]) -> None:
    """Replace the file at once: a process that is stopped here leaves the old one
    whole. No path: write nothing.
    """
    if path is None:
        return
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def said(row: Row) -> str:
    """`name=value` of all that is not empty."""
    return "  ".join(f"{name}={value}" for name, value in row.items() if value != "")
