"""Private stand-ins for data that cannot leave home.

Several holders obtain one synthetic table from rows that never leave them, at a price that is written into
each holder's ledger before anything is sent. Start with `Federation` and `train`.
"""

from importlib.metadata import version

from understudy.classifier import Classifier
from understudy.data.population import Population
from understudy.data.schema import Boolean, Categorical, Date, Integer, Ordinal, Real, Schema
from understudy.errors import UnderstudyError
from understudy.federation import Federation
from understudy.generator import Generator
from understudy.privacy.budget import Budget
from understudy.privacy.ledger import Ledger
from understudy.run import Result, train

__version__ = version("understudy")

__all__ = [
    "Boolean",
    "Budget",
    "Categorical",
    "Classifier",
    "Date",
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
    "train",
]
