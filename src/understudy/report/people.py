"""People with their events on the page: real ones found at their holders, compared, judged and laid out.

Figures are those of `evaluate/people_figures.py`; a person weighs 1 in every table. Words and marks are the page's own
(`verdict`, `marks`): tables stand between other real people and shuffled columns, numbers of events between other real
people and all numbers alike, and sums are judged as numbers are, by how far they are off.

Guarantee: none; all is a function of real rows, meant for their holder.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from understudy.data.described import load_schema
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.data.visits import VisitSchema
from understudy.errors import ConfigError
from understudy.evaluate.attacks.attack import Attack
from understudy.evaluate.comparison import NO_OUTSIDERS, Shares, column_shares
from understudy.evaluate.people_figures import people_figures
from understudy.evaluate.utility import Figure
from understudy.evaluate.utility.visits import visit_tables
from understudy.report import view
from understudy.report.marks import NEAR, beyond, worst
from understudy.report.names import figure_name
from understudy.report.verdict import Finding, attack_finding, judged, predicted, words_of
from understudy.report.words import percent

SUBJECTS = {
    "avd2_people": "pairs of people's columns",
    "avd2_events": "pairs of an event's columns",
    "avd2_across": "pairs of a person's and an event's columns",
    "avd2_next": "pairs of an event and the next",
    "avd2_later": "events and those two later",
}
_SUMS = ("total_mean_", "total_q90_", "mean_q90_")


@dataclass(frozen=True, kw_only=True)
class People:
    """What was measured on real people and their events."""

    figures: tuple[Figure, ...]
    attacks: tuple[Attack, ...]
    shares: tuple[Shares, ...]


def measure_people(
    sources: Mapping[str, Any],
    schemas: Mapping[str, Any],
    schema: VisitSchema,
    synthetic: Mapping[str, pd.DataFrame],
    *,
    holdout: Any = None,
    seed: int = 0,
) -> People:
    """The holders' people beside the drawn ones. ConfigError or SchemaError where they cannot be put together."""
    real = together(sources, schemas, schema)
    found = people_figures(real, dict(synthetic), schema, holdout=holdout, seed=seed)
    attacks = tuple(one for one in found if isinstance(one, Attack))
    return People(
        figures=tuple(one for one in found if isinstance(one, Figure)),
        attacks=attacks or (Attack(name="membership", measures=(), reason=NO_OUTSIDERS),),
        shares=people_shares(schema, synthetic, real),
    )


def together(
    sources: Mapping[str, Any], schemas: Mapping[str, Any], schema: VisitSchema
) -> dict[str, pd.DataFrame]:
    """All holders' people and events: over rows one after the other, over columns those whom all holders have."""
    visits = {name: own for name, own in schemas.items() if isinstance(own, VisitSchema)}
    if not visits:
        raise ConfigError("no holder's events can be read here.")
    if len(visits) == len(sources) and all(own.names == schema.names for own in visits.values()):
        held = [visit_tables(source, schema) for source in sources.values()]
        return {
            part: pd.concat(
                [
                    own[part].assign(**{schema.person: f"{place} " + own[part][schema.person].astype(str)})
                    for place, own in enumerate(held)
                ],
                ignore_index=True,
            )
            for part in held[0]
        }
    (name, own), *more = visits.items()
    if more or set(schema.names) != {column for one in schemas.values() for column in one.names}:
        raise ConfigError("the holders whose tables can be read here do not have all columns of the run.")
    parts = visit_tables(sources[name], own)
    key = schema.person
    events = parts["events"].rename(columns={own.person: key})
    people = parts.get("people", events[[key]].drop_duplicates()).rename(columns={own.person: key})
    people, events = (frame.assign(**{key: frame[key].astype(str)}) for frame in (people, events))
    for other, described in schemas.items():
        if other != name:
            table = read_table(sources[other], described)
            rows = table.frame[list(described.names)].assign(**{key: table.people.astype(str)})
            people = people.merge(rows, on=key)
    return {"people": people, "events": events[events[key].isin(people[key])]}


def people_shares(
    schema: VisitSchema, synthetic: Mapping[str, pd.DataFrame], real: Mapping[str, pd.DataFrame] | None = None
) -> tuple[Shares, ...]:
    """How often each level occurs among people, and among events."""
    found: tuple[Shares, ...] = ()
    for part, own in (("people", schema.people), ("events", schema.events)):
        if own is not None:
            owners = dict.fromkeys(own.names, part)
            there = None if real is None else real[part]
            found += column_shares(own, synthetic[part], there, owners=owners)
    return found


def schemas_of(
    parties: Mapping[str, Mapping[str, Any]], names: Iterable[str], schema: VisitSchema
) -> dict[str, Any]:
    """Each holder's own schema where it lies beside its table, or that of the run."""
    found: dict[str, Schema | VisitSchema] = {}
    for name in names:
        path = parties.get(name, {}).get("schema")
        own = load_schema(path) if path is not None and Path(path).exists() else schema
        if not isinstance(own, Schema | VisitSchema):
            raise ConfigError(f"{name} holds neither people with events nor a table.")
        found[name] = own
    return found


def findings(people: People) -> list[Finding]:
    """What a holder should know of them: tables, numbers of events, sums, keys, who comes again, attacks."""
    known = {figure.name: figure for figure in people.figures}
    found = [
        judged(known[name], subject, "shuffled columns", "utility")
        for name, subject in SUBJECTS.items()
        if name in known and (known[name].value is not None or name != "avd2_later")
    ]
    if "avd1_number" in known:
        naive = "all numbers alike"
        found.append(judged(known["avd1_number"], "numbers of events", naive, "utility", near=NEAR))
    if sums := [
        figure for figure in people.figures if figure.name.startswith(_SUMS) and figure.value is not None
    ]:
        found.append(_sums(sums))
    found.append(_keys(known["integrity"]))
    found += predicted(known.get("tstr_again_auc"), "predictions of who comes again")
    return [*found, attack_finding(people.attacks)]


def _sums(figures: Sequence[Figure]) -> Finding:
    marked = worst([beyond(figure) for figure in figures])
    furthest = max(figures, key=lambda figure: figure.value or 0.0)
    name = figure_name(furthest.name)
    detail = (
        f"Furthest off: {name[0].lower()}{name[1:]}, by {percent(furthest.value or 0.0)} % of the real one."
    )
    return Finding(marked, "sums and averages of people", words_of(marked), detail, "utility")


def _keys(figure: Figure) -> Finding:
    whole = figure.value == 1.0
    said = "all fit" if whole else "do not all fit"
    share = (
        "Every synthetic event has"
        if whole
        else f"{percent(figure.value or 0.0)} % of the synthetic events have"
    )
    detail = f"{share} a person in the table of people."
    return Finding("good" if whole else "poor", "keys of events", said, detail, "utility")


def laid_out(people: People) -> dict[str, Any]:
    """The rows of the page's tables."""
    tables = [f for f in people.figures if f.name.startswith("avd")]
    sums = [f for f in people.figures if f.name.startswith(_SUMS)]
    return {
        "tables": view.lines(tables),
        "sums": view.lines(sums),
        "integrity": next(f for f in people.figures if f.name == "integrity").value == 1.0,
        "again": view.lines([f for f in people.figures if f.name == "tstr_again_auc"]),
        "attacks": list(view.attacks(people.attacks)),
        "attacked": attack_finding(people.attacks),
    }
