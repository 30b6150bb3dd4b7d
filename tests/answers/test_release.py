"""Tables with error bars: what was released beside what the fit says; and a release
from somebody else.
"""

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from small_models import SCHEMA, SIZES, asked, joint
from torch import Tensor
from typer.testing import CliRunner

from understudy.answers.bars import ReleasedMarginals, figures
from understudy.answers.release import Noisy, TableRelease, bias_of
from understudy.cli import app
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.models.tables.mixture import MixtureOfProducts

PEOPLE = 600
ABOUT = {"people": PEOPLE, "epsilon": 1.0, "delta": 1e-6, "adjacency": "one person"}
PAIRS = [(0, 1), (0, 2), (1, 2)]  # age, sex, smoker; income alone


def counted(places: tuple[int, ...]) -> np.ndarray:
    """The fit's own table, rounded: a release without noise."""
    others = tuple(j for j in range(len(SIZES)) if j not in places)
    return np.rint(PEOPLE * joint().sum(others)).astype(np.int64)


def tensors(pairs: float = 3.0, shift: int = 0) -> dict[str, Tensor]:
    tables = [counted(pair) + shift for pair in PAIRS]
    return {
        "sizes": torch.tensor(SIZES, dtype=torch.int32),
        "ways.columns": torch.tensor([[0], [3]], dtype=torch.int32),
        "ways.deviation": torch.tensor([2.0, 4.0], dtype=torch.float64),
        "ways.counts": torch.from_numpy(np.concatenate([counted((0,)), counted((3,))])),
        "pairs.columns": torch.tensor(PAIRS, dtype=torch.int32),
        "pairs.deviation": torch.tensor([pairs, pairs, 2 * pairs], dtype=torch.float64),
        "pairs.counts": torch.from_numpy(
            np.concatenate([table.flatten() for table in tables])
        ),
    }


def generator(**more: Any) -> Generator:
    return replace(
        asked(),
        release=TableRelease.from_tensors(Codec(SCHEMA), tensors(**more), ABOUT),
    )


# Beside the fit


def test_a_table_has_the_fits_counts_and_beside_them_the_released_ones_with_their_bars():
    frame = generator(shift=4).table("smoker", "age")
    assert list(frame.columns) == [
        "smoker",
        "age",
        "share",
        "count",
        "released",
        "sd",
        "low",
        "high",
    ]
    np.testing.assert_allclose(frame["count"], PEOPLE * frame["share"])
    np.testing.assert_array_equal(frame["released"], (counted((0, 2)) + 4).T.flatten())
    assert set(frame["sd"]) == {3.0}
    assert (
        set(frame["high"] - frame["released"])
        == set(frame["released"] - frame["low"])
        == {6.0}
    )
    assert frame.attrs["bias"] == pytest.approx(math.sqrt(16 - 9), abs=0.5)
    assert generator().table("smoker", "age").attrs["bias"] == 0


def test_every_table_that_says_a_count_is_in_its_mean_and_its_noise() -> None:
    frame = generator().table("sex")  # by the pairs with age and with smoker
    sums = counted((0, 1)).sum(0), counted((1, 2)).sum(1)
    variances = 3**2 * SIZES[0], 6**2 * SIZES[2]
    both = np.average(sums, axis=0, weights=[1 / v for v in variances])
    np.testing.assert_allclose(frame["released"], both)
    np.testing.assert_allclose(frame["sd"], sum(1 / v for v in variances) ** -0.5)
    # measured by itself, and in two pairs
    own = TableRelease.from_tensors(Codec(SCHEMA), tensors(), ABOUT).joint([0])
    assert own is not None
    each = 2.0**2, 3**2 * SIZES[1], 3**2 * SIZES[2]
    np.testing.assert_allclose(own.variance, 1 / sum(1 / v for v in each))
    frame = generator().table("age", where="sex == 'F'")
    np.testing.assert_array_equal(frame["released"], counted((0, 1))[:, 0])
    assert set(frame["sd"]) == {3.0}
    frame = generator().table("sex", where="age >= 30 and sex == 'F'")
    np.testing.assert_allclose(frame["released"], [counted((0, 1))[1:3, 0].sum(), 0])
    np.testing.assert_allclose(frame["sd"], [3 * math.sqrt(2), 0])
    np.testing.assert_allclose(
        frame["count"].sum(), PEOPLE * frame.attrs["probability"]
    )


