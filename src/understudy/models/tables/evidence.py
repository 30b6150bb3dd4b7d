"""When a noisy count is evidence: the thresholds that all files of this folder share.

Source: √(2 log n) is the universal threshold of Donoho and Johnstone (Biometrika 1994).
"""

import math

# deviations by which one count stands out of its noise: noise alone does once in 740
# counts. With 2.5 it widens columns by a dozen cells (tests/models/test_atoms.py)
CLEAR = 3.0


def clear_of(nodes: int) -> float:
    """How many deviations of noise one of so many nodes must stand out by: what the
    largest of so many normal numbers is at most, nearly (√(2 log n)).
    """
    return math.sqrt(2 * math.log(max(nodes, 2)))
