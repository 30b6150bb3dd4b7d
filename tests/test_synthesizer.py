"""`Synthesizer` and `SyntheticClassifier`: `synthesize` in the shape of scikit-learn's
estimators, at the same price.
"""

import contextlib
import inspect
import io
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import understudy as us
from pages import blocks
from refusals import raises
from understudy.api import synthesizer as module
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    LedgerError,
    SchemaError,
)
from understudy.protocols.gram.protocol import Config as Gram

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings(
        "ignore::understudy.ground.errors.PrivacyWarning",
        "ignore::understudy.ground.errors.UtilityWarning",
    ),
]
PEOPLE = 900
FEW = {"components": 16, "steps": 20}


def table(seed: int = 3) -> pd.DataFrame:
    """Ill people are older; one person has a colour, and a weight, of their own."""
    rng = np.random.default_rng(seed)
    ill = rng.random(PEOPLE) < 0.4
    colour = np.where(rng.random(PEOPLE) < 0.5, "red", "blue").astype(object)
    colour[0] = "the only mauve"
    weight = rng.normal(70, 10, PEOPLE).round(1)
    weight[0] = 9_999.5
    age = (30 + 30 * ill + 8 * rng.normal(size=PEOPLE)).astype(int).clip(0, 110)
    words = np.where(ill, "yes", "no").astype(object)
    return pd.DataFrame({"age": age, "colour": colour, "weight": weight, "ill": words})


FRAME = table()
X = FRAME[["age", "colour", "weight"]]
Y = FRAME["ill"]
SCHEMA = us.Schema(
    columns=(
        us.Integer(name="age", low=0, high=110, bins=11),
        us.Categorical(name="ill", categories=("no", "yes")),
    )
)