@pytest.mark.parametrize(
    ("columns", "where", "why"),
    [
        (("age", "income"), None, "not measured together"),
        (("age", "sex", "smoker"), None, "not measured together"),
        (("age",), "sex == 'F' and smoker == true", "not measured together"),
        (("sex",), "age >= 45", "cuts a level"),
    ],
)
def test_where_nothing_was_measured_the_table_says_so(
    columns: tuple[str, ...], where: str | None, why: str
) -> None:
    frame = generator().table(*columns, where=where)
    assert "released" not in frame.columns
    assert why in frame.attrs["released"]


def test_a_table_of_so_many_rows_or_without_a_release_has_no_bars() -> None:
    for frame in (generator().table("age", rows=10), asked().table("age")):
        assert "released" not in frame.columns
    with pytest.raises(ConfigError, match="without what was released"):
        asked().figures("age")
    clash = Schema(columns=(Integer(name="sd", low=1, high=2),))
    own = {"sizes": torch.tensor([2], dtype=torch.int32)}
    odd = Generator(
        MixtureOfProducts((2,), 1),
        clash,
        {},
        None,
        TableRelease.from_tensors(Codec(clash), own, ABOUT),
    )
    with pytest.raises(ConfigError, match='"sd" of its own'):
        odd.table("sd")


# Figures


def test_figures_of_a_table_are_those_of_its_counts() -> None:
    frame = generator(pairs=1.0).figures("age", "sex").set_index("figure")
    table = counted((0, 1))
    people = frame.loc["people"]
    assert people["released"] == counted((0,)).sum()
    both = 2.0**2 * SIZES[0], 4.0**2 * SIZES[3]  # the sums of age and of income
    assert people["sd"] == pytest.approx(sum(1 / v for v in both) ** -0.5)
    # age by itself, and with sex and with smoker
    each = 2.0**2, 1.0 * SIZES[1], 1.0 * SIZES[2]
    of_age = sum(1 / v for v in each) ** -0.5
    there = counted((0,))[:3]
    middles = np.array([14.5, 44.5, 74.5])
    mean = there @ middles / there.sum()
    own = frame.loc["mean of age"]
    assert own["released"] == pytest.approx(mean)
    assert own["sd"] == pytest.approx(
        of_age * np.linalg.norm(middles - mean) / there.sum()
    )
    part = table[:3]
    even = np.outer(part.sum(1), part.sum(0)) / part.sum()
    v = frame.loc["Cramér's V of age and sex"]
    noise = (1.0 / even).sum() / part.sum()
    assert v["released"] == pytest.approx(
        math.sqrt(((part - even) ** 2 / even).sum() / part.sum() - noise)
    )
    assert v["low"] <= v["released"] <= v["high"]


