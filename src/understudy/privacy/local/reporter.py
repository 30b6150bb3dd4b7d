"""What a cohort of clients sends under local privacy, and what the server makes of it.

A `Reporter` turns one update a client into one small message a client; the server adds the messages up. What
chooses (`selection/`) sends a sign and a few indices, what estimates a mean (`mean/`) sends noisy values.
Both are a `Report`, so a protocol takes either.

SignDS-FL, Algorithm 1, lines 6–9: Δ̂[j] = s for j ∈ J, else 0; the mean over the N clients.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from understudy.ground.check import in_range, positive
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.noise import Device, Rng

LEAST_EPSILON = 1e-6  # 1 − e^−ε still has ten digits, and no answer is too large for a float32
MOST_EPSILON = 50.0  # e⁻⁵⁰ is still far above 2⁻¹⁰⁶, the grain of `fine`
# with dims up to 10⁹, all that is made of them is far from the ends of a float
LEAST_CLIP = 1e-12
MOST_CLIP = 1e12
_CHUNK = 2**24  # update values in work at a time


@dataclass(frozen=True, kw_only=True)
class Report:
    """What n clients send: client i claims `scale · values[i]` at `indices[i]`, and 0 elsewhere.

    Guarantee: the tensors are all that leaves the clients; `dims` and `scale` are public constants.
    Edges: no clients → a mean of 0; an index that comes twice counts twice.
    """

    dims: int
    values: Tensor  # (n, h), or (n, 1): one value for all of the client's indices
    indices: Tensor | None = None  # (n, h); None: every dimension, in order
    scale: float = 1.0

    @property
    def clients(self) -> int:
        return len(self.values)

    @property
    def bytes_per_client(self) -> int:
        """The bytes of one client's tensors, without the envelope."""
        sent = (self.values,) if self.indices is None else (self.values, self.indices)
        return sum(part.element_size() * part.shape[1] for part in sent)

    def total(self) -> Tensor:
        """The sum of all claims: (dims,), float64."""
        if self.indices is None:
            return self.values.sum(0, dtype=torch.float64) * self.scale
        claims = self.values.to(torch.float64).expand(self.indices.shape).flatten()
        total = torch.zeros(self.dims, dtype=torch.float64, device=self.values.device)
        return total.index_add_(0, self.indices.flatten(), claims) * self.scale

    def mean(self) -> Tensor:
        """The cohort's mean update: (dims,), float32."""
        return (self.total() / max(self.clients, 1)).to(torch.float32)


class Reporter(Protocol):
    """A local mechanism that a protocol can use. One call costs each client of the cohort one `event`."""

    @property
    def dims(self) -> int: ...

    @property
    def event(self) -> DpEvent: ...

    def report(self, updates: Tensor, rng: Rng) -> Report:
        """`updates`: one client a row, (n, dims)."""
        ...


def check_epsilon(epsilon: float) -> None:
    positive(epsilon=epsilon)
    if epsilon > MOST_EPSILON:
        raise ConfigError(
            f"epsilon must be at most {MOST_EPSILON:g}, not {epsilon!r}. More means no privacy."
        )
    if epsilon < LEAST_EPSILON:
        raise ConfigError(
            f"epsilon must be at least {LEAST_EPSILON:g}, not {epsilon!r}. Less means nothing but noise."
        )


def check_clip(clip: float) -> None:
    positive(clip=clip)
    in_range(LEAST_CLIP, MOST_CLIP, clip=clip)


def cohort(updates: Tensor, dims: int | None = None) -> Tensor:
    """The updates that a mechanism works on: one a row, and finite.

    Guarantee: an update that holds a value that is not finite counts as zero in all its values, whoever else is in the
    cohort. So every update has a report, of the same law as that of some finite one: to refuse it, or to let it
    spoil a comparison or a cast, would tell of the rows that made it.
    Edges: another shape, or no floats → ValueError before anything is drawn; these follow from settings alone.
    """
    if updates.ndim != 2 or not updates.is_floating_point() or updates.shape[1] != (dims or updates.shape[1]):
        wanted = f"(clients, {dims or 'dims'}) of floats"
        raise ValueError(f"updates must be {wanted}, not {tuple(updates.shape)} of {updates.dtype}.")
    on_host = updates.device.type == "cpu"  # a GPU's would wait for the answer
    if not updates.numel() or (on_host and all(map(math.isfinite, map(float, torch.aminmax(updates))))):
        return updates
    return updates.where(updates.isfinite().all(1, keepdim=True), 0)


def within(values: Tensor, clip: float) -> Tensor:
    """Finite values as shares of `clip`, in [−1, 1]: float64, in which no quotient of a float32 is 0/0."""
    return (values.to(torch.float64) / clip).clamp_(-1, 1)


def chunks(updates: Tensor, values: int = _CHUNK) -> Iterator[slice]:
    """The cohort's rows in runs small enough to hold a few copies of. No rows → one empty run."""
    step = max(1, values // updates.shape[1])
    return (slice(start, start + step) for start in range(0, max(len(updates), 1), step))


def fine(rng: Rng, *shape: int, device: Device) -> Tensor:
    """Uniform in [0, 1] with 106 random bits: `fine < p` is true with probability p also where p is tiny.

    With 53 bits, what should happen once in e³⁶ draws never happens, and its absence tells.
    """
    return rng.uniform(*shape, device=device).add_(rng.uniform(*shape, device=device), alpha=2**-53)
