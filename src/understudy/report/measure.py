"""What a run's report shows of real rows and ledgers: found by the run file, read at
their holder, or not at all.

Guarantee: a ledger is read, and nothing is written. It tells of the holder's other runs
too, so it is shown to the holder alone.
Edges: whatever is missing or cannot be read is a reason; a party or a column that does
not exist is the caller's mistake → ConfigError.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from understudy.data.arrays import ArrayTable
from understudy.data.column import is_unbounded
from understudy.data.kinds import ARRAYS, EVENTS, TABLE, ArraySchema, load_any
from understudy.data.reading.files import Source
from understudy.data.reading.one_hot import fold
from understudy.data.reading.sources import WRITTEN, TableSource, in_database, is_url
from understudy.data.schema import Schema
from understudy.evaluate.comparison import Comparison, compare, evaluate
from understudy.evaluate.figure import Figure
from understudy.evaluate.holdings import (
    NOT_OPENED,
    Holdings,
    open_holdings,
    read_rows,
)
from understudy.evaluate.other_rows import (
    array_figures,
    concatenate_tables,
    open_arrays,
)
from understudy.ground.errors import ConfigError, Effect, UnderstudyError
from understudy.models.tables.presence import presence_name
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import shown
from understudy.privacy.accounts.entries import Entry
from understudy.privacy.accounts.ledger import Ledger
from understudy.report import view
from understudy.report.artefacts import Artefacts
from understudy.report.people import (
    PeopleComparison,
    compare_people,
    load_party_schemas,
    open_people,
)
from understudy.report.run_findings import attack_finding
from understudy.report.words import KINDS, at_price, capitalize

Sources = Mapping[str, Any]
POINTS = 16  # entries whose ε is drawn: each takes the accountant a tenth of a second
SHOWN_ENTRIES = 12


@dataclass(frozen=True, kw_only=True)
class Measured:
    comparison: Comparison | None = None
    reason: str = ""
    # real images or series, where the rows are such
    arrays: ArrayTable[ArraySchema] | None = None
    figures: tuple[Figure, ...] = ()  # of them
    people: PeopleComparison | None = (
        None  # people with events, where the rows are such
    )


@dataclass(frozen=True)
class _Request:
    databases: bool
    holdout: Any
    target: str | None


def measure(
    run: Artefacts,
    *,
    parties: Sequence[str] | None = None,
    tables: Mapping[str, Any] | None = None,
    holdout: Source | None = None,
    target: str | None = None,
) -> Measured:
    """Compare the synthetic rows with the real rows that can be read here."""
    if run.model:
        return Measured(reason="the run trained a model and made no synthetic rows.")
    if run.kind not in _MEASURED:
        return Measured(
            reason=f"{KINDS[run.kind]}, and this report compares only tables."
        )
    if run.described is None or run.synthetic_tables is None:
        piece = "schema" if run.described is None else "synthetic rows"
        return Measured(reason=f"the run's {piece} cannot be read.")
    sources = _sources(run, parties, tables)
    # What a folder names may be a stranger's choice: any host would be dialled, with
    # any password of this machine.
    request = _Request(tables is not None, holdout, target)
    try:
        return _MEASURED[run.kind](run, run.described, sources, request)
    except UnderstudyError as error:
        # the caller's mistake
        if isinstance(error, ConfigError) and run.kind == TABLE.name:
            raise
        return Measured(reason=str(error))


def _sources(
    run: Artefacts, parties: Sequence[str] | None, tables: Mapping[str, Any] | None
) -> dict[str, Any]:
    sources = dict(
        tables
        or {
            name: _source(body) for name, body in run.parties.items() if "table" in body
        }
    )
    unknown = sorted(set(parties or ()) - sources.keys())
    if unknown:
        known_parties = ", ".join(sources) or "none"
        raise ConfigError(
            f"there is no table of a party {unknown[0]!r}; known parties: "
            f"{known_parties}.",
            effect=Effect.NOTHING_READ,
        )
    return {
        name: source
        for name, source in sources.items()
        if parties is None or name in parties
    }


def _source(body: Mapping[str, Any]) -> Any:
    """A holder's file, and how the run file says that it is read."""
    stated = {key: body[key] for key in WRITTEN if key in body}
    if not stated or is_url(str(body["table"])):
        return body["table"]
    return TableSource.from_dict({"table": body["table"], **stated}, "run.toml")


