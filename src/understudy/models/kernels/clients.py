"""Adam and RMSprop; and many clients at once: products of small matrices, descent in
the span of rows, replayed graphs.

Kingma and Ba, "Adam" (ICLR 2015), Algorithm 1; RMSprop is the optimiser of both papers'
GANs. Not by `torch.optim`: the first optimiser made there loads PyTorch's compiler, two
seconds (a fifth of a whole run on a GPU), and each step spends more on bookkeeping than
on numbers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

# as in torch.optim
DECAY = 0.99
TINY = 1e-8
_LARGE = 1 << 17  # numbers of a parameter


def along(outputs: Iterable[Tensor], slopes: Iterable[Tensor]) -> Tensor:
    """A sum that has these slopes at these outputs, bit for bit, for
    `torch.autograd.grad` without its compiler.
    """
    products = []
    for output, slope in zip(outputs, slopes, strict=True):
        products.append(output.flatten() @ slope.flatten())
    return torch.stack(products).sum()


class Adam:
    """Descend along the mean of the gradients so far, divided by the root of their mean
    square.

    Guarantee: the steps of `torch.optim.Adam(…, fused=True)`, bit for bit; one kernel a
    step, which asks the host for no value, so that a captured graph can hold it.
    Edges: `lr` may be set anew between steps; a parameter that is not dense in memory →
    ValueError.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.lr = lr
        self._betas = betas
        self._parameters = [parameter.detach() for parameter in parameters]
        if not all(parameter.is_contiguous() for parameter in self._parameters):
            raise ValueError(
                "Adam steps in place, through memory: a parameter is not contiguous."
            )
        self._means = [torch.zeros_like(own) for own in self._parameters]
        self._squares = [torch.zeros_like(own) for own in self._parameters]
        self._steps = [torch.zeros((), device=own.device) for own in self._parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self._parameters,
            [gradient.contiguous() for gradient in gradients],
            self._means,
            self._squares,
            [],
            self._steps,
            lr=self.lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            eps=TINY,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )


