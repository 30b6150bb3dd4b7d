"""A run's folder as a run leaves it, made in a moment: no training, but real tables,
ledgers and prices.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from understudy.data.kinds import ArraySchema, MixedSchema
from understudy.data.samples import toy
from understudy.data.schema import Schema
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement

EVENT = PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0))
BUDGET = Budget(epsilon=3.0, delta=1e-5)
RUN = "verti-gan-0a1b2c3d"
ROUNDS = 4
PARTS = {
    "clinic": ("colour", "smoker", "age", "joined"),
    "insurer": ("grade", "income"),
}


def make_run(
    home: Path,
    *,
    real_seed: int = 1,
    rows: int = 120,
    parts: Mapping[str, tuple[str, ...]] = PARTS,
    schema: Schema | None = None,
) -> Path:
    """Tables, schemas and ledgers in home/holders, the run's artefacts in home/run;
    returns the latter.

    The artefacts do not depend on `real_seed`. Each party lacks a tenth of the people.
    """
    real, known = toy(rows=rows, seed=real_seed)
    made, _ = toy(rows=rows, seed=99)
    schema = known if schema is None else schema
    for frame in (real, made):
        frame.columns = pd.Index(["id", *schema.names])
    schema = schema.select([column for columns in parts.values() for column in columns])
    folder = home / "run"
    sections = {
        name: _holder(home / "holders" / name, name, columns, real, schema, number)
        for number, (name, columns) in enumerate(parts.items())
    }
    _artefacts(folder, made[list(schema.names)], schema, parts, sections)
    return folder


def _holder(
    home: Path,
    name: str,
    columns: tuple[str, ...],
    real: pd.DataFrame,
    schema: Schema,
    number: int,
) -> dict[str, Any]:
    home.mkdir(parents=True, exist_ok=True)
    kept = real[real["id"] % 10 != number]
    kept[["id", *columns]].to_csv(home / "table.csv", index=False)
    schema.select(columns).save(home / "schema.toml")
    if not (home / "book.ledger").exists():
        with Ledger(home / "book.ledger", holder=name, budget=BUDGET) as ledger:
            for step in range(ROUNDS):
                ledger.charge(EVENT, run=RUN, description=f"round {step + 1}")
    return {
        "table": str(home / "table.csv"),
        "schema": str(home / "schema.toml"),
        "ledger": str(home / "book.ledger"),
        "epsilon": BUDGET.epsilon,
        "delta": BUDGET.delta,
    }


def _artefacts(
    folder: Path,
    made: pd.DataFrame,
    schema: Schema,
    parts: Mapping[str, tuple[str, ...]],
    sections: Any,
) -> None:
    statement = PrivacyStatement(
        parties=tuple(
            PartyPrivacy(
                name=name,
                budget=BUDGET,
                outsider={EVENT: ROUNDS},
                insider={EVENT: ROUNDS},
                noise="AES-256-CTR",
                people=96,
                rounds=ROUNDS,
            )
            for name in parts
        )
    ).to_dict()
    (folder / "generator").mkdir(parents=True, exist_ok=True)
    made.to_parquet(folder / "synthetic.parquet", index=False)
    schema.save(folder / "generator" / "schema.toml")
    card = {
        "protocol": "verti-gan",
        "config": {"rounds": ROUNDS, "latent": None},
        "ended": "after all rounds",
        "people": 96,
        "owners": {
            column: name for name, columns in parts.items() for column in columns
        },
        "privacy": statement,
    }
    line = {
        "ask": "verti-gan.round",
        "meaning": "One `round` of it.",
        "count": ROUNDS,
        "down_bytes": 54_321,
        "up_bytes": 1_234_567,
    }
    prices = {
        party["name"]: party["epsilon"]["server"] for party in statement["parties"]
    }
    lines = [
        {"party": name, **line, "paid": ROUNDS, "epsilon": prices[name]}
        for name in parts
    ]
    files = {
        "privacy.json": statement,
        "transcript.json": lines,
        "run.json": {"run": RUN},
        "generator/card.json": card,
    }
    for name, body in files.items():
        (folder / name).write_text(json.dumps(body))
    (folder / "run.toml").write_text(
        tomli_w.dumps({"protocol": "verti-gan", "parties": sections})
    )


def columns_of(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same columns, each shuffled by itself: every single column is kept and every
    pair lost.
    """
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {name: frame[name].to_numpy()[rng.permutation(len(frame))] for name in frame}
    )


def run_of(folder: Path, schema: ArraySchema | MixedSchema) -> Path:
    """What a run of rows that are no table leaves, without synthetic ones."""
    (folder / "generator").mkdir(parents=True)
    schema.save(folder / "generator" / "schema.toml")
    spend = {PureDp(1.0): 1}
    party = PartyPrivacy(
        name="monitor",
        budget=Budget(1.0, 0.0),
        outsider=spend,
        insider=spend,
        noise="secure",
        people=9,
    )
    privacy = PrivacyStatement(parties=(party,)).to_dict()
    (folder / "privacy.json").write_text(json.dumps(privacy))
    (folder / "generator" / "card.json").write_text(
        json.dumps({"protocol": "fed-stdg", "privacy": privacy})
    )
    return folder
