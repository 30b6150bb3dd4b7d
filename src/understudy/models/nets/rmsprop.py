"""RMSprop, the optimiser of both papers' GANs.

By hand, although `torch.optim` has it: the first optimiser made there loads PyTorch's compiler, which takes two seconds
(a fifth of a whole run on a GPU), and in a captured graph it counts its steps.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

DECAY, TINY = 0.99, 1e-8  # as in torch.optim
_LARGE = 1 << 17  # numbers of a parameter


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
        """Descend along the parameters' gradients."""
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
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def load(self, squares: Iterable[Tensor]) -> None:
        """Go on from saved `squares`, in the order of the parameters."""
        for held, saved in zip(self.squares, squares, strict=True):
            held.copy_(saved)


def _large(parameter: Tensor) -> bool:
    return parameter.is_cuda and parameter.numel() >= _LARGE
