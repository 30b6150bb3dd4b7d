"""What is drawn keeps the schema's rules, and answers are the model's law given
them.
"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_models import SCHEMA, Behind, joint, mixture

from understudy.answers import rules as ruling
from understudy.answers.rule_boxes import _allowed, rule_ties
from understudy.answers.rules import all_keep
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Integer, Ordinal, Real, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError
from understudy.models.tables.given_rules import Ruled
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import forbidden

WHEN = {"when": "sex == 'M'", "then": "smoker == false"}
CUT = {"when": "age < 45", "then": "income >= 50"}  # 45 lies within 30–59


def ruled(*rules: Any, other: bool = False) -> Generator:
    network = mixture()
    return Generator(
        Behind(network) if other else network, replace(SCHEMA, rules=rules), {}
    )


def small(*rules: Any, seed: int = 0, nullable: bool = False) -> Generator:
    """Two whole numbers with a level each, an ordinal twice, a switch."""
    schema = Schema(
        columns=(
            Integer(name="a", low=0, high=4),
            Integer(name="b", low=2, high=5, nullable=nullable),
            Ordinal(name="c", categories=("low", "mid", "high")),
            Ordinal(name="d", categories=("low", "mid", "high")),
            Boolean(name="e"),
        ),
        rules=rules,
    )
    network = MixtureOfProducts(Codec(schema).sizes, 4)
    with torch.no_grad():
        network.logits.copy_(
            torch.randn(4, network.width, generator=torch.Generator().manual_seed(seed))
        )
    return Generator(network.requires_grad_(False), schema, {})


def law(generator: Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Every row of a small generator, and its probability given the rules, by listing
    them all.
    """
    schema = generator.schema
    assert isinstance(schema, Schema)
    codec = Codec(schema)
    codes = np.array(list(itertools.product(*map(range, codec.sizes))), dtype=np.int32)
    blocks = torch.split(generator.network.odds().double(), list(codec.sizes), 1)  # type: ignore[attr-defined]
    chance = np.mean(
        [
            np.prod([b[k][c] for b, c in zip(blocks, codes.T, strict=True)], 0)
            for k in range(4)
        ],
        0,
    )
    frame = codec.decode(codes)
    chance = chance * all_keep(
        replace(schema, rules=[r for r in schema.rules if not r.unique]), frame
    )
    return frame, chance / chance.sum()


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("rule", [WHEN, CUT])
def test_every_drawn_row_keeps_the_rules_whatever_is_asked(
    rule: Any, other: bool
) -> None:
    generator = ruled(rule, other=other)
    for more in (
        {},
        {"where": "age >= 40 or sex == 'M'"},
        {"weights": {"sex": {"F": 0.5, "M": 0.5}}},
    ):
        rows = generator.sample(700, seed=1, **more)  # type: ignore[arg-type]
        assert len(rows) == 700
        assert all_keep(generator.schema, rows).all()  # type: ignore[arg-type]
        assert 0 < rows.attrs["kept"] <= 1
    assert rows["sex"].eq("M").mean() == pytest.approx(0.5, abs=0.06)
    assert len(generator.sample(0, seed=1)) == 0
    pd.testing.assert_frame_equal(
        generator.sample(50, seed=3), generator.sample(50, seed=3)
    )


RULES: list[list[Any]] = [
    [{"when": "e == true", "then": "a in (1, 3)"}],
    [{"always": "b >= a"}],
    [{"always": "a > b"}],
    [{"always": "c < d"}, {"when": "e == true", "then": "c == 'low'"}],
    [{"always": "b > a"}, {"always": "d >= c"}],
]


@pytest.mark.parametrize("rules", RULES)
def test_tables_predictions_and_draws_have_the_law_given_the_rules(
    rules: list[Any],
) -> None:
    generator = small(*rules)
    frame, chance = law(generator)
    table = generator.table("a", "b", "c", "d", "e")
    np.testing.assert_allclose(table["share"], chance, atol=1e-7)
    odds = generator.predict_proba(pd.DataFrame({"a": [3], "e": [True]}), "c")
    known = (frame["a"] == 3) & (frame["e"])
    truth = [
        chance[known & (frame["c"] == level)].sum() for level in ("low", "mid", "high")
    ]
    np.testing.assert_allclose(
        odds.to_numpy()[0], np.array(truth) / sum(truth), atol=1e-6
    )
    rows = generator.sample(8_000, seed=1)
    drawn = rows.value_counts(["a", "b", "c"], normalize=True)
    wanted = frame.assign(p=chance).groupby(["a", "b", "c"], observed=True)["p"].sum()
    assert wanted.sub(drawn, fill_value=0).abs().max() < 0.02


