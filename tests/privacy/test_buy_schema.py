"""A bought schema: paid before a row is read, private by exact sums, and of use
at ε=1.
"""

import math
from collections import Counter
from dataclasses import replace
from datetime import date
from itertools import product

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent, get_epsilon_gaussian
from scipy.optimize import brentq
from scipy.stats import binomtest, norm

from understudy.data.column import OTHER
from understudy.data.encoding.codec import Codec
from understudy.data.infer import infer_schema
from understudy.data.reading import files
from understudy.data.reading.sources import TableSource
from understudy.data.reading.writing import coarsen
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Categorical, Ordinal, Schema
from understudy.data.table import check_table, read_table
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    PrivacyError,
    SchemaError,
)
from understudy.privacy import buy_schema as module
from understudy.privacy.accounts.accounting import PureDp, Reveals, epsilon, flatten
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import event_from_json, event_to_json
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.buy_schema import buy_schema, quote
from understudy.privacy.kinds import as_bought
from understudy.privacy.noise.discrete import (
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
)
from understudy.privacy.noise.rng import FastRng, SecureRng

DELTA = 1e-6
KINDS = {column.name: as_bought(column).split()[0] for column in toy(1)[1].columns}


def rehearsal(eps=1.0, delta=DELTA):
    return Ledger.rehearsal("clinic", Budget(eps, delta))


def buy(source, kinds, *, eps=1.0, delta=DELTA, seed=0, ledger=None, **options):
    ledger = ledger or rehearsal(eps, delta)
    rng = SecureRng.from_seed(seed)
    return buy_schema(
        source, kinds, ledger, epsilon=eps, delta=delta, run="r", rng=rng, **options
    )


class Watched(pd.DataFrame):
    """Its header may be read; touching a column calls `touched`."""

    touched = staticmethod(lambda: None)

    def __getitem__(self, key):
        type(self).touched()
        return super().__getitem__(key)


class Silent:
    """No noise: writes the counts down, and shows every cell that holds anybody."""

    variance = 0.0

    def __init__(self):
        self.counts = []

    def __call__(self, counts, rng):
        self.counts.append(counts.tolist())
        return counts

    def threshold(self, probability):
        return 1


def looks(frame, kinds, monkeypatch, **options):
    """The counts behind a purchase, look by look."""
    offer = quote(kinds, epsilon=1, delta=DELTA)
    silent = Silent()
    monkeypatch.setattr(
        module, "quote", lambda *_, **__: module.replace(offer, noise=silent)
    )
    buy(frame, kinds, **options)
    return silent.counts


# Paying


def test_the_price_is_in_the_ledger_before_the_first_cell_is_read():
    ledger = rehearsal()
    before = []
    Watched.touched = staticmethod(lambda: before.append(ledger.spent()))
    buy(Watched(toy(300)[0]), KINDS, ledger=ledger, person="id")
    assert before
    assert all(0.9 < spent <= 1 for spent in before)
    (entry,) = (entry for entry in ledger.entries() if entry.count)
    assert (
        entry.description
        == "schema of the table: domains of colour, grade, age, visits, income, joined"
    )
    assert entry.run == "r"
    assert entry.people is None


@pytest.mark.parametrize(
    "budget", [Budget(0.9, DELTA), Budget(1, DELTA / 3), Budget(40, 0)]
)
def test_a_price_over_the_budget_is_refused_with_nothing_read(budget):
    def fail():
        raise AssertionError("a column was read")

    Watched.touched = staticmethod(fail)
    ledger = Ledger.rehearsal("clinic", budget)
    with pytest.raises(BudgetExceeded):
        buy(Watched(toy(300)[0]), KINDS, ledger=ledger)
    assert ledger.spent() == 0


