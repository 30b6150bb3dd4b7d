"""What a server sees of a run, as numbers, and a rule learned from them that tells two worlds apart.

Guarantee: none; these are an adversary's tools, for runs on made-up rows.
Edges: numbers that never move tell nothing; runs of unequal length are filled up with zeros.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from understudy.protocols.core import Ask, Paid, Party, Reply

Numbers = NDArray[np.float64]

_MOST_FEATURES = 256  # those that differ the most; a discriminant of more would learn the noise


class Seen:
    """Parties in this process, and every reply that the server gets from them."""

    def __init__(self, parties: Mapping[str, Party]) -> None:
        self.parties = dict(parties)
        self.replies: dict[str, list[Reply]] = {name: [] for name in parties}

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in the order in which they were given."""
        return tuple(self.parties)

    def ask(self, message: Ask | Mapping[str, Ask], *, at_least: int | None = None) -> dict[str, Any]:
        """Ask all the same, or each named party its own."""
        asks = dict.fromkeys(self.names, message) if isinstance(message, Ask) else message
        replies = {name: self.parties[name].answer(ask) for name, ask in asks.items()}
        for name, reply in replies.items():
            self.replies[name].append(reply)
        return replies


def paid_numbers(replies: Iterable[Reply]) -> list[float]:
    """Every number in the paid values of these replies, in order."""
    return _numbers([v.value for reply in replies for v in vars(reply).values() if isinstance(v, Paid)])


def _numbers(value: object) -> list[float]:
    match value:
        case Tensor():
            return [float(number) for number in value.detach().double().flatten().tolist()]
        case Mapping():
            return [number for item in value.values() for number in _numbers(item)]
        case list() | tuple() | bytes():
            return [number for item in value for number in _numbers(item)]
        case int() | float():
            return [float(value)]
    return []


def table(rows: Sequence[Sequence[float]]) -> Numbers:
    """One row a run."""
    filled = np.zeros((len(rows), max(map(len, rows))))
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return filled


def learned(present: Numbers, absent: Numbers) -> tuple[Numbers, Numbers]:
    """Scores of the second half of the runs, by a linear discriminant of the first half."""
    width = max(present.shape[1], absent.shape[1])
    present, absent = (np.pad(side, ((0, 0), (0, width - side.shape[1]))) for side in (present, absent))
    half = len(present) // 2
    pilot = np.concatenate([present[:half], absent[:half]])
    centre, spread = pilot.mean(0), pilot.std(0)
    moves = np.flatnonzero(spread > 1e-12 * np.abs(centre))
    if not len(moves):
        return np.zeros(len(present) - half), np.zeros(len(absent) - half)
    apart = np.abs(present[:half, moves].mean(0) - absent[:half, moves].mean(0)) / spread[moves]
    best = moves[np.argsort(-apart)[:_MOST_FEATURES]]

    def features(runs: Numbers) -> Numbers:
        scaled: Numbers = (runs[:, best] - centre[best]) / spread[best]
        return scaled

    rule = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    rule.fit(features(pilot), np.repeat([1, 0], half))
    scores = [np.asarray(rule.decision_function(features(side[half:]))) for side in (present, absent)]
    return scores[0], scores[1]
