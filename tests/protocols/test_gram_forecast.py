"""What gram says before it is spent: noise, errors, price and levels, as they turn out
to be.
"""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from gram_cases import (
    BUDGET,
    FRAME,
    SCHEMA,
    SMALL,
    all_parties,
    by_columns,
    by_grid,
    by_rows,
    release,
)
from torch import Tensor

import understudy as us
from refusals import raises
from understudy.api.train import train
from understudy.data.schema import Boolean, Categorical, Integer, Real, Schema
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import DiscreteGaussianNoise, Rng
from understudy.protocols.core.forecast import Forecast
from understudy.protocols.gram import forecast as gram_forecast
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.layout import WIDEST, Layout
from understudy.protocols.joint.pricing import BlockSpec, Pricing
from understudy.runs.result import Result
from understudy.runtime.local import LocalParties

NUMBERS = {
    "age": Integer(name="age", low=0, high=99),
    "visits": Integer(name="visits", low=-20, high=100, nullable=True),
}
CUTS = {"rows": by_rows(2), "columns": by_columns(2), "grid": by_grid()}
SETTINGS = {
    "levels as declared": {"fine": 0.0},
    "levels bought": {"fine": 0.15},
    "pairs with a target twice": {"fine": 0.15, "target": "smoker"},
}
Drawn = dict[tuple[int, tuple[int, int]], dict[str, Fraction]]


def opened(schema: Schema) -> Schema:
    """The same, with numbers that have no declared bins."""
    return replace(
        schema,
        columns=tuple(NUMBERS.get(column.name, column) for column in schema.columns),
    )


def rehearsed(cut: str, **settings: Any) -> tuple[Forecast, Result]:
    tables, schemas = CUTS[cut]
    schemas = {name: opened(schema) for name, schema in schemas.items()}
    said = us.plan(
        "gram", schemas, budget=BUDGET, people=len(FRAME), **SMALL, **settings
    )
    federation = us.Federation.rehearsal(
        tables, schemas, budget=BUDGET, seed=1, same_people=cut != "rows"
    )
    return said, train("gram", federation, **SMALL, **settings)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """The scale of every holder's noise in each block of each release, as it is
    drawn.
    """
    found: Drawn = defaultdict(list)
    real = Pricing.noise

    def noise(
        pricing: Pricing, block: BlockSpec, sigma: float, holders: int, rng: Rng
    ) -> Tensor:
        found[sigma, block.groups].append(pricing.share(sigma, holders))
        return real(pricing, block, sigma, holders, rng)

    monkeypatch.setattr(Pricing, "noise", noise)
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("cut", "settings"),
    [
        ("columns", "levels as declared"),
        ("rows", "levels bought"),
        ("grid", "pairs with a target twice"),
    ],
)
def test_the_noise_that_is_foretold_is_the_noise_that_is_added(
    cut: str, settings: str, drawn: Drawn
) -> None:
    said, result = rehearsed(cut, **SETTINGS[settings])
    layout = Layout(CUTS[cut][1])
    foretold = {
        (names, noise)
        for stage in said.stages
        for names, noise in stage.noise.items()
        if stage.moved
    }
    for (_, block), shares in drawn.items():
        names = " × ".join(
            " + ".join(layout.grid.groups[group]) for group in sorted(set(block))
        )
        added = sum(DiscreteGaussianNoise(share).variance for share in shares) ** 0.5
        assert any(
            whose == names and noise == pytest.approx(added, rel=1e-12)
            for whose, noise in foretold
        ), block
    assert len({sigma for sigma, _ in drawn}) >= len(said.stages)
    assert {
        party.name: result.privacy.epsilon(party.name)
        for party in result.privacy.parties
    } == pytest.approx(said.price, rel=1e-7)
    assert all(price <= BUDGET.epsilon for price in said.price.values())


@pytest.mark.long
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("cut", ["rows", "columns"])
def test_the_errors_that_are_foretold_are_those_of_the_released_counts(
    settings: str, cut: str
) -> None:
    tables, schemas = CUTS[cut]
    schemas = {name: opened(schema) for name, schema in schemas.items()}
    said = us.plan(
        "gram", schemas, budget=BUDGET, people=len(FRAME), **SETTINGS[settings]
    )
    done = release(
        LocalParties(all_parties(tables, schemas)),
        schemas,
        gram.Config(**SETTINGS[settings]),
    )
    layout = replace(Layout(schemas, fine=bool(done.levels)), levels=done.levels)
    column = torch.repeat_interleave(torch.tensor(layout.sizes))
    holder = torch.repeat_interleave(torch.tensor(layout.widths))
    pair = (column[:, None] != column).triu()
    target = (
        column == layout.joint.names.index("smoker")
        if said.stages[-1].what.startswith("pairs once")
        else column < 0
    )
    known = pair & ~(target[:, None] | target)
    inside = f"a cell of a pair{' at one holder' if cut == 'columns' else ''}"
    expected = {inside: done.noise[known & (holder[:, None] == holder)]}
    if cut == "columns":
        expected["a cell of a pair across holders"] = done.noise[
            known & (holder[:, None] != holder)
        ]
    if not done.levels:
        expected["a count of one column"] = done.noise.diagonal()
    if bool(target.any()):
        expected["a cell of a pair with smoker"] = done.noise[
            pair & (target[:, None] | target)
        ]
    found = {error.what: error for error in said.errors}
    for what, noise in expected.items():
        assert found[what].least == pytest.approx(float(noise.min()), rel=1e-6)
        assert found[what].largest == pytest.approx(float(noise.max()), rel=1e-6)
    assert found.keys() - expected.keys() <= {"a count of one column"}


