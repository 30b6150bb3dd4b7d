"""DP-GenFL beside its paper: accuracy, training loss and membership inference over the
share γ of made-up rows.

    make bench NAME=gen_fl DATA=<folder> [QUICK=1]
    python benchmarks/gen_fl/bench.py --data data --device cuda --jobs 12 --signals build/signals
    python benchmarks/gen_fl/bench.py --data data --device cuda --jobs 12 --gan-epochs 10 50 --signals build/signals
    python benchmarks/gen_fl/shadows.py --signals build/signals    # the attack by shadow models, shadows.csv

Li, Wei, Ma, Shu, "DP-GenFL" (supplementary file), Appendix E, Figure E1 and Tables
E1–E3: 50 clients, 30 a round, 80 rounds, 5 local steps, ε = 4; its perceptron on MNIST
and its CNN on Fashion-MNIST. Its learning rate of 0.02 is an option: `LEARNING_RATES`
are those at which the reference without privacy is the most accurate. "private GAN"
rows train the GAN's critic with DP-SGD within the same ε; the paper's GAN has no
guarantee. Each seed parts all images anew into the clients' and those that are tested
on. `curves.csv` gets the loss on some of the clients' images meanwhile, and the
folder of `--signals` what the model says of every image, for `shadows.py`. A finished
cell (data set, model, method, epochs of the GAN, learning rate, local steps, seed) is
in the file and is not computed again.
"""

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from common.grid import Grid, grid_options
from common.loaders import IMAGES, Images, images
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.population import Population
from understudy.generators.classifier import Classifier
from understudy.models.network import pick_device
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.papers.gen_fl.protocol import MODELS as MODEL_NAMES
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
SEEDS = [0, 1, 2, 3, 4]
CLIENTS = 50
CHUNK = 2000  # images at a time
EPSILON = 4.0
DELTA = 1e-5
METHODS: dict[str, dict[str, Any]] = {
    "no privacy": {"share": 0.0, "private": False},
    "DP-FL": {"share": 0.0},
    **{f"DP-GenFL γ={share:g}": {"share": share} for share in (1.0, 0.6, 0.2)},
    **{
        f"DP-GenFL γ={share:g}, private GAN": {"share": share, "dp_generator": True}
        for share in (1.0, 0.6, 0.2)
    },
}
MODELS = {"mnist": "mlp", "fashion_mnist": "cnn"}
LEARNING_RATES = {"mlp": 0.5, "cnn": 0.2}  # the first of --learning-rate's defaults
GAN_EPOCHS = {
    "mnist": 100,
    "fashion_mnist": 200,
}  # those of Tables E1 and E2 nearest E3
BATCH = 64
# of the clients' images whose loss is followed, on a processor
CURVE_ROWS = {"logistic": 1000, "mlp": 1000, "cnn": 300}
KEY = (
    "dataset",
    "model",
    "method",
    "gan_epochs",
    "learning_rate",
    "steps",
    "seed",
)
FIELDS = [
    "dataset",
    "model",
    "method",
    "gan_epochs",
    "epsilon",
    "delta",
    "real_rows_epsilon",
    "guarantee",
    "participations",
    "seed",
    "clients",
    "rounds",
    "steps",
    "learning_rate",
    "accuracy",
    "mia",
    "seconds",
    "machine",
    "date",
]
CURVE_FIELDS = [*KEY, "round", "loss", "accuracy"]


class Split(NamedTuple):
    """All images, and which of them clients hold."""

    rows: Images
    is_member: NDArray[np.bool_]

    def part(self, of_clients: bool) -> Images:
        chosen = self.is_member == of_clients
        return self.rows[0][chosen], self.rows[1][chosen]


def split(train: Images, test: Images, *, clients: int, seed: int) -> Split:
    """Give clients equal shares of as many images as `train` has, drawn from all."""
    rows = tuple(np.concatenate(parts) for parts in zip(train, test, strict=True))
    each = len(train[1]) // clients
    order = np.random.default_rng(seed).permutation(len(rows[1]))
    is_member = np.zeros(len(order), bool)
    is_member[order[: each * clients]] = True
    return Split((rows[0], rows[1]), is_member)