@pytest.mark.parametrize(
    "rng", [SecureRng.from_seed(1), FastRng()], ids=["seeded", "insecure"]
)
def test_a_real_ledger_refuses_noise_that_can_be_guessed(tmp_path, rng):
    with Ledger(
        tmp_path / "clinic.ledger", holder="clinic", budget=Budget(1, DELTA)
    ) as ledger:
        with pytest.raises(PrivacyError) as refused:
            buy_schema(
                toy(9)[0], KINDS, ledger, epsilon=1, delta=DELTA, run="r", rng=rng
            )
        assert refused.value.effect is Effect.NOTHING_READ_OR_CHARGED
        assert ledger.spent() == 0
        bought = buy_schema(
            toy(3000)[0],
            KINDS,
            ledger,
            epsilon=1,
            delta=DELTA,
            run="r",
            rng=SecureRng(),
        )
        assert 0.9 < ledger.spent() <= 1
    bought.require_public()


@pytest.mark.parametrize(
    ("kinds", "person", "error"),
    [
        ({"colour": "colours"}, None, ConfigError),
        ({"colour": None}, None, ConfigError),
        ({"color": "categorical"}, None, SchemaError),
        ({"age": "integer"}, "name", SchemaError),
        ({"id": "integer"}, "id", SchemaError),
        ({}, "id", SchemaError),
    ],
)
def test_a_wrong_declaration_costs_nothing(kinds, person, error):
    ledger = rehearsal()
    with pytest.raises(error):
        buy(toy(9)[0], kinds, ledger=ledger, person=person)
    assert ledger.spent() == 0


