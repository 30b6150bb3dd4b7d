"""What a `Begin` fixes at a holder, and the holder's rows as the levels that are counted.

Guarantee: settings other than those agreed to, another schema, or a split of the budget that has no bound → an error,
and nothing is charged or sent.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from understudy.data.encoding.codec import Codec, Codes
from understudy.data.encoding.levels import Levels, merged
from understudy.data.reading.streamed import StreamedTable
from understudy.data.schema import Schema
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError, MessageError, PartyError, SchemaError
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.counts import one_hot, shared_noise, spend_of
from understudy.privacy.secure.ring import Bits
from understudy.protocols.gram.layout import LEAST_FINE, MOST_FINE, Layout, Spread
from understudy.protocols.gram.messages import Begin

# Told as they stand in a run's settings
_SETTLED = ("private", "fine", "target", "refined", "public_people", "triples", "colluding", "most_holders")
_CHOSEN, _MANY = 4, 10_000  # three-way tables with the target, where so many people or more are public
_AGAIN, _MOST_AGAIN = 0.2, 0.9  # of the pairs' budget, for those that are measured twice
_FEW = 4.0  # that share is so much over the root of how many deviations of the noise the people are


@dataclass(frozen=True)
class Terms:
    """What will be released, and what one person moves in it."""

    ask: Begin
    layout: Layout
    spreads: tuple[Spread, ...]  # of each release
    moves: int  # by how much a person moves a cell

    @classmethod
    def of(cls, name: str, schema: Schema, ask: Begin, agreed: Mapping[str, Any]) -> "Terms":
        """The terms of this ask, held to the holder's own schema and to what was agreed to, whatever a server says."""
        _as_agreed(name, ask, agreed)
        schemas = {holder: Schema.from_dict(told) for holder, told in ask.schemas.items()}
        if name not in schemas or schemas[name].columns != schema.columns:
            raise SchemaError(f"{name}: the run is about another schema. Nothing was charged or sent.")
        layout = Layout(schemas, tuple((a, b, c) for a, b, c in ask.triples), ask.fine != 0)
        if layout.fine:
            in_range(LEAST_FINE, MOST_FINE, fine=ask.fine)
            if ask.across:
                raise ConfigError("levels are bought for all pairs, or for none. Nothing was charged.")
        for names in layout.triples:
            layout.triple(names)
        whole(colluding=ask.colluding)
        moves = layout.together(ask.most_holders)
        if ask.refined:
            whole(refined=ask.refined)
        if ask.chosen_triples:
            whole(chosen_triples=ask.chosen_triples)
        again = layout.again(ask.target, ask.refined)
        chosen = layout.choosable(ask.target, ask.chosen_triples)
        if again and ask.scouting is not None:
            in_range(0.05, 0.95, scouting=ask.scouting)  # towards 0 and 1 noise grows without end
        if ask.public_people is not None:
            whole(public_people=ask.public_people)
        return cls(
            ask, layout, layout.spreads(ask.colluding, across=ask.across, refined=again, chosen=chosen), moves
        )

    @property
    def rows_only(self) -> bool:
        return self.layout.grid.partition == "rows"

    def sigmas(self, budget: Budget, shared: int | None = None) -> list[float]:
        """The noise of every release that this budget needs; `shared` people are known where columns are split."""
        if not self.ask.private:
            return [0.0] * len(self.spreads)
        return self._noise(budget, self.shares(budget, shared))

    def shares(self, budget: Budget, shared: int | None = None) -> list[float]:
        """Each release's share of the budget."""
        again = self.layout.again(self.ask.target, self.ask.refined) > 0
        scouting, people = self.ask.scouting, shared or self.ask.public_people
        if scouting is None:
            scouting = 1 - _AGAIN
            if self.ask.target is not None and people is not None and again and self.ask.private:
                shares = self.layout.shares(self.ask.fine, scouting, again=again)
                noise = self._noise(budget, shares)[-2]  # of all pairs, with that part of the budget
                scouting = 1 - again_share(people, noise * scouting**0.5)
        return self.layout.shares(self.ask.fine, scouting, again=again)

    def _noise(self, budget: Budget, shares: list[float]) -> list[float]:
        plan = tuple(zip((spread.moved for spread in self.spreads), shares, strict=True))
        return list(shared_noise(plan, budget, self.moves))

    def price(self, release: int, sigma: float) -> Counter[DpEvent]:
        """What a release of noise σ costs: one use for every cell that a person moves."""
        return spend_of(self.spreads[release].classes(sigma), self.moves)

    def first(self) -> Tensor:
        """The pairs of the release that follows the levels, (m, m)."""
        return self.layout.everything(across=self.ask.across)

    @property
    def chosen(self) -> int:
        """How many three-way tables may be named with the last release."""
        return self.layout.choosable(self.ask.target, self.ask.chosen_triples)

    @property
    def names_pairs(self) -> bool:
        """Whether pairs or tables are named later: else they follow from what was agreed on."""
        return bool(self.ask.refined or self.chosen)

    def also(self, layout: Layout, pairs: Tensor) -> Layout:
        """This layout with the three-way tables of these pairs and the target, if they are what was agreed on."""
        return replace(layout, triples=self.layout.triples).also(pairs, self.chosen, self.ask.target)

    def twice(self, pairs: Tensor) -> Tensor:
        """Those pairs, if they are what was agreed on."""
        again = self.layout.again(self.ask.target, self.ask.refined)
        return self.layout.only(pairs, again, self.ask.target)