class RmsProp:
    """Divide each parameter's gradient by the root of its running mean square, and
    descend.

    Guarantee: the steps of `torch.optim.RMSprop` with its usual settings; five kernels
    a step for all small parameters together and for each large one (a kernel for many
    gives a large one too few of a GPU's units), none of which asks the host for a
    value.
    Edges: a parameter without a gradient → stays as it is; `squares` are written in
    place only, so that a captured graph stays valid.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self.parameters = list(parameters)
        self.lr = lr
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        parameters = []
        gradients = []
        squares = []
        for parameter, square in zip(self.parameters, self.squares, strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            if _is_large(parameter):
                square.mul_(DECAY)
                square.addcmul_(gradient, gradient, value=1 - DECAY)
                root = square.sqrt().add_(TINY)
                parameter.addcdiv_(gradient, root, value=-self.lr)
                continue
            parameters.append(parameter)
            gradients.append(gradient)
            squares.append(square)
        if parameters:
            torch._foreach_mul_(squares, DECAY)
            torch._foreach_addcmul_(
                squares,
                gradients,
                gradients,
                1 - DECAY,
            )
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, TINY)
            torch._foreach_addcdiv_(
                parameters,
                gradients,
                roots,
                -self.lr,
            )

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def load(self, squares: Iterable[Tensor]) -> None:
        for square, saved in zip(self.squares, squares, strict=True):
            square.copy_(saved)


def _is_large(parameter: Tensor) -> bool:
    return parameter.is_cuda and parameter.numel() >= _LARGE


_MKL = bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
# a cohort whose people differ in rows comes in several shapes (`Population.apart`)
_MAX_GRAPHS = 4


def times_transposed(a: Tensor, b: Tensor) -> Tensor:
    """a·bᵀ for every client: (clients, m, k), (clients, n, k) → (clients, m, n).

    PyTorch on aarch64 hands a product of a plain with a transposed matrix to oneDNN,
    whose set-up takes 55 µs; both plain or both transposed stay in BLAS, at 4 µs, so
    the smaller of the two is laid out anew. MKL needs no help: there that takes 1.5 to
    16 times as long as the product.
    """
    if _MKL:
        return torch.bmm(a, b.mT)
    if a.numel() < b.numel():
        return torch.bmm(a.mT.contiguous().mT, b.mT)
    return torch.bmm(a, b.mT.contiguous())


def product(
    a: Tensor,
    b: Tensor,
    out: Tensor,
) -> Tensor:
    """a·b for every client into `out`, without gradient; NumPy's without MKL: (clients,
    m, k), (clients, k, n).
    """
    if a.device.type == "cpu" and not _MKL:
        np.matmul(a.numpy(), b.numpy(), out=out.numpy())
        return out
    return torch.bmm(a, b, out=out)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """x·Wᵀ + b: `torch.nn.functional.linear` for every client, or for one model without
    the client axis.
    """
    if weight.ndim == 2:
        return functional.linear(x, weight, bias)
    outputs = cast(Tensor, _Linear.apply(x, weight))  # type: ignore[no-untyped-call]
    return outputs + bias.unsqueeze(-2)


class _Linear(torch.autograd.Function):
    """x·Wᵀ whose backward pass also avoids the slow layout, and forms the weights'
    gradient as they lie.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        return times_transposed(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        needs_x, needs_weight = ctx.needs_input_grad
        return (
            torch.bmm(grad, weight) if needs_x else None,
            torch.bmm(grad.mT, x) if needs_weight else None,
        )


def descend_in_span(
    loss: Callable[[Tensor, Tensor], Tensor],
    start: Tensor,
    x: Tensor,
    out: Tensor,
    hidden: int,
    epochs: int,
    lr: float,
) -> None:
    """Write every client's update after `epochs` steps of gradient descent into `out`
    (clients, d).

    `start` begins with the input layer's weight (hidden, features) and bias (hidden,).
    `loss(tail, z)` is a client's, from the flat parameters (clients, …) behind that
    layer and its pre-activations z (clients, rows, hidden).

    A gradient of a linear input layer is δᵀX, with X the client's rows and δ the
    gradient at their pre-activations. So any number of full-batch steps moves the layer
    by ΔW = AᵀX, where A (rows × hidden) sums the steps −η·δ, and the epochs need
    neither weights nor features: Z = X·W₀ᵀ + b₀ + (XXᵀ + 1)·A, with one product X·W₀ᵀ
    for all clients, a small Gram matrix for each, and the 1 for the bias, the weight of
    a constant feature: Δb = Aᵀ1. The dense ΔW is written once, at the end. Exact for
    plain gradient descent; Adam, which scales each weight's step, leaves the span.
    Against `training.descend`: 5.3 times as fast for logistic regression on 784
    features, 3.5 for an MLP, 4.2 on 124.
    """
    clients, _, features = x.shape
    n_weights = hidden * features
    sizes = [n_weights, hidden, len(start) - n_weights - hidden]
    weight, bias, tail_start = torch.split(start, sizes)
    # (clients, rows, hidden)
    z0 = functional.linear(x, weight.view(hidden, features), bias)
    gram = times_transposed(x, x) + 1  # (clients, rows, rows)
    a = torch.zeros_like(z0)
    tail = tail_start.repeat(clients, 1).requires_grad_()
    for _ in range(epochs):
        z = torch.baddbmm(z0, gram, a).requires_grad_()
        with torch.enable_grad():
            total = loss(tail, z).sum()
        grad_z, grad_tail = torch.autograd.grad(
            total,
            (z, tail),
            materialize_grads=True,
        )
        a.sub_(grad_z, alpha=lr)
        tail.data.sub_(grad_tail, alpha=lr)
    weight_update, bias_update, tail_update = torch.split(out, sizes, dim=1)
    torch.bmm(a.mT, x, out=weight_update.view(clients, hidden, features))
    torch.sum(a, dim=1, out=bias_update)
    torch.sub(tail.detach(), tail_start, out=tail_update)


class Replayed:
    """`work(*inputs)`, from tensors to a tensor; on a GPU recorded when shapes come
    back, and replayed from then on.

    Guarantee: the values of `work`, which must be a function of its inputs alone: it
    draws nothing, asks the host for no value, and keeps nothing between calls.
    Edges: on a CPU, and for shapes seen once only, `work` itself; the graphs of the
    last `_MAX_GRAPHS` shapes are kept.
    """

    def __init__(self, work: Callable[..., Tensor]) -> None:
        self.work = work
        # None: seen once; the last used is the last here
        self._graphs: dict[object, _Graph | None] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        if inputs[0].device.type != "cuda":
            return self.work(*inputs)
        form = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        seen_before = form in self._graphs
        graph = self._graphs.pop(form, None)
        if graph is None and seen_before:
            graph = _Graph(self.work, inputs)
        self._graphs[form] = graph
        if len(self._graphs) > _MAX_GRAPHS:
            longest_unused = next(iter(self._graphs))
            del self._graphs[longest_unused]
        if graph is None:
            return self.work(*inputs)
        return graph(*inputs)


def captured(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A graph of what `work` does on the GPU, and where each replay leaves what it
    returns.
    """
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries allocate on first use, which a capture cannot
            work()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        output = work()
    return graph, output


class _Graph:
    def __init__(self, work: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
        self.inputs = tuple(tensor.detach().clone() for tensor in inputs)
        self.graph, self.output = captured(lambda: work(*self.inputs))

    def __call__(self, *inputs: Tensor) -> Tensor:
        for recorded, current in zip(self.inputs, inputs, strict=True):
            recorded.copy_(current)
        self.graph.replay()
        return self.output.clone()