def test_a_rule_that_cuts_levels_is_exact_too() -> None:
    table = ruled(CUT).table("age", "income")
    whole = joint().sum((1, 2)).copy()  # (age, income)
    whole[0, :2] = 0
    whole[1, :2] *= 0.5
    np.testing.assert_allclose(
        table["share"].to_numpy().reshape(4, 4), whole / whole.sum(), atol=1e-7
    )


def test_of_a_row_in_which_one_is_missing_an_order_says_nothing() -> None:
    generator = small({"always": "b >= a"}, nullable=True)
    rows = generator.sample(3000, seed=2)
    there = rows["b"].notna()
    assert (rows["b"][there] >= rows["a"][there]).all()
    assert rows["a"][~there].nunique() == 5
    _, chance = law(generator)
    np.testing.assert_allclose(
        generator.table("a", "b", "c", "d", "e")["share"], chance, atol=1e-7
    )


TYING: list[list[Any]] = [
    [{"always": "a != 2"}],
    [{"when": "e == true", "then": "a > 2 or c == 'mid'"}],
    [
        {"when": "e == true", "then": "b > a"},
        {"when": "not c <= d", "then": "e == false"},
    ],
    [
        {"when": "a == 1 and c == 'low'", "then": "d == 'low' or e == true"},
        {"always": "b >= a"},
    ],
]


@pytest.mark.parametrize("rules", [*RULES, *TYING])
def test_the_law_that_is_fitted_is_the_one_that_is_asked_and_drawn_from(
    rules: list[Any],
) -> None:
    generator = small(*rules)
    codec = Codec(generator.schema)  # type: ignore[arg-type]
    frame, chance = law(generator)
    odds = generator.network.odds().double()  # type: ignore[attr-defined]
    fitted = Ruled.from_ties(odds, codec.sizes, rule_ties(codec))
    np.testing.assert_allclose(fitted.table(range(5)).flatten(), chance, atol=1e-12)
    np.testing.assert_allclose(
        fitted.table((4, 0, 2)).permute(1, 2, 0), fitted.table((0, 2, 4)), atol=1e-12
    )
    rows = codec.encode(frame).double()
    np.testing.assert_allclose(
        fitted.gram(), rows.T @ (rows * torch.from_numpy(chance)[:, None]), atol=1e-12
    )
    asked = generator.table("a", "b", "c", "d", "e")
    np.testing.assert_allclose(asked["share"], chance, atol=1e-7)
    assert asked.attrs["answer"] == "exact"


@pytest.mark.parametrize("rules", [*RULES, *TYING])
def test_what_no_row_has_is_forbidden_to_the_fit(rules: list[Any]) -> None:
    generator = small(*rules)
    codec = Codec(generator.schema)  # type: ignore[arg-type]
    frame, chance = law(generator)
    rows = codec.encode(frame[chance > 0])
    column = torch.repeat_interleave(torch.tensor(codec.sizes))
    counted = (column[:, None] != column) | torch.eye(len(column), dtype=torch.bool)
    assert torch.equal(
        forbidden(codec.sizes, rule_ties(codec), torch.device("cpu")),
        (rows.T @ rows == 0) & counted,
    )
    assert rule_ties(Codec(SCHEMA)) == []


def test_what_is_filled_keeps_the_rules_and_what_cannot_is_refused() -> None:
    generator = ruled(WHEN, CUT)
    known = pd.DataFrame(
        {
            "sex": ["M", "M", "F"],
            "age": [20.0, 50.0, 40.0],
            "income": [60.0, np.nan, np.nan],
        }
    )
    filled = generator.complete(known, draws=40, seed=0)
    assert all_keep(generator.schema, filled).all()  # type: ignore[arg-type]
    assert (filled["smoker"][filled["sex"] == "M"].eq(False)).all()
    with pytest.raises(ConfigError, match="row 1: "):
        generator.complete(pd.DataFrame({"age": [44.0], "income": [49.0]}), seed=0)


