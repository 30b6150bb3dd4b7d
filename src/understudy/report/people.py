"""People with their events on the page: real ones found at their holders, compared,
judged and laid out.

Figures are those of `evaluate/utility/visits.py`; a person weighs 1 in every table.
Words and marks are the page's own (`verdict`, `marks`): tables stand between other real
people and shuffled columns, numbers of events between other real people and all numbers
alike, and sums are judged as numbers are, by how far they are off.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE, VISITS, load_schema
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.data.visits.reading import listed_people, two_sources
from understudy.evaluate.attacks.attack import Attack
from understudy.evaluate.comparison import NO_OUTSIDERS, ColumnShares, column_shares
from understudy.evaluate.figure import Figure, FigureKey
from understudy.evaluate.holdings import widen_schema
from understudy.evaluate.other_rows import attack_people
from understudy.evaluate.utility.fidelity import Yardstick
from understudy.evaluate.utility.values import summarize_numbers, table_values
from understudy.evaluate.utility.visits import (
    AGAIN,
    INTEGRITY,
    NUMBER,
    Tables,
    evaluate_visits,
    visit_tables,
)
from understudy.ground.errors import ConfigError
from understudy.protocols.visits.columns import grid_of
from understudy.report import view
from understudy.report.marks import NEAR, beyond, worst
from understudy.report.verdict import (
    Finding,
    attack_finding,
    columns_finding,
    judged,
    memory,
    pairs_finding,
    predicted,
    worst_part,
)
from understudy.report.words import (
    MARKED,
    SUBJECTS,
    SUMS,
    capital,
    figure_name,
    percent,
)


@dataclass(frozen=True, kw_only=True)
class PeopleComparison:
    figures: tuple[Figure, ...]
    attacks: tuple[Attack, ...]
    shares: tuple[ColumnShares, ...]
    # rows of each real and synthetic table
    sizes: Mapping[str, int] = field(default_factory=dict)


def compare_people(
    mine: Tables,
    drawn: Tables,
    schema: VisitSchema | SeveralVisits,
    *,
    holdout: Tables | None = None,
) -> PeopleComparison:
    """Real people beside drawn ones, as they came: bounds that a run found may leave
    some of them out.
    """
    for source in (mine, drawn, *([] if holdout is None else [holdout])):
        schema = widen_schema(schema, two_sources(source, schema))
    real, synthetic = (visit_tables(source, schema) for source in (mine, drawn))
    attacks: tuple[Attack, ...] = (Attack.absent(FigureKey("mia"), NO_OUTSIDERS),)
    if holdout is not None:
        attacks = attack_people(real, holdout, synthetic, schema)
    figures = evaluate_visits(real, synthetic, schema, holdout=holdout)
    both = {"real": real, "synthetic": synthetic}
    sizes = {
        f"{what} {name}": len(frame)
        for what, tables in both.items()
        for name, frame in tables.items()
    }
    return PeopleComparison(
        figures=figures,
        attacks=attacks,
        shares=people_shares(schema, synthetic, real),
        sizes=sizes,
    )


def all_people(
    sources: Mapping[str, Any],
    schemas: Mapping[str, Any],
    schema: VisitSchema | SeveralVisits,
) -> dict[str, pd.DataFrame]:
    """All holders' people and events: over rows one after the other, else those whom a
    holder of every column has.
    """
    visits = VISITS.among(schemas)
    if not visits:
        raise ConfigError("no holder's events can be read here.")
    if len(visits) == len(sources) and all(
        own.names == schema.names for own in visits.values()
    ):
        held = [visit_tables(source, visits[name]) for name, source in sources.items()]
        for place, own in enumerate(held):
            for part, rows in own.items():
                own[part] = rows.assign(
                    **{schema.person: f"{place} " + rows[schema.person].astype(str)}
                )
        return {
            part: pd.concat([own[part] for own in held], ignore_index=True)
            for part in held[0]
        }
    if set(schema.names) != {
        column for one in schemas.values() for column in one.names
    }:
        raise ConfigError(
            "the holders whose tables can be read here do not have all columns of the "
            "run."
        )
    return _of_all_holders(sources, schemas, schema)


def _of_all_holders(
    sources: Mapping[str, Any],
    schemas: Mapping[str, Any],
    schema: VisitSchema | SeveralVisits,
) -> dict[str, pd.DataFrame]:
    """People whom a holder of every column has, with all of these, and their events of
    each kind.
    """
    key = schema.person
    people = None
    events = {}
    for names in grid_of(schemas).groups:
        own = schemas[names[0]]
        held = [_tables_held(sources[name], schemas[name], key) for name in names]
        parts = {
            part: pd.concat([one[part] for one in held], ignore_index=True)
            for part in held[0]
        }
        rows = parts["people"]
        if rows[key].duplicated().any():
            raise ConfigError(
                f"two of {', '.join(names)} hold the same person: rows cannot be "
                "joined."
            )
        if VISITS.describes(own):
            events[own.title if isinstance(schema, SeveralVisits) else "events"] = (
                parts["events"]
            )
        people = rows if people is None else people.merge(rows, on=key)
    assert people is not None
    there = {title: rows[rows[key].isin(people[key])] for title, rows in events.items()}
    return ({} if schema.people is None else {"people": people}) | there


def _tables_held(
    source: Any, own: Schema | VisitSchema, key: str
) -> dict[str, pd.DataFrame]:
    """A holder's people, and their events if it has any. People are those whom it
    lists, also without an event; where it lists nobody, those who have one.
    """
    if not VISITS.describes(own):
        table = read_table(source, own)
        return {
            "people": table.frame[list(own.names)].assign(
                **{key: table.people.astype(str)}
            )
        }
    parts = {
        part: rows.rename(columns={own.person: key}).assign(
            **{key: rows[own.person].astype(str)}
        )
        for part, rows in visit_tables(source, own).items()
    }
    if "people" in parts:
        return parts
    ids = two_sources(source, own).get("people")
    if ids is None:
        people = parts["events"][[key]].drop_duplicates()
    else:
        people = pd.DataFrame({key: listed_people(ids, own.person)[0].astype(str)})
    return {"people": people} | parts


def people_shares(
    schema: VisitSchema | SeveralVisits,
    synthetic: Mapping[str, pd.DataFrame],
    real: Mapping[str, pd.DataFrame] | None = None,
) -> tuple[ColumnShares, ...]:
    """How often each level occurs among people, and among events; beside real ones, how
    far each column is off.
    """
    found: tuple[ColumnShares, ...] = ()
    for part, own in schema.tables.items():
        owners = dict.fromkeys(own.names, part)
        more = dict[str, Any]()
        if real is not None:
            codes = [Codec(own).codes(rows[part]) for rows in (real, synthetic)]
            values = [
                table_values(own, rows[part], cells)
                for rows, cells in zip((real, synthetic), codes, strict=True)
            ]
            scale = Yardstick.from_codes(own, *codes, values=values)
            spreads = summarize_numbers(own, *values)
            more = {
                "real": real[part],
                "figures": scale.columns(),
                "numbers": scale.numbers(),
                "spreads": spreads,
            }
        found += column_shares(own, synthetic[part], owners=owners, **more)
    return found


def schemas_of(
    parties: Mapping[str, Mapping[str, Any]],
    names: Iterable[str],
    schema: VisitSchema | SeveralVisits,
) -> dict[str, Any]:
    """Each holder's own schema where it lies beside its table, or that of the run."""
    found: dict[str, Schema | VisitSchema] = {}
    for name in names:
        path = parties.get(name, {}).get("schema")
        own = load_schema(path) if path is not None and Path(path).exists() else schema
        if isinstance(own, SeveralVisits):
            raise ConfigError(
                f"what {name} holds is not known here: its schema cannot be read."
            )
        if not TABLE.describes(own) and not VISITS.describes(own):
            raise ConfigError(f"{name} holds neither people with events nor a table.")
        found[name] = own
    return found


