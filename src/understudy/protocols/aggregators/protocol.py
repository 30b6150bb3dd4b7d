"""Two aggregators: all one- and two-way tables of people of whom nobody sees a row, and
a mixture fitted to them.

Each person splits their tables into two shares (`secure.table_shares`), one for the
server, one for a second aggregator that does not collude with it. Each of the two adds
up what it has and adds its own full noise, and only the two sums together can be read.
Corrigan-Gibbs, Boneh, "Prio" (NSDI 2017), for the model; Boneh et al. (S&P 2021) for
the check that a person's tables are tables (`secure.sketch`); Canonne, Kamath, Steinke
(NeurIPS 2020) for the noise; the fit is that of `gram` (`models/tables/fit_gram.py`).

Guarantee: (ε, δ)-DP for the content of a person's upload, or nothing, against an
outsider, the server, and the second aggregator, in one price that the person's ledger
and the second aggregator's hold. A liar has the weight of one person in each table.
Against both aggregators together there is no guarantee, and the statement says so.
Edges: who takes part is known to both; that a liar's tables agree with each other is
not checked; either aggregator can spoil the sum. A person uploads once; who goes away
before that costs the others nothing.

One release of all one- and two-way tables of m columns: a person moves a cell of each
of m(m + 1)/2 tables by 1, or by `max_holders_per_person` where so many hosts may hold
them. Each aggregator adds discrete Gaussian noise to every cell, the least that (ε, δ)
needs, so that it is that much against the other one, who can take its own off.

Tables need not have the same noise: of Gaussian noise Σ 1/σ² over the tables is all
that counts. Of the others a table of c cells has noise in proportion to c to the power
−1/8: what is wrong in many cells adds up (benchmarks/aggregators has other powers).
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.population import Population
from understudy.data.kinds import TABLE, Family
from understudy.data.schema import Schema
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ConfigError, Effect
from understudy.models.network import pick_device
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import (
    Moved,
    mirrored,
    movable,
    noise_on,
    scaled,
)
from understudy.privacy.secure.sketch import Sketch
from understudy.privacy.secure.table_shares import Cells
from understudy.protocols.aggregators.first import protocol_of
from understudy.protocols.aggregators.terms import Look, Settings, Terms
from understudy.protocols.aggregators.upload import Form, Format
from understudy.protocols.gram.settings import PairsOfAll, again_share

if TYPE_CHECKING:
    from understudy.answers.release import TableRelease
    from understudy.protocols.joint.pricing import CellPricing

_POWER = 1 / 8


@dataclass(frozen=True, kw_only=True)
class Config(Settings, PairsOfAll):
    """What `first_pass_share` leaves of the budget is for the `target`'s pairs."""


