"""A computation of fixed shape as one CUDA graph.

Local training of a cohort is thousands of kernels that take microseconds each; launching them one by one from Python
takes ten times as long as they do. A graph records them once and launches all of them with one call.
"""

from collections.abc import Callable

import torch
from torch import Tensor


class Replayed:
    """`work(*inputs)`, from tensors to a tensor; on a GPU recorded when shapes come back, and replayed from then on.

    Guarantee: the values of `work`, which must be a function of its inputs alone: it draws nothing, asks the host for
    no value, and keeps nothing between calls.
    Edges: on a CPU, and for shapes seen once only, `work` itself; one graph is kept, that of the last shapes.
    """

    def __init__(self, work: Callable[..., Tensor]) -> None:
        self.work = work
        self._seen: object = None
        self._graph: _Graph | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        if inputs[0].device.type != "cuda":
            return self.work(*inputs)
        form = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if form != self._seen:
            self._seen, self._graph = form, None
            return self.work(*inputs)
        if self._graph is None:
            self._graph = _Graph(self.work, inputs)
        return self._graph(*inputs)


class _Graph:
    def __init__(self, work: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
        self.inputs = tuple(tensor.detach().clone() for tensor in inputs)
        self.graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries allocate on first use, which a capture cannot
                work(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            self.output = work(*self.inputs)

    def __call__(self, *inputs: Tensor) -> Tensor:
        for held, given in zip(self.inputs, inputs, strict=True):
            held.copy_(given)
        self.graph.replay()
        return self.output.clone()