def findings(people: PeopleComparison) -> list[Finding]:
    """What a holder should know of them: columns, tables, numbers of events, sums,
    memory, keys, who comes again.
    """
    tables = dict.fromkeys(share.owner for share in people.shares)
    columns = [
        columns_finding(
            [share for share in people.shares if share.owner == name],
            f"single columns of {name}",
        )
        for name in tables
    ]
    found = [
        replace(finding, of=title)
        for title, figures in _blocks(people).items()
        for finding in _findings(figures)
    ]
    return [*columns, *found, attack_finding(people.attacks)]


def _blocks(people: PeopleComparison) -> dict[str, list[Figure]]:
    """Figures of people and of events of one kind; with several kinds, of people first,
    then by their titles.
    """
    found: dict[str, list[Figure]] = {}
    for figure in people.figures:
        what = figure.key
        own = what.part != "between" and what.subjects
        found.setdefault(what.subjects[0] if own else "", []).append(
            replace(figure, key=what.with_subjects()) if own else figure
        )
    return found


def _findings(figures: Sequence[Figure]) -> Iterator[Finding]:
    known = {figure.key: figure for figure in figures}
    for figure in figures:
        subject = SUBJECTS.get(figure.key.part)
        if subject is not None and (
            figure.value is not None or figure.key.part != "later"
        ):
            yield pairs_finding(figure, figure.parts, subject, "shuffled columns")
    if NUMBER in known:
        number = judged(
            known[NUMBER],
            "numbers of events",
            "all numbers alike",
            "utility",
            near=NEAR,
        )
        yield replace(number, worst=worst_part("numbers of events", known[NUMBER]))
    sums = [
        figure
        for figure in figures
        if figure.key.measure in SUMS and figure.value is not None
    ]
    if sums:
        marked = worst([beyond(figure) for figure in sums])
        furthest = max(sums, key=lambda one: one.value or 0.0)
        name = figure_name(furthest.key)
        detail = (
            f"Furthest off: {name[0].lower()}{name[1:]}, by "
            f"{percent(furthest.value or 0.0)} % of the real one"
        )
        detail += (
            "."
            if furthest.compared is None
            else ": {:,.4g}, real {:,.4g}.".format(*reversed(furthest.compared))
        )
        worst_sum = worst_part(name, furthest)
        yield Finding(
            marked,
            "sums and averages of people",
            MARKED[marked],
            detail,
            "utility",
            worst=worst_sum,
        )
    lags = [
        figure
        for figure in figures
        if figure.key.measure == "lag" and figure.value is not None
    ]
    if lags:
        yield memory(lags)
    if INTEGRITY in known:
        yield _keys(known[INTEGRITY])
    yield from predicted(known.get(AGAIN), "predictions of who comes again")


