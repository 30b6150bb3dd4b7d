"""Cases for the audit of released sums: one person whom no other resembles, looked for
in all of them.

Everybody is alike but the canary, who differs in everything (`Kind.made_up`). The
adversary knows everybody else. What the canary adds to the sums follows from their
terms, which the server chose; the sums, less what all others add, along that, each by
1/variance, are the logarithm of the likelihood ratio but for a constant, and so the
best test there is (Neyman, Pearson 1933).

A joint release is searched in all its stages, by whoever sees what the server puts
together. Of two aggregators the server is the first, and the worst one, which leaves
its own noise away: it then reads the sum under the second aggregator's noise alone,
which is what the price is for.

Guarantee: parties, the server's measurement, the check of shares and ledgers are the
real ones; no real row is read.
Edges: in a horizontal partition the target alone is audited: the others' rows and noise
only hide its person more. In a vertical one the canary is with all holders, and across
them the server faces the noise of two; the number of people, which alignment discloses,
differs by one between the worlds. Of a union it is made up within ε, and the sums alone
are searched.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import NoRows, kind_of
from understudy.data.schema import Block as Groups
from understudy.evaluate.audit.auditing import (
    SERVER,
    UNREAD,
    Case,
    RecordingParties,
    rehearsal_options,
)
from understudy.evaluate.audit.bounds import (
    MAX_RUNS,
    Block,
    Key,
    Tightness,
    blocks_of_release,
    tightness,
)
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng, SecureRng
from understudy.privacy.secure.moments import bounded
from understudy.protocols.aggregators import moments, protocol
from understudy.protocols.aggregators.first import FirstAggregator
from understudy.protocols.aggregators.moments import MomentsPlan
from understudy.protocols.core import Parties, Party
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.party import AlignedJointParty, JointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import Holding, Multiplied, Study
from understudy.protocols.protocol import Protocol

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SumsAudit(ABC):
    """Parties with so many made-up people each, whose released sums are searched."""

    config: Any
    schemas: Mapping[str, Any]
    budgets: Mapping[str, Budget]
    target: str
    people: int

    def build_case(
        self,
        release: Callable[[Parties], T],
        evidence: Callable[[T], float],
        adversary: str,
        described: str,
    ) -> Case:
        """One person, with all rows, there or not; `evidence` speaks for them, of what
        was released.
        """
        released: list[T] = []

        def train(parties: Parties) -> object:
            released[:] = [release(parties)]
            return released[0]

        return Case(
            target=self.target,
            parties=self.build_parties,
            train=train,
            scores={
                f"{SERVER}, {adversary}": lambda party, replies: evidence(released[0])
            },
            notes=(described, UNREAD),
            tight=self.tight,
        )

    def tight(
        self, seed: int = 0, seconds: float = 30.0, max_runs: int = MAX_RUNS
    ) -> Tightness:
        """How near the claim is to what the canary moves, over the noise. ConfigError
        where noise is not Gaussian.
        """
        return tightness(
            lambda trial: self.measure_canary(2**20 * (seed + 1) + trial),
            seconds=seconds,
            max_runs=max_runs,
        )

    @abstractmethod
    def measure_canary(self, number: int) -> tuple[dict[Key, Block], Spend]:
        """What the canary moves in a run of this number, with its noise, and what was
        paid.
        """

    def build_parties(self, present: bool, trial: int) -> dict[str, Party]:
        return {
            name: self.party(name, present, trial * len(self.schemas) + number)
            for number, name in enumerate(self.schemas)
        }

    @abstractmethod
    def party(self, name: str, present: bool, seed: int) -> Party: ...

    def rows(self, name: str, first: int, last: int) -> Any:
        """These people; the canary is the first of all."""
        schema = self.schemas[name]
        return kind_of(schema).made_up(schema, self.people).take(np.arange(first, last))


@dataclass(frozen=True, kw_only=True)
class JointAudit(SumsAudit):
    """A study of one party of a horizontal partition, of all of a vertical one.
    `stages`: those that are searched; none for all.
    """

    study: type[Study[Any]]
    stages: tuple[str, ...] = ()

    def case(self) -> Case:
        """Searched by whoever sees what the server puts together."""
        if not self.config.private:
            raise ConfigError(
                "private = false claims no guarantee, so there is nothing to refute."
            )
        study = self.new_study()
        if study.grid.partition == "grid":
            raise ConfigError(
                "an audit is of rows or of columns; a grid needs ids, and these are "
                "made up."
            )
        canary = self._rows_seen(0, 1)
        return self.build_case(
            lambda parties: measure(study, parties),
            lambda measurements: log_likelihood_ratio(
                measurements, canary, self.everybody_else, self.people, self.stages
            ),
            "by what the canary would add",
            f"{study.family}, {study.grid.partition} partition, {self.people} people",
        )

    def measure_canary(self, number: int) -> tuple[dict[Key, Block], Spend]:
        study = self.new_study()
        repeated = self.new_study()
        without_canary = measure(
            study, RecordingParties(self.build_parties(False, number))
        )
        repeated.terms = (  # type: ignore[method-assign]
            lambda name, measurements: without_canary.record.terms[name]
        )
        parties = self.build_parties(True, number)
        others_sums = exact_sums(without_canary, self.everybody_else, self.people - 1)
        return blocks_of_release(
            without_canary, measure(repeated, RecordingParties(parties)), others_sums
        ), parties[self.target].ledger.spend()

    def new_study(self) -> Study[Any]:
        return self.study(self.config, self.schemas)

    @cached_property
    def everybody_else(self) -> dict[str, Any]:
        """Everybody but the canary, as each holder's stages see them."""
        return self._rows_seen(1, self.people)

    def _rows_seen(self, first: int, last: int) -> dict[str, Any]:
        study = self.new_study()
        return {
            name: study.rows(self._holding(name, first, last)) for name in self.schemas
        }

    def rows(self, name: str, first: int, last: int) -> Any:
        rows = super().rows(name, first, last)
        schema = self.schemas[name]
        if not self.new_study().union or schema.person is None:
            return rows
        frame = rows.frame.copy()
        frame.insert(0, schema.person, np.arange(first, last))
        return replace(rows, frame=frame, schema=schema)

    def _holding(self, name: str, first: int, last: int) -> Holding:
        rows = self.rows(name, first, last)
        if self.new_study().union:
            everybody = np.arange(last - first)
            return Holding(name, rows, rows, SecureRng, in_union=everybody)
        roster = (
            kind_of(rows.schema).roster(rows, several=True)
            if len(self.schemas) > 1
            else None
        )
        return Holding(name, rows, roster, SecureRng)

    def party(self, name: str, present: bool, seed: int) -> Party:
        kind = AlignedJointParty if len(self.schemas) > 1 else JointParty
        rows = self.rows(name, 0 if present else 1, self.people)
        return kind(
            self.study, name, rows, **rehearsal_options(name, self.budgets[name], seed)
        )


