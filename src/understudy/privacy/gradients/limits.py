"""How large settings, weights and factors may be, so that no clipped sum under- or
overflows.

A server chooses settings and weights; a person's part of a sum must be bounded under
all of them. These ranges are wide enough for anybody who wants to learn something, and
narrow enough for a proof. Float32 reaches from 10⁻³⁸ to 3 · 10³⁸.

1. *One person.* What a person adds is a sum of products c · δ aᵀ with c ≤ 1, or c ≤ 2 ·
   `penalty` / FLAT ≤ 2 · 10¹⁸ in a critic. A person with ‖δ‖ or ‖a‖ above `FACTOR` in
   any layer, or not a number, counts for nothing, by itself: factors are set to 0
   before anything is added up. So ‖δ aᵀ‖ ≤ 10¹⁸, squares of it stay below 10³⁶ in
   float32, and what multiplies them is kept in float64. A square that underflows loses
   at most `TINY` a term; as much is added to a squared norm, so that no norm is ever
   taken too small. Where a scaled factor underflows, the person's part is off by TINY ·
   FACTOR = 10⁻²⁹ an entry, and a `clip_norm` is 10⁻⁶ at least.
2. *The sum.* n people move a sum by n · `clip_norm` ≤ 10⁶ n, and noise adds at most 12
   deviations (no normal drawn from 64 bits is larger) of `noise_multiplier` ·
   `clip_norm` ≤ 10¹⁴: below 10¹⁶ for 10¹⁰ people.
3. *The optimiser.* Squares of that stay below 10³². A step of RMSprop is at most 10 ·
   `learning_rate`, of Adam 16, of plain descent 10¹⁶ (or 10¹⁸ on rows that were made
   up, unclipped) times that; after 10¹² of them weights are below 10¹⁵ in a GAN, and
   after 10⁶ below 10²⁶ in `gen-fl`, whose reports of 10¹⁰ clients then add up to 10³⁶.
   So every private sum, every weight that follows from it, and every answer is finite,
   whatever rows are.

And how exactly products are taken: PyTorch lets a process ask for float32 products of
10 or 7 bits (`torch.set_float32_matmul_precision`), many scripts do, and some
containers ask by an environment variable. A clipped sum taken that way moves by more
than the clipping norm, so whatever bounds a person's part is computed in `full`
precision. What a clipped gradient is computed *from* bears no guarantee: there `coarse`
products are several times as fast on a GPU.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError, Effect, PrivacyError
from understudy.ground.settings import Takes, between, listed, whole_to

FACTOR = 1e9  # the longest factor of a person's gradient in a layer
# what a product loses at most when it underflows, and its sum once more
TINY = 2 * torch.finfo(torch.float32).tiny
WEIGHT = 1e9  # the largest weight that a server may send

# the setting is the whole process's: two threads must not undo each other's
_LOCK = RLock()
# of the products that are tried: large enough for what a library does to large ones
_SIDE = 256
_FINE = 1 + 2**-20  # 1 with fewer bits
_LAYERS = 16
_MANY = 1_000_000
RANGES: dict[str, tuple[float, float]] = {
    "clip_norm": (1e-6, 1e6),
    "penalty": (0.0, 1e6),
    "noise_multiplier": (0.0, 1e8),
    "ratio_noise": (1e-3, 1e6),
    "learning_rate": (1e-12, 100.0),
    "gan_learning_rate": (1e-12, 100.0),
    "beta": (1e-9, 1e6),
    "clip": (1e-9, 1e9),
    "rate": (1e-6, 1.0),  # people are drawn with a chance that is exact to 2⁻⁵³
    "coupling_weight": (1e-9, 1e6),
    "slope": (0.0, 1.0),
}
WHOLE: dict[str, int] = {
    "rounds": _MANY,
    "critic_steps": _MANY,
    "steps": _MANY,
    "gan_steps": _MANY,
    "warm_up": _MANY,
    "batch": 1 << 24,
    "rows": 1 << 24,
    "checkpoint_every": _MANY,
    "evaluate_every": _MANY,
    "teachers": 1 << 24,  # votes are counted exactly in float32
    "top": 1 << 16,
    "latent": 1 << 16,
    "hidden": 1 << 16,
    "gan_hidden": 1 << 16,
    "common": 1 << 16,
    "critic_hidden": 1 << 16,
    "channels": 1 << 12,
}


def honest(**settings: float) -> None:
    """Refuse a setting outside the range in which the proof above holds. ConfigError
    names it and the range.
    """
    for name, value in settings.items():
        if name in RANGES:
            in_range(*RANGES[name], **{name: value})
        else:
            whole(**{name: value})  # type: ignore[arg-type]
            in_range(1, WHOLE[name], **{name: value})


def within_limits(name: str) -> Takes:
    """What a setting of this name takes: the range in which the proof above holds."""
    return between(*RANGES[name]) if name in RANGES else whole_to(WHOLE[name])


def honest_layers(**settings: tuple[int, ...]) -> None:
    for name, sizes in settings.items():
        if not 1 <= len(sizes) <= _LAYERS:
            raise ConfigError(
                f"{name} must name 1 to {_LAYERS} layers, not {len(sizes)}."
            )
        for size in sizes:
            honest(**{name: size})


LAYERS = listed("a list of whole numbers of at least 1", honest_layers)


def sound_weights(weights: Tensor, size: int) -> Tensor | None:
    """A server's model, where it is `size` float32 numbers of at most `WEIGHT`; else as
    `sound`.
    """
    fits = weights.dtype == torch.float32 and weights.shape == (size,)
    return sound(weights, WEIGHT) if fits else None


def sound(sent: Tensor, bound: float) -> Tensor | None:
    """What a server sent, where every number of it is finite and at most `bound` in
    size.

    Guarantee: what is returned is so, and nothing of it follows from a row.
    Edges: anything else → None on the host, where all that came over a wire is. On a
    GPU, where only a server of this process can have put it, zeros in place of all: to
    know before it goes on, the host would wait in every round.
    """
    if not sent.numel():
        return sent
    largest = torch.linalg.vector_norm(sent, math.inf)
    if sent.device.type == "cpu":
        # so written, NaN is refused too
        return sent if float(largest) <= bound else None
    return torch.where(largest <= bound, sent, 0)


@contextmanager
def full(device: torch.device) -> Iterator[None]:
    """Float32 products with all of their 24 bits, whatever the process asked for;
    afterwards as before. Edges: a machine that takes fewer even so (a library's own
    setting, NVIDIA_TF32_OVERRIDE, DNNL_DEFAULT_FPMATH_MODE) → PrivacyError before
    anything is computed. It is tried once on each device; not while a CUDA graph is
    captured.
    """
    with _at_precision("highest"):
        capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if not capturing and not _exact(device):
            raise PrivacyError(
                f"Float32 products on {device} have fewer bits than asked for: a "
                "clipped sum could move by more "
                "than its bound. Is NVIDIA_TF32_OVERRIDE or DNNL_DEFAULT_FPMATH_MODE "
                "set?",
                effect=Effect.NOTHING_COMPUTED,
            )
        yield


@contextmanager
def coarse(worth: bool = True) -> Iterator[None]:
    """Where it is `worth` that, products of factors rounded to 10 bits on a GPU (TF32);
    `full` goes inside.
    """
    if not worth:
        yield
        return
    with _at_precision("high"):
        yield


@contextmanager
def _at_precision(precision: str) -> Iterator[None]:
    """Float32 products so throughout the process; afterwards as before."""
    with _LOCK:
        # where newer versions of PyTorch keep the setting besides
        candidates = (
            torch.backends.cuda.matmul,
            getattr(torch.backends.mkldnn, "matmul", None),
        )
        settings: list[Any] = [
            setting for setting in candidates if hasattr(setting, "fp32_precision")
        ]
        previous_common = _common()
        previous = [setting.fp32_precision for setting in settings]
        torch.set_float32_matmul_precision(precision)
        try:
            yield
        finally:
            # where places differed, they go on to do so
            torch.set_float32_matmul_precision(previous_common or "highest")
            for setting, value in zip(settings, previous, strict=True):
                setting.fp32_precision = value


@cache
def _exact(device: torch.device) -> bool:
    """Whether products keep what has more than ten bits."""
    fine = torch.full((_SIDE, _SIDE), _FINE, device=device)
    product = fine @ torch.eye(_SIDE, device=device)
    return bool((product == _FINE).all())


def _common() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set by place, and there is no common value
        return None