def again_share(people: int, noise: float) -> float:
    """Which part of the pairs' budget goes to the pairs with a target, once more.

    `noise` is that of a cell if all pairs had all of it. A fifth, where people are many. Where they are few beside the
    noise, no pair by itself tells much, and m − 1 of m(m − 1)/2 are cheap: they have up to nine tenths. Public numbers
    alone decide.
    """
    return min(_MOST_AGAIN, max(_AGAIN, _FEW * math.sqrt(noise / min(people, 1 << 53))))


def tables_to_choose(wanted: int | None, target: str | None, public_people: int | None) -> int:
    """How many three-way tables with the target are chosen: as the settings say, and else by public numbers."""
    if wanted is not None:
        return wanted
    return _CHOSEN if target is not None and public_people is not None and public_people >= _MANY else 0


def _as_agreed(name: str, ask: Begin, agreed: Mapping[str, Any]) -> None:
    """What is to be released, held to the settings it came with, and to what the holder knows by itself."""
    told = vars(ask) | {"triples": tuple(map(tuple, ask.triples))}
    settings = {key: ask.config[key] for key in _SETTLED if key in ask.config}
    if "triples" in settings:
        settings["triples"] = tuple(map(tuple, settings["triples"]))
    if "chosen_triples" in ask.config:
        settings["chosen_triples"] = tables_to_choose(
            ask.config["chosen_triples"], ask.target, ask.public_people
        )
    for key, value in (settings | dict(agreed)).items():
        if key in told and told[key] != value:
            raise MessageError(
                f"{name}: {key}={told[key]} was asked for, and {value} was agreed to. Nothing was charged or sent."
            )


class Rows:
    """A holder's rows, in the common order, as the levels in which a layout counts them.

    Where levels are bought the fine cells are counted first, and `on` gives the same rows on the levels bought.
    """

    def __init__(
        self, frame: pd.DataFrame, schema: Schema, layout: Layout, group: int, levels: Levels | None = None
    ) -> None:
        self._frame, self._schema, self._group, self._levels = frame, schema, group, levels
        self.layout = layout

    def __len__(self) -> int:
        return len(self._frame)

    def encoded(self) -> int:
        """How many people there are, once all of them are found to fit: before anything is charged."""
        return len(self.cells if self.layout.buys else self.codes)

    def on(self, levels: Levels) -> "Rows":
        there = Rows(self._frame, self._schema, self.layout.on(levels), self._group, levels)
        there.cells = self.cells
        return there

    def code_batches(self) -> Iterator[Codes]:
        """The level of every cell, in parts whose counts are to be added up."""
        yield self.codes

    def cell_batches(self) -> Iterator[Codes]:
        """The fine cell of every value, likewise."""
        yield self.cells

    @cached_property
    def codes(self) -> Codes:
        """The level of every cell, (people, columns)."""
        return Codec(self._schema).codes(self._frame) if self._levels is None else self._merged(self.cells)

    def _merged(self, cells: Codes) -> Codes:
        assert self._levels is not None
        names, groups = self.layout.joint.names, self._levels.groups
        return merged(cells, [groups[names.index(name)] for name in self._schema.names])

    @cached_property
    def cells(self) -> Codes:
        """The fine cell of every value, and ends where they are counted (`Trees.cells`)."""
        return self.layout.trees[self._group].cells(self._frame)

    def bits(self, start: int, stop: int) -> Bits:
        """These people's levels as 0/1."""
        return one_hot(self.codes[start:stop], self.layout.group_sizes[self._group])


class StreamedRows(Rows):
    """Rows of a long table, over rows alone: encoded a batch at a time, at each count anew, and never held.

    Edges: rows that fit the schema no more, or a person who comes twice by now → PartyError, which names neither.
    """

    def __init__(
        self, table: StreamedTable, layout: Layout, group: int, levels: Levels | None = None
    ) -> None:
        super().__init__(pd.DataFrame(), table.schema, layout, group, levels)
        self._table = table

    def __len__(self) -> int:
        return self._table.rows

    def encoded(self) -> int:
        return len(self)  # it was checked when it was opened, and is at each count

    def on(self, levels: Levels) -> "StreamedRows":
        return StreamedRows(self._table, self.layout.on(levels), self._group, levels)

    def code_batches(self) -> Iterator[Codes]:
        codec = Codec(self._schema)
        for frame in self._frames():
            yield codec.codes(frame) if self._levels is None else self._merged(self._fine(frame))

    def cell_batches(self) -> Iterator[Codes]:
        yield from map(self._fine, self._frames())

    def bits(self, start: int, stop: int) -> Bits:
        nobody = np.empty((0, len(self._schema.columns)), dtype=np.int32)  # over rows nothing is multiplied
        return one_hot(nobody, self.layout.group_sizes[self._group])

    def _fine(self, frame: pd.DataFrame) -> Codes:
        return self.layout.trees[self._group].cells(frame)

    def _frames(self) -> Iterator[pd.DataFrame]:
        try:
            yield from self._table.batches()
        except SchemaError as error:
            raise PartyError(
                "the table cannot be read again as it was when it was opened. Nothing was charged or sent."
            ) from error
