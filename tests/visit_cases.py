"""People with many rows for the tests: made up, some without events, some with more
than count.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from understudy.data.schema import Boolean, Categorical, Date, Integer, Schema
from understudy.data.visits import VisitCodes, VisitSchema
from understudy.data.visits.counts import VisitLayout
from understudy.models.visits.fit import VisitTables
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core import Parties
from understudy.protocols.joint.messages import Begin
from understudy.protocols.joint.server import Measurements, measure
from understudy.protocols.visits.protocol import Config, VisitStudy

AMPLE = Budget(math.inf, 0.0)
USUAL = Budget(3.0, 1e-5)
SMALL: dict[str, Any] = {
    "kinds": 3,
    "states": 2,
    "steps": 5,
    "device": "cpu",
    "chunk": 20,
}


def study_of(schemas: Mapping[str, Any], **settings: Any) -> VisitStudy:
    """What a run over these schemas is of."""
    return VisitStudy(Config(**settings), schemas)


def measured(
    parties: Parties,
    schemas: Mapping[str, Any],
    config: Config,
    chunk: int = 0,
    min_holders: int | None = None,
) -> Measurements:
    """What a server gets."""
    return measure(
        VisitStudy(config, schemas),
        parties,
        chunk=chunk or config.chunk,
        min_holders=min_holders,
    )


def cells_of(found: Measurements) -> Any:
    """All cells that were released, one table after the other, in parts."""
    tables: VisitTables = found["tables"]
    unit = found.stage("tables").unit  # type: ignore[attr-defined]
    units = tables.layout.units(unit)
    return [table.flatten() * units[block] for block, table in tables.tables.items()]


def begin(schemas: Mapping[str, Any], config: Config | dict[str, Any]) -> Begin:
    """What holders are told first."""
    told = config if isinstance(config, dict) else asdict(config)
    return Begin(
        family="visits",
        config=told,
        schemas={name: one.to_dict() for name, one in schemas.items()},
    )


def clinic(**more: object) -> VisitSchema:
    """Two columns of people, two of visits, ordered by day."""
    given = {"most_events": 3, "time": "day"} | more
    return VisitSchema(
        person="patient",
        people=Schema(
            columns=(
                Categorical(name="sex", categories=("f", "m")),
                Boolean(name="smoker"),
            )
        ),
        events=Schema(
            columns=(
                Date(name="day", low=date(2020, 1, 1), high=date(2020, 1, 31), bins=4),
                Integer(name="severity", low=0, high=3),
                Categorical(name="ward", categories=("a", "b"), nullable=True),
            )
        ),
        **given,  # type: ignore[arg-type]
    )


def frames(people: int = 60, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Their two tables: up to five visits each."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 6, people)
    owner = np.repeat(np.arange(people), numbers) + 100
    smoker = rng.random(people) < 0.3
    rng.shuffle(owner)
    days = np.datetime64("2020-01-01") + rng.integers(0, 31, len(owner)).astype(
        "timedelta64[D]"
    )
    who = pd.DataFrame(
        {
            "patient": np.arange(people) + 100,
            "sex": np.where(rng.random(people) < 0.5, "f", "m"),
            "smoker": smoker,
        }
    )
    severity = np.minimum(rng.integers(0, 3, len(owner)) + smoker[owner - 100], 3)
    ward = np.where(
        rng.random(len(owner)) < 0.1, None, np.where(severity > 1, "b", "a")
    )
    events = pd.DataFrame(
        {"patient": owner, "day": days, "severity": severity, "ward": ward}
    )
    return who, events


def beside_visits(
    people: int = 60, **more: object
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same people at three holders: sex at a registry, visits and smoking at a
    clinic, and income at a bank, which goes with smoking. Each has some people whom the
    others do not have.
    """
    who, events = frames(people)
    rng = np.random.default_rng(5)
    wages = np.where(who["smoker"], 0, 2) + rng.integers(0, 2, people)
    registry = who[["patient", "sex"]].iloc[3:]
    bank = (
        pd.DataFrame({"client": who["patient"], "income": wages})
        .sample(frac=1, random_state=1)
        .iloc[2:]
    )
    own = who[["patient", "smoker"]].iloc[: people - 2]
    schema = clinic(**more)
    visits = replace(schema, people=Schema(columns=(Boolean(name="smoker"),)))
    tables = {
        "registry": registry.reset_index(drop=True),
        "clinic": {
            "people": own,
            "events": events[events["patient"].isin(own["patient"])],
        },
        "bank": bank.reset_index(drop=True),
    }
    schemas = {
        "registry": Schema(
            person="patient", columns=(Categorical(name="sex", categories=("f", "m")),)
        ),
        "clinic": visits,
        "bank": Schema(
            person="client", columns=(Integer(name="income", low=0, high=3),)
        ),
    }
    return tables, schemas


