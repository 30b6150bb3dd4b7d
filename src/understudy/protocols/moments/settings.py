"""The settings of moments, and the one schema that they are of: checked alike by the server and by every holder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy.data.document import public_of
from understudy.data.encoding.frame import MOST_FEATURES
from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError, SchemaError
from understudy.ground.settings import TRUTH, Takes, between, setting, whole_to
from understudy.models.moments.labels import Labels
from understudy.protocols.core import settings as usual
from understudy.protocols.core.settings import JointConfig, OverRows
from understudy.protocols.moments.stages import MOST_BITS

if TYPE_CHECKING:
    from understudy.data.kinds import ArraySchema


def _norms(norms: Any) -> None:
    """Of the budget, for a bound on norms: none, or enough that it can be told."""
    if norms != 0 or type(norms) not in (int, float):
        in_range(0.01, 0.5, norms=norms)


def three_shares(least: float, *, last: bool) -> Takes:
    """Parts of the budget, one for each release; `last`: whether the third must have one, too."""

    def check(shares: Any) -> None:
        if not isinstance(shares, tuple | list) or len(shares) != 3:
            raise ConfigError(f"shares are three, one for each release, not {shares!r}.")
        due = shares if last or shares[2] else shares[:2]
        in_range(least, 0.9, **{f"share {place}": share for place, share in enumerate(due, 1)})

    return Takes("a list of three", check, lambda shares: tuple(map(float, shares)))


@dataclass(frozen=True, kw_only=True)
class FrameConfig(JointConfig):
    features: int = setting(300, whole_to(MOST_FEATURES), "the most coefficients to measure, the slowest first")
    norms: float = setting(
        0.0, Takes("0, or between 0.01 and 0.5", _norms), "share of the budget for a bound on norms; 0: the declared"
    )
    seed: int = usual.seed()


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig, OverRows):
    """`upright` is for what leans and lies each in its own way, as handwriting does (`data/encoding/upright.py`)."""

    upright: bool = setting(False, TRUTH, "images are first turned upright and centred, each by itself")
    shares: tuple[float, float, float] = setting(
        (0.3, 0.3, 0.4),
        three_shares(0.05, last=False),
        "budget of counts and means, second moments, and those by class; if that is 0, classes share a covariance",
    )
    bits: int | None = setting(
        None, between(0, MOST_BITS), "signs of so many directions cut classes into cells; without it by the noise"
    )


def labels_of(schema: "ArraySchema") -> Labels:
    return Labels(schema.label_sizes or (1,))


def common(schemas: Mapping[str, Any]) -> "ArraySchema":
    for name, schema in schemas.items():
        if getattr(schema, "kind", "table") not in ("image", "series"):
            raise ConfigError(
                f"{name} holds no images and no series, and moments takes nothing else: gram is for tables. "
                "Nothing was charged."
            )
    first, *others = schemas.items()
    for name, schema in others:
        if public_of(schema) != public_of(first[1]):
            raise SchemaError(f"{first[0]} and {name} describe their rows differently. Nothing was charged.")
    found: ArraySchema = first[1]
    return found
