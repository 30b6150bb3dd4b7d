"""How exactly matrix products are taken.

PyTorch lets a process ask for float32 products of 10 or 7 bits (`torch.set_float32_matmul_precision`), and many scripts
do. A clipped sum taken that way moves by more than the clipping norm, so whatever bounds a person's part is computed
in `full` precision.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch

_LOCK = RLock()  # the setting is the whole process's: two threads must not undo each other's


@contextmanager
def full() -> Iterator[None]:
    """Float32 products with all of their 24 bits, whatever the process asked for; afterwards as before."""
    with _LOCK:
        places = _places()
        before, own = _common(), [place.fp32_precision for place in places]
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            if before is not None:
                torch.set_float32_matmul_precision(before)
            for place, value in zip(places, own, strict=True):
                place.fp32_precision = value


def _common() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set by place, and there is no common value
        return None


def _places() -> list[Any]:
    """Where newer versions of PyTorch keep the setting besides."""
    places = (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
    return [place for place in places if hasattr(place, "fp32_precision")]
