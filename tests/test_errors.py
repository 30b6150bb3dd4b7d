"""What an error did to the data is said as data, and in one sentence."""

import ast
import pickle
from pathlib import Path

import pytest

from understudy.ground import errors
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    ExchangeError,
    PartyError,
    UnderstudyError,
)
from understudy.runtime.wire import refusal, spoken_bytes

SOURCE = Path(errors.__file__).parents[1]


@pytest.mark.parametrize("effect", Effect)
def test_the_effect_is_the_last_sentence_and_survives_every_way_of_travel(
    effect: Effect,
) -> None:
    error = BudgetExceeded("clinic: this step costs ε=1.", effect=effect)
    assert str(error) == f"clinic: this step costs ε=1. {effect.value}"
    for other in (
        pickle.loads(pickle.dumps(error)),  # noqa: S301  (its own bytes)
        UnderstudyError.from_dict(error.to_dict()),
        refusal("clinic", spoken_bytes("clinic", error)),
        error.restated(error.message),
    ):
        assert type(other) is BudgetExceeded
        assert (str(other), other.effect) == (str(error), effect)


def test_an_error_without_an_effect_takes_the_default_of_who_restates_it() -> None:
    bare = ConfigError("rounds must be above 0.")
    assert (str(bare), bare.effect) == ("rounds must be above 0.", None)
    default = Effect.NOTHING_CHARGED_OR_SENT
    assert bare.restated("a: no.", default=default).effect is default
    known = ConfigError("no.", effect=Effect.NOTHING_READ)
    assert known.restated("a: no.", default=default).effect is Effect.NOTHING_READ


def test_an_error_that_takes_more_than_a_message_can_be_restated() -> None:
    error = ExchangeError(429, "too many.", effect=Effect.NOTHING_STORED, retry_after=1)
    other = error.restated("far too many.")
    assert str(other) == "far too many. Nothing was stored."
    assert (other.status, other.retry_after) == (429, 1)


@pytest.mark.parametrize("kind", ["ExchangeError", "Effect", "Mapping", "no such"])
def test_a_peer_chooses_no_class_but_an_error_of_one_message(kind: str) -> None:
    error = UnderstudyError.from_dict({"kind": kind, "text": "x", "effect": "y"})
    assert type(error) is PartyError
    assert (str(error), error.effect) == ("x", None)


def test_no_message_of_an_error_types_its_effect_by_hand() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, UnderstudyError)
    }
    assert {ArtefactError.__name__, ConfigError.__name__} <= kinds
    endings = tuple(effect.value for effect in Effect)
    typed = [
        f"{path.relative_to(SOURCE)}:{call.lineno}"
        for path in SOURCE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in kinds
        for text in _texts(call)
        if text.endswith(endings)
    ]
    assert not typed


def _texts(call: ast.Call) -> list[str]:
    return [
        part.value
        for argument in call.args
        for part in ast.walk(argument)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
