"""AIM, MST, AIM-GDP and SWIFT by google/dpsynth on mbi, with its defaults: a tenth of
the budget for single columns.

McKenna, Mullins, Sheldon, Miklau, "AIM" (VLDB 2022); McKenna, Miklau, Sheldon, "Winning
the NIST contest" (JPC 2021). The budget of AIM and MST is found by dpsynth's own search
over privacy loss distributions and Rényi orders. All that AIM-GDP and SWIFT release is
one Gaussian event, whose exact budget is set at once: the search begins with no budget
at all, and SWIFT divides by it.
"""

from typing import Any

import jax
import mbi
import numpy as np
import pandas as pd
from dpsynth import discrete_mechanisms as mechanisms
from equal_noise import gaussian_rho

jax.config.update("jax_enable_compilation_cache", False)  # as mbi advises
GAUSSIAN = ("AIM-GDP", "SWIFT")
CONFIGS = {
    "AIM": mechanisms.AIMConfig,
    "MST": mechanisms.MSTConfig,
    "AIM-GDP": mechanisms.AIMGDPConfig,
    "SWIFT": mechanisms.SWIFTConfig,
}


def synthesise(
    rows: pd.DataFrame, domain: dict[str, int], task: dict[str, Any]
) -> pd.DataFrame:
    config = mechanisms.DiscreteConfig(mechanism=CONFIGS[task["method"]]())
    if task["equal"] or task["method"] in GAUSSIAN:
        mechanism = config.configure(
            zcdp_rho=gaussian_rho(task["epsilon"], task["delta"])
        )
    else:
        mechanism = config.calibrate(epsilon=task["epsilon"], delta=task["delta"])
    data = mbi.Dataset(
        {name: rows[name].to_numpy() for name in domain}, mbi.Domain.fromdict(domain)
    )
    made = mechanism(np.random.default_rng(task["seed"]), data).synthetic_data.to_dict()
    return pd.DataFrame({name: np.asarray(made[name]) for name in domain})
