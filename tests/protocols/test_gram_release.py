"""What gram released is part of its artefact, as it came, and its error bars keep what
they say.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gram_cases import (
    BUDGET,
    FRAME,
    FREE,
    SCHEMA,
    SMALL,
    TRIPLE,
    Parts,
    Plan,
    Schemas,
    all_parties,
    by_columns,
    by_grid,
    by_rows,
    release,
)

from understudy.answers.bars import ReleasedMarginals, figures
from understudy.answers.release import TableRelease
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Date, Integer, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.gram import protocol as gram
from understudy.runtime.local import LocalParties

OPENED = {
    "age": Integer(name="age", low=0, high=99),
    "joined": Date(
        name="joined", low=date(2020, 1, 1), high=date(2023, 12, 31), nullable=True
    ),
}
CUTS = {"rows": lambda: by_rows(2), "columns": lambda: by_columns(2), "grid": by_grid}
# of one holder each
TRIPLES = {"rows": TRIPLE, "columns": SCHEMA.names[4::-2], "grid": TRIPLE[::-1]}
every_cut = pytest.mark.parametrize("cut", CUTS)


def trained(
    cut: str, *, opened: bool = False, budget: Budget = FREE, **settings: Any
) -> Generator:
    tables, schemas = CUTS[cut]()
    if opened:
        schemas = {
            name: replace(
                one, columns=tuple(OPENED.get(c.name, c) for c in one.columns)
            )
            for name, one in schemas.items()
        }
    config = gram.Config(**SMALL, private=budget is not FREE, **settings)
    parties = LocalParties(all_parties(tables, schemas, budget=budget))
    return Generator.from_parts(gram.train(config, parties, schemas).trained)


def true_tables(generator: Generator) -> Callable[[Any], np.ndarray]:
    levels = generator.levels or Codec(generator.schema)
    codes = levels.codes(FRAME)

    def table(places: Any) -> np.ndarray:
        counts = np.zeros([levels.sizes[j] for j in places])
        np.add.at(counts, tuple(codes[:, list(places)].T), 1)
        return counts

    return table


def held(generator: Generator) -> TableRelease:
    assert generator.release is not None
    return generator.release


@pytest.mark.long
@pytest.mark.parametrize(
    ("cut", "opened"), [*((cut, True) for cut in CUTS), ("grid", False)]
)
def test_without_noise_every_table_of_the_release_is_the_true_one(
    cut: str, opened: bool
) -> None:
    generator = trained(
        cut,
        opened=opened,
        target="smoker",
        triples=(TRIPLES[cut],),
        searched_triples=0,
    )
    found = held(generator)
    true_table = true_tables(generator)
    columns = len(generator.schema.columns)
    assert {kind: len(own.columns) for kind, own in found.kinds.items()} == {
        "fine" if opened else "ways": columns,
        "pairs": math.comb(columns, 2),
        "pairs_again": columns - 1,
        "triples": 1,
    }
    triple = tuple(generator.schema.names.index(name) for name in TRIPLES[cut])
    for places in (
        *((j,) for j in range(columns)),
        *combinations(range(columns), 2),
        triple,
    ):
        joint = found.joint(places)
        assert joint is not None
        np.testing.assert_array_equal(joint.counts, true_table(places))
        assert not joint.variance.any()
    for kind, own in found.kinds.items():
        for number, places in enumerate(own.columns.tolist()):
            if kind != "fine":
                np.testing.assert_array_equal(
                    own.table(number), true_table(places).flatten()
                )


@cache
def with_noise(cut: str) -> Generator:
    return trained(
        cut, opened=True, budget=BUDGET, target="smoker", triples=(TRIPLES[cut],)
    )


@pytest.mark.long
@every_cut
def test_the_card_says_how_many_released_pairs_the_fit_misses(cut: str) -> None:
    generator = with_noise(cut)
    fit = generator.card["fit"]
    assert fit["tables"] == math.comb(len(generator.schema.columns), 2)
    assert fit["missed"] <= 0.2 * fit["tables"]
    assert fit["said"].startswith(
        f"The fit misses {fit['missed']} of {fit['tables']} released pairs"
    )


@every_cut
def test_the_release_holds_whole_numbers_whose_noise_is_what_it_says(cut: str) -> None:
    generator = with_noise(cut)
    found = held(generator)
    true_table = true_tables(generator)
    for kind in found.kinds.keys() - {"fine"}:
        own = found.kinds[kind]
        assert own.counts.dtype == np.int64
        errors = np.concatenate(
            [
                (own.table(number) - true_table(places).flatten())
                / own.deviation[number]
                for number, places in enumerate(own.columns.tolist())
            ]
        )
        assert np.var(errors) == pytest.approx(1, abs=6 * math.sqrt(2 / len(errors))), (
            kind
        )
    errors = np.concatenate(
        [
            ((joint := found.joint([j])).counts - true_table([j])) / joint.deviation  # type: ignore[union-attr]
            for j in range(len(generator.schema.columns))
        ]
    )
    assert np.var(errors) == pytest.approx(1, abs=6 * math.sqrt(2 / len(errors)))


def test_it_is_saved_beside_the_weights_listed_in_the_card_and_read_again(
    tmp_path: Path,
) -> None:
    generator = with_noise("columns")
    loaded = Generator.load(generator.save(tmp_path))
    before = held(generator).tensors()
    after = held(loaded).tensors()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert loaded.card["release"] == generator.card["release"] == held(loaded).card
    assert (
        loaded.card["release"]["tables"]["two-way tables measured a second time"] == 7
    )
    assert 0.9 * BUDGET.epsilon < loaded.card["release"]["epsilon"] <= BUDGET.epsilon
    assert held(loaded).people == len(FRAME)
    pd.testing.assert_frame_equal(
        loaded.table("age", "smoker"), generator.table("age", "smoker")
    )
    (tmp_path / "release.safetensors").unlink()
    with pytest.raises(ArtefactError, match=r"release\.safetensors is missing"):
        Generator.load(tmp_path)
    replace(loaded, release=None).save(tmp_path)
    assert Generator.load(tmp_path).release is None


# Bars: a thousand rehearsals in one release, as columns that are copies of two


COPIES = 32
# who hold other columns are aligned first, person by person
PEOPLE = {"rows": 1500, "columns": 200}
A = Categorical(name="a", categories=(1, 2, 5))
B = Boolean(name="b")


@cache
def thousand(cut: str) -> tuple[TableRelease, np.ndarray]:
    """A release of 32 copies of one column and 32 of another: 1,024 times the same
    table, each under fresh noise.
    """
    rng = np.random.default_rng(1)
    people = PEOPLE[cut]
    a = rng.choice([1, 2, 5], people, p=[0.5, 0.3, 0.2])
    b = rng.random(people) < 0.2 + 0.1 * a
    frame = pd.DataFrame(
        {f"a{n}": a for n in range(COPIES)} | {f"b{n}": b for n in range(COPIES)}
    )
    frame["id"] = np.arange(people)
    left = Schema(
        columns=tuple(replace(A, name=f"a{n}") for n in range(COPIES)), person="id"
    )
    right = Schema(
        columns=tuple(replace(B, name=f"b{n}") for n in range(COPIES)), person="id"
    )
    both = Schema(columns=(*left.columns, *right.columns), person="id")
    tables: Parts = {"one": frame.iloc[::2], "two": frame.iloc[1::2]}
    schemas: Schemas = {"one": both, "two": both}
    if cut == "columns":
        tables = {"one": frame, "two": frame}
        schemas = {"one": left, "two": right}
    parties = LocalParties(
        all_parties(tables, schemas, budget=Budget(epsilon=30.0, delta=1e-5))
    )
    done = release(parties, schemas, Plan())
    sizes = {"sizes": torch.tensor(Codec(both).sizes, dtype=torch.int32)}
    truth = pd.crosstab(a, b).to_numpy()
    return TableRelease.from_tensors(
        Codec(both), done.kept | sizes, {"people": people}
    ), truth


@pytest.mark.long
@pytest.mark.parametrize("cut", ["rows", "columns"])
def test_95_percent_intervals_of_counts_and_their_sums_cover_the_truth_in_93_to_97(
    cut: str,
) -> None:
    found, truth = thousand(cut)
    pairs = [found.joint([a, COPIES + b]) for a in range(COPIES) for b in range(COPIES)]
    for axis in (None, 0, 1):  # cells, and sums over merged levels
        inside = []
        for pair in pairs:
            assert pair is not None
            noisy, true = (
                (pair, truth) if axis is None else (pair.sum(axis), truth.sum(axis))
            )
            inside.append(abs(noisy.counts - true) <= noisy.half)
        assert 0.93 <= np.mean(inside) <= 0.97, axis


@pytest.mark.long
def test_95_percent_intervals_of_figures_cover_the_truth_in_93_to_97() -> None:
    found, truth = thousand("rows")
    total = truth.sum()
    values = np.array([1.0, 2.0, 5.0])
    share = truth / total
    mean = share.sum(1) @ values
    even = np.outer(truth.sum(1), truth.sum(0)) / total
    v = math.sqrt(((truth - even) ** 2 / even).sum() / total)
    covered: dict[str, list[bool]] = {}
    for a in range(COPIES):
        for b in range(a % 2, COPIES, 2):
            places = [a, COPIES + b]
            pair = found.joint(places)
            assert pair is not None
            released = ReleasedMarginals(
                pair, [pair.sum(1), pair.sum(0)], pair.sum((0, 1))
            )
            for one in figures(places, truth.astype(float), released, found.levels):
                name = one.name.split(" of ")[0]
                if "quantile" in name or name == "median":
                    continue  # of whole levels: tests/answers has them
                true = {"people": total, "mean": mean, "Cramér's V": v}[name]
                assert one.fit == pytest.approx(true)
                covered.setdefault(name, []).append(one.low <= true <= one.high)
    assert {name: len(inside) for name, inside in covered.items()} == dict.fromkeys(
        covered, COPIES**2 // 2
    )
    assert len(covered) == 3
    for name, inside in covered.items():
        assert 0.93 <= np.mean(inside) <= 0.97, name