def _measure_tables(
    run: Artefacts, schema: Any, sources: Sources, request: "_Request"
) -> Measured:
    target = run.target if request.target is None else request.target
    schemas = {
        name: _schema(run, schema, name).expanded(keep=target) for name in sources
    }
    holdings = open_holdings(
        sources,
        schemas,
        same_people=run.owners is not None,
        databases=request.databases,
    )
    if isinstance(holdings, str):
        return Measured(reason=holdings)
    holdout_rows = None
    strangers = None
    widened_schema = holdings.schema
    if request.holdout is not None:
        holdout_rows, strangers, widened_holdout = read_rows(
            request.holdout, widened_schema
        )
        widened_schema = widened_holdout.schema
    uses_run_target = request.target is None and run.target in holdings.schema.names
    synthetic = cast(Any, run.synthetic)
    if run.union:
        holdings = _of_union(holdings)
        synthetic = _at_all_holders(synthetic, run.union)
    synthetic = fold(synthetic, widened_schema)
    comparison = compare(
        holdings.real,
        synthetic,
        widened_schema,
        holdout=holdout_rows,
        outsiders=holdings.outsiders if holdout_rows is None else (),
        owners=holdings.owners,
        target=run.target if uses_run_target else request.target,
        people=(holdings.people, strangers),
        notes=holdings.notes,
        losses=holdings.losses,
    )
    return Measured(comparison=comparison)


def _of_union(holdings: Holdings) -> Holdings:
    """Of a run over a union: people at both are compared, and all others took part,
    too, so that nobody stands for people who did not.
    """
    note = (
        "The run is over all people whom either party has. Those at both are compared "
        "here, with the synthetic people at both."
    )
    return replace(holdings, outsiders=(), notes=(note,))


def _at_all_holders(synthetic: pd.DataFrame, holders: Sequence[str]) -> pd.DataFrame:
    """The rows of people at all of these, without the columns that say so."""
    names = [presence_name(holder) for holder in holders]
    rows = synthetic[synthetic[names].all(axis=1)].drop(columns=names)
    return rows.reset_index(drop=True).convert_dtypes()


def _measure_arrays(
    run: Artefacts, schema: Any, sources: Sources, request: "_Request"
) -> Measured:
    _require_readable(sources, request.databases)
    real = concatenate_tables(
        [open_arrays(source, schema) for source in sources.values()]
    )
    synthetic = cast(Any, run.synthetic)
    figures = array_figures(
        real, synthetic, schema, holdout=request.holdout, epochs=3, steps=400
    )
    return Measured(arrays=real, figures=figures)


def _measure_people(
    run: Artefacts, schema: Any, sources: Sources, request: "_Request"
) -> Measured:
    _require_readable(sources, request.databases)
    schemas = load_party_schemas(run.parties, sources, schema)
    synthetic = cast(Any, run.synthetic_tables)
    real = open_people(sources, schemas, schema)
    return Measured(
        people=compare_people(real, synthetic, schema, holdout=request.holdout)
    )


def _require_readable(sources: Mapping[str, Any], databases: bool) -> None:
    if not sources or (not databases and any(map(in_database, sources.values()))):
        raise ConfigError(
            NOT_OPENED if sources else "no holder's rows can be read here."
        )


_MEASURED: dict[str, Callable[[Artefacts, Any, Sources, _Request], Measured]] = {
    "table": _measure_tables,
    "image": _measure_arrays,
    "series": _measure_arrays,
    "visits": _measure_people,
    "several-visits": _measure_people,
}


def read_timelines(
    run: Artefacts, parties: Sequence[str] | None = None
) -> "dict[str, Timeline | str]":
    stated = (
        {party["name"]: party for party in run.privacy["parties"]}
        if run.privacy and has_sound_privacy(run)
        else {}
    )
    return {
        name: read_timeline(body["ledger"], run.run, stated.get(name))
        for name, body in run.parties.items()
        if "ledger" in body and (parties is None or name in parties)
    }


def has_sound_privacy(run: Artefacts) -> bool:
    return run.privacy is not None and view.privacy_cells(run.privacy) is not None


def _schema(run: Artefacts, schema: Schema, party: str) -> Schema:
    """The party's own schema where it lies beside its table, with bounds that the run
    found; or its columns of the run's.
    """
    path = run.parties.get(party, {}).get("schema")
    if path is not None and Path(path).exists():
        party_schema = Schema.load(path)
        return replace(
            party_schema,
            columns=tuple(
                schema.column(c.name) if is_unbounded(c) else c
                for c in party_schema.columns
            ),
        )
    return (
        schema
        if run.owners is None
        else schema.select(c for c, p in run.owners.items() if p == party)
    )


