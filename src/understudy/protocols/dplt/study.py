"""DPLT as a study of three releases: each holder's groups, which it chooses alone; tables of latent attributes, within
holders and across; and fresh tables along the tree that the server made of these.

Every holder adds noise of the full scale to each table that one of its attributes is in, so that ε holds against the
server and against the other holders, even if these pool what they know.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import accumulate, chain
from typing import Any, ClassVar

import numpy as np
import torch
from dp_accounting import NonPrivateDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.grid import Block as Groups
from understudy.data.grid import Grid
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, MessageError, PrivacyError
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import DiscreteLaplaceNoise, Exponential, Rng, best, rounded_up
from understudy.privacy.secure.ring import Bits, Ring
from understudy.protocols.dplt.plan import Config, Plan
from understudy.protocols.dplt.tree import (
    Array,
    Edge,
    association,
    both,
    group,
    index_tree,
    information,
    is_tree,
    leaves_of,
    spanning_tree,
    split_edges,
    to_bits,
)
from understudy.protocols.joint.found import Found
from understudy.protocols.joint.pricing import BlockSpec, Pricing
from understudy.protocols.joint.stage import (
    Choice,
    Holding,
    Product,
    Shares,
    Stage,
    Study,
    Terms,
    block_name,
    expect,
)

_FAR = 64  # noise beyond so many scales would wrap around: once in e^64
Chosen = dict[str, list[list[int]]]  # a holder's `groups` of attributes, and the edges of its `index`


@dataclass(frozen=True)
class Rows:
    """A holder's group, and the binary attributes of the shared people, in the common order: (people, bits)."""

    group: int
    bits: Callable[[], Bits]


@dataclass(frozen=True)
class PurePricing(Pricing):
    """A release's noise is 1/ε of one choice, or the scale of discrete Laplace on each table; ε of all add up."""

    plan: Plan | None = None

    @property
    def _plan(self) -> Plan:
        assert self.plan is not None
        return self.plan

    def needed(self, budget: Budget, people: int | None) -> list[float]:
        if budget.epsilon == math.inf:
            raise PrivacyError("an ε is needed; `private=False` rehearses without. Nothing was charged.")
        scales = Plan(self._plan.config, self._plan.schemas, budget.epsilon).scales or ()
        return [*map(float, scales)]

    def spend(self, release: int, noise: float) -> Counter[DpEvent]:
        if not noise:
            return Counter([NonPrivateDpEvent()])
        moved = self._plan.moved[release]
        price = math.nextafter(float(moved / rounded_up(noise)), math.inf) if moved else 0.0
        return Counter([PureDp(price)])

    def sigmas(self, release: int, blocks: Mapping[str, BlockSpec], noise: float) -> dict[str, float]:
        """Edges: more tables than are paid for → PrivacyError."""
        if sum(block.sensitivity for block in blocks.values()) > self._plan.moved[release]:
            raise PrivacyError("more would be released than was agreed on. Nothing was charged or sent.")
        return dict.fromkeys(blocks, noise)

    def check_parties(self, parties: int) -> None:
        if parties < 2:
            raise ConfigError("dplt needs two parties or more, of the same people. Nothing was charged.")

    def deviation(self, sigma: float, holders: int) -> float:
        return math.sqrt(holders * DiscreteLaplaceNoise(rounded_up(sigma)).variance) if sigma else 0.0

    def noise(self, block: BlockSpec, sigma: float, holders: int, rng: Rng) -> Tensor:
        if not sigma:
            return torch.zeros(block.shape, dtype=torch.int64)
        return DiscreteLaplaceNoise(rounded_up(sigma)).draw(math.prod(block.shape), rng).view(block.shape)


@dataclass(frozen=True)
class Grouping(Choice[Rows]):
    """Step 1: each holder groups its attributes, and in DPLT+ chooses its index, by the exponential mechanism."""

    config: Config

    def choose(self, rows: Rows, noise: float, rng: Rng) -> Chosen:
        """`association` moves by 1 at most; a choice is at ε of 1/noise."""
        scores, choose = association(rows.bits()), partial(_choose, noise, rng)
        groups = group(scores, self.config.group, choose)
        first = [members[0] for members in groups]
        index = index_tree(scores[first][:, first], choose) if self.config.plus else []
        return {"groups": groups, "index": [list(edge) for edge in index]}


def _choose(noise: float, rng: Rng, scores: Tensor, sensitivity: int) -> int:
    return Exponential(rounded_up(noise), sensitivity)(scores, rng) if noise else best(scores)


