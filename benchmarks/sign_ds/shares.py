"""The expected share of top-k dimensions among h chosen ones, over ε: what Figure 3.3
draws.

    python benchmarks/sign_ds/shares.py        # writes shares.csv

Dissertation of X. Jiang, TUM 2024, §3.4.3: EM-MDS chooses h at once with ε; the naive
way chooses one h times with ε/h each; PS chooses one. k = 0.1 d of a LeNet's 44,426
dimensions. The shares are worked out from the laws (`privacy/local/selection.py`), so
there are no seeds.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from common.options import options
from common.rows import write
from understudy.privacy.local.selection import EmMds, Naive

DIMS = 44_426
EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
SIZES = (3, 5, 10)
WAYS = {"EM-MDS": EmMds, "naive": Naive}


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=Path(__file__).with_name("shares.csv"))


def main() -> None:
    args = parser().parse_args()
    rows = [
        {
            "method": name,
            "chosen": chosen,
            "epsilon": epsilon,
            "share": f"{way(dims=DIMS, top=DIMS // 10, chosen=chosen, epsilon=epsilon).share:.4f}",
        }
        for chosen in SIZES
        for name, way in WAYS.items()
        for epsilon in EPSILONS
    ]
    write(args.out, rows, ["method", "chosen", "epsilon", "share"])


if __name__ == "__main__":
    main()
