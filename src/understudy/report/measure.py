"""What a run's page shows of real rows and ledgers: found by the run file, read at their holder, or not at all.

Guarantee: none; the result is a function of real rows, meant for their holder. Edges: whatever is missing or
cannot be read is a reason; a party or a column that does not exist is the caller's mistake → ConfigError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.data.arrays import ArrayTable
from understudy.data.described import ArraySchema
from understudy.data.kinds import TABLE
from understudy.data.reading.files import Source
from understudy.data.reading.sources import WRITTEN, TableSource, in_database, is_url
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.evaluate.array_figures import array_figures, opened, together
from understudy.evaluate.comparison import Comparison, compare
from understudy.evaluate.holdings import NOT_OPENED, open_holdings, read_rows
from understudy.evaluate.utility import Figure
from understudy.ground.errors import ConfigError, UnderstudyError
from understudy.report import view
from understudy.report.artefacts import Artefacts
from understudy.report.ledgers import Timeline, timeline
from understudy.report.people import People, measure_people, schemas_of

KINDS = {
    "series": "the rows are series",
    "image": "the rows are images",
    "visits": "the rows are people and their events",
    "several-visits": "the rows are people with events of several kinds",
    "mixed": "the rows are of several kinds, series or images among them",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured on real rows, or why nothing was."""

    comparison: Comparison | None = None
    reason: str = ""
    arrays: ArrayTable[ArraySchema] | None = None  # real images or series, where the rows are such
    figures: tuple[Figure, ...] = ()  # of them
    people: People | None = None  # people with events, where the rows are such


def measure(
    run: Artefacts,
    *,
    parties: Sequence[str] | None = None,
    tables: Mapping[str, Any] | None = None,
    holdout: Source | None = None,
    target: str | None = None,
    seed: int = 0,
) -> Measured:
    """Compare the synthetic rows with the real rows that can be read here.

    `target`: the column that models learn to predict; by default the run's own target, if that column is here.
    """
    if run.model:
        return Measured(reason="the run trained a model and made no synthetic rows.")
    if run.arrays is not None:
        return _of_arrays(run, run.arrays, parties, tables, holdout, seed)
    if run.visits is not None:
        return _of_people(run, run.visits, parties, tables, holdout, seed)
    if run.kind != TABLE.name:
        return Measured(reason=f"{KINDS[run.kind]}, and this page compares only tables.")
    if run.synthetic is None or run.schema is None:
        return Measured(reason="the run's synthetic rows or its schema cannot be read.")
    sources = _sources(run, parties, tables)
    try:
        schemas = {name: _schema(run, run.schema, name) for name in sources}
        # What a folder names may be a stranger's choice: any host would be dialled, with any password of this machine.
        found = open_holdings(
            sources, schemas, same_people=run.owners is not None, databases=tables is not None
        )
        if isinstance(found, str):
            return Measured(reason=found)
        unseen, strangers, schema = None, None, found.schema
        if holdout is not None:
            unseen, strangers, others = read_rows(holdout, schema)
            schema = others.schema
        comparison = compare(
            found.real,
            run.synthetic,
            schema,
            holdout=unseen,
            outsiders=found.outsiders if unseen is None else (),
            owners=found.owners,
            target=run.target if target is None and run.target in found.schema.names else target,
            people=(found.people, strangers),
            notes=found.notes,
            losses=found.losses,
            seed=seed,
        )
    except ConfigError:
        raise
    except UnderstudyError as error:
        return Measured(reason=str(error))
    return Measured(comparison=comparison)


def _sources(
    run: Artefacts, parties: Sequence[str] | None, tables: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Where the rows of the parties are that are asked for."""
    sources = dict(tables or {name: _source(body) for name, body in run.parties.items() if "table" in body})
    if strange := sorted(set(parties or ()) - sources.keys()):
        known = ", ".join(sources) or "none"
        raise ConfigError(
            f"there is no table of a party {strange[0]!r}; known parties: {known}. Nothing was read."
        )
    return {name: source for name, source in sources.items() if parties is None or name in parties}


def _source(body: Mapping[str, Any]) -> Any:
    """A holder's file, and how the run file says that it is read."""
    stated = {key: body[key] for key in WRITTEN if key in body}
    if not stated or is_url(str(body["table"])):
        return body["table"]
    return TableSource.from_dict({"table": body["table"], **stated}, "run.toml")


def _of_arrays(
    run: Artefacts,
    schema: ArraySchema,
    parties: Sequence[str] | None,
    tables: Mapping[str, Any] | None,
    holdout: Source | None,
    seed: int,
) -> Measured:
    """The holders' images or series beside the drawn ones."""
    if run.synthetic is None:
        return Measured(reason="the run's synthetic rows cannot be read.")
    sources = _sources(run, parties, tables)
    if not sources:
        return Measured(reason="no holder's rows can be read here.")
    if tables is None and any(map(in_database, sources.values())):
        return Measured(reason=NOT_OPENED)
    try:
        real = together([opened(source, schema) for source in sources.values()])
        found = array_figures(real, run.synthetic, schema, holdout=holdout, epochs=3, steps=400, seed=seed)
    except UnderstudyError as error:
        return Measured(reason=str(error))
    return Measured(arrays=real, figures=found)


def _of_people(
    run: Artefacts,
    schema: VisitSchema | SeveralVisits,
    parties: Sequence[str] | None,
    tables: Mapping[str, Any] | None,
    holdout: Source | None,
    seed: int,
) -> Measured:
    """The holders' people and their events beside the drawn ones."""
    if run.drawn is None:
        return Measured(reason="the run's synthetic people or their events cannot be read.")
    sources = _sources(run, parties, tables)
    if not sources:
        return Measured(reason="no holder's rows can be read here.")
    if tables is None and any(map(in_database, sources.values())):
        return Measured(reason=NOT_OPENED)
    try:
        schemas = schemas_of(run.parties, sources, schema)
        found = measure_people(sources, schemas, schema, run.drawn, holdout=holdout, seed=seed)
        return Measured(people=found)
    except UnderstudyError as error:
        return Measured(reason=str(error))


def timelines(run: Artefacts, parties: Sequence[str] | None = None) -> dict[str, Timeline | str]:
    """The ledger of each party, or why it cannot be shown."""
    stated = {party["name"]: party for party in run.privacy["parties"]} if run.privacy and sound(run) else {}
    return {
        name: timeline(body["ledger"], run.run, stated.get(name))
        for name, body in run.parties.items()
        if "ledger" in body and (parties is None or name in parties)
    }


def sound(run: Artefacts) -> bool:
    """Whether the run has a privacy statement that can be read."""
    return run.privacy is not None and view.privacy(run.privacy) is not None


def _schema(run: Artefacts, schema: Schema, party: str) -> Schema:
    """The party's own schema where it lies beside its table, or its columns of the run's."""
    path = run.parties.get(party, {}).get("schema")
    if path is not None and Path(path).exists():
        return Schema.load(path)
    return schema if run.owners is None else schema.select(c for c, p in run.owners.items() if p == party)
