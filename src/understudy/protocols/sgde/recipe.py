"""How a silo of SGDE makes its offers: its own choice, within what a pool requires."""

from dataclasses import dataclass
from functools import lru_cache

from understudy.data.kinds import IMAGES, SERIES, TABLE
from understudy.ground.check import a_seed, in_range, one_of, whole
from understudy.ground.errors import ConfigError
from understudy.models.moments.offered import MOST_FEATURES
from understudy.models.nets.beta_vae import CHANNELS
from understudy.privacy.accounts.accounting import Spend, calibrate
from understudy.privacy.gradients import honest, honest_layers
from understudy.protocols.sgde.fit import step_event
from understudy.protocols.sgde.offer import ADDED
from understudy.protocols.sgde.quality import LEAST, MOST

KINDS = ("beta-vae", "marginals", *ADDED)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a silo trains. `rate` is a row's chance to be in a step's batch; it and `steps` are public.

    The paper tunes `latent` and `beta` for each data set; one setting serves all here. `channels` are for images.
    `kind="marginals"` counts levels in place of training, and needs none of these (`marginals`). `kind="moments"`
    offers sums of images or series, in this many `features` of a public frame, which a pool adds. `upright`: of kind
    moments, images are first turned upright (`data/encoding/upright.py`).
    `kind="gram"` offers counts of all pairs of a table's levels.
    `quality_epsilon`: of the offer's ε, what the silo spends on a figure of quality (`quality`), which stands on the
    card; None: there is no figure. Sums alone have one.
    """

    kind: str = "beta-vae"
    latent: int = 4
    channels: tuple[int, ...] = CHANNELS
    beta: float = 1.0
    steps: int = 100
    rate: float = 0.25
    clip_norm: float = 1.0
    learning_rate: float = 0.01
    features: int = 128
    upright: bool = False
    quality_epsilon: float | None = None
    private: bool = True
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        one_of(KINDS, kind=self.kind)
        honest(latent=self.latent, steps=self.steps, beta=self.beta)
        honest(clip_norm=self.clip_norm, learning_rate=self.learning_rate)
        honest_layers(channels=self.channels)
        honest(rate=self.rate)
        whole(features=self.features)
        in_range(1, MOST_FEATURES, features=self.features)
        if type(self.upright) is not bool or (self.upright and self.kind != "moments"):
            raise ConfigError(
                f'upright is true or false, and for kind="moments" alone, not {self.upright!r} for kind="{self.kind}". '
                "Nothing was charged."
            )
        a_seed(seed=self.seed)
        if self.quality_epsilon is not None:
            in_range(LEAST, MOST, quality_epsilon=self.quality_epsilon)
            if self.kind not in ADDED or not self.private:
                raise ConfigError(
                    'a figure of quality is paid for under noise, and is for kind="gram" or kind="moments" alone: '
                    "without quality_epsilon there is none. Nothing was charged."
                )

    def spend(self, noise_multiplier: float) -> Spend:
        """What a silo's networks cost together."""
        return {step_event(self.rate, noise_multiplier): self.steps}


RECIPES = {  # where a silo says nothing, by the kind of its rows
    TABLE.name: Recipe(),
    IMAGES.name: Recipe(latent=8, steps=200, learning_rate=0.002),
    SERIES.name: Recipe(kind="moments"),
}


@lru_cache(maxsize=64)
def needed_noise(recipe: Recipe, most: float, delta: float) -> float:
    """The least noise multiplier that keeps the offers within (ε, δ)."""
    return calibrate(recipe.spend, epsilon=most, delta=delta)
