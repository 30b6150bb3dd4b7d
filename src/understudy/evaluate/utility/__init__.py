"""How near a synthetic table, series or image is to the real one: distances of tables, correlations, models trained
on it.
"""

from understudy.evaluate.utility.correlation import Matrix, pearson
from understudy.evaluate.utility.distance import Distances, Rows, Space, lacking, tables
from understudy.evaluate.utility.fidelity import Evaluation, evaluate_tables
from understudy.evaluate.utility.marginals import Codes, Figure, Marginals
from understudy.evaluate.utility.yardstick import Yardstick

__all__ = [
    "Codes",
    "Distances",
    "Evaluation",
    "Figure",
    "Marginals",
    "Matrix",
    "Rows",
    "Space",
    "Yardstick",
    "evaluate_tables",
    "lacking",
    "pearson",
    "tables",
]
