"""What one who knows a skewed column's law would reach: `tails.py`'s aims, with nothing
of ours in between.

    python benchmarks/numbers/oracle.py --draws 100 --out benchmarks/numbers/oracle.csv

*Law known*: other rows of exactly the same law are held against the rows. *Form known*:
one number (the exponent of a Pareto law, the spread of a log-normal one, the mean of an
exponential one, the decades of bytes) is fitted to counts by powers of two, each under
the noise of one released count; all else of the law is known. Rows are drawn of that.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from tails import figures

Floats = np.ndarray  # type: ignore[type-arg]
NOISE = 50.0  # of one count: 38 to 56 in `tails.py`
EDGES = np.append(0.0, 2.0 ** np.arange(0, 41))
# Of each column: a person's value by a uniform number, given the one unknown; what it
# is in truth, and where it may be.
LAWS: dict[
    str, tuple[Callable[[Floats, float], Floats], float, tuple[float, float]]
] = {
    "pareto": (lambda u, a: np.floor(500 * (1 - u) ** (-1 / a)), 1.5, (0.5, 4)),
    "log_normal": (lambda u, s: 20 * np.exp(s * _normal(u)), 1.2, (0.3, 3)),
    "zero_inflated": (
        lambda u, m: np.rint(-m * np.log1p(-np.clip((u - 0.7) / 0.3, 0, None))),
        300.0,
        (30, 3_000),
    ),
    "seconds": (lambda u, s: np.rint(np.exp(5.2 + s * _normal(u))), 0.9, (0.2, 3)),
    "bytes": (lambda u, top: np.floor(10 ** (top * u)), 8.0, (4, 12)),
}


def _normal(u: Floats) -> Floats:
    from scipy.special import ndtri

    return np.asarray(ndtri(u))


def fitted(name: str, counts: Floats, people: int) -> float:
    """The unknown that fits these noisy counts best."""
    values, _, (low, high) = LAWS[name]
    grid = (np.arange(20_000) + 0.5) / 20_000

    def off(unknown: float) -> float:
        expected = np.histogram(values(grid, unknown), EDGES)[0] * people / len(grid)
        return float(((counts - expected) ** 2).sum())

    tried = np.geomspace(low, high, 60)
    best = tried[np.argmin([off(one) for one in tried])]
    return float(
        minimize_scalar(off, bounds=(best / 1.05, best * 1.05), method="bounded").x
    )


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=3_500)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    return parser


def main() -> None:
    args = parser().parse_args()
    rng = np.random.default_rng(0)
    aims = {"p95": 0.1, "p99": 0.25, "mean": 0.1}
    with args.out.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["column", "knows", "people", *aims])
        for name, (values, truth, _) in LAWS.items():
            found: dict[str, list[list[bool]]] = {
                "the law": [],
                "its form, and noisy counts": [],
            }
            for _ in range(args.draws):
                real = values(rng.random(args.people), truth)
                counts = np.histogram(real, EDGES)[0] + rng.normal(
                    0, NOISE, len(EDGES) - 1
                )
                for who, unknown in zip(
                    found, (truth, fitted(name, counts, args.people)), strict=True
                ):
                    own = figures(real, values(rng.random(args.people), unknown))
                    found[who].append(
                        [abs(own[key] - 1) <= most for key, most in aims.items()]
                    )
            for who, flags in found.items():
                rows.writerow([name, who, args.people, *np.mean(flags, 0).round(3)])


if __name__ == "__main__":
    main()
