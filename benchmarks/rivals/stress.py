"""Tables of known laws, each made to be hard for somebody.

    parity3    three fair bits of which any two are independent: y is whether a and b
               differ; four more bits
    parity4    four fair bits of which any three are independent: y is the parity of a,
               b and c; four more bits
    rule9      y is whether six or more of nine columns are at or above a threshold of
               their own; three more columns
    clusters   60 points in eight columns of six levels; a person has a point's level in
               each with probability .95
    chain      a (24 levels) gives b, b gives c, c gives d, d gives e; y leans on e and
               on a free column
    levels60   eight columns of 60 levels, as skewed as names are, in an order that one
               of five hidden kinds gives
    wide200    200 bits, of which ten sway y; of the others each copies the one before
               it at times
    ties       numbers with spikes: many zeros, round sums, one usual week, prices that
               end in .99
    rare       one in a hundred has y; six columns lean on it
    missing    incomes and debts that are left out the more often the higher they are; y
               leans on the true ones

`load(name, seed=…, people=…)` gives `people` rows to learn from and 5,000 to test on, a
public schema, the column to predict, and where it can be said, which rows are
impossible (`impossible`) and the exact law of a row (`law`: each possible row with its
probability `p`). A law is the same for every seed; the seed gives the rows alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.public_tables import Public
from understudy.data.schema import (
    Boolean,
    Categorical,
    Column,
    Integer,
    Ordinal,
    Real,
    Schema,
)

PEOPLE = 20_000
TEST = 5_000
Broken = Callable[[pd.DataFrame], NDArray[np.bool_]]
Rng = np.random.Generator
# what is fixed in a law is drawn from it once, in the order of this file
LAW = np.random.default_rng(20_261_117)

# rule9: how often each level comes, in each of two hidden kinds of people; then each
# column's threshold
RULE_ODDS = LAW.dirichlet(np.full(5, 2.0), size=(2, 12))
RULE_AT = LAW.integers(1, 4, size=9)
RULE_LEAST = 6
POINTS = LAW.integers(0, 6, size=(60, 8))
POINT_CLASS = LAW.permutation(60) % 2
STAY = 0.95
CHAIN_LEVELS = (24, 12, 8, 5, 3)
CHAIN = [LAW.permutation(np.arange(a) % b) for a, b in pairwise(CHAIN_LEVELS)]
CHAIN_FIRST = LAW.dirichlet(np.full(24, 4.0))
CHAIN_FREE = np.array([0.5, 0.3, 0.2])
CHAIN_ODDS = LAW.uniform(0.05, 0.95, size=(3, 3))  # of y, by e and by the free column
KINDS60 = np.array([LAW.permutation(60) for _ in range(5 * 8)]).reshape(5, 8, 60)
ZIPF60 = 1 / np.arange(1, 61)
KIND_ODDS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])  # of y
SWAYS = np.sort(LAW.choice(200, 10, replace=False))
SWAY = LAW.choice([-1.0, 1.0], 10) * LAW.uniform(0.5, 1.5, 10)
SHARE200 = LAW.uniform(0.1, 0.9, 200)
RARE = 0.01
RARE_ODDS = LAW.dirichlet(np.full(4, 1.0), size=(2, 6))


@dataclass(frozen=True, eq=False)
class Stress(Public):
    """A table of a known law. `impossible` says of each row whether it cannot be; None
    where every row can.
    """

    impossible: Broken | None = None
    law: pd.DataFrame | None = None


@lru_cache(maxsize=4)
def load(
    name: str, folder: Path | None = None, seed: int = 0, people: int = PEOPLE
) -> Stress:
    """The table of that name. `folder` is not read: it stands here so that all tables
    are opened alike.
    """
    draw, columns, impossible, law = TABLES[name]
    rng = np.random.default_rng([seed, list(TABLES).index(name), 39])
    frame = draw(rng, people + TEST)
    train, test = (
        part.reset_index(drop=True)
        for part in (frame.iloc[:people], frame.iloc[people:])
    )
    return Stress(
        train,
        test,
        Schema(columns=tuple(columns)),
        "y",
        impossible,
        law() if law else None,
    )


def picked(rng: Rng, odds: NDArray[np.float64]) -> NDArray[np.int64]:
    """One level for each row of odds (n, levels)."""
    heap = odds.cumsum(1)
    return (rng.random((len(odds), 1)) * heap[:, -1:] >= heap).sum(1)


def parity(
    of: int,
) -> tuple[
    Callable[[Rng, int], pd.DataFrame], list[Column], Broken, Callable[[], pd.DataFrame]
]:
    """The law of `of` bits whose sum is even, the last of them y, and of four bits that
    are free.

    They stand among each other: a method that takes the first columns where nothing
    tells them apart gains nothing.
    """
    names = ["q", "a", "r", "s", "b", "t", *"cd"[: of - 3]]
    summed = [*"abcd"[: of - 1]]

    def table(bits: NDArray[np.bool_]) -> pd.DataFrame:
        frame = pd.DataFrame(bits, columns=names)
        return frame.assign(
            y=np.bitwise_xor.reduce(frame[summed].to_numpy(bool), axis=1)
        )

    def impossible(frame: pd.DataFrame) -> NDArray[np.bool_]:
        odd = np.bitwise_xor.reduce(frame[summed].to_numpy(bool), axis=1)
        return np.asarray(odd != frame["y"].to_numpy(bool))

    def law() -> pd.DataFrame:
        return table(np.array(list(product([False, True], repeat=len(names))))).assign(
            p=0.5 ** len(names)
        )

    columns: list[Column] = [Boolean(name=name) for name in [*names, "y"]]
    return (
        lambda rng, n: table(rng.random((n, len(names))) < 0.5),
        columns,
        impossible,
        law,
    )


def rule9(rng: Rng, n: int) -> pd.DataFrame:
    kind = (rng.random(n) < 0.5).astype(int)
    levels = np.stack([picked(rng, RULE_ODDS[kind, j]) for j in range(12)], 1)
    return pd.DataFrame(levels, columns=RULE_NAMES).assign(y=ruled(levels[:, :9]))


def ruled(levels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the rule holds: as many of the nine thresholds are reached as it asks
    for.
    """
    return np.asarray((levels >= RULE_AT).sum(1) >= RULE_LEAST)


