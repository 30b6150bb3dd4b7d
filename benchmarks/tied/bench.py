"""Images, tables and halves of images at different holders of the same people: what is
learned across holders.

    make bench NAME=tied DATA=<folder> [QUICK=1]
    python benchmarks/tied/bench.py --data data --device cuda --jobs 6 --out benchmarks/tied/ours.csv
    python benchmarks/tied/bench.py --only fashion_mnist/label --epsilons 1

`label`: the image at one party, its class at another. `halves`: the upper and the lower
half of a digit at two parties, and at a third whether it is odd and in which quarter
its ink falls. `rooms`: two hours of a house's temperatures and humidities (Energy) as
series at two parties, the month and how much current the house took at a third; a
person is such a stretch of two hours. δ = 10⁻⁵, a row a person. Methods: `tied` with
its default settings, and the label as its target; `tied, one covariance`: without a
target, so that classes have means alone; `apart`: each party's rows as tied draws them,
in an order of their own, which is what parties could draw without each other;
`verti-gan`: 300 rounds; `real`: the people's own rows. Classifiers are trained on drawn
rows and tested on real ones. The distance of correlations (`cmd`) is over means of
squares of 7 × 7 pixels and the levels of the tables.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "images")]

import numpy as np
import pandas as pd
import torch
from learners import accuracy

from common.grid import Grid, by_text, grid_options
from common.loaders import IMAGES, images
from common.options import quick
from common.sources import need
from understudy.api.train import train
from understudy.data.images import Images, ImageSchema
from understudy.data.schema import Ordinal, Real, Schema
from understudy.data.series import Series, SeriesSchema
from understudy.models.network import pick_device
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
DELTA = 1e-5
EPSILONS = (0.2, 1.0, 4.0, 10.0)
SPLITS = {"label": ("digit",), "halves": ("odd", "ink"), "rooms": ("month", "load")}
LEVELS = {"digit": 10, "odd": 2, "ink": 4, "month": 5, "load": 4}
STEPS = 12
BOUNDS = {"temperatures": (-10, 35), "humidities": (0, 100)}
METHODS = ("tied", "tied, one covariance", "apart", "verti-gan", "real")
FIELDS = [
    "dataset",
    "people",
    "split",
    "method",
    "epsilon",
    "seed",
    "target",
    "classifier",
    "accuracy",
    "cmd_within",
    "cmd_cross",
    "seconds",
    "up_mb",
    "drawn",
    "device",
]
KEY = ("dataset", "split", "method", "epsilon", "seed")
Held = dict[str, Any]  # images (n, height, width) and frames, by party


def split_up(split: str, x: Any, y: Any) -> Held:
    """What each party has."""
    if split == "label":
        return {"images": x, "table": pd.DataFrame({"digit": y})}
    ink = x.reshape(len(x), -1).mean(1)
    # near its quartiles: bounds are public
    quarter = np.searchsorted([25, 32, 40], ink)
    table = pd.DataFrame({"odd": y % 2, "ink": quarter})
    return {"upper": x[:, :14], "lower": x[:, 14:], "table": table}


def rooms(folder: Path) -> tuple[Held, Held]:
    """Series as values from 0 to 255, (n, steps, channels), of people and to test on:
    every fifth stretch of time.
    """
    (path,) = need(folder, "timegan_energy.csv.gz")
    frame = pd.read_csv(path)
    count = len(frame) // STEPS
    cut = frame.iloc[: count * STEPS].to_numpy(np.float64).reshape(count, STEPS, -1)
    places = {name: place for place, name in enumerate(frame.columns)}
    held: Held = {}
    for party, letters in (("temperatures", "T"), ("humidities", "RH_")):
        own = [places[f"{letters}{n}"] for n in range(1, 10)]
        low, high = BOUNDS[party]
        held[party] = np.clip((cut[:, :, own] - low) * 255 / (high - low), 0, 255)
    load = cut[:, :, places["Appliances"]].mean(1)
    month = np.arange(count) * LEVELS["month"] // count
    held["table"] = pd.DataFrame(
        {"month": month, "load": np.searchsorted([55, 75, 105], load)}
    )
    out = np.arange(count) % 5 == 4
    people, test = (
        {name: rows[part] for name, rows in held.items()} for part in (~out, out)
    )
    return people, test


def whole(held: Held) -> Any:
    """The parties' images, put together again; of series all channels."""
    rows = [rows for rows in held.values() if not isinstance(rows, pd.DataFrame)]
    return np.concatenate(rows, 2 if "humidities" in held else 1)