@pytest.fixture
def drawn_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as anybody has: a classifier learns nothing from few."""
    monkeypatch.setitem(us.Generator.classifier.__kwdefaults__, "rows", 20_000)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def bought(
    tmp_path_factory: pytest.TempPathFactory,
) -> us.SyntheticClassifier:
    """Fitted to a frame of which nothing was declared."""
    home = tmp_path_factory.mktemp("bought")
    made = us.SyntheticClassifier(
        epsilon=8, delta=1e-5, target="ill", name="people", ledgers=home, settings=FEW
    )
    return made.fit(X, Y)


def declared(**more: Any) -> us.SyntheticClassifier:
    parameters: dict[str, Any] = {"schema": SCHEMA, "target": "ill", "settings": FEW}
    return us.SyntheticClassifier(**{"epsilon": 1, **parameters, **more})


# Parameters


def test_the_parameters_are_the_keywords_of_synthesize() -> None:
    theirs = inspect.signature(us.synthesize).parameters
    ours = inspect.signature(us.Synthesizer).parameters
    of_one_run = {"source", "watch", "folder", "rows", "holdout"}
    of_protocols = {"target", "public_people"}
    assert ours.keys() == theirs.keys() - of_one_run | of_protocols
    assert {one.kind for one in ours.values()} == {inspect.Parameter.KEYWORD_ONLY}
    for name in ours.keys() & theirs.keys() - {"settings"}:
        assert ours[name].default == theirs[name].default
        assert ours[name].annotation == theirs[name].annotation
    fields = inspect.signature(Gram).parameters
    assert all(fields[name].default is None for name in of_protocols)


class SomeResult:
    def __init__(self, generator: str) -> None:
        self.generator = generator


def test_fit_hands_each_parameter_to_synthesize_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    def noted(source: Any, **keywords: Any) -> SomeResult:
        given.update(keywords, source=source)
        return SomeResult("a generator")

    monkeypatch.setattr(module, "synthesize", noted)
    names = inspect.signature(us.Synthesizer).parameters.keys() - {"settings"}
    parameters: dict[str, Any] = {name: object() for name in names}
    made = us.Synthesizer(**parameters, settings={"components": 5})
    watch: Any = object()
    assert made.fit(FRAME, watch=watch) is made
    assert given.pop("source") is FRAME
    assert given.pop("watch") is watch
    assert given.pop("components") == 5
    assert given.keys() == parameters.keys()
    assert all(given[name] is value for name, value in parameters.items())
    assert made.generator_ == "a generator"


@pytest.mark.long
@pytest.mark.parametrize("kind", [us.Synthesizer, us.SyntheticClassifier])
def test_parameters_come_back_and_are_cloned_without_what_was_fitted(
    kind: type[us.Synthesizer], bought: us.SyntheticClassifier
) -> None:
    parameters = {
        "epsilon": 2.0,
        "kinds": {"age": "integer", "ill": us.Boolean(name="ill")},
        "settings": {"components": 4},
        "missing": ("?",),
    }
    made = kind(**parameters)  # type: ignore[arg-type]
    for name, value in parameters.items():
        assert made.get_params()[name] is value
    other = kind(epsilon=1).set_params(**made.get_params())
    assert other.get_params() == made.get_params()
    assert clone(made).get_params() == made.get_params()
    assert "generator_" not in vars(clone(bought))
    with pytest.raises(TypeError, match="epsilom"):
        kind(epsilom=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="epsilom"):
        made.set_params(epsilom=1)
    with pytest.raises(NotFittedError):
        made.sample(1)


def test_nothing_is_looked_at_before_fit() -> None:
    made = us.Synthesizer(epsilon=-1, schema="no such file", settings={"no": "setting"})
    assert made.get_params()["epsilon"] == -1
    assert list(Path().iterdir()) == []
    with pytest.raises(SchemaError, match="no such file"):
        made.fit(FRAME)


def test_settings_that_are_parameters_already_are_refused() -> None:
    made = us.Synthesizer(epsilon=1, target="ill", settings={"target": "age"})
    with pytest.raises(TypeError, match="target"):
        made.fit(FRAME)


# Prices


def test_each_fit_is_charged_and_the_next_one_refused_where_nothing_is_left() -> None:
    made = us.Synthesizer(epsilon=1, schema=SCHEMA, name="people", settings=FEW)
    drawn = made.fit(FRAME[["age", "ill"]]).sample(20, seed=1)
    with us.Ledger("ledgers/people.ledger") as ledger:
        assert ledger.budget.epsilon == 1
        assert made.privacy_.epsilon() == ledger.spent() > 0.9
        with raises(BudgetExceeded, effect=Effect.NOTHING_CHARGED):
            clone(made).fit(FRAME[["age", "ill"]])
        with pytest.raises(BudgetExceeded):
            made.fit(FRAME[["age", "ill"]])
        assert ledger.runs() == ledger.runs()[:1]
    assert made.sample(20, seed=1).equals(drawn)


def test_a_frame_without_a_name_is_not_fitted_twice() -> None:
    made = us.Synthesizer(epsilon=1, schema=SCHEMA, lifetime_epsilon=9, settings=FEW)
    made.fit(FRAME[["age", "ill"]])
    with pytest.raises(LedgerError, match="name="):
        made.fit(FRAME[["age", "ill"]])


def test_folds_compose_in_one_ledger() -> None:
    made = declared(name="people", lifetime_epsilon=2)
    scores = cross_val_score(made, X, Y, cv=2)
    assert np.isfinite(scores).all()
    with us.Ledger("ledgers/people.ledger") as ledger:
        assert len(ledger.runs()) == 2
        assert 1 < ledger.spent() <= 2


def test_folds_beyond_the_lifetime_of_the_ledger_are_refused() -> None:
    with pytest.warns(FitFailedWarning, match="BudgetExceeded"):
        scores = cross_val_score(declared(name="people"), X, Y, cv=2)
    assert np.isnan(scores).tolist() == [False, True]
    with us.Ledger("ledgers/people.ledger") as ledger:
        assert ledger.spent() <= 1


@pytest.mark.long
def test_a_ledger_has_room_for_three_folds_that_look_for_texts() -> None:
    made = us.SyntheticClassifier(
        epsilon=1, target="ill", name="people", lifetime_epsilon=5, settings=FEW
    )
    with pytest.warns(FitFailedWarning, match="BudgetExceeded"):
        scores = cross_val_score(made, X[["age"]], Y, cv=5)
    assert np.isnan(scores).tolist() == [False] * 3 + [True] * 2
    with us.Ledger("ledgers/people.ledger") as ledger:
        assert len(ledger.runs()) == 3
        assert ledger.spent() < 3


# scikit-learn


@pytest.mark.long
@pytest.mark.usefixtures("drawn_rows")
def test_it_is_a_classifier_in_a_pipeline_and_in_a_search() -> None:
    younger = FunctionTransformer(lambda rows: rows.assign(age=rows["age"] // 2))
    made = declared(name="people", lifetime_epsilon=30, epsilon=8)
    assert is_classifier(made)
    pipeline = Pipeline([("younger", younger), ("classifier", made)])
    pipeline.fit(X, Y)
    assert pipeline.classes_.tolist() == ["no", "yes"]
    proba = pipeline.predict_proba(X)
    assert proba.shape == (PEOPLE, 2)
    assert proba.sum(axis=1) == pytest.approx(1)
    said = pipeline.predict(X)
    assert (said == pipeline.classes_[proba.argmax(axis=1)]).all()
    assert pipeline.score(X, Y) == (said == Y).mean() > 0.8
    search = GridSearchCV(
        pipeline, {"classifier__epsilon": [8]}, cv=2, scoring="roc_auc", refit=False
    ).fit(X, Y)
    assert search.best_score_ > 0.8


def test_y_is_the_target_by_position_and_the_same_as_a_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[pd.DataFrame] = []

    def noted(source: Any, **_: Any) -> SomeResult:
        given.append(source)
        return SomeResult("a generator")

    monkeypatch.setattr(module, "synthesize", noted)
    made = us.Synthesizer(epsilon=1, target="ill")
    some = X.iloc[5:9]
    for y in (Y.iloc[5:9], Y.iloc[5:9].to_numpy(), Y.iloc[5:9].reset_index(drop=True)):
        made.fit(some, y)
        pd.testing.assert_frame_equal(given.pop(), FRAME.iloc[5:9])
    made.fit(pl.DataFrame(some.to_dict("list")), Y.iloc[5:9])
    plain = FRAME.iloc[5:9].reset_index(drop=True)
    pd.testing.assert_frame_equal(given.pop(), plain)
    assert [*X] == ["age", "colour", "weight"]


@pytest.mark.parametrize(
    ("x", "y", "parameters", "said"),
    [
        (X, Y, {"target": None}, "which column"),
        (X, None, {}, "declare them"),
        (FRAME, Y, {}, "give one of them"),
        (X.to_numpy(), Y, {}, "columns have names"),
        (X, Y[1:], {}, "one label for each row"),
        (X, Y.to_frame(), {}, "one label for each row"),
        (X, (Y == "yes").astype(int), {}, "declare them"),
        (X, (Y == "yes").astype(int).astype("category"), {}, "declare them"),
        (FRAME, None, {"target": "age"}, "declare them"),
        (FRAME, None, {"target": "age", "schema": SCHEMA}, "declare them"),
        (FRAME, None, {"kinds": {"ill": us.Real(name="ill")}}, "declare them"),
        (FRAME, None, {"kinds": {"ill": "real .2"}}, "declare them"),
        ("people.csv", None, {}, "declare them"),
    ],
)
def test_what_cannot_be_classes_is_refused_before_anything_is_charged(
    x: Any, y: Any, parameters: dict[str, Any], said: str
) -> None:
    made = us.SyntheticClassifier(**{"epsilon": 1, "target": "ill", **parameters})
    with raises(ConfigError, effect=Effect.NOTHING_READ_OR_CHARGED, match=f"{said}"):
        made.fit(x, y)
    assert not Path("ledgers").exists()


@pytest.mark.long
@pytest.mark.usefixtures("drawn_rows")
def test_classes_that_are_numbers_are_predicted_as_numbers_where_they_are_declared():
    classes = us.Categorical(name="ill", categories=(0, 1))
    kinds = {"age": us.Integer(name="age", low=0, high=110), "ill": classes}
    made = us.SyntheticClassifier(epsilon=8, target="ill", kinds=kinds, settings=FEW)
    said = made.fit(X[["age"]], (Y == "yes").astype(int))
    assert said.classes_.tolist() == [0, 1]
    assert said.score(X, (Y == "yes").astype(int)) > 0.8


def test_rows_outside_of_bought_bounds_are_predicted_and_no_rare_class_ever(
    bought: us.SyntheticClassifier,
) -> None:
    schema: Any = bought.generator_.schema
    assert "(other)" in schema.column("ill").categories
    assert bought.classes_.tolist() == ["no", "yes"]
    high = schema.column("weight").high
    within, beyond = (
        bought.predict_proba(X.assign(weight=weight)) for weight in (high, 2 * high)
    )
    assert (within == beyond).all()
    assert within.sum(axis=1) == pytest.approx(1)


# What is left


def test_fit_leaves_what_was_released_and_what_follows_from_it(
    bought: us.SyntheticClassifier,
) -> None:
    left = vars(bought).keys() - bought.get_params().keys()
    assert left == {"generator_", "classifier_", "classes_"}
    pickled = pickle.dumps(bought)
    own = [b"mauve", *(struct.pack(form, 9_999.5) for form in ("<d", ">d"))]
    assert not [mark for mark in own if mark in pickled]
    rebuilt = bought.generator_.classifier("ill")
    assert (
        rebuilt.predict_proba(X.iloc[1:9].assign(weight=70.0))
        == bought.classifier_.predict_proba(X.iloc[1:9].assign(weight=70.0))
    ).all()


def test_what_is_loaded_draws_and_predicts_the_same(
    bought: us.SyntheticClassifier,
) -> None:
    there = us.SyntheticClassifier.load(bought.save("made"))
    drawn = bought.sample(50, where="age >= 40", seed=4)
    assert there.sample(50, where="age >= 40", seed=4).equals(drawn)
    assert (there.predict_proba(X) == bought.predict_proba(X)).all()
    assert there.privacy_.to_dict() == bought.privacy_.to_dict()
    assert (
        us.Synthesizer.load("made").sample(50, where="age >= 40", seed=4).equals(drawn)
    )
    assert us.Generator.load("made").sample(9, seed=1).equals(bought.sample(9, seed=1))
    plain = bought.get_params() | {"ledgers": str(bought.ledgers)}
    assert there.get_params() == plain | {"missing": [], "without": []}


def test_schemas_and_columns_among_the_parameters_come_back(
    bought: us.SyntheticClassifier,
) -> None:
    kinds = {"age": "integer", "ill": us.Categorical(name="ill", categories=(0, 1))}
    parameters = {"schema": SCHEMA, "kinds": kinds, "one_of": [["a", "b"]]}
    made = us.Synthesizer(epsilon=1, **parameters)  # type: ignore[arg-type]
    made.generator_ = bought.generator_
    there = us.Synthesizer.load(made.save("made")).get_params()
    assert {name: there[name] for name in parameters} == parameters


@pytest.mark.parametrize("text", ["", "[]", '{"epsilon": 1, "no": 2}', '{"kinds": 1}'])
def test_a_damaged_folder_is_refused(text: str, bought: us.SyntheticClassifier) -> None:
    file = bought.save("made") / module.PARAMETERS
    assert json.loads(file.read_text())["epsilon"] == 8
    file.write_text(text)
    with pytest.raises(ArtefactError, match="damaged"):
        us.Synthesizer.load("made")
    with pytest.raises(ArtefactError, match="missing"):
        us.Synthesizer.load("elsewhere")


@pytest.mark.long
def test_the_page_prints_what_folds_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FEW.items():
        monkeypatch.setitem(Gram.__init__.__kwdefaults__, name, value)  # type: ignore[index]
    program, printed = [block.text for block in blocks("api.md")]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "api.md", "exec"), {})  # noqa: S102
    assert said.getvalue() == printed
