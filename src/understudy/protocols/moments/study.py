"""Moments as a study: norms if bought, means, second moments of all rows and by class; each about what came before."""

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any, ClassVar

from understudy.data.document import public_of
from understudy.data.encoding.frame import Frame
from understudy.data.schema import Grid
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.models.moments.released import COUNT, SCALE
from understudy.protocols.core.forecast import Error
from understudy.protocols.joint.found import Found, noise_facts
from understudy.protocols.joint.pricing import VectorPricing
from understudy.protocols.joint.stage import Holding, Stage, Study, Terms, expect
from understudy.protocols.moments import stages
from understudy.protocols.moments.rows import Lengths, Rows, Sums
from understudy.protocols.moments.settings import Config, common, labels_of


class Moments(Study[Callable[[], Rows]]):
    family: ClassVar = "moments"
    settings: ClassVar = Config
    settled: ClassVar = ("features", "upright", "norms", "shares", "colluding", "most_holders", "private")
    any_kind: ClassVar = True

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        self.schema = common(schemas)
        self.grid.check_most_holders(config.most_holders)
        self.frame = Frame.declared(self.schema, config.features, upright=config.upright)
        self.labels = labels_of(self.schema)

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
        absent = {"norms": not self.config.norms, "cells": not self.config.shares[2]}
        return {name: what for name, what in named.items() if not absent.get(name)}

    @cached_property
    def pricing(self) -> VectorPricing:
        config = self.config
        shares = tuple(filter(None, (float(config.norms), *config.shares)))
        return VectorPricing(config.colluding, config.most_holders, shares)

    def check_noise(self, noise: Any, parties: int) -> None:
        for number, name in enumerate(self.releases):
            if name in ("norms", "means"):  # the others take a scale whose noise can be drawn
                stage = Lengths(self.frame) if name == "norms" else stages.first_of(self.frame, self.labels)
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
        scale = stages.finest(noise, self.config.most_holders)
        match name:
            case "norms":
                expect(terms)
                return Lengths(self.frame)
            case "means":
                expect(terms, *(["norm"] if self.config.norms else []))
                return stages.first_of(self._pulled(terms), self.labels)
            case "pooled":
                expect(terms, "means", "radius", "features")
                self._check(terms)
                in_range(1, self.frame.features, features=terms["features"])
                whole(features=terms["features"])
                return stages.Pooled(**terms, scale=scale)
        expect(terms, "means", "basis", "radius", "bits")
        self._check(terms)
        stages.check_basis(terms["basis"], self.frame.features)
        in_range(0, min(stages.MOST_BITS, terms["basis"].shape[1]), bits=terms["bits"])
        whole(**{"bits + 1": terms["bits"] + 1})
        return stages.Within(**terms, scale=scale, each=self.labels.each)

    def _pulled(self, terms: Terms) -> Frame:
        return stages.pulled(self.frame, terms["norm"]) if self.config.norms else self.frame

    def _check(self, terms: Terms) -> None:
        stages.check_means(terms["means"], self.labels.combinations, self.frame.features)
        stages.check_radius(terms["radius"])

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
            bits = kept.bits(centre.groups, found.noise(name) * self.config.most_holders, stages.MOST_BITS)
        bits = min(bits, len(kept.values), self.labels.most_bits)
        return {"means": centre.whole_means, "basis": kept.whole_basis, "radius": kept.radius, "bits": bits}

    def framed(self, found: Found) -> Frame:
        return self._pulled(found.record.terms["means"])

    def centres(self, found: Found) -> Any:
        from understudy.models.moments.fit import centres

        return found.once("centres", lambda: centres(found["means"], self.framed(found), self.labels))

    def directions(self, found: Found) -> Any:
        from understudy.models.moments.fit import directions

        return directions(found["pooled"], self.centres(found))

    def _norm(self, found: Found) -> float:
        """What the release of norms says, at the noise that the means will have."""
        from understudy.models.moments.released import bought_norm

        noise = found.deviations_of("means", stages.first_of(self.frame, self.labels).blocks)["sums"] / SCALE
        classes = self.labels.combinations if self.labels.joint else self.labels.levels
        numbers = classes * self.frame.features
        return self.frame.norm * bought_norm(found["norms"], numbers=numbers, classes=classes, noise=noise)

    def fit(self, found: Found, privacy: Any, look: Any, **more: Any) -> Any:
        from understudy.generators.parts import GeneratorParts
        from understudy.models.moments.fit import fit_cells
        from understudy.models.moments.gaussians import match_shades

        if "pooled" not in found:
            words = "counts and means" if "means" in found else "norms"
            raise ConfigError(f"only {words} were released ({found.record.ended}): nothing can be drawn from them.")
        centre, kept, first = self.centres(found), self.directions(found), found["means"]
        bits = int(found.record.terms["cells"]["bits"]) if "cells" in found else 0
        network, there = (
            fit_cells(self.frame, centre, kept, found.get("cells"), bits=bits),
            float(centre.people.sum()),
        )
        card = {
            "norm": self.framed(found).norm,
            "directions": len(kept.values),
            "histograms": match_shades(network, first["shades"], float(first["shades_noise"]), there),
            "cells": network.cells,
        }
        return GeneratorParts(network.eval(), self.schema, card), max(1, round(there))

    def foreseen(self, ahead: Found, said: Any) -> dict[str, Any]:
        schema, labels, whose = self.schema, self.labels, "a class"
        facts = noise_facts(ahead)
        if not self.config.norms:
            part = "" if schema.norm is None else f"{schema.norm:g} of "
            facts.append(f"the bound on a row's norm: {part}the largest possible{', as declared' if part else ''}")
        if len(labels.sizes) > 1:
            whose = "a combination of classes"
            counted = (
                f"{labels.combinations} combinations of classes, each with a count and a mean"
                if labels.joint
                else "the sums of each label's classes, and the table of every two labels"
            )
            facts.append(f"{len(labels.sizes)} labels: {counted}; second moments by {schema.label}")
        off = ahead.deviations_of("means", stages.first_of(self.frame, labels).blocks)["sums"] / COUNT
        error = Error(what=f"how many people {whose} has", least=off, largest=off)
        return {"facts": tuple(facts), "errors": (error,)}
