"""Tied: one party has images, another a table, a third series of the same people; all
are measured together, once.

What a table says about images and series that others hold is in the second moments of
the joint vector of a person: the levels of the tables, and the frequencies of the rest
in a public frame. Within a holder they are sums, across holders products
(`privacy/secure/sums.py`). They are released under whole-number noise at one price, and
everything after is free: a mixture is fitted to the tables, and Gaussians given its
levels to the rest (`models/tied`).

A label among the tables' columns has its classes' own covariances, too: the triangle of
w wᵀ is a vector that an array's holder makes alone, so that its sums by class are a
product of two holders, not of three.

Sources: products by Beaver 1991, noise by Canonne, Kamath, Steinke 2020, noise on
second moments as in Dwork et al., "Analyze Gauss" (STOC 2014), the frame as `moments`.

Guarantee: (ε, δ)-DP for a person with the rows at all parties, in one price, against
the server, against any party, and against an outsider. Each party's ledger is charged
that whole price; a person pays it once.
Edges: the server deals the masks of products, so it must not pool what it knows with a
holder. docs/secure_products.md says who sees what, docs/moments.md what is fitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.frame import Frame
from understudy.data.schema import Block as Groups
from understudy.data.schema import Grid
from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.ground.settings import WHOLE, setting, whole_to
from understudy.models.moments.released import SCALE, bought_norm
from understudy.privacy.secure.moments import (
    block_multipliers,
    noise_for,
    one_for,
    sensitivity,
)
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core import settings as usual
from understudy.protocols.core.forecast import figure
from understudy.protocols.joint import run
from understudy.protocols.joint.measurements import Measurements, noise_facts
from understudy.protocols.joint.pricing import VectorPricing
from understudy.protocols.joint.stage import (
    Holding,
    Stage,
    Study,
    Terms,
    block_name,
    expect,
)
from understudy.protocols.moments import stages as moments
from understudy.protocols.moments.protocol import FrameConfig, three_shares
from understudy.protocols.moments.stages import MOST_DIRECTIONS
from understudy.protocols.tied.stages import (
    Alone,
    ArrayPeople,
    Classes,
    Joint,
    Label,
    SharedPeople,
    TablePeople,
)

# Of the joint release: a table's own pairs need little, since counts are large beside
# their noise.
_ARRAY = 1.0
_ARRAYS = 1.0
_TIE = 0.8
_TABLE = 0.1
_TABLES = 0.2
_FAR = 64  # noise beyond so many σ would wrap around: once in e^2048


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig, usual.OverColumns):
    """The levels of a `target` are classes: of each array every class has its own
    covariance then.
    """

    target: str | None = usual.target()
    directions: int = setting(
        24,
        whole_to(MOST_DIRECTIONS // 4),
        "the most directions; bytes grow by their square",
    )
    shares: tuple[float, float, float] = setting(
        (0.08, 0.57, 0.35),
        three_shares(0.02, last=True),
        "budget of the means, second moments, and those by class; without a "
        "target the first two have it",
    )
    components: int = setting(128, WHOLE, "products in the mixture that is fitted")
    steps: int = setting(600, WHOLE, "the most steps of the fit")


class TiedStudy(Study[SharedPeople]):
    """Holders of a table, of images or of series of the same people, each a group of
    its own. What the server chooses between two releases (norms, centres, radii,
    directions) changes no sensitivity.
    """

    family: ClassVar = "tied"
    settings: ClassVar = Config
    settled: ClassVar = (
        "features",
        "norms",
        "directions",
        "shares",
        "target",
        "private",
    )
    any_kind: ClassVar = True

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        from understudy.data.kinds import side_by_side

        super().__init__(config, schemas)
        if len(schemas) < 2:
            raise ConfigError(
                "tied needs two parties or more, of the same people.",
                effect=Effect.NOTHING_CHARGED,
            )
        self.names = tuple(schemas)
        each = dict(enumerate(schemas.values()))
        self.sizes = {
            g: Codec(one).sizes for g, one in each.items() if one.kind == "table"
        }
        self.frames = {
            g: Frame.declared(one, config.features)
            for g, one in each.items()
            if g not in self.sizes
        }
        if not self.frames:
            raise ConfigError(
                "nobody holds images or series, and tied is for such beside tables: "
                "gram is for tables alone.",
                effect=Effect.NOTHING_CHARGED,
            )
        for group in self.frames:
            label = getattr(schemas[self.names[group]], "label", None)
            if label is not None:
                raise ConfigError(
                    f'{self.names[group]} declares the label "{label}" beside its '
                    "rows, and tied takes classes from a "
                    "table: bring them as a column of one.",
                    effect=Effect.NOTHING_CHARGED,
                )
        side_by_side(schemas)
        self.label = self._label()
        # nothing can be fitted without all second moments
        self.least = [*self.releases].index("joint") + 1

    def _label(self) -> Label | None:
        target = self.config.target
        if target is None:
            return None
        before = 0
        for group, sizes in self.sizes.items():
            columns = self.schemas[self.names[group]].names
            if target in columns:
                column = columns.index(target)
                return Label(
                    group,
                    column,
                    before + column,
                    sizes[column],
                )
            before += len(sizes)
        raise ConfigError(
            f'no table has a column "{target}".', effect=Effect.NOTHING_CHARGED
        )

    @cached_property
    def grid(self) -> Grid:
        return Grid(tuple((name,) for name in self.names))

    @cached_property
    def releases(self) -> Mapping[str, str]:
        named_so = {
            "norms": "how long rows are",
            "means": "means and histograms",
            "joint": "second moments of all rows",
            "classes": "second moments by class",
        }
        absent = {"norms": not self.config.norms, "classes": self.label is None}
        return {name: what for name, what in named_so.items() if not absent.get(name)}

    @cached_property
    def pricing(self) -> VectorPricing:
        shares = dict(
            zip(("means", "joint", "classes"), self.config.shares, strict=True)
        )
        shares["norms"] = float(self.config.norms)
        return VectorPricing(shares=tuple(shares[name] for name in self.releases))

    def width(self, group: int) -> int:
        return (
            self.frames[group].features
            if group in self.frames
            else sum(self.sizes[group])
        )

    @cached_property
    def weights(self) -> dict[Groups, float]:
        """How the price of the joint release is split."""
        weights = {}
        for a, b in combinations_with_replacement(range(len(self.names)), 2):
            tables = (a in self.sizes) + (b in self.sizes)
            within = _TABLE if tables else _ARRAY
            weights[a, b] = within if a == b else (_ARRAYS, _TIE, _TABLES)[tables]
        return weights

    def scale(self, name: str, noise: float) -> int:
        """Every vector's norm in whole numbers: the finest whose noise can be drawn.
        ConfigError: there is none.
        """
        scale = moments.finest(max(self._multipliers(name, noise)), 1)
        for group, sizes in self.sizes.items():
            if not one_for(scale, len(sizes)):
                raise ConfigError(
                    f"{self.names[group]} has {len(sizes):,} columns, too many for so "
                    "much noise.",
                    effect=Effect.NOTHING_CHARGED,
                )
        return scale

    def rows(self, holding: Holding) -> SharedPeople:
        rows = holding.rows
        aligned = holding.aligned
        group = self.grid.group_of(holding.name)
        assert aligned is not None  # each holder is a group

        @cache
        def people() -> ArrayPeople | TablePeople:
            if rows.schema.kind == "table":
                codec = Codec(rows.schema)
                return TablePeople(aligned.encoded(codec.codes), codec.sizes)
            return ArrayPeople.at_places(self.frames[group], rows, holding.places)

        return SharedPeople(group, people)

    def ring(self, people: int | None, noise: Any) -> Ring:
        """That holds the people's products and all noise; the means are smaller."""
        max_sums = [float(1 << 32)] if people is None else []
        for number, name in enumerate(self.releases):
            if name in ("joint", "classes") and people is not None:
                scale = self.scale(name, noise[number])
                sigmas = [
                    sensitivity(scale, across=True) * multiplier
                    for multiplier in self._multipliers(name, noise[number])
                ]
                max_sums.append(people * scale**2 + 3 * _FAR * max(sigmas))
        return Ring.holding(max(max_sums))

    def _multipliers(self, name: str, noise: float) -> list[float]:
        weights: Mapping[Any, float] = (
            self.weights if name == "joint" else dict.fromkeys(self.frames, 1.0)
        )
        return [*block_multipliers(noise, weights).values()]

    def check_noise(self, noise: Any, parties: int) -> None:
        for number, (name, sigma) in enumerate(zip(self.releases, noise, strict=True)):
            if name in ("norms", "means"):
                self.pricing.check(
                    number,
                    self._alone(name, self.frames).blocks,
                    sigma,
                    self.grid,
                    parties,
                )
            else:
                self.scale(name, sigma)

    # The stages

    def _alone(self, name: str, frames: Mapping[int, Frame]) -> Alone:
        norms = name == "norms"
        return Alone(
            {
                g: moments.Lengths(one) if norms else moments.First(one, 1)
                for g, one in frames.items()
            }
        )

    def stage(
        self,
        name: str,
        terms: Terms,
        noise: float,
        before: Mapping[str, Stage[SharedPeople]],
    ) -> Stage[SharedPeople]:
        match name:
            case "norms":
                expect(terms)
                return self._alone(name, self.frames)
            case "means":
                expect(terms, *(["norms"] if self.config.norms else []))
                return self._alone(name, self._pulled(terms))
            case "joint":
                expect(terms, "centre", "radius")
                widths = {group: self.width(group) for group in range(len(self.names))}
                return Joint(
                    widths,
                    self.weights,
                    *self._about(terms),
                    self.scale(name, noise),
                )
        expect(terms, "centre", "radius", "basis")
        basis = self._by_group("basis", terms["basis"])
        for group, directions in basis.items():
            moments.check_basis(directions, self.frames[group].features)
            in_range(1, self.config.directions, directions=directions.shape[1])
        assert self.label is not None
        features = {group: frame.features for group, frame in self.frames.items()}
        return Classes(
            self.label,
            features,
            *self._about(terms),
            basis,
            self.scale(name, noise),
        )

    def _about(self, terms: Terms) -> tuple[dict[int, Tensor], dict[int, int]]:
        """Centres that rows can have, and radii: refused before anything is charged."""
        centre, radius = (
            self._by_group(key, terms[key]) for key in ("centre", "radius")
        )
        for group, frame in self.frames.items():
            means = centre[group]
            moments.check_means(
                means[None] if isinstance(means, Tensor) else means, 1, frame.features
            )
            moments.check_radius(radius[group])
        return centre, radius

    def _by_group(self, key: str, announced: Any) -> dict[int, Any]:
        """One of each array, by name → by group."""
        groups = {self.names[group]: group for group in self.frames}
        if not isinstance(announced, Mapping) or announced.keys() != groups.keys():
            raise MessageError(
                f"{key} of {', '.join(groups)} was due.", effect=Effect.NOTHING_CHARGED
            )
        return {groups[name]: value for name, value in announced.items()}

    def _pulled(self, terms: Terms) -> dict[int, Frame]:
        norms = self._by_group("norms", terms["norms"]) if self.config.norms else {}
        return {
            group: moments.pulled(frame, norms[group]) if norms else frame
            for group, frame in self.frames.items()
        }

    # What the server makes of releases

    def terms(self, name: str, measurements: Measurements) -> Terms:
        if name == "norms" or (name == "means" and "norms" not in measurements):
            return {}
        if name == "means":
            return {"norms": self._norms(measurements)}
        middles = self.centres(measurements)
        centre = {
            self.names[group]: one.whole_means[0] for group, one in middles.items()
        }
        if name == "joint":
            return {
                "centre": centre,
                "radius": {
                    self.names[group]: one.radius for group, one in middles.items()
                },
            }
        tied = self.tied(measurements)
        basis = {
            name: tied.kept[name].basis[:, : self.config.directions] for name in centre
        }
        radius = {
            name: tied.radius(name, directions) for name, directions in basis.items()
        }
        rounded = {
            name: (directions * 4096).round().long()
            for name, directions in basis.items()
        }
        return {
            "centre": centre,
            "radius": radius,
            "basis": rounded,
        }

    def _norms(self, measurements: Measurements) -> dict[str, float]:
        """What the release of lengths says, at the noise that the means will have."""
        noise = measurements.deviations_of(
            "means", self._alone("means", self.frames).blocks
        )
        norms = {}
        for group, frame in self.frames.items():
            off = noise[block_name((group, group))] / SCALE
            share = bought_norm(
                measurements["norms"][group],
                numbers=frame.features,
                classes=1,
                noise=off,
            )
            norms[self.names[group]] = frame.norm * share
        return norms

    def framed(self, measurements: Measurements) -> dict[int, Frame]:
        return self._pulled(measurements.record.terms["means"])

    def centres(self, measurements: Measurements) -> dict[int, Any]:
        """The mean of each array, and how far people are from it. How many they are is
        known.
        """
        from understudy.models.moments.fit import centres

        people = torch.tensor(
            [float(measurements.record.people or 0)], dtype=torch.float64
        )
        frames = self.framed(measurements)
        return {
            group: centres(first | {"people": people}, frames[group])
            for group, first in measurements["means"].items()
        }

    def tied(self, measurements: Measurements) -> Any:
        """What is fitted to the joint release; directions by class are asked by it."""
        from understudy.models.tied.fit import Tied
        from understudy.protocols.tied.reading import joint_of

        fitted = {
            key: getattr(self.config, key) for key in ("components", "steps", "seed")
        }
        return measurements.once(
            "tied", lambda: Tied.from_joint(joint_of(self, measurements), **fitted)
        )

    def fit(
        self,
        measurements: Measurements,
        privacy: Any,
        look: Any,
        **more: Any,
    ) -> Any:
        from understudy.protocols.tied.reading import fitted

        return fitted(self, measurements)

    def foreseen(self, ahead: Measurements, forecast: Any) -> dict[str, Any]:
        """With so many people also what each holder sends to the others, through the
        server.
        """
        facts = noise_facts(ahead)
        noise = ahead.noise("joint")
        scale = self.scale("joint", noise)
        multipliers = block_multipliers(noise, self.weights)
        for group, sizes in self.sizes.items():
            sigma = noise_for(
                multipliers[group, group], sensitivity(scale, across=False)
            )
            deviation = figure(sigma / one_for(scale, len(sizes)) ** 2)
            facts.append(
                f"each count of a pair of columns of {self.names[group]}: ±{deviation} "
                "people"
            )
        directions = self.config.directions
        label = self.label
        for group, name in enumerate(self.names if forecast.people is not None else ()):
            numbers = self.width(group) * (len(self.names) - 1)
            if label is not None and group in self.frames:
                numbers += directions * (directions + 1) // 2
            elif label is not None and group == label.group:
                numbers += label.classes * len(self.frames)
            sent = (
                forecast.people
                * numbers
                * self.ring(forecast.people, ahead.record.noise).dtype.itemsize
            )
            facts.append(
                f"{name} sends {figure(sent / 1e6)} MB at most, masked and sealed"
            )
        return {"facts": tuple(facts)}


PROTOCOL = run.family(
    TiedStudy,
    paper=__doc__,
    same_people=True,
    kinds=("table", "image", "series"),
    one_release=True,
    audit="joint",
)
train = PROTOCOL.train
forecast = PROTOCOL.forecast
