"""What gram has measured so far, over all its releases, as one matrix."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from understudy.answers.release import kept, tables_of
from understudy.data.encoding.levels import Levels
from understudy.privacy.secure.counts import scaled
from understudy.protocols.gram.stages import Counts, Pairs
from understudy.protocols.joint.found import Found


@dataclass(frozen=True)
class Measured:
    """The joint Gram matrix: counts (width, width), the standard deviation of the noise in each cell, 0 where none is.

    `measured` marks the cells that were released; where pairs were released twice, a cell is the mean of both, weighted
    by 1/variance. `triples` are three-way tables with their columns' numbers and noise. `releases`: the (σ, moved
    cells) that ε is made of, for each σ of each release. `people`: their number where it is disclosed. `levels`: those
    that were bought, whose fine tables are the diagonal then. `kept`: all counts as they came (`answers.release`).
    """

    gram: Tensor
    noise: Tensor
    measured: Tensor
    releases: list[list[float]]
    people: int | None
    triples: list[dict[str, Any]] = field(default_factory=list)
    levels: Levels | None = None
    kept: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Found) -> "Measured":
        """All that a run has found."""
        study: Any = found.study  # Gram, which chooses by this
        releases = [
            [scaled(found.noise(name), factor), cells]
            for name in found
            for factor, cells in study.spreads[name].moved
        ]
        matrices, raw, levels, triples = list[Counts](), dict[str, Tensor](), None, list[dict[str, Any]]()
        if "fine" in found:
            tables, levels = study.fine_tables(found), study.levels(found)
            counts, spread = tables.diagonal(levels)
            only = torch.eye(len(counts), dtype=torch.bool)
            matrices.append(Counts(counts.diag(), spread.diag(), only, []))
            raw |= kept("fine", torch.arange(study.layout.columns)[:, None], tables.noise, found["fine"][0])
        for name, kind in (("pairs", "pairs"), ("again", "pairs_again")):
            if name in found:
                stage, counted = found.stage(name), found[name]
                assert isinstance(stage, Pairs)
                matrices.append(counted)
                triples = counted.triples
                raw |= tables_of(counted.gram, counted.noise, stage.wanted, stage.layout.sizes, kind)
                raw |= _kept_tables(triples)
        gram, noise, measured = matrices[0].gram, matrices[0].noise, matrices[0].measured
        for more in matrices[1:]:
            gram, noise, measured = _mean((gram, noise, measured), (more.gram, more.noise, more.measured))
        return cls(gram, noise, measured, releases, found.record.people, triples, levels, raw)


def _mean(
    first: tuple[Tensor, Tensor, Tensor], second: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Two measurements as one: where both were made their mean, weighted by 1/variance."""
    (a, a_noise, a_made), (b, b_noise, b_made) = first, second
    both = a_made & b_made
    exact = both & (b_noise == 0)
    weight = torch.where(both, a_noise**2 / (a_noise**2 + b_noise**2).clamp(min=1e-300), b_made.double())
    weight = torch.where(exact, 1.0, weight)
    gram = (1 - weight) * a + weight * b
    noise = torch.sqrt(((1 - weight) * a_noise) ** 2 + (weight * b_noise) ** 2)
    return gram, noise, a_made | b_made


def _kept_tables(triples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Three-way tables as they were released, the axes of each in the order of its columns."""
    order = [sorted(range(3), key=one["columns"].__getitem__) for one in triples]
    columns = [[one["columns"][axis] for axis in axes] for one, axes in zip(triples, order, strict=True)]
    tables = [one["table"].permute(axes) for one, axes in zip(triples, order, strict=True)]
    return kept("triples", torch.tensor(columns), [one["noise"] for one in triples], tables)
