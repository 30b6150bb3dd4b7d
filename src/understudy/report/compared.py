"""Two sets of rows of any kind beside each other, for `understudy evaluate`: what is said, and what a page shows.

Guarantee: none; all is a function of real rows, meant for their holder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.data.kinds import TABLE, load_any
from understudy.evaluate.beside import evaluate
from understudy.evaluate.comparison import Comparison
from understudy.evaluate.other_rows import array_figures
from understudy.ground.errors import ConfigError
from understudy.report.people import People, compare_folders
from understudy.report.verdict import attack_finding
from understudy.report.words import capital


@dataclass(frozen=True)
class Asked:
    """The files, and what is wanted of them."""

    real: Path
    synthetic: Path
    holdout: Path | None = None
    target: str | None = None
    another: bool = False
    page: bool = False


Said = tuple[list[str], Comparison | People | None]  # lines, and what a page is made of, if there is one


def compared(asked: Asked, schema: Path) -> Said:
    """What there is to say, by the kind of rows that the schema describes."""
    described = load_any(schema)
    if described.kind not in COMPARED:
        raise ConfigError("rows of several kinds are evaluated kind by kind, by each holder's own schema.")
    if described.kind != TABLE.name and (asked.target is not None or asked.another):
        raise ConfigError("--target and --second-opinion are for tables with one row per person.")
    return COMPARED[described.kind](asked, described)


def _tables(asked: Asked, schema: Any) -> Said:
    found = evaluate(
        asked.real,
        asked.synthetic,
        schema,
        holdout=asked.holdout,
        target=asked.target,
        another=asked.another,
    )
    attacked = attack_finding(found.attacks)
    return [str(found.evaluation), f"{capital(attacked.subject)} {attacked.said}. {attacked.detail}"], found


def _people(asked: Asked, schema: Any) -> Said:
    found = compare_folders(asked.real, asked.synthetic, schema, holdout=asked.holdout)
    ran = [attack for attack in found.attacks if attack.measures]
    return [*map(str, found.figures), *map(str, ran)], found


def _arrays(asked: Asked, schema: Any) -> Said:
    if asked.page:
        raise ConfigError(
            "--out is for tables and for people with events: of images and series there are figures."
        )
    return [*map(str, array_figures(asked.real, asked.synthetic, schema, holdout=asked.holdout))], None


COMPARED: dict[str, Callable[[Asked, Any], Said]] = {
    "table": _tables,
    "image": _arrays,
    "series": _arrays,
    "visits": _people,
    "several-visits": _people,
}