def log_likelihood_ratio(
    measurements: Measurements,
    canary: Mapping[str, Any],
    others: Mapping[str, Any],
    people: int,
    stages: Collection[str] = (),
) -> float:
    """How much likelier what was found (in these stages) is with the canary's rows than
    without, as a logarithm.
    """
    total = 0.0
    canary_parts = exact_sums(measurements, canary, 1)
    others_parts = exact_sums(measurements, others, people - 1)
    for name in stages or measurements:
        noise = measurements.deviations(name)
        canary_sums = canary_parts[name]
        others_sums = others_parts[name]
        for key, block in measurements.stage(name).blocks.items():
            canary_sum = canary_sums[key].double()
            others_sum = others_sums[key].double()
            halved = (
                torch.zeros(block.shape)
                if block.diagonal is None
                else 0.5 * block.diagonal
            )
            residual = (
                measurements.record.sums[name][key].double()
                - others_sum
                - canary_sum / 2
            )
            total += (
                float((residual * canary_sum * (1 - halved)).sum()) / noise[key] ** 2
            )
    return total


def exact_sums(
    measurements: Measurements, rows: Mapping[str, Any], people: int
) -> dict[str, dict[str, Tensor]]:
    """What these people add to every stage, without noise."""
    grid = measurements.study.grid
    sums = dict[str, dict[str, Tensor]]()
    products: dict[str, dict[Groups, Tensor]] = {}
    for name in measurements:
        stage = measurements.stage(name)
        parts = dict[str, Tensor]()
        for holder_rows in rows.values():
            parts |= stage.count(holder_rows)
        if isinstance(stage, Multiplied) and (product := stage.product) is not None:
            vectors = {
                grid.group_of(holder): stage.vectors(holder_rows, 0, people).astype(
                    np.int64
                )
                for holder, holder_rows in rows.items()
                if grid.group_of(holder) in product.widths
            }
            products[name] = {
                (g, h): torch.from_numpy(vectors[g].T @ vectors[h])
                for g, h in product.pairs
            }
        sums[name] = parts | stage.across(products)
    return sums


