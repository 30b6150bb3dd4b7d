"""Membership inference by shadow models on DP-GenFL's classifiers: Tables E1–E3.

    python benchmarks/gen_fl/bench.py --data data --device cuda --signals build/signals
    python benchmarks/gen_fl/shadows.py --signals build/signals

Shokri et al., "Membership Inference Attacks Against Machine Learning Models" (S&P
2017), with the log-odds of Carlini et al., "Membership Inference Attacks From First
Principles" (S&P 2022), and the calibration of Watson et al., "On the Importance of
Difficulty Calibration in Membership Inference Attacks" (ICLR 2022).

The runs of the other seeds are the shadow models: each parted all images anew, so the
attacker knows, of a shadow, which were its members. What the attacker sees of an image
is the log-odds of its class in the attacked model, and by how much they exceed their
mean in the other models. A forest learns from the shadows what members look like, and
is asked about the attacked model's images, as many members as others. 0.5 is guessing.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
from bench import KEY, place
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from common.options import options, quick
from common.rows import said, write

HERE = Path(__file__).parent
FIELDS = [*KEY, "shadows", "mia"]
GROUP = tuple(name for name in KEY if name != "seed")
TREES = 100
LEAF = 50  # images of a leaf at least
MAX_ROWS = 20_000  # of each shadow model that the forest learns from


class Model:
    """What one model says of every image, and which images it learned."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.key = {name: str(file[name]) for name in KEY}
            self.log_odds = file["log_odds"].astype(float)
            self.is_member = file["is_member"]

    def sample(
        self, rng: np.random.Generator, max_rows: int | None = None
    ) -> NDArray[np.int64]:
        """As many members as others."""
        kinds = [np.flatnonzero(self.is_member == member) for member in (True, False)]
        size = min(len(kind) for kind in kinds)
        if max_rows is not None:
            size = min(size, max_rows // 2)
        return np.concatenate([rng.permutation(kind)[:size] for kind in kinds])


def attack(target: Model, shadows: Sequence[Model], *, seed: int) -> float:
    """The share of right guesses about the target's images, by one shadow model or
    more.
    """
    rng = np.random.default_rng(seed)
    learned = []
    members = []
    for shadow in shadows:
        others = [model for model in shadows if model is not shadow]
        chosen = shadow.sample(rng, MAX_ROWS)
        learned.append(features(shadow, others)[chosen])
        members.append(shadow.is_member[chosen])
    forest = RandomForestClassifier(TREES, min_samples_leaf=LEAF, random_state=seed)
    forest.fit(np.concatenate(learned), np.concatenate(members))
    asked = target.sample(rng)
    # as many shadows as one of them had beside it, so that both mean the same
    guesses = forest.predict_proba(features(target, shadows[1:])[asked])[:, 1]
    called = guesses > np.median(guesses)
    return float((called == target.is_member[asked]).mean())


def features(model: Model, others: Sequence[Model]) -> NDArray[np.float64]:
    """The log-odds, and by how much they exceed those of other models: (images, 2)."""
    own = model.log_odds
    usual = np.mean([other.log_odds for other in others], axis=0) if others else own
    return np.stack([own, own - usual], axis=1)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """A row for each model that has another of its kind."""
    kinds = defaultdict(list)
    for path in sorted(folder.glob("*.npz")):
        model = Model(path)
        kinds[tuple(model.key[name] for name in GROUP)].append(model)
    rows = []
    for models in kinds.values():
        for target in models:
            shadows = [model for model in models if model is not target]
            if not shadows:
                continue
            accuracy = attack(target, shadows, seed=int(target.key["seed"]))
            row = target.key | {"shadows": len(shadows), "mia": round(accuracy, 4)}
            print(said(row), flush=True)
            rows.append(row)
    return sorted(rows, key=place)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "shadows.csv")
    parser.add_argument("--signals", type=Path, required=not quick())
    return parser


def main() -> None:
    args = parser().parse_args()
    write(args.out, rows_of(args.signals or Path()), FIELDS)


if __name__ == "__main__":
    main()
