"""What questions to a generator cost: a mixture of 512 components over columns like
Adult's.

    sample      100,000 rows that meet a condition on three columns, one of them cut
    either      100,000 rows that meet a disjunction, which takes several boxes
    weights     100,000 rows, two columns of other shares
    table       the joint table of three columns
    table_where the same under a condition
    bars        the joint table of two columns with the error bars of what was released,
                and its figures
    ruled       100,000 rows that keep two rules
    complete    10,000 rows with a third of their cells missing
    predict     the label of 10,000 rows from all other columns
    rejection   10,000 rows that meet a condition from a network that is no mixture

Weights are random: what an answer costs depends on sizes alone, so no data are needed.
The median of five runs in one process, wall and processor seconds. QUICK=1 takes few
rows and writes nothing unless told to.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch

from common.options import options, quick
from common.rows import said, write
from understudy.answers.release import TableRelease
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Categorical, Column, Integer, Schema
from understudy.generators.generator import Generator
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.tables.mixture import MixtureOfProducts

QUICK = quick()
COMPONENTS, ROWS, FILLED, RUNS = (
    (16, 500, 100, 1) if QUICK else (512, 100_000, 10_000, 5)
)
FIELDS = ("question", "rows", "components", "seconds", "cpu_seconds")
CONDITION = "age >= 63 and sex == 'b' and hours between 20 and 44"
RULES = (
    {"when": "age < 15", "then": "hours == 0"},
    {"when": "sex == 'a'", "then": "relation != 'b'"},
)
EITHER = (
    "age >= 63 and sex == 'b' or hours > 50 and label == 'a' or education in ('a', 'c')"
)


def schema() -> Schema:
    """Columns with as many levels as Adult's have (private-pgm's domain, age and weight
    in bins).
    """

    def of(name: str, size: int) -> Categorical:
        return Categorical(
            name=name,
            categories=tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"[:size]),
        )

    numbers: list[Column] = [
        Integer(name="age", low=0, high=84, bins=17),
        Integer(name="weight", low=0, high=999_999, bins=100),
        Integer(name="gain", low=0, high=99_999, bins=100),
        Integer(name="loss", low=0, high=9_999, bins=100),
        Integer(name="hours", low=0, high=98, bins=99),
    ]
    sizes = {
        "work": 9,
        "education": 16,
        "years": 16,
        "marital": 7,
        "job": 15,
        "relation": 6,
        "race": 5,
        "sex": 2,
        "country": 42,
        "label": 2,
    }
    return Schema(columns=(*numbers, *(of(name, size) for name, size in sizes.items())))


def generators() -> tuple[Generator, Generator]:
    """A mixture and a GAN's generator, both with random weights."""
    public = schema()
    sizes = Codec(public).sizes
    torch.manual_seed(0)
    mixture = MixtureOfProducts(sizes, COMPONENTS)
    with torch.no_grad():
        mixture.logits.normal_(0, 2)
    gan = BranchedGenerator(64, (256,), {"all": ((256,), sizes)})
    return Generator(mixture.requires_grad_(False), public, {}), Generator(
        gan.eval(), public, {}
    )


def released(asked: Generator) -> Generator:
    """The same with all one- and two-way tables as they might have been released."""
    codec = Codec(asked.schema)  # type: ignore[arg-type]
    sizes = codec.sizes
    rng = np.random.default_rng(0)
    pairs = list(combinations(range(len(sizes)), 2))
    cells = {"ways": sum(sizes), "pairs": sum(sizes[a] * sizes[b] for a, b in pairs)}
    columns = {
        "ways": [[j] for j in range(len(sizes))],
        "pairs": [[*pair] for pair in pairs],
    }
    tensors = {"sizes": torch.tensor(sizes, dtype=torch.int32)}
    for kind, own in columns.items():
        tensors |= {
            f"{kind}.columns": torch.tensor(own, dtype=torch.int32),
            f"{kind}.deviation": torch.full((len(own),), 30.0, dtype=torch.float64),
            f"{kind}.counts": torch.from_numpy(rng.integers(0, 1000, cells[kind])),
        }
    return replace(
        asked, release=TableRelease.from_tensors(codec, tensors, {"people": 40_000})
    )


def questions() -> dict[str, tuple[int, Callable[[], Any]]]:
    """Each with the number of rows that it answers for."""
    asked, gan = generators()
    frame = asked.sample(FILLED, seed=1)
    gaps = frame.astype(object).mask(
        np.random.default_rng(0).random(frame.shape) < 1 / 3
    )
    barred = released(asked)
    ruled = replace(asked, schema=replace(schema(), rules=RULES))
    shares = {"label": {"a": 0.5, "b": 0.5}, "sex": {"a": 0.5, "b": 0.5}}
    return {
        "sample": (ROWS, lambda: asked.sample(ROWS, where=CONDITION, seed=0)),
        "either": (ROWS, lambda: asked.sample(ROWS, where=EITHER, seed=0)),
        "weights": (ROWS, lambda: asked.sample(ROWS, weights=shares, seed=0)),
        "table": (0, lambda: asked.table("age", "education", "country")),
        "table_where": (
            0,
            lambda: asked.table("age", "education", "country", where=EITHER),
        ),
        "bars": (
            0,
            lambda: (
                barred.table("age", "education"),
                barred.figures("age", "education"),
            ),
        ),
        "ruled": (ROWS, lambda: ruled.sample(ROWS, seed=0)),
        "complete": (FILLED, lambda: asked.complete(gaps, seed=0)),
        "predict": (FILLED, lambda: asked.predict_proba(frame, "label")),
        "rejection": (
            FILLED,
            lambda: gan.sample(FILLED, where="age >= 63 and sex == 'b'", seed=0),
        ),
    }


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Median wall and processor seconds."""
    spent = []
    for _ in range(RUNS):
        wall = time.perf_counter()
        cpu = time.process_time()
        work()
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*spent, strict=True)
    return statistics.median(walls), statistics.median(cpus)


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=Path(__file__).parent / "ours.csv")


def main() -> None:
    args = parser().parse_args()
    rows = []
    for name, (count, work) in questions().items():
        wall, cpu = timed(work)
        rows.append(
            dict(
                zip(
                    FIELDS,
                    (name, count, COMPONENTS, f"{wall:.4f}", f"{cpu:.4f}"),
                    strict=True,
                )
            )
        )
        print(said(rows[-1]), flush=True)
    write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
