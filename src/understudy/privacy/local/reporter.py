"""What a cohort of clients sends under local privacy, what the server makes of it, and
the exact draws behind it.

A `Reporter` turns one update a client into one small message a client; the server adds
the messages up. What chooses (`selection`) sends a sign and a few indices, what
estimates a mean (`piecewise`) noisy values. Both are a `Report`, so a protocol takes
either.

SignDS-FL, Algorithm 1, lines 6–9: Δ̂[j] = s for j ∈ J, else 0; the mean over the N
clients.

Every draw refuses and draws again. Refusal looks at nothing but classes and collisions,
so relabelling the members of a class relabels the result: all outcomes of one pattern
are equally likely, exactly.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from understudy.ground.check import in_range, positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.noise import Device, Rng

# 1 − e^−ε still has ten digits, and no answer is too large for a float32
LEAST_EPSILON = 1e-6
MOST_EPSILON = 50.0  # e⁻⁵⁰ is still far above 2⁻¹⁰⁶, the grain of `fine`
# with dims up to 10⁹, all that is made of them is far from the ends of a float
LEAST_CLIP = 1e-12
MOST_CLIP = 1e12
_CHUNK = 2**24  # update values in work at a time


@dataclass(frozen=True, kw_only=True)
class Report:
    """What n clients send: client i claims `scale · values[i]` at `indices[i]`, and 0
    elsewhere. Guarantee: the tensors are all that leaves the clients; `dims` and
    `scale` are public constants. Edges: no clients → a sum of 0; an index that comes
    twice counts twice.
    """

    dims: int
    values: Tensor  # (n, h), or (n, 1): one value for all of the client's indices
    indices: Tensor | None = None  # (n, h); None: every dimension, in order
    scale: float = 1.0

    def total(self) -> Tensor:
        """The sum of all claims: (dims,), float64."""
        if self.indices is None:
            return self.values.sum(0, dtype=torch.float64) * self.scale
        values = self.values.to(torch.float64)
        claims = values.expand(self.indices.shape).flatten()
        total = torch.zeros(self.dims, dtype=torch.float64, device=values.device)
        total.index_add_(0, self.indices.flatten(), claims)
        return total * self.scale


class Reporter(Protocol):
    """A mechanism for updates of `dims` numbers. One call costs each client of the
    cohort one `event`.
    """

    @property
    def dims(self) -> int: ...
    @property
    def event(self) -> DpEvent: ...
    def report(self, updates: Tensor, rng: Rng) -> Report: ...


def check_epsilon(epsilon: float) -> None:
    positive(epsilon=epsilon)
    if epsilon > MOST_EPSILON:
        raise ConfigError(
            f"epsilon must be at most {MOST_EPSILON:g}, not {epsilon!r}. More means "
            "no privacy."
        )
    if epsilon < LEAST_EPSILON:
        raise ConfigError(
            f"epsilon must be at least {LEAST_EPSILON:g}, not {epsilon!r}. Less means "
            "nothing but noise."
        )


def check_clip(clip: float) -> None:
    positive(clip=clip)
    in_range(LEAST_CLIP, MOST_CLIP, clip=clip)


@dataclass(frozen=True, kw_only=True)
class LocalMechanism:
    """One use, for each of whom it reports on, is ε-LDP."""

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def event(self) -> DpEvent:
        return PureDp(self.epsilon)


@dataclass(frozen=True, kw_only=True)
class MeanMechanism(LocalMechanism):
    """A vector in [−clip, clip]^d: values outside are clipped, a non-finite update
    counts as zero (`cohort`).
    """

    dims: int
    clip: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(dims=self.dims)
        check_clip(self.clip)

    def claims(
        self,
        values: Tensor,
        indices: Tensor,
        scale: float,
    ) -> Report:
        values = values.to(torch.float32)
        indices = indices.to(torch.int32)
        return Report(
            dims=self.dims,
            values=values,
            indices=indices,
            scale=scale,
        )


def cohort(updates: Tensor, dims: int | None = None) -> Tensor:
    """The updates that a mechanism works on: one a row, and finite.

    Guarantee: an update that holds a value that is not finite counts as zero in all its
    values, whoever else is in the cohort. So every update has a report, of the same law
    as that of some finite one: to refuse it, or to let it spoil a comparison or a cast,
    would tell of the rows that made it.
    Edges: another shape, or no floats → ValueError before anything is drawn; these
    follow from settings alone.
    """
    if (
        updates.ndim != 2
        or not updates.is_floating_point()
        or updates.shape[1] != (dims or updates.shape[1])
    ):
        wanted = f"(clients, {dims or 'dims'}) of floats"
        raise ValueError(
            f"updates must be {wanted}, not {tuple(updates.shape)} of {updates.dtype}."
        )
    on_host = updates.device.type == "cpu"  # a GPU's would wait for the answer
    if not updates.numel() or (
        on_host and all(map(math.isfinite, map(float, torch.aminmax(updates))))
    ):
        return updates
    return updates.where(updates.isfinite().all(1, keepdim=True), 0)


def within(values: Tensor, clip: float) -> Tensor:
    """Finite values as shares of `clip`, in [−1, 1]: float64, in which no quotient of a
    float32 is 0/0.
    """
    return (values.to(torch.float64) / clip).clamp_(-1, 1)


def chunks(updates: Tensor, values: int = _CHUNK) -> Iterator[slice]:
    """The cohort's rows in runs small enough to hold a few copies of. No rows → one
    empty run.
    """
    step = max(1, values // updates.shape[1])
    return (
        slice(start, start + step) for start in range(0, max(len(updates), 1), step)
    )


def fine(
    rng: Rng,
    *shape: int,
    device: Device,
) -> Tensor:
    """Uniform in [0, 1] with 106 random bits: `fine < p` is true with probability p
    also where p is tiny. With 53 bits, what should happen once in e³⁶ draws never
    happens, and its absence tells.
    """
    return rng.uniform(*shape, device=device).add_(
        rng.uniform(*shape, device=device),
        alpha=2**-53,
    )


def categorical(
    law: Tensor,
    n: int,
    rng: Rng,
    device: Device,
) -> Tensor:
    """n draws from {0, …, len(law) − 1} with the probabilities `law` (float64): (n,).
    The smallest probabilities lie next to 0, where floats are dense, so that each holds
    to a relative len(law) · 2⁻⁵²; only those near 2⁻¹⁰⁶ do not.
    """
    order = law.argsort(stable=True)
    # what lies above the last step is the likeliest outcome
    steps = law[order].cumsum(0)[:-1].to(device)
    return order.to(device)[
        torch.searchsorted(steps, fine(rng, n, device=device), right=True)
    ]


def repeats(picks: Tensor) -> Tensor:
    """True where an entry equals an earlier one of its row."""
    ordered, order = picks.sort(dim=1, stable=True)
    equals_previous = ordered[:, 1:] == ordered[:, :-1]
    repeated = torch.zeros_like(picks, dtype=torch.bool)
    return repeated.scatter_(1, order[:, 1:], equals_previous)


def distinct(
    rng: Rng,
    high: int,
    rows: int,
    size: int,
    device: Device,
) -> Tensor:
    """`size` of {0, …, high − 1} for every row, without repetition, in random order:
    (rows, size).
    """
    picks = rng.integers(high, rows, size, device=device)
    while (repeated := repeats(picks)).any():
        n_repeated = int(repeated.sum())
        picks[repeated] = rng.integers(high, n_repeated, device=device)
    return picks


def subset(
    rng: Rng,
    high: int,
    rows: int,
    size: int,
    device: Device,
) -> Tensor:
    """The same for a large `size`, in ascending order: time and memory grow with
    `high`, not with its sort. Each pass throws as many darts as places are missing, so
    a row never gets one too many.
    """
    fewer = min(size, high - size)
    hit = torch.zeros(
        rows,
        high,
        dtype=torch.bool,
        device=device,
    )
    flat = hit.view(-1)
    counted = hit.view(torch.uint8)
    every_row = torch.arange(rows, device=device)
    while (missing := fewer - counted.sum(1, dtype=torch.int32)).any():
        row = every_row.repeat_interleave(missing)
        darts = rng.integers(high, len(row), device=device)
        flat[row * high + darts] = True
    inside = hit if size == fewer else ~hit
    return inside.nonzero()[:, 1].view(rows, size)


@dataclass(frozen=True)
class TopSets:
    """The top-k set of every row, by its smaller side: the top set itself, or all
    others if those are fewer. Edges: ties at the border fall to either side, but
    exactly k indices are in.
    """

    smaller: Tensor  # (n, min(k, d − k)) indices
    in_smaller: Tensor  # (n, d)
    smaller_is_top: bool

    @classmethod
    def from_scores(cls, scores: Tensor, top: int) -> "TopSets":
        dims = scores.shape[1]
        size = min(top, dims - top)
        smaller_is_top = 2 * top <= dims
        _, smaller = scores.topk(
            size,
            dim=1,
            largest=smaller_is_top,
            sorted=False,
        )
        in_smaller = torch.zeros_like(scores, dtype=torch.bool)
        in_smaller.scatter_(1, smaller, True)
        return cls(smaller, in_smaller, smaller_is_top)

    def pick(
        self,
        inside: Tensor,
        rng: Rng,
        *,
        repeat: bool = False,
    ) -> Tensor:
        """An index for each slot of `inside` (n, h): from the row's top set where True,
        else from outside. Guarantee: uniform over all such rows, without an index twice
        unless `repeat`. Edges: the order of a row is that of `inside`: who sends it as
        it is sends `inside` too. Time grows like k ln k as h nears k.
        """
        dims = self.in_smaller.shape[1]
        size = self.smaller.shape[1]
        device = inside.device
        from_smaller = inside == self.smaller_is_top
        picks = torch.empty_like(inside, dtype=torch.int64)
        pending = torch.ones_like(inside)
        while pending.any():
            row = pending.nonzero()[:, 0]
            place = rng.integers(size, len(row), device=device)
            listed = self.smaller[row, place]
            any_index = rng.integers(dims, len(row), device=device)
            picks[pending] = torch.where(from_smaller[pending], listed, any_index)
            pending = ~from_smaller & self.in_smaller.gather(1, picks)
            if not repeat:
                pending |= repeats(picks)
        return picks