def _keys(figure: Figure) -> Finding:
    whole = figure.value == 1.0
    said = "all fit" if whole else "do not all fit"
    share = (
        "Every synthetic event has"
        if whole
        else f"{percent(figure.value or 0.0)} % of the synthetic events have"
    )
    detail = f"{share} a person in the table of people."
    return Finding(
        "good" if whole else "poor", "keys of events", said, detail, "utility"
    )


def laid_out(people: PeopleComparison) -> dict[str, Any]:
    blocks = _blocks(people)
    return {
        "blocks": [
            _laid_out(title, figures, several=len(blocks) > 1)
            for title, figures in blocks.items()
        ],
        "again": view.lines([f for f in people.figures if f.key.part == AGAIN.part]),
        "attacks": list(view.attacks(people.attacks)),
        "attacked": attack_finding(people.attacks),
    }


def _laid_out(
    title: str, figures: Sequence[Figure], *, several: bool
) -> dict[str, Any]:
    whole = [figure.value == 1.0 for figure in figures if figure.key == INTEGRITY]
    return {
        "title": (
            capital(title) if title else "People, and one kind of events with another"
        )
        if several
        else "",
        "tables": view.lines([f for f in figures if f.key.measure == "avd"]),
        "sums": view.lines([f for f in figures if f.key.measure in SUMS]),
        "lags": view.lines([f for f in figures if f.key.measure == "lag"]),
        "integrity": whole[0] if whole else None,
    }
