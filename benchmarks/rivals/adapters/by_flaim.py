"""AugFLAIM by its authors' code, over three holders of rows that all take part in each
of its ten rounds.

Maddock, Cormode, Maple, "FLAIM: AIM-based synthetic data generation in the federated
setting" (KDD 2024). Settings are those of its sweep over ε: private one-way counts of
each round join the measurements and steer the choice of tables, one noise for all
holders, and 64 random sets of three columns as workload; of its weights those by noisy
totals. Holders have random rows, as ours have, and the number of people is public. Its
code imports loaders, logs and an accountant that this needs none of, and as published
uses two names that are not there; these are put aside here.
"""

import importlib.abc
import importlib.machinery
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
from equal_noise import gaussian_rho

HOLDERS = 3
SEED = 123
GENERATORS = "synth_fl.generators"
ASIDE = (
    "autodp",
    "jax",
    "loguru",
    "matplotlib",
    f"{GENERATORS}.central.ctgan",
    f"{GENERATORS}.central.mwem",
    f"{GENERATORS}.federated.fed_ctgan",
    f"{GENERATORS}.federated.naive_hfl",
)
SETTINGS = {
    "accounting_method": "distributed",
    "aggregation_method": "merge_all",
    "init_method": "",
    "gauss_budget_alloc": 0.9,
    "pgm_weight_method": "sigma_scaled_squared_nweight_n_est",
    "pgm_train_iters": 50,
    "pgm_final_iters": 500,
    "control_type": "private_combine_sub_filter",
    "global_rounds": 10,
    "control_rounds": -1,
    "control_estimates": -1,
    "clients_per_round": 1,
    "local_rounds": 1,
    "use_control_variates": True,
    "normalize_measurements": True,
    "workload_num_marginals": 64,
    "workload_seed": SEED,
    "load_client_answer_cache": False,
}


class Nothing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An empty stand-in for each module of ASIDE and what lies below it."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        aside = any(name == start or name.startswith(f"{start}.") for start in ASIDE)
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True)
            if aside
            else None
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return MagicMock(__spec__=spec, __path__=[], Mechanism=object)

    def exec_module(self, module: ModuleType) -> None:
        pass


@dataclass
class Table:
    """What FLAIM asks of its own class of tables, whose file names a variable that is
    not there.
    """

    df: pd.DataFrame
    domain: dict[str, int]
    y: str
    name = p = random_state = non_iid = ""  # of a file that is not written

    @property
    def n(self) -> int:
        return len(self.df)

    def to_pgm_dataset(self) -> Any:
        from synth_fl.libs.private_pgm.mbi import Dataset, Domain

        return Dataset(self.df, Domain(list(self.domain), list(self.domain.values())))


def synthesise(
    rows: pd.DataFrame, domain: dict[str, int], task: dict[str, Any]
) -> pd.DataFrame:
    sys.meta_path.insert(0, Nothing())
    loaders: Any = ModuleType("synth_fl.utils.dataloaders")
    loaders.TabularDataset = Table
    loaders.HorizontalSharder = None
    loaders.VerticalSharder = None
    sys.modules[loaders.__name__] = loaders
    utils: Any = importlib.import_module("synth_fl.utils")
    utils.DEFAULT_DATA_ROOT = ""
    from synth_fl.generators import FederatedGeneratorConfig
    from synth_fl.generators.federated.flaim import FLAIM
    from synth_fl.workloads import WorkloadManager

    del sys.modules["jax"]  # scipy would ask it for its arrays
    config = FederatedGeneratorConfig(
        epsilon=task["epsilon"], delta=task["delta"], num_clients=HOLDERS, **SETTINGS
    )
    flaim = FLAIM(config)
    if task["equal"]:
        flaim.accountant.rho = flaim.accountant.starting_rho = gaussian_rho(
            task["epsilon"], task["delta"]
        )
    flaim.n = len(rows)
    flaim.target = task["target"]
    flaim.num_clients = HOLDERS
    asked = WorkloadManager(num_marginals=64, seed=SEED).generate_workload(
        SimpleNamespace(df=rows, y=task["target"])
    )
    parts = np.array_split(
        np.random.default_rng(task["seed"]).permutation(len(rows)), HOLDERS
    )
    held = [
        Table(rows.iloc[part].reset_index(drop=True), domain, task["target"])
        for part in parts
    ]
    made: pd.DataFrame = flaim._generate(held, asked)[1]
    return made.sample(
        len(rows), replace=len(made) < len(rows), random_state=task["seed"]
    )