def correlations(held: Held) -> tuple[Any, Any]:
    """Of squares of pixels and levels, and whose each is."""
    columns = []
    whose = []
    for number, rows in enumerate(held.values()):
        if isinstance(rows, pd.DataFrame):
            own = np.concatenate(
                [np.eye(LEVELS[name])[rows[name].to_numpy(np.int64)] for name in rows],
                1,
            )
        elif "humidities" in held:
            own = rows.mean(1)
        else:
            n, height, width = rows.shape
            own = (
                rows.reshape(n, height // 7, 7, width // 7, 7)
                .mean((2, 4), dtype=np.float64)
                .reshape(n, -1)
            )
        # a constant has none
        columns.append(own + 1e-6 * np.random.default_rng(0).normal(size=own.shape))
        whose += [number] * own.shape[1]
    return np.corrcoef(np.concatenate(columns, 1).T), np.array(whose)


def cmd(drawn: Held, real: Held) -> tuple[float, float]:
    """The mean distance of correlations of two columns within a party, and across
    two.
    """
    (a, whose), (b, _) = correlations(drawn), correlations(real)
    apart = np.abs(a - b)
    same = whose[:, None] == whose
    upper = np.triu(np.ones_like(same), 1)
    return float(apart[upper & same].mean()), float(apart[upper & ~same].mean())


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One run, and a row for each column that is to be told from the images."""
    torch.set_num_threads(1)
    device = pick_device(job["device"])
    if job["split"] == "rooms":
        real, test = (
            {name: one[: job["most"]] for name, one in part.items()}
            for part in rooms(job["data"])
        )
    else:
        real, test = (
            split_up(job["split"], x[: job["most"]], y[: job["most"]])
            for x, y in images(job["dataset"], job["data"])
        )
    start = time.perf_counter()
    drawn, up = (real, 0.0) if job["method"] == "real" else drawn_rows(job, real)
    seconds = time.perf_counter() - start
    within, across = cmd(drawn, real)
    # as many steps for few rows
    epochs = job["epochs"] * max(1, job["drawn"] // len(drawn["table"]))
    row = {key: job[key] for key in KEY} | {
        "people": len(real["table"]),
        "cmd_within": round(within, 4),
        "cmd_cross": round(across, 4),
        "seconds": round(seconds, 1) if up else "",
        "up_mb": round(up, 1) if up else "",
        "drawn": len(drawn["table"]),
        "device": str(device),
    }
    return [
        row
        | {
            "target": target,
            "classifier": learner,
            "accuracy": round(
                accuracy(
                    learner,
                    (whole(drawn), drawn["table"][target].to_numpy(np.int64)),
                    (whole(test), test["table"][target].to_numpy(np.int64)),
                    LEVELS[target],
                    device,
                    epochs,
                    job["seed"],
                ),
                4,
            ),
        }
        for target in SPLITS[job["split"]]
        for learner in ("mlp", "cnn")
    ]


def arrays_of(name: str, rows: Any) -> Any:
    """A party's images or series."""
    if name not in BOUNDS:
        return Images.from_array(
            rows, ImageSchema(height=rows.shape[1], width=rows.shape[2])
        )
    channels = tuple(
        Real(name=f"{name}_{n}", low=0, high=255) for n in range(rows.shape[2])
    )
    return Series.from_array(
        rows, SeriesSchema(length=STEPS, series="stretch", channels=channels)
    )


def drawn_rows(job: dict[str, Any], real: Held) -> tuple[Held, float]:
    """Synthetic rows of all parties, and the megabytes that the busiest of them
    sent.
    """
    held = {}
    schemas = {}
    for name, rows in real.items():
        if isinstance(rows, pd.DataFrame):
            held[name] = rows
            schemas[name] = Schema(
                columns=tuple(
                    Ordinal(name=c, categories=tuple(range(LEVELS[c]))) for c in rows
                )
            )
        else:
            held[name] = arrays_of(name, rows)
    budget = Budget(job["epsilon"], DELTA)
    federation = Federation.rehearsal(
        held, schemas, budget=budget, seed=job["seed"], same_people=True
    )
    if job["method"] == "verti-gan":
        result = train(
            "verti-gan", federation, rounds=job["rounds"], device=job["device"]
        )
    else:
        target = (
            None if job["method"] == "tied, one covariance" else SPLITS[job["split"]][0]
        )
        result = train("tied", federation, target=target)
    rows = result.transcript.rows(result.privacy)
    sent = (
        max(
            sum(row["up_bytes"] for row in rows if row["party"] == name)
            for name in held
        )
        / 1e6
    )
    drawn: Held = result.generator.parts(job["drawn"], seed=job["seed"])
    if job["method"] == "apart":
        rng = np.random.default_rng(job["seed"])
        orders = {name: rng.permutation(job["drawn"]) for name in drawn}
        drawn = {
            name: own.iloc[orders[name]]
            if isinstance(own, pd.DataFrame)
            else own[orders[name]]
            for name, own in drawn.items()
        }
    return drawn, sent


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell."""
    common = {
        key: getattr(args, key)
        for key in ("data", "device", "most", "drawn", "epochs", "rounds")
    }
    for split, datasets in (
        ("label", IMAGES),
        ("halves", ("mnist",)),
        ("rooms", ("energy",)),
    ):
        for dataset in datasets:
            for method in args.methods:
                for epsilon in [0.0] if method == "real" else args.epsilons:
                    few = method in ("verti-gan", "apart", "real") or epsilon not in (
                        1.0,
                        4.0,
                    )
                    for seed in range(1 if few else args.seeds):
                        yield common | {
                            "dataset": dataset,
                            "split": split,
                            "method": method,
                            "epsilon": epsilon,
                            "seed": seed,
                        }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY, "target", "classifier"))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--methods",
        nargs="*",
        default=["tied", "real"] if QUICK else list(METHODS),
        choices=METHODS,
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[4.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument(
        "--most", type=int, default=300 if QUICK else None, help="people to use at most"
    )
    parser.add_argument("--drawn", type=int, default=300 if QUICK else 50_000)
    parser.add_argument("--epochs", type=int, default=1 if QUICK else 6)
    parser.add_argument(
        "--rounds", type=int, default=2 if QUICK else 300, help="of VertiGAN"
    )
    parser.add_argument(
        "--only", default="", help="run the cells whose name contains this"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, (job for job in jobs(args) if args.only in GRID.title(job)), args)


if __name__ == "__main__":
    main()
