"""How long a whole VertiGAN run takes at the paper's settings: 1500 rounds × 10 critic
steps × batch 1000, two parties.

    python benchmarks/verti_gan/bench.py [--rounds 1500] [--device auto] [--only census har] [--out ours.csv]

Rows are random, of the one-hot widths of the paper's Table 2 and its 10⁵ people: the
time does not depend on what they say. The clock runs over `train` as a user calls it:
messages, ledger (in memory), secure noise and all. With fewer rounds than 1500 the time
is scaled up from the rounds after the first five, and the row says so.

On a GPU each run is measured twice in one process, and `start` says which it was:
`warm` is the second. The first is `cold` where Triton's cache of kernels was empty,
which is once on a machine, and else `fresh`: a new process.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch

from common.options import options, quick
from common.rows import read, said, write
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.models.network import pick_device
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.base import Progress
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

WIDTHS = {  # 002 Table 2: one-hot dimensions of the two parties
    "vehicle": (100, 102),
    "web": (124, 123),
    "census": (137, 145),
    "twitter": (195, 174),
    "har": (562, 566),
    "dilbert": (1500, 1505),
}
PAPER = {
    "web": 485.35,
    "vehicle": 396.35,
    "census": 424.42,
    "twitter": 510.26,
    "har": 3296.08,
    "dilbert": 8387.30,
}
FIELDS = [
    "dataset",
    "width_1",
    "width_2",
    "device",
    "start",
    "rounds",
    "seconds_1500",
    "paper_seconds",
    "ratio",
    "up_mb",
    "down_mb",
]
WARM = 5
QUICK = quick()


def holding(width: int, rows: int, name: str, seed: int) -> tuple[pd.DataFrame, Schema]:
    """A table of yes/no columns whose one-hot form is `width` wide."""
    columns = [
        Boolean(name=f"{name}{i}")
        for i in range((width - 3) // 2 if width % 2 else width // 2)
    ]
    table: dict[str, object] = {}
    bits = (
        np.random.default_rng(seed).random((rows, len(columns)), dtype=np.float32) < 0.3
    )
    for i, column in enumerate(columns):
        table[column.name] = bits[:, i]
    if width % 2:
        columns.append(Categorical(name=f"{name}last", categories=("a", "b", "c")))  # type: ignore[arg-type]
        table[f"{name}last"] = np.random.default_rng(seed).choice(["a", "b", "c"], rows)
    return pd.DataFrame(table), Schema(columns=tuple(columns))


def measure(dataset: str, rounds: int, device: str, rows: int) -> dict[str, object]:
    """One run; seconds for 1500 rounds."""
    tables = {}
    schemas = {}
    for number, width in enumerate(WIDTHS[dataset]):
        tables[f"party{number}"], schemas[f"party{number}"] = holding(
            width, rows, f"p{number}_", number
        )
    federation = Federation.rehearsal(tables, schemas, budget=Budget(8.0, 1e-6))
    parties = LocalParties(federation.parties("verti-gan", run="bench"))
    config = verti_gan.Config(rounds=rounds, device=device)
    marks: list[float] = []

    def watch(progress: Progress) -> None:
        marks.append(time.perf_counter())

    start = time.perf_counter()
    verti_gan.train(config, parties, federation.schemas, watch=watch)
    seconds = marks[-1] - start
    if rounds < 1500:
        seconds = (marks[WARM - 1] - start) + (marks[-1] - marks[WARM - 1]) / (
            rounds - WARM
        ) * (1500 - WARM)
    lines = [
        line
        for (_, kind), line in parties.transcript.lines.items()
        if kind.endswith(".round")
    ]
    scale = 1500 / rounds / len(lines) / 1e6
    return {
        "dataset": dataset,
        "width_1": WIDTHS[dataset][0],
        "width_2": WIDTHS[dataset][1],
        "device": device,
        "rounds": rounds,
        "seconds_1500": round(seconds, 1),
        "paper_seconds": PAPER[dataset],
        "ratio": round(PAPER[dataset] / seconds, 1),
        "up_mb": round(sum(line.up_bytes for line in lines) * scale, 1),
        "down_mb": round(sum(line.down_bytes for line in lines) * scale, 1),
    }


def starts(device: str) -> tuple[str, ...]:
    """What the runs of one process begin with."""
    if device != "cuda":
        return ("",)
    cache = Path(
        os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    )
    return ("fresh" if cache.is_dir() and any(cache.iterdir()) else "cold", "warm")


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, device="auto")
    parser.add_argument("--rounds", type=int, default=8 if QUICK else 1500)
    parser.add_argument("--rows", type=int, default=2_000 if QUICK else 100_000)
    parser.add_argument(
        "--only",
        nargs="*",
        default=["vehicle"] if QUICK else list(WIDTHS),
        choices=WIDTHS,
    )
    parser.add_argument(
        "--add", action="store_true", help="to what stands in the CSV file"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    warnings.simplefilter("ignore")
    device = str(pick_device(args.device))
    chip = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{platform.machine()}, {os.cpu_count()} cores"
    )
    print(f"{chip}, torch {torch.__version__}; the paper: Quadro RTX 6000 (Table 3)")
    rows = read(args.out) if args.add else []
    for dataset in args.only:
        for start in starts(device):
            rows.append(
                measure(dataset, args.rounds, device, args.rows) | {"start": start}
            )
            print(said(rows[-1]), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
