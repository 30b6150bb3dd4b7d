"""The largest entries of a vector, and where they are: top-k upload (VertiGAN paper, §7.2).

Places go as one bit for each entry of the vector, not as a number for each entry sent: with numbers of 32 bits half of
a gradient takes as many bytes as all of it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.ground.errors import MessageError


def sparsify(vector: Tensor, share: float) -> dict[str, Any]:
    """The largest entries in magnitude, in order of their places; all of them when the share is 1."""
    if share == 1:
        return {"values": vector}
    places = vector.abs().topk(max(1, round(share * vector.numel()))).indices.sort().values
    bits = torch.zeros(-(-vector.numel() // 8) * 8, dtype=torch.uint8, device=vector.device)
    bits[places] = 1
    return {
        "values": vector[places],
        "places": (bits.view(-1, 8) << _shifts(vector)).sum(1, dtype=torch.uint8),
    }


def densify(sparse: Mapping[str, Any], size: int) -> Tensor:
    """The inverse of `sparsify`, with zeros where nothing was sent. Values or places that do not fit → MessageError.

    Places on a GPU came over no wire, and are not looked at: the host would wait for them.
    """
    values: Tensor = sparse["values"]
    if "places" not in sparse:
        if values.numel() != size:
            raise MessageError(f"{values.numel():,} values came for a vector of {size:,}.")
        return values.reshape(size)
    packed: Tensor = sparse["places"]
    if packed.dtype != torch.uint8 or packed.numel() != -(-size // 8):
        raise MessageError(f"the places of values are not those of a vector of {size:,}.")
    bits = ((packed.reshape(-1, 1) >> _shifts(packed)) & 1).bool().flatten()
    on_host = packed.device.type == "cpu"
    if on_host and (bool(bits[size:].any()) or int(bits.sum()) != values.numel()):
        raise MessageError(f"{values.numel():,} values did not come with as many places of {size:,}.")
    return values.new_zeros(size).masked_scatter_(bits[:size], values.flatten())


def _shifts(like: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=like.device)
