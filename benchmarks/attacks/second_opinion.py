"""What an attack library of others says of tables that are attacked by ours: Anonymeter's singling out and linking.

    python -m venv second && second/bin/pip install anonymeter==1.1.0
    python benchmarks/attacks/second_opinion.py --other second/bin/python

Giomi et al., "A unified framework for quantifying privacy risk in synthetic data" (PoPETs 2023). It runs in an
environment of its own, by `--other`: CSV files in, figures out. The tables are those of `bench.py`. Each is published
at ε = 1 by `gram`, and as it is, a copy of everybody who trained, so that it can be seen to find a leak. Anonymeter
says that an attack succeeds where the 95 % interval of its risk, over people who took no part, is above 0.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import numpy as np
import pandas as pd

from common.options import options, quick
from common.rows import Row, write

FIELDS = ("case", "table", "library", "attack", "risk", "low", "high", "leaks")
ATTACKS = 100 if quick() else 200
PUBLISHED = ("ε = 1", "copy")
OTHER = """
import json, sys
import pandas as pd
from anonymeter.evaluators import LinkabilityEvaluator, SinglingOutEvaluator
inside, synthetic, outside = (pd.read_csv(f"{sys.argv[1]}/{name}.csv") for name in ("inside", "synthetic", "outside"))
many, half = int(sys.argv[2]), len(inside.columns) // 2
told = dict(ori=inside, syn=synthetic, control=outside, n_attacks=many)
columns = list(inside.columns)
found = {
    "singling out": SinglingOutEvaluator(n_cols=min(5, len(columns)), max_attempts=20_000, seed=1, **told).evaluate(
        mode="multivariate"),
    "linking": LinkabilityEvaluator(aux_cols=(columns[:half], columns[half:]), **told).evaluate(n_jobs=1),
}
risks = {name: one.risk(confidence_level=0.95) for name, one in found.items()}
print(json.dumps({name: [float(risk.value), *map(float, risk.ci)] for name, risk in risks.items()}))
"""


def figures_of_others(python: Path, frames: dict[str, pd.DataFrame]) -> dict[str, list[float]]:
    """The risk of each attack, and its interval, by Anonymeter in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in frames.items():
            frame.to_csv(Path(folder) / f"{name}.csv", index=False)
        run = subprocess.run(
            [python, "-W", "ignore", "-c", OTHER, folder, str(ATTACKS)], capture_output=True, text=True, check=False
        )
    if run.returncode:
        raise SystemExit(f"{python} could not judge: {run.stderr[-500:]}")
    found: dict[str, list[float]] = json.loads(run.stdout.splitlines()[-1])
    return found


def judged(case: str, published: str, python: Path, seed: int = 1) -> list[Row]:
    """What both libraries say of one table."""
    from bench import CASES

    import understudy as us
    from understudy.evaluate.attacks.attack import judge
    from understudy.evaluate.comparison import attack_groups

    groups, _, owners, target = CASES[case](np.random.default_rng([seed, 11]))
    group = groups[0]
    names = list(group.schema.names)
    inside, outside = (side[names].reset_index(drop=True) for side in (group.inside, group.outside))
    synthetic = inside
    if published != "copy":
        with tempfile.TemporaryDirectory() as ledgers:
            told = {"schema": replace(group.schema, person=None), "name": "all", "ledgers": ledgers}
            made = us.synthesize(inside, epsilon=1.0, components=64, steps=200, **told)
        synthetic = made.generator.sample(len(inside))[names]
    found = attack_groups(groups, synthetic, owners=owners, target=target, seed=seed)
    attacks = judge([attack for leakage in found.values() for attack in leakage.attacks])
    about: dict[str, Any] = {"case": case, "table": published}
    seen = sum(attack.leaks for attack in attacks)
    rows: list[Row] = [about | {"library": "ours", "attack": f"{seen} of {len(attacks)} succeed", "leaks": seen > 0}]
    frames = {"inside": inside, "synthetic": synthetic, "outside": outside}
    for attack, (risk, low, high) in figures_of_others(python, frames).items():
        figures = {name: f"{value:.3f}" for name, value in zip(FIELDS[4:7], (risk, low, high), strict=True)}
        rows.append(about | {"library": "anonymeter", "attack": attack, **figures, "leaks": low > 0})
    return rows


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "second_opinion.csv")
    parser.add_argument("--other", type=Path, default=Path("second/bin/python"), help="the Python with anonymeter")
    parser.add_argument("--cases", nargs="+", default=["health", "digits", "made up"], help="of bench.py")
    return parser


def main() -> None:
    args = parser().parse_args()
    rows: list[Row] = []
    for case in args.cases:
        for published in PUBLISHED:
            rows += judged(case, published, args.other)
            for row in rows[-3:]:
                print(*row.values(), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