def joined(tables: dict[str, Any]) -> dict[str, Any]:
    """The rows of the people whom all three have, as one holder would have them."""
    people = (
        tables["registry"]
        .merge(tables["clinic"]["people"])
        .merge(tables["bank"].rename(columns={"client": "patient"}))
    )
    events = tables["clinic"]["events"]
    return {
        "people": people,
        "events": events[events["patient"].isin(people["patient"])],
    }


def run_file_of(
    folder: Path,
    tables: dict[str, Any],
    schemas: dict[str, Any],
    settings: dict[str, Any],
) -> Path:
    """A run file of `visits` with these holders, and their files beside it."""
    parties = {}
    for name, held in tables.items():
        home = folder / name
        home.mkdir()
        schemas[name].save(home / "schema.toml")
        for part, rows in (held if isinstance(held, dict) else {"rows": held}).items():
            rows.to_csv(home / f"{part}.csv", index=False)
        parties[name] = {
            "table": name if isinstance(held, dict) else f"{name}/rows.csv",
            "schema": f"{name}/schema.toml",
            "epsilon": 2.0,
            "delta": 1e-5,
        }
    body = {
        "protocol": "visits",
        "out": "out",
        "settings": settings,
        "parties": parties,
    }
    (folder / "run.toml").write_text(tomli_w.dumps(body))
    return folder / "run.toml"


def two_kinds(people: int = 60) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same people at a clinic, with their visits; at an insurer, with claims, whose
    fee goes with who smokes; and at a registry. Each has some people whom the others do
    not have.
    """
    who, events = frames(people)
    rng = np.random.default_rng(9)
    numbers = rng.integers(0, 4, people)
    owner = np.repeat(np.arange(people), numbers)
    fee = np.where(who["smoker"].to_numpy()[owner], 2, 0) + rng.integers(
        0, 2, len(owner)
    )
    claims = pd.DataFrame(
        {"member": owner + 100, "month": rng.integers(1, 13, len(owner)), "fee": fee}
    )
    insured = pd.DataFrame(
        {"member": np.arange(people) + 100, "plan": rng.integers(0, 3, people)}
    ).iloc[4:]
    insurer = VisitSchema(
        person="member",
        title="claims",
        most_events=2,
        time="month",
        people=Schema(columns=(Categorical(name="plan", categories=(0, 1, 2)),)),
        events=Schema(
            columns=(
                Integer(name="month", low=1, high=12, bins=3),
                Integer(name="fee", low=0, high=3),
            )
        ),
    )
    visits = replace(clinic(), people=Schema(columns=(Boolean(name="smoker"),)))
    tables = {
        "registry": who[["patient", "sex"]].iloc[3:].reset_index(drop=True),
        "clinic": {"people": who[["patient", "smoker"]], "events": events},
        "insurer": {
            "people": insured,
            "events": claims[claims["member"].isin(insured["member"])],
        },
    }
    registry = Schema(
        person="patient", columns=(Categorical(name="sex", categories=("f", "m")),)
    )
    return tables, {"registry": registry, "clinic": visits, "insurer": insurer}


def split_rows(
    tables: dict[str, Any], schemas: dict[str, Any], **parts: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same with these holders' people at so many holders of the same columns:
    `clinic=2` is clinic0 and clinic1.

    People of different holders go by different rules, so that every two of them share
    some.
    """
    held = {}
    described = {}
    for turn, (name, table) in enumerate(tables.items()):
        count = parts.get(name, 1)
        if count == 1:
            held[name], described[name] = table, schemas[name]
            continue
        for part in range(count):

            def own(
                rows: pd.DataFrame, name: str = name, turn: int = turn, part: int = part
            ) -> pd.DataFrame:
                here = rows[schemas[name].person] // (turn + 1) % parts[name] == part
                return rows[here].reset_index(drop=True)

            held[f"{name}{part}"] = (
                {key: own(rows) for key, rows in table.items()}
                if isinstance(table, dict)
                else own(table)
            )
            described[f"{name}{part}"] = schemas[name]
    return held, described


def random_codes(
    rng: np.random.Generator, layout: VisitLayout, numbers: np.ndarray
) -> VisitCodes:
    """Any levels at all, for people with so many events each."""
    starts = np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)
    people = np.stack(
        [rng.integers(0, size, len(numbers)) for size in layout.people], 1
    )
    events = np.stack([rng.integers(0, size, starts[-1]) for size in layout.events], 1)
    return VisitCodes(people.astype(np.int32), events.astype(np.int32), starts)
