"""What the benchmarks of known laws share: people of a law at one holder, in a
rehearsal, by one run a cell.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from common import publication
from common.grid import Grid, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.visits import VisitSchema
from understudy.generators.generator import Generator
from understudy.runs.federation import Federation

QUICK = quick()
MOST = 12  # visits of a person


def trained(
    frames: Mapping[str, pd.DataFrame],
    schema: VisitSchema,
    cell: Any,
    args: Mapping[str, Any],
) -> tuple[Generator, float]:
    """What a cell's run makes of these people, and the seconds of release and fit."""
    warnings.simplefilter("ignore")
    budget = publication.budget(cell.epsilon)
    held = Federation.rehearsal(
        {"holder": frames}, {"holder": schema}, budget=budget, seed=cell.seed
    )
    start = time.perf_counter()
    result = train(
        "visits",
        held,
        **({"device": args["device"], "seed": cell.seed} | args["settings"]),
    )
    return result.generator, round(time.perf_counter() - start, 1)


def law_options(
    doc: str | None, out: Path, laws: Sequence[str], epsilons: Sequence[float]
) -> argparse.ArgumentParser:
    parser = grid_options(doc, out=out, device="cpu")
    parser.add_argument("--laws", nargs="*", default=laws)
    parser.add_argument("--epsilons", nargs="*", type=float, default=epsilons)
    parser.add_argument("--people", type=int, default=400 if QUICK else 8_000)
    parser.add_argument("--seeds", type=int, default=1)
    return parser


def run_all(
    grid: Grid,
    measure: Callable[..., Any],
    cell: Callable[..., Any],
    args: argparse.Namespace,
    **more: Iterable[Any],
) -> None:
    """Every law under every ε and seed, with `more` that varies."""
    varied = {
        "seed": range(args.seeds),
        "epsilon": args.epsilons,
        "law": args.laws,
    } | more
    asked = (
        cell(**dict(zip(varied, values, strict=True)))
        for values in product(*varied.values())
    )
    settings = {"steps": 60} if QUICK else {}
    grid.run(partial(measure, args=vars(args) | {"settings": settings}), asked, args)