def test_the_strictest_holder_decides_and_the_others_pay_no_more() -> None:
    _, schemas = CUTS["columns"]
    said = us.plan(
        "gram", schemas, budget={"holder 0": 1.0, "holder 1": Budget(5.0, 1e-5)}
    )
    alone = us.plan("gram", schemas, budget=1.0)
    assert said.stages == alone.stages
    assert said.price["holder 1"] < said.price["holder 0"] <= 1.0


def test_few_people_are_warned_of_in_words_and_many_are_not() -> None:
    few = us.plan("gram", {"one": SCHEMA}, budget=1.0, people=50)
    assert few.warnings[0].startswith("50 people and ")
    assert (
        "pairs are mostly noise. More people, fewer columns or a larger ε would help."
        in few.warnings[0]
    )
    assert str(few.expected) in str(few)
    assert us.plan("gram", {"one": SCHEMA}, budget=1.0, people=100_000).warnings == ()


def test_declared_levels_that_noise_would_drown_are_named_and_bought_ones_are_not():
    codes = Categorical(name="code", categories=tuple(f"c{n}" for n in range(60)))
    schema = Schema(
        columns=(Boolean(name="ill"), codes, Integer(name="age", low=0, high=120))
    )
    said = us.plan("gram", {"one": schema}, budget=1.0, people=1_000)
    assert list(said.too_fine) == ["code"]
    assert "60 levels" in said.too_fine["code"]
    assert "code" in said.warnings[0]
    assert list(said.levels) == ["age"]
    assert list(
        us.plan("gram", {"one": schema}, budget=1.0, people=1_000, fine=0.0).too_fine
    ) == ["code", "age"]
    assert not us.plan("gram", {"one": schema}, budget=1.0, people=1_000_000).too_fine


def test_more_people_get_more_levels_and_shares_that_are_surer() -> None:
    schema = opened(SCHEMA)
    few, many = (
        us.plan("gram", {"one": schema}, budget=1.0, people=n) for n in (1_000, 100_000)
    )
    assert few.stages == many.stages
    assert int(few.levels["age"].split()[-2]) < int(many.levels["age"].split()[-2])
    assert "points" in str(many)
    assert "points" not in str(us.plan("gram", {"one": schema}, budget=1.0))


def test_a_width_that_cannot_be_fitted_is_refused_before_anything_is_read_or_charged(
    tmp_path: Path,
) -> None:
    codes = Integer(name="code", low=0, high=WIDEST, bins=WIDEST + 1)
    schema = Schema(person="id", columns=(Boolean(name="smoker"), codes))
    with raises(
        ConfigError,
        effect=Effect.NOTHING_READ_OR_CHARGED,
        match="8,195 levels together, code 8,193 of them",
    ):
        us.plan("gram", {"one": schema}, budget=1.0, fine=0)
    frame = FRAME[["id", "smoker"]].assign(code=5)
    federation = us.Federation(
        {"one": frame}, {"one": schema}, budget=1.0, ledgers=tmp_path, same_people=False
    )
    with pytest.raises(ConfigError, match="Declare fewer"):
        train("gram", federation, fine=0)
    assert federation.holders["one"].ledger.spent() == 0
    unbinned = replace(schema, columns=(schema.columns[0], replace(codes, bins=None)))
    for one in (unbinned, schema):
        assert us.plan("gram", {"one": one}, budget=1.0).levels.keys() == {"code"}


def test_what_a_run_refuses_by_its_settings_a_plan_refuses_too() -> None:
    with pytest.raises(ConfigError, match='nobody has a column "smokr"'):
        us.plan("gram", {"one": SCHEMA}, budget=1.0, target="smokr")
    with pytest.raises(ConfigError, match="max_holders_per_person=3"):
        us.plan("gram", CUTS["rows"][1], budget=1.0, max_holders_per_person=3)
    with pytest.raises(ConfigError, match="unknown key"):
        us.plan("gram", {"one": SCHEMA}, budget=1.0, stpes=3)
    with pytest.raises(ConfigError, match="people must be a whole number"):
        us.plan("gram", {"one": SCHEMA}, budget=1.0, people=0)


def test_without_noise_a_plan_says_so() -> None:
    said = us.plan("gram", {"one": SCHEMA}, budget=1.0, private=False)
    assert "no noise at all" in said.warnings[0]
    assert "no guarantee" in str(said)


@pytest.mark.long
def test_a_run_with_more_people_or_more_columns_takes_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # of this machine, which does more than one thing
    monkeypatch.setattr(gram_forecast, "unit_seconds", lambda: 2e-3)

    @cache
    def seconds(people: int, columns: int, holders: int) -> float:
        schemas = {
            f"h{h}": Schema(
                columns=tuple(
                    Real(name=f"h{h}_{i}", low=0, high=100) for i in range(columns)
                ),
                person="id",
            )
            for h in range(holders)
        }
        found = us.plan("gram", schemas, budget=1.0, people=people).seconds
        assert found is not None
        return found

    for holders in (1, 2):
        assert (
            seconds(5_000, 10, holders)
            < seconds(50_000, 10, holders)
            < seconds(50_000, 20, holders)
        )
        assert (
            seconds(5_000, 10, holders)
            < seconds(5_000, 20, holders)
            < seconds(50_000, 20, holders)
        )
