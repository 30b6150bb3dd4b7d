"""Moments: holders of images or series release means and second moments, privately, and
Gaussians are fitted to them.

What Gram is for tables, this is for what has no columns. Rows become vectors of whole
numbers by a public transform (`data.encoding.frame`); three small sets of sums over
people are released, each about what the one before it gave (`stages`); everything after
is free (`models/moments/fit.py`). Labels beside the rows are optional: one, or several,
which are drawn with the row (`models/moments/released.py`).

Sources: private moments in a basis that no row chose are the idea of DP-MERF (Harder,
Adamczewski, Park, AISTATS 2021); noise by Canonne, Kamath, Steinke 2020; sums by
Bonawitz et al. 2017 (`privacy/secure/sums.py`); noise on second moments as in Dwork et
al., "Analyze Gauss" (STOC 2014).

Guarantee: (ε, δ)-DP for a person with all rows at a holder (or at up to
`max_holders_per_person` of them), against the server, an outsider, and up to
`max_colluding` other holders, who may pool what they know with the server. Edges: a
person counts once, by the average of the person's rows. docs/secure_products.md says
who sees what.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

from understudy.data.encoding.frame import MOST_FEATURES, UNIT, Frame
from understudy.data.schema import public_of
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.ground.settings import TRUTH, Takes, between, setting, whole_to
from understudy.models.moments.released import COUNT, SCALE, Labels, bought_norm
from understudy.protocols.core import settings as usual
from understudy.protocols.core.forecast import Error
from understudy.protocols.joint import run
from understudy.protocols.joint.measurements import Measurements, noise_facts
from understudy.protocols.joint.pricing import VectorPricing
from understudy.protocols.joint.stage import Holding, Stage, Study, Terms, expect
from understudy.protocols.moments import stages
from understudy.protocols.moments.stages import MOST_BITS, ArrayRows, Lengths, Sums


def _norms(norms: Any) -> None:
    """Of the budget, for a bound on norms: none, or enough that it can be told."""
    if norms != 0 or type(norms) not in (int, float):
        in_range(0.01, 0.5, norms=norms)


def three_shares(min_share: float, *, last: bool) -> Takes:
    """Parts of the budget, one for each release; `last`: whether the third must have
    one, too.
    """

    def check(shares: Any) -> None:
        if not isinstance(shares, tuple | list) or len(shares) != 3:
            raise ConfigError(
                f"shares are three, one for each release, not {shares!r}."
            )
        checked = shares if last or shares[2] else shares[:2]
        in_range(
            min_share,
            0.9,
            **{f"share {number}": share for number, share in enumerate(checked, 1)},
        )

    return Takes("a list of three", check, lambda shares: tuple(map(float, shares)))


@dataclass(frozen=True, kw_only=True)
class FrameConfig(usual.JointConfig):
    features: int = setting(
        300,
        whole_to(MOST_FEATURES),
        "the most coefficients to measure, the slowest first",
    )
    norms: float = setting(
        0.0,
        Takes("0, or between 0.01 and 0.5", _norms),
        "share of the budget for a bound on norms; 0: the declared",
    )
    seed: int = usual.seed()


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig, usual.OverRows):
    """`upright` is for what leans and lies each in its own way, as handwriting does
    (`data/encoding/frame.py`).
    """

    upright: bool = setting(
        False, TRUTH, "images are first turned upright and centred, each by itself"
    )
    shares: tuple[float, float, float] = setting(
        (0.3, 0.3, 0.4),
        three_shares(0.05, last=False),
        "budget of counts and means, second moments, and those by class; if that "
        "is 0, classes share a covariance",
    )
    bits: int | None = setting(
        None,
        between(0, MOST_BITS),
        "signs of so many directions cut classes into cells; without it by the noise",
    )


class Moments(Study[Callable[[], Iterable[ArrayRows]]]):
    family: ClassVar = "moments"
    settings: ClassVar = Config
    settled: ClassVar = (
        "features",
        "upright",
        "norms",
        "shares",
        "max_colluding",
        "max_holders_per_person",
        "private",
    )
    any_kind: ClassVar = True

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        self.schema = _common_schema(schemas)
        self.grid.check_max_holders_per_person(config.max_holders_per_person)
        self.frame = Frame.declared(
            self.schema, config.features, upright=config.upright
        )
        self.labels = Labels(self.schema.label_sizes or (1,))

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
        return VectorPricing(
            config.max_colluding, config.max_holders_per_person, shares
        )

    def check_noise(self, noise: Any, parties: int) -> None:
        for number, name in enumerate(self.releases):
            # the others take a scale whose noise can be drawn
            if name in ("norms", "means"):
                stage = (
                    Lengths(self.frame)
                    if name == "norms"
                    else stages.first_of(self.frame, self.labels)
                )
                self.pricing.check(
                    number, stage.blocks, noise[number], self.grid, parties
                )

    def same_rows(self, announced: Any, held: Any) -> bool:
        return type(announced) is type(held) and public_of(announced) == public_of(held)

    def people_at(self, rows: Any) -> int:
        return len(rows.ids)

    def rows(self, holding: Holding) -> Callable[[], Iterable[ArrayRows]]:
        """In the frame: made at the first count, and kept; of a long folder part by
        part, at each count anew.
        """

        def parts() -> Iterator[ArrayRows]:
            return (ArrayRows.framed(part, self.frame) for part in holding.rows.parts())

        return parts if holding.rows.long else cache(lambda: [*parts()])

    def stage(
        self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[Any]]
    ) -> Sums:
        """Whatever is told, a person moves the sums by as much: terms are held to what
        rows can have.
        """
        scale = stages.finest(noise, self.config.max_holders_per_person)
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
        in_range(0, min(MOST_BITS, terms["basis"].shape[1]), bits=terms["bits"])
        whole(**{"bits + 1": terms["bits"] + 1})
        return stages.Within(
            **terms, scale=scale, classes_per_group=self.labels.classes_per_group
        )

    def _pulled(self, terms: Terms) -> Frame:
        return (
            stages.pulled(self.frame, terms["norm"])
            if self.config.norms
            else self.frame
        )

    def _check(self, terms: Terms) -> None:
        stages.check_means(
            terms["means"], self.labels.combinations, self.frame.features
        )
        stages.check_radius(terms["radius"])

    # What the server makes of releases

    def terms(self, name: str, measurements: Measurements) -> Terms:
        if name == "norms" or (name == "means" and "norms" not in measurements):
            return {}
        if name == "means":
            # what the release of norms says, at the noise that the means will have
            noise = (
                measurements.deviations_of(
                    "means", stages.first_of(self.frame, self.labels).blocks
                )["sums"]
                / SCALE
            )
            classes = (
                self.labels.combinations if self.labels.joint else self.labels.levels
            )
            sizes = {"numbers": classes * self.frame.features, "classes": classes}
            return {
                "norm": self.frame.norm
                * bought_norm(measurements["norms"], **sizes, noise=noise)
            }
        centre = self.centres(measurements)
        if name == "pooled":
            return {
                "means": centre.whole_means,
                "radius": centre.radius,
                "features": self.frame.features,
            }
        directions = self.directions(measurements)
        bits = self.config.bits
        if bits is None:
            bits = directions.bits(
                centre.groups,
                measurements.noise(name) * self.config.max_holders_per_person,
                MOST_BITS,
            )
        bits = min(bits, len(directions.values), self.labels.most_bits)
        basis = (directions.basis * UNIT).round().long()
        return {
            "means": centre.whole_means,
            "basis": basis,
            "radius": directions.radius,
            "bits": bits,
        }

    def framed(self, measurements: Measurements) -> Frame:
        return self._pulled(measurements.record.terms["means"])

    def centres(self, measurements: Measurements) -> Any:
        from understudy.models.moments.fit import centres

        return measurements.once(
            "centres",
            lambda: centres(
                measurements["means"], self.framed(measurements), self.labels
            ),
        )

    def directions(self, measurements: Measurements) -> Any:
        from understudy.models.moments.fit import directions

        return directions(
            measurements["pooled"], self.centres(measurements), self.frame
        )

    def fit(
        self, measurements: Measurements, privacy: Any, look: Any, **more: Any
    ) -> Any:
        from understudy.generators.parts import GeneratorParts
        from understudy.models.moments.fit import fit_cells
        from understudy.models.moments.gaussians import match_shades
        from understudy.models.moments.lags import memory

        if "pooled" not in measurements:
            words = "counts and means" if "means" in measurements else "norms"
            raise ConfigError(
                f"only {words} were released ({measurements.record.ended}): nothing "
                "can be "
                "drawn from them."
            )
        centre = self.centres(measurements)
        directions = self.directions(measurements)
        first = measurements["means"]
        bits = (
            int(measurements.record.terms["cells"]["bits"])
            if "cells" in measurements
            else 0
        )
        network = fit_cells(
            self.frame, centre, directions, measurements.get("cells"), bits=bits
        )
        people = float(centre.people.sum())
        matched = match_shades(
            network, first["shades"], float(first["shades_noise"]), people
        )
        card: dict[str, Any] = {
            "norm": self.framed(measurements).norm,
            "directions": len(directions.values),
        }
        card |= {"cells": network.cells, "histograms": matched}
        if self.frame.sides == 1 and self.frame.shape[0] > 1:
            card["expected"] = memory(
                network,
                measurements["pooled"],
                centre.people,
                centre.means,
                [channel.name for channel in self.schema.channels],
            ).sentence
        return GeneratorParts(network.eval(), self.schema, card), max(1, round(people))

    def foreseen(self, ahead: Measurements, forecast: Any) -> dict[str, Any]:
        schema = self.schema
        labels = self.labels
        whose = "a class"
        facts = noise_facts(ahead)
        if not self.config.norms:
            part = "" if schema.norm is None else f"{schema.norm:g} of "
            facts.append(
                f"the bound on a row's norm: {part}the largest "
                f"possible{', as declared' if part else ''}"
            )
        if len(labels.sizes) > 1:
            whose = "a combination of classes"
            counted = (
                "the sums of each label's classes, and the table of every two labels"
            )
            if labels.joint:
                counted = (
                    f"{labels.combinations} combinations of classes, each with a "
                    "count and a mean"
                )
            facts.append(
                f"{len(labels.sizes)} labels: {counted}; second moments by "
                f"{schema.label}"
            )
        deviation = (
            ahead.deviations_of("means", stages.first_of(self.frame, labels).blocks)[
                "sums"
            ]
            / COUNT
        )
        error = Error(
            what=f"how many people {whose} has", least=deviation, largest=deviation
        )
        return {"facts": tuple(facts), "errors": (error,)}


def _common_schema(schemas: Mapping[str, Any]) -> Any:
    for name, schema in schemas.items():
        if getattr(schema, "kind", "table") not in ("image", "series"):
            raise ConfigError(
                f"{name} holds no images and no series, and moments takes nothing "
                "else: gram is for tables.",
                effect=Effect.NOTHING_CHARGED,
            )
    (first, common), *others = schemas.items()
    for name, schema in others:
        if public_of(schema) != public_of(common):
            raise SchemaError(
                f"{first} and {name} describe their rows differently.",
                effect=Effect.NOTHING_CHARGED,
            )
    return common


PROTOCOL = run.family(
    Moments,
    aligned=False,
    paper=__doc__,
    same_people=False,
    kinds=("image", "series"),
    audit="joint",
)
train = PROTOCOL.train
forecast = PROTOCOL.forecast
