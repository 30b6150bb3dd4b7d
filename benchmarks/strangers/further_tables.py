"""Twenty further tables of known laws, from 2,000 to 40,000 people and from 5 to 55
columns.

Each has columns that a stranger's table has and that are easily drawn wrong: one-hot
groups, few numbers with one decimal, probabilities, codes, years, constants, ids,
nearly constant columns, spellings, scores, ages, hours, days, counts, rare gaps, costs,
strong correlations, columns that determine others, digits as text, times.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from law import Law

Columns = dict[str, object]


def forest(law: Law) -> Columns:
    """Ten numbers, four areas and forty soils as columns of 0 and 1, six kinds of
    cover.
    """
    height = np.rint(1_860 + 2_000 * law.rank()).astype(int)
    return {
        "elevation": height,
        "aspect": law.whole(0, 360),
        "slope": law.whole(0, 66, 1.8),
        "to_water": np.rint(law.skewed(220, 0.8, 0.04)).astype(int),
        "above_water": np.rint(law.skewed(40, 1.0, 0.1)).astype(int) - 20,
        "to_road": np.rint(law.skewed(1_900, 0.7)).astype(int),
        "shade_9": law.whole(0, 254, 0.4),
        "shade_noon": law.whole(0, 254, 0.3),
        "shade_15": law.whole(0, 254, 0.9),
        "to_fire": np.rint(law.skewed(1_700, 0.7)).astype(int),
        **law.one_hot("wilderness_", [0.45, 0.05, 0.44, 0.06]),
        **law.one_hot("soil_type_", np.arange(1, 41) ** -1.0),
        "cover": 1
        + np.digitize(
            height + 300 * law.rng.normal(size=law.people),
            [2_300, 2_600, 2_900, 3_200, 3_500],
        ),
    }


def coded(law: Law) -> Columns:
    """What `pandas.get_dummies` makes of three texts, beside numbers."""
    jobs = law.word(["clerk", "driver", "nurse", "teacher", "cook"], 0.7)
    frame = pd.get_dummies(pd.DataFrame({"job": jobs}), dtype=int)
    return {
        "age": law.whole(18, 90, 1.3),
        **{str(name): frame[name] for name in frame},
        **law.one_hot("region_", np.arange(1, 9) ** -0.5),
        **law.one_hot("month", np.ones(12)),
        "balance": np.rint(law.skewed(900, 1.1, 0.08)).astype(int),
        "defaulted": law.outcome(0, 1),
    }


MARKET = {
    -3.4: 0.026,
    -3.0: 0.0042,
    -2.9: 0.0404,
    -1.8: 0.223,
    -1.7: 0.0188,
    -1.1: 0.0154,
    -0.2: 0.0002,
    -0.1: 0.0894,
    1.1: 0.1885,
    1.4: 0.3941,
}


def market(law: Law) -> Columns:
    """Few numbers with one decimal, the largest for two of five people; an index from
    92 to 95.
    """
    prices = {92.201 + 0.1 * k: 1 / (1 + k % 7) for k in range(26)}
    return {
        "variation": law.atoms(MARKET),
        "price_index": np.round(law.atoms(prices), 3),
        "confidence": -law.some_atoms(26, 26, 51),
        "employed": law.atoms(
            {4963.6: 0.02, 5008.7: 0.01, 5099.1: 0.2, 5191.0: 0.19, 5228.1: 0.58}
        ),
        "campaign": 1 + np.floor(law.skewed(1, 0.9)).astype(int),
        "age": law.whole(17, 98, 1.6),
        "bought": law.outcome("no", "yes"),
    }


def steps(law: Law) -> Columns:
    """Twelve columns of 3 to 14 numbers with one decimal, negative and positive."""
    columns = {
        f"step_{k}": law.some_atoms(3 + k, -6.0 + k, 3.0 + 2 * k) for k in range(12)
    }
    return {**columns, "left": law.outcome("no", "yes")}


def chances(law: Law) -> Columns:
    """Probabilities: even, near both ends, near 0, with many exact 0 and 1, in
    percent.
    """
    swing = law.rank()
    inflated = np.clip(1.5 * law.rank() - 0.25, 0, 1)
    return {
        "survives": np.round(law.rank(), 4),
        "swings": np.round(
            np.where(swing < 0.5, 2 * swing**2, 1 - 2 * (1 - swing) ** 2), 3
        ),
        "rare": np.round(law.rank() ** 8, 5),
        "certain": np.round(1 - law.rank() ** 8, 6),
        "inflated": np.round(inflated, 2),
        "percent": np.round(100 * law.rank() ** 2, 1),
        "dies": law.outcome(0, 1),
    }


def billing(law: Law) -> Columns:
    """Codes: of diagnoses, with leading zeros, with gaps, negative for unknown, of
    three digits.
    """
    diagnoses = [
        f"{letter}{k:02d}.{k % 10}" for letter in "EIJKM" for k in range(0, 60, 5)
    ]
    return {
        "diagnosis": law.word(diagnoses, 0.9),
        "department": law.atoms(
            dict(zip([100, 110, 205, 300, 420, 999], [5, 4, 3, 2, 1, 1], strict=True))
        ).astype(int),
        "status": law.atoms({-9: 0.03, -1: 0.1, 0: 0.5, 1: 0.3, 7: 0.07}).astype(int),
        "postcode": law.word([f"{k:05d}" for k in range(1_067, 1_107)], 0.5),
        "tariff": law.whole(1, 99, 2.0),
        "icd_chapter": law.whole(1, 22),
        "drg": np.array([470, 871, 291, 392, 690, 194])[law.whole(0, 5, 1.4)],
        "gender": law.atoms({1: 0.49, 2: 0.5, 9: 0.01}).astype(int),
        "appealed": law.outcome("N", "Y"),
    }


def cohorts(law: Law) -> Columns:
    """Years: of birth, of a visit, one constant, few, of a century ago."""
    return {
        "born": law.whole(1925, 2005, 0.8),
        "diagnosed": law.whole(1998, 2023, 0.6),
        "survey_year": np.full(law.people, 2013),
        "wave": law.atoms({2010: 0.2, 2012: 0.3, 2014: 0.5}).astype(int),
        "built": law.whole(1880, 2015, 0.7),
        "retired": law.missing(law.whole(1990, 2023).astype(float), 0.4),
        "moved": law.outcome("no", "yes"),
    }


def constants(law: Law) -> Columns:
    """Columns of one value and of nearly one value, among two that vary."""
    nearly = law.rng.random((4, law.people))
    return {
        "version": np.full(law.people, 3),
        "rate": np.full(law.people, 0.19),
        "offset": np.full(law.people, -40),
        "zero": np.zeros(law.people, dtype=int),
        "country": np.full(law.people, "NL", dtype=object),
        "million": np.full(law.people, 1_000_000),
        "nearly_zero": np.where(nearly[0] < 0.998, 0, 1),
        "nearly_one": np.where(nearly[1] < 0.99, 1.0, 1.5),
        "nearly_text": np.where(nearly[2] < 0.995, "active", "closed"),
        "flat": np.where(nearly[3] < 0.97, 100, law.whole(1, 400)),
        "amount": np.round(law.skewed(50, 0.7), 2),
        "accepted": law.outcome("no", "yes"),
    }


def registry(law: Law) -> Columns:
    """Ids of four kinds, each of one person alone, beside columns of people."""
    return {
        "id": np.arange(1, law.people + 1),
        "account": 4_000_000_000 + law.rng.permutation(law.people) * 7,
        "token": [
            f"{number:016x}" for number in law.rng.integers(0, 1 << 62, law.people)
        ],
        "case": [f"C-{number:06d}" for number in law.rng.permutation(law.people)],
        "age": law.whole(0, 99),
        "region": law.word(["north", "south", "east", "west"], 0.4),
        "income": np.rint(law.skewed(28_000, 0.6)).astype(int),
        "insured": law.outcome("no", "yes"),
    }


def sparse(law: Law) -> Columns:
    """Thirty counts, of which nearly all are 0 for nearly everybody."""
    columns: Columns = {}
    for k, zeros in enumerate(np.linspace(0.9, 0.999, 30)):
        columns[f"count_{k:02d}"] = np.ceil(law.skewed(1.2, 0.8, float(zeros))).astype(
            int
        )
    return columns | {"age": law.whole(18, 85), "churned": law.outcome("no", "yes")}


def spellings(law: Law) -> Columns:
    """One fact in many spellings, as several people type it."""
    yes = ["yes", "Yes", "TRUE", "1", "y"]
    no = ["no", "No", "FALSE", "0", "n"]
    smokes = law.outcome(0, 1).astype(int)
    style = law.rng.integers(0, 5, law.people)
    return {
        "smokes": np.array([no, yes], dtype=object)[smokes, style],
        "sex": law.word(["Male", "Female", "male", "female", "M", "F", "f"], 0.6),
        "city": law.word(
            ["Berlin", "berlin", "BERLIN ", "Hamburg", "hamburg", "Köln", "Koeln"], 0.5
        ),
        "size": law.word(["S", "M", "L", "XL", "small", "medium", "large"], 0.6),
        "amount": law.word(["10", "20", "30.0", "n/a", "40,5", "none"], 0.8),
        "age": law.whole(16, 95),
        "ill": law.outcome("No", "Yes"),
    }


def school(law: Law) -> Columns:
    """Scores from 0 to 100: whole, with halves, with many at the top; grades; a pass at
    50.
    """
    mathematics = law.whole(0, 100, 0.7)
    return {
        "mathematics": mathematics,
        "reading": np.minimum(100, law.whole(30, 115)),
        "science": np.round(200 * law.rank()) / 2,
        "index": np.round(100 * law.rank() ** 0.3, 2),
        "grade": np.array(list("FEDCBA"), dtype=object)[
            np.digitize(mathematics, [30, 45, 60, 75, 90])
        ],
        "absent": law.whole(0, 30, 3.0),
        "passed": np.where(mathematics >= 50, "yes", "no"),
    }


def health(law: Law) -> Columns:
    """Ages 18 to 102, hours of sleep 1 to 24, days 0 to 30 with heaps at the ends, a
    weight, a general health.
    """
    days = law.rank()
    heaped = np.where(
        days < 0.62, 0, np.where(days > 0.92, 30, np.rint(30 * (days - 0.62) / 0.3))
    )
    other = law.rank()
    return {
        "age": np.minimum(102, 18 + np.floor(law.skewed(30, 0.6))).astype(int),
        "sleep": np.clip(
            np.rint(7 + law.rng.standard_t(3, law.people) + law.hidden / 2), 1, 24
        ).astype(int),
        "bad_days": heaped.astype(int),
        "sad_days": np.where(
            other < 0.66, 0, np.rint(30 * (other - 0.66) / 0.34)
        ).astype(int),
        "weight": np.rint(45 + law.skewed(30, 0.5)).astype(int),
        "bmi": np.round(np.clip(18 + law.skewed(8, 0.5), 12, 95), 2),
        "general": law.word(["Very good", "Good", "Excellent", "Fair", "Poor"], 0.6),
        "race": law.word(
            ["White", "Hispanic", "Black", "Other", "Asian", "Native"], 1.4
        ),
        "smokes": law.outcome("No", "Yes"),
        "heart": law.outcome("No", "Yes"),
    }


def counts(law: Law) -> Columns:
    """Counts: 0 to 2, 0 to 5, 0 to 20, nearly always 0, of a Poisson law."""
    return {
        "cars": law.whole(0, 2),
        "children": law.whole(0, 5, 1.8),
        "visits": law.whole(0, 20, 3.0),
        "falls": law.atoms({0: 0.93, 1: 0.05, 2: 0.02}).astype(int),
        "calls": law.rng.poisson(np.exp(0.7 + 0.5 * law.hidden)),
        "rooms": law.whole(1, 9, 0.8),
        "owns": law.outcome("no", "yes"),
    }


def ward(law: Law) -> Columns:
    """Thirty columns of a hospital, of which half have gaps for 2 % of people and a few
    for more.
    """
    columns: Columns = {
        "age": np.round(18 + 80 * law.rank(), 3),
        "sex": law.outcome("female", "male"),
        "stay": law.whole(3, 343, 4.0),
    }
    for k in range(12):
        columns[f"lab_{k}"] = law.missing(
            np.round(law.skewed(5.0 + 3 * k, 0.4), 1), 0.02
        )
    for k in range(6):
        columns[f"score_{k}"] = law.missing(
            law.whole(0, 4 + 2 * k).astype(float), 0.019 + 0.002 * k
        )
    for k in range(4):
        columns[f"rare_{k}"] = law.missing(
            np.round(law.skewed(1.1, 0.3), 3), 0.3 + 0.15 * k
        )
    for k in range(3):
        columns[f"group_{k}"] = law.missing(
            law.word([f"level {j}" for j in range(3 + k)]), 0.023
        )
    return columns | {
        "pressure": np.rint(60 + 60 * law.rank()),
        "died": law.outcome(0, 1),
    }


def claims(law: Law) -> Columns:
    """Costs: two of three people none, and a tail that falls by a power; with cents and
    without.
    """
    return {
        "cost": np.round(law.pareto(120.0, 2.1, 0.65), 2),
        "paid": np.rint(law.pareto(40.0, 1.7, 0.3)).astype(int),
        "drugs": np.round(law.pareto(9.5, 2.8, 0.45), 2),
        "visits": law.whole(0, 14, 3.0),
        "age": law.whole(0, 99),
        "plan": law.word(["basic", "plus", "family", "none"], 0.5),
        "urban": law.outcome("rural", "urban"),
    }


def pairs(law: Law) -> Columns:
    """Correlations of .71, .96, -.81 and .41 between neighbours, and columns that hang
    on none.
    """
    first = law.rng.normal(size=law.people) + law.hidden
    second = law.correlated(first, 0.96)
    third = law.correlated(first, 0.71)
    return {
        "height": np.round(170 + 9 * first / first.std(), 1),
        "reach": np.round(172 + 10 * second, 1),
        "weight": np.round(70 + 12 * third, 1),
        "seconds": np.rint(600 + 90 * law.correlated(third, -0.81)).astype(int),
        "income": np.rint(np.exp(10 + 0.5 * law.correlated(third, 0.41))).astype(int),
        "noise": np.round(law.rng.normal(size=law.people), 3),
        "shift": law.rng.integers(1, 4, law.people),
        "wins": np.where(second + law.rng.normal(size=law.people) > 0, "yes", "no"),
    }


def determined(law: Law) -> Columns:
    """Columns that others determine: a group of ages, a mass index, a sum, a code of a
    name, a copy in other units.
    """
    age = law.whole(18, 90)
    height = np.round(150 + 45 * law.rank(), 0)
    weight = np.round(45 + 70 * law.rank(), 1)
    first = law.whole(0, 20, 2.0)
    second = law.whole(0, 20, 2.0)
    towns = np.array(["Bonn", "Ulm", "Kiel", "Jena", "Trier"], dtype=object)
    town = law.whole(0, 4, 1.5)
    return {
        "age": age,
        "age_group": np.array(["18-29", "30-44", "45-64", "65+"], dtype=object)[
            np.digitize(age, [30, 45, 65])
        ],
        "height": height,
        "weight": weight,
        "bmi": np.round(weight / (height / 100) ** 2, 1),
        "pounds": np.round(weight * 2.20462, 1),
        "visits_spring": first,
        "visits_autumn": second,
        "visits": first + second,
        "town": towns[town],
        "town_code": np.array([53111, 89073, 24103, 7743, 54290])[town],
        "senior": np.where(age >= 65, "yes", "no"),
        "treated": law.outcome("no", "yes"),
    }


def answers(law: Law) -> Columns:
    """Answers of a form as text: '1' and '2', '1' to '5', '01' to '12', '0' and '1'."""
    return {
        "sex": law.outcome("1", "2"),
        "satisfied": law.whole(1, 5, 0.6).astype(str).astype(object),
        "month": law.word([f"{k:02d}" for k in range(1, 13)], 0.2),
        "member": law.outcome("0", "1"),
        "years": law.whole(0, 45, 2.0),
        "again": law.outcome("1", "2"),
    }


def moments(law: Law) -> Columns:
    """Times: of a day, of two clocks, with seconds, days in four spellings."""
    day = pd.Timestamp("2016-01-01") + pd.to_timedelta(
        np.floor(2_000 * law.rank()), unit="D"
    )
    minute = pd.to_timedelta(np.floor(60 * (6 + 15 * law.rank())), unit="min")
    second = pd.Timestamp("2022-03-01") + pd.to_timedelta(
        np.floor(5_000_000 * law.rank()), unit="s"
    )
    clock = pd.Timestamp("2000-01-01") + minute
    return {
        "day": day.strftime("%Y-%m-%d"),
        "short_day": day.strftime("%d.%m.%y"),
        "american_day": day.strftime("%m/%d/%Y"),
        "clock": clock.strftime("%H:%M"),
        "half_clock": clock.strftime("%I:%M %p"),
        "moment": second.strftime("%Y-%m-%dT%H:%M:%S"),
        "gap_day": law.missing(
            np.asarray(day.strftime("%Y-%m-%d"), dtype=object), 0.05
        ),
        "hours": np.round(law.skewed(3, 0.5), 1),
        "late": law.outcome("no", "yes"),
    }


FURTHER: dict[str, tuple[Callable[[Law], Columns], int, str]] = {
    "forest": (forest, 40_000, "cover"),
    "coded": (coded, 8_000, "defaulted"),
    "market": (market, 40_000, "bought"),
    "steps": (steps, 6_000, "left"),
    "chances": (chances, 9_000, "dies"),
    "billing": (billing, 15_000, "appealed"),
    "cohorts": (cohorts, 5_000, "moved"),
    "constants": (constants, 3_000, "accepted"),
    "registry": (registry, 10_000, "insured"),
    "sparse": (sparse, 20_000, "churned"),
    "spellings": (spellings, 4_000, "ill"),
    "school": (school, 7_000, "passed"),
    "health": (health, 30_000, "heart"),
    "counts": (counts, 12_000, "owns"),
    "ward": (ward, 9_105, "died"),
    "claims": (claims, 20_000, "urban"),
    "pairs": (pairs, 10_000, "wins"),
    "determined": (determined, 8_000, "treated"),
    "answers": (answers, 2_000, "again"),
    "moments": (moments, 6_000, "late"),
}
# marked before the first run, as those of `tables.py`: the half by which rules may be
# chosen
MAY_CHOOSE = (
    "forest",
    "market",
    "chances",
    "cohorts",
    "registry",
    "spellings",
    "health",
    "ward",
    "pairs",
    "answers",
)
# read as text
TEXTS = {
    "answers": ("sex", "satisfied", "month", "member", "again"),
    "billing": ("postcode",),
}
