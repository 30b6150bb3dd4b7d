"""Predict a column of rows by what a run trained: `understudy predict`.

Guarantee: post-processing of an artefact, at no price. What comes out is about the rows that were handed in, and stays
where they are.
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from understudy.data.kinds import TABLE
from understudy.data.reading.cells import read_cells
from understudy.data.reading.files import PLAIN_NUMBERS, Source, open_source
from understudy.data.schema import Integer, Real, Schema
from understudy.generators.classifier import Classifier
from understudy.ground.check import nearest
from understudy.ground.errors import ConfigError, SchemaError
from understudy.runs.result import load


def predicted(
    folder: str | Path, source: Source, *, target: str | None = None, probabilities: bool = False
) -> pd.DataFrame:
    """A prediction for each row; with `probabilities` a column for each class, or bin.

    A classifier says the class that it was trained for. A generator predicts any column from those that the rows have;
    a number by its mean. Without a `target` it is the run's.
    """
    artefact = load(folder)
    trained = dict(artefact.card.get("config") or {}).get("target")
    target = target or trained
    if target is None:
        raise ConfigError("which column? The run named no target: say --target. Nothing was predicted.")
    if isinstance(artefact, Classifier):
        if target != trained:
            raise ConfigError(f"this classifier predicts {trained}, not {target}. Nothing was predicted.")
        if probabilities:
            return pd.DataFrame(
                artefact.predict_proba(source), columns=[str(one) for one in artefact.classes_]
            )
        return pd.DataFrame({target: artefact.predict(source)})
    schema = artefact.schema
    if not TABLE.describes(schema) or target not in schema.names:
        names = schema.names if TABLE.describes(schema) else ()
        raise ConfigError(f'there is no column "{target}".{nearest(target, names)} Nothing was predicted.')
    frame = _known_columns(source, schema.drop([target]))
    if probabilities:
        return artefact.predict_proba(frame, target)
    if isinstance(schema.column(target), Integer | Real):
        return pd.DataFrame({target: artefact.expectation(frame, target)})
    return pd.DataFrame({target: artefact.predict_proba(frame, target).idxmax(axis=1)})


def _known_columns(source: Source, schema: Schema) -> pd.DataFrame:
    """Those columns of the schema that the rows have, read as it says; any cell may be missing."""
    header = open_source(source, {}).header
    here = {column.name: replace(column, nullable=True) for column in schema.columns if column.name in header}
    raw = open_source(source, {name: column.kind in PLAIN_NUMBERS for name, column in here.items()})
    frame = {}
    for name, column in here.items():
        frame[name], faults = read_cells(column, raw.columns[name], raw.numbers)
        for fault in faults:
            row = "" if fault.rows is None else f", row {int(fault.rows[0]):,}"
            raise SchemaError(
                f'{raw.name}, column "{name}"{row}: the cell {fault.reason} Nothing was predicted.'
            )
    return pd.DataFrame(frame)
