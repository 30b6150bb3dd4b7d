"""SubMDS: look at a random part of the dimensions only, and choose more of it.

"FedSTDG", Algorithm 6, Eq. 5.4–5.7 (Jiang, dissertation, TUM 2024, chapter 5).
Paper → code: d → dims, k → top, ρ → rate, d̃ → inputs, ς* → wanted, h* → chosen, ν_th* → inner.threshold.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError
from understudy.privacy.local.selection.base import Selection
from understudy.privacy.local.selection.draw import subset
from understudy.privacy.local.selection.em_mds import EmMds, largest_size
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class SubMds(Selection):
    """EM-MDS on ρ·d dimensions that each client draws anew, with the most indices that keep the wanted share.

    Guarantee: as every choosing mechanism's; the drawn dimensions do not depend on the update and need not be
    secret.
    Edges: a wanted share that no size reaches → ConfigError.
    """

    rate: float = 0.1
    wanted: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(0, 1, rate=self.rate, wanted=self.wanted)
        if self.top >= self.inputs:
            raise ConfigError(f"top must be below rate · dims = {self.inputs}, not {self.top}.")
        _ = self.inner  # a share out of reach is found here, not in the first round

    @property
    def inputs(self) -> int:
        return round(self.rate * self.dims)

    @cached_property
    def inner(self) -> EmMds:
        """EM-MDS on a client's drawn dimensions."""
        size = largest_size(dims=self.inputs, top=self.top, epsilon=self.epsilon, share=self.wanted)
        return EmMds(dims=self.inputs, top=self.top, chosen=size, epsilon=self.epsilon)

    @property
    def chosen(self) -> int:
        return self.inner.chosen

    @property
    def share(self) -> float:
        """Of the sent indices, in the top set of the client's drawn dimensions."""
        return self.inner.share

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        inputs = subset(rng, self.dims, len(scores), self.inputs, scores.device)  # (n, d̃), ascending
        return inputs.gather(1, self.inner.choose(scores.gather(1, inputs), rng))
