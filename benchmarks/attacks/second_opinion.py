"""What attack libraries of others say of tables that are attacked by ours: Anonymeter's
singling out and linking, and six membership attacks of Synth-MIA (those by densities
need more rows than our cases have).

    python -m venv second && second/bin/pip install anonymeter==1.1.0 torch tqdm geomloss
    git clone https://github.com/joshward96/Synth-MIA && git -C Synth-MIA checkout 9ef39e1d
    python benchmarks/attacks/second_opinion.py --other second/bin/python --synth-mia Synth-MIA

Giomi et al., "A unified framework for quantifying privacy risk in synthetic data"
(PoPETs 2023); Ward et al., "Synth-MIA: a testbed for auditing privacy leakage in
tabular data synthesis" (2025). They run in an environment of their own, by `--other`:
CSV files in, figures out. The tables are those of `bench.py`. Each is published at ε =
1 by `gram`, and as it is, a copy of everybody who trained, so that it can be seen to
find a leak. An attack succeeds where the 95 % interval of its figure is above what a
coin reaches: of Anonymeter the risk over people who took no part, above 0; of Synth-MIA
the AUC of telling 400 members from 400 others, above .5, by bootstrap.
"""

import argparse
import json
import subprocess
import sys
import tempfile
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
TABLES = """
import json, sys
import numpy as np
import pandas as pd
inside, synthetic, outside = (pd.read_csv(f"{sys.argv[1]}/{name}.csv") for name in ("inside", "synthetic", "outside"))
many = int(sys.argv[2])
"""
OTHERS = {
    "anonymeter": """
from anonymeter.evaluators import LinkabilityEvaluator, SinglingOutEvaluator
columns, half = list(inside.columns), len(inside.columns) // 2
told = dict(ori=inside, syn=synthetic, control=outside, n_attacks=many)
found = {
    "singling out": SinglingOutEvaluator(n_cols=min(5, len(columns)), max_attempts=20_000, seed=1, **told).evaluate(
        mode="multivariate"),
    "linking": LinkabilityEvaluator(aux_cols=(columns[:half], columns[half:]), **told).evaluate(n_jobs=1),
}
risks = {name: one.risk(confidence_level=0.95) for name, one in found.items()}
print(json.dumps({name: [float(risk.value), *map(float, risk.ci), 0.0] for name, risk in risks.items()}))
""",
    "synth-mia": """
sys.path.insert(0, sys.argv[3])
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from synth_mia import attackers
from synth_mia.utils import TabularPreprocessor
outside = outside.sample(frac=1, random_state=1)
members, others = inside.sample(2 * many, random_state=1), outside[: 2 * many]
reference = outside[2 * many :]
middle = synthetic.median(numeric_only=True)
frames = [frame.apply(lambda c: c.fillna(middle.get(c.name, 0.0)).astype(float) if c.dtype.kind in "biuf"
          else c.fillna("none").astype(str)) for frame in (members, others, synthetic, reference)]
*arrays, _ = TabularPreprocessor(fit_target="synth").fit(*frames).transform(*frames)
found, doubt = {}, 0.05
for name in ("DCR", "DCRDiff", "DPI", "MC", "LocalNeighborhood", "LOGAN"):
    labels, scores = getattr(attackers, name)().attack(*arrays)
    draw, labels, scores = np.random.default_rng(1), np.asarray(labels), rankdata(np.nan_to_num(scores))
    sides = [scores[labels == side] for side in (1, 0)]
    again = []
    for _ in range(1000):
        drawn = [draw.choice(side, len(side)) for side in sides]
        again.append(roc_auc_score(np.repeat([1, 0], list(map(len, drawn))), np.concatenate(drawn)))
    ends = np.quantile(again, [doubt / 2, 1 - doubt / 2])
    found["membership, " + name] = [float(roc_auc_score(labels, scores)), *map(float, ends), 0.5]
print(json.dumps(found))
""",
}


def figures_of_others(
    library: str, python: Path, source: Path, frames: dict[str, pd.DataFrame]
) -> dict[str, Any]:
    """Of each attack of a library, in its own environment: its figure, the interval,
    and what a coin would reach.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in frames.items():
            frame.to_csv(Path(folder) / f"{name}.csv", index=False)
        told = [
            python,
            "-W",
            "ignore",
            "-c",
            TABLES + OTHERS[library],
            folder,
            str(ATTACKS),
            str(source),
        ]
        run = subprocess.run(told, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{python} could not judge by {library}: {run.stderr[-500:]}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def judged(
    case: str, published: str, python: Path, source: Path, seed: int = 1
) -> list[Row]:
    """What all libraries say of one table."""
    from bench import CASES

    import understudy as us
    from understudy.evaluate.attacks.attack import judge
    from understudy.evaluate.comparison import attack_groups

    groups, _, owners, target = CASES[case](np.random.default_rng([seed, 11]))
    group = groups[0]
    names = list(group.schema.names)
    inside, outside = (
        side[names].reset_index(drop=True) for side in (group.inside, group.outside)
    )
    synthetic = inside
    if published != "copy":
        with tempfile.TemporaryDirectory() as ledgers:
            told = {
                "schema": group.schema.as_drawn(),
                "name": "all",
                "ledgers": ledgers,
            }
            made = us.synthesize(inside, epsilon=1.0, **told)
        synthetic = made.generator.sample(len(inside))[names]
    found = attack_groups(groups, synthetic, owners=owners, target=target, seed=seed)
    attacks = judge(
        [attack for leakage in found.values() for attack in leakage.attacks]
    )
    about: dict[str, Any] = {"case": case, "table": published}
    seen = sum(attack.leaks for attack in attacks)
    rows: list[Row] = [
        about
        | {
            "library": "ours",
            "attack": f"{seen} of {len(attacks)} succeed",
            "leaks": seen > 0,
        }
    ]
    frames = {"inside": inside, "synthetic": synthetic, "outside": outside}
    for library in OTHERS:
        for attack, (risk, low, high, coin) in figures_of_others(
            library, python, source, frames
        ).items():
            figures = {
                name: f"{value:.3f}"
                for name, value in zip(FIELDS[4:7], (risk, low, high), strict=True)
            }
            rows.append(
                about
                | {"library": library, "attack": attack, **figures, "leaks": low > coin}
            )
    return rows


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "second_opinion.csv")
    parser.add_argument(
        "--other",
        type=Path,
        default=Path("second/bin/python"),
        help="the Python of the libraries",
    )
    parser.add_argument(
        "--synth-mia", type=Path, default=Path("Synth-MIA"), help="its checkout"
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        default=["health", "digits", "made up"],
        help="of bench.py",
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    rows: list[Row] = []
    for case in args.cases:
        for published in PUBLISHED:
            more = judged(case, published, args.other, args.synth_mia)
            rows += more
            for row in more:
                print(*row.values(), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
