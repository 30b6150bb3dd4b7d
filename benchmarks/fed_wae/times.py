"""Computing time of DP-Fed-WAE: Table 4.4.

    python benchmarks/fed_wae/times.py --data data --out benchmarks/fed_wae/times.csv

X. Jiang, dissertation, TUM 2024, §4.5.1: ten local epochs of a client, one step of the
server over a round's reports, and the drawing of 10⁵ rows. CPU time of one thread, the
best of some turns; a client's is that of one among ten who are trained as one batch, and
the server's includes what is checked of each reply. The drawing ends with a table in
the schema's own values.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import torch
from wae_tables import load

from common.options import options, quick
from common.rows import said, write
from understudy.data.encoding.population import population_of
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.models.nets.autoencoder import LocalTraining
from understudy.privacy.noise import FastRng
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.cross_device.downlink import moved
from understudy.protocols.cross_device.reporting import (
    form_of,
    from_message,
    to_message,
)
from understudy.protocols.papers.fed_wae.protocol import Config

HERE = Path(__file__).parent
QUICK = quick()
CLIENTS = 10
ROWS = 2  # of a client
DRAWN = 1000 if QUICK else 100_000
TURNS = 1 if QUICK else 5
FIELDS = [
    "dataset",
    "dims",
    "client_ms",
    "server_ms",
    "drawn_rows",
    "drawing_s",
    "machine",
    "date",
]


def measure(dataset: str, folder: Path | None, machine: str) -> dict[str, Any]:
    data = bench.generated() if folder is None else load(dataset, folder)
    rows = data.train.iloc[: CLIENTS * ROWS]
    table = read_table(rows, data.schema)
    config = Config(epsilon=8.0, top=0.1)
    rule = common_rule({"rows": table.schema})
    network = config.network_for(rule)
    rng = FastRng(0)
    weights = network.init(rng)
    training = LocalTraining(
        network, epochs=config.epochs, lr=config.learning_rate, optimizer="adam"
    )
    x = rule.expand(population_of(table).rows)
    clients = x.view(CLIENTS, ROWS, *x.shape[1:])
    mask = torch.ones(CLIENTS, ROWS, dtype=torch.bool)
    updates = training(weights, clients, mask, rng)
    reporter = config.local(network.size)
    form = form_of(reporter)
    message = to_message([reporter.report(updates, rng)])
    generator = Generator.from_parts(
        GeneratorParts(network.decoder(weights), data.schema, {})
    )

    def step() -> object:
        total = from_message(message, form, CLIENTS).total()
        return moved(weights, total, CLIENTS, config.step)

    client = best(lambda: training(weights, clients, mask, rng))
    server = best(step)
    drawing = best(lambda: generator.sample(DRAWN, seed=0))
    return {
        "dataset": dataset,
        "dims": network.size,
        "client_ms": round(1000 * client / CLIENTS, 3),
        "server_ms": round(1000 * server, 3),
        "drawn_rows": DRAWN,
        "drawing_s": round(drawing, 3),
        "machine": machine,
        "date": date.today().isoformat(),
    }


def best(run: Callable[[], object]) -> float:
    """Seconds of one core: the least of some turns after a first."""
    run()
    spent = []
    for _ in range(TURNS):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return min(spent)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "times.csv", data=True)
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(1)
    folder = None if QUICK else args.data
    rows = [measure(name, folder, args.machine) for name in ("a9a", "census")]
    for row in rows:
        print(said(row), flush=True)
    write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
