"""What the server makes of gram's releases: all of them as one matrix, which pairs and tables to measure once more, and
the mixture. All of it is free.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from understudy.answers.missed import Missed
from understudy.answers.release import Release, tables_of, tensors_of
from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.levels import Levels
from understudy.generators.parts import GeneratorParts
from understudy.models.network import pick_device
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.given_rules import Ruled
from understudy.models.tables.loss import Triple
from understudy.models.tables.merged_levels import all_that_was_counted, levels_of_none, never_drawn
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import Tables, read_tables
from understudy.models.tables.strongest import halves, strongest_pairs, strongest_threes, strongest_triples
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.secure.counts import scaled
from understudy.protocols.gram.forecast import expectation
from understudy.protocols.gram.settings import Config
from understudy.protocols.gram.stages import Counts, Pairs, Threes
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

    @property
    def loudness(self) -> Tensor:
        """The noise of each cell as the fit takes it: infinite where nothing was released."""
        return torch.where(self.measured, self.noise, torch.inf)

    @classmethod
    def from_releases(cls, found: Found) -> "Measured":
        study: Any = found.study  # Gram, which chooses by this
        releases = [
            [scaled(found.noise(name), factor), cells] for name in found for factor, cells in study.spreads[name].moved
        ]
        matrices, raw, levels, triples = list[Counts](), dict[str, Tensor](), None, list[dict[str, Any]]()
        if "fine" in found:
            tables, levels = study.fine_tables(found), study.levels(found)
            counts, spread = tables.diagonal(levels)
            only = torch.eye(len(counts), dtype=torch.bool)
            matrices.append(Counts(counts.diag(), spread.diag(), only, []))
            raw |= tensors_of("fine", torch.arange(study.layout.columns)[:, None], tables.noise, tables.kept)
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


def _mean(first: tuple[Tensor, Tensor, Tensor], second: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
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
    return tensors_of("triples", torch.tensor(columns), [one["noise"] for one in triples], tables)


class Chooser:
    """By what was released so far, and the settings of the fit. `schema`: of all columns, with all rules."""

    def __init__(self, config: Config, layout: Any) -> None:
        self.config, self.schema = config, with_rules(layout.joint, config.rules)

    def fit(self, measured: Measured, **more: Any) -> MixtureOfProducts:
        config, codec, device = self.config, self.codec(measured), pick_device(self.config.device)
        if measured.triples:
            more["triples"] = [Triple(**{**one, "table": one["table"].to(device)}) for one in measured.triples]
        return fit_gram(
            measured.gram.to(device), codec.sizes, noise=measured.loudness.to(device), people=measured.people,
            ties=rule_ties(codec), target=None if config.target is None else self.schema.names.index(config.target),
            components=config.components, steps=config.steps, rate=config.rate, seed=config.seed, **more,
        )  # fmt: skip

    def pairs(self, measured: Measured, besides: Tensor) -> Tensor:
        """The strongest pairs of columns besides these, (n, 2)."""
        ties = rule_ties(self.codec(measured))
        return strongest_pairs(self.fit(measured), self.config.refined, besides=besides, ties=ties)

    def tables(self, measured: Measured, among: Tensor, most: int, noise: float) -> Tensor:
        """Among pairs of columns (n, 2) at most so many whose three-way tables with the target tell the most."""
        names, codec = self.schema.names, self.codec(measured)
        place = names.index(self.config.target or "")
        listed = [frozenset(map(names.index, triple)) for triple in self.config.triples]
        tables = self._tables(measured)
        return strongest_triples(tables, codec.sizes, place, most, among=among.tolist(), noise=noise, besides=listed)

    def halves(self, measured: Measured) -> Tensor:
        """Which levels of each column are in its upper half."""
        return halves(self._tables(measured), self.codec(measured).sizes)

    def threes(self, measured: Measured, found: Found, noise: float) -> Tensor:
        """The columns, (n, 3), that go together beyond their pairs; `noise`: of a cell of their tables."""
        stage, names = found.stage("threes"), self.schema.names
        assert isinstance(stage, Threes)
        listed = [frozenset(map(names.index, triple)) for triple in self.config.triples]
        sums, spread = found["threes"]
        return strongest_threes(
            self._tables(measured), self.codec(measured).sizes, stage.upper, sums, spread, self.config.searched_triples,
            cells_noise=noise, besides=listed,
        )  # fmt: skip

    def _tables(self, measured: Measured) -> Tables:
        codec = self.codec(measured)
        return read_tables(
            measured.gram, codec.sizes, noise=measured.loudness, people=measured.people, ties=rule_ties(codec)
        )

    def codec(self, measured: Measured) -> Codec | Levels:
        """The levels on which pairs were counted, with this schema's rules."""
        if measured.levels is None:
            return Codec(self.schema)
        schema = with_rules(measured.levels.schema, self.config.rules)
        return Levels.from_tensors(schema, measured.levels.tensors())


_WORDS = {
    "reach": "where numbers are",
    "fine": "fine tables",
    "pairs": "pairs",
    "threes": "threes",
    "again": "pairs once more",
}


def fitted(
    study: Any, found: Found, privacy: PrivacyStatement, look: Callable[..., None]
) -> tuple[GeneratorParts, int]:
    """The mixture of all that was released, and how many people there are."""
    measured, record = Measured.from_releases(found), found.record
    if measured.levels is not None:
        beside = measured.loudness.fill_diagonal_(torch.inf)
        by_pairs = all_that_was_counted(measured.gram, beside, measured.levels.sizes)
        measured = replace(measured, levels=study.read_again(found, measured.levels, *by_pairs))
    network, codec = study.chooser.fit(measured, watch=look), study.chooser.codec(measured)
    schema = codec.schema
    # their number: disclosed by alignment, or what the noisy one-way tables say
    counted = max(1, round(float(measured.gram.diagonal().sum()) / len(schema.columns)))
    people = counted if measured.people is None else measured.people
    seen = all_that_was_counted(measured.gram, measured.loudness, codec.sizes)
    never_drawn(network, levels_of_none(schema, codec.sizes, *seen))
    card: dict[str, Any] = {
        "releases": measured.releases,
        "noise": {_WORDS[name]: found.noise(name) for name in found},
        "levels": dict(zip(schema.names, codec.sizes, strict=True)),
    }
    bought = measured.levels is not None
    law = Ruled.of(network.odds().detach().cpu().double(), codec.sizes, rule_ties(codec)).gram()
    card |= Missed.of(people * law, measured.gram, measured.loudness, codec.sizes).card
    card |= expectation(
        schema, people, privacy.epsilon(), record.noise[bool(study.layout.unbounded) : record.made], bought
    )
    if study.grid.partition != "rows":
        first = study.grid.one_each(study.schemas)
        card["owners"] = {column: name for name, held in first.items() for column in held.names}
    about = {
        "adjacency": privacy.adjacency,
        "epsilon": privacy.to_dict()["person"]["epsilon"]["outsider"],
        "delta": privacy.delta,
        "releases": measured.releases,
        "partition": study.grid.partition,
        "people": people,
    }
    sizes = torch.tensor(codec.sizes, dtype=torch.int32)
    release = Release.from_tensors(codec, measured.kept | {"sizes": sizes}, about)
    card["release"] = release.card
    levels = codec if isinstance(codec, Levels) else None
    return GeneratorParts(network.cpu().eval(), schema, card, levels, release), people
