"""The fit alone, which sees no row: seconds and error by width, parts of the mixture,
and people.

    python -m benchmarks.scale.fits [--device cuda] [--widths 300,1000,3000] [--parts 512,…] [--people 1e5,…] [--out …]

From the root of a checkout. The released matrix is made without rows: the pairs of a
law of 400 kinds of people, whose columns of 20 levels each follow a kind closely or
not, for so many people, and the noise that ε = 1 and δ = 10⁻⁹ ask for, the same for
every cell. `seconds` are of the clock, the second of two fits (the first one also loads
kernels); `steps` is where it stopped; `two` is the mean distance of all pairs of
columns from the law's, `noisy` that of the released matrix itself.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1]))

from common.options import command, quick
from common.rows import read, said, write
from understudy.models.tables.fit_gram import fit_gram
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.counts import needed_noise

HERE = Path(__file__).parent
FIELDS = ["machine", "width", "parts", "people", "seconds", "steps", "two", "noisy"]
LEVELS = 20
KINDS = 400


def law(columns: int, device: str) -> Tensor:
    """Shares of all pairs of levels, (width, width): how likely a person has both."""
    drawn = torch.Generator().manual_seed(7)
    weights = torch.rand(KINDS, generator=drawn).pow(2)
    middles = torch.rand(KINDS, columns, 1, generator=drawn) * LEVELS
    widths = 1 + 8 * torch.rand(1, columns, 1, generator=drawn)
    odds = (
        (-(((torch.arange(LEVELS) + 0.5 - middles) / widths) ** 2))
        .softmax(-1)
        .reshape(KINDS, -1)
        .double()
    )
    odds = odds.to(device)
    found = odds.T @ (odds * (weights / weights.sum()).to(device).double()[:, None])
    for start in range(0, len(found), LEVELS):
        own = slice(start, start + LEVELS)
        found[own, own] = found[own, own].sum(1).diag()
    return found


def distance(found: Tensor, true: Tensor) -> float:
    """The mean over pairs of columns of half of the absolute differences."""
    width = len(true)
    blocks = (found - true).abs().reshape(
        width // LEVELS, LEVELS, width // LEVELS, LEVELS
    ).sum((1, 3)) / 2
    return float(blocks.triu(1).sum() / (blocks.shape[0] * (blocks.shape[0] - 1) / 2))


def fitted(width: int, parts: int, people: int, device: str) -> dict[str, Any]:
    columns = width // LEVELS
    true = law(columns, device)
    sigma = needed_noise(columns * (columns + 1) // 2, Budget(1.0, 1e-9))
    noise = (
        torch.randn(
            width,
            width,
            generator=torch.Generator().manual_seed(1),
            dtype=torch.float64,
        ).triu()
        * sigma
    )
    gram = true * people + (noise + noise.triu(1).T).to(device)
    more: dict[str, Any] = {"steps": 5} if quick() else {}
    steps = 0

    def watch(step: int, residual: float) -> None:
        nonlocal steps
        steps = step

    for _ in range(2):
        begun = time.perf_counter()
        mixture = fit_gram(
            gram,
            [LEVELS] * columns,
            noise=sigma,
            people=people,
            components=parts,
            seed=1,
            watch=watch,
            **more,
        )
        with torch.no_grad():
            # what is on the diagonal is not looked at
            two = distance(mixture.gram().double(), true)
        seconds = time.perf_counter() - begun
    where = torch.cuda.get_device_name() if device == "cuda" else device
    found = {
        "machine": where,
        "width": width,
        "parts": parts,
        "people": people,
        "seconds": round(seconds, 2),
    }
    return found | {
        "steps": steps,
        "two": round(two, 5),
        "noisy": round(distance(gram / people, true), 5),
    }


def numbers(text: str) -> list[int]:
    return [int(float(one)) for one in text.split(",")]


def parser() -> argparse.ArgumentParser:
    parser = command(__doc__)
    parser.add_argument(
        "--widths", type=numbers, default=[100] if quick() else [300, 1000, 3000]
    )
    parser.add_argument(
        "--parts", type=numbers, default=[8] if quick() else [512, 1024, 2048, 4096]
    )
    parser.add_argument(
        "--people",
        type=numbers,
        default=[100_000] if quick() else [10**5, 10**6, 10**7, 10**8],
    )
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument(
        "--out", type=Path, default=None if quick() else HERE / "fits.csv"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    rows = read(args.out)
    known = {
        tuple(int(row[one]) for one in ("width", "parts", "people")) for row in rows
    }
    for width, people, parts in product(args.widths, args.people, args.parts):
        if (width, parts, people) not in known:
            rows.append(fitted(width, parts, people, args.device))
            print(said(rows[-1]), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
