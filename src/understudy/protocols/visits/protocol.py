"""Visits: holders of people and their events release tables of both, once, privately, and chains are fitted to them.

What Gram is for people with one row, this is for people with many: visits, purchases, readings. Counted are one- and
two-way tables of people's columns, the number of events among them; of the columns of events, and of people's and
events' columns together; and of consecutive events. In each a person with all events weighs 1
(`data/visits/counts.py`), so that what a person did often counts no more than what another did once, and noise does not
grow with `most_events`. Everything after the one release is free (`models/visits`).

Holders have people of their own under one schema (over rows); or one holder or more have events of the same people, and
others tables of them (over columns), and tables across holders are products of their people's vectors; or both (a
grid): holders of the same columns have people of their own, each of whom is with one holder of all other columns, too.

Sources: noise by Canonne, Kamath, Steinke 2020, priced as in `privacy/secure/moments.py`; sums by Bonawitz et al. 2017
and products by Beaver 1991 (`privacy/secure/sums.py`). What is released is our own.

Guarantee: over rows (ε, δ)-DP for a person with all rows in both tables at a holder (or at up to `most_holders` of
them), against the server, an outsider, and up to `colluding` other holders, who may pool what they know with the
server. Over columns for a person with all rows at all parties, in one price, against the server, any party, and an
outsider; the server deals the masks, so it must not pool what it knows with a holder. Over a grid the same against up
to `colluding` of the holders.
Edges: levels and bounds are those of the schema; how many events count (`most_events`) is public.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import DEFAULT_BINS
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.fine import fine_schema
from understudy.data.schema import Grid
from understudy.data.visits import SeveralLayout, SeveralVisits, VisitCodes, VisitLayout, VisitSchema, count_visits
from understudy.data.visits.counts import MOST_CELLS, Block, person_vectors
from understudy.ground.errors import ConfigError, SchemaError
from understudy.ground.settings import POSITIVE, WHOLE, setting
from understudy.privacy.secure.moments import LARGEST
from understudy.protocols.core import settings as usual
from understudy.protocols.core.settings import RULES
from understudy.protocols.joint import run
from understudy.protocols.joint.found import Found
from understudy.protocols.joint.pricing import BlockSpec, VectorPricing
from understudy.protocols.joint.stage import Holding, Multiplied, Product, Stage, Study, Terms, block_name, expect
from understudy.protocols.visits.columns import Split, grid_of, together
from understudy.protocols.visits.fine import Bought, FineCells, Rows, bought_columns, on_cuts, on_levels

if TYPE_CHECKING:
    from understudy.models.visits.fit import VisitTables

# What a person weighs in a table, in whole parts: the finest whose noise can be drawn. Divisible by many numbers; where
# tables are products, squares of such.
UNITS = (27_720, 5_040, 2_520, 840, 360, 120, 60, 24, 12, 6, 2, 1)
ROOTS = (180, 120, 84, 60, 36, 24, 12, 6, 4, 2, 1)
Layout = VisitLayout | SeveralLayout


@dataclass(frozen=True, kw_only=True)
class Config(usual.OverRows, usual.OverColumns):
    """Nothing is measured for `rules`: the fit knows what they forbid, and what is drawn keeps them."""

    kinds: int = setting(256, WHOLE, "how many kinds of people the fit may tell apart")
    chains: int = setting(16, WHOLE, "how many chains of events these share")
    states: int = setting(24, WHOLE, "kinds of events of each chain")
    steps: int = setting(1200, WHOLE, "the most steps of the fit")
    rate: float = setting(0.2, POSITIVE, "learning rate of the fit")
    rules: tuple[dict[str, Any], ...] = setting(
        (), RULES, "what every event keeps with its person, besides the rules of the schemas, where columns are split"
    )
    device: str = usual.device()


@dataclass(frozen=True)
class Tables(Multiplied[Rows]):
    """All tables, in parts of a `unit`; where columns are split, those of every group and of every two.
    Guarantee: a person's cells in a table are no less than 0 and add up to its unit at most; so the squares of all of a
    block's tables add up to its sensitivity squared."""

    schema: VisitSchema | SeveralVisits
    layout: Layout
    split: Split | None
    unit: int
    bought: Mapping[str, Bought]  # the columns whose levels were

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        """Weights by what a person moves: so all cells have noise of one size."""
        if (split := self.split) is None:
            return {"tables": BlockSpec((0, 0), (self.layout.size,), self.layout.sensitivity(self.unit))}
        units = dict(zip(self.layout.blocks, self.layout.units(self.unit), strict=True))
        squares = dict.fromkeys(split.grid.blocks, 0)
        for block, own in units.items():
            squares[split.groups(block)] += own**2
        found = {}
        for (one, other), square in squares.items():
            shape = (split.own(one).size,) if one == other else (split.width(one), split.width(other))
            moved = math.sqrt(square) * (1 + 2.0**-40)
            found[block_name((one, other))] = BlockSpec((one, other), shape, moved, weight=float(square))
        return found

    @property
    def product(self) -> Product | None:
        split = self.split
        return None if split is None else Product.of_all([*map(split.width, range(len(split.grid.groups)))])

    def count(self, rows: Rows) -> dict[str, Tensor]:
        name, own = "tables", self.layout
        if self.split is not None:
            name, own = block_name((rows.group, rows.group)), self.split.own(rows.group)
        assert isinstance(own, VisitLayout)  # over rows
        return {name: torch.from_numpy(count_visits(on_levels(rows.codes(), rows.group, self.bought), own, self.unit))}

    def vectors(self, rows: Rows, start: int, stop: int) -> NDArray[np.int64]:
        assert self.split is not None
        some = on_levels(rows.codes().take(np.arange(start, stop)), rows.group, self.bought)
        return person_vectors(some, self.split.own(rows.group), math.isqrt(self.unit), 0, stop - start)

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> "VisitTables":
        """In people."""
        from understudy.models.visits.fit import VisitTables

        if (split := self.split) is None:
            return VisitTables.read(self.layout, sums["tables"], noise["tables"], self.unit)
        tables: dict[Block, Tensor] = {}
        for groups in split.grid.blocks:
            total, (one, other) = sums[block_name(groups)], groups
            if one == other:
                cut = split.own(one).split(total.numpy())
                tables |= {split.joint(one, block): torch.from_numpy(np.array(cut[block])) for block in cut}
            else:
                tables |= split.across(groups, total)
        cells = torch.cat([tables[block].flatten() for block in self.layout.blocks])
        exact = VisitTables.read(self.layout, cells, 0.0, self.unit)
        return VisitTables(self.layout, exact.tables, self.table_noise(noise))

    def table_noise(self, noise: Mapping[str, float]) -> dict[Block, float]:
        """The deviation in the cells of each table, in people, from that in each block."""
        units, split = zip(self.layout.blocks, self.layout.units(self.unit), strict=True), self.split
        if split is None:
            return {block: noise["tables"] / own for block, own in units}
        return {block: noise[block_name(split.groups(block))] / own for block, own in units}


