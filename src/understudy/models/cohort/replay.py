"""A computation of fixed shape as one CUDA graph.

Local training of a cohort is thousands of kernels that take microseconds each; launching them one by one from Python
takes ten times as long as they do. A graph records them once and launches all of them with one call.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_KEPT = 4  # a cohort whose people differ in rows comes in several shapes (`Population.apart`)


class Replayed:
    """`work(*inputs)`, from tensors to a tensor; on a GPU recorded when shapes come back, and replayed from then on.

    Guarantee: the values of `work`, which must be a function of its inputs alone: it draws nothing, asks the host for
    no value, and keeps nothing between calls.
    Edges: on a CPU, and for shapes seen once only, `work` itself; the graphs of the last `_KEPT` shapes are kept.
    """

    def __init__(self, work: Callable[..., Tensor]) -> None:
        self.work = work
        self._graphs: dict[object, _Graph | None] = {}  # None: seen once; the last used is the last here

    def __call__(self, *inputs: Tensor) -> Tensor:
        if inputs[0].device.type != "cuda":
            return self.work(*inputs)
        form = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        known, graph = form in self._graphs, self._graphs.pop(form, None)
        self._graphs[form] = graph = graph or (_Graph(self.work, inputs) if known else None)
        if len(self._graphs) > _KEPT:
            del self._graphs[next(iter(self._graphs))]
        return self.work(*inputs) if graph is None else graph(*inputs)


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
