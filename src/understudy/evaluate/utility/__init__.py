"""How near a synthetic table, series or image is to the real one: distances of tables, correlations, models trained
on it.
"""

from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.association import Associations, Pair
from understudy.evaluate.utility.correlation import Matrix, pearson
from understudy.evaluate.utility.distance import Distances, Rows, Space, lacking, tables
from understudy.evaluate.utility.fidelity import Evaluation, evaluate_tables
from understudy.evaluate.utility.marginals import Codes, Marginals
from understudy.evaluate.utility.values import Numbers, column_means, table_values
from understudy.evaluate.utility.yardstick import Yardstick

__all__ = [
    "Associations",
    "Codes",
    "Distances",
    "Evaluation",
    "Figure",
    "Marginals",
    "Matrix",
    "Numbers",
    "Pair",
    "Rows",
    "Space",
    "Yardstick",
    "column_means",
    "evaluate_tables",
    "lacking",
    "pearson",
    "table_values",
    "tables",
]
