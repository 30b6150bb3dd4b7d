"""What can be said publicly about how good a generator is: from what was released, its
noise, and the fit, alone.

*Columns.* Noise of deviation σ on each level moves the shares of a column by about half
of Σ|noise| over all people: 0.4 · Σσ / people. *Pairs.* A released table shows
dependence where its cells depart from the product of its columns by more than their
noise: with the means of rows and columns taken out of each table, Σ (cell − product)² /
σ² is beyond the 95 % quantile of χ² with (rows − 1)(columns − 1) degrees of freedom. A
pair that does not is *below the noise*: whatever dependence the rows have there cannot
be told from none. *Missed.* The fit's table of a pair has more cells outside of their
own 95 % intervals than one in twenty, beyond chance (`answers.bars.Missed`).

Guarantee: post-processing of releases that were paid for: no row is read for it, and
everybody may see it.
Edges: tables that were not released, and such without noise, are not counted; no
released pair → no words about pairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from understudy.answers.bars import is_beyond_chance
from understudy.answers.release import Z
from understudy.ground.check import pluralize

NOISY = 0.02  # a column whose shares the noise moves by more is named
NAMED = 5  # columns, or pairs, that a sentence names
LISTED = 50  # of them that a card lists
_HALF = 0.4  # half of the mean size of noise with a deviation of 1


@dataclass(frozen=True, kw_only=True)
class PublicQuality:
    """By how much noise moves each column's shares; how many pairs were released, those
    that show no dependence beyond the noise, and those that the fit misses, the
    furthest first.
    """

    columns: dict[str, float]
    pairs: int
    below: tuple[tuple[str, str], ...]
    missed: tuple[tuple[str, str], ...]

    @classmethod
    def from_release(
        cls,
        names: Sequence[str],
        sizes: Sequence[int],
        counted: tuple[Tensor, Tensor],
        pairs: tuple[Tensor, Tensor],
        fitted: Tensor,
    ) -> "PublicQuality":
        """`counted` are the people of each level and the deviation of their noise,
        (width,); `pairs` the released counts of all pairs and their deviations,
        `fitted` the fit's, (width, width), symmetric.
        """
        columns = functional.one_hot(
            torch.repeat_interleave(torch.tensor(sizes))
        ).double()
        people, deviations = (tensor.double().cpu() for tensor in counted)
        released, noise = (tensor.double().cpu() for tensor in pairs)
        total = float((people @ columns).mean().clamp(min=1.0))
        moved = (
            _HALF
            * (torch.where(deviations.isfinite(), deviations, 0.0) @ columns)
            / total
        )
        measured = (noise.isfinite() & (noise > 0) & (columns @ columns.T == 0)).triu()
        deviations_of_cells = torch.where(measured, noise, 1.0)
        product = torch.outer(people.clamp(min=0), people.clamp(min=0)) / total
        centre = (
            torch.eye(len(people), dtype=torch.float64)
            - columns / columns.sum(0) @ columns.T
        )
        residual = (
            centre @ torch.where(released.isfinite(), released - product, 0.0) @ centre
        )
        departs = torch.where(measured, (residual / deviations_of_cells).square(), 0.0)
        outside = measured & (
            (fitted.double().cpu() - released).abs()
            > (Z * deviations_of_cells - 0.5).ceil().clamp(min=0)
        )
        cells, squares, outside_cells = (
            columns.T @ tensor.double() @ columns
            for tensor in (measured, departs, outside)
        )
        below: list[tuple[str, str]] = []
        missed: list[tuple[float, tuple[str, str]]] = []
        measured_pairs = torch.nonzero(cells > 0).tolist()
        for a, b in measured_pairs:
            pair = (names[a], names[b])
            n_cells = int(cells[a, b])
            n_outside = int(outside_cells[a, b])
            if float(squares[a, b]) <= _chi_square(
                max(1, (sizes[a] - 1) * (sizes[b] - 1))
            ):
                below.append(pair)
            if is_beyond_chance(n_cells, n_outside):
                missed.append((-n_outside / n_cells, pair))
        return cls(
            columns=dict(zip(names, moved.tolist(), strict=True)),
            pairs=len(measured_pairs),
            below=tuple(below),
            missed=tuple(pair for _, pair in sorted(missed)),
        )

    @property
    def noisy(self) -> dict[str, float]:
        """The columns whose shares noise moves by more than `NOISY`, the furthest
        first.
        """
        order = sorted(self.columns, key=lambda name: -self.columns[name])
        return {
            name: self.columns[name] for name in order if self.columns[name] > NOISY
        }

    def headline(
        self,
        people: int,
        epsilon: str,
        pairs_are_noise: bool = False,
    ) -> str:
        """One sentence for all: no column is moved further than it says, and pairs that
        show nothing are counted. `pairs_are_noise`: in their cells, whatever the
        dependence is.
        """
        n_columns = len(self.columns)
        worst = max(self.columns, key=lambda name: self.columns[name])
        sentence = (
            f"{people:,} people and {pluralize(n_columns, 'column')} at ε = {epsilon}: "
            "single columns to within about "
        )
        sentence += f"{math.ceil(100 * self.columns[worst]):,} % by noise"
        sentence += f" (furthest “{worst}”)" if n_columns > 1 else ""
        if self.pairs and pairs_are_noise:
            sentence += "; pairs are mostly noise"
        elif self.pairs and self.below:
            sentence += (
                f"; {len(self.below):,} of {self.pairs:,} pairs show no dependence "
                "beyond the noise"
            )
        elif self.pairs:
            sentence += "; all released pairs show dependence beyond the noise"
        if self.missed:
            sentence += f"; the fit misses {len(self.missed):,}"
        return f"{sentence}."

    @property
    def sentences(self) -> list[str]:
        """For the terminal and the published page."""
        sentences = [self._of_columns()]
        if self.pairs:
            sentences.append(self._of_pairs())
        return sentences

    def _of_columns(self) -> str:
        noisy = list(self.noisy.items())
        rest = [moved for name, moved in self.columns.items() if name not in self.noisy]
        limit = f"by about {_percent(max(rest))} at most" if rest else ""
        if not noisy:
            return f"By the release, noise moves the shares of every column {limit}."
        named = ", ".join(
            f"“{name}” by about {_percent(moved)}" for name, moved in noisy[:NAMED]
        )
        more = (
            f" and {len(noisy) - NAMED} more by up to {_percent(noisy[NAMED][1])}"
            if len(noisy) > NAMED
            else ""
        )
        others = f", those of all others {limit}" if rest else ""
        return f"By the release, noise moves the shares of {named}{more}{others}."

    def _of_pairs(self) -> str:
        sentence = (
            f"Of {self.pairs:,} released pairs of columns {len(self.below):,} show no "
            "dependence beyond the noise"
        )
        sentence += (
            f" ({_pairs(self.below)}): do not rely on what is drawn of them."
            if self.below
            else "."
        )
        if self.missed:
            sentence += f" The fit misses {len(self.missed):,} ({_pairs(self.missed)})."
        return sentence

    @property
    def card(self) -> dict[str, Any]:
        """What a generator's card says of it; long lists are cut."""
        return {
            "quality": {
                "columns": {
                    name: round(moved, 4) for name, moved in self.columns.items()
                },
                "pairs": self.pairs,
                "below_noise": len(self.below),
                "below": [list(pair) for pair in self.below[:LISTED]],
                "fit_misses": len(self.missed),
                "missed": [list(pair) for pair in self.missed[:LISTED]],
                "said": self.sentences,
            }
        }


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    named = [f"“{first}” × “{second}”" for first, second in pairs[:NAMED]]
    more = [f"{len(pairs) - NAMED:,} more"] if len(pairs) > NAMED else []
    return ", ".join([*named, *more])


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 0.001 else "0.1 %"


def _chi_square(freedom: int) -> float:
    """The 95 % quantile."""
    from scipy.special import chdtri  # which no answer needs

    return float(chdtri(freedom, 0.05))
