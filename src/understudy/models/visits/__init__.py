"""People with many rows: the released tables, and the mixture of kinds of people that is fitted to them."""

from understudy.models.visits.chains import ChainTables, MixtureOfChains
from understudy.models.visits.fit import fit_together, fit_visits
from understudy.models.visits.tables import VisitTables, VisitTies
from understudy.models.visits.together import ChainsTogether

__all__ = [
    "ChainTables",
    "ChainsTogether",
    "MixtureOfChains",
    "VisitTables",
    "VisitTies",
    "fit_together",
    "fit_visits",
]
