"""Adam, which trains most networks and all mixtures here.

Kingma and Ba, "Adam" (ICLR 2015), Algorithm 1. By PyTorch's own kernel, but not by `torch.optim`: the first optimiser
made there loads PyTorch's compiler, which takes two seconds, and each step spends more on bookkeeping than on numbers.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_TINY = 1e-8  # as in torch.optim


def along(outputs: Iterable[Tensor], slopes: Iterable[Tensor]) -> Tensor:
    """A sum that has these slopes at these outputs, for `torch.autograd.grad`.

    Guarantee: slopes go back bit for bit, as if they were given to `grad` themselves. That would load half of PyTorch's
    compiler, which takes half a second.
    """
    pairs = zip(outputs, slopes, strict=True)
    return torch.stack([output.flatten() @ slope.flatten() for output, slope in pairs]).sum()


class Adam:
    """Descend along the mean of the gradients so far, divided by the root of their mean square.

    Guarantee: the steps of `torch.optim.Adam(…, fused=True)`, bit for bit; one kernel a step, which asks the host for
    no value, so that a captured graph can hold it.
    Edges: `lr` may be set anew between steps; a parameter that is not dense in memory → ValueError.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        self.lr, self._betas = lr, betas
        self._parameters = [parameter.detach() for parameter in parameters]
        if not all(parameter.is_contiguous() for parameter in self._parameters):
            raise ValueError("Adam steps in place, through memory: a parameter is not contiguous.")
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros((), device=parameter.device) for parameter in self._parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Descend along the parameters' gradients, in their order."""
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self._parameters, [gradient.contiguous() for gradient in gradients], self._means, self._squares, [],
            self._steps, lr=self.lr, beta1=self._betas[0], beta2=self._betas[1], eps=_TINY,
            weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip
