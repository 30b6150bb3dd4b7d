"""What a run of DPLT measures and what that costs: everything that follows from public settings and schemas."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any

from dp_accounting import NonPrivateDpEvent

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError
from understudy.ground.settings import TRUTH, WHOLE, Declared, Takes, setting
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.noise import DiscreteLaplaceNoise, Exponential, rounded_up
from understudy.protocols.core import settings as usual
from understudy.protocols.dplt.tree import Edge, choices, digits, latents

_EPSILONS = (1e-9, 1e9)
STEPS = ("latent attributes", "correlations", "tree parameters")


def _check_weights(split: Any) -> None:
    if not isinstance(split, tuple | list) or len(split) != len(STEPS):
        raise ConfigError(f"split must be three weights, not {split!r}.")
    in_range(1e-6, 1e6, **{f"split[{i}]": weight for i, weight in enumerate(split)})


WEIGHTS = Takes("three weights", _check_weights, tuple)


@dataclass(frozen=True, kw_only=True)
class Config(Declared):
    """The settings of DPLT and, with `plus`, of DPLT+."""

    plus: bool = setting(False, TRUTH, "DPLT+ in place of DPLT")
    group: int = setting(3, WHOLE, "binary attributes to a latent one")
    split: tuple[float, float, float] = setting(
        (1.0, 1.0, 1.0),
        WEIGHTS,
        "weights by which ε goes to latent attributes, correlations and tree parameters",
    )
    chunk: int = usual.chunk()
    private: bool = usual.private()
    seed: int = usual.seed()


@dataclass(frozen=True)
class Plan:
    """How many choices, pairs and tables all parties together make of a person, and at which ε.

    Guarantee: the three `events` add up to ε at most, for a person with all their columns at all parties.
    """

    config: Config
    schemas: Mapping[str, Schema]
    epsilon: float  # infinity: no privacy

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            in_range(*_EPSILONS, epsilon=self.epsilon)
        for name, bits in self.bits.items():
            if not bits:
                raise ConfigError(
                    f"{name} has no column of two levels or more: there is nothing to publish. Nothing was charged."
                )

    @cached_property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Each party's levels per column."""
        return {name: Codec(schema).sizes for name, schema in self.schemas.items()}

    @cached_property
    def bits(self) -> dict[str, int]:
        """Each party's binary attributes."""
        return {name: sum(map(digits, sizes)) for name, sizes in self.sizes.items()}

    @cached_property
    def latents(self) -> dict[str, int]:
        """Each party's latent attributes."""
        return {name: latents(bits, self.config.group) for name, bits in self.bits.items()}

    @cached_property
    def moved(self) -> tuple[int, int, int]:
        """What a person has a part in: choices, pairs of latent attributes, tables of the tree."""
        plus, groups = self.config.plus, self.latents.values()
        chosen = sum(choices(bits, self.config.group, index=plus) for bits in self.bits.values())
        everyone = sum(groups)
        all_pairs = math.comb(everyone, 2)
        within = sum(math.comb(own, 2) for own in groups)
        pairs = all_pairs - within + sum(own - 1 for own in groups) if plus else all_pairs
        return chosen, pairs, sum(self.bits.values()) - 1

    def pairs(self, indices: Mapping[str, list[Edge]]) -> dict[tuple[str, str], list[Edge]]:
        """The pairs of latent attributes that step 2 measures, by the two parties that they are of (`split_edges`).

        Within a party these are all, or in DPLT+ the edges of its index; parties not in `indices` are left out there.
        """
        widths = self.latents
        across = {
            (i, k): [(a, b) for a in range(widths[i]) for b in range(widths[k])]
            for i, k in combinations(widths, 2)
        }
        within = {
            (name, name): index if self.config.plus else list(combinations(range(widths[name]), 2))
            for name, index in indices.items()
        }
        return within | across

    @cached_property
    def scales(self) -> tuple[Fraction, Fraction, Fraction] | None:
        """What one choice, pair or table is protected by: 1/ε each. None: nothing is."""
        if self.epsilon == math.inf:
            return None
        weights = [
            weight if moved else 0 for weight, moved in zip(self.config.split, self.moved, strict=True)
        ]
        step = self.epsilon * (1 - 1e-12) / sum(weights)  # rounding must not lift the sum above ε
        one, two, three = (
            rounded_up(moved / (step * weight)) if moved else Fraction(1)
            for moved, weight in zip(self.moved, weights, strict=True)
        )
        # what cannot be drawn by is refused before anything is paid for
        Exponential(one, max(1, self.config.group - 1))
        for scale in (two, three):
            DiscreteLaplaceNoise(scale)
        return one, two, three

    @cached_property
    def events(self) -> tuple[DpEvent, DpEvent, DpEvent]:
        """What each step costs."""
        if self.scales is None:
            return NonPrivateDpEvent(), NonPrivateDpEvent(), NonPrivateDpEvent()
        one, two, three = (
            PureDp(math.nextafter(float(moved / scale), math.inf) if moved else 0.0)
            for moved, scale in zip(self.moved, self.scales, strict=True)
        )
        return one, two, three
