"""SignDS-FL's download: bytes of an ask with all weights, and with what was added to
the model since the holder was asked last.

    python benchmarks/sign_ds/downlink.py --data data --out benchmarks/sign_ds/downlink.csv

Dissertation of X. Jiang, TUM 2024, §8.4, proposes to save the download and does not
measure it. One holder with all clients, 20 holders, or a holder for each client, as
with phones; settings are those of `bench.py` with h = 1, ε = 8 and fewer rounds, which
the bytes of an ask depend on little. Bytes are those of the message, with the places of
the people who are asked.
"""

import argparse
import math
import os
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np

from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.population import Population
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
ROWS = 10  # of a client
HOLDERS = ("1", "20", "each client")
DOWNLINKS = ("weights", "changes")
KEY = ("dataset", "model", "holders", "downlink", "seed")
FIELDS = [
    *KEY,
    "dims",
    "clients",
    "clients_per_round",
    "rounds",
    "asks",
    "moves",
    "down_bytes_per_ask",
    "down_bytes_per_move",
    "up_bytes_per_report",
    "machine",
    "date",
]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One run."""
    people, _, clients = bench.load(job["task"], job["data"], job["seed"])
    parts = clients if job["holders"] == "each client" else int(job["holders"])
    clients_per_round = min(250, clients)
    rounds = job["rounds"]
    federation = Federation.rehearsal(
        {f"holder {i}": part for i, part in enumerate(dealt(people, parts))},
        budget=Budget(math.inf, 0.0),
        seed=job["seed"],
    )
    result = train(
        "sign-ds",
        federation,
        reporter="ps",
        epsilon=8.0,
        model=bench.TASKS[job["task"]],
        downlink=job["downlink"],
        rounds=rounds,
        clients_per_round=clients_per_round,
        max_reports=rounds,
        seed=job["seed"],
        checkpoint_every=10**6,
        device=job["device"],
    )
    lines = result.transcript.lines
    asked = {
        kind: [line for (_, ask), line in lines.items() if ask == f"people.{kind}"]
        for kind in ("round", "moved")
    }
    both = asked["round"] + asked["moved"]
    asks = sum(line.count for line in both)
    moves = sum(line.count for line in asked["moved"])
    columns = bench.named(job | {"method": "SignDS (h=1)", "epsilon": 8.0})
    return {name: columns[name] for name in KEY} | {
        "dims": result.model.network.size,
        "clients": clients,
        "clients_per_round": clients_per_round,
        "rounds": rounds,
        "asks": asks,
        "moves": moves,
        "down_bytes_per_move": round(
            sum(line.down_bytes for line in asked["moved"]) / max(1, moves)
        ),
        "down_bytes_per_ask": round(sum(line.down_bytes for line in both) / asks),
        "up_bytes_per_report": round(
            sum(line.up_bytes for line in both) / (rounds * clients_per_round), 1
        ),
        "machine": job["machine"],
        "date": date.today().isoformat(),
    }


def dealt(people: Population, parts: int) -> Iterator[Population]:
    """Clients in so many equal parts."""
    for part in np.array_split(np.arange(people.people), parts):
        rows = slice(ROWS * int(part[0]), ROWS * (int(part[-1]) + 1))
        labels = people.features.labels
        yield Population.from_arrays(
            people.rows[rows].numpy(),
            np.array(labels)[people.codes[rows].numpy()],
            classes=list(labels),
            rows_per_person=ROWS,
        )


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in args.seeds:
        for task in args.tasks:
            for holders in args.holders:
                for downlink in DOWNLINKS:
                    yield {
                        "task": task,
                        "method": "SignDS (h=1)",
                        "epsilon": 8.0,
                        "holders": holders,
                        "downlink": downlink,
                        "seed": seed,
                        "rounds": args.rounds,
                        "data": args.data,
                        "device": args.device,
                        "machine": args.machine,
                    }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY), columns=bench.named)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "downlink.csv", device="cpu")
    parser.add_argument(
        "--tasks",
        nargs="*",
        default=["digits"] if QUICK else ["usps", "fmnist"],
        choices=bench.TASKS,
    )
    parser.add_argument(
        "--holders", nargs="*", default=["1"] if QUICK else ["1", "20"], choices=HOLDERS
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--rounds", type=int, default=3 if QUICK else 20)
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
