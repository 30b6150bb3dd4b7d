"""Releases of columns alone, simulated as benchmarks have them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from common.column_releases import Noise, released, usual_noise

__all__ = ["Noise", "released", "usual_noise"]
