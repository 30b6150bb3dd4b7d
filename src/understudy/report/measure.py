"""What a run's page shows of real rows and ledgers: found by the run file, read at
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

from understudy.data.arrays import ArrayTable
from understudy.data.column import is_unbounded
from understudy.data.kinds import ARRAYS, EVENTS, TABLE, ArraySchema, load_any
from understudy.data.reading.files import Source
from understudy.data.reading.one_hot import fold
from understudy.data.reading.sources import WRITTEN, TableSource, in_database, is_url
from understudy.data.schema import Schema
from understudy.evaluate.comparison import Comparison, compare, evaluate
from understudy.evaluate.figure import Figure
from understudy.evaluate.holdings import NOT_OPENED, open_holdings, read_rows
from understudy.evaluate.other_rows import (
    array_figures,
    concatenate_tables,
    open_arrays,
)
from understudy.ground.errors import ConfigError, Effect, UnderstudyError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import shown
from understudy.privacy.accounts.entries import Entry
from understudy.privacy.accounts.ledger import Ledger
from understudy.report import view
from understudy.report.artefacts import Artefacts
from understudy.report.people import (
    PeopleComparison,
    all_people,
    compare_people,
    schemas_of,
)
from understudy.report.verdict import attack_finding
from understudy.report.words import KINDS, at_price, capital

Sources = Mapping[str, Any]
POINTS = 16  # entries whose ε is drawn: each takes the accountant a tenth of a second
LINES = 12


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
class _Asked:
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
            reason=f"{KINDS[run.kind]}, and this page compares only tables."
        )
    if run.described is None or run.drawn is None:
        what = "schema" if run.described is None else "synthetic rows"
        return Measured(reason=f"the run's {what} cannot be read.")
    sources = _sources(run, parties, tables)
    # What a folder names may be a stranger's choice: any host would be dialled, with
    # any password of this machine.
    asked = _Asked(tables is not None, holdout, target)
    try:
        return _MEASURED[run.kind](run, run.described, sources, asked)
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
    strange = sorted(set(parties or ()) - sources.keys())
    if strange:
        known = ", ".join(sources) or "none"
        raise ConfigError(
            f"there is no table of a party {strange[0]!r}; known parties: {known}.",
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


def _of_tables(
    run: Artefacts, schema: Any, sources: Sources, asked: "_Asked"
) -> Measured:
    target = run.target if asked.target is None else asked.target
    schemas = {
        name: _schema(run, schema, name).expanded(keep=target) for name in sources
    }
    found = open_holdings(
        sources, schemas, same_people=run.owners is not None, databases=asked.databases
    )
    if isinstance(found, str):
        return Measured(reason=found)
    unseen = None
    strangers = None
    wide = found.schema
    if asked.holdout is not None:
        unseen, strangers, others = read_rows(asked.holdout, wide)
        wide = others.schema
    own = asked.target is None and run.target in found.schema.names
    synthetic = fold(cast(Any, run.synthetic), wide)
    comparison = compare(
        found.real,
        synthetic,
        wide,
        holdout=unseen,
        outsiders=found.outsiders if unseen is None else (),
        owners=found.owners,
        target=run.target if own else asked.target,
        people=(found.people, strangers),
        notes=found.notes,
        losses=found.losses,
    )
    return Measured(comparison=comparison)


def _of_arrays(
    run: Artefacts, schema: Any, sources: Sources, asked: "_Asked"
) -> Measured:
    _require_readable(sources, asked.databases)
    real = concatenate_tables(
        [open_arrays(source, schema) for source in sources.values()]
    )
    drawn = cast(Any, run.synthetic)
    found = array_figures(
        real, drawn, schema, holdout=asked.holdout, epochs=3, steps=400
    )
    return Measured(arrays=real, figures=found)


def _of_people(
    run: Artefacts, schema: Any, sources: Sources, asked: "_Asked"
) -> Measured:
    _require_readable(sources, asked.databases)
    schemas = schemas_of(run.parties, sources, schema)
    drawn = cast(Any, run.drawn)
    real = all_people(sources, schemas, schema)
    return Measured(people=compare_people(real, drawn, schema, holdout=asked.holdout))


def _require_readable(sources: Mapping[str, Any], databases: bool) -> None:
    if not sources or (not databases and any(map(in_database, sources.values()))):
        raise ConfigError(
            NOT_OPENED if sources else "no holder's rows can be read here."
        )


_MEASURED: dict[str, Callable[[Artefacts, Any, Sources, _Asked], Measured]] = {
    "table": _of_tables,
    "image": _of_arrays,
    "series": _of_arrays,
    "visits": _of_people,
    "several-visits": _of_people,
}


def timelines(
    run: Artefacts, parties: Sequence[str] | None = None
) -> "dict[str, Timeline | str]":
    stated = (
        {party["name"]: party for party in run.privacy["parties"]}
        if run.privacy and sound(run)
        else {}
    )
    return {
        name: timeline(body["ledger"], run.run, stated.get(name))
        for name, body in run.parties.items()
        if "ledger" in body and (parties is None or name in parties)
    }


def sound(run: Artefacts) -> bool:
    return run.privacy is not None and view.privacy(run.privacy) is not None


def _schema(run: Artefacts, schema: Schema, party: str) -> Schema:
    """The party's own schema where it lies beside its table, with bounds that the run
    found; or its columns of the run's.
    """
    path = run.parties.get(party, {}).get("schema")
    if path is not None and Path(path).exists():
        own = Schema.load(path)
        return replace(
            own,
            columns=tuple(
                schema.column(c.name) if is_unbounded(c) else c for c in own.columns
            ),
        )
    return (
        schema
        if run.owners is None
        else schema.select(c for c, p in run.owners.items() if p == party)
    )


def compared(
    real: Path,
    synthetic: Path,
    schema: Path,
    *,
    holdout: Path | None = None,
    target: str | None = None,
    another: bool = False,
    page: bool = False,
) -> tuple[list[str], Comparison | PeopleComparison | None]:
    """Two sets of rows side by side, for `understudy evaluate`: lines, and what a page
    is made of, if there is one.
    """
    described = load_any(schema)
    if TABLE.describes(described):
        table = evaluate(
            real, synthetic, described, holdout=holdout, target=target, another=another
        )
        said = attack_finding(table.attacks)
        return [
            str(table.evaluation),
            f"{capital(said.subject)} {said.said}. {said.detail}",
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


def timeline(
    path: str | Path, run: str, party: Mapping[str, Any] | None, *, lines: int = LINES
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
            check, agrees = _check(charged, party if run else None)
            drawn = np.unique(
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
                points=tuple((entries[i].number, entries[i].total) for i in drawn),
                limit=budget.epsilon,
                entries=len(entries),
                lines=tuple(map(_cells, merged[-lines:])),
                when=f"on {first}" if first == last else f"from {first} to {last}",
                check=check,
                agrees=agrees,
                earlier=max(0, len(merged) - lines),
                summary=f"{allows}; {at_price(spent)} is spent.",
            )
    except UnderstudyError as error:
        return str(error)


def _cells(entry: Entry) -> tuple[str, ...]:
    paid = (f"{entry.count:,}", shown(entry.price)) if entry.count else ("", "")
    return (
        entry.when[:16].replace("T", " "),
        entry.run,
        entry.what,
        *paid,
        shown(entry.total),
    )


def _check(charged: float, party: Mapping[str, Any] | None) -> tuple[str, bool]:
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
