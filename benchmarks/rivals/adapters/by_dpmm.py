"""AIM and MST by dpmm, with its authors' settings (80 MB, 1,000 iterations a round),
hastened as benchmarks/joint does.

`lean_pgm` gives the same estimates in less time and memory. AIM's last estimate goes on
from those of its rounds, as in its authors' code. Codes are given with their domain, so
that none of the budget goes into bins.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from equal_noise import gaussian_rho

sys.path.append(str(Path(__file__).parents[2] / "joint"))

import central
import lean_pgm
from dpmm.models.base.mechanisms import mechanism

SETTINGS: Any = SimpleNamespace(megabytes=80, iterations=1000, plain=False)


def synthesise(
    rows: pd.DataFrame, domain: dict[str, int], task: dict[str, Any]
) -> pd.DataFrame:
    lean_pgm.install()
    if task["equal"]:
        mechanism.cdp_rho = gaussian_rho
    method = task["method"].partition(" ")[0]
    return central.synthesise(
        rows, domain, method, task["epsilon"], task["seed"], SETTINGS
    )
