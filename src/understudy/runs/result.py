"""What a run gives: a generator or a classifier with its price; saved, shown as a page,
loaded, asked to predict.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

from understudy.data.drafted import HOW_DRAFTED, provenance
from understudy.data.kinds import EVENTS, FLAT, TABLE
from understudy.data.reading.cells import read_cells
from understudy.data.reading.files import PLAIN_NUMBERS, Source, open_source
from understudy.data.reading.storage import Storage, storages_of, store
from understudy.data.reading.writing import write_tables
from understudy.data.schema import Integer, Real, Schema
from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import nearest
from understudy.ground.durable import replace, replace_json
from understudy.ground.errors import ArtefactError, ConfigError, Effect, SchemaError
from understudy.privacy.accounts.budget import first_said
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.protocols.core.loop import Outcome
from understudy.runs.federation import Federation
from understudy.runtime.local import Transcript

Artefact = Generator | Classifier
MOST_DRAWN = 1_000_000  # rows, where nobody says how many


@dataclass(frozen=True, repr=False)
class Result:
    artefact: Artefact
    privacy: PrivacyStatement
    transcript: Transcript
    run: str
    people: int
    federation: Federation | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_outcome(
        cls,
        outcome: Outcome,
        transcript: Transcript,
        run: str,
        federation: Federation | None = None,
        *,
        schemas: Mapping[str, Any] | None = None,
    ) -> "Result":
        """What a run came to. Statement and card say which of the holders' `schemas`
        were drafted from rows.
        """
        outcome = _with_provenance(outcome, schemas or {})
        trained = outcome.trained
        artefact = (
            Generator.from_parts(trained)
            if isinstance(trained, GeneratorParts)
            else Classifier.from_parts(trained)
        )
        return cls(
            artefact, outcome.privacy, transcript, run, outcome.people, federation
        )

    def sample(self, n: int, **options: Any) -> pd.DataFrame:
        """`n` synthetic rows, free (`Generator.sample`); of a frame whose schema was
        bought, stored as it was.

        Guarantee: a dtype comes from the schema and the storages of
        `data.reading.storage`, never from the frame.
        """
        synthetic = self.generator.sample(n, **options)
        return (
            store(synthetic, self.generator.schema, self._storages)
            if self._storages
            else synthetic
        )

    @cached_property
    def _storages(self) -> dict[Any, Storage]:
        """How the frame was stored that the schema was bought for, if there was one."""
        holders = self.federation.holders.values() if self.federation else ()
        frames = [
            holder.came for holder in holders if isinstance(holder.came, pd.DataFrame)
        ]
        return storages_of(frames[0]) if frames else {}

    @property
    def generator(self) -> Generator:
        """What draws rows. ArtefactError where the run trained something else."""
        if not isinstance(self.artefact, Generator):
            raise ArtefactError(
                "This run trained a classifier, which draws no rows: see `model`."
            )
        return self.artefact

    @property
    def model(self) -> Classifier:
        """What predicts. ArtefactError where the run trained something else."""
        if not isinstance(self.artefact, Classifier):
            raise ArtefactError(
                "This run trained a generator, which predicts nothing: see `generator`."
            )
        return self.artefact

    def save(self, folder: str | Path, *, rows: int | None = None) -> Path:
        """Everything in one folder: privacy.json, transcript.json, and generator/ with
        synthetic.parquet, or model/. `rows` are drawn, by default as many as there are
        people, and no more than a million. Of people with events, synthetic/ holds
        people.parquet and events.parquet, or a file for each kind of events; `rows` are
        people then.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "privacy.json", self.privacy.to_dict())
        _write_json(folder / "transcript.json", self.transcript.rows(self.privacy))
        self.artefact.save(
            folder / ("generator" if isinstance(self.artefact, Generator) else "model")
        )
        # last: what was paid for is saved, whatever becomes of the draw
        generator = self.artefact
        if isinstance(generator, Generator):
            default_rows = (
                self.people
                if EVENTS.describes(generator.schema)
                else min(self.people, MOST_DRAWN)
            )
            frames = generator.tables(rows or default_rows)
            statement = first_said(generator.card)
            # a rehearsal's say what they are: files keep a frame's `attrs`
            for frame in frames.values():
                frame.attrs |= statement
            path = folder / ("synthetic.parquet" if "" in frames else "synthetic")
            write_tables(frames, path, generator.schema, ".parquet")
        return folder

    def report(
        self,
        out: str | Path = "report.html",
        *,
        publish: bool = False,
        holdout: Source | None = None,
        target: str | None = None,
    ) -> Path:
        """Write the report of this run; returns where. For the holder it compares with
        the rows that are open here. With `publish` it holds nothing that a row could
        have changed unpaid.
        """
        from understudy.report.page import write_report

        holders = {} if self.federation is None else self.federation.holders
        tables: dict[str, Any] = {}
        for name, holder in holders.items():
            if not FLAT.holds(holder.table):
                continue
            if holder.came is not None:
                tables[name] = holder.came
            elif TABLE.holds(holder.table):
                tables[name] = holder.table.reread_from
            else:
                tables[name] = holder.table
        books = {
            name: {"ledger": str(h.ledger.path)}
            for name, h in holders.items()
            if h.ledger.path
        }
        with tempfile.TemporaryDirectory() as folder:
            home = self.save(folder)
            replace_json(
                home / "run.json",
                {"run": self.run, "rehearsal": bool(self.privacy.rehearsal)},
            )
            replace(home / "run.toml", tomli_w.dumps({"parties": books}).encode())
            return write_report(
                home,
                out=out,
                publish=publish,
                tables=tables,
                holdout=holdout,
                target=target,
            ).resolve()

    def __repr__(self) -> str:
        what = (
            "sample(n) samples rows"
            if isinstance(self.artefact, Generator)
            else "model predicts"
        )
        return (
            f"<Result of {self.run}: {what}, report(file) writes a report, privacy "
            "says what it costs>"
        )

    def __str__(self) -> str:
        return f"{self!r}\n{self.privacy}"

    def _repr_html_(self) -> str:
        own_html: str = (
            self.artefact._repr_html_() if isinstance(self.artefact, Generator) else ""
        )
        return own_html + self.privacy._repr_html_()


