"""Moments as a study: norms where a bound on them is bought, means, second moments of all rows, and those by class.

Each release is about what the one before it gave: the server chooses the norm, means and radii, and directions by it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, ClassVar

from understudy.data.described import public_of
from understudy.data.encoding.frame import Frame
from understudy.data.kinds import schema_from
from understudy.data.schema import Grid
from understudy.ground.check import in_range, whole
from understudy.ground.errors import MessageError
from understudy.models.moments.fit import Centres, Directions, centres, directions
from understudy.models.moments.released import SCALE, bought_norm
from understudy.protocols.joint.found import Found
from understudy.protocols.joint.pricing import VectorPricing
from understudy.protocols.joint.stage import Holding, Stage, Study, Terms, expect
from understudy.protocols.moments.rows import Lengths, Rows, Sums
from understudy.protocols.moments.settings import Config, common, labels_of, shares_of
from understudy.protocols.moments.stages import (
    MOST_BITS,
    Pooled,
    Within,
    check_basis,
    check_means,
    finest,
    first_of,
)

_MOST_RADIUS = 1 << 20


class Moments(Study[Callable[[], Rows]]):
    """Over rows: holders of images or series, which all describe alike."""

    family: ClassVar = "moments"
    settings: ClassVar = Config
    settled: ClassVar = ("features", "upright", "norms", "shares", "colluding", "most_holders", "private")

    @classmethod
    def schema_of(cls, told: dict[str, Any]) -> Any:
        return schema_from(told)

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        self.schema = common(schemas)
        self.grid.check_most_holders(config.most_holders)
        self.frame = Frame.declared(self.schema, config.features, upright=config.upright)
        self.labels = labels_of(self.schema)
        self._centres: tuple[Any, Centres] | None = None

    @cached_property
    def grid(self) -> Grid:
        return Grid((tuple(self.schemas),))

    @cached_property
    def releases(self) -> Mapping[str, str]:
        named = {
            "norms": "how long rows are",
            "means": "counts, means and histograms",
            "pooled": "second moments of all rows",
            "cells": "second moments by class",
        }
        left_out = [
            name
            for name, share in (("norms", self.config.norms), ("cells", self.config.shares[2]))
            if not share
        ]
        return {name: what for name, what in named.items() if name not in left_out}

    @cached_property
    def pricing(self) -> VectorPricing:
        shares = tuple(filter(None, shares_of(self.config.norms, self.config.shares)))
        return VectorPricing(self.config.colluding, self.config.most_holders, shares)

    def check_noise(self, noise: Any, parties: int) -> None:
        for number, name in enumerate(self.releases):
            if name in ("norms", "means"):  # the others take a scale whose noise can be drawn
                stage = Lengths(self.frame) if name == "norms" else first_of(self.frame, self.labels)
                self.pricing.check(number, stage.blocks, noise[number], self.grid, parties)

    def same_rows(self, told: Any, own: Any) -> bool:
        return type(told) is type(own) and public_of(told) == public_of(own)

    def people_at(self, rows: Any) -> int:
        return len(rows.ids)

    def rows(self, holding: Holding) -> Callable[[], Rows]:
        """In the frame: made when they are first counted, and kept."""
        return cache(lambda: Rows.of(holding.rows, self.frame))

    def stage(self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[Any]]) -> Sums:
        """Whatever is told, a person moves the sums by as much: terms are held to what rows can have."""
        scale = finest(noise, self.config.most_holders)
        match name:
            case "norms":
                expect(terms)
                return Lengths(self.frame)
            case "means":
                return first_of(self._pulled(terms.get("norm")), self.labels)
            case "pooled":
                expect(terms, "means", "radius", "features")
                self._check(terms)
                in_range(1, self.frame.features, features=terms["features"])
                whole(features=terms["features"])
                return Pooled(**terms, scale=scale)
        expect(terms, "means", "basis", "radius", "bits")
        self._check(terms)
        check_basis(terms["basis"], self.frame.features)
        in_range(0, min(MOST_BITS, terms["basis"].shape[1]), bits=terms["bits"])
        whole(**{"bits + 1": terms["bits"] + 1})
        return Within(**terms, scale=scale, each=self.labels.each)

    def _pulled(self, norm: Any) -> Frame:
        """The frame with the norm that was bought, if one was."""
        if (norm is not None) != ("norms" in self.releases):
            raise MessageError("a norm is told where it was bought, and not else. Nothing was charged.")
        if norm is None:
            return self.frame
        in_range(0.0, self.frame.norm, norm=norm)
        return replace(self.frame, norm=float(norm))

    def _check(self, terms: Terms) -> None:
        check_means(terms["means"], self.labels.combinations, self.frame.features)
        in_range(1, _MOST_RADIUS, radius=terms["radius"])
        whole(radius=terms["radius"])

    # What the server makes of releases

    def terms(self, name: str, found: Found) -> Terms:
        if name == "norms" or (name == "means" and "norms" not in found):
            return {}
        if name == "means":
            return {"norm": self._norm(found)}
        centre = self.centres(found)
        if name == "pooled":
            return {"means": centre.whole_means, "radius": centre.radius, "features": self.frame.features}
        kept, bits = self.directions(found), self.config.bits
        if bits is None:
            bits = kept.bits(centre.groups, found.noise(name) * self.config.most_holders, MOST_BITS)
        bits = min(bits, len(kept.values), self.labels.most_bits)
        return {"means": centre.whole_means, "basis": kept.whole_basis, "radius": kept.radius, "bits": bits}

    def framed(self, found: Found) -> Frame:
        """The frame with the norm that was bought, if one was."""
        return self._pulled(found.record.terms["means"].get("norm"))

    def centres(self, found: Found) -> Centres:
        """What the first release says: read once, however many releases follow it."""
        if self._centres is None or self._centres[0] is not found["means"]:
            self._centres = found["means"], centres(found["means"], self.framed(found), self.labels)
        return self._centres[1]

    def directions(self, found: Found) -> Directions:
        """What the second says."""
        return directions(found["pooled"], self.centres(found))

    def _norm(self, found: Found) -> float:
        """What the release of norms says, at the noise that the means will have."""
        noise = found.deviations_of("means", first_of(self.frame, self.labels).blocks)["sums"] / SCALE
        classes = self.labels.combinations if self.labels.joint else self.labels.levels
        numbers = classes * self.frame.features
        return self.frame.norm * bought_norm(found["norms"], numbers=numbers, classes=classes, noise=noise)
