"""A setting is declared once, and what is checked, kept and printed follows from
that.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from understudy.ground.errors import ConfigError
from understudy.ground.settings import (
    TRUTH,
    WHOLE,
    Declared,
    Takes,
    between,
    choice,
    declared,
    listed,
    setting,
    whole_to,
)
from understudy.runs.registry import PROTOCOLS


@dataclass(frozen=True, kw_only=True)
class Base(Declared):
    rounds: int = setting(5, whole_to(10), "rounds")
    share: float | None = setting(None, between(0, 1), "a share")
    way: str = setting("plain", choice("plain", "other"), "how")
    sizes: tuple[int, ...] = setting(
        (1,), listed("a list", lambda **named: None), "sizes"
    )
    loud: bool = setting(False, TRUTH, "loud")


@dataclass(frozen=True, kw_only=True)
class Longer(Base):
    rounds: int = 8
    doubled: int = setting(
        1, Takes("any", convert=lambda value: 2 * value), "kept in another way"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rounds": 11}, "rounds must lie between 1 and 10, not 11"),
        ({"rounds": 1.5}, "rounds must be a whole number"),
        ({"rounds": None}, "rounds must be a whole number"),
        ({"share": 1.5}, "share must lie between 0 and 1"),
        ({"share": float("nan")}, "share must lie between 0 and 1"),
        ({"way": "othr"}, 'Did you mean "other"?'),
        ({"sizes": 3}, "sizes must be a list"),
        ({"loud": 1}, "loud must be true or false"),
    ],
)
@pytest.mark.parametrize("config", [Base, Longer])
def test_a_value_that_is_not_declared_is_refused_by_name(
    config: type[Base], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**settings)
    assert said in str(refused.value)


def test_none_is_taken_where_it_is_the_default_and_lists_are_kept_as_tuples() -> None:
    assert Base(share=None, sizes=[2, 3]) == Base(sizes=(2, 3))  # type: ignore[arg-type]
    assert Longer(doubled=4).doubled == 8


def test_another_default_needs_no_other_declaration() -> None:
    assert Longer().rounds == 8
    assert declared(Longer, "rounds") == declared(Base, "rounds")


def test_a_large_bound_is_checked_and_not_said() -> None:
    assert whole_to(1 << 20).description == WHOLE.description
    with pytest.raises(ConfigError, match="between 1 and 1048576"):
        whole_to(1 << 20).validate("rows", 1 << 21)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_setting_of_a_protocol_is_declared(protocol: str) -> None:
    record: Any = PROTOCOLS[protocol]
    for name in record.settings:
        takes, meaning = declared(record.config, name)
        assert takes.description, name
        assert meaning, name
