"""Tests of one case follow one another: a worker trains the undisturbed runs of few
cases.
"""

import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

HERE = Path(__file__).parent
KNOWN: dict[bytes, Any] = {}


class ByContent(pickle.Pickler):
    """Equal bytes for equal tensors, wherever they lie."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return NotImplemented
        return tuple, ((str(value.dtype), tuple(value.shape), value.numpy().tobytes()),)


@pytest.fixture(scope="module", autouse=True)
def released_once() -> Iterator[None]:
    """What noisy tables and reports say follows from these alone, and the runs of one
    case have the same ones.
    """
    from understudy.models.tables import fit_gram
    from understudy.models.visits import fit as fit_visits
    from understudy.protocols.gram import fit as gram_fit
    from understudy.protocols.one_report import protocol as one_report
    from understudy.protocols.papers.vertical_gans import coupling

    def once(function: Callable[..., Any]) -> Callable[..., Any]:
        def known(*given: Any, **more: Any) -> Any:
            key = io.BytesIO()
            ByContent(key).dump((function.__name__, given, more))
            if key.getvalue() not in KNOWN:
                KNOWN[key.getvalue()] = function(*given, **more)
            return KNOWN[key.getvalue()]

        return known

    with pytest.MonkeyPatch.context() as patch:
        for module in (fit_gram, fit_visits, coupling, gram_fit):
            patch.setattr(module, "read_tables", once(module.read_tables))
        patch.setattr(one_report, "one_ways", once(one_report.one_ways))
        yield


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
    params = (
        item.callspec.params
        if hasattr(item, "callspec") and item.path.parent == HERE
        else {}
    )
    return getattr(params.get("case"), "name", "")