def test_the_odds_ratio_and_the_correlation_of_two_columns_of_two_values() -> None:
    schema = Schema(
        columns=(
            Integer(name="x", low=0, high=1),
            Categorical(name="y", categories=(1, 3)),
        )
    )
    fit = np.array([[40.0, 10.0], [20.0, 30.0]])
    noisy = np.array([[41.0, 12.0], [18.0, 29.0]])
    found = Noisy(noisy, np.full((2, 2), 4.0), whole=True)
    made = figures(
        [0, 1],
        fit,
        ReleasedMarginals(found, [found.sum(1), found.sum(0)], found.sum((0, 1))),
        Codec(schema),
    )
    by_name = {one.name.split(" of ")[0]: one for one in made}
    odds = by_name["odds ratio"]
    assert odds.fit == pytest.approx(40 * 30 / (10 * 20))
    assert odds.released == pytest.approx(41 * 29 / (12 * 18))
    assert math.log(odds.high / odds.released) == pytest.approx(
        1.96 * 2 * np.linalg.norm(1 / noisy), rel=1e-3
    )
    x = np.repeat([0, 0, 1, 1], fit.flatten().astype(int))
    y = np.repeat([1, 3, 1, 3], fit.flatten().astype(int))
    assert by_name["correlation"].fit == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert by_name["Cramér's V"].fit == pytest.approx(abs(np.corrcoef(x, y)[0, 1]))


def test_a_figure_that_would_be_noise_is_none() -> None:
    schema = Schema(columns=(Boolean(name="x"), Boolean(name="y")))
    found = Noisy(np.array([[5.0, 3.0], [-1.0, 2.0]]), np.full((2, 2), 9.0), whole=True)
    made = figures(
        [0, 1],
        np.full((2, 2), 3.0),
        ReleasedMarginals(found, [found.sum(1), found.sum(0)], found.sum((0, 1))),
        Codec(schema),
    )
    by_name = {one.name.split(" of ")[0]: one for one in made}
    assert by_name["people"].released == 9
    assert math.isnan(by_name["odds ratio"].released)
    assert math.isnan(by_name["Cramér's V"].high)
    assert by_name["odds ratio"].fit == pytest.approx(1)


def test_whole_noise_lies_within_its_interval_with_95_percent_and_the_next_narrower_one_is_too_narrow():
    numbers = np.arange(-600, 601)
    for sigma in np.concatenate([np.arange(0, 3, 0.0025), np.arange(3, 100, 0.37)]):
        half = float(Noisy(np.zeros(1), np.array([sigma**2]), whole=True).half[0])
        law = np.exp(-(numbers**2) / (2 * max(sigma, 1e-3) ** 2))
        inside, narrower = (
            law[abs(numbers) <= most].sum() / law.sum() for most in (half, half - 1)
        )
        assert inside >= 0.949, sigma
        # the normal law is too wide for little noise
        assert narrower <= {1: 1.0, 2: 0.966}.get(half, 0.956), sigma


def test_bias_is_what_residuals_have_beyond_the_noise() -> None:
    noisy = Noisy(np.zeros(4), np.full(4, 9.0), whole=True)
    assert bias_of(np.array([5.0, -5, 5, -5]), noisy) == 4
    assert bias_of(np.array([1.0, -1, 1, -1]), noisy) == 0


# The command


def test_the_command_prints_the_table_its_figures_and_what_they_are(
    tmp_path: Path,
) -> None:
    folder = str(generator().save(tmp_path))
    said = CliRunner().invoke(app, ["tables", folder, "age", "smoker"])
    assert said.exit_code == 0, said.exception
    assert "released" in said.stdout
    assert "mean of age" in said.stdout
    assert "95 % of the noise, and of means also" in " ".join(said.stdout.split())
    said = CliRunner().invoke(
        app, ["tables", folder, "age", "--where", "sex == 'F'", "--csv"]
    )
    head, *lines = said.stdout.splitlines()
    assert head == "age,share,count,released,sd,low,high"
    assert len(lines) == SIZES[0]
    said = CliRunner().invoke(app, ["tables", folder, "agee"])
    assert 'Did you mean "age"' in str(said.exception)


# From somebody else


def odd(
    name: str, value: Tensor | None
) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    def change(own: dict[str, Tensor]) -> dict[str, Tensor]:
        return (
            own | {name: value}
            if value is not None
            else {k: v for k, v in own.items() if k != name}
        )

    return change


