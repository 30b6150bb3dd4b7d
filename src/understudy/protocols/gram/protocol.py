"""Gram: holders measure all 1-way and 2-way marginals of their joint data once, under
noise, and a generator is fitted to them.

**What is measured.** The Gram matrix G = Σ x xᵀ over people of their one-hot rows x:
the 1-way marginals are on its diagonal, all 2-way marginals beside it, those across
holders too. In a horizontal partition G adds up; in a vertical one its blocks are
products X_iᵀX_k; over a grid (`data.grid`) they are sums of products.

**With which noise.** Every released cell gets discrete Gaussian noise of one σ for each
stage (`joint.pricing.CellPricing`). A person moves one cell by 1 for each column and
each pair of columns that a stage measures; σ follows from the budget and that number.
What a stage costs is agreed on before the server chooses what it measures.

**How the fit works.** A mixture of products is fitted to all measurements by gradient
descent (`models/tables/fit_gram.py`). That is post-processing and costs nothing.

Sources: the measurements of McKenna, Miklau, Sheldon, "Winning the NIST contest" (JPC
2021), all pairs at once; products by Beaver 1991 and sums by Bonawitz et al. 2017
(`privacy/secure/sums.py`), noise by Canonne, Kamath, Steinke 2020. The protocol that
joins them is our own.

Guarantee: (ε, δ)-DP for a person with all their columns at all parties, in one price,
against the server, against any party, and against an outsider. Each party's ledger is
charged that whole price; a person pays it once.
Edges: in a vertical partition products are of encrypted rows. With `products = "dealt"`
the server deals masks, and must not pool what it knows with a holder; in a horizontal
partition it may, with up to `max_colluding` of them. docs/secure_products.md says who
sees what.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from understudy.data.encoding.codec import Levels
from understudy.data.encoding.fine import may_spike
from understudy.data.schema import Block, Grid
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.models.tables.merged_levels import most_bins
from understudy.models.tables.ordered_counts import Counted
from understudy.models.tables.spikes import chosen_spikes, named_spikes
from understudy.models.tables.trees import Trees, TreesRead, levels_counted, runs_of
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import DiscreteGaussianNoise
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core.union import check_two, expected_made_up
from understudy.protocols.gram.layout import Layout, Names
from understudy.protocols.gram.pricing import GramPricing
from understudy.protocols.gram.settings import (
    MANY_COLUMNS,
    PLENTY,
    SEARCHED,
    SHOWN,
    SPIKES,
)
from understudy.protocols.gram.settings import Config as Config
from understudy.protocols.gram.stages import FineTables, Pairs, TableRows, Threes
from understudy.protocols.joint import run
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.pricing import BlockSpec, NoiseAllocation
from understudy.protocols.joint.stage import (
    Holding,
    Product,
    Stage,
    Study,
    Terms,
    expect,
)

MOST_COLUMNS = 64  # among which three-way effects are searched: 41,664 sums
# noise beyond so many σ would wrap around: once in e^2048; digits may have so many
# times as much
_FAR = 64
_MORE = 32


class Gram(Study[TableRows]):
    """One run of gram, in a horizontal, vertical or hybrid partition. Its stages, of
    which a run has those that its schemas and settings need:

        reach   counts of public cells over all numbers, for columns without declared
                bounds: where their numbers are
        fine    hierarchical histograms of all columns (`data.encoding.fine`), from
                which alone levels are chosen where none are declared
        pairs   all 2-way marginals on these levels, 1-way marginals where there was no
                "fine", and digits of atoms, numbers that many share (`spiky`)
        threes  a signed sum for every three columns, by which effects of three columns
                are found that no pair shows
        again   a second measurement of the strongest pairs or of those with the target,
                and 3-way marginals; their number, and so the price, is fixed before the
                server chooses them
    """

    family: ClassVar[str] = "gram"
    settings: ClassVar[type[Any]] = Config
    settled: ClassVar[tuple[str, ...]] = (
        "private",
        "fine",
        "target",
        "remeasured_pairs",
        "first_pass_share",
        "public_people",
        "triples",
        "target_triples",
        "searched_triples",
        "max_colluding",
        "max_holders_per_person",
        "products",
        "alignment",
    )
    lasting: ClassVar[tuple[str, ...]] = ("fine", "pairs")
    # whether only pairs of columns of different groups are measured
    across: ClassVar[bool] = False

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        self.layout = Layout(schemas, config.fine)
        if self.union:
            self._check_union()
            self.layout = replace(self.layout, union=True)
        self.spiky = self.layout.buys and any(map(may_spike, self.layout.joint.columns))
        if self.layout.unbounded:
            self.least = 2  # where numbers are tells nothing of them
        for names in config.triples:
            place = self.layout.place(names)
            if place is None or place.across:
                raise ConfigError(
                    f"{', '.join(names)} are not three columns of one holder.",
                    effect=Effect.NOTHING_CHARGED,
                )
        self.layout.check_width()
        self.grid.check_max_holders_per_person(config.max_holders_per_person)
        self.remeasured = self._remeasured()
        self.twice = self.remeasured + len(self.layout.pairs_with(config.target))
        available = (
            0
            if config.target is None
            else len(self.layout.tables_beside(config.target))
        )
        self.most_triples = min(config.most_triples, available)
        searchable = (
            len(self.grid.groups) == 1 and 3 <= self.layout.columns <= MOST_COLUMNS
        )
        default = SEARCHED if searchable and config.target is not None else 0
        self.searched = (
            default if config.searched_triples is None else config.searched_triples
        )
        if self.searched and not searchable:
            raise ConfigError(
                f"three-way tables are searched among 3 to {MOST_COLUMNS} columns that "
                "every holder has.",
                effect=Effect.NOTHING_CHARGED,
            )
        # whether something is measured after all pairs were
        self.second = bool(self.twice or self.searched)
        # else what it is follows from the settings
        self._chooses = bool(self.remeasured or self.most_triples)
        _ = self.spreads

    def _check_union(self) -> None:
        """Refuse what cannot be fitted over a union, before anything is charged."""
        check_two(self.grid.groups)
        joint = self.layout.joint
        if joint.rules or self.config.rules:
            raise ConfigError(
                'alignment = "union" takes no rules: leave them out, or choose '
                '"intersection".',
                effect=Effect.NOTHING_CHARGED,
            )
        from understudy.models.tables.presence import presence_name

        for holder in self.schemas:
            if presence_name(holder) in joint.names:
                raise ConfigError(
                    f'alignment = "union" calls presence at {holder} '
                    f'"{presence_name(holder)}", and a column is called that: rename '
                    "it.",
                    effect=Effect.NOTHING_CHARGED,
                )

    def _remeasured(self) -> int:
        """How many of the strongest pairs are measured a second time."""
        if self.config.remeasured_pairs is not None:
            return int(self.config.remeasured_pairs)
        if self.across or self.config.target is not None:
            return 0
        columns = self.layout.columns
        return columns if columns >= MANY_COLUMNS else 0

    @property
    def grid(self) -> Grid:
        return self.layout.grid

    @cached_property
    def releases(self) -> Mapping[str, str]:
        words = {
            "pairs": "one joint Gram matrix"
            + ", and digits of numbers that many share" * self.spiky
        }
        if self.layout.buys:
            words = {"fine": "the fine tables of all columns"} | words
        if self.layout.unbounded:
            words = {"reach": "where numbers without bounds are"} | words
        if self.searched:
            words |= {
                "threes": (
                    "which three columns go together, or of few people some pairs "
                    "once more"
                )
            }
        return words | (
            {"again": "some pairs of the joint Gram matrix once more"}
            if self.second
            else {}
        )

    @cached_property
    def spreads(self) -> dict[str, NoiseAllocation]:
        """How each release's noise is spread over its blocks, from public numbers.
        Pairs and 3-way marginals that are measured again all have the same noise. The
        price is agreed on before they are chosen, and with noise by block it would
        depend on how many of them lie across holders.
        Edges: nothing to release, or more to refine than there are pairs → ConfigError.
        """
        layout = self.layout
        triples = self.config.triples
        max_colluding = self.config.max_colluding
        if self.twice > (pairs := math.comb(layout.columns, 2)):
            raise ConfigError(
                f"there are {pairs:,} pairs of columns, those with a target among "
                "them, and no more can be measured twice.",
                effect=Effect.NOTHING_CHARGED,
            )
        marks = layout.all_pairs(across=self.across)
        cells = Counter(
            {block: layout.marked_in(block, marks) for block in layout.grid.blocks}
        )
        if layout.union:
            cells[0, 1] += layout.presence_moved
        for names in triples if not self.second else ():
            place = layout.place(names)
            assert place is not None
            cells[place.block] += 1
        if not +cells:
            raise ConfigError(
                "no pair of columns lies across holders.", effect=Effect.NOTHING_CHARGED
            )
        n_again = self.twice + len(triples) + self.most_triples or self.searched

        def of_columns(trees: Mapping[int, Trees]) -> NoiseAllocation | None:
            nodes = Counter({(g, g): tree.moved for g, tree in trees.items()})
            return (
                NoiseAllocation.least(self.grid, nodes, max_colluding)
                if nodes
                else None
            )

        allocations = {
            "reach": of_columns(layout.tops),
            "fine": of_columns(dict(enumerate(layout.trees))) if layout.buys else None,
            "pairs": NoiseAllocation.least(self.grid, cells, max_colluding).with_room(
                SPIKES * self.spiky
            ),
            "threes": NoiseAllocation.even(self.grid, max(1, self.twice))
            if self.searched
            else None,
            "again": NoiseAllocation.even(self.grid, n_again) if self.second else None,
        }
        return {
            name: spread for name, spread in allocations.items() if spread is not None
        }

    @cached_property
    def pricing(self) -> GramPricing:
        config = self.config
        moved = tuple(spread.moved for spread in self.spreads.values())
        which = (
            self.layout.buys,
            self.second,
            self.searched > 0,
            most_bins(self.layout.joint.columns),
        )
        return GramPricing(
            config.max_colluding, config.max_holders_per_person, moved, config, *which
        )

    def check_noise(self, noise: Sequence[float], parties: int) -> None:
        for number, (name, sigma) in enumerate(zip(self.spreads, noise, strict=True)):
            self.pricing.check(
                number, self._blocks(name, sigma), sigma, self.grid, parties
            )
            # a scale that nobody has to round
            _ = DiscreteGaussianNoise(Fraction(sigma)) if sigma else None

    def ring(self, people: int | None, noise: Sequence[float]) -> Ring:
        max_noise = _MORE * max(1.0, *noise) if self.spiky else max(noise)
        if people is None:
            return Ring(64)
        largest = people + len(self.schemas) * _FAR * max_noise
        return Ring.least(largest) if self.encrypted else Ring.holding(largest)

    @property
    def max_answers(self) -> int:
        """One for every two groups, and for tables of their columns."""
        return math.comb(len(self.grid.groups), 2) * (1 + self.second)

    def check_bits(self, bits: int, noise: Sequence[float]) -> None:
        super().check_bits(bits, noise)
        if self.encrypted and not self.layout.buys:
            from understudy.protocols.joint.encrypted import rooms_of

            rooms_of(Product.of_all(self.layout.product_widths), bits)

    def rows(self, holding: Holding) -> TableRows:
        table = holding.rows if holding.aligned is None else holding.aligned
        group = self.grid.group_of(holding.name)
        return TableRows(table, self.layout, group, holding.in_union)

    def stage(
        self,
        name: str,
        terms: Terms,
        noise: float,
        before: Mapping[str, Stage[TableRows]],
    ) -> Stage[TableRows]:
        if name == "reach":
            expect(terms)
            return FineTables(self.layout, self.spreads[name], reach=True)
        if name == "fine":
            return self._fine_stage(terms)
        if name == "pairs":
            return self._pairs_stage(terms, noise, before)
        first = before["pairs"]
        assert isinstance(first, Pairs)
        if name == "threes":
            return self._threes_stage(terms, noise, first.layout)
        return self._again_stage(terms, noise, first.layout)

    def _fine_stage(self, terms: Terms) -> FineTables:
        """Hierarchical histograms of all columns, within the bounds that were found."""
        layout = self.layout
        if layout.unbounded:
            expect(terms, "runs")
            layout = layout.on_runs(terms["runs"])
        else:
            expect(terms)
        return FineTables(layout, self.spreads["fine"])

    def _pairs_stage(
        self, terms: Terms, noise: float, before: Mapping[str, Stage[TableRows]]
    ) -> Pairs:
        """All pairs, on the levels that the server chose."""
        layout = self.layout
        spread = self.spreads["pairs"]
        names = {"groups": layout.buys, "spikes": self.spiky}
        expect(terms, *(name for name, is_due in names.items() if is_due))
        if layout.buys:
            fine = before["fine"]
            assert isinstance(fine, FineTables)
            layout = fine.layout.on_levels(terms["groups"])
        spikes = named_spikes(layout.trees, terms["spikes"]) if self.spiky else ()
        n_digits = sum(atoms.shape[0] for atoms in spikes)
        stage = Pairs(
            layout,
            layout.all_pairs(across=self.across),
            () if self.second else self.config.triples,
            spread,
            spikes=spikes,
            loud=spread.in_place(n_digits, noise).factors[0, 0],
        )
        release = [*self.releases].index("pairs")
        parties = len(self.schemas)
        self.pricing.check(release, stage.blocks, noise, self.grid, parties)
        return stage

    def _threes_stage(
        self, terms: Terms, noise: float, layout: Layout
    ) -> Stage[TableRows]:
        """The search for three-way effects, or, where the server finds people too few
        for it, the pairs with the target once more at the same price.
        """
        expect(terms, "upper")
        upper = terms["upper"]
        is_skipped = isinstance(upper, Tensor) and not len(upper)
        if self.config.searched_triples is None and is_skipped:
            pairs = layout.pairs_with(self.config.target)
            marks = layout.marked(pairs, layout.columns - 1)
            return self._second_pass("threes", noise, layout, marks)
        return Threes(layout, upper, self._spread("threes", noise))

    def _again_stage(self, terms: Terms, noise: float, layout: Layout) -> Pairs:
        """Some pairs a second time, and three-way marginals, as the server chose them
        within the numbers that were agreed on.
        """
        target = self.config.target
        names = {
            "pairs": self._chooses,
            "tables": self._chooses,
            "threes": self.searched > 0,
        }
        expect(terms, *(name for name, is_due in names.items() if is_due))
        pairs = terms["pairs"] if self._chooses else layout.pairs_with(target)
        marks = layout.marked(pairs, self.twice, target)
        tables = self.config.triples
        if self.searched:
            tables += layout.named_tables(terms["threes"], self.searched)
        if self.most_triples and target is not None:
            tables += layout.named_tables(terms["tables"], self.most_triples, target)
        elif self._chooses and not (
            isinstance(terms["tables"], Tensor) and not len(terms["tables"])
        ):
            raise MessageError(
                "no three-way table was due.", effect=Effect.NOTHING_CHARGED_OR_SENT
            )
        if len({*map(frozenset, tables)}) < len(tables):
            raise MessageError(
                "a three-way table was named twice.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if not len(pairs) and not tables:
            marks = layout.all_pairs()
        return self._second_pass("again", noise, layout, marks, tables)

    def _second_pass(
        self,
        name: str,
        noise: float,
        layout: Layout,
        marks: Tensor,
        tables: tuple[Names, ...] = (),
    ) -> Pairs:
        """These pairs and tables, with the noise at which they cost what was agreed on
        for this release, however many they are.
        """
        spread = self.spreads[name].in_place(int(marks.sum()) + len(tables), noise)
        return Pairs(layout, marks, tables, spread, again=True)

    # What the server makes of releases

    def terms(self, name: str, measurements: Measurements) -> Terms:
        if name == "fine" and self.layout.unbounded:
            sums, noise = measurements["reach"]
            tops = [*self.layout.tops.values()]
            if self.union:  # each holder has people of its own
                each = zip(tops, sums, noise, strict=True)
                runs = [
                    runs_of([top], [one], [sigma], None) for top, one, sigma in each
                ]
                return {"runs": torch.cat(runs)}
            return {"runs": runs_of(tops, sums, noise, measurements.record.people)}
        if name == "pairs" and self.layout.buys:
            groups = self.levels(measurements).groups
            levels: Terms = {
                "groups": {
                    str(number): torch.from_numpy(group)
                    for number, group in enumerate(groups)
                }
            }
            if self.spiky:
                one = measurements.noise(name) * self.spreads[name].moved[-1][0]
                levels["spikes"] = chosen_spikes(
                    self.within(measurements).trees, self.fine_tables(measurements), one
                )
            return levels
        if name not in ("threes", "again") or not (self._chooses or self.searched):
            return {}
        from understudy.protocols.gram.fit import MeasuredGram

        layout = self.layout
        target = self.config.target
        chooser = self.chooser(MeasuredGram.from_releases(measurements))
        if name == "threes":
            worth = self.is_searched(float(chooser.marginals.people), measurements)
            return {
                "upper": chooser.halves() if worth else torch.empty(0, dtype=torch.bool)
            }
        terms: Terms = {}
        if self.searched:
            loudest = self.loudest(measurements, "again")
            threes = chooser.threes(measurements, self.searched, loudest)
            if self.fills(float(chooser.marginals.people), measurements):
                threes = chooser.filled(
                    threes, layout.tables_beside(target), self.searched, loudest
                )
            terms["threes"] = threes
        if not self._chooses:
            return terms
        pairs = layout.pairs_with(target)
        tables = torch.empty(0, 2, dtype=torch.int64)
        if self.remeasured:
            pairs = torch.cat([pairs, chooser.pairs(pairs, self.remeasured)])
        if self.most_triples and target is not None:
            among = layout.tables_beside(target)
            noise = self.loudest(measurements, "again")
            tables = chooser.tables(among, self.most_triples, noise)
        return terms | {"pairs": pairs, "tables": tables}

    def is_searched(self, people: float, measurements: Measurements) -> bool:
        """Whether three-way effects are searched among so many people: where a setting
        asks for it, or noise would let an effect be seen.
        """
        least = (
            0.0
            if self.config.searched_triples or not self.searched
            else self.loudest(measurements, "threes")
        )
        return self.searched > 0 and people >= SHOWN * least

    def fills(self, people: float, measurements: Measurements) -> bool:
        """Whether tables with the target are measured where fewer were found than could
        be: by default, where so many people stand far above their noise.
        """
        config = self.config
        if config.searched_triples is not None or config.target_triples is not None:
            return False
        is_plenty = people >= PLENTY * self.loudest(measurements, "again")
        return is_plenty and self.is_searched(people, measurements)

    def fine_tables(self, measurements: Measurements) -> TreesRead:
        """Consistent histograms of all columns, from the noisy trees."""
        tables: TreesRead = measurements.once(
            "fine tables", lambda: self._read_trees(measurements)
        )
        return tables

    def _read_trees(
        self,
        measurements: Measurements,
        also: Mapping[int, Sequence[Counted]] | None = None,
    ) -> TreesRead:
        """The histograms, from the trees and from further counts (`also`). In a union
        each holder's trees are of its own people, and `people` is the estimated number
        of those at both.
        """
        trees = self.within(measurements).trees
        sums, noise = measurements["fine"]
        if self.union:
            return TreesRead.of_each(
                trees, sums, noise, self._about_in_union(measurements), also
            )
        return TreesRead.from_sums(trees, sums, noise, measurements.record.people, also)

    def _about_in_union(self, measurements: Measurements) -> float:
        """The estimated number of people in a union, without the padding."""
        budgets = [stated["budget"] for stated in measurements.record.begun.values()]
        limited = [Budget(**budget) for budget in budgets if budget is not None]
        return (measurements.record.people or 0) - expected_made_up(limited)

    def read_again(
        self,
        measurements: Measurements,
        levels: Levels,
        counts: Tensor,
        deviations: Tensor,
    ) -> Levels:
        """The same levels with the distribution of people within each, estimated anew
        from the trees and from what the pairs say of each level (width,).
        """
        also = levels_counted(levels, counts, deviations)
        read = self._read_trees(measurements, also)
        # holders do not read what they count
        from understudy.models.tables.narrow_columns import narrow_law

        spikes = {}
        inner = {}
        if "pairs" in measurements and isinstance(
            pairs := measurements.stage("pairs"), Pairs
        ):
            sums_of_pairs = measurements.record.sums["pairs"]
            loud = measurements.deviations("pairs")
            for atoms in pairs.spikes:
                at = str(atoms.number)
                digits = (sums_of_pairs[at], loud[at], read)
                shared = atoms.numbers(*digits)
                law = narrow_law(atoms, *digits, shared)
                if law is not None:
                    inner[atoms.number] = law
                elif len(shared):
                    spikes[atoms.number] = shared
        weights = [table.numpy() for table in read.tables]
        return replace(levels, weights=weights, spikes=spikes, inner=inner)

    def within(self, measurements: Measurements) -> Layout:
        """The layout with the bounds that "reach" found."""
        fine = measurements.stage("fine")
        assert isinstance(fine, FineTables)
        return fine.layout

    def levels(self, measurements: Measurements) -> Levels:
        """The levels on which pairs are measured: as fine as the fine tables and the
        noise of a pair's cells allow.
        """
        return self.fine_tables(measurements).levels(
            self.within(measurements).joint, self.loudest(measurements, "pairs")
        )

    def loudest(self, measurements: Measurements, name: str) -> float:
        """The largest standard deviation of a block's noise, in a release that may
        still be due.
        """
        return max(self.deviations(measurements, name).values())

    def deviations(self, measurements: Measurements, name: str) -> dict[Block, float]:
        """The standard deviation of the noise in each block of a release, which may
        still be due.
        """
        return measurements.deviations_of(
            name, self._blocks(name, measurements.noise(name))
        )

    def _blocks(self, name: str, noise: float) -> dict[Any, BlockSpec]:
        """Every block with the noise that it has in a release, whatever will be chosen
        of it.
        """
        factors = self._spread(name, noise).factors.items()
        return {
            block: BlockSpec(block, (), 0.0, factor=factor) for block, factor in factors
        }

    def _spread(self, name: str, noise: float) -> NoiseAllocation:
        """The spread as agreed on; for "threes", over all sums of three columns."""
        agreed = self.spreads[name]
        return (
            agreed.in_place(math.comb(self.layout.columns, 3), noise)
            if name == "threes"
            else agreed
        )

    def chooser(self, measured: Any) -> Any:
        """The server's object that chooses pairs and tables from releases, and fits."""
        from understudy.protocols.gram.fit import Chooser

        return Chooser(self.config, self.layout, measured)

    def check_fit(self, **more: Any) -> None:
        from understudy.answers.rules import with_rules

        with_rules(self.layout.joint, self.config.rules)

    def fit(
        self,
        measurements: Measurements,
        privacy: Any,
        look: Callable[..., None],
        **more: Any,
    ) -> Any:
        from understudy.protocols.gram.fit import fit_measurements

        return fit_measurements(self, measurements, privacy, look)

    def foreseen(self, ahead: Measurements, forecast: Any) -> dict[str, Any]:
        from understudy.protocols.gram.forecast import foreseen

        return foreseen(self, ahead, forecast)


PROTOCOL = run.family(Gram, paper=__doc__, same_people=None, audit="gram")
train = PROTOCOL.train
forecast = partial(run.forecast, Gram)
