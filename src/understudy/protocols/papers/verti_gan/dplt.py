"""DPLT and DPLT+: holders of columns grow one latent tree over their joint data, step
by step, under pure ε.

Tang, Cheng, Su, Chen, Shao, "Differentially private publication of vertically
partitioned data" (IEEE TDSC 2019), the baseline of Zhang, master's thesis, TUM 2022,
§3.3, and of Jiang et al., VertiGAN (PoPETs 2023(2)), §6.1.2. We follow these two
accounts, which name the steps and leave them open; each reading below is the simplest
sound one.

    coding    a column of L levels is ⌈log₂ L⌉ binary attributes, the digits of its
              level's number (§3.3.1)
    step 1    each party groups its attributes, by the exponential mechanism on their
              association; a group's latent attribute is the attribute at its centre,
              and its others are leaves that hang on it
    step 2    noisy two-way tables of latent attributes, within parties and across, give
              their mutual information
    step 3    the server takes a maximum spanning tree of the latent attributes
    step 4    fresh noisy two-way tables along the tree, and of each leaf with its
              latent attribute, are its parameters
    drawing   attributes from the root outwards; a number beyond a column's levels loses
              its highest digit (§3.3.3)

DPLT+ (TICQ) prunes the pairs of step 2. A maximum spanning tree of all holds no edge
within a party that a maximum spanning tree of that party alone does not hold (the
lightest edge of a cycle is never needed). So each party chooses such a tree first, its
index, again by association and the exponential mechanism; then only the edges of the
indices, and the pairs across parties, are measured.

Paper → code: latent attribute → the first of a group; ε's three portions →
`Config.split`, even by default.
Differs from the papers: noise is discrete Laplace, drawn exactly; tables across parties
come from secure products (docs/secure_products.md) instead of a protocol with a
semi-trusted curator who adds the noise; what is public is the schema, so no bin or
level is read from rows.

Sensitivity (add or remove one person with all their columns). Step 1:
`tree.association` is proven to move by at most 1, a sum of g of them by at most g; a
choice at ε₁/choices each. Step 2: a person is in one cell of each table, so all P
tables move by P in L1: discrete Laplace of scale P/ε₂ (and P is smaller in DPLT+). Step
4: likewise with the b − 1 tables of a tree of b attributes. The three add up to ε
(`PurePricing`).

Every holder adds noise of the full scale to each table that one of its attributes is
in.
Guarantee: ε-DP, δ = 0, for a person with all their columns at all parties, in one joint
release, against an outsider, the server, any party, and several parties together. Each
party's ledger is charged that whole price, for the same release: a person pays it once.
Edges: the server deals the masks of products, so it must not pool what it knows with a
holder.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, chain, combinations
from typing import Any, ClassVar

import numpy as np
import torch
from dp_accounting import NonPrivateDpEvent
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Grid, Schema, join
from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError, Effect, MessageError, PrivacyError
from understudy.ground.settings import TRUTH, WHOLE, Takes, setting
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import DiscreteLaplaceNoise, Exponential, Rng, rounded_up
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core import settings as usual
from understudy.protocols.joint import run
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.pricing import BlockSpec, Pricing
from understudy.protocols.joint.stage import Holding, Stage, Study, Terms, expect
from understudy.protocols.papers.verti_gan import dplt_tree as tree
from understudy.protocols.papers.verti_gan.dplt_tree import (
    Array,
    AttributeBits,
    Edge,
    Grouping,
    LatentPairTables,
)

_EPSILONS = (1e-9, 1e9)
_NOISE_DEVIATIONS = 64  # noise beyond so many scales would wrap around: once in e^64


def _check_weights(split: Any) -> None:
    if not isinstance(split, tuple | list) or len(split) != 3:
        raise ConfigError(f"split must be three weights, not {split!r}.")
    in_range(1e-6, 1e6, **{f"split[{i}]": weight for i, weight in enumerate(split)})


WEIGHTS = Takes("three weights", _check_weights, tuple)


@dataclass(frozen=True, kw_only=True)
class Config(usual.OverColumns):
    plus: bool = setting(False, TRUTH, "DPLT+ in place of DPLT")
    group: int = setting(3, WHOLE, "binary attributes to a latent one")
    split: tuple[float, float, float] = setting(
        (1.0, 1.0, 1.0), WEIGHTS, "ε's weights: attributes, correlations, tree"
    )
    seed: int = usual.seed()


@dataclass(frozen=True)
class PurePricing(Pricing):
    """A release's noise is 1/ε of one choice, or the scale of discrete Laplace on each
    table; ε of all add up. `moved`: what a person, with all columns at all holders, has
    a part in: choices, pairs of latent attributes, tables of the tree.
    """

    moved: tuple[int, ...] = ()
    split: tuple[float, ...] = ()

    def needed(self, budget: Budget, people: int | None) -> list[float]:
        if budget.epsilon == math.inf:
            raise PrivacyError(
                "an ε is needed; `private=False` rehearses without.",
                effect=Effect.NOTHING_CHARGED,
            )
        in_range(*_EPSILONS, epsilon=budget.epsilon)
        weights = [
            weight if moved else 0
            for weight, moved in zip(self.split, self.moved, strict=True)
        ]
        # rounding must not lift the sum above ε
        step = budget.epsilon * (1 - 1e-12) / sum(weights)
        weighted = zip(self.moved, weights, strict=True)
        return [
            float(rounded_up(moved / (step * weight))) if moved else 1.0
            for moved, weight in weighted
        ]

    def spend(self, release: int, noise: float) -> Counter[DpEvent]:
        if not noise:
            return Counter([NonPrivateDpEvent()])
        moved = self.moved[release]
        price = (
            math.nextafter(float(moved / rounded_up(noise)), math.inf) if moved else 0.0
        )
        return Counter([PureDp(price)])

    def sigmas(
        self, release: int, blocks: Mapping[str, BlockSpec], noise: float
    ) -> dict[str, float]:
        """Edges: more tables than are paid for → PrivacyError."""
        if sum(block.sensitivity for block in blocks.values()) > self.moved[release]:
            raise PrivacyError(
                "more would be released than was agreed on.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        return dict.fromkeys(blocks, noise)

    def check_parties(self, parties: int) -> None:
        if parties < 2:
            raise ConfigError(
                "dplt needs two parties or more, of the same people.",
                effect=Effect.NOTHING_CHARGED,
            )

    def deviation(self, sigma: float, holders: int) -> float:
        return (
            math.sqrt(holders * DiscreteLaplaceNoise(rounded_up(sigma)).variance)
            if sigma
            else 0.0
        )

    def noise(self, block: BlockSpec, sigma: float, holders: int, rng: Rng) -> Tensor:
        if not sigma:
            return torch.zeros(block.shape, dtype=torch.int64)
        return (
            DiscreteLaplaceNoise(rounded_up(sigma))
            .draw(math.prod(block.shape), rng)
            .view(block.shape)
        )


class LatentTree(Study[AttributeBits]):
    """Holders of other columns of the same people, each a group; of each `sizes` of
    columns, `bits`, `latents`.
    """

    family: ClassVar = "dplt"
    settings: ClassVar = Config
    settled: ClassVar = ("plus", "group", "split", "private")
    least: int = 3
    lasting: ClassVar = ("pairs",)
    releases: ClassVar[Mapping[str, str]] = {
        "groups": "step 1 of 3, latent attributes",
        "pairs": "step 2 of 3, correlations",
        "tree": "step 3 of 3, tree parameters",
    }

    def __init__(self, config: Config, schemas: Mapping[str, Schema]) -> None:
        super().__init__(config, schemas)
        self.names = tuple(schemas)
        self.sizes = {name: Codec(schema).sizes for name, schema in schemas.items()}
        self.bits = {
            name: sum(map(tree.digits, sizes)) for name, sizes in self.sizes.items()
        }
        without_bits = [name for name, bits in self.bits.items() if not bits]
        if without_bits:
            raise ConfigError(
                f"{without_bits[0]} has no column of two levels or more: there is "
                "nothing to publish.",
                effect=Effect.NOTHING_CHARGED,
            )
        self.latents = {
            name: -(-bits // config.group) for name, bits in self.bits.items()
        }

    @cached_property
    def grid(self) -> Grid:
        return Grid(tuple((name,) for name in self.names))

    @cached_property
    def pricing(self) -> PurePricing:
        plus = self.config.plus
        latents = self.latents.values()
        chosen = sum(
            tree.choices(bits, self.config.group, index=plus)
            for bits in self.bits.values()
        )
        pairs = math.comb(sum(latents), 2)
        if plus:  # of all within a holder, its index alone
            pairs -= sum(math.comb(n, 2) - (n - 1) for n in latents)
        return PurePricing(
            moved=(chosen, pairs, sum(self.bits.values()) - 1), split=self.config.split
        )

    def check_noise(self, noise: Sequence[float], parties: int) -> None:
        """What cannot be drawn by is refused before anything is paid for."""
        choice_noise, *table_scales = noise
        if choice_noise:
            Exponential(rounded_up(choice_noise), max(1, self.config.group - 1))
        for scale in filter(None, table_scales):
            DiscreteLaplaceNoise(rounded_up(scale))

    def ring(self, people: int | None, noise: Sequence[float]) -> Ring:
        return (
            Ring(64)
            if people is None
            else Ring.holding(people + 2 * _NOISE_DEVIATIONS * max(noise))
        )

    def rows(self, holding: Holding) -> AttributeBits:
        codec = Codec(holding.rows.schema)
        aligned = holding.aligned
        assert aligned is not None  # each holder is a group
        bits = cache(
            lambda: aligned.encoded(
                lambda rows: tree.to_bits(codec.codes(rows), codec.sizes)
            )
        )
        return AttributeBits(self.grid.group_of(holding.name), bits)

    def stage(
        self,
        name: str,
        terms: Terms,
        noise: float,
        before: Mapping[str, Stage[AttributeBits]],
    ) -> Stage[AttributeBits]:
        if name == "groups":
            expect(terms)
            return Grouping(self.config.group, self.config.plus)
        if name == "pairs":
            expect(terms, *self.names)
            for holder in self.names:
                self._check_chosen(holder, terms[holder])
            groups = {holder: terms[holder]["groups"] for holder in self.names}
            return LatentPairTables(groups, self._pairs(terms), along_tree=False)
        expect(terms, "edges")
        edge_rows = terms["edges"]
        nodes = sum(self.latents.values())
        is_edge_list = (
            isinstance(edge_rows, Tensor)
            and edge_rows.dtype == torch.int64
            and edge_rows.ndim == 2
            and edge_rows.shape[1] == 2
        )
        edges = (
            [(parent, child) for parent, child in edge_rows.tolist()]
            if is_edge_list
            else []
        )
        if not is_edge_list or not tree.is_tree(edges, nodes):
            raise MessageError(
                "these edges are no tree.", effect=Effect.NOTHING_CHARGED_OR_SENT
            )
        pairs = before["pairs"]
        assert isinstance(pairs, LatentPairTables)
        return LatentPairTables(
            pairs.groups, tree.split_edges(edges, self.latents), along_tree=True
        )

    def _check_chosen(self, holder: str, chosen: Any) -> None:
        """MessageError unless all of a holder's attributes are in groups as large as
        due, with an index where due.
        """
        has_keys = isinstance(chosen, Mapping) and chosen.keys() == {"groups", "index"}
        if not has_keys or not all(_lists_of_numbers(chosen[key]) for key in chosen):
            raise MessageError(
                f"groups and index of {holder} were due as lists of numbers.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        groups = chosen["groups"]
        index = chosen["index"]
        size = self.config.group
        bits = self.bits[holder]
        sizes = [min(size, bits - start) for start in range(0, bits, size)]
        if [*map(len, groups)] != sizes or sorted(chain(*groups)) != [*range(bits)]:
            raise MessageError(
                f"these are no groups of {holder}'s attributes.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        n_index = len(sizes) - 1 if self.config.plus else 0
        if len(index) != n_index or any(
            len(e) != 2 or not 0 <= e[0] < e[1] < len(sizes) for e in index
        ):
            raise MessageError(
                f"this is no index of {holder}'s.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def _pairs(self, chosen: Mapping[str, Any]) -> dict[tuple[str, str], list[Edge]]:
        """The pairs of latent attributes that step 2 measures, by holders; within one
        in DPLT+ its index.
        """
        pairs: dict[tuple[str, str], list[Edge]] = {}
        for name, n_latent in self.latents.items():
            index = [(a, b) for a, b in chosen[name]["index"]]
            pairs[name, name] = (
                index if self.config.plus else [*combinations(range(n_latent), 2)]
            )
        for first, second in combinations(self.names, 2):
            pairs[first, second] = [
                (a, b)
                for a in range(self.latents[first])
                for b in range(self.latents[second])
            ]
        return pairs

    # What the server makes of releases

    def terms(self, name: str, measurements: Measurements) -> Terms:
        if name == "groups":
            return {}
        if name == "pairs":
            return dict(measurements["groups"])
        # Step 3: a maximum spanning tree of the latent attributes.
        weights = np.full((sum(self.latents.values()),) * 2, -np.inf)
        for (first, second), table in measurements["pairs"].items():
            weights[first, second] = weights[second, first] = tree.information(table)
        return {"edges": torch.tensor(tree.spanning_tree(weights)).view(-1, 2)}

    def tables(self, measurements: Measurements) -> dict[Edge, Array]:
        """The tables of the whole tree, by (parent, child), numbered over all holders'
        attributes; the root's first.
        """
        released = measurements["tree"]
        groups = measurements.stage("pairs").groups  # type: ignore[attr-defined]
        starts = dict(
            zip(self.bits, accumulate(self.bits.values(), initial=0), strict=False)
        )
        latent = [
            starts[name] + members[0] for name in self.names for members in groups[name]
        ]
        tables: dict[Edge, Array] = {}
        for parent, child in measurements.record.terms["tree"]["edges"].tolist():
            forward = parent < child
            tables[latent[parent], latent[child]] = (
                released[parent, child] if forward else released[child, parent].T
            )
        for name in self.names:
            for parent, leaf in tree.leaf_edges(groups[name]):
                tables[starts[name] + parent, starts[name] + leaf] = released[
                    name, (parent, leaf)
                ]
        return tables

    def fit(
        self, measurements: Measurements, privacy: Any, look: Any, **more: Any
    ) -> Any:
        from understudy.generators.parts import GeneratorParts

        tables = self.tables(measurements)
        sizes = [size for sizes in self.sizes.values() for size in sizes]
        network = tree.build_network(sizes, tables, next(iter(tables))[0])
        owners = {
            column: name
            for name, schema in self.schemas.items()
            for column in schema.names
        }
        return GeneratorParts(
            network.eval(), join(self.schemas), {"owners": owners}
        ), measurements.record.people or 0


def _lists_of_numbers(value: Any) -> bool:
    rows = value if isinstance(value, list) else [None]
    return all(
        isinstance(row, list) and all(type(number) is int for number in row)
        for row in rows
    )


PROTOCOL = run.family(
    LatentTree, paper=__doc__, same_people=True, one_release=True, forecast=None
)
train = PROTOCOL.train
