"""One rival on one table, in the rival's own environment: `run.py ADAPTER FOLDER`,
called by bench.py.

The folder holds `rows.csv` (codes) and `task.json` (domain, target, method, ε, δ, seed,
whether the noise is to be that of ours). It gets `made.csv`, rows of codes, and
`cost.json`. An adapter is a file beside this one with a function `synthesise(rows,
domain, task)`; what it imports is not counted as its seconds.
"""

import importlib
import json
import os
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

SOURCES = {
    "dpsynth": ["dpsynth"],
    # its scripts want mbi as it was at their commit
    "private_pgm": ["private-pgm/mechanisms", "private-pgm/src"],
    "tab_pe": ["DPSDA"],
    "flaim": ["flaim"],
}


def main() -> None:
    adapter = sys.argv[1]
    folder = Path(sys.argv[2])
    sources = Path(os.environ["RIVALS"]) / "sources"
    sys.path[1:1] = [str(sources / folder) for folder in SOURCES.get(adapter, [])]
    warnings.simplefilter("ignore")
    task = json.loads((folder / "task.json").read_text())
    rows = pd.read_csv(folder / "rows.csv")
    module = importlib.import_module(f"by_{adapter}")
    np.random.seed(task["seed"])
    start = time.process_time()
    made = module.synthesise(rows, task["domain"], task)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    made[list(rows.columns)].to_csv(folder / "made.csv", index=False)
    (folder / "cost.json").write_text(
        json.dumps({"seconds": round(seconds, 1), "peak_mb": round(peak)})
    )


if __name__ == "__main__":
    main()
