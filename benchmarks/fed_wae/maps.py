"""Maps of correlations, real beside synthetic: Figure 4.7.

    python benchmarks/fed_wae/maps.py --data data --out benchmarks/fed_wae/maps.png

X. Jiang, dissertation, TUM 2024, §4.5.2: ε = 8, ξ = 0.1, everybody reports once. A
pixel is Pearson's correlation of two columns, red above 0 and blue below, in their
order; a square for the real rows and one for each method, as in the printed line.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image
from wae_tables import FILES, Data, load

from common.options import options, quick
from understudy.data.encoding.codec import Codec

HERE = Path(__file__).parent
QUICK = quick()
METHODS = ("DP-Fed-WAE, once", "LoPub", "LoCop")
PIXELS = 3  # of a pair of columns, on each side
GAP = 6


def correlation_map(frame: pd.DataFrame, data: Data) -> NDArray[np.uint8]:
    """One square: (columns, columns, 3); a column of one value is white."""
    codes = Codec(data.schema).codes(frame).astype(float)
    centred = codes - codes.mean(axis=0)
    norms = np.sqrt((centred**2).sum(axis=0))
    norms[norms == 0] = np.inf
    strength = (centred / norms).T @ (centred / norms)
    paler = 255 * (1 - np.abs(strength))
    red = np.where(strength < 0, paler, 255)
    blue = np.where(strength > 0, paler, 255)
    return np.stack([red, paler, blue], axis=2).round().astype(np.uint8)


def side_by_side(maps: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    large = [square.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1) for square in maps]
    gap = np.full((len(large[0]), GAP, 3), 128, np.uint8)
    parts = [part for square in large for part in (square, gap)]
    return np.concatenate(parts[:-1], axis=1)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "maps.png", data=True, device="cpu")
    parser.add_argument("--only", default="a9a", choices=FILES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--epsilon", type=float, default=8.0)
    return parser


def main() -> None:
    args = parser().parse_args()
    data = bench.generated() if QUICK else load(args.only, args.data)
    maps = [correlation_map(data.train, data)]
    for method in args.methods:
        job = {
            "dataset": args.only,
            "method": method,
            "epsilon": args.epsilon,
            "top": 0.1,
            "seed": 0,
            "settings": "{}",
            "device": args.device,
            "rounds": 4 if QUICK else 5000,
            "clients_per_round": 10,
        }
        drawn, _ = bench.draw(job, data)
        maps.append(correlation_map(drawn["sample"], data))
        distance = np.abs(maps[-1].astype(int) - maps[0]).mean() / 255
        print(f"{method}: mean difference of the maps {distance:.3f}", flush=True)
    if args.out is not None:
        picture = Image.fromarray(side_by_side(maps))
        few_colours = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
        few_colours.save(args.out, optimize=True)


if __name__ == "__main__":
    main()
