"""Maps of correlations, real beside synthetic: Figure 4.7.

    python benchmarks/fed_wae/maps.py --data data --out benchmarks/fed_wae/maps.png

X. Jiang, dissertation, TUM 2024, §4.5.2: ε = 8, ξ = 0.1, everybody reports once. A
pixel is Pearson's correlation of two columns, red above 0 and blue below, in their
order; a square for the real rows and one for each method, as in the printed line.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
from wae_tables import FILES, load

from common.maps import correlation_map, save
from common.options import options, quick

HERE = Path(__file__).parent
QUICK = quick()
METHODS = ("DP-Fed-WAE, once", "LoPub", "LoCop")


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "maps.png", data=True, device="cpu")
    parser.add_argument("--only", default="a9a", choices=FILES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--epsilon", type=float, default=8.0)
    return parser


def main() -> None:
    args = parser().parse_args()
    data = bench.generated() if QUICK else load(args.only, args.data)
    maps = [correlation_map(data.train, data.schema)]
    for method in args.methods:
        job = {
            "dataset": args.only,
            "method": method,
            "epsilon": args.epsilon,
            "top": 0.1,
            "seed": 0,
            "settings": "{}",
            "device": args.device,
            "rounds": 4 if QUICK else 5000,
            "clients_per_round": 10,
        }
        drawn, _ = bench.draw(job, data)
        maps.append(correlation_map(drawn["sample"], data.schema))
        distance = np.abs(maps[-1].astype(int) - maps[0]).mean() / 255
        print(f"{method}: mean difference of the maps {distance:.3f}", flush=True)
    if args.out is not None:
        save(maps, args.out)


if __name__ == "__main__":
    main()
