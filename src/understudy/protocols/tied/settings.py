"""The settings of tied: checked alike by the server and by every holder."""

from dataclasses import dataclass
from typing import Any

from understudy.data.encoding.frame import MOST_FEATURES
from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError
from understudy.ground.settings import WHOLE, Takes, setting, whole_to
from understudy.protocols.core import settings as usual
from understudy.protocols.core.settings import OverColumns
from understudy.protocols.moments.settings import NORMS
from understudy.protocols.moments.stages import MOST_DIRECTIONS


def _check_shares(shares: Any) -> None:
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise ConfigError(f"shares are three, one for each release, not {shares!r}.")
    in_range(0.02, 0.9, **{f"share {place}": share for place, share in enumerate(shares, 1)})


SHARES = Takes("a list of three", _check_shares, lambda shares: tuple(map(float, shares)))


@dataclass(frozen=True, kw_only=True)
class Config(OverColumns):
    """The levels of a `target` are classes: of each array every class has its own covariance then."""

    features: int = setting(
        300,
        whole_to(MOST_FEATURES),
        "the most coefficients of each frame to measure, from the lowest frequency on",
    )
    norms: float = setting(
        0.0,
        NORMS,
        "share of the budget that buys the bound on a row's norm, at each holder of images or series; 0: the schema's, "
        "or the largest possible",
    )
    target: str | None = usual.target()
    directions: int = setting(
        24,
        whole_to(MOST_DIRECTIONS // 4),
        "the most leading directions of them; what a holder of images or series sends grows with their square",
    )
    shares: tuple[float, float, float] = setting(
        (0.08, 0.57, 0.35),
        SHARES,
        "parts of the budget for the means, for all second moments, and for those by class; without a target the first "
        "two have all of it",
    )
    components: int = setting(128, WHOLE, "products in the mixture that is fitted")
    steps: int = setting(600, WHOLE, "the most steps of the fit")
    seed: int = usual.seed()
