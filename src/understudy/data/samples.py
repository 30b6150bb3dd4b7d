"""Tables to try things on: real ones split between holders, and a small random one.

`rand_health` is the RAND Health Insurance Experiment (1974–1982): families in six
American sites were given insurance plans at random, to learn whether free care makes
people healthier. The file, in the public domain, comes with statsmodels (20,190
person-years; Cameron & Trivedi, "Microeconometrics", 2005).
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Binned, Column
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.data.series import SeriesSchema
from understudy.data.visits import VisitSchema
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.ground.extras import install_line

SITES = {
    1: "Dayton",
    2: "Seattle",
    3: "Fitchburg",
    4: "Franklin County",
    5: "Charleston",
    6: "Georgetown County",
}
DECIMALS = {
    "age": 1,
    "general_health": 1,
    "mental_health": 1,
    "chronic_diseases": 1,
    "income": 0,
    "schooling": 1,
    "drugs": 2,
    "outpatient": 2,
}
# share of all people at each holder; 0.94² ≈ 88 % are at both
HELD = {"clinic": 0.94, "insurer": 0.94}

# Bounds and bins are round numbers that follow from the experiment's design and the
# scales of its questionnaires (indices up to 100, people under 62 at enrolment,
# coinsurance of 0 to 100 %), not from rows.
CLINIC = Schema(
    person="zper",
    note="RAND Health Insurance Experiment, first year of each person: the "
    "clinic's side.",
    columns=(
        Real(name="age", low=0, high=70, bins=14),
        Boolean(name="female"),
        Boolean(name="physical_exam"),
        Ordinal(name="health", categories=("poor", "fair", "good", "excellent")),
        Real(
            name="general_health",
            low=0,
            high=100,
            bins=10,
            nullable=True,
        ),
        Real(
            name="mental_health",
            low=0,
            high=100,
            bins=10,
        ),
        Real(
            name="chronic_diseases",
            low=0,
            high=60,
            bins=(0, 5, 10, 15, 20, 30, 60),
        ),
        Boolean(name="limited", nullable=True),
        Integer(
            name="visits",
            low=0,
            high=100,
            bins=(0, 1, 2, 3, 4, 5, 7, 10, 15, 25, 100),
        ),
    ),
)
INSURER = Schema(
    person="zper",
    note="RAND Health Insurance Experiment, first year of each person: the "
    "insurer's side.",
    columns=(
        Categorical(name="site", categories=tuple(SITES.values())),
        Ordinal(name="coinsurance", categories=(0, 25, 50, 95, 100)),
        Boolean(name="deductible"),
        Real(
            name="income",
            low=0,
            high=30_000,
            bins=(*range(0, 16_000, 2_000), 20_000, 30_000),
        ),
        Real(
            name="schooling",
            low=0,
            high=25,
            bins=(0, 6, 8, 10, 12, 13, 14, 16, 18, 25),
            nullable=True,
        ),
        Integer(
            name="family",
            low=1,
            high=20,
            bins=(1, 2, 3, 4, 5, 6, 7, 8, 10, 20),
        ),
        Integer(
            name="admissions",
            low=0,
            high=10,
            bins=(0, 1, 2, 3, 10),
        ),
        Real(
            name="drugs",
            low=0,
            high=1_000,
            bins=(0, 1, 5, 10, 25, 50, 100, 250, 1_000),
        ),
        Real(
            name="outpatient",
            low=0,
            high=5_000,
            bins=(0, 1, 10, 25, 50, 100, 200, 500, 1_000, 5_000),
        ),
    ),
)

_OUTPATIENT = (0, 0.01, 10, 20, 35, 50, 75, 100, 150, 225, 350, 500, 800, 1_500, 5_000)
# People as they enrolled, and each year that they took part. Amounts are in dollars of
# the time.
YEARS = VisitSchema(
    person="zper",
    most_events=5,
    time="year",
    note="RAND Health Insurance Experiment, people and their years.",
    people=Schema(
        columns=(
            *INSURER.select(["site", "coinsurance", "deductible"]).columns,
            *CLINIC.select(["age", "female", "health"]).columns,
            INSURER.column("income"),
        )
    ),
    events=Schema(
        columns=(
            Integer(name="year", low=1, high=5),
            CLINIC.column("visits"),
            INSURER.column("admissions"),
            Real(
                name="drugs",
                low=0,
                high=1_000,
                bins=(0, 0.01, 5, 10, 20, 40, 80, 160, 320, 1_000),
            ),
            Real(
                name="outpatient",
                low=0,
                high=5_000,
                bins=_OUTPATIENT,
            ),
        )
    ),
)


def rand_years(
    holders: int = 2,
) -> tuple[dict[str, dict[str, pd.DataFrame]], dict[str, VisitSchema]]:
    """The experiment as insurers with people of their own hold it: a table of people,
    and one of their years. All 5,912 people with their 20,190 years, 1 to 5 each. The
    sites are dealt out to the holders in turn.
    """
    whole(holders=holders)
    years = pd.read_csv(_randhie()).sort_values(["zper", "year"])
    everything = _readable(years)
    first = everything[~years["zper"].duplicated()]
    people = first[["zper", *YEARS.people.names]] if YEARS.people is not None else first
    events = everything.assign(year=years["year"])[["zper", *YEARS.events.names]]
    names = [f"insurer-{number + 1}" for number in range(holders)]
    sites = {
        site: names[number % holders] for number, site in enumerate(SITES.values())
    }
    holder = dict(zip(people["zper"], people["site"].map(sites), strict=True))
    tables = {
        name: {
            "people": people[people["zper"].map(holder) == name].reset_index(drop=True),
            "events": events[events["zper"].map(holder) == name].reset_index(drop=True),
        }
        for name in names
    }
    return tables, dict.fromkeys(names, YEARS)


def rand_health(
    *, bins: bool = True
) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """The experiment as a clinic and an insurer hold it: other columns, and not quite
    the same people. One row per person, of the person's first year, in an order of each
    holder's own. About 88 % of the 5,912 people are at both. Without `bins` numbers
    have their bounds and decimals alone, and are rounded to these.
    """
    years = pd.read_csv(_randhie())
    people = (
        years.sort_values(["zper", "year"])
        .drop_duplicates("zper")
        .reset_index(drop=True)
    )
    rows = overlap_people(people, "zper", HELD, seed=1974)
    everything = _readable(people)
    schemas = {"clinic": CLINIC, "insurer": INSURER}
    if not bins:
        schemas = {party: _without_bins(schema) for party, schema in schemas.items()}
        everything = everything.round(DECIMALS)
    tables = {
        party: everything.loc[rows[party], ["zper", *schema.names]].reset_index(
            drop=True
        )
        for party, schema in schemas.items()
    }
    return tables, schemas


def overlap_people(
    frame: pd.DataFrame,
    person: str,
    shares: Mapping[str, float],
    seed: int,
) -> dict[str, NDArray[np.int64]]:
    """Give each party its share of all people, drawn independently, with their rows in
    an order of its own. Two parties with shares a and b have about a·b of all people in
    common.
    """
    rng = np.random.default_rng(seed)
    codes, people = pd.factorize(frame[person])
    rows_by_party = {}
    for party, share in shares.items():
        in_range(0, 1, **{f"the share of {party}": share})
        chosen = np.zeros(len(people), dtype=bool)
        chosen[rng.permutation(len(people))[: round(share * len(people))]] = True
        rows_by_party[party] = rng.permutation(np.flatnonzero(chosen[codes]))
    return rows_by_party


def toy(
    rows: int = 200,
    seed: int = 0,
    person: str | None = "id",
) -> tuple[pd.DataFrame, Schema]:
    """A small random table with every kind of column, all moved by one hidden number,
    and its schema.
    """
    whole(rows=rows)
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=rows)

    def moved(weight: float) -> NDArray[np.float64]:
        """A number in (0, 1) that goes with the hidden one."""
        return 1 / (1 + np.exp(-(weight * hidden + rng.normal(size=rows))))

    schema = Schema(
        person=person,
        note="random",
        columns=(
            Categorical(
                name="colour", categories=("red", "green", "blue"), nullable=True
            ),
            Ordinal(name="grade", categories=(1, 2, 3, 4)),
            Boolean(name="smoker"),
            Boolean(name="treated", nullable=True),
            Integer(name="age", low=0, high=99, bins=10),
            Integer(
                name="visits",
                low=0,
                high=9,
                nullable=True,
            ),
            Real(name="income", low=0, high=1_000, bins=8),
            Date(
                name="joined",
                low=date(2020, 1, 1),
                high=date(2023, 12, 31),
                bins=8,
                nullable=True,
            ),
        ),
    )
    days = (moved(1.5) * 1461).astype("timedelta64[D]")
    colours = np.array(["red", "green", "blue"], dtype=object)
    colour = colours[(moved(2.0) * 3).astype(int)]
    frame = pd.DataFrame(
        {
            "colour": pd.Series(colour, dtype=object),
            "grade": (moved(-2.0) * 4).astype(np.int64) + 1,
            "smoker": moved(2.0) > 0.6,
            "treated": pd.array(moved(1.0) > 0.3, dtype="boolean"),
            "age": (moved(3.0) * 100).astype(np.int64),
            "visits": pd.array((moved(3.0) * 10).astype(np.int64), dtype="Int64"),
            "income": moved(-3.0) * 1_000,
            "joined": (np.datetime64("2020-01-01") + days).astype("datetime64[ns]"),
        }
    )
    for column in schema.columns:
        if column.nullable:
            frame[column.name] = frame[column.name].mask(rng.random(rows) < 0.1)
    if person is not None:
        frame.insert(0, person, rng.permutation(rows) + 1)
    return frame, schema


def sines(
    series: int = 50_000,
    *,
    length: int = 30,
    channels: int = 5,
    seed: int = 0,
) -> tuple[NDArray[np.float32], SeriesSchema]:
    """Sine waves (series, length, channels) in [0, 1], each of a frequency and a phase
    of its own, and their schema. Yoon, Jarrett, van der Schaar, "Time-series Generative
    Adversarial Networks" (NeurIPS 2019), the recipe of its `sine_data_generation`:
    (sin(f·t + φ) + 1) / 2 at t = 0, 1, …, with f and φ uniform in [0, 0.1]; 50,000
    series of 30 steps and 5 channels are the Sine dataset of FedSTDG (Jiang,
    dissertation, TUM 2024, Table 5.2).
    """
    whole(series=series, channels=channels)
    rng = np.random.default_rng(seed)
    frequency, phase = rng.uniform(0, 0.1, (2, series, 1, channels))
    waves = (np.sin(frequency * np.arange(length)[:, None] + phase) + 1) / 2
    bounds = tuple(Real(name=f"wave_{j}", low=0, high=1) for j in range(channels))
    return waves.astype(np.float32), SeriesSchema(
        channels=bounds,
        length=length,
        series="series",
        time="time",
    )


def _readable(people: pd.DataFrame) -> pd.DataFrame:
    # none of them: excellent
    health = people["hlthp"] * 1 + people["hlthf"] * 2 + people["hlthg"] * 3
    plain = {
        "zper": "zper",
        "age": "xage",
        "general_health": "ghindx",
        "mental_health": "mhi",
        "chronic_diseases": "disea",
        "visits": "mdvis",
        "coinsurance": "coins",
        "income": "income",
        "schooling": "educdec",
        "family": "num",
        "admissions": "totadm",
        "drugs": "drugdol",
        "outpatient": "outpdol",
    }
    truths = {
        "female": "female",
        "physical_exam": "tookphys",
        "deductible": "idp",
    }
    # A fraction stands where an answer was missing and had been filled in from other
    # people.
    limited = people["physlm"].where(people["physlm"].isin((0, 1))).astype("boolean")
    named = {
        "health": health.map(
            {
                1: "poor",
                2: "fair",
                3: "good",
                0: "excellent",
            }
        ),
        "site": people["site"].map(SITES),
    }
    numbers = people[[*plain.values()]].set_axis([*plain], axis=1)
    flags = people[[*truths.values()]] == 1
    return numbers.assign(**named, limited=limited).join(
        flags.set_axis([*truths], axis=1)
    )


def _without_bins(schema: Schema) -> Schema:
    """Numbers with bounds alone, and reals with so many decimals as a form would
    have.
    """
    columns: list[Column] = []
    for column in schema.columns:
        if isinstance(column, Real):
            column = replace(column, decimals=DECIMALS[column.name])
        columns.append(
            replace(column, bins=None) if isinstance(column, Binned) else column
        )
    return replace(schema, columns=tuple(columns))


def _randhie() -> Path:
    package = find_spec("statsmodels")
    path = (
        Path(package.origin).parent / "datasets/randhie/src/randhie.csv"
        if package and package.origin
        else None
    )
    if path is None or not path.is_file():
        raise ConfigError(
            "the RAND Health Insurance Experiment comes with statsmodels: "
            f"{install_line('demo')}."
        )
    return path