class _NoiselessTables(protocol.TableTerms):
    """As the server has it who adds no noise. `unit`: of each cell's noise, beside
    others of its block.
    """

    unit = 1.0

    def noise(self, rng: Rng) -> Tensor:
        return torch.zeros(self.cells.count, dtype=torch.int64)

    def counted(self, rows: Any) -> Tensor:
        """What these rows add to the sum: (cells,)."""
        flat = np.zeros(self.cells.count)
        for codes in Codec(self.schema).codes(rows.frame):
            for one, other, table in self.cells.tables(flat):
                table[codes[one], 0 if one == other else codes[other]] += 1
        return torch.from_numpy(flat)


class _NoiselessMoments(MomentsPlan):
    @property
    def unit(self) -> Tensor:
        return torch.cat(
            [torch.ones(self._head), 1 + (math.sqrt(2) - 1) * self._diagonal.double()]
        )

    def noise(self, rng: Rng) -> Tensor:
        return torch.zeros(self.cells.count, dtype=torch.int64)

    def counted(self, rows: Any) -> Tensor:
        q = bounded(
            self.frame.coefficients(rows.values),
            float(self.frame.reach),
            self.cells.radius,
        )
        classes = np.zeros(len(q), np.int64) if rows.classes is None else rows.classes
        return (
            torch.from_numpy(self.cells.counted(classes, q.astype(np.int64)).sum(0))
            * self.weights
        )


class AggregatorsAudit(SumsAudit):
    """A run of `two-aggregators` or `shared-moments` in which each host has so many
    made-up people.
    """

    def case(self) -> Case:
        if self.people < 2:
            raise ConfigError(
                "an audit of two aggregators needs two people.",
                effect=Effect.NOTHING_COMPUTED,
            )
        if self._of_tables and any(
            canary_sum.person for canary_sum in self.schemas.values()
        ):
            made_up = {
                name: canary_sum.as_drawn() for name, canary_sum in self.schemas.items()
            }
            return replace(self, schemas=made_up).case()
        canary_sum = self._added(0, 1)
        others_sum = self.everybody_else
        weights = canary_sum / torch.from_numpy(self._server.scales) ** 2
        return self.build_case(
            self._released,
            lambda sums: float(((sums - others_sum - canary_sum / 2) * weights).sum()),
            "its own noise left away",
            f"two aggregators, {self.people} people at each host",
        )

    def measure_canary(self, number: int) -> tuple[dict[Key, Block], Spend]:
        """By the second aggregator's noise alone."""
        unit = self._server.unit
        parties = self.build_parties(True, number)
        scales = (torch.from_numpy(self._server.scales) / unit).numpy().round(9)
        without_canary = self._released(
            RecordingParties(self.build_parties(False, number))
        )
        signals = (
            self._released(RecordingParties(parties)) - without_canary,
            without_canary - self.everybody_else,
        )
        moved, noise = ((side / unit).numpy() for side in signals)
        blocks = {
            scale: Block(moved[same_scale], noise[same_scale], scale**2)
            for scale in np.unique(scales).tolist()
            for same_scale in [scales == scale]
        }
        return blocks, parties[self.target].ledger.spend()

    @cached_property
    def everybody_else(self) -> Tensor:
        """What everybody but the canary adds to the sum: every host has the same people
        beside it.
        """
        return self._added(1, self.people) * (len(self.schemas) - 1)

    def _added(self, first: int, last: int) -> Tensor:
        added: Tensor = self._server.counted(
            self.rows(self._host, first, last)
        ).double()
        return added

    @cached_property
    def _server(self) -> Any:
        """The terms, as the server has them who adds no noise."""
        config = replace(self.config, key="", min_people=1, min_holders=None)
        return (_NoiselessTables if self._of_tables else _NoiselessMoments).joint(
            config, self.schemas
        )

    @property
    def _of_tables(self) -> bool:
        return isinstance(self.config, protocol.Config)

    def _released(self, parties: Parties) -> Tensor:
        sums = FirstAggregator.open(self._server, parties, self.schemas).released()[
            "sums"
        ]
        return cast(Tensor, sums).double()

    @property
    def _host(self) -> str:
        hosts = [name for name in self.schemas if name != self.config.aggregator]
        return self.target if self.target in hosts else hosts[0]

    def party(self, name: str, present: bool, seed: int) -> Party:
        run_protocol: Protocol = (protocol if self._of_tables else moments).PROTOCOL
        first = 0 if present and name == self._host else 1
        aggregates = name == self.config.aggregator
        rows = (
            NoRows(self.schemas[name])
            if aggregates
            else self.rows(name, first, self.people)
        )
        return run_protocol.build(
            name, rows, **rehearsal_options(name, self.budgets[name], seed)
        )
