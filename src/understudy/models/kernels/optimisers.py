"""Adam, which trains most networks and all mixtures here, and RMSprop, the optimiser of both papers' GANs.

Kingma and Ba, "Adam" (ICLR 2015), Algorithm 1. Not by `torch.optim`: the first optimiser made there loads PyTorch's
compiler, two seconds (a fifth of a whole run on a GPU), and each step spends more on bookkeeping than on numbers.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

DECAY, TINY = 0.99, 1e-8  # as in torch.optim
_LARGE = 1 << 17  # numbers of a parameter


def along(outputs: Iterable[Tensor], slopes: Iterable[Tensor]) -> Tensor:
    """A sum that has these slopes at these outputs, bit for bit, for `torch.autograd.grad` without its compiler."""
    pairs = zip(outputs, slopes, strict=True)
    return torch.stack([output.flatten() @ slope.flatten() for output, slope in pairs]).sum()


class Adam:
    """Descend along the mean of the gradients so far, divided by the root of their mean square.

    Guarantee: the steps of `torch.optim.Adam(…, fused=True)`, bit for bit; one kernel a step, which asks the host for
    no value, so that a captured graph can hold it.
    Edges: `lr` may be set anew between steps; a parameter that is not dense in memory → ValueError.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.lr, self._betas = lr, betas
        self._parameters = [parameter.detach() for parameter in parameters]
        if not all(parameter.is_contiguous() for parameter in self._parameters):
            raise ValueError("Adam steps in place, through memory: a parameter is not contiguous.")
        self._means, self._squares = ([torch.zeros_like(own) for own in self._parameters] for _ in range(2))
        self._steps = [torch.zeros((), device=parameter.device) for parameter in self._parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self._parameters, [gradient.contiguous() for gradient in gradients], self._means, self._squares, [],
            self._steps, lr=self.lr, beta1=self._betas[0], beta2=self._betas[1], eps=TINY,
            weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip


class RmsProp:
    """Divide each parameter's gradient by the root of its running mean square, and descend.

    Guarantee: the steps of `torch.optim.RMSprop` with its usual settings; five kernels a step for all small parameters
    together and for each large one (a kernel for many gives a large one too few of a GPU's units), none of which asks
    the host for a value.
    Edges: a parameter without a gradient → stays as it is; `squares` are written in place only, so that a captured
    graph stays valid.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self.parameters, self.lr = list(parameters), lr
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        moving = [
            (parameter, parameter.grad, square)
            for parameter, square in zip(self.parameters, self.squares, strict=True)
            if parameter.grad is not None
        ]
        for parameter, gradient, square in (each for each in moving if _large(each[0])):
            square.mul_(DECAY).addcmul_(gradient, gradient, value=1 - DECAY)
            parameter.addcdiv_(gradient, square.sqrt().add_(TINY), value=-self.lr)
        small = [each for each in moving if not _large(each[0])]
        if small:
            parameters, gradients, squares = map(list, zip(*small, strict=True))
            torch._foreach_mul_(squares, DECAY)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - DECAY)
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, TINY)
            torch._foreach_addcdiv_(parameters, gradients, roots, -self.lr)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def load(self, squares: Iterable[Tensor]) -> None:
        for held, saved in zip(self.squares, squares, strict=True):
            held.copy_(saved)


def _large(parameter: Tensor) -> bool:
    return parameter.is_cuda and parameter.numel() >= _LARGE