class TableTerms(Terms):
    config: Config
    schema: Schema
    protocol: ClassVar[str] = "two-aggregators"
    settings: ClassVar[type[Settings]] = Config
    family: ClassVar[Family[Any, Any]] = TABLE
    rows_are: ClassVar[str] = "tables; shared-moments is for images and series"
    form: ClassVar[type[Form]] = Format
    sketched = Sketch

    @staticmethod
    def bare(config: Config, schema: Schema) -> Schema:
        if config.target is not None and config.target not in schema.names:
            raise ConfigError(
                f'nobody has a column "{config.target}".', effect=Effect.NOTHING_CHARGED
            )
        return Schema(columns=schema.columns)

    def lines_of(
        self, data: Any, population: Population, places: Tensor, some: Tensor
    ) -> Tensor:
        """The levels of a row: in a table everybody has one."""
        return population.rows[places].to(torch.int32)

    @cached_property
    def cells(self) -> Cells:
        return Cells(Codec(self.schema).sizes)

    @cached_property
    def pricing(self) -> "CellPricing":
        return self._pricing(tuple(Counter(self._factors).items()))

    def _pricing(self, moved: Moved) -> "CellPricing":
        from understudy.protocols.joint.pricing import CellPricing

        return CellPricing(moves=self.config.max_holders_per_person, moved=(moved,))

    @property
    def sigma(self) -> float:
        """The noise that each aggregator adds to a cell, without the target, of a table
        of middling size.
        """
        return self.noises[0]

    @cached_property
    def kinds(self) -> list[tuple[float, int]]:
        return [
            (scaled(self.sigma, factor), n_tables)
            for factor, n_tables in Counter(self._factors).items()
        ]

    @cached_property
    def scales(self) -> NDArray[np.float64]:
        """The noise that each aggregator adds to each cell, (cells,)."""
        scales = np.zeros(self.cells.count)
        tables = self.cells.tables(scales)  # parts of it, which are written to
        for (_, _, table), factor in zip(tables, self._factors, strict=True):
            table[:] = scaled(self.sigma, factor)
        return scales

    def noise(self, rng: Rng) -> Tensor:
        noise = torch.zeros(self.cells.count, dtype=torch.int64)
        for scale in np.unique(self.scales).tolist():
            noise += noise_on(
                torch.from_numpy(self.scales == scale), Fraction(scale), rng
            )
        return noise

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """The standard deviation of both noises together on each cell, (cells,)."""
        scales, indices = np.unique(self.scales, return_inverse=True)
        both = [self.pricing.deviation(scale, 2) for scale in scales.tolist()]
        return np.array(both)[indices]

    def matrix(self, flat: NDArray[Any]) -> Tensor:
        """What belongs to each cell, as one matrix of all levels: (width, width), upper
        triangle.
        """
        blocks = Codec(self.schema).blocks
        gram = torch.zeros(
            self.cells.levels, self.cells.levels, dtype=torch.from_numpy(flat).dtype
        )
        for one, other, table in self.cells.tables(flat):
            cells = torch.from_numpy(table)
            if one == other:
                cells = cells[:, 0].diag()
            elif one > other:
                cells = cells.T
            gram[blocks[min(one, other)], blocks[max(one, other)]] = cells
        return gram

    @cached_property
    def _factors(self) -> list[float]:
        """The noise of each table over `sigma`. Over those without the target the mean
        of 1/σ² is that of `sigma`.
        """
        names = self.schema.names
        target = self.config.target
        near = []
        power = []
        for one, other, table in self.cells.tables(np.zeros(self.cells.count)):
            near.append(one != other and target in (names[one], names[other]))
            # few different numbers, the same on every machine
            power.append(
                round(2**16 * math.exp2(-_POWER * round(math.log2(table.size)))) / 2**16
            )
        far = [
            each**-2
            for each, with_target in zip(power, near, strict=True)
            if not with_target
        ]
        middle = math.sqrt(math.fsum(far) / len(far))
        return [
            self._factor if flag else each * middle
            for each, flag in zip(power, near, strict=True)
        ]

    @cached_property
    def _factor(self) -> float:
        """The noise of pairs with the target over that of the others."""
        # tables
        with_target = 0 if self.config.target is None else len(self.schema.names) - 1
        if not with_target:
            return 1.0
        config = self.config
        second_share = 0.2
        if config.first_pass_share is not None:
            second_share = 1 - config.first_pass_share
        elif config.public_people is not None:
            even = self._pricing(((1.0, self.cells.blocks),))
            (noise,) = even.needed(self.budget, None)
            second_share = again_share(config.public_people, math.sqrt(2) * noise)
        # 1/σ² of all tables, and what that of these has besides
        common = (1 - second_share) / self.cells.blocks
        more = second_share / with_target
        return math.sqrt(common / (common + more))

    def drawn(self, schemas: Mapping[str, Schema]) -> Schema:
        from understudy.answers.rules import with_rules

        return with_rules(
            self.schema,
            dict.fromkeys(rule for one in schemas.values() for rule in one.rules),
        )

    def fit(
        self, saved: Mapping[str, Any], card: dict[str, Any], schema: Any, look: Look
    ) -> GeneratorParts:
        from understudy.answers.rule_boxes import rule_ties
        from understudy.models.tables.fit_gram import fit_gram

        config = self.config
        sizes = self.cells.sizes
        device = pick_device(self.config.device)
        gram = self.matrix(saved["sums"].numpy())
        spread = mirrored(self.matrix(self.spread))
        network = fit_gram(
            gram.to(device),
            sizes,
            noise=torch.where(movable(sizes), spread, torch.inf).float().to(device),
            people=saved["people"],
            ties=rule_ties(Codec(schema)),
            target=None if config.target is None else schema.names.index(config.target),
            components=config.components,
            steps=config.steps,
            rate=config.rate,
            seed=config.seed,
            watch=lambda step, residual: look(),
        )
        card["levels"] = dict(zip(self.schema.names, sizes, strict=True))
        lowest = float(self.spread.min())
        highest = float(self.spread.max())
        card["noise"] = {"of each aggregator, in tables of middling size": self.sigma}
        card["noise"] |= {"of a cell, at least": lowest, "of a cell, at most": highest}
        release = self._release(gram, spread, card)
        card["release"] = release.card
        return GeneratorParts(network.cpu().eval(), schema, card, None, release)

    def _release(
        self, gram: Tensor, spread: Tensor, card: Mapping[str, Any]
    ) -> "TableRelease":
        from understudy.answers.release import TableRelease, tables_of

        stated = card["privacy"]
        sizes = self.cells.sizes
        person = stated["person"]
        about = {
            "adjacency": stated["adjacency"],
            "epsilon": person["epsilon"]["outsider"],
            "delta": person["delta"],
        }
        about |= {
            "releases": [list(kind) for kind in self.kinds],
            "people": card["people"],
        }
        every = torch.ones(len(sizes), len(sizes), dtype=torch.bool)
        tensors = tables_of(gram, spread, every, sizes, "pairs")
        tensors["sizes"] = torch.tensor(sizes, dtype=torch.int32)
        return TableRelease.from_tensors(Codec(self.schema), tensors, about)


PROTOCOL = protocol_of(TableTerms, paper=__doc__)
train = PROTOCOL.train