@dataclass(frozen=True, eq=False)
class Tables(Stage[Rows]):
    """Two-way tables of pairs of latent attributes, by the two holders that they are of, and of leaves with theirs.

    Guarantee: a person is in one cell of each table, so that a block of n tables moves by n in L1.
    """

    names: tuple[str, ...]
    latent: Mapping[str, list[int]]  # of each holder, the attribute at the centre of each group
    pairs: Mapping[tuple[str, str], list[Edge]]  # of latent attributes
    leaves: Mapping[str, list[Edge]]  # of own attributes
    multiplied: bool  # whether holders multiply for it; else they did before

    def _groups(self, one: str, other: str) -> Groups:
        return self.names.index(one), self.names.index(other)

    def _own(self, name: str) -> list[Edge]:
        """All tables of a holder alone."""
        latent = self.latent[name]
        return [(latent[a], latent[b]) for a, b in self.pairs[name, name]] + self.leaves.get(name, [])

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        counts = {
            self._groups(one, other): len(self._own(one) if one == other else some)
            for (one, other), some in self.pairs.items()
        }
        return {block_name(at): BlockSpec(at, (n, 2, 2), float(n)) for at, n in counts.items() if n}

    @property
    def product(self) -> Product | None:
        return (
            Product.of_all([2 * len(self.latent[name]) for name in self.names]) if self.multiplied else None
        )

    def count(self, rows: Rows) -> dict[str, Tensor]:
        if not (own := self._own(self.names[rows.group])):
            return {}
        return {block_name((rows.group, rows.group)): pair_tables(rows.bits(), own)}

    def vectors(self, rows: Rows, start: int, stop: int) -> NDArray[Any]:
        return both(rows.bits()[start:stop, self.latent[self.names[rows.group]]])

    def across(self, shares: Shares) -> dict[str, Tensor]:
        found = {}
        for (g, h), share in shares.get("pairs", {}).items():
            if some := self.pairs[self.names[g], self.names[h]]:
                one, other = map(torch.from_numpy, _columns(some))
                cells = share.reshape(share.shape[0] // 2, 2, share.shape[1] // 2, 2)
                found[block_name((g, h))] = cells[one, :, other]
        return found

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> dict[Any, Array]:
        """By the two latent attributes, numbered over all holders, the first has the rows; leaves by (holder, edge)."""
        widths = {name: len(self.latent[name]) for name in self.names}
        starts = dict(zip(widths, accumulate(widths.values(), initial=0), strict=False))
        tables: dict[Any, Array] = {}
        for (one, other), some in self.pairs.items():
            released = sums.get(block_name(self._groups(one, other)))
            keys = [(starts[one] + a, starts[other] + b) for a, b in some]
            if one == other:
                keys += [(one, leaf) for leaf in self.leaves.get(one, [])]  # type: ignore[misc]
            if released is not None:
                tables |= dict(zip(keys, released.double().numpy(), strict=True))
        return tables


class LatentTree(Study[Rows]):
    """Holders of other columns of the same people, each a group of its own."""

    family: ClassVar = "dplt"
    settings: ClassVar = Config
    settled: ClassVar = ("plus", "group", "split", "private")
    least: ClassVar = 3
    lasting: ClassVar = ("pairs",)
    releases: ClassVar[Mapping[str, str]] = {
        "groups": "step 1 of 3, latent attributes",
        "pairs": "step 2 of 3, correlations",
        "tree": "step 3 of 3, tree parameters",
    }

    def __init__(self, config: Config, schemas: Mapping[str, Schema]) -> None:
        super().__init__(config, schemas)
        self.plan, self.names = Plan(config, schemas, math.inf), tuple(schemas)

    @cached_property
    def grid(self) -> Grid:
        return Grid(tuple((name,) for name in self.names))

    @cached_property
    def pricing(self) -> PurePricing:
        return PurePricing(plan=self.plan)

    def check_noise(self, noise: Sequence[float], parties: int) -> None:
        """What cannot be drawn by is refused before anything is paid for."""
        one, *others = noise
        if one:
            Exponential(rounded_up(one), max(1, self.config.group - 1))
        for scale in filter(None, others):
            DiscreteLaplaceNoise(rounded_up(scale))

    def ring(self, people: int | None, noise: Sequence[float]) -> Ring:
        return Ring(64) if people is None else Ring.holding(people + 2 * _FAR * max(noise))

    def rows(self, holding: Holding) -> Rows:
        codec, aligned = Codec(holding.rows.schema), holding.aligned
        assert aligned is not None  # each holder is a group
        bits = cache(lambda: to_bits(codec.codes(aligned), codec.sizes))
        return Rows(self.grid.group_of(holding.name), bits)

    def stage(self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[Rows]]) -> Stage[Rows]:
        plan = self.plan
        if name == "groups":
            expect(terms)
            return Grouping(self.config)
        if name == "pairs":
            expect(terms, *self.names)
            chosen = {holder: self._checked(holder, terms[holder]) for holder in self.names}
            latent = {holder: [members[0] for members in one["groups"]] for holder, one in chosen.items()}
            indices = {holder: [(a, b) for a, b in one["index"]] for holder, one in chosen.items()}
            return Tables(self.names, latent, plan.pairs(indices), {}, multiplied=True)
        expect(terms, "edges", "groups")
        pairs = before["pairs"]
        assert isinstance(pairs, Tables)
        groups = {
            holder: self._checked(holder, {"groups": own, "index": []}, index=False)["groups"]
            for holder, own in _named(terms["groups"], self.names).items()
        }
        if {holder: [members[0] for members in own] for holder, own in groups.items()} != pairs.latent:
            raise MessageError("other groups were told before. Nothing was charged or sent.")
        leaves = {holder: leaves_of(own) for holder, own in groups.items()}
        return Tables(
            self.names, pairs.latent, split_edges(self._tree(terms["edges"]), plan.latents), leaves, False
        )

    def _checked(self, holder: str, told: Any, *, index: bool = True) -> Chosen:
        """Groups of all of a holder's attributes, as large as they are due, and an index of so many edges."""
        groups, edges = _named(told, ("groups", "index")).values()
        sizes, bits = self.config.group, self.plan.bits[holder]
        if not _lists_of_numbers(groups) or not _lists_of_numbers(edges):
            raise MessageError(
                f"groups of {holder} were due as lists of numbers. Nothing was charged or sent."
            )
        due = [min(sizes, bits - start) for start in range(0, bits, sizes)]
        if [*map(len, groups)] != due or sorted(chain(*groups)) != [*range(bits)]:
            raise MessageError(f"these are no groups of {holder}'s attributes. Nothing was charged or sent.")
        many = len(due) - 1 if self.config.plus and index else 0
        if len(edges) != many or any(len(e) != 2 or not 0 <= e[0] < e[1] < len(due) for e in edges):
            raise MessageError(f"this is no index of {holder}'s. Nothing was charged or sent.")
        return {"groups": groups, "index": edges}

    def _tree(self, told: Any) -> list[Edge]:
        good = (
            isinstance(told, Tensor) and told.dtype == torch.int64 and told.ndim == 2 and told.shape[1] == 2
        )
        edges = [(known, new) for known, new in told.tolist()] if good else []
        if not good or not is_tree(edges, sum(self.plan.latents.values())):
            raise MessageError("these edges are no tree. Nothing was charged or sent.")
        return edges

    # What the server makes of releases

    def terms(self, name: str, found: Found) -> Terms:
        if name == "groups":
            return {}
        if name == "pairs":
            return dict(found["groups"])
        groups = {holder: one["groups"] for holder, one in found["groups"].items()}
        return {"edges": torch.tensor(self.tree(found)).view(-1, 2), "groups": groups}

    def tree(self, found: Found) -> list[Edge]:
        """Step 3: a maximum spanning tree of the latent attributes."""
        weights = np.full((sum(self.plan.latents.values()),) * 2, -np.inf)
        for (one, other), table in found["pairs"].items():
            weights[one, other] = weights[other, one] = information(table)
        return spanning_tree(weights)

    def tables(self, found: Found) -> dict[Edge, Array]:
        """The tables of the whole tree, by (parent, child), numbered over all holders' attributes; the root's first."""
        bits, released = self.plan.bits, found["tree"]
        starts = dict(zip(bits, accumulate(bits.values(), initial=0), strict=False))
        groups = found.record.terms["tree"]["groups"]
        latent = [starts[name] + members[0] for name in self.names for members in groups[name]]
        tree = [(known, new) for known, new in found.record.terms["tree"]["edges"].tolist()]
        tables = {
            (latent[known], latent[new]): released[known, new] if known < new else released[new, known].T
            for known, new in tree
        }
        for name in self.names:
            for parent, leaf in leaves_of(groups[name]):
                tables[starts[name] + parent, starts[name] + leaf] = released[name, (parent, leaf)]
        return tables


def pair_tables(bits: Bits, pairs: Sequence[Edge]) -> Tensor:
    """The two-way tables of these pairs of binary attributes: (pairs, 2, 2)."""
    seen = both(bits).astype(np.float64)  # counts stay below 2⁵³
    counts = (seen.T @ seen).astype(np.int64).reshape(bits.shape[1], 2, -1, 2)
    one, other = _columns(pairs)
    return torch.from_numpy(counts[one, :, other])


def _named(told: Any, names: Sequence[str]) -> dict[str, Any]:
    """What was told under these names, in their order, and under no other."""
    if not isinstance(told, Mapping) or told.keys() != set(names):
        raise MessageError(f"{', '.join(names)} were due. Nothing was charged or sent.")
    return {name: told[name] for name in names}


def _lists_of_numbers(told: Any) -> bool:
    rows = told if isinstance(told, list) else [None]
    return all(isinstance(row, list) and all(type(one) is int for one in row) for row in rows)


def _columns(pairs: Sequence[Edge]) -> NDArray[np.int64]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