def _with_provenance(outcome: Outcome, schemas: Mapping[str, Any]) -> Outcome:
    lines = [
        f"{HOW_DRAFTED} {name} came to be: {line}"
        for name, schema in schemas.items()
        for line in provenance(schema)
    ]
    if not lines:
        return outcome
    privacy = changed(outcome.privacy, outside=(*outcome.privacy.outside, *lines))
    card = dict(outcome.trained.card) | {"privacy": privacy.to_dict()}
    return changed(
        outcome, privacy=privacy, trained=changed(outcome.trained, card=card)
    )


def load(folder: str | Path) -> Artefact:
    """The generator or the classifier that a run left in its folder. ArtefactError if
    it is missing or damaged.
    """
    home = Path(folder)
    if home.name == "model" or (home / "model" / "card.json").exists():
        return Classifier.load(home)
    return Generator.load(folder)


def predict_rows(
    folder: str | Path,
    source: Source,
    *,
    target: str | None = None,
    probabilities: bool = False,
) -> pd.DataFrame:
    """A prediction for each row; with `probabilities` a column for each class, or bin.

    A classifier says the class that it was trained for. A generator predicts any column
    from those that the rows have; a number by its mean. Without a `target` it is the
    run's.

    Guarantee: post-processing of an artefact, at no price. What comes out is about the
    rows that were handed in, and stays where they are.
    """
    artefact = load(folder)
    trained = dict(artefact.card.get("config") or {}).get("target")
    target = target or trained
    if target is None:
        raise ConfigError(
            "which column? The run named no target: say --target.",
            effect=Effect.NOTHING_COMPUTED,
        )
    if isinstance(artefact, Classifier):
        if target != trained:
            raise ConfigError(
                f"this classifier predicts {trained}, not {target}.",
                effect=Effect.NOTHING_COMPUTED,
            )
        if probabilities:
            return pd.DataFrame(
                artefact.predict_proba(source),
                columns=[str(part) for part in artefact.classes_],
            )
        return pd.DataFrame({target: artefact.predict(source)})
    schema = artefact.schema
    if not TABLE.describes(schema) or target not in schema.names:
        names = schema.names if TABLE.describes(schema) else ()
        raise ConfigError(
            f'there is no column "{target}".{nearest(target, names)}',
            effect=Effect.NOTHING_COMPUTED,
        )
    frame = _read_known_columns(source, schema.drop([target]).expanded())
    if probabilities:
        return artefact.predict_proba(frame, target)
    if isinstance(schema.column(target), Integer | Real):
        return pd.DataFrame({target: artefact.expectation(frame, target)})
    return pd.DataFrame({target: artefact.predict_proba(frame, target).idxmax(axis=1)})


def _read_known_columns(source: Source, schema: Schema) -> pd.DataFrame:
    """Those columns of the schema that the rows have, read as it says; any cell may be
    missing.
    """
    header = open_source(source, {}).header
    columns = {
        column.name: changed(column, nullable=True)
        for column in schema.columns
        if column.name in header
    }
    raw = open_source(
        source, {name: column.kind in PLAIN_NUMBERS for name, column in columns.items()}
    )
    frame = {}
    for name, column in columns.items():
        frame[name], faults = read_cells(column, raw.columns[name], raw.numbers)
        for fault in faults:
            row = "" if fault.rows is None else f", row {int(fault.rows[0]):,}"
            raise SchemaError(
                f'{raw.name}, column "{name}"{row}: the cell {fault.reason}',
                effect=Effect.NOTHING_COMPUTED,
            )
    return pd.DataFrame(frame)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
