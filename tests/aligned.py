"""The whole alignment in one process, as benchmarks have it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from common.aligned import align, match

__all__ = ["align", "match"]
