"""What every mechanism looks like from outside."""

from typing import Protocol, runtime_checkable

import torch

from understudy.privacy.accounting import DpEvent
from understudy.privacy.rng import Rng


@runtime_checkable
class Mechanism(Protocol):
    """Rows in, something that may leave out; the price stands on the mechanism before it is used.

    `event` is what one call costs each person on axis 0 of `rows`; it depends on settings, never on rows.
    The caller pays first: `ledger.charge(mechanism.event, …)`, then `mechanism(rows, rng)`.

    Guarantee: for inputs that differ in one person the results are distributed as closely as `event` says,
    given that `rng` is a secure source.
    Edges: each mechanism says what it does with no rows and with non-finite ones; neither may go uncharged
    where the outcome could be told from outside.
    """

    @property
    def event(self) -> DpEvent: ...

    def __call__(self, rows: torch.Tensor, rng: Rng) -> torch.Tensor: ...