INT = torch.int32
ODD = {
    "other levels": odd("sizes", torch.tensor([4, 2, 3, 5], dtype=INT)),
    "no levels": odd("sizes", None),
    "levels without end": odd("sizes", torch.full((1 << 16,), 2, dtype=INT)),
    "a column too many": odd("ways.columns", torch.tensor([[0], [4]], dtype=INT)),
    "a column below 0": odd("ways.columns", torch.tensor([[0], [-1]], dtype=INT)),
    "a table twice": odd("ways.columns", torch.tensor([[0], [0]], dtype=INT)),
    "a falling pair": odd(
        "pairs.columns", torch.tensor([[1, 0], [0, 2], [1, 2]], dtype=INT)
    ),
    "a pair of one": odd(
        "pairs.columns", torch.tensor([[1, 1], [0, 2], [1, 2]], dtype=INT)
    ),
    "pairs of three": odd("pairs.columns", torch.tensor([[0, 1, 2]], dtype=INT)),
    "cells too few": odd("pairs.counts", torch.zeros(3, dtype=torch.int64)),
    "counts beyond": odd(
        "ways.counts", torch.full((8,), -(1 << 63), dtype=torch.int64)
    ),
    "counts that are not whole": odd("ways.counts", torch.zeros(8)),
    "noise below 0": odd(
        "ways.deviation", torch.tensor([2.0, -1.0], dtype=torch.float64)
    ),
    "noise that is none": odd(
        "ways.deviation", torch.tensor([2.0, math.nan], dtype=torch.float64)
    ),
    "noise without end": odd(
        "ways.deviation", torch.tensor([2.0, math.inf], dtype=torch.float64)
    ),
    "noise too short": odd("ways.deviation", torch.tensor([2.0], dtype=torch.float64)),
    "no noise": odd("ways.deviation", None),
    "another kind": odd("quads.counts", torch.zeros(3, dtype=torch.int64)),
    "fine tables of declared levels": lambda own: (
        own
        | {
            "fine.columns": torch.tensor([[0]], dtype=INT),
            "fine.deviation": torch.ones(1, dtype=torch.float64),
            "fine.counts": torch.zeros(4, dtype=torch.int64),
        }
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_a_strangers_release_that_does_not_fit_is_refused_in_words(
    name: str, tmp_path: Path
) -> None:
    generator().save(tmp_path)
    text = json.dumps(ABOUT)
    save_file(
        ODD[name](tensors()), tmp_path / "release.safetensors", metadata={"about": text}
    )
    with pytest.raises(ArtefactError, match="damaged generator"):
        Generator.load(tmp_path)


@pytest.mark.parametrize(
    "about",
    [
        "[" * 1000,
        "{}",
        '{"people": -1}',
        '{"people": 1e400}',
        '{"people": NaN}',
        '{"people": true}',
        "[]",
        "",
    ],
)
def test_what_it_says_of_itself_is_checked_too(about: str, tmp_path: Path) -> None:
    generator().save(tmp_path)
    save_file(tensors(), tmp_path / "release.safetensors", metadata={"about": about})
    with pytest.raises(ArtefactError, match="damaged generator"):
        Generator.load(tmp_path)
    save_file(tensors(), tmp_path / "release.safetensors")
    with pytest.raises(ArtefactError, match="damaged generator"):
        Generator.load(tmp_path)


def test_a_release_that_the_card_does_not_list_is_refused(tmp_path: Path) -> None:
    generator().save(tmp_path / "a")
    asked().save(tmp_path / "b")
    (tmp_path / "a" / "release.safetensors").rename(
        tmp_path / "b" / "release.safetensors"
    )
    with pytest.raises(ArtefactError, match="not listed in the card"):
        Generator.load(tmp_path / "b")


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes_in_its_place_end_in_words(data: bytes) -> None:
    levels = Codec(SCHEMA)
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with pytest.raises((ValueError, KeyError)):
            TableRelease.load(Path(file.name), levels)
