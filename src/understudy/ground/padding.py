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
    n_rows, n_columns = matrix.shape[-2:]
    more_columns = -n_columns % _SIDE
    more_rows = -n_rows % _SIDE if rows else 0
    if not more_columns and not more_rows:
        return matrix
    return functional.pad(matrix, (0, more_columns, 0, more_rows))


def pays(weight: Tensor) -> bool:
    return weight.is_cuda and weight.numel() >= _WIDE
