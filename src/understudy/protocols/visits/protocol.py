"""Visits: holders of people and their events release tables of both, once, privately,
and chains are fitted to them.

What Gram is for people with one row, this is for people with many: visits, purchases,
readings. Counted are one- and two-way tables of people's columns, the number of events
among them; of the columns of events, and of people's and events' columns together; and
of consecutive events. In each a person with all events weighs 1
(`data/visits/counts.py`), so that what a person did often counts no more than what
another did once, and noise does not grow with `most_events`. Everything after the one
release is free (`models/visits`).

Holders have people of their own under one schema (a horizontal partition); or one
holder or more have events of the same people, and others tables of them (a vertical
one), and tables across holders are products of their people's vectors; or both (a
grid): holders of the same columns have people of their own, each of whom is with one
holder of all other columns, too.

Sources: noise by Canonne, Kamath, Steinke 2020, priced as in
`privacy/secure/moments.py`; sums by Bonawitz et al. 2017 and products by Beaver 1991
(`privacy/secure/sums.py`). What is released is our own.

Guarantee: in a horizontal partition (ε, δ)-DP for a person with all rows in both tables
at a holder (or at up to `max_holders_per_person` of them), against the server, an
outsider, and up to `max_colluding` other holders, who may pool what they know with the
server. In a vertical one for a person with all rows at all parties, in one price,
against the server, any party, and an outsider; the server deals the masks, so it must
not pool what it knows with a holder. Over a grid the same against up to `max_colluding`
of the holders. Edges: levels and bounds are those of the schema; how many events count
(`most_events`) is public.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import DEFAULT_BINS, is_unbounded
from understudy.data.encoding.fine import fine_schema, public_cells
from understudy.data.schema import Grid
from understudy.data.visits import VisitCodes, count_visits
from understudy.data.visits.counts import MOST_CELLS, Block, person_vectors
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.ground.settings import POSITIVE, WHOLE, setting
from understudy.models.tables.trees import Trees, named_runs
from understudy.privacy.secure.moments import LARGEST
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core import settings as usual
from understudy.protocols.core.settings import RULES
from understudy.protocols.joint import run
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.pricing import (
    BlockSpec,
    VectorPricing,
    finest_scale,
)
from understudy.protocols.joint.stage import (
    Holding,
    Multiplied,
    Product,
    Stage,
    Study,
    Terms,
    block_name,
    expect,
)
from understudy.protocols.visits.columns import Split, grid_of
from understudy.protocols.visits.fine import (
    Bought,
    FineCells,
    Runs,
    VisitRows,
    Within,
    fine_tables,
    nodes_moved,
    runs_found,
)

if TYPE_CHECKING:
    from understudy.models.visits.fit import VisitTables

# What a person weighs in a table, in whole parts: the finest whose noise can be drawn.
# Divisible by many numbers; where tables are products, squares of such.
UNITS = (27_720, 5_040, 2_520, 840, 360, 120, 60, 24, 12, 6, 2, 1)
_FAR = 64  # noise beyond so many σ would wrap around: once in e^2048
ROOTS = (180, 120, 84, 60, 36, 24, 12, 6, 4, 2, 1)


@dataclass(frozen=True, kw_only=True)
class Config(usual.OverRows, usual.OverColumns):
    """Nothing is measured for `rules`: the fit knows what they forbid, and what is
    drawn keeps them.
    """

    kinds: int = setting(256, WHOLE, "how many kinds of people the fit may tell apart")
    chains: int = setting(16, WHOLE, "how many chains of events these share")
    states: int = setting(24, WHOLE, "kinds of events of each chain")
    steps: int = setting(1200, WHOLE, "the most steps of the fit")
    rate: float = setting(0.2, POSITIVE, "learning rate of the fit")
    rules: tuple[dict[str, Any], ...] = setting(
        (),
        RULES,
        "what every event keeps with its person, besides the rules of the "
        "schemas, where columns are split",
    )
    device: str = usual.device()
    products: str = usual.products("dealt")


@dataclass(frozen=True)
class VisitMarginals(Multiplied[VisitRows]):
    """All tables of every group's columns and of those of every two, in parts of a
    `unit`.
    Guarantee: a person's cells in a table are no less than 0 and add up to its unit at
    most; so the squares of all of a block's tables add up to its sensitivity squared.
    """

    split: Split
    unit: int
    bought: Mapping[str, Bought]  # the columns whose levels were
    runs: Runs | None = None  # where numbers without bounds are

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        """Weights by what a person moves: so all cells have noise of one size."""
        split = self.split
        blocks = dict[str, BlockSpec]()
        squares = dict.fromkeys(split.grid.blocks, 0)
        for block, unit in self.units.items():
            squares[split.groups(block)] += unit**2
        for (one, other), square in squares.items():
            shape = (
                (split.own(one).size,)
                if one == other
                else (split.width(one), split.width(other))
            )
            moved = math.sqrt(square) * (1 + 2.0**-40)
            blocks[block_name((one, other))] = BlockSpec(
                (one, other),
                shape,
                moved,
                weight=float(square),
            )
        return blocks

    @cached_property
    def units(self) -> dict[Block, int]:
        """What a person weighs in each table, in whole parts."""
        return self.split.layout.units(self.unit)

    @property
    def product(self) -> Product | None:
        groups = range(len(self.split.grid.groups))
        if len(groups) < 2:
            return None
        # a person's numbers in a column are none below 0, and add up to the root
        root = math.isqrt(self.unit)
        lengths = {
            group: root * math.sqrt(self.split.n_columns(group)) for group in groups
        }
        product = Product.of_all([*map(self.split.width, groups)])
        return replace(product, lengths=lengths, parts=self.unit)

    def count(self, rows: VisitRows) -> dict[str, Tensor]:
        counts = count_visits(
            rows.levels(self.runs, self.bought),
            self.split.own(rows.group),
            self.unit,
        )
        return {block_name((rows.group, rows.group)): torch.from_numpy(counts)}

    def vectors(
        self,
        rows: VisitRows,
        start: int,
        stop: int,
    ) -> NDArray[np.int64]:
        some = rows.levels(self.runs, self.bought, slice(start, stop))
        return person_vectors(some, self.split.own(rows.group), math.isqrt(self.unit))

    def read(
        self,
        sums: Mapping[str, Tensor],
        noise: Mapping[str, float],
    ) -> "VisitTables":
        """In people."""
        from understudy.models.visits.fit import VisitTables

        split = self.split
        tables = dict[Block, Tensor]()
        for groups in split.grid.blocks:
            total, (one, other) = sums[block_name(groups)], groups
            if one == other:
                cut = split.own(one).split(total.numpy())
                tables |= {
                    split.joint(one, block): torch.from_numpy(np.array(cut[block]))
                    for block in cut
                }
            else:
                tables |= split.across(groups, total)
        people = {
            block: tables[block].double() / unit for block, unit in self.units.items()
        }
        return VisitTables(split.layout, people, self.table_noise(noise))

    def table_noise(self, noise: Mapping[str, float]) -> dict[Block, float]:
        """The deviation in the cells of each table, in people, from that in each
        block.
        """
        return {
            block: noise[block_name(self.split.groups(block))] / unit
            for block, unit in self.units.items()
        }


class VisitStudy(Study[VisitRows]):
    """The server chooses who takes part, more noise, after "reach" the bounds of
    numbers without them, and after "fine", by fine cells, the levels of numbers without
    bins (`visits/fine.py`).
    """

    family: ClassVar = "visits"
    settings: ClassVar = Config
    settled: ClassVar = (
        "max_colluding",
        "max_holders_per_person",
        "private",
        "products",
    )
    any_kind: ClassVar = True
    lasting: ClassVar = ("fine",)

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        visits = {
            name: schema for name, schema in schemas.items() if schema.kind == "visits"
        }
        if not visits:
            raise ConfigError(
                f"{', '.join(schemas)}: nobody holds people with events, which visits "
                "is for: gram is for tables.",
                effect=Effect.NOTHING_CHARGED,
            )
        for (one, first), (other, second) in combinations(
            grid_of(visits).one_each(visits).items(),
            2,
        ):
            if set(first.names) & set(second.names):
                raise SchemaError(
                    f"{one} and {other} describe their rows differently: holders of "
                    "the same columns need the same schema, and no other holder may "
                    "have one of its columns.",
                    effect=Effect.NOTHING_CHARGED,
                )
        self.widest = Within(schemas)
        self.split = self.widest.on_bins({})
        self.schema, self.layout = self.split.schema, self.split.layout
        self.grid.check_max_holders_per_person(config.max_holders_per_person)
        self.bought, self.public = self.widest.bought, self.widest.public
        self.least = len(self.releases)
        # Of levels that are bought, where tables have room for them: they were counted
        # as `DEFAULT_BINS` each.
        self.most = DEFAULT_BINS * (2 if 4 * self.layout.size <= MOST_CELLS else 1)

    @cached_property
    def grid(self) -> Grid:
        return self.split.grid

    @property
    def releases(self) -> Mapping[str, str]:
        releases = {"reach": "where numbers without bounds are"} if self.public else {}
        releases |= (
            {"fine": "fine cells of numbers without bins"} if self.bought else {}
        )
        return releases | {"tables": "tables of people and their events"}

    @cached_property
    def pricing(self) -> VectorPricing:
        """A count of single columns has about √½ of the noise of one in a table: more
        than one follows from it.
        """
        single = (
            2 * nodes_moved(columns)
            for columns in (self.public, self.bought)
            if columns
        )
        weights = [*single, len(self.layout.blocks)]
        shares = tuple(weight / sum(weights) for weight in weights)
        return VectorPricing(
            self.config.max_colluding,
            self.config.max_holders_per_person,
            shares,
        )

    @property
    def max_answers(self) -> int:
        """One for every two groups."""
        return math.comb(len(self.grid.groups), 2)

    def ring(self, people: int | None, noise: Sequence[float]) -> Ring:
        if not self.encrypted or people is None:
            return super().ring(people, noise)
        most = self.tables(noise[-1], self.widest, {}).unit
        alone = [columns for columns in (self.public, self.bought) if columns]
        for columns, own_noise in zip(alone, noise[:-1], strict=True):
            most = max(most, self.cells(own_noise, columns, self.widest).unit)
        return Ring.least(people * most + len(self.schemas) * _FAR * LARGEST)

    def check_bits(self, bits: int, noise: Sequence[float]) -> None:
        super().check_bits(bits, noise)
        product = self.tables(noise[-1], self.widest, {}).product
        if self.encrypted and product is not None:
            from understudy.protocols.joint.encrypted import rooms_of

            rooms_of(product, bits)

    def rows(self, holding: Holding) -> VisitRows:
        """Where events are drawn, the same ones in one session: others under the same
        masks would tell rows.
        """
        table = holding.rows
        aligned = holding.aligned

        @lru_cache(maxsize=1)
        def codes(runs: Runs | None) -> VisitCodes:
            bounded = (
                None
                if runs is None
                else Within(self.schemas, runs).schemas[holding.name]
            )
            if aligned is not None and table.schema.kind == "table":
                free = frozenset(
                    one.name for one in table.schema.columns if is_unbounded(one)
                )
                fine = fine_schema(bounded or public_cells(table.schema))
                levels = aligned.encoded(Trees(fine, fine, free).cells)
                nobody = np.zeros(len(levels) + 1, dtype=np.int64)
                return VisitCodes(levels, np.zeros((0, 0), dtype=np.int32), nobody)
            local = table if aligned is None else table.take(holding.places)
            return local.codes(holding.drawing(), bounded)  # type: ignore[no-any-return]

        return VisitRows(self.grid.group_of(holding.name), codes)

    def stage(
        self,
        name: str,
        terms: Terms,
        noise: float,
        before: Mapping[str, Stage[VisitRows]],
    ) -> Stage[VisitRows]:
        if name == "reach":
            expect(terms)
            return self.cells(noise, self.public, self.widest)
        if name == "fine":
            expect(terms, *(["runs"] if self.public else []))
            within = self.widest
            if self.public:
                cells = {name: one.fine.levels for name, one in self.public.items()}
                within = Within(
                    self.schemas,
                    tuple(named_runs(cells, terms["runs"]).items()),
                )
            return self.cells(noise, within.bought, within)
        expect(terms, *(["cuts"] if self.bought else []))
        if not self.bought:
            return self.tables(noise, self.widest, {})
        fine = before["fine"]
        assert isinstance(fine, FineCells)
        return self.tables(noise, fine.within, fine.on_cuts(terms["cuts"], self.most))

    def cells(
        self,
        noise: float,
        columns: Mapping[str, Bought],
        within: Within,
    ) -> FineCells:
        """Of all that is counted of these columns by themselves."""
        moved = math.sqrt(nodes_moved(columns))
        return FineCells(
            columns,
            self._unit(UNITS, noise, lambda unit: unit * moved),
            within,
        )

    def tables(
        self,
        noise: float,
        within: Within,
        bought: Mapping[str, Bought],
    ) -> VisitMarginals:
        """On these levels, and else on declared ones, or as many as there are before
        some are bought.
        """
        split = within.on_bins(bought)
        units = (
            UNITS if len(self.grid.groups) == 1 else tuple(root**2 for root in ROOTS)
        )
        return VisitMarginals(
            split,
            self._unit(units, noise, split.layout.sensitivity),
            bought,
            within.runs,
        )

    def _unit(
        self,
        units: Sequence[int],
        noise: float,
        sensitivity: Callable[[int], float],
    ) -> int:
        """The finest whose noise can be drawn."""
        return finest_scale(
            units,
            noise,
            sensitivity,
            max_holders_per_person=self.config.max_holders_per_person,
        )

    def terms(self, name: str, measurements: Measurements) -> Terms:
        if name == "fine" and self.public:
            return {"runs": runs_found(measurements)}
        if name != "tables" or not self.bought:
            return {}
        fine: Any = measurements.stage("fine")
        noise = max(self.cell_noise(measurements, fine.within).values())
        tables = fine_tables(measurements)
        return {
            "cuts": {
                name: one.chosen(tables[name], noise, self.most)
                for name, one in fine.columns.items()
            }
        }

    def cell_noise(
        self,
        measurements: Measurements,
        within: Within,
    ) -> dict[Block, float]:
        """The deviation in the cells of each table, in people: about that, before
        levels are bought.
        """
        stage = self.tables(measurements.noise("tables"), within, {})
        return stage.table_noise(measurements.deviations_of("tables", stage.blocks))

    def check_fit(self, **more: Any) -> None:
        from understudy.protocols.visits.fit import check_fit

        check_fit(self)

    def fit(
        self,
        measurements: Measurements,
        privacy: Any,
        look: Callable[..., None],
        **more: Any,
    ) -> Any:
        from understudy.protocols.visits.fit import fitted

        return fitted(self, measurements, look)

    def foreseen(self, ahead: Measurements, forecast: Any) -> dict[str, Any]:
        from understudy.protocols.visits.fit import foreseen

        return foreseen(self, ahead, forecast)


# rows of different people, columns of the same ones, or both
PROTOCOL = run.family(
    VisitStudy,
    paper=__doc__,
    same_people=None,
    kinds=("visits", "table"),
    audit="joint-alone",
)
train = PROTOCOL.train
forecast = PROTOCOL.forecast
