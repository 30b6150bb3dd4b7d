"""Subset selection: of K cells a person names s, and their own is among these more often than another would be.

Ye, Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy" (IEEE Trans. Inf.
Theory 2018), §III: optimal in squared error at every ε. Paper → code: k → cells, d → size, e^ε d/(e^ε d + k − d) → the
share `kept_reports`/2⁶² of reports that hold the person's own cell. At size 1 it is randomized response over K cells.

A report is all subsets of one size, so that P(report | cell) ∝ 1 + (e^ε − 1)·[cell ∈ report]: a likelihood that any
model of the cells can be fitted to.

Differs from the paper: the share is a whole number of 2⁻⁶², rounded down, so that no float stands between ε and the
law. Sent are the numbers of the cells or a bit for each, whichever is shorter: at s = 1 one byte for up to 256 cells,
two above.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from understudy.ground.check import in_range, whole
from understudy.privacy.local.reporter import GRAIN, NamingMechanism
from understudy.privacy.noise import Rng

MOST_CELLS = 1 << 16
_DRAWN = 1 << 22  # keys in work at a time


@dataclass(frozen=True, kw_only=True)
class SubsetSelection(NamingMechanism):
    """Reports on one of `cells` cells.

    Guarantee: ε-LDP: whatever other cell stood in its place, no report is more than e^ε times likelier (`odds` is
    the exact figure, at most e^ε). All randomness is whole numbers; the time a report takes does not depend on the
    cell.
    Edges: nobody → no reports; a cell outside 0 … cells − 1 → ValueError before anything is drawn.
    """

    cells: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(cells=self.cells)
        in_range(2, MOST_CELLS, cells=self.cells)

    @cached_property
    def size(self) -> int:
        """s, the cells that a report names."""
        return max(1, round(self.cells / (1 + math.exp(self.epsilon))))

    @property
    def favoured(self) -> tuple[int, int]:
        return self.size, self.cells

    @property
    def lift(self) -> float:
        """e^ε − 1 as it is drawn: a report that holds a share P of the people is 1 + lift·P times likelier."""
        return float(self.odds - 1)

    @property
    def most_weight(self) -> float:
        """By how much one report can move the unbiased estimate of a cell's count: 1/(P(in | own) − P(in | other))."""
        own = Fraction(self.kept_reports, GRAIN)
        other = (self.size - own) / (self.cells - 1)
        return float(1 / (own - other))

    def probability(self, *, named: bool) -> Fraction:
        """Of one report, for a cell that it names or for one that it does not."""
        share, others = Fraction(self.kept_reports, GRAIN), self.cells - 1
        return (share if named else 1 - share) / math.comb(others, self.size - named)

    def __call__(self, cells: Tensor, rng: Rng) -> Tensor:
        """The cells that each report names, in rising order: int64, (n, size)."""
        if cells.ndim != 1 or cells.dtype != torch.int64 or bool(((cells < 0) | (cells >= self.cells)).any()):
            raise ValueError(f"cells must be whole numbers below {self.cells}. Nothing was drawn.")
        step = max(1, _DRAWN // self.cells)
        parts = [self._drawn(part, rng) for part in torch.split(cells, step)]
        return torch.cat(parts) if parts else torch.zeros(0, self.size, dtype=torch.int64)

    def _drawn(self, own: Tensor, rng: Rng) -> Tensor:
        kept = rng.integers(GRAIN, len(own)) < self.kept_reports
        others = self._others(len(own), rng)  # numbers among the cells that are not the person's own
        named = others + (others >= own[:, None])
        named[:, -1] = torch.where(kept, own, named[:, -1])
        return named.sort(1).values

    def _others(self, n: int, rng: Rng) -> Tensor:
        """`size` different numbers below cells − 1 for each report, every set of them alike, in a random order."""
        if self.size == 1:
            return rng.integers(self.cells - 1, n, 1)
        keys = rng.integers(GRAIN, n, self.cells - 1)
        while bool((again := (keys.sort(1).values.diff(dim=1) == 0).any(1)).any()):
            keys[again] = rng.integers(GRAIN, int(again.sum()), self.cells - 1)
        return keys.argsort(1)[:, : self.size]

    @property
    def _digits(self) -> int:
        return 1 if self.cells <= 256 else 2

    @property
    def by_number(self) -> bool:
        """Whether cells are sent by their numbers, or as a bit for each cell."""
        return self.size * self._digits < math.ceil(self.cells / 8) or self.size == 1

    @property
    def bytes(self) -> int:
        return self.size * self._digits if self.by_number else math.ceil(self.cells / 8)

    def encode(self, named: Tensor) -> Tensor:
        """Reports as bytes: uint8, (n, bytes)."""
        numbers = named.numpy()
        if self.by_number:
            digits = numbers.astype(">u2").view(np.uint8).reshape(len(numbers), self.size, 2)
            sent = digits[:, :, 2 - self._digits :].reshape(len(numbers), self.bytes)
        else:
            bits = np.zeros((len(numbers), self.cells), dtype=np.bool_)
            np.put_along_axis(bits, numbers, True, axis=1)
            sent = np.packbits(bits, axis=1)
        return torch.from_numpy(np.ascontiguousarray(sent))

    def decode(self, sent: Tensor) -> tuple[Tensor, Tensor]:
        """What `encode` wrote, and which reports are none: (n, size) with 0 … size − 1 there, and bool (n,). A report
        is none where it names too few or too many cells, one twice, or one that does not exist.
        """
        raw = sent.numpy()
        named = np.tile(np.arange(self.size), (len(raw), 1))
        if self.by_number:
            digits = raw.reshape(len(raw), self.size, self._digits).astype(np.int64)
            found = digits[:, :, 0] if self._digits == 1 else digits[:, :, 0] * 256 + digits[:, :, 1]
            good = (found < self.cells).all(1) & (np.diff(found, axis=1) > 0).all(1)
            named[good] = found[good]
        else:
            bits = np.unpackbits(raw, axis=1)
            good = (bits.sum(1) == self.size) & ~bits[:, self.cells :].any(1)
            named[good] = np.nonzero(bits[good])[1].reshape(-1, self.size)
        return torch.from_numpy(named), torch.from_numpy(~good)