def evaluate_files(
    real: Path,
    synthetic: Path,
    schema: Path,
    *,
    holdout: Path | None = None,
    target: str | None = None,
    another: bool = False,
    page: bool = False,
) -> tuple[list[str], Comparison | PeopleComparison | None]:
    """Two sets of rows side by side, for `understudy evaluate`: lines, and what a
    report is made of, if there is one.
    """
    described = load_any(schema)
    if TABLE.describes(described):
        table = evaluate(
            real, synthetic, described, holdout=holdout, target=target, another=another
        )
        finding = attack_finding(table.attacks)
        return [
            str(table.evaluation),
            f"{capitalize(finding.subject)} {finding.statement}. {finding.detail}",
        ], table
    if target is not None or another:
        raise ConfigError(
            "--target and --second-opinion are for tables with one row per person."
        )
    if EVENTS.describes(described):
        people = compare_people(real, synthetic, described, holdout=holdout)
        ran = [attack for attack in people.attacks if attack.measures]
        return [*map(str, people.figures), *map(str, ran)], people
    if not ARRAYS.describes(described):
        raise ConfigError(
            "rows of several kinds are evaluated kind by kind, by each holder's own "
            "schema."
        )
    if page:
        raise ConfigError(
            "--out is for tables and for people with events: of images and series "
            "there are figures."
        )
    return [*map(str, array_figures(real, synthetic, described, holdout=holdout))], None


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One ledger: ε after some of its entries, the limit then, the last entries as
    cells, and two remarks.
    """

    holder: str
    points: tuple[tuple[int, float], ...]
    limit: float
    entries: int
    when: str
    lines: tuple[tuple[str, ...], ...]
    earlier: int
    summary: str
    check: str
    agrees: bool


def read_timeline(
    path: str | Path,
    run: str,
    party: Mapping[str, Any] | None,
    *,
    lines: int = SHOWN_ENTRIES,
) -> Timeline | str:
    """The ledger at `path`, held against what the run's privacy statement says of its
    `party`; or the reason.
    """
    if not Path(path).exists():
        return f"there is no ledger at {path}."
    try:
        with Ledger(path) as ledger:
            entries = ledger.entries()
            merged = ledger.entries(merged=True)
            budget = ledger.budget
            spent = ledger.spent(against=ledger.budget.against)
            charged = epsilon(
                ledger.spend(run=run), budget.delta if party is None else party["delta"]
            )
            check, agrees = _compare_with_statement(charged, party if run else None)
            sampled = np.unique(
                np.linspace(0, len(entries) - 1, POINTS).round().astype(int)
            )
            first = entries[0].when[:10]
            last = entries[-1].when[:10]
            allows = (
                f"{ledger.holder} allows {at_price(budget.epsilon, budget.delta)} "
                f"against {budget.against}"
            )
            return Timeline(
                holder=ledger.holder,
                points=tuple((entries[i].number, entries[i].total) for i in sampled),
                limit=budget.epsilon,
                entries=len(entries),
                lines=tuple(map(_entry_cells, merged[-lines:])),
                when=f"on {first}" if first == last else f"from {first} to {last}",
                check=check,
                agrees=agrees,
                earlier=max(0, len(merged) - lines),
                summary=f"{allows}; {at_price(spent)} is spent.",
            )
    except UnderstudyError as error:
        return str(error)


def _entry_cells(entry: Entry) -> tuple[str, ...]:
    paid = (f"{entry.count:,}", shown(entry.price)) if entry.count else ("", "")
    return (
        entry.when[:16].replace("T", " "),
        entry.run,
        entry.description,
        *paid,
        shown(entry.total),
    )


def _compare_with_statement(
    charged: float, party: Mapping[str, Any] | None
) -> tuple[str, bool]:
    """Whether the ledger records what is stated: it may hold more (a run that was
    resumed), never less.
    """
    if party is None:
        return (
            "It cannot be compared with a statement: the run's name or its "
            "privacy statement is missing.",
            True,
        )
    stated = party["epsilon"]["server"]
    if stated is None:
        return "The statement gives no guarantee for this party.", True
    if charged < stated * (1 - 1e-6):
        return (
            f"The ledger records {at_price(charged)} for this run and the statement "
            f"says {shown(stated)}: "
            "the ledger records less than stated. Find out why before you publish.",
            False,
        )
    if charged > stated * (1 + 1e-6):
        return (
            f"The ledger records {at_price(charged)} for this run, more than the "
            f"stated {shown(stated)}: "
            "rounds that were started again are charged again. The ledger is right.",
            True,
        )
    return f"The ledger and the statement agree on this run: {at_price(charged)}.", True