class VisitStudy(Study[Rows]):
    """The server chooses who takes part, more noise, and after "fine", by fine cells, the levels of numbers without
    bins (`visits/fine.py`)."""

    family: ClassVar = "visits"
    settings: ClassVar = Config
    settled: ClassVar = ("colluding", "most_holders", "private")
    any_kind: ClassVar = True

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        visits = {name: schema for name, schema in schemas.items() if schema.kind == "visits"}
        if not visits:
            raise ConfigError(
                f"{', '.join(schemas)}: nobody holds people with events, which visits is for: gram is for tables. "
                "Nothing was charged."
            )
        for (one, first), (other, second) in combinations(grid_of(visits).one_each(visits).items(), 2):
            if set(first.names) & set(second.names):
                raise SchemaError(
                    f"{one} and {other} describe their rows differently: holders of the same columns need the same "
                    "schema, and no other holder may have one of its columns. Nothing was charged."
                )
        self.split, self.schema, self.layout = together(schemas)
        self.grid.check_most_holders(config.most_holders)
        self.bought = bought_columns(self.grid.one_each(schemas).values())
        self.moved = sum(one.tree.moved for one in self.bought.values())
        self.least = len(self.releases)
        # Of levels that are bought, where tables have room for them: they were counted as `DEFAULT_BINS` each.
        self.most = DEFAULT_BINS * (2 if 4 * self.layout.size <= MOST_CELLS else 1)

    @cached_property
    def grid(self) -> Grid:
        return Grid((tuple(self.schemas),)) if self.split is None else self.split.grid

    @property
    def releases(self) -> Mapping[str, str]:
        fine = {"fine": "fine cells of numbers without bins"} if self.bought else {}
        return fine | {"tables": "tables of people and their events"}

    @cached_property
    def pricing(self) -> VectorPricing:
        """A count of fine cells has about √½ of the noise of one in a table: more than one follows from it."""
        fine = 2 * self.moved / (2 * self.moved + len(self.layout.blocks))
        shares = (fine, 1 - fine) if self.bought else (1.0,)
        return VectorPricing(self.config.colluding, self.config.most_holders, shares)

    def rows(self, holding: Holding) -> Rows:
        """Where events are drawn, the same ones in one session: others under the same masks would tell rows."""
        held, aligned = holding.rows, holding.aligned

        @cache
        def codes() -> VisitCodes:
            if aligned is not None and held.schema.kind == "table":
                levels = aligned.encoded(Codec(fine_schema(held.schema)).codes)
                nobody = np.zeros(len(levels) + 1, dtype=np.int64)
                return VisitCodes(levels, np.zeros((0, 0), dtype=np.int32), nobody)
            own = held if aligned is None else held.take(holding.places)
            return own.codes(holding.drawing())  # type: ignore[no-any-return]

        return Rows(self.grid.group_of(holding.name), codes)

    def stage(self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[Rows]]) -> Stage[Rows]:
        if name == "fine":
            expect(terms)
            return FineCells(self.bought, self._unit(UNITS, noise, lambda unit: unit * math.sqrt(self.moved)))
        expect(terms, *(["cuts"] if self.bought else []))
        return self.tables(noise, on_cuts(self.bought, terms["cuts"], self.most) if self.bought else {})

    def tables(self, noise: float, bought: Mapping[str, Bought]) -> Tables:
        """On these levels, and else on declared ones, or as many as there are before some are bought."""
        split, schema, layout = self.on_bins(bought)
        units = UNITS if split is None else tuple(root**2 for root in ROOTS)
        return Tables(schema, layout, split, self._unit(units, noise, layout.sensitivity), bought)

    def on_bins(self, bought: Mapping[str, Bought]) -> tuple[Split | None, VisitSchema | SeveralVisits, Layout]:
        """What all schemas describe, with the bins of these columns."""
        bins = {one.declared: one.bins for one in bought.values()}
        return together({name: schema.binned(bins) for name, schema in self.schemas.items()})

    def _unit(self, units: Sequence[int], noise: float, sensitivity: Callable[[int], float]) -> int:
        """The finest whose noise can be drawn."""
        most = LARGEST / 1.5 / 1.03 / self.config.most_holders
        return next((unit for unit in units if noise * sensitivity(unit) <= most), units[-1])

    def terms(self, name: str, found: Found) -> Terms:
        if name == "fine" or not self.bought:
            return {}
        noise = max(self.cell_noise(found).values())
        return {"cuts": {name: self.bought[name].chosen(own, noise, self.most) for name, own in found["fine"].items()}}

    def cell_noise(self, found: Found) -> dict[Block, float]:
        """The deviation in the cells of each table, in people: about that, before levels are bought."""
        stage = self.tables(found.noise("tables"), {})
        return stage.table_noise(found.deviations_of("tables", stage.blocks))

    def check_fit(self, **more: Any) -> None:
        from understudy.protocols.visits.fit import check_fit

        check_fit(self)

    def fit(self, found: Found, privacy: Any, look: Callable[..., None], **more: Any) -> Any:
        from understudy.protocols.visits.fit import fitted

        return fitted(self, found, look)

    def foreseen(self, ahead: Found, said: Any) -> dict[str, Any]:
        from understudy.protocols.visits.fit import foreseen

        return foreseen(self, ahead, said)


# rows of different people, columns of the same ones, or both
PROTOCOL = run.family(VisitStudy, paper=__doc__, same_people=None, kinds=("visits", "table"), audit="joint-alone")
train, forecast = PROTOCOL.train, PROTOCOL.forecast
