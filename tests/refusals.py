"""Errors in tests: by their class and by what had happened to the data."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from understudy.ground.errors import Effect


@contextmanager
def raises(
    error: type[BaseException] | tuple[type[BaseException], ...],
    *,
    effect: Effect,
    match: str | None = None,
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """`pytest.raises`, of an error with this effect. `match` is for the names and
    values that a message has to say.
    """
    with pytest.raises(error, match=match) as raised:
        yield raised
    assert raised.value.effect is effect


class NothingDrawn:
    """A source of randomness for what must be refused before anything is drawn."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was drawn")