RULE_NAMES = [f"x{j}" for j in range(12)]


def clusters(rng: Rng, n: int) -> pd.DataFrame:
    point = rng.integers(0, len(POINTS), n)
    levels = np.where(
        rng.random((n, 8)) < STAY, POINTS[point], rng.integers(0, 6, (n, 8))
    )
    return pd.DataFrame(levels, columns=[f"x{j}" for j in range(8)]).assign(
        y=POINT_CLASS[point] == 1
    )


def chained(first: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """All columns of the chain, of which each gives the next."""
    found = {"a": first}
    for name, before, step in zip("bcde", "abcd", CHAIN, strict=True):
        found[name] = step[found[before]]
    return found


def chain(rng: Rng, n: int) -> pd.DataFrame:
    held = chained(rng.choice(24, n, p=CHAIN_FIRST))
    free = rng.choice(3, n, p=CHAIN_FREE)
    return pd.DataFrame(held | {"free": free}).assign(
        y=rng.random(n) < CHAIN_ODDS[held["e"], free]
    )


def chain_broken(frame: pd.DataFrame) -> NDArray[np.bool_]:
    steps = zip("bcde", "abcd", CHAIN, strict=True)
    return np.any(
        [
            frame[name].to_numpy() != step[frame[before].to_numpy(int)]
            for name, before, step in steps
        ],
        axis=0,
    )


def chain_law() -> pd.DataFrame:
    first, free, label = (
        part.ravel() for part in np.meshgrid(np.arange(24), np.arange(3), [False, True])
    )
    held = chained(first)
    odds = CHAIN_ODDS[held["e"], free]
    p = CHAIN_FIRST[first] * CHAIN_FREE[free] * np.where(label, odds, 1 - odds)
    return pd.DataFrame(held | {"free": free, "y": label, "p": p})


def levels60(rng: Rng, n: int) -> pd.DataFrame:
    kind = rng.integers(0, 5, n)
    rank = picked(rng, np.broadcast_to(ZIPF60, (n * 8, 60))).reshape(n, 8)
    levels = KINDS60[kind[:, None], np.arange(8), rank]
    return pd.DataFrame(levels, columns=[f"x{j}" for j in range(8)]).assign(
        y=rng.random(n) < KIND_ODDS[kind]
    )


def wide200(rng: Rng, n: int) -> pd.DataFrame:
    bits = rng.random((n, 200)) < SHARE200
    copied = rng.random((n, 200)) < 0.3
    for j in range(1, 200):  # columns, not people
        if j not in SWAYS:
            bits[:, j] = np.where(copied[:, j], bits[:, j - 1], bits[:, j])
    score = (bits[:, SWAYS] - SHARE200[SWAYS]) @ SWAY
    return pd.DataFrame(bits, columns=[f"x{j}" for j in range(200)]).assign(
        y=rng.random(n) < 1 / (1 + np.exp(-score))
    )


def ties(rng: Rng, n: int) -> pd.DataFrame:
    """Ranks share one hidden number; y leans on it."""
    hidden = rng.normal(size=n)
    own = 0.7 * hidden[:, None] + np.sqrt(1 - 0.49) * rng.normal(size=(n, 4))
    loss = np.where(own[:, 0] < 0.5, 0, np.rint(400 * np.exp(own[:, 0])))
    gift = np.rint(np.exp(4 + own[:, 1]) / 50) * 50
    week = np.where(
        rng.random(n) < 0.6, 40, np.clip(np.rint(38 + 10 * own[:, 2]), 1, 98)
    )
    price = np.round(
        np.minimum(np.floor(np.exp(2.5 + 0.8 * own[:, 3])), 998)
        + np.where(rng.random(n) < 0.8, 0.99, 0.5),
        2,
    )
    return pd.DataFrame(
        {
            "loss": np.minimum(loss, 50_000).astype(np.int64),
            "gift": np.minimum(gift, 50_000).astype(np.int64),
            "week": week.astype(np.int64),
            "price": price,
            "y": rng.random(n) < 1 / (1 + np.exp(-2 * hidden)),
        }
    )


def ties_broken(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """A small loss, a gift that is no multiple of 50, or a price that ends in neither
    .50 nor .99.
    """
    loss, gift, price = (
        frame[name].to_numpy(float) for name in ("loss", "gift", "price")
    )
    cents = np.rint(price * 100) % 100
    return np.asarray(
        ((loss > 0) & (loss < 659)) | (gift % 50 != 0) | ((cents != 99) & (cents != 50))
    )


def rare(rng: Rng, n: int) -> pd.DataFrame:
    label = rng.random(n) < RARE
    levels = {f"x{j}": picked(rng, RARE_ODDS[label.astype(int), j]) for j in range(6)}
    return pd.DataFrame(levels | {"y": label})


def rare_law() -> pd.DataFrame:
    levels = np.array(list(product(range(4), repeat=6)))
    parts = [
        pd.DataFrame(levels, columns=[f"x{j}" for j in range(6)]).assign(
            y=bool(label),
            p=(RARE if label else 1 - RARE)
            * RARE_ODDS[label][np.arange(6), levels].prod(1),
        )
        for label in (0, 1)
    ]
    return pd.concat(parts, ignore_index=True)


def missing(rng: Rng, n: int) -> pd.DataFrame:
    """Income is left out with the odds 1 / (1 + exp(3 − 1.5 z)) of its rank z, debt
    likewise; age never is.
    """
    age = rng.integers(18, 80, n)
    z = 0.5 * (age - 49) / 18 + np.sqrt(0.75) * rng.normal(size=n)
    income = np.minimum(np.rint(20_000 * np.exp(0.6 * z)), 400_000)
    w = 0.6 * z + 0.8 * rng.normal(size=n)
    debt = np.minimum(np.rint(5_000 * np.exp(w)), 400_000)
    region = picked(
        rng,
        np.stack([np.ones(n), np.exp(0.5 * z), np.exp(-0.5 * z), np.full(n, 0.5)], 1),
    )
    label = rng.random(n) < 1 / (1 + np.exp(-1.5 * (w - z)))
    for values, rank in ((income, z), (debt, w)):
        values[rng.random(n) < 1 / (1 + np.exp(3 - 1.5 * rank))] = np.nan
    held = {
        "age": age,
        "income": income,
        "debt": debt,
        "region": np.array(list("nesw"), dtype=object)[region],
    }
    return pd.DataFrame(held | {"y": label})


def ordinal(name: str, levels: int) -> Column:
    return Ordinal(name=name, categories=tuple(range(levels)))


Y = Boolean(name="y")
TABLES: dict[
    str, tuple[Any, list[Column], Broken | None, Callable[[], pd.DataFrame] | None]
] = {
    "parity3": parity(3),
    "parity4": parity(4),
    "rule9": (
        rule9,
        [*(ordinal(name, 5) for name in RULE_NAMES), Y],
        lambda frame: (
            ruled(frame[RULE_NAMES[:9]].to_numpy()) != frame["y"].to_numpy(bool)
        ),
        None,
    ),
    "clusters": (clusters, [*(ordinal(f"x{j}", 6) for j in range(8)), Y], None, None),
    "chain": (
        chain,
        [
            *(
                ordinal(name, size)
                for name, size in zip("abcde", CHAIN_LEVELS, strict=True)
            ),
            ordinal("free", 3),
            Y,
        ],
        chain_broken,
        chain_law,
    ),
    "levels60": (
        levels60,
        [
            *(Categorical(name=f"x{j}", categories=tuple(range(60))) for j in range(8)),
            Y,
        ],
        None,
        None,
    ),
    "wide200": (wide200, [*(Boolean(name=f"x{j}") for j in range(200)), Y], None, None),
    "ties": (
        ties,
        [
            Integer(name="loss", low=0, high=50_000),
            Integer(name="gift", low=0, high=50_000),
            Integer(name="week", low=0, high=100),
            Real(name="price", low=0, high=1_000),
            Y,
        ],
        ties_broken,
        None,
    ),
    "rare": (rare, [*(ordinal(f"x{j}", 4) for j in range(6)), Y], None, rare_law),
    "missing": (
        missing,
        [
            Integer(
                name="age",
                low=18,
                high=80,
                bins=(18, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80),
            ),
            Integer(name="income", low=0, high=400_000, nullable=True),
            Integer(name="debt", low=0, high=400_000, nullable=True),
            Categorical(name="region", categories=("n", "e", "s", "w")),
            Y,
        ],
        None,
        None,
    ),
}
NAMES = tuple(TABLES)