class Measured(NamedTuple):
    """A row of the file, rows of the curve, and the log-odds of each image's class."""

    row: dict[str, Any]
    curve: list[dict[str, Any]]
    signals: NDArray[np.float64]


def measure(
    dataset: str,
    parts: Split,
    method: str,
    *,
    seed: int,
    clients: int = CLIENTS,
    gan_epochs: int | str = "",
    machine: str = "",
    **settings: Any,
) -> Measured:
    """One cell: clients of equal shares of the images, at random."""
    pictures, labels = parts.part(of_clients=True)
    order = np.random.default_rng([seed, 1]).permutation(len(labels))
    own = pictures[order], labels[order]
    each = len(labels) // clients
    classes = int(parts.rows[1].max()) + 1
    people = Population.from_arrays(*own, classes=classes, rows_per_person=each)
    followed_rows = CURVE_ROWS[settings.get("model", "mlp")]
    followed = own[0][:followed_rows], own[1][:followed_rows]
    followed_people = Population.from_arrays(
        *followed, classes=classes, rows_per_person=len(followed[1])
    )
    federation = Federation.rehearsal(
        {"clients": people}, budget=Budget(math.inf, 0.0), seed=seed
    )
    if gan_epochs:
        batch = settings.get("batch", BATCH)
        settings["gan_steps"] = max(1, round(int(gan_epochs) * each / batch))
    start = time.perf_counter()
    result = train(
        "gen-fl",
        federation,
        holdout=followed_people,
        rows=each,
        epsilon=EPSILON,
        delta=DELTA,
        seed=seed,
        checkpoint_every=10**6,
        **(METHODS[method] | settings),
    )
    seconds = time.perf_counter() - start
    card = result.model.card
    config = card["config"]
    guarded = card["synthetic_rows"] == "within ε"
    scores = _scores(result.model, parts.rows[0], config["device"])
    right = scores.argmax(1) == parts.rows[1]
    signals = log_odds(scores, parts.rows[1])
    key = {
        "dataset": dataset,
        "model": config["model"],
        "method": method,
        "gan_epochs": gan_epochs,
        "learning_rate": config["learning_rate"],
        "steps": config["steps"],
        "seed": seed,
    }
    row = key | {
        "epsilon": EPSILON if guarded else "",
        "delta": DELTA,
        "real_rows_epsilon": ""
        if card["real_rows"]["epsilon"] is None
        else round(card["real_rows"]["epsilon"], 3),
        "guarantee": "yes" if guarded else "none",
        "participations": config["max_reports"],
        "clients": clients,
        "rounds": card["rounds"],
        "accuracy": round(float(right[~parts.is_member].mean()), 4),
        "mia": round(membership(signals, parts.is_member, seed), 4),
        "seconds": round(seconds, 1),
        "machine": machine,
        "date": date.today().isoformat(),
    }
    curve = [
        key | {name: round(point[name], 4) for name in ("round", "loss", "accuracy")}
        for point in card["history"]
    ]
    return Measured(row, curve, signals)


