"""Rows that meet a condition have the model's law given the condition, whichever way
they are drawn.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from small_models import SCHEMA, SIZES, asked, behind, joint, mixture

from understudy.answers import answers as room
from understudy.answers import products
from understudy.answers.products import products_of
from understudy.answers.question import Question
from understudy.data.encoding.codec import Codec
from understudy.data.images import ImageSchema
from understudy.data.schema import Boolean, Real, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, ConfigError, SchemaError
from understudy.models.plan import Pool
from understudy.models.tables.mixture import MixtureOfProducts

CONDITIONS = [
    "sex == 'F' and age >= 70",
    "age between 20 and 39 and income < 30 and smoker is not missing",
    "smoker is missing or age is missing",
    "age < 10 and sex == 'M' or income > 80 and smoker == true",
    "not (age < 45 and sex == 'F' and smoker == true)",
]


def truth(where: str) -> tuple[float, np.ndarray]:
    """The condition's probability, and the joint table of levels given it, by listing
    all combinations of pieces.
    """
    question = Question.read(where, Codec(SCHEMA))
    table = joint()
    met = np.zeros(SIZES)
    for cells in itertools.product(
        *(range(len(own.level)) for own in question.pieces.values())
    ):
        cell = dict(zip(question.pieces, cells, strict=True))
        if question.met({j: np.array([piece]) for j, piece in cell.items()})[0]:
            place = tuple(
                question.pieces[j].level[cell[j]] if j in cell else slice(None)
                for j in range(len(SIZES))
            )
            met[place] += np.prod(
                [question.pieces[j].share[piece] for j, piece in cell.items()]
            )
    return float((table * met).sum()), table * met / (table * met).sum()


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_mixture_given_a_condition_is_what_listing_every_row_says(where: str) -> None:
    question = Question.read(where, Codec(SCHEMA))
    boxes = question.boxes(64)
    products = products_of(mixture())
    assert boxes is not None
    assert products is not None
    probability, left = products.cut(question.pieces).condition_on(boxes)
    assert left is not None
    expected, table = truth(where)
    assert probability == pytest.approx(expected, rel=1e-6)
    own = left.levels(question.pieces, SIZES)
    np.testing.assert_allclose(own.table(range(len(SIZES))).numpy(), table, atol=1e-7)
    np.testing.assert_allclose(
        own.table([2, 0]).numpy(), table.sum((1, 3)).T, atol=1e-7
    )


def meets(frame: pd.DataFrame, where: str) -> pd.Series:
    """The same conditions in pandas' words."""
    age = frame["age"].astype("Float64")
    income = frame["income"]
    female = frame["sex"] == "F"
    smoker = frame["smoker"].fillna(False)
    known = {
        CONDITIONS[0]: female & (age >= 70).fillna(False),
        CONDITIONS[1]: age.between(20, 39).fillna(False)
        & (income < 30)
        & frame["smoker"].notna(),
        CONDITIONS[2]: frame["smoker"].isna() | age.isna(),
        CONDITIONS[3]: (age < 10).fillna(False) & ~female | (income > 80) & smoker,
        CONDITIONS[4]: ~((age < 45).fillna(False) & female & smoker),
    }
    return known[where].astype(bool)


