"""How a silo of SGDE makes its offers, within what a pool requires: its own choice."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent

from understudy.data.kinds import IMAGES, SERIES, TABLE
from understudy.ground.errors import ConfigError
from understudy.ground.settings import TRUTH, Declared, between, choice, setting, whole_to
from understudy.models.moments.released import MOST_OFFERED
from understudy.privacy.accounts.accounting import DpEvent, calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.limits import LAYERS, within_limits
from understudy.protocols.core import settings as usual
from understudy.protocols.sgde.sums import ADDED, LEAST, MOST

KINDS = ("beta-vae", "marginals", *ADDED)  # `offering` has them all
CHANNELS = (32, 64, 128)  # Table II, image data, divided by four


@dataclass(frozen=True, kw_only=True)
class Recipe(Declared):
    """How a silo trains. `rate` is a row's chance to be in a step's batch; it and `steps` are public."""

    kind: str = setting("beta-vae", choice(*KINDS), "networks or tables of each class, or sums that a pool adds")
    latent: int = setting(4, within_limits("latent"), "size of the latent space; without it as in the paper")
    channels: tuple[int, ...] = setting(CHANNELS, LAYERS, "channels of the layers for images")
    beta: float = setting(1.0, within_limits("beta"), "weight of the latent term of the loss")
    steps: int = setting(100, within_limits("steps"), "training steps of a generator")
    rate: float = setting(0.25, within_limits("rate"), "probability that a row is used in a step")
    clip_norm: float = setting(1.0, within_limits("clip_norm"), "the longest gradient of one person")
    learning_rate: float = setting(0.01, within_limits("learning_rate"), "learning rate of a generator")
    features: int = setting(128, whole_to(MOST_OFFERED), "kind moments: the most coefficients, slowest first")
    upright: bool = setting(False, TRUTH, "kind moments: images are first turned upright")
    quality_epsilon: float | None = setting(None, between(LEAST, MOST), "kinds gram, moments: ε of a quality figure")
    private: bool = usual.private()
    device: str = usual.device()
    seed: int = usual.seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.upright and self.kind != "moments":
            raise ConfigError(f'upright is for kind="moments" alone, not for kind="{self.kind}". Nothing was charged.')
        if self.quality_epsilon is not None and (self.kind not in ADDED or not self.private):
            raise ConfigError(
                'a figure of quality is paid for under noise, and is for kind="gram" or kind="moments" alone: '
                "without quality_epsilon there is none. Nothing was charged."
            )

    def spend(self, noise_multiplier: float) -> Counter[DpEvent]:
        """What a silo's networks cost together: every step, the person of a row."""
        if not noise_multiplier:
            return Counter({NonPrivateDpEvent(): self.steps})
        return Counter({PoissonSampledDpEvent(self.rate, GaussianDpEvent(noise_multiplier)): self.steps})


RECIPES = {  # where a silo says nothing, by the kind of its rows
    TABLE.name: Recipe(),
    IMAGES.name: Recipe(latent=8, steps=200, learning_rate=0.002),
    SERIES.name: Recipe(kind="moments"),
}


@lru_cache(maxsize=64)
def needed_multiplier(recipe: Recipe, budget: Budget) -> float:
    return calibrate(recipe.spend, epsilon=budget.epsilon, delta=budget.delta)
