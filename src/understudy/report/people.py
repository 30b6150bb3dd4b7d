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
from understudy.report.column_findings import columns_finding
from understudy.report.findings import Finding, judge_figure, worst_part
from understudy.report.marks import NEAR, excess_mark, worst_mark
from understudy.report.model_findings import prediction_findings
from understudy.report.pair_findings import memory_finding, pairs_finding
from understudy.report.run_findings import attack_finding
from understudy.report.words import (
    MARKED,
    SUBJECTS,
    SUMS,
    capitalize,
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
    real_source: Tables,
    synthetic_source: Tables,
    schema: VisitSchema | SeveralVisits,
    *,
    holdout: Tables | None = None,
) -> PeopleComparison:
    """Real people beside drawn ones, as they came: bounds that a run found may leave
    some of them out.
    """
    for source in (
        real_source,
        synthetic_source,
        *([] if holdout is None else [holdout]),
    ):
        schema = widen_schema(schema, two_sources(source, schema))
    real, synthetic = (
        visit_tables(source, schema) for source in (real_source, synthetic_source)
    )
    attacks: tuple[Attack, ...] = (Attack.absent(FigureKey("mia"), NO_OUTSIDERS),)
    if holdout is not None:
        attacks = attack_people(real, holdout, synthetic, schema)
    figures = evaluate_visits(real, synthetic, schema, holdout=holdout)
    by_origin = {"real": real, "synthetic": synthetic}
    sizes = {
        f"{origin} {name}": len(frame)
        for origin, tables in by_origin.items()
        for name, frame in tables.items()
    }
    return PeopleComparison(
        figures=figures,
        attacks=attacks,
        shares=people_shares(schema, synthetic, real),
        sizes=sizes,
    )


def open_people(
    sources: Mapping[str, Any],
    schemas: Mapping[str, Any],
    schema: VisitSchema | SeveralVisits,
) -> dict[str, pd.DataFrame]:
    """All holders' people and events: in a horizontal partition one after the other,
    else those whom a holder of every column has.
    """
    visits = VISITS.among(schemas)
    if not visits:
        raise ConfigError("no holder's events can be read here.")
    if len(visits) == len(sources) and all(
        tables.names == schema.names for tables in visits.values()
    ):
        all_tables = [
            visit_tables(source, visits[name]) for name, source in sources.items()
        ]
        for number, tables in enumerate(all_tables):
            for part, rows in tables.items():
                tables[part] = rows.assign(
                    **{schema.person: f"{number} " + rows[schema.person].astype(str)}
                )
        return {
            part: pd.concat([tables[part] for tables in all_tables], ignore_index=True)
            for part in all_tables[0]
        }
    if set(schema.names) != {
        column for party_schema in schemas.values() for column in party_schema.names
    }:
        raise ConfigError(
            "the holders whose tables can be read here do not have all columns of the "
            "run."
        )
    return _join_holders(sources, schemas, schema)


