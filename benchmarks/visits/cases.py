"""People with many rows: three public data sets, and two laws that are known.

    randhie       RAND Health Insurance Experiment: 5,912 people, 20,190 years of them.
                  A year's cost is counted up to 2,000 dollars, visits to a doctor up to
                  20, admissions up to 3 (of 100 years one has more of each)
    diabetes130   71,518 patients, 101,766 stays at 130 US hospitals, of a patient the
                  first 10 (encounter numbers rise with time; 97 patients have more)
    cdnow         23,570 customers of a shop for CDs, 69,659 purchases in 18 months; of
                  a customer the first 12 count, dollars up to 150, CDs up to 20 (of 100
                  purchases one has more)
    markov1       20,000 people of a known law: the state of an event depends on the
                  last one's, and on the group of the person
    markov2       the same, but on the last but one

Bins are round numbers. Levels of categories are those of the published codebooks, read
off the whole public file here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from common.sources import need
from understudy.data.schema import (
    Categorical,
    Column,
    Date,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.data.visits import VisitSchema

NAMES = ("randhie", "diabetes130", "cdnow", "markov1", "markov2")
HEALTH = ("excellent", "good", "fair", "poor")
TOPS = {"mdvis": 20, "meddol": 2_000.0, "totadm": 3}
_LAW = {"markov1": 1, "markov2": 2}
_STATES = 4
_LONGEST = 8


@dataclass(frozen=True, eq=False)
class Case:
    """Both tables, what is public of them, and the columns whose sums are compared."""

    schema: VisitSchema
    frames: Mapping[str, pd.DataFrame]
    totals: tuple[str, ...]


@lru_cache(maxsize=8)
def load(name: str, folder: Path, seed: int = 0, people: int | None = None) -> Case:
    """The case of this name; with `people` only so many, drawn by the seed."""
    if name in _LAW:
        return drawn(_LAW[name], people or 20_000, seed)
    case = {"randhie": randhie, "diabetes130": diabetes130, "cdnow": cdnow}[name](
        folder
    )
    if people is None:
        return case
    key = case.schema.person
    own = case.frames["people"].sample(people, random_state=seed)
    events = case.frames["events"]
    return Case(
        case.schema,
        {"people": own, "events": events[events[key].isin(own[key])]},
        case.totals,
    )


def randhie(folder: Path) -> Case:
    (file,) = need(folder, "randhie.csv.gz")
    rows = pd.read_csv(file).sort_values(["zper", "year"])
    rows["health"] = np.select(
        [rows["hlthp"] == 1, rows["hlthf"] == 1, rows["hlthg"] == 1],
        HEALTH[:0:-1],
        HEALTH[0],
    )
    for name, top in TOPS.items():
        rows[name] = rows[name].clip(upper=top)
    people = rows.groupby("zper", as_index=False).first()
    people["age"] = np.floor(people["xage"]).clip(0, 69).astype(int)
    people["education"] = people["educdec"].round().fillna(12).astype(int)
    people["income"] = people["income"].round().astype(int)
    people["coinsurance"] = people["coins"].round().astype(int)
    own: tuple[Column, ...] = (
        Categorical(name="site", categories=(1, 2, 3, 4, 5, 6)),
        Ordinal(name="coinsurance", categories=(0, 25, 50, 95, 100)),
        Categorical(name="female", categories=(0, 1)),
        Integer(name="age", low=0, high=69, bins=(0, 5, 10, 18, 25, 35, 45, 55, 69)),
        Integer(name="education", low=0, high=25, bins=(0, 8, 11, 12, 13, 16, 25)),
        Integer(
            name="income",
            low=0,
            high=30_000,
            bins=(0, 3_000, 6_000, 9_000, 12_000, 16_000, 30_000),
        ),
        Ordinal(name="health", categories=HEALTH),
    )
    yearly: tuple[Column, ...] = (
        Integer(name="year", low=1, high=5),
        Real(
            name="meddol",
            low=0,
            high=2_000,
            bins=(0, 1, 20, 50, 100, 200, 400, 800, 2_000),
        ),
        Integer(name="mdvis", low=0, high=20, bins=(0, 1, 2, 3, 4, 6, 9, 13, 20)),
        Integer(name="totadm", low=0, high=3),
    )
    schema = VisitSchema(
        person="zper",
        people=Schema(columns=own),
        events=Schema(columns=yearly),
        most_events=5,
        time="year",
        gaps=(0, 1, 2, 3),
    )
    return _case(schema, people, rows, ("meddol", "mdvis"))


def diabetes130(folder: Path) -> Case:
    (file,) = need(folder, "diabetes130.csv.gz")
    rows = pd.read_csv(file, keep_default_na=False).sort_values(
        ["patient_nbr", "encounter_id"]
    )
    rows["age"] = rows["age"].str.extract(r"\[(\d+)-")[0].astype(int)
    people = rows.groupby("patient_nbr", as_index=False).first()
    ages = tuple(range(0, 100, 10))
    levels = {
        name: tuple(sorted(map(str, rows[name].unique())))
        for name in ("race", "gender")
    }
    own: tuple[Column, ...] = (
        *(Categorical(name=name, categories=found) for name, found in levels.items()),
        Ordinal(name="age", categories=ages),
    )
    stays: tuple[Column, ...] = (
        Integer(name="encounter_id", low=0, high=450_000_000, bins=8),
        Integer(name="time_in_hospital", low=1, high=14),
        Integer(
            name="num_lab_procedures",
            low=1,
            high=132,
            bins=(1, 10, 30, 40, 50, 60, 75, 132),
        ),
        Integer(
            name="num_medications", low=1, high=81, bins=(1, 6, 11, 16, 21, 31, 81)
        ),
        Integer(name="number_inpatient", low=0, high=21, bins=(0, 1, 2, 4, 21)),
        Categorical(name="insulin", categories=("Down", "No", "Steady", "Up")),
        Categorical(name="A1Cresult", categories=(">7", ">8", "None", "Norm")),
        Categorical(name="change", categories=("Ch", "No")),
        Categorical(name="readmitted", categories=("<30", ">30", "NO")),
    )
    schema = VisitSchema(
        person="patient_nbr",
        people=Schema(columns=own),
        events=Schema(columns=stays),
        most_events=10,
        time="encounter_id",
        gaps=(0, 3_000_000, 10_000_000, 30_000_000, 100_000_000),
    )
    return _case(schema, people, rows, ("time_in_hospital",))


def cdnow(folder: Path) -> Case:
    (file,) = need(folder, "CDNOW_master.txt")
    rows = pd.read_csv(file, sep=r"\s+", dtype={"customer_id": str})
    rows.columns = pd.Index(["customer", "day", "cds", "dollars"])
    rows["day"] = pd.to_datetime(rows["day"], format="%Y%m%d")
    rows = rows.sort_values(["customer", "day"], kind="stable")
    rows["cds"], rows["dollars"] = (
        rows["cds"].clip(upper=20),
        rows["dollars"].clip(upper=150),
    )
    people = rows.groupby("customer", as_index=False).first()
    # all came first in January, February or March 1997
    people["cohort"] = people["day"].dt.month
    bought: tuple[Column, ...] = (
        Date(name="day", low=date(1997, 1, 1), high=date(1998, 6, 30), bins=18),
        Integer(name="cds", low=1, high=20, bins=(1, 2, 3, 4, 5, 7, 10, 20)),
        Real(
            name="dollars",
            low=0,
            high=150,
            bins=(0, 1, 12, 15, 20, 30, 45, 70, 100, 150),
        ),
    )
    schema = VisitSchema(
        person="customer",
        people=Schema(columns=(Categorical(name="cohort", categories=(1, 2, 3)),)),
        events=Schema(columns=bought),
        most_events=12,
        time="day",
        gaps=(0, 1, 8, 15, 31, 61, 121, 241),
    )
    return _case(schema, people, rows, ("dollars", "cds"))


def drawn(order: int, people: int, seed: int) -> Case:
    """Two groups, of whom one has more events; an event's state is that of `order`
    events before plus 0 or 1.
    """
    rng = np.random.default_rng([seed, order])
    group = rng.integers(0, 2, people)
    region = rng.integers(0, 4, people)
    number = 1 + rng.binomial(_LONGEST - 1, np.where(group == 1, 0.6, 0.3))
    states = rng.integers(0, _STATES, (people, _LONGEST))
    for step in range(order, _LONGEST):
        moves = rng.random(people) < np.where(group == 1, 0.8, 0.2)
        lost = rng.random(people) < 0.1
        states[:, step] = np.where(
            lost, states[:, step], (states[:, step - order] + moves) % _STATES
        )
    owner, step = np.nonzero(np.arange(_LONGEST) < number[:, None])
    state = states[owner, step]
    cost = rng.poisson(1 + state + region[owner] / 2).clip(max=12)
    own: tuple[Column, ...] = (
        Categorical(name="group", categories=(0, 1)),
        Categorical(name="region", categories=(0, 1, 2, 3)),
    )
    columns: tuple[Column, ...] = (
        Integer(name="step", low=0, high=_LONGEST - 1),
        Categorical(name="state", categories=tuple(range(_STATES))),
        Integer(name="cost", low=0, high=12),
    )
    schema = VisitSchema(
        person="id",
        people=Schema(columns=own),
        events=Schema(columns=columns),
        most_events=_LONGEST,
        time="step",
        gaps=(0, 1, 2),
    )
    who = pd.DataFrame({"id": np.arange(people), "group": group, "region": region})
    events = pd.DataFrame({"id": owner, "step": step, "state": state, "cost": cost})
    return _case(schema, who, events, ("cost",))


def _case(
    schema: VisitSchema,
    people: pd.DataFrame,
    events: pd.DataFrame,
    totals: tuple[str, ...],
) -> Case:
    assert schema.people is not None
    frames = {
        "people": people[[schema.person, *schema.people.names]],
        "events": events[[schema.person, *schema.events.names]],
    }
    return Case(schema, frames, totals)
