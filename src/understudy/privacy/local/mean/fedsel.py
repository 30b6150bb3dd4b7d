"""FedSel: choose one large coordinate privately, then perturb its value.

Liu, Cao, Yoshikawa, Chen, "FedSel" (DASFAA 2020), with PS for the choice and PM for the value.
Paper → code: d → dims, k → top, ε₁ → split · ε, ε₂ → (1 − split) · ε.
Differs from the paper: no gradient accumulation on the client; that belongs to the training loop.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from understudy.ground.check import positive
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.mean.piecewise import CELLS, PiecewiseValue
from understudy.privacy.local.reporter import Report, check_clip, check_epsilon, chunks, cohort, within
from understudy.privacy.local.selection.ps import Ps
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class FedSel:
    """One index, from the k largest by absolute value rather than not, and a noisy value for it.

    Guarantee: ε-LDP for a client's whole update, by composition of the two stages.
    Edges: not an unbiased mean: a coordinate that is often chosen weighs more. Values are clipped to
    [−clip, clip]; a non-finite update counts as zero (`reporter.cohort`).
    """

    dims: int
    top: int
    epsilon: float
    split: float = 0.5  # the share of ε for the choice; 0.1 and 0.5 in SignDS-FL's comparison
    clip: float = 1.0
    cells: int = CELLS  # in the window of PM

    def __post_init__(self) -> None:
        positive(split=self.split)
        check_clip(self.clip)
        check_epsilon(self.epsilon)
        if self.split >= 1:
            raise ConfigError(
                f"split must be below 1, not {self.split!r}: the value needs a part of epsilon."
            )
        _ = self.choice, self.value  # these check dims, top, cells, and their parts of epsilon

    @property
    def event(self) -> PureDp:
        return PureDp(self.epsilon)

    @cached_property
    def choice(self) -> Ps:
        return Ps(dims=self.dims, top=self.top, epsilon=self.split * self.epsilon)

    @cached_property
    def value(self) -> PiecewiseValue:
        return PiecewiseValue((1 - self.split) * self.epsilon, inner=self.cells)

    def report(self, updates: Tensor, rng: Rng) -> Report:
        updates = cohort(updates, self.dims)
        indices = torch.cat([self.choice.choose(updates[rows].abs(), rng) for rows in chunks(updates)])
        answers = self.value(within(updates.gather(1, indices), self.clip), rng)
        return Report(
            dims=self.dims,
            values=answers.to(torch.float32),
            indices=indices.to(torch.int32),
            scale=self.clip,
        )
