"""Matrices in shapes that a GPU's fast units take.

Tensor cores want rows that begin at multiples of 16 bytes; at widths like 1505 or 527,
of which the GANs' layers are made, products get slow kernels. Zeros up to the next
multiple of eight change no product, and cost one copy.
"""

from torch import Tensor
from torch.nn import functional

_SIDE = 8
# cells of a weight below which its products take no longer than the copies
_WIDE = 1 << 17


def padded(matrix: Tensor, *, rows: bool = True) -> Tensor:
    """The matrix with zeros after its last column, and its last row, up to the next
    multiple of eight.
    """
    over = (0, -matrix.shape[-1] % _SIDE, 0, -matrix.shape[-2] % _SIDE if rows else 0)
    return functional.pad(matrix, over) if any(over) else matrix


def pays(weight: Tensor) -> bool:
    return weight.is_cuda and weight.numel() >= _WIDE