@pytest.mark.long
@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize("way", ["exact", "by rejection", "tested"])
def test_rows_meet_the_condition_and_have_its_law(
    where: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "tested":
        monkeypatch.setattr(room, "_MOST_BOXES", 0)
    n = 8_000
    frame = (asked() if way == "exact" else behind()).sample(n, where=where, seed=3)
    assert frame.attrs["answer"] == ("exact" if way == "exact" else "by rejection")
    assert len(frame) == n
    assert meets(frame, where).all()
    probability, table = truth(where)
    assert frame.attrs["probability"] == pytest.approx(probability, rel=0.15)
    codes = Codec(SCHEMA).codes(frame)
    drawn = np.bincount(np.ravel_multi_index(codes.T, SIZES), minlength=table.size) / n
    spread = np.sqrt(table * (1 - table) / n).flatten()
    assert (np.abs(drawn - table.flatten()) <= 5 * spread + 1 / n).all()
    assert (drawn[table.flatten() == 0] == 0).all()


def test_values_are_even_within_a_cut_level() -> None:
    ages = (
        asked()
        .sample(30_000, where="age >= 80", seed=1)["age"]
        .value_counts(normalize=True)
    )
    assert sorted(ages.index) == list(range(80, 90))
    assert (ages - 0.1).abs().max() < 0.01


def test_the_same_seed_draws_the_same_rows_and_none_may_be_asked_for() -> None:
    for generator in (asked(), behind()):
        first, again = (
            generator.sample(50, where="age > 50", seed=7) for _ in range(2)
        )
        pd.testing.assert_frame_equal(first, again)
        none = generator.sample(0, where="age > 50")
        assert none.empty
        assert (none.dtypes == first.dtypes).all()


def test_a_pool_of_mixtures_is_exact_and_weighs_its_members() -> None:
    pool = Pool([mixture(3, seed=1), mixture(4, seed=2)], [1.0, 3.0])
    frame = Generator(pool, SCHEMA, {}).sample(10, where="sex == 'F'", seed=0)
    tables = [joint(mixture(3, seed=1)), joint(mixture(4, seed=2))]
    assert frame.attrs["answer"] == "exact"
    assert frame.attrs["probability"] == pytest.approx(
        sum((0.25, 0.75)[i] * t[:, 0].sum() for i, t in enumerate(tables))
    )


def test_a_condition_that_nothing_meets_is_refused_with_its_probability() -> None:
    for where in ("age >= 1000", "sex == 'F' and sex == 'M'"):
        with pytest.raises(ConfigError, match="probability 0"):
            asked().sample(3, where=where)


def test_a_mixture_draws_what_is_very_rare_and_another_network_says_how_rare_it_is():
    network = mixture()
    with torch.no_grad():
        network.logits[:, SIZES[0]] = -40.0
    rare = asked(network).sample(100, where="sex == 'F'", seed=0)
    assert (rare["sex"] == "F").all()
    assert 0 < rare.attrs["probability"] < 1e-15
    with pytest.raises(ConfigError, match=r"0 of .* draws fit.*probability \d.*e-1"):
        behind(network).sample(100, where="sex == 'F'", seed=0)


def test_the_work_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST_POINTS", 1 << 14)
    with pytest.raises(ConfigError, match="16,384 draws"):
        behind().sample(10**6, where="sex == 'F'", seed=0)


def test_a_network_whose_odds_are_no_numbers_is_not_asked() -> None:
    network = mixture()
    with torch.no_grad():
        network.logits[1, 0] = float("nan")
    for generator in (asked(network), behind(network)):
        with pytest.raises(ArtefactError, match="not finite"):
            generator.sample(3, where="sex == 'F'")


def test_bad_questions_are_refused_before_anything_is_drawn() -> None:
    with pytest.raises(SchemaError, match='Did you mean "smoker"'):
        asked().sample(3, where="smokr == true")
    with pytest.raises(ConfigError, match="cannot be read"):
        asked().sample(3, where="age >")
    with pytest.raises(ConfigError, match="draw='argmax'"):
        asked().sample(3, where="age > 3", draw="argmax")
    with pytest.raises(ConfigError, match="n must be"):
        asked().sample(-1, where="age > 3")
    with pytest.raises(ArtefactError, match="generator of tables answers"):
        Generator(mixture(), ImageSchema(height=2, width=3), {}).sample(
            3, where="age > 3"
        )


def test_rows_with_few_decimals_meet_a_condition_that_is_finer() -> None:
    schema = Schema(
        columns=(Real(name="x", low=0, high=2, bins=2, decimals=1), Boolean(name="e"))
    )
    generator = Generator(MixtureOfProducts((2, 2), 3), schema, {})
    rows = generator.sample(200, where="x > 0.55 and x < 0.65 or x > 1.9", seed=0)
    assert sorted(rows["x"].unique()) == [0.6, 2.0]
    assert rows.attrs["probability"] == pytest.approx(0.5 / 10 + 0.5 / 11)
    assert generator.sample(50, weights={"x": {0.3: 1.0}}, seed=0)["x"].eq(0.3).all()
    with pytest.raises(ConfigError, match="nothing meets"):
        generator.sample(10, where="x > 0.51 and x < 0.59")


@pytest.mark.parametrize(
    ("where", "how"),
    [("age < 45 or age is missing", "by rejection"), ("income > 99.9", "exact")],
)
def test_a_target_that_is_drawn_by_effects_is_drawn_so_given_a_condition(
    where: str, how: str
) -> None:
    told = MixtureOfProducts(SIZES, 5, SCHEMA.names.index("smoker"))
    effects = 3 * torch.randn(sum(SIZES), 3, generator=torch.Generator().manual_seed(8))
    told.load_state_dict({"logits": mixture().logits, "effects": effects})
    given = asked(told.requires_grad_(False)).sample(20_000, where=where, seed=1)
    assert given.attrs["answer"] == how
    assert given.attrs["probability"] == pytest.approx(truth(where)[0], rel=1e-3)
    if how == "exact":
        return
    every = asked(told).sample(40_000, seed=2)
    kept = every[(every["age"] < 45) | every["age"].isna()]

    def law(rows: pd.DataFrame) -> pd.Series:
        return rows.groupby(
            ["sex", "smoker"], dropna=False, observed=True
        ).size() / len(rows)

    plain = asked(mixture()).sample(20_000, where=where, seed=1)
    assert (law(given) - law(kept)).abs().max() < 0.015
    assert (law(plain) - law(kept)).abs().max() > 0.05