@pytest.mark.parametrize("eps", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(
    "kinds", [KINDS, {"colour": "categorical"}, {"age": "integer"}], ids=len
)
def test_the_whole_price_stays_within_what_was_asked_and_near_it(kinds, eps):
    offer = quote(kinds, epsilon=eps, delta=DELTA)
    assert 0.97 * eps < epsilon(flatten(offer.event), DELTA) <= eps
    looks = sum(
        {"boolean": 0, "categorical": 1}.get(kind, 2) for kind in kinds.values()
    )
    assert flatten(offer.event)[offer.noise.event] == looks


def test_the_noise_that_takes_fewer_people_is_chosen():
    assert isinstance(
        quote({"a": "categorical"}, epsilon=1, delta=DELTA).noise, DiscreteLaplaceNoise
    )
    assert isinstance(quote(KINDS, epsilon=1, delta=DELTA).noise, DiscreteGaussianNoise)


def test_without_a_delta_bounds_are_bought_by_a_pure_mechanism_and_categories_are_not():
    offer = quote({"age": "integer", "smoker": "boolean"}, epsilon=1, delta=0)
    assert 0.99 < epsilon(flatten(offer.event), 0) <= 1
    with pytest.raises(ConfigError, match="delta"):
        quote({"colour": "categorical"}, epsilon=1, delta=0)


def test_what_is_declared_is_free_and_not_read():
    Watched.touched = staticmethod(lambda: pytest.fail("a column was read"))
    ledger = rehearsal()
    grade = Ordinal(name="grade", categories=(1, 2, 3, 4))
    schema = buy(
        Watched(toy(9)[0]),
        {"smoker": "boolean", "grade": grade},
        ledger=ledger,
        person="id",
    )
    assert schema.columns == (Boolean(name="smoker", nullable=True), grade)
    assert schema.person == "id"
    assert ledger.spent() == 0


# Privacy, by exact sums


def law(noise, reach):
    z = np.arange(-reach, reach + 1)
    b = float(noise.scale)
    weight = np.exp(
        -np.abs(z) / b
        if isinstance(noise, DiscreteLaplaceNoise)
        else -(z**2) / (2 * b**2)
    )
    return z, weight / weight.sum()


def shows(offer, count):
    """P(a value that `count` people have is released)."""
    z, p = law(offer.noise, 4000)
    return p[count + z >= offer.category_threshold].sum() if count else 0.0


@pytest.mark.parametrize("eps", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("lists", [1, 2, 6])
def test_a_value_of_one_person_alone_shows_with_a_probability_within_delta(eps, lists):
    offer = quote(
        {f"c{i}": "categorical" for i in range(lists)}, epsilon=eps, delta=DELTA
    )
    assert 0 < lists * shows(offer, 1) <= offer.reveals < DELTA
    z, p = law(offer.noise, 4000)
    one_lower = p[1 + z >= offer.category_threshold - 1].sum()
    # the threshold is no higher than it must be
    assert lists * one_lower > offer.reveals


def releases(offer, counts):
    """P(released set), for a column that holds these counts."""
    shown = [shows(offer, count) for count in counts]
    return np.array(
        [
            math.prod(p if bit else 1 - p for p, bit in zip(shown, bits, strict=True))
            for bits in product((0, 1), repeat=len(counts))
        ]
    )


@pytest.mark.parametrize("kinds", [1, 8], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("delta", [6e-7, 2e-6, 2e-4, 2e-2])
def test_releases_of_neighbouring_tables_differ_by_no_more_than_the_ledger_says(
    kinds, delta
):
    """Every set that a column of three values can release, with and without one
    person.
    """
    offer = quote(
        {f"c{i}": "categorical" for i in range(kinds)}, epsilon=1, delta=DELTA
    )
    single = [event for event in flatten(offer.event) if event != offer.noise.event]
    eps = epsilon({offer.noise.event: 1, single[0]: 1}, delta)
    near = offer.category_threshold
    for counts in [
        (0, 0, 0),
        (near - 1, 0, 3),
        (near, near, 1),
        (near + 9, 0, near - 9),
        (0, 1, 3 * near),
    ]:
        with_person = (counts[0] + 1, *counts[1:])
        p = releases(offer, counts)
        q = releases(offer, with_person)
        for one, other in ((p, q), (q, p)):
            assert np.maximum(one - math.exp(eps) * other, 0).sum() <= delta


def test_one_look_with_laplace_noise_keeps_its_ratio_but_for_the_revelation():
    offer = quote({"colour": "categorical"}, epsilon=1, delta=DELTA)
    ratio = math.exp(1 / offer.noise.scale)
    for count in range(1, 3 * offer.category_threshold):
        less = shows(offer, count)
        more = shows(offer, count + 1)
        assert more <= ratio * less * (1 + 1e-9)
        assert 1 - less <= ratio * (1 - more) * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize("count", [0.8, 0.95, 1.0, 1.1])
def test_values_are_released_as_often_as_the_sums_say(count):
    """Many values, each of equally many people: as many tables of one value."""
    offer = quote({"code": "categorical"}, epsilon=1, delta=DELTA)
    people = round(count * offer.category_threshold)
    values = 1500
    frame = pd.DataFrame({"code": np.repeat([f"v{i}" for i in range(values)], people)})
    shown = len(buy(frame, {"code": "categorical"}, seed=2).columns[0].categories) - 1
    assert binomtest(shown, values, shows(offer, people)).pvalue > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_a_person_moves_one_count_of_each_look_by_one(seed, monkeypatch):
    frame, _ = toy(60, seed)
    rows = looks(frame, KINDS, monkeypatch, person="id")
    frame.loc[0, "id"] = None  # rows without an id do not count
    fewer = looks(frame, KINDS, monkeypatch, person="id")
    assert len(rows) == len(fewer)
    for one, other in zip(rows, fewer, strict=True):
        if len(one) == len(other):  # not so where the person's value was of nobody else
            moves = np.subtract(one, other)
            assert set(moves.tolist()) <= {0, 1}
            assert moves.sum() <= 1


def test_of_a_person_with_many_rows_one_counts(monkeypatch):
    frame = pd.DataFrame(
        {"id": ["a"] * 9 + ["b", "", "NA", None], "age": [7] * 10 + [99] * 3}
    )
    (coarse, close) = looks(frame, {"age": "integer"}, monkeypatch, person="id")
    assert sum(coarse) == sum(close) == 2
    assert sum(looks(frame, {"age": "integer"}, monkeypatch)[0]) == 13


@pytest.mark.parametrize("delta", [1.5e-7, 1e-6])
def test_a_revelation_is_priced_at_its_whole_probability_whatever_it_is_composed_with(
    delta,
):
    """The true δ(ε) of "reveal with δ₀, else S": δ₀ + (1 − δ₀)·δ_S(ε − log(1 − δ₀))."""
    reveals = 1e-7
    event = Reveals(reveals)

    def gaussian(eps, sigma=4.0):
        return norm.cdf(0.5 / sigma - eps * sigma) - math.exp(eps) * norm.cdf(
            -0.5 / sigma - eps * sigma
        )

    def pure(eps, pure=0.7):
        return max(0.0, 1 - math.exp(eps - pure)) / (1 + math.exp(-pure))

    for use, curve in ((GaussianDpEvent(4.0), gaussian), (PureDp(0.7), pure)):
        eps = epsilon({use: 1, event: 1}, delta)
        assert reveals + (1 - reveals) * curve(eps - math.log1p(-reveals)) <= delta
    true = brentq(lambda eps: reveals + gaussian(eps) - 1e-6, 0, 9)
    assert true <= epsilon({GaussianDpEvent(4.0): 1, event: 1}, 1e-6) < 1.05 * true
    assert epsilon({event: 1}, reveals / 2) == math.inf
    assert epsilon({event: 1, PureDp(0.7): 1}, reveals) == 0.7
    assert event_from_json(event_to_json(event)) == event
    assert get_epsilon_gaussian(4.0, 1e-6) < true


# Use


def test_the_toy_table_is_bought_well_at_epsilon_one():
    frame, public = toy(3000)
    ledger = rehearsal()
    schema = buy(frame, KINDS, ledger=ledger, person="id")
    assert schema.names == public.names
    assert schema.column("colour") == Categorical(
        name="colour", categories=("blue", "green", "red", OTHER), nullable=True
    )
    assert (schema.column("grade").low, schema.column("grade").high) in {
        (0, 5),
        (0, 6),
        (1, 5),
        (1, 6),
    }
    wide = {"age": (-4, 160), "visits": (-4, 32), "income": (-1, 1600)}
    for name, (low, high) in wide.items():
        column = schema.column(name)
        assert low <= column.low < column.high <= high
        assert frame[name].dropna().between(column.low, column.high).mean() > 0.97
    assert date(2019, 1, 1) < schema.column("joined").low <= date(2020, 1, 1)
    assert date(2023, 6, 1) < schema.column("joined").high < date(2027, 1, 1)
    assert all(column.nullable for column in schema.columns)
    schema.require_public()
    assert "ε=1 at δ=1e-06" in schema.note
    assert "ledger of clinic" in schema.note


@pytest.mark.parametrize("seed", range(3))
def test_a_coarsened_table_fits_the_bought_schema(seed, tmp_path):
    frame, _ = toy(1500, seed)
    frame.loc[3:20, "colour"] = [f"rare {i}" for i in range(18)]
    frame.loc[5:7, "grade"] = (9, -4, 3)
    frame.loc[8:10, "age"] = (10**15, -(10**15), 40)
    frame.loc[11:13, "income"] = (math.inf, -math.inf, 1e300)
    frame.loc[14:15, "joined"] = pd.to_datetime(["1700-01-01", "2250-05-05"])
    frame.to_csv(tmp_path / "clinic.csv", index=False)
    schema = buy(frame, KINDS, seed=seed, person="id")
    assert any(violation.error for violation in check_table(frame, schema))
    fitted = coarsen(frame, schema)
    assert not [
        str(violation) for violation in check_table(fitted, schema) if violation.error
    ]
    table = read_table(fitted, schema)
    assert Codec(schema).codes(table.frame).shape == (1500, 8)
    assert (table.frame.loc[3:20, "colour"] == OTHER).all()
    grade = schema.column("grade")
    assert table.frame.loc[5:7, "grade"].tolist() == [
        min(9, grade.high),
        max(-4, grade.low),
        3,
    ]
    assert table.frame.loc[8, "age"] == schema.column("age").high
    income = schema.column("income")
    assert table.frame.loc[11:13, "income"].tolist() == [
        income.high,
        income.low,
        income.high,
    ]
    same = table.frame["income"].between(income.low, income.high, inclusive="neither")
    assert (table.frame["income"][same] == frame["income"][same]).all()
    from_file = read_table(coarsen(tmp_path / "clinic.csv", schema), schema)
    pd.testing.assert_frame_equal(from_file.frame, table.frame)


def test_a_file_and_a_frame_buy_the_same(tmp_path):
    frame, _ = toy(1500)
    frame.to_csv(tmp_path / "clinic.csv", index=False)
    frame.to_parquet(tmp_path / "clinic.parquet")
    bought = buy(frame, KINDS, person="id")
    assert buy(tmp_path / "clinic.csv", KINDS, person="id") == bought
    assert buy(tmp_path / "clinic.parquet", KINDS, person="id") == bought
    bought.save(tmp_path / "clinic.toml")
    assert Schema.load(tmp_path / "clinic.toml") == bought


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        ("integer", np.arange(5000) % 76 + 1930, 1860, 2060),  # years, far from zero
        ("real", 36.8 + 0.4 * np.sin(np.arange(5000)), 30, 44),  # temperatures
        ("real", 128 + 5 * np.sin(np.arange(5000)), 100, 156),  # about a power of two
        ("real", -52.3 + 0.2 * np.sin(np.arange(5000)), -56, -49),
        ("real", np.exp(np.sin(np.arange(5000)) * 5), 0, 256),
        ("integer", -(np.arange(5000) % 100), -152, 0),
    ],
)
def test_bounds_are_close_to_the_values_at_any_size(kind, values, low, high):
    column = buy(pd.DataFrame({"x": values}), {"x": kind}).columns[0]
    assert low <= column.low < column.high <= high
    assert np.mean((column.low <= values) & (values <= column.high)) > 0.97


def test_where_parts_are_too_small_to_show_most_people_stay_within_the_bounds():
    """2,500 people whose numbers lie all over two cells, and thirteen columns to pay
    for: one part shows by itself.
    """
    rng = np.random.default_rng(0)
    values = 0.55 + 0.15 * rng.standard_normal(2_500)
    values[:300] = 0.52  # many have this one
    frame = pd.DataFrame({f"x{n}": values for n in range(13)})
    for column in buy(frame, dict.fromkeys(frame, "real"), eps=0.5).columns:
        assert np.mean((column.low <= values) & (values <= column.high)) > 0.9


# Edges

ALONE = {
    "integer": 7,
    "real": 7.5,
    "date": "2020-02-02",
    "datetime": "2020-02-02 10:30:00",
    "categorical": "x",
}
EDGES = {
    "no rows": [],
    "one row": [7],
    "all missing": [None] * 900,
    "missing words": ["NA", "", "null"] * 300,
    "lists": [[1, 2]] * 900,
    "not finite": [math.inf, -math.inf, math.nan] * 300,
}


@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize("case", EDGES)
def test_a_column_in_which_nothing_shows_is_left_out_by_name(kind, case):
    if kind == "categorical" and case == "not finite":
        pytest.skip("inf is a text like any other")
    frame = pd.DataFrame({"x": pd.Series(EDGES[case], dtype=object), "b": True})
    schema = buy(frame, {"x": kind, "b": "boolean"})
    assert schema.names == ("b",)
    assert schema.note.endswith("Left out, as too few people share a value: x.")
    texts = buy(pd.DataFrame({"t": ["same"] * 500}), {"t": "categorical"})
    assert texts.note.endswith('Texts that too few people share are "(other)" in: t.')
    ledger = rehearsal()
    with pytest.raises(SchemaError, match="stays charged"):
        buy(frame, {"x": kind}, ledger=ledger)
    assert ledger.spent() > 0.9


@pytest.mark.parametrize("kind", ALONE)
def test_a_constant_column_is_bought_and_fits(kind):
    frame = pd.DataFrame({"x": [ALONE[kind]] * 900})
    schema = buy(frame, {"x": kind})
    assert schema.columns[0].kind == kind
    assert not [v for v in check_table(coarsen(frame, schema), schema) if v.error]
    if kind in ("integer", "real"):
        assert schema.columns[0].high - schema.columns[0].low < 4


@pytest.mark.parametrize(
    "value", [0, -1, 2**53, -(2**53), 2**80, 1e300, -1e300, 1e-200]
)
@pytest.mark.parametrize("kind", ["integer", "real"])
def test_values_of_any_size_give_a_sound_schema(kind, value):
    frame = pd.DataFrame({"x": [float(value)] * 900})
    schema = buy(frame, {"x": kind})
    wrong = [v for v in check_table(coarsen(frame, schema), schema) if v.error]
    assert not wrong or (kind == "integer" and value == 1e-200)


def test_what_is_not_of_the_kind_is_left_for_the_check_to_name():
    frame = pd.DataFrame({"age": ["40"] * 900 + ["old", "40.5"]})
    schema = buy(frame, {"age": "integer"})
    assert [
        v.value for v in check_table(coarsen(frame, schema), schema) if v.error
    ] == ["old", "40.5"]


def test_numbers_that_are_codes_are_texts_and_codes_keep_their_zeros(tmp_path):
    (tmp_path / "t.csv").write_text("code\n" + "007\n" * 500 + "1\n" * 500)
    assert buy(tmp_path / "t.csv", {"code": "categorical"}).columns[0].categories == (
        "007",
        "1",
        OTHER,
    )
    frame = pd.DataFrame({"code": [1.0, 2.0, None] * 400})
    schema = buy(frame, {"code": "categorical"})
    assert schema.columns[0].categories == ("1", "2", OTHER)
    assert Counter(coarsen(frame, schema)["code"].dropna()) == {"1": 400, "2": 400}


def test_a_broken_line_of_a_file_is_not_coarsened_away(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 500 + "1\n")
    schema = buy(tmp_path / "t.csv", {"a": "integer", "b": "integer"})
    with pytest.raises(SchemaError, match="1 cells"):
        coarsen(tmp_path / "t.csv", schema)


def test_times_are_bought_as_whole_days_by_the_second():
    seen = pd.date_range("2021-03-01 09:30", "2021-05-30 18:45", periods=3000)
    days, times = (
        buy(pd.DataFrame({"x": seen}), {"x": kind}, seed=4).column("x")
        for kind in ("date", "datetime")
    )
    assert (times.low.date(), times.high.date()) == (days.low, days.high)
    assert (str(times.low.time()), str(times.high.time()), times.resolution) == (
        "00:00:00",
        "23:59:59",
        "second",
    )


def test_days_in_a_form_have_the_bounds_of_the_same_days_and_keep_their_form() -> None:
    days = pd.Series(pd.date_range("1950-01-01", "1990-12-31", periods=4000))
    iso, written = (
        pd.DataFrame({"born": days.dt.strftime(form)})
        for form in ("%Y-%m-%d", "%d.%m.%Y")
    )
    (plain,), (formed,) = (
        buy(frame, {"born": kind}, seed=3).columns
        for frame, kind in ((iso, "date"), (written, "date DD.MM.YYYY"))
    )
    assert formed == replace(plain, written="DD.MM.YYYY")
    assert not check_table(
        coarsen(written, Schema(columns=(formed,))), Schema(columns=(formed,))
    )


def test_numbers_in_a_form_have_the_bounds_of_the_same_numbers_and_keep_their_form():
    numbers = np.linspace(0, 80, 4000).round(1)
    (plain,) = buy(pd.DataFrame({"x": numbers}), {"x": "real"}, seed=3).columns
    texts = [f"{number:.1f} %".replace(".", ",") for number in numbers]
    assert buy(pd.DataFrame({"x": texts}), {"x": "real 0,0 %"}, seed=3).columns == (
        replace(plain, written="0,0 %"),
    )


@pytest.mark.parametrize("kind", ["date DD.MM", "real DD.MM.YYYY", "date  DD.MM.YYYY"])
def test_a_form_that_is_none_is_refused_before_anything_is_charged(kind: str) -> None:
    ledger = rehearsal()
    with pytest.raises(ConfigError, match="is written"):
        buy(pd.DataFrame({"born": ["01.02.1990"]}), {"born": kind}, ledger=ledger)
    assert len(ledger.entries()) == 1  # its budget alone


def test_numbers_with_a_decimal_comma_are_bought_and_fitted_as_those_with_a_point(
    tmp_path,
):
    rng = np.random.default_rng(5)
    numbers = rng.normal(40, 5, 3000).round(1)
    numbers[0] = 9000.5
    whole = rng.poisson(2000, 3000)
    points = "".join(f"{x};{n};a\n" for x, n in zip(numbers, whole, strict=True))
    commas = "".join(
        f"{x:.1f};{n:,};a\n".replace(",", "'")
        for x, n in zip(numbers, whole, strict=True)
    )
    commas = commas.replace(".", ",").replace("'", ".")
    (tmp_path / "points.csv").write_text(f"x;n;c\n{points}")
    (tmp_path / "commas.csv").write_text(f"x;n;c\n{commas}")
    kinds = {"x": "real", "n": "integer", "c": "categorical"}
    wanted = buy(tmp_path / "points.csv", kinds)
    source = TableSource(table=str(tmp_path / "commas.csv"), decimal=",")
    found = buy(source, kinds)
    assert found.columns == wanted.columns
    assert found.column("x").high < 9000
    fitted = [
        read_table(coarsen(one, found), found).frame
        for one in (source, tmp_path / "points.csv")
    ]
    pd.testing.assert_frame_equal(*fitted)
    (tmp_path / "commas.csv").write_text(f"x;n;c\n{commas}no number;1;a\n")
    # what is no number is not counted
    assert buy(source, kinds).columns == wanted.columns
    (wrong,) = check_table(coarsen(source, found), found)
    assert (wrong.row, wrong.value) == (3001, "no number")


def test_a_time_of_day_costs_nothing_and_is_read_as_it_is_written():
    table = pd.DataFrame({"at": ["14:30", "08:05", None] * 400, "n": range(1200)})
    draft = infer_schema(table)
    kinds = {column.name: as_bought(column) for column in draft.columns}
    assert quote(kinds, epsilon=1, delta=0) == quote(
        {"n": "integer"}, epsilon=1, delta=0
    )
    bought = buy(table, kinds)
    assert bought.column("at") == replace(draft.column("at"), nullable=True)
    assert read_table(coarsen(table, bought), bought).frame["at"][0] == 870


@pytest.mark.parametrize("person", [None, "id"])
def test_a_long_table_is_bought_column_by_column_for_the_same_schema(
    tmp_path, monkeypatch, person
):
    frame, _ = toy(rows=4000, seed=2)
    # some nobodies, and three rows a person
    frame["id"] = [None if n % 50 == 0 else n // 3 for n in range(4000)]
    frame.to_parquet(tmp_path / "t.parquet")
    bought = []
    for most in (10**9, 0):
        monkeypatch.setattr(files, "LONG", most)
        monkeypatch.setattr(files, "BATCH", 333)
        bought.append(
            buy(tmp_path / "t.parquet", KINDS, eps=4.0, person=person).columns
        )
    assert bought[0] == bought[1]
