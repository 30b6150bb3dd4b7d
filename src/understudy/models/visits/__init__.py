"""People with many rows: the released tables, and the mixture of kinds of people that is fitted to them."""

from understudy.models.visits.chains import ChainTables, MixtureOfChains
from understudy.models.visits.fit import fit_visits
from understudy.models.visits.tables import VisitTables

__all__ = ["ChainTables", "MixtureOfChains", "VisitTables", "fit_visits"]
