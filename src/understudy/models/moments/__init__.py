"""Gaussians in a public frame, one for each class or for each cell of a class, and how they are fitted to released
moments.
"""

from understudy.models.moments.bayes import bayes_rule
from understudy.models.moments.fit import Centres, Directions, centres, directions, fit_cells
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.labels import Labels
from understudy.models.moments.norms import bought_norm
from understudy.models.moments.offered import OfferedMoments, added, middle
from understudy.models.moments.shades import match_shades

__all__ = [
    "CellGaussians",
    "Centres",
    "Directions",
    "Labels",
    "OfferedMoments",
    "added",
    "bayes_rule",
    "bought_norm",
    "centres",
    "directions",
    "fit_cells",
    "match_shades",
    "middle",
]