def log_odds(
    scores: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """log p/(1 − p) of each row's own class: Carlini et al. (2022), § V."""
    own = np.take_along_axis(scores, labels[:, None], 1)[:, 0]
    others = scores.copy()
    np.put_along_axis(others, labels[:, None], -np.inf, 1)
    return np.asarray(own - logsumexp(others, axis=1))


def membership(
    signals: NDArray[np.float64],
    is_member: NDArray[np.bool_],
    seed: int,
    most: int = 5000,
) -> float:
    """How often a threshold on the loss tells members from others: learned on one half,
    tested on the other.

    Yeom et al. (2018): 0.5 is guessing. `shadows.py` has shadow models.
    """
    rng = np.random.default_rng(seed)
    kinds = [rng.permutation(signals[chosen]) for chosen in (is_member, ~is_member)]
    size = min(most, *(len(kind) for kind in kinds))
    half = size // 2
    learned = [kind[:half] for kind in kinds]
    tested = [kind[half:size] for kind in kinds]
    cuts = np.quantile(np.concatenate(learned), np.linspace(0, 1, 201))
    gains = [(learned[0] >= cut).mean() - (learned[1] >= cut).mean() for cut in cuts]
    cut = cuts[int(np.argmax(gains))]
    gain = (tested[0] >= cut).mean() - (tested[1] >= cut).mean()
    return 0.5 + 0.5 * float(gain)


def _scores(
    model: Classifier, pictures: NDArray[np.uint8], device: str
) -> NDArray[np.float64]:
    """What the network says of each image before the softmax: (rows, classes)."""
    place = pick_device(device)
    weights = model.weights.to(place)
    rows = model.features.rows(pictures)
    found = []
    with torch.no_grad():
        for part in torch.split(rows, CHUNK):
            inputs = model.features.expand(part).to(place)
            found.append(model.network.forward(weights, inputs).double().cpu())
    return torch.cat(found).numpy()


def cell(job: dict[str, Any]) -> dict[str, Any]:
    """One cell in a process of its own."""
    torch.set_num_threads(1)
    train_images, test_images = images(job["dataset"], job["data"])
    parts = split(train_images, test_images, clients=CLIENTS, seed=job["seed"])
    found = measure(
        job["dataset"],
        parts,
        job["method"],
        seed=job["seed"],
        gan_epochs=job["gan_epochs"],
        machine=job["machine"],
        **job["settings"],
    )
    if job["curves"] is not None:
        CURVES.add(found.curve, job["curves"])
    if job["signals"] is not None:
        job["signals"].mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            job["signals"] / f"{slug(found.row)}.npz",
            log_odds=found.signals.astype(np.float16),
            is_member=parts.is_member,
            **{name: str(found.row[name]) for name in KEY},
        )
    return found.row


def slug(row: dict[str, Any]) -> str:
    """A file's name for a cell."""
    text = "_".join(str(row[name]) for name in KEY)
    return re.sub(r"[^a-z0-9_.]+", "-", text.lower())


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every setting once before any twice."""
    fixed = {
        "rounds": args.rounds,
        "device": args.device,
        "max_reports": math.ceil(args.rounds * 30 / CLIENTS),
    }
    grid = product(args.seeds, args.steps, args.only, args.methods)
    for seed, steps, dataset, method in grid:
        model = args.model or MODELS[dataset]
        with_gan = METHODS[method]["share"] > 0
        own_epochs = args.gan_epochs or [GAN_EPOCHS[dataset]]
        rates = args.learning_rate or [LEARNING_RATES[model]]
        for gan_epochs, rate in product(own_epochs if with_gan else [""], rates):
            settings = {"learning_rate": rate, "steps": steps, "model": model}
            yield {
                "dataset": dataset,
                "method": method,
                "gan_epochs": gan_epochs,
                "seed": seed,
                "data": args.data,
                "machine": args.machine,
                "curves": args.curves,
                "signals": args.signals,
                "settings": fixed | settings,
            }


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Where a row stands in the file."""
    return (
        row["dataset"],
        row["model"],
        float(row["learning_rate"]),
        int(row["steps"]),
        list(METHODS).index(row["method"]),
        int(row["gan_epochs"] or 0),
        int(row["seed"]),
        int(row.get("round") or 0),
    )


GRID = Grid(
    fields=FIELDS, key=KEY, order=place, columns=lambda job: job | job["settings"]
)
CURVES = Grid(fields=CURVE_FIELDS, key=(*KEY, "round"), order=place)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "ours.csv")
    parser.add_argument(
        "--only",
        nargs="*",
        default=["mnist"] if QUICK else list(IMAGES),
        choices=IMAGES,
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        default=["DP-FL"] if QUICK else list(METHODS),
        choices=METHODS,
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0] if QUICK else SEEDS)
    parser.add_argument("--rounds", type=int, default=2 if QUICK else 80)
    parser.add_argument("--steps", type=int, nargs="*", default=[5])
    parser.add_argument("--model", choices=MODEL_NAMES, help="default: the paper's")
    parser.add_argument("--learning-rate", type=float, nargs="*")
    parser.add_argument(
        "--gan-epochs", type=int, nargs="*", help="default: the paper's"
    )
    parser.add_argument(
        "--curves",
        type=Path,
        default=None if QUICK else HERE / "curves.csv",
        help="the file of the training loss over rounds",
    )
    parser.add_argument("--signals", type=Path, help="the folder for shadows.py")
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(cell, jobs(args), args)


if __name__ == "__main__":
    main()
