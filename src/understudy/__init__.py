"""Private synthetic rows and models from data that must not leave its holders.

Several holders obtain one synthetic table from rows that never leave them, at a price that is written into
each holder's ledger before anything is sent. Start with `synthesize` for one table, with `Federation` and `train` for
several holders.

A name is imported when it is first asked for, so that what needs none of them, as `understudy --help`, starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.api.plan import plan
    from understudy.api.synthesize import synthesize
    from understudy.api.train import train
    from understudy.data.encoding.population import Population
    from understudy.data.infer import infer_schema
    from understudy.data.schema import Boolean, Categorical, Date, Datetime, Integer, Ordinal, Real, Schema
    from understudy.evaluate.comparison import evaluate
    from understudy.generators.classifier import Classifier
    from understudy.generators.generator import Generator
    from understudy.ground.errors import UnderstudyError
    from understudy.privacy.accounts.budget import Budget
    from understudy.privacy.accounts.ledger import Ledger
    from understudy.runs.federation import Federation
    from understudy.runs.result import Result, load

    __version__: str

__all__ = [
    "Boolean",
    "Budget",
    "Categorical",
    "Classifier",
    "Date",
    "Datetime",
    "Federation",
    "Generator",
    "Integer",
    "Ledger",
    "Ordinal",
    "Population",
    "Real",
    "Result",
    "Schema",
    "UnderstudyError",
    "evaluate",
    "infer_schema",
    "load",
    "plan",
    "synthesize",
    "train",
]

_FROM = {
    "Boolean": "data.schema",
    "Budget": "privacy.accounts.budget",
    "Categorical": "data.schema",
    "Classifier": "generators.classifier",
    "Date": "data.schema",
    "Datetime": "data.schema",
    "Federation": "runs.federation",
    "Generator": "generators.generator",
    "Integer": "data.schema",
    "Ledger": "privacy.accounts.ledger",
    "Ordinal": "data.schema",
    "Population": "data.encoding.population",
    "Real": "data.schema",
    "Result": "runs.result",
    "Schema": "data.schema",
    "UnderstudyError": "ground.errors",
    "infer_schema": "data.infer",
    "load": "runs.result",
    "plan": "api.plan",
    "synthesize": "api.synthesize",
    "train": "api.train",
}

if not TYPE_CHECKING:  # a type checker would believe in any name of a module that has a __getattr__

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = import_module("importlib.metadata").version(__name__)
        elif name == "evaluate":  # a package that can be called
            value = import_module(f"{__name__}.evaluate")
        elif name in _FROM:
            value = getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "__version__"})
