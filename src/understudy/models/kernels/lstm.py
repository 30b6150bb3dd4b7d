"""One LSTM layer for every client of a cohort: plain for autograd, and by hand for speed.

Hochreiter, Schmidhuber (Neural Computation 1997), with the forget gate of Gers et al. (2000): c_t = f ⊙ c_{t−1} + i ⊙
g, h_t = o ⊙ tanh(c_t).

The gates lie side by side as o, i, f, g, so that one call multiplies the last three. Weights are (before, after), with
one bias. Tensors are (clients, steps, rows, …): whatever does not depend on the step before is one product or one call
for all, and the loop over steps keeps one small product and a handful of element-wise calls. tanh x is 2σ(2x) − 1,
since PyTorch's σ takes a third of the time of its tanh on a CPU. On a GPU all steps are one kernel (`lstm_gpu`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.models.kernels import lstm_gpu
from understudy.models.kernels.clients import product


def lstm(projected: Tensor, recurrent: Tensor, steps: int) -> Tensor:
    """Hidden states (clients, steps, rows, H), from projected inputs (clients, steps, or 1 for all, rows, 4H)."""
    states: list[Tensor] = []
    cell = torch.zeros((), dtype=projected.dtype, device=projected.device)
    for step in range(steps):
        gates = projected[:, step if projected.shape[1] > 1 else 0]
        if states:
            gates = torch.baddbmm(gates, states[-1], recurrent)
        o, i, f, g = gates.chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        states.append(o.sigmoid() * cell.tanh())
    return torch.stack(states, 1)


@dataclass(frozen=True)
class Lstm:
    """The same with a backward pass by hand, in buffers used anew; a client's depend on its own tensors alone."""

    gates: Tensor  # (clients, steps, rows, 4H): projected inputs, then gates, then the gradient at both
    states: Tensor  # (clients, steps + 1, rows, H), the first of them 0
    cells: Tensor  # the same
    squashed: Tensor  # (clients, steps, rows, H): tanh of the cells
    slopes: Tensor  # (clients, steps, rows, 4H)

    @classmethod
    def room(cls, clients: int, steps: int, rows: int, hidden: int, like: Tensor) -> "Lstm":
        new = like.new_zeros
        return cls(
            new(clients, steps, rows, 4 * hidden),
            new(clients, steps + 1, rows, hidden),
            new(clients, steps + 1, rows, hidden),
            new(clients, steps, rows, hidden),
            new(clients, steps, rows, 4 * hidden),
        )

    @property
    def hidden(self) -> int:
        return self.squashed.shape[-1]

    def forward(self, recurrent: Tensor) -> Tensor:
        """From projected inputs in `gates` to hidden states (clients, steps, rows, H)."""
        if lstm_gpu.fits(self):
            lstm_gpu.forward(self, recurrent)
        else:
            self.forward_in_steps(recurrent)
        return self.states[:, 1:]

    def forward_in_steps(self, recurrent: Tensor) -> None:
        hidden, last = self.hidden, self.gates[..., 3 * self.hidden :]
        last.mul_(2)
        doubled = recurrent.clone()
        doubled[..., 3 * hidden :].mul_(2)
        add = torch.empty_like(self.gates[:, 0])
        for step in range(self.gates.shape[1]):
            gates, cell, squashed = self.gates[:, step], self.cells[:, step + 1], self.squashed[:, step]
            if step:
                gates.add_(product(self.states[:, step], doubled, out=add))
            o, i, f, g = torch.split(gates.sigmoid_(), hidden, dim=-1)
            g.mul_(2).sub_(1)
            torch.mul(f, self.cells[:, step], out=cell).addcmul_(i, g)
            torch.mul(cell, 2, out=squashed).sigmoid_().mul_(2).sub_(1)
            torch.mul(o, squashed, out=self.states[:, step + 1])

    def backward(self, to_states: Tensor, recurrent: Tensor) -> Tensor:
        """The gradient at the projected inputs, from that at the hidden states, which is used up; `gates` are lost."""
        if lstm_gpu.fits(self):
            lstm_gpu.backward(self, to_states, recurrent)
        else:
            self.backward_in_steps(to_states, recurrent)
        return self.gates

    def backward_in_steps(self, to_states: Tensor, recurrent: Tensor) -> None:
        hidden = self.hidden
        through, kept = self._slopes()
        back = recurrent.mT.contiguous()
        add, to_cell = torch.empty_like(to_states[:, 0]), torch.zeros_like(to_states[:, 0])
        for step in range(self.gates.shape[1] - 1, -1, -1):
            to_state, to_gates, slopes = to_states[:, step], self.gates[:, step], self.slopes[:, step]
            to_cell.addcmul_(to_state, through[:, step])
            torch.mul(to_state, slopes[..., :hidden], out=to_gates[..., :hidden])
            three = (part[..., hidden:].view(*to_cell.shape[:2], 3, hidden) for part in (slopes, to_gates))
            torch.mul(to_cell[:, :, None], next(three), out=next(three))
            if step:
                to_cell.mul_(kept[:, step])
                to_states[:, step - 1].add_(product(to_gates, back, out=add))

    def _slopes(self) -> tuple[Tensor, Tensor]:
        """Into `slopes`: what each gate's input is multiplied with, given the gradient at h (for o) or c (for i, f, g).
        Returned are the same from h to c, and f, from one cell to the next.
        """
        hidden = self.hidden
        o, i, f, g = torch.split(self.gates, hidden, dim=-1)
        to_o, to_i, to_f, to_g = torch.split(self.slopes, hidden, dim=-1)
        sigmoids = self.gates[..., : 3 * hidden]
        # σ′ = σ(1 − σ)
        torch.addcmul(sigmoids, sigmoids, sigmoids, value=-1, out=self.slopes[..., : 3 * hidden])
        to_o.mul_(self.squashed)
        to_i.mul_(g)
        to_f.mul_(self.cells[:, :-1])
        torch.mul(g, g, out=to_g)
        torch.addcmul(i, i, to_g, value=-1, out=to_g)  # i·(1 − g²)
        through = torch.addcmul(o, o * self.squashed, self.squashed, value=-1)  # o·(1 − tanh²)
        return through, f.clone()
