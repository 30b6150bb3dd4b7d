"""Central MST and AIM on the rows that benchmarks/joint/bench.py exported: all data in
one place, the same ε.

    python -m venv central && central/bin/pip install dpmm==0.1.9 numba
    python benchmarks/joint/bench.py --export rows [--datasets …]
    central/bin/python benchmarks/joint/central.py rows [--methods MST AIM] [--epsilons 1] [--only adult]
    central/bin/python benchmarks/joint/central.py rows --methods AIM --megabytes 4 --iterations 100    # minutes

It runs in an environment of its own and needs nothing of ours but `lean_pgm.py` and
`lean_tree.py`: codes in, codes out. For every `<table>-<seed>.csv` in the folder it
writes `<table>-<seed>-<method>-<ε>.csv`, and one line in `seconds.csv`; what is there
already is skipped. With `--equal-noise` the method's name ends in `-equal`: its budget
ρ of zero-concentrated privacy is then not the one that dpmm derives from (ε, δ), but
that of the Gaussian noise which (ε, δ) allows exactly, the noise that Gram has; the
price of AIM's choices is left as it is. McKenna, Miklau, Sheldon, "Winning the NIST
contest" (JPC 2021); McKenna, Mullins, Sheldon, Miklau, "AIM" (VLDB 2022), both by
`dpmm`. Codes are given with their domain, so that none of the budget goes into bins.
"""

import argparse
import json
import math
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import lean_pgm
import pandas as pd
from dpmm.models.base.mbi import FactoredInference
from dpmm.models.base.mechanisms import mechanism
from dpmm.pipelines import AIMPipeline, MSTPipeline
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

PIPELINES = {"MST": MSTPipeline, "AIM": AIMPipeline}
DELTA = 1e-5


def synthesise(
    frame: pd.DataFrame,
    domain: dict[str, int],
    method: str,
    epsilon: float,
    seed: int,
    args: argparse.Namespace,
) -> pd.DataFrame:
    """As many rows as there are real ones, from (ε, δ)-DP measurements of them."""
    options = {"max_model_size": args.megabytes} if method == "AIM" else {}
    pipeline = PIPELINES[method](
        epsilon=epsilon,
        delta=DELTA,
        proc_epsilon=None,
        disable_processing=True,
        n_jobs=1,
        **options,
    )
    if method == "AIM" and not args.plain:
        _hasten(pipeline.gen.generator, args.iterations)
    pipeline.fit(frame.astype(int), domain=domain, random_state=seed)
    return pipeline.generate(n_records=len(frame), random_state=seed)[
        list(frame.columns)
    ]


def gaussian_rho(epsilon: float, delta: float) -> float:
    """ρ = 1 / 2σ² of the least Gaussian noise σ (sensitivity 1) that is (ε, δ)-private.

    Balle and Wang, "Improving the Gaussian mechanism for differential privacy" (ICML
    2018), Theorem 8.
    """

    def excess(sigma: float) -> float:
        far = -0.5 / sigma - epsilon * sigma
        near = 0.5 / sigma - epsilon * sigma
        return float(ndtr(near) - math.exp(epsilon + log_ndtr(far)) - delta)

    sigma = brentq(excess, 1e-3, 1e4 / epsilon, xtol=1e-12)
    return 1 / (2 * sigma**2)


def _hasten(generator: Any, iterations: int) -> None:
    """So many iterations in each of AIM's rounds; its last estimate goes on from them,
    as in its authors' code.

    dpmm begins the last one anew, and its 1,000 iterations are too few for that: at 39
    columns distance was 2.6 times that of 5,000.
    """
    fit = generator._fit
    usual = generator.n_iters

    def rounds(*args: Any, **kwargs: Any) -> Any:
        generator.n_iters = iterations
        found = fit(*args, **kwargs)
        generator.engine.iters = generator.n_iters = usual
        mechanism.FactoredInference = lambda **_: generator.engine
        return found

    generator._fit = rounds


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--methods", nargs="+", choices=list(PIPELINES), default=["MST"]
    )
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 8.0]
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="texts, one of which must be in a file's name",
    )
    parser.add_argument(
        "--megabytes", type=float, default=80, help="how large AIM's model may become"
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=1000,
        help="of AIM's estimate in each of its rounds",
    )
    parser.add_argument(
        "--equal-noise",
        action="store_true",
        help="ρ of exactly (ε, δ)-private Gaussian noise",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="dpmm as it is: no lean_pgm, no --iterations",
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    if not args.plain:
        lean_pgm.install()
    if args.equal_noise:
        mechanism.cdp_rho = gaussian_rho
    warnings.simplefilter("ignore")
    for domain_file in sorted(args.folder.glob("*.json")):
        name = domain_file.stem
        if args.only and not any(text in name for text in args.only):
            continue
        frame = pd.read_csv(args.folder / f"{name}.csv")
        domain = json.loads(domain_file.read_text())
        for method in args.methods:
            for epsilon in args.epsilons:
                called = f"{method}-equal" if args.equal_noise else method
                out = args.folder / f"{name}-{called}-{epsilon:g}.csv"
                if out.exists():
                    continue
                mechanism.FactoredInference = FactoredInference
                start = time.process_time()
                try:
                    made = synthesise(
                        frame,
                        domain,
                        method,
                        epsilon,
                        int(name.rpartition("-")[2]),
                        args,
                    )
                except Exception as error:  # one table's failure is not the others'
                    print(f"{out.name}: {type(error).__name__}: {error}", flush=True)
                    continue
                seconds = time.process_time() - start
                made.to_csv(out.with_suffix(".part"), index=False)
                out.with_suffix(".part").replace(out)
                with (args.folder / "seconds.csv").open("a") as file:
                    file.write(f"{out.stem},{seconds:.1f}\n")
                print(f"{out.name}: {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