def _join_holders(
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
        schema_of_group = schemas[names[0]]
        group_tables = [
            _holder_tables(sources[name], schemas[name], key) for name in names
        ]
        parts = {
            part: pd.concat(
                [tables[part] for tables in group_tables], ignore_index=True
            )
            for part in group_tables[0]
        }
        rows = parts["people"]
        if rows[key].duplicated().any():
            raise ConfigError(
                f"two of {', '.join(names)} hold the same person: rows cannot be "
                "joined."
            )
        if VISITS.describes(schema_of_group):
            events[
                schema_of_group.title if isinstance(schema, SeveralVisits) else "events"
            ] = parts["events"]
        people = rows if people is None else people.merge(rows, on=key)
    assert people is not None
    kept_events = {
        title: rows[rows[key].isin(people[key])] for title, rows in events.items()
    }
    return ({} if schema.people is None else {"people": people}) | kept_events


def _holder_tables(
    source: Any, holder_schema: Schema | VisitSchema, key: str
) -> dict[str, pd.DataFrame]:
    """A holder's people, and their events if it has any. People are those whom it
    lists, also without an event; where it lists nobody, those who have one.
    """
    if not VISITS.describes(holder_schema):
        table = read_table(source, holder_schema)
        return {
            "people": table.frame[list(holder_schema.names)].assign(
                **{key: table.people.astype(str)}
            )
        }
    parts = {
        part: rows.rename(columns={holder_schema.person: key}).assign(
            **{key: rows[holder_schema.person].astype(str)}
        )
        for part, rows in visit_tables(source, holder_schema).items()
    }
    if "people" in parts:
        return parts
    ids = two_sources(source, holder_schema).get("people")
    if ids is None:
        people = parts["events"][[key]].drop_duplicates()
    else:
        people = pd.DataFrame(
            {key: listed_people(ids, holder_schema.person)[0].astype(str)}
        )
    return {"people": people} | parts


def people_shares(
    schema: VisitSchema | SeveralVisits,
    synthetic: Mapping[str, pd.DataFrame],
    real: Mapping[str, pd.DataFrame] | None = None,
) -> tuple[ColumnShares, ...]:
    """How often each level occurs among people, and among events; beside real ones, how
    far each column is off.
    """
    shares: tuple[ColumnShares, ...] = ()
    for part, part_schema in schema.tables.items():
        owners = dict.fromkeys(part_schema.names, part)
        comparison = dict[str, Any]()
        if real is not None:
            codes = [Codec(part_schema).codes(rows[part]) for rows in (real, synthetic)]
            values = [
                table_values(part_schema, rows[part], cells)
                for rows, cells in zip((real, synthetic), codes, strict=True)
            ]
            scale = Yardstick.from_codes(part_schema, *codes, values=values)
            spreads = summarize_numbers(part_schema, *values)
            comparison = {
                "real": real[part],
                "figures": scale.columns(),
                "numbers": scale.numbers(),
                "spreads": spreads,
            }
        shares += column_shares(
            part_schema, synthetic[part], owners=owners, **comparison
        )
    return shares


def load_party_schemas(
    parties: Mapping[str, Mapping[str, Any]],
    names: Iterable[str],
    schema: VisitSchema | SeveralVisits,
) -> dict[str, Any]:
    """Each holder's own schema where it lies beside its table, or that of the run."""
    schemas: dict[str, Schema | VisitSchema] = {}
    for name in names:
        path = parties.get(name, {}).get("schema")
        party_schema = (
            load_schema(path) if path is not None and Path(path).exists() else schema
        )
        if isinstance(party_schema, SeveralVisits):
            raise ConfigError(
                f"what {name} holds is not known here: its schema cannot be read."
            )
        if not TABLE.describes(party_schema) and not VISITS.describes(party_schema):
            raise ConfigError(f"{name} holds neither people with events nor a table.")
        schemas[name] = party_schema
    return schemas


def people_findings(people: PeopleComparison) -> list[Finding]:
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
    table_findings = [
        replace(finding, group=title)
        for title, figures in _figures_by_kind(people).items()
        for finding in _findings(figures)
    ]
    return [*columns, *table_findings, attack_finding(people.attacks)]


def _figures_by_kind(people: PeopleComparison) -> dict[str, list[Figure]]:
    """Figures of people and of events of one kind; with several kinds, of people first,
    then by their titles.
    """
    by_kind: dict[str, list[Figure]] = {}
    for figure in people.figures:
        key = figure.key
        has_subject = key.part != "between" and key.subjects
        by_kind.setdefault(key.subjects[0] if has_subject else "", []).append(
            replace(figure, key=key.with_subjects()) if has_subject else figure
        )
    return by_kind


def _findings(figures: Sequence[Figure]) -> Iterator[Finding]:
    by_key = {figure.key: figure for figure in figures}
    for figure in figures:
        subject = SUBJECTS.get(figure.key.part)
        if subject is not None and (
            figure.value is not None or figure.key.part != "later"
        ):
            yield pairs_finding(figure, figure.parts, subject, "shuffled columns")
    if NUMBER in by_key:
        number = judge_figure(
            by_key[NUMBER],
            "numbers of events",
            "all numbers alike",
            "utility",
            near=NEAR,
        )
        yield replace(number, worst=worst_part("numbers of events", by_key[NUMBER]))
    sums = [
        figure
        for figure in figures
        if figure.key.measure in SUMS and figure.value is not None
    ]
    if sums:
        marked = worst_mark([excess_mark(figure) for figure in sums])
        furthest = max(sums, key=lambda figure_of_sum: figure_of_sum.value or 0.0)
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
        yield memory_finding(lags)
    if INTEGRITY in by_key:
        yield _integrity_finding(by_key[INTEGRITY])
    yield from prediction_findings(by_key.get(AGAIN), "predictions of who comes again")


def _integrity_finding(figure: Figure) -> Finding:
    all_fit = figure.value == 1.0
    statement = "all fit" if all_fit else "do not all fit"
    share = (
        "Every synthetic event has"
        if all_fit
        else f"{percent(figure.value or 0.0)} % of the synthetic events have"
    )
    detail = f"{share} a person in the table of people."
    return Finding(
        "good" if all_fit else "poor", "keys of events", statement, detail, "utility"
    )


def layout_people(people: PeopleComparison) -> dict[str, Any]:
    blocks = _figures_by_kind(people)
    return {
        "blocks": [
            _layout_block(title, figures, several=len(blocks) > 1)
            for title, figures in blocks.items()
        ],
        "again": view.figure_rows(
            [f for f in people.figures if f.key.part == AGAIN.part]
        ),
        "attacks": list(view.attack_rows(people.attacks)),
        "attacked": attack_finding(people.attacks),
    }


def _layout_block(
    title: str, figures: Sequence[Figure], *, several: bool
) -> dict[str, Any]:
    all_fit = [figure.value == 1.0 for figure in figures if figure.key == INTEGRITY]
    heading = ""
    if several:
        heading = "People, and one kind of events with another"
        if title:
            heading = capitalize(title)
    return {
        "title": heading,
        "tables": view.figure_rows([f for f in figures if f.key.measure == "avd"]),
        "sums": view.figure_rows([f for f in figures if f.key.measure in SUMS]),
        "lags": view.figure_rows([f for f in figures if f.key.measure == "lag"]),
        "integrity": all_fit[0] if all_fit else None,
    }
