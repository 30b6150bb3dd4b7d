"""How long moments takes for 60,000 images of one holder, and how much memory.

    OMP_NUM_THREADS=2 python benchmarks/images/speed.py [--people 60000] [--features 400]

Made-up grey images of 28 × 28 with ten classes: blots that lie elsewhere in each class.
`statistics_s` is all that the holder does with its rows, from pixels to three releases
with their noise; `fit_s` what the server makes of them; `rest_s` the calibration of the
noise and the messages. Seconds by the clock, after the imports; `peak_mb` is the most
that the process held, the images (47 MB) and all libraries included. As they are, and
`upright`, each in a process of its own. QUICK=1 takes few images.
"""

import argparse
import resource
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch

from common.options import options, quick
from common.rows import said, write
from understudy.api.train import train
from understudy.data.images import Images, ImageSchema
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.joint.party import JointParty
from understudy.protocols.moments import protocol
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
SIDE = 28
CLASSES = 10
FIELDS = [
    "people",
    "features",
    "upright",
    "threads",
    "statistics_s",
    "fit_s",
    "rest_s",
    "peak_mb",
]


def blots(people: int) -> tuple[Any, Any]:
    """Images (people, 28, 28) of bytes, and classes."""
    rng = np.random.default_rng(0)
    classes = np.arange(people) % CLASSES
    centre = 6 + 16 * rng.random((CLASSES, 2))[classes] + rng.normal(0, 2, (people, 2))
    place = np.arange(SIDE)
    across, down = (np.exp(-((place - centre[:, [axis]]) ** 2) / 18) for axis in (0, 1))
    pixels = np.empty((people, SIDE, SIDE), dtype=np.uint8)
    for start in range(0, people, 1000):  # so that the peak is that of moments
        some = slice(start, start + 1000)
        pixels[some] = np.rint(255 * across[some, :, None] * down[some, None, :])
    return pixels, classes


def measured(people: int, features: int, upright: bool) -> dict[str, Any]:
    pixels, classes = blots(people)
    schema = ImageSchema(
        height=SIDE, width=SIDE, label="class", classes=tuple(range(CLASSES))
    )
    taken = {"statistics_s": 0.0, "fit_s": 0.0}

    def timed(name: str, real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            begin = time.perf_counter()
            found = real(*args, **more)
            taken[name] += time.perf_counter() - begin
            return found

        return call

    JointParty.respond = timed("statistics_s", JointParty.respond)  # type: ignore[method-assign]
    protocol.fit_cells = timed("fit_s", protocol.fit_cells)
    protocol.match_shades = timed("fit_s", protocol.match_shades)
    begin = time.perf_counter()
    held = {"one": Images.from_array(pixels, schema, labels=classes)}
    taken["statistics_s"] += time.perf_counter() - begin
    federation = Federation.rehearsal(
        held, budget=Budget(1.0, 1e-5), seed=0, same_people=False
    )
    train("moments", federation, features=features, upright=upright)
    whole = time.perf_counter() - begin
    return {
        "people": people,
        "features": features,
        "upright": upright,
        "threads": torch.get_num_threads(),
        **{name: round(seconds, 2) for name, seconds in taken.items()},
        "rest_s": round(whole - sum(taken.values()), 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "speed.csv")
    parser.add_argument("--people", type=int, default=500 if QUICK else 60_000)
    parser.add_argument("--features", type=int, default=400)
    return parser


def main() -> None:
    args = parser().parse_args()
    rows = []
    for upright in (False, True):
        with get_context("spawn").Pool(1) as fresh:
            rows.append(fresh.apply(measured, (args.people, args.features, upright)))
        print(said(rows[-1]))
    write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
