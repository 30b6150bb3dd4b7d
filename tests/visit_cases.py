"""People with many rows for the tests: made up, some without events, some with more than count."""

from datetime import date

import numpy as np
import pandas as pd

from understudy.data.schema import Boolean, Categorical, Date, Integer, Schema
from understudy.data.visits import VisitCodes, VisitSchema
from understudy.data.visits.counts import VisitLayout


def clinic(**more: object) -> VisitSchema:
    """Two columns of people, two of visits, ordered by day."""
    given = {"most_events": 3, "time": "day"} | more
    return VisitSchema(
        person="patient",
        people=Schema(columns=(Categorical(name="sex", categories=("f", "m")), Boolean(name="smoker"))),
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
    days = np.datetime64("2020-01-01") + rng.integers(0, 31, len(owner)).astype("timedelta64[D]")
    who = pd.DataFrame(
        {
            "patient": np.arange(people) + 100,
            "sex": np.where(rng.random(people) < 0.5, "f", "m"),
            "smoker": smoker,
        }
    )
    severity = np.minimum(rng.integers(0, 3, len(owner)) + smoker[owner - 100], 3)
    ward = np.where(rng.random(len(owner)) < 0.1, None, np.where(severity > 1, "b", "a"))
    events = pd.DataFrame({"patient": owner, "day": days, "severity": severity, "ward": ward})
    return who, events


def random_codes(rng: np.random.Generator, layout: VisitLayout, numbers: np.ndarray) -> VisitCodes:
    """Any levels at all, for people with so many events each."""
    starts = np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)
    people = np.stack([rng.integers(0, size, len(numbers)) for size in layout.people], 1)
    events = np.stack([rng.integers(0, size, starts[-1]) for size in layout.events], 1)
    return VisitCodes(people.astype(np.int32), events.astype(np.int32), starts)