def test_a_condition_that_cannot_be_is_refused_under_several_rules_too() -> None:
    generator = small(
        {"when": "a == 1", "then": "b == 2"},
        {"when": "e == true", "then": "c == 'low'"},
    )
    with pytest.raises(ConfigError, match="probability 0"):
        generator.table("d", where="a == 1 and a == 2")


def test_rows_that_are_unique_differ_and_no_more_are_asked_than_there_are() -> None:
    generator = small({"unique": ["a", "b"]})
    rows = generator.sample(12, seed=1)
    assert len(rows) == 12
    assert not rows.duplicated(["a", "b"]).any()
    with pytest.raises(
        ConfigError, match=r"21 rows cannot differ in a, b, which have 20 values"
    ):
        generator.sample(21, seed=1)
    assert (
        len(small({"unique": ["a", "b"]}, {"always": "b >= a"}).sample(8, seed=1)) == 8
    )


def test_rules_that_hardly_any_draw_keeps_are_refused_with_how_few_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ruling, "MOST_DRAWS", 1 << 15)
    schema = Schema(
        columns=(
            Real(name="x", low=0, high=1, bins=1),
            Categorical(name="y", categories=("u", "v")),
        ),
        rules=({"always": "x < 0.00001"},),
    )
    generator = Generator(MixtureOfProducts((1, 2), 1), schema, {})
    with pytest.raises(ConfigError, match=r"draws keep the rules.*too long"):
        generator.sample(1000, seed=0)


def test_where_rules_take_too_many_boxes_those_of_the_question_come_first_and_the_answer_says_so():
    """Six rules of two boxes each: 64 together, and more than a mixture of 4,096 kinds
    may take.
    """
    columns = tuple(Boolean(name=f"x{n}") for n in range(12))
    rules = [
        {"when": f"x{n} == true", "then": f"x{n + 1} == true"} for n in range(0, 12, 2)
    ]
    schema = Schema(columns=columns, rules=rules)
    ruling.check_rules(schema)
    network = MixtureOfProducts([2] * 12, 4096)
    generator = Generator(network, schema, {})
    table = generator.table("x10", "x11")
    assert table["share"].iloc[2] == 0, "true, and then not true"
    assert "but for" in table.attrs["answer"]
    assert all_keep(schema, generator.sample(500, seed=0)).all()
    assert generator.complete(pd.DataFrame({"x0": [True]}), draws=20, seed=0)[
        "x1"
    ].all()


