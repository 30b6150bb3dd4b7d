"""The settings of tied: checked alike by the server and by every holder."""

from dataclasses import dataclass

from understudy.data.encoding.frame import MOST_FEATURES
from understudy.ground.check import a_seed, in_range, whole
from understudy.ground.errors import ConfigError
from understudy.protocols.moments.settings import check_norms
from understudy.protocols.moments.stages import MOST_DIRECTIONS


@dataclass(frozen=True, kw_only=True)
class Config:
    """`features`: the most coefficients of each frame to measure, from the lowest frequency on.

    `norms`: share of the budget that buys the bound on a row's norm, at each holder of images or series; 0: the
    schema's, or the largest possible.
    `target`: a column of a table whose levels are classes: of each array every class has its own covariance then.
    `directions`: the most leading directions of them; what a holder of images or series sends grows with their square.
    `shares`: parts of the budget for the means, for all second moments, and for those by class; without a target the
    first two have all of it.
    `components` and `steps` are those of the tables' fit. `chunk`: people per message.
    """

    features: int = 300
    norms: float = 0.0
    target: str | None = None
    directions: int = 24
    shares: tuple[float, float, float] = (0.08, 0.57, 0.35)
    components: int = 128
    steps: int = 600
    chunk: int = 1 << 15
    private: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        whole(components=self.components, steps=self.steps, chunk=self.chunk)
        whole(features=self.features, directions=self.directions)
        in_range(1, MOST_FEATURES, features=self.features)
        in_range(1, MOST_DIRECTIONS // 4, directions=self.directions)
        a_seed(seed=self.seed)
        check_norms(self.norms)
        if type(self.private) is not bool:
            raise ConfigError(f"private is true or false, not {self.private!r}. Nothing was charged.")
        if not isinstance(self.shares, tuple | list) or len(self.shares) != 3:
            raise ConfigError(f"shares are three, one for each release, not {self.shares!r}.")
        in_range(0.02, 0.9, **{f"share {place}": share for place, share in enumerate(self.shares, 1)})
        if self.target is not None and not isinstance(self.target, str):
            raise ConfigError(f"target names a column of a table, not {self.target!r}.")
        object.__setattr__(self, "shares", tuple(map(float, self.shares)))
