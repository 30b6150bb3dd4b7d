"""How exactly matrix products are taken.

PyTorch lets a process ask for float32 products of 10 or 7 bits (`torch.set_float32_matmul_precision`), many scripts do,
and some containers ask by an environment variable. A clipped sum taken that way moves by more than the clipping norm,
so whatever bounds a person's part is computed in `full` precision. What a clipped gradient is computed *from* bears no
guarantee: there `coarse` products are several times as fast on a GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

import torch

from understudy.ground.errors import PrivacyError

_LOCK = RLock()  # the setting is the whole process's: two threads must not undo each other's
_SIDE = 256  # of the products that are tried: large enough for what a library does to large ones
_FINE = 1 + 2**-20  # 1 with fewer bits


@contextmanager
def full(device: torch.device) -> Iterator[None]:
    """Float32 products with all of their 24 bits, whatever the process asked for; afterwards as before.

    Edges: a machine that takes fewer even so (a library's own setting, NVIDIA_TF32_OVERRIDE, DNNL_DEFAULT_FPMATH_MODE)
    → PrivacyError before anything is computed. It is tried once on each device; not while a CUDA graph is captured.
    """
    with _at("highest"):
        capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if not capturing and not _exact(device):
            raise PrivacyError(
                f"Float32 products on {device} have fewer bits than asked for: a clipped sum could move by more "
                "than its bound. Is NVIDIA_TF32_OVERRIDE or DNNL_DEFAULT_FPMATH_MODE set? Nothing was computed."
            )
        yield


@contextmanager
def coarse(worth: bool = True) -> Iterator[None]:
    """Where it is `worth` that, products of factors rounded to 10 bits on a GPU (TF32); `full` goes inside."""
    if not worth:
        yield
        return
    with _at("high"):
        yield


@contextmanager
def _at(precision: str) -> Iterator[None]:
    """Float32 products so throughout the process; afterwards as before."""
    with _LOCK:
        places = _places()
        before, own = _common(), [place.fp32_precision for place in places]
        torch.set_float32_matmul_precision(precision)
        try:
            yield
        finally:
            # where places differed, they go on to do so
            torch.set_float32_matmul_precision(before or "highest")
            for place, value in zip(places, own, strict=True):
                place.fp32_precision = value


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


def _places() -> list[Any]:
    """Where newer versions of PyTorch keep the setting besides."""
    places = (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
    return [place for place in places if hasattr(place, "fp32_precision")]