@pytest.mark.parametrize("order", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("bins", [(5, 3), (2, 7), (1, 1)])
@pytest.mark.parametrize("real", [False, True])
def test_how_far_two_levels_stand_in_an_order_is_counted_or_integrated(
    order: str, bins: tuple[int, int], real: bool
) -> None:
    kind = Real if real else Integer
    one = kind(name="x", low=0, high=20, bins=bins[0])
    other = kind(name="y", low=4, high=30, bins=bins[1])
    schema = Schema(columns=(one, other), rules=({"always": f"x {order} y"},))
    step = 0.05 if real else 1.0
    x = np.arange(step / 2 if real else 0, 20.001, step)
    y = np.arange(4 + step / 2 if real else 4, 30.001, step)
    table = np.zeros(bins)
    compared = {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
    }[order]
    at = [
        np.searchsorted(c.edges[1:-1], v, side="right")
        for c, v in ((one, x), (other, y))
    ]
    places = (at[0][:, None], at[1][None])
    every = np.zeros(bins)
    np.add.at(table, places, compared(x[:, None], y))
    np.add.at(every, places, 1)
    codec = Codec(schema)
    allowed = _allowed(schema.rules[0].condition, codec.pieces(0), codec.pieces(1))  # type: ignore[arg-type]
    np.testing.assert_allclose(allowed, table / every, atol=0.01 if real else 1e-12)
    assert ((allowed == 0) == (table == 0)).all()


def binned(*rules: Any) -> Generator:
    """Two whole numbers in two wide levels each, and a switch."""
    schema = Schema(
        columns=(
            Integer(name="a", low=0, high=9, bins=2),
            Integer(name="b", low=0, high=9, bins=2, nullable=True),
            Boolean(name="e"),
        ),
        rules=rules,
    )
    network = MixtureOfProducts(Codec(schema).sizes, 3)
    with torch.no_grad():
        network.logits.copy_(
            torch.randn(3, network.width, generator=torch.Generator().manual_seed(5))
        )
    return Generator(network.requires_grad_(False), schema, {})


def by_value(generator: Generator) -> pd.DataFrame:
    """Every row of `binned` with its probability given the rules, value by value."""
    parts = torch.split(generator.network.odds().double(), [2, 3, 2], 1)  # type: ignore[attr-defined]
    values = [
        (a, b, e) for a in range(10) for b in [*range(10), None] for e in (False, True)
    ]
    frame = pd.DataFrame(values, columns=["a", "b", "e"])
    one, two, three = (
        part[:, codes].numpy()
        for part, codes in zip(
            parts,
            (
                frame["a"] // 5,
                frame["b"].floordiv(5).fillna(2).astype(int),
                frame["e"].astype(int),
            ),
            strict=True,
        )
    )
    share = np.where(frame["b"].isna(), 1 / 5, 1 / 25)
    chance = (one * two * three).mean(0) * share * all_keep(generator.schema, frame)  # type: ignore[arg-type]
    return frame.assign(b=frame["b"].fillna(-1).astype(int), p=chance / chance.sum())


WIDE: list[dict[str, Any]] = [
    {"always": "b >= a"},
    {"when": "a < 3", "then": "b > 6 or e == true"},
]


@pytest.mark.parametrize("rule", WIDE)
def test_what_is_filled_has_the_law_given_the_rules_value_by_value(
    rule: dict[str, Any],
) -> None:
    generator = binned(rule)
    truth = by_value(generator)
    known = pd.DataFrame({"e": [False]})
    filled = generator.complete(known, draws=20_000, seed=1)
    wanted = truth[~truth["e"]].groupby(["a", "b"])["p"].sum()
    found = filled.fillna(-1).value_counts(["a", "b"], normalize=True)
    # by chance: 0.016
    assert wanted.div(wanted.sum()).sub(found, fill_value=0).abs().sum() / 2 < 0.03
    filled = generator.complete(known.assign(a=2), draws=20_000, seed=1)
    some = truth[~truth["e"] & (truth["a"] == 2)].groupby("b")["p"].sum()
    found = filled["b"].fillna(-1).value_counts(normalize=True)
    assert some.div(some.sum()).sub(found, fill_value=0).abs().sum() / 2 < 0.02


def test_what_is_predicted_from_a_value_keeps_a_rule_that_cuts_its_level() -> None:
    generator = binned(WIDE[1])
    truth = by_value(generator)
    for a in (2, 3):
        own = truth[(truth["a"] == a) & ~truth["e"] & (truth["b"] >= 0)]
        chance = own["p"].groupby(own["b"] >= 5).sum()
        odds = generator.predict_proba(pd.DataFrame({"a": [a], "e": [False]}), "b")
        high = chance.get(True, 0.0) / chance.sum()
        np.testing.assert_allclose(odds.to_numpy()[0], [1 - high, high], atol=1e-6)


@pytest.mark.parametrize("rules", [[WIDE[0]], [WIDE[1]], WIDE])
@pytest.mark.parametrize(
    "where", ["a < 2", "a between 1 and 6 and b > 2", "b <= 3 or e == true", "a == 7"]
)
def test_a_table_with_a_condition_has_the_law_given_the_rules_value_by_value(
    rules: list[Any], where: str
) -> None:
    generator = binned(*rules)
    truth = by_value(generator)
    met = {
        "a < 2": truth["a"] < 2,
        "a between 1 and 6 and b > 2": truth["a"].between(1, 6) & (truth["b"] > 2),
        "b <= 3 or e == true": truth["b"].between(0, 3) | truth["e"],
        "a == 7": truth["a"] == 7,
    }[where]
    table = generator.table("b", "e", where=where)
    some = truth[met]
    level = np.where(some["b"] < 0, 2, some["b"] // 5)
    wanted = [
        some["p"][(level == b) & (some["e"] == e)].sum()
        for b in range(3)
        for e in (False, True)
    ]
    np.testing.assert_allclose(
        table["share"], np.array(wanted) / sum(wanted), atol=1e-7
    )
    assert table.attrs["probability"] == pytest.approx(sum(wanted), abs=1e-7)
