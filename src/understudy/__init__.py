"""Private synthetic rows and models from data that must not leave its holders.

Several holders obtain one synthetic table from rows that never leave them, at a price
that is written into each holder's ledger before anything is sent. Start with
`synthesize` for one table, with `Federation` and `train` for several holders.

A name is imported when it is first asked for, so that what needs none of them, as
`understudy --help`, starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.api.plan import plan
    from understudy.api.synthesize import synthesize
    from understudy.api.synthesizer import Synthesizer, SyntheticClassifier
    from understudy.api.train import train
    from understudy.data.encoding.population import Population
    from understudy.data.infer import infer_schema
    from understudy.data.reading.writing import quote_formulas
    from understudy.data.schema import (
        Boolean,
        Categorical,
        Date,
        Datetime,
        Integer,
        Ordinal,
        Real,
        Schema,
    )
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
    "OneOf",
    "Ordinal",
    "Population",
    "Real",
    "Result",
    "Schema",
    "Synthesizer",
    "SyntheticClassifier",
    "UnderstudyError",
    "evaluate",
    "infer_schema",
    "load",
    "plan",
    "quote_formulas",
    "synthesize",
    "train",
]

_HOMES = {
    "api.plan": ["plan"],
    "api.synthesize": ["synthesize"],
    "api.synthesizer": ["SyntheticClassifier", "Synthesizer"],
    "api.train": ["train"],
    "data.encoding.population": ["Population"],
    "data.infer": ["infer_schema"],
    "data.reading.writing": ["quote_formulas"],
    "data.schema": [
        "Boolean",
        "Categorical",
        "Date",
        "Datetime",
        "Integer",
        "OneOf",
        "Ordinal",
        "Real",
        "Schema",
    ],
    "generators.classifier": ["Classifier"],
    "generators.generator": ["Generator"],
    "ground.errors": ["UnderstudyError"],
    "privacy.accounts.budget": ["Budget"],
    "privacy.accounts.ledger": ["Ledger"],
    "runs.federation": ["Federation"],
    "runs.result": ["Result", "load"],
}
_FROM = {name: home for home, names in _HOMES.items() for name in names}

# a type checker would believe in any name of a module that has a __getattr__
if not TYPE_CHECKING:

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
