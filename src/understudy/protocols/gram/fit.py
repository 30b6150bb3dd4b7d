"""What the server makes of gram's measurements. All of it is post-processing.

1. `MeasuredGram` combines all releases into one matrix: cells that were measured twice
   are averaged with weights 1/variance.
2. `Chooser` estimates the marginals from it (`models.tables.noisy_tables`) and chooses
   which pairs and 3-way marginals a further stage measures.
3. `fit_measurements` fits the mixture of products (`models.tables.fit_gram`) and writes
   into the card what the releases say of its quality.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from understudy.answers.bars import Missed
from understudy.answers.public_quality import PublicQuality
from understudy.answers.release import TableRelease, tables_of, tensors_of
from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.encoding.codec import Codec, Levels
from understudy.data.schema import Schema
from understudy.generators.parts import GeneratorParts
from understudy.models.network import pick_device
from understudy.models.tables.absent_levels import (
    all_that_was_counted,
    levels_of_none,
    never_drawn,
)
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.given_rules import Ruled
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import NoisyMarginals, read_tables
from understudy.models.tables.presence import (
    Present,
    among_both,
    presence_name,
    united,
    united_levels,
)
from understudy.models.tables.strongest import (
    halves,
    strongest_pairs,
    strongest_threes,
    strongest_triples,
)
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.secure.counts import scaled
from understudy.protocols.gram.forecast import expectation
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.settings import Config
from understudy.protocols.gram.stages import NoisyGram, Pairs, Threes
from understudy.protocols.joint.measurements import Measurements

# of a three-way table's noise, what pairs, and with them single columns, are taken to
# have at least: a descent that follows far more precise ones does not hear it
# (joint/NOTES.md, "Budget that buys nothing")
_HEARD = 0.4


@dataclass(frozen=True)
class MeasuredGram(NoisyGram):
    """All releases as one Gram matrix; cells that were released twice are averaged with
    weights 1/variance.

    `releases`: the (σ, number of cells that a person moves) of which ε is composed.
    `people`: their number, where it is disclosed. `levels`: the levels that were
    bought, whose 1-way marginals come from the fine tables. `kept`: all counts as
    released (`answers.release`). `present`: in a union, who is at one holder alone.
    """

    releases: list[list[float]]
    people: int | None
    levels: Levels | None = None
    kept: dict[str, Tensor] = field(default_factory=dict)
    present: Present | None = None

    def among_both(self, layout: Layout) -> "MeasuredGram":
        """In a union: the measurements scaled to people at both holders
        (`models.tables.presence`).
        """
        assert self.both is not None
        columns = [len(schema.columns) for schema in layout.groups]
        sizes = layout.sizes
        if self.levels is not None:
            sizes = self.levels.sizes
        shared_people = among_both(
            self.gram,
            self.loudness,
            [sizes[: columns[0]], sizes[columns[0] :]],
            *self.both,
            [Triple(**one) for one in self.triples],
        )
        return replace(
            self,
            gram=shared_people.gram,
            noise=shared_people.noise,
            measured=shared_people.noise.isfinite(),
            triples=[vars(one) for one in shared_people.triples],
            people=max(1, round(shared_people.present.both)),
            both=None,
            present=shared_people.present,
        )

    @property
    def loudness(self) -> Tensor:
        """The standard deviation of each cell's noise, infinite where nothing was
        released.
        """
        return torch.where(self.measured, self.noise, torch.inf)

    @classmethod
    def from_releases(cls, measurements: Measurements) -> "MeasuredGram":
        study: Any = measurements.study  # Gram, which chooses by this
        releases = [
            [scaled(measurements.noise(name), factor), cells]
            for name in measurements
            for factor, cells in study.spreads[name].moved
        ]
        matrices = list[NoisyGram]()
        raw = dict[str, Tensor]()
        levels = None
        if "fine" in measurements:
            tables = study.fine_tables(measurements)
            levels = study.levels(measurements)
            counts, spread = tables.diagonal(levels)
            only = torch.eye(len(counts), dtype=torch.bool)
            matrices.append(NoisyGram(counts.diag(), spread.diag(), only, []))
            raw |= tensors_of(
                "fine",
                torch.arange(study.layout.columns)[:, None],
                tables.noise,
                tables.in_a_row,
            )
        for name, kind in (
            ("pairs", "pairs"),
            ("threes", "pairs_third"),
            ("again", "pairs_again"),
        ):
            if name in measurements and isinstance(
                stage := measurements.stage(name), Pairs
            ):
                counted = measurements[name]
                matrices.append(counted)
                raw |= tables_of(
                    counted.gram, counted.noise, stage.wanted, stage.layout.sizes, kind
                )
                raw |= _kept_tables(counted.triples)
        whole = vars(reduce(_mean, matrices))
        return cls(
            **whole,
            releases=releases,
            people=measurements.record.people,
            levels=levels,
            kept=raw,
        )


def _mean(a: NoisyGram, b: NoisyGram) -> NoisyGram:
    """Two measurements as one: their inverse-variance weighted mean, where both have a
    cell.
    """
    both = a.measured & b.measured
    weight = a.noise**2 / (a.noise**2 + b.noise**2).clamp(min=1e-300)
    weight = torch.where(
        both, torch.where(b.noise == 0, 1.0, weight), b.measured.double()
    )
    noise = torch.sqrt(((1 - weight) * a.noise) ** 2 + (weight * b.noise) ** 2)
    return NoisyGram(
        (1 - weight) * a.gram + weight * b.gram,
        noise,
        a.measured | b.measured,
        a.triples + b.triples,
        both=b.both if a.both is None else a.both,
    )


def _kept_tables(triples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """3-way marginals as released, with the axes of each in the order of columns."""
    order = [sorted(range(3), key=one["columns"].__getitem__) for one in triples]
    columns = [
        [one["columns"][axis] for axis in axes]
        for one, axes in zip(triples, order, strict=True)
    ]
    tables = [
        one["table"].permute(axes) for one, axes in zip(triples, order, strict=True)
    ]
    return tensors_of(
        "triples", torch.tensor(columns), [one["noise"] for one in triples], tables
    )


class Chooser:
    """Chooses what to measure next, and fits, from the measurements so far. `codec`:
    the levels on which pairs were counted, with all public rules.
    """

    def __init__(self, config: Config, layout: Layout, measured: MeasuredGram) -> None:
        self.config = config
        if measured.both is not None:
            measured = measured.among_both(layout)
        self.measured = measured
        levels = measured.levels
        schema = with_rules(
            layout.joint if levels is None else levels.schema, config.rules
        )
        self.codec = (
            Codec(schema)
            if levels is None
            else Levels.from_tensors(schema, levels.tensors())
        )
        self.sizes, self.ties = self.codec.sizes, rule_ties(self.codec)
        self.target = (
            None if config.target is None else schema.names.index(config.target)
        )
        self.listed = [
            frozenset(map(schema.names.index, triple)) for triple in config.triples
        ]

    def fit(self, **more: Any) -> MixtureOfProducts:
        """The mixture that is fitted to all measurements."""
        config = self.config
        measured = self.measured
        device = pick_device(self.config.device)
        noise = measured.loudness.to(device)
        if measured.triples:
            least = _HEARD * max(one["noise"] for one in measured.triples)
            beside = noise.clone().fill_diagonal_(torch.inf)
            if float(beside.min()) < least:
                noise = noise.clamp(min=least)
            more["triples"] = [
                Triple(**{**one, "table": one["table"].to(device)})
                for one in measured.triples
            ]
        return fit_gram(
            measured.gram.to(device),
            self.sizes,
            noise=noise,
            people=measured.people,
            ties=self.ties,
            target=self.target,
            components=config.components,
            steps=config.steps,
            rate=config.rate,
            seed=config.seed,
            **more,
        )

    @cached_property
    def marginals(self) -> NoisyMarginals:
        """1-way and 2-way marginals, estimated from the noisy matrix."""
        released = self.measured
        return read_tables(
            released.gram,
            self.sizes,
            noise=released.loudness,
            people=released.people,
            ties=self.ties,
        )

    def pairs(self, besides: Tensor, wanted: int) -> Tensor:
        """The `wanted` strongest pairs of columns, (n, 2), other than `besides`."""
        return strongest_pairs(self.marginals, wanted, besides=besides)

    def tables(self, among: Tensor, most: int, noise: float) -> Tensor:
        """At most `most` of the pairs `among` (n, 2): those whose 3-way marginal with
        the target tells most about it, given the `noise` of a cell.
        """
        assert self.target is not None
        return strongest_triples(
            self.marginals,
            self.sizes,
            self.target,
            most,
            among=among.tolist(),
            noise=noise,
            besides=self.listed,
        )

    def halves(self) -> Tensor:
        """Which levels of each column are in its upper half: (width,)."""
        return halves(self.marginals, self.sizes)

    def threes(self, measurements: Measurements, most: int, noise: float) -> Tensor:
        """The triples of columns, (n, 3), that depend on each other beyond their pairs;
        `noise`: that of a cell of their 3-way marginals.
        """
        stage = measurements.stage("threes")
        if not isinstance(stage, Threes):
            return torch.empty(0, 3, dtype=torch.int64)
        sums, sums_noise = measurements["threes"]
        chosen = strongest_threes(
            self.marginals,
            self.sizes,
            stage.upper,
            sums,
            sums_noise,
            self.measured.noise,
            most,
            cells_noise=noise,
            besides=self.listed,
        )
        self.listed += map(frozenset, chosen.tolist())
        return chosen

    def filled(self, threes: Tensor, among: Tensor, most: int, noise: float) -> Tensor:
        """These columns, (n, 3), and up to so many in all whose tables with the target
        tell the most; the other two are `among` these.
        """
        assert self.target is not None
        others = self.tables(among, most - len(threes), noise)
        target = torch.full((len(others), 1), self.target)
        more = torch.cat([others, target], 1).sort(1).values
        self.listed += map(frozenset, more.tolist())
        every = [*threes.tolist(), *more.tolist()]
        return torch.tensor(sorted(every), dtype=torch.int64).reshape(-1, 3)


_WORDS = {
    "reach": "where numbers are",
    "fine": "fine tables",
    "pairs": "pairs",
    "threes": "threes",
    "again": "pairs once more",
}


def fit_measurements(
    study: Any,
    measurements: Measurements,
    privacy: PrivacyStatement,
    look: Callable[..., None],
) -> tuple[GeneratorParts, int]:
    """Fit the mixture to all measurements: the generator's parts, and how many people
    there are.
    """
    measured = MeasuredGram.from_releases(measurements)
    record = measurements.record
    if measured.levels is not None:
        beside = measured.loudness.fill_diagonal_(torch.inf)
        if study.union:  # across, of people at both alone
            first = sum(measured.levels.sizes[: len(study.layout.groups[0].columns)])
            beside[:first, first:] = beside[first:, :first] = torch.inf
        by_pairs = all_that_was_counted(measured.gram, beside, measured.levels.sizes)
        measured = replace(
            measured, levels=study.read_again(measurements, measured.levels, *by_pairs)
        )
    chooser = study.chooser(measured)
    measured = chooser.measured
    network = chooser.fit(watch=look)
    codec = chooser.codec
    schema = chooser.codec.schema
    # disclosed by alignment, or else the noisy 1-way marginals' total
    counted = max(1, round(float(measured.gram.diagonal().sum()) / len(schema.columns)))
    people = counted if measured.people is None else measured.people
    seen = all_that_was_counted(measured.gram, measured.loudness, codec.sizes)
    never_drawn(network, levels_of_none(schema, codec.sizes, *seen))
    levels = dict(zip(schema.names, codec.sizes, strict=True))
    card: dict[str, Any] = {"releases": measured.releases, "levels": levels}
    card["noise"] = {_WORDS[name]: measurements.noise(name) for name in measurements}
    law = Ruled.from_ties(
        network.odds().detach().cpu().double(), codec.sizes, chooser.ties
    ).gram()
    if "threes" in measurements:
        names = [
            [schema.names[column] for column in one["columns"]]
            for one in measured.triples
        ]
        not_searched = (
            "not searched, for so few people: their part went to pairs with the target"
        )
        card["threes"] = (
            names if isinstance(measurements.stage("threes"), Threes) else not_searched
        )
    card |= Missed.from_counts(
        people * law, measured.gram, measured.loudness, codec.sizes
    ).card
    released = measured.gram, measured.loudness
    quality = PublicQuality.from_release(
        schema.names, codec.sizes, seen, released, people * law
    )
    card |= quality.card
    noise = record.noise[bool(study.layout.unbounded) : record.n_released]
    bought = measured.levels is not None
    card |= expectation(schema, people, privacy.epsilon(), noise, bought, quality)
    if study.grid.partition != "horizontal":
        first = study.grid.one_each(study.schemas)
        card["owners"] = {
            column: name
            for name, group_schema in first.items()
            for column in group_schema.names
        }
    bought_levels = codec if isinstance(codec, Levels) else None
    if measured.present is not None:
        return _of_union(
            study, network.cpu(), measured.present, schema, bought_levels, card
        )
    epsilon = privacy.to_dict()["person"]["epsilon"]["outsider"]
    about = {"adjacency": privacy.adjacency, "epsilon": epsilon, "delta": privacy.delta}
    about |= {
        "releases": measured.releases,
        "partition": study.grid.partition,
        "people": people,
    }
    if study.layout.unbounded:
        about["found"] = [column.name for column in study.layout.unbounded]
    sizes = torch.tensor(codec.sizes, dtype=torch.int32)
    release = TableRelease.from_tensors(codec, measured.kept | {"sizes": sizes}, about)
    card["release"] = release.card
    return GeneratorParts(
        network.cpu().eval(), schema, card, bought_levels, release
    ), people


def _of_union(
    study: Any,
    network: MixtureOfProducts,
    present: Present,
    schema: Schema,
    levels: Levels | None,
    card: dict[str, Any],
) -> tuple[GeneratorParts, int]:
    """The generator's parts for a union: people of either holder, from the mixture of
    people at both. The noisy tables are of several populations, so they are not kept
    for questions.
    """
    groups = study.layout.groups
    holders = [
        (holder, len(group.columns))
        for (holder,), group in zip(study.grid.groups, groups, strict=True)
    ]
    made, wide = united(network, present, schema, holders)
    if levels is not None:
        levels = united_levels(levels, wide, present, holders[0][1])
    counts = [round(one) for one in (present.both, *present.alone)]
    words = ["both", *(f"{holder} alone" for holder, _ in holders)]
    card["union"] = dict(zip(words, counts, strict=True))
    for holder, _ in holders:
        card["owners"][presence_name(holder)] = holder
    return GeneratorParts(made.eval(), wide, card, levels), sum(counts)
