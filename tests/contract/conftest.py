"""Tests of one case follow one another: a worker trains the undisturbed runs of few cases."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)  # after the order that fixtures ask for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first: dict[str, int] = {}
    places = {
        item: first.setdefault(name, place) if (name := case_of(item)) else place
        for place, item in enumerate(items)
    }
    items.sort(key=places.__getitem__)


def case_of(item: pytest.Item) -> str:
    """The name of the case that a test of the contract is about."""
    params = item.callspec.params if hasattr(item, "callspec") and item.path.parent == HERE else {}
    return getattr(params.get("case"), "name", "")
