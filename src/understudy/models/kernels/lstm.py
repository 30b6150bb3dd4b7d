"""One LSTM layer for every client of a cohort: plain for autograd, and by hand for
speed.

Hochreiter, Schmidhuber (Neural Computation 1997), with the forget gate of Gers et al.
(2000): c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh(c_t).

The gates lie side by side as o, i, f, g, so that one call multiplies the last three.
Weights are (before, after), with one bias. Tensors are (clients, steps, rows, …):
whatever does not depend on the step before is one product or one call for all, and the
loop over steps keeps one small product and a handful of element-wise calls. tanh x is
2σ(2x) − 1, since PyTorch's σ takes a third of the time of its tanh on a CPU.

On a GPU a pass over 24 steps is some 200 small kernels in tensor operations, and takes
longer to begin them than to compute them. In Triton one program walks the steps of one
client, with its weights and its state in registers. Triton comes with PyTorch's CUDA
builds; where there is none, or what it compiles does not agree with tensor operations
on a small example, these go on.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from understudy.models.kernels.clients import product

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:
    triton = None

_MAX_ROWS = 64  # of a client on a GPU: its state has to fit the registers


def lstm(
    projected: Tensor,
    recurrent: Tensor,
    steps: int,
) -> Tensor:
    """Hidden states (clients, steps, rows, H), from projected inputs (clients, steps,
    or 1 for all, rows, 4H).
    """
    states: list[Tensor] = []
    one_input = projected.shape[1] == 1
    cell = torch.zeros((), dtype=projected.dtype, device=projected.device)
    for step in range(steps):
        gates = projected[:, 0 if one_input else step]
        if states:
            gates = torch.baddbmm(gates, states[-1], recurrent)
        o, i, f, g = gates.chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        state = o.sigmoid() * cell.tanh()
        states.append(state)
    return torch.stack(states, 1)


@dataclass(frozen=True)
class Lstm:
    """The same with a backward pass by hand, in buffers used anew; a client's depend on
    its own tensors alone.
    """

    # (clients, steps, rows, 4H): projected inputs, then gates, then the gradient at
    # both
    gates: Tensor
    states: Tensor  # (clients, steps + 1, rows, H), the first of them 0
    cells: Tensor  # the same
    squashed: Tensor  # (clients, steps, rows, H): tanh of the cells
    slopes: Tensor  # (clients, steps, rows, 4H)

    @classmethod
    def room(
        cls,
        clients: int,
        steps: int,
        rows: int,
        hidden: int,
        like: Tensor,
    ) -> "Lstm":
        gates = (clients, steps, rows, 4 * hidden)
        states = (clients, steps + 1, rows, hidden)
        squashed = (clients, steps, rows, hidden)
        return cls(
            gates=like.new_zeros(gates),
            states=like.new_zeros(states),
            cells=like.new_zeros(states),
            squashed=like.new_zeros(squashed),
            slopes=like.new_zeros(gates),
        )

    @property
    def hidden(self) -> int:
        return self.squashed.shape[-1]

    def forward(self, recurrent: Tensor) -> Tensor:
        """From projected inputs in `gates` to hidden states (clients, steps,
        rows, H).
        """
        if self._fits_a_kernel:
            self.forward_at_once(recurrent)
        else:
            self.forward_in_steps(recurrent)
        return self.states[:, 1:]

    @property
    def _fits_a_kernel(self) -> bool:
        """Whether one GPU kernel serves these buffers: single precision, few rows, 16,
        32 or 64 units.
        """
        if not self.gates.is_cuda or self.gates.dtype != torch.float32:
            return False
        rows = self.squashed.shape[2]
        if rows > _MAX_ROWS or self.hidden not in (16, 32, 64):
            return False
        return _agrees(self.gates.device)

    def forward_at_once(self, recurrent: Tensor) -> None:
        clients, steps, rows, hidden = self.squashed.shape
        _forward[(clients,)](
            self.gates,
            self.states,
            self.cells,
            self.squashed,
            recurrent.contiguous(),
            steps,
            rows,
            H=hidden,
            R=max(16, triton.next_power_of_2(rows)),
        )

    def forward_in_steps(self, recurrent: Tensor) -> None:
        hidden = self.hidden
        # tanh x = 2σ(2x) − 1
        self.gates[..., 3 * hidden :].mul_(2)
        doubled = recurrent.clone()
        doubled[..., 3 * hidden :].mul_(2)
        recurrence = torch.empty_like(self.gates[:, 0])
        for step in range(self.gates.shape[1]):
            gates = self.gates[:, step]
            cell_before = self.cells[:, step]
            cell = self.cells[:, step + 1]
            squashed = self.squashed[:, step]
            if step:
                product(self.states[:, step], doubled, out=recurrence)
                gates.add_(recurrence)
            gates.sigmoid_()
            o, i, f, g = torch.split(gates, hidden, dim=-1)
            g.mul_(2).sub_(1)
            torch.mul(f, cell_before, out=cell)
            cell.addcmul_(i, g)
            torch.mul(cell, 2, out=squashed)
            squashed.sigmoid_().mul_(2).sub_(1)
            torch.mul(o, squashed, out=self.states[:, step + 1])

    def backward(self, to_states: Tensor, recurrent: Tensor) -> Tensor:
        """The gradient at the projected inputs, from that at the hidden states, which
        is used up; `gates` are lost.
        """
        if self._fits_a_kernel:
            self.backward_at_once(to_states, recurrent)
        else:
            self.backward_in_steps(to_states, recurrent)
        return self.gates

    def backward_at_once(self, to_states: Tensor, recurrent: Tensor) -> None:
        clients, steps, rows, hidden = self.squashed.shape
        _backward[(clients,)](
            self.gates,
            to_states.contiguous(),
            self.cells,
            self.squashed,
            recurrent.contiguous(),
            steps,
            rows,
            H=hidden,
            R=max(16, triton.next_power_of_2(rows)),
        )

    def backward_in_steps(self, to_states: Tensor, recurrent: Tensor) -> None:
        clients, steps, rows, hidden = self.squashed.shape
        state_to_cell, forget = self._slopes()
        transposed = recurrent.mT.contiguous()
        recurrence = torch.empty_like(to_states[:, 0])
        to_cell = torch.zeros_like(to_states[:, 0])
        for step in reversed(range(steps)):
            to_state = to_states[:, step]
            to_gates = self.gates[:, step]
            slopes = self.slopes[:, step]
            to_cell.addcmul_(to_state, state_to_cell[:, step])
            torch.mul(to_state, slopes[..., :hidden], out=to_gates[..., :hidden])
            # i, f and g are behind the cell
            cell_slopes = slopes[..., hidden:].view(
                clients,
                rows,
                3,
                hidden,
            )
            to_cell_gates = to_gates[..., hidden:].view(
                clients,
                rows,
                3,
                hidden,
            )
            torch.mul(to_cell[:, :, None], cell_slopes, out=to_cell_gates)
            if step:
                to_cell.mul_(forget[:, step])
                product(to_gates, transposed, out=recurrence)
                to_states[:, step - 1].add_(recurrence)

    def _slopes(self) -> tuple[Tensor, Tensor]:
        """Into `slopes` what each gate's input is multiplied with; returned are the
        same from h to c, and f.
        """
        hidden = self.hidden
        o, i, f, g = torch.split(self.gates, hidden, dim=-1)
        to_o, to_i, to_f, to_g = torch.split(self.slopes, hidden, dim=-1)
        sigmoids = self.gates[..., : 3 * hidden]
        sigmoid_slopes = self.slopes[..., : 3 * hidden]
        # σ′ = σ(1 − σ)
        torch.addcmul(
            sigmoids,
            sigmoids,
            sigmoids,
            value=-1,
            out=sigmoid_slopes,
        )
        to_o.mul_(self.squashed)
        to_i.mul_(g)
        to_f.mul_(self.cells[:, :-1])
        torch.mul(g, g, out=to_g)
        torch.addcmul(
            i,
            i,
            to_g,
            value=-1,
            out=to_g,
        )  # i·(1 − g²)
        scaled = o * self.squashed
        # o·(1 − tanh²)
        state_to_cell = torch.addcmul(
            o,
            scaled,
            self.squashed,
            value=-1,
        )
        return state_to_cell, f.clone()


@cache
def _agrees(device: torch.device) -> bool:
    """Compile both, and hold them against tensor operations."""
    if triton is None:
        return False
    generator = torch.Generator(device).manual_seed(0)
    clients, steps, rows, hidden = 3, 4, 5, 16

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, generator=generator)

    try:
        inputs = draw(clients, steps, rows, 4 * hidden)
        slopes = draw(clients, steps, rows, hidden)
        weights = draw(clients, hidden, 4 * hidden) / 4
        fused = Lstm.room(
            clients,
            steps,
            rows,
            hidden,
            inputs,
        )
        fused.gates.copy_(inputs)
        fused.forward_at_once(weights)
        fused.backward_at_once(slopes.clone(), weights)
        plain = Lstm.room(
            clients,
            steps,
            rows,
            hidden,
            inputs,
        )
        plain.gates.copy_(inputs)
        plain.forward_in_steps(weights)
        plain.backward_in_steps(slopes.clone(), weights)
    except Exception:  # no compiler, an old card: whatever it is, the slower way works
        return False
    same_states = torch.allclose(fused.states, plain.states, atol=1e-4)
    return same_states and torch.allclose(fused.gates, plain.gates, atol=1e-4)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _tanh(x):  # type: ignore[no-untyped-def]
        return 2 * tl.sigmoid(2 * x) - 1

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _forward(  # type: ignore[no-untyped-def]
        gates,
        states,
        cells,
        squashed,
        weights,
        steps,
        rows,
        H: tl.constexpr,
        R: tl.constexpr,
    ):
        client = tl.program_id(0).to(tl.int64)
        row = tl.arange(0, R)[:, None]
        unit = tl.arange(0, H)[None, :]
        real = row < rows
        square = tl.arange(0, H)[:, None] * (4 * H) + unit
        weights += client * 4 * H * H
        w_o = tl.load(weights + square)
        w_i = tl.load(weights + square + H)
        w_f = tl.load(weights + square + 2 * H)
        w_g = tl.load(weights + square + 3 * H)
        gates += client * steps * rows * 4 * H + row * 4 * H + unit
        squashed += client * steps * rows * H + row * H + unit
        states += client * (steps + 1) * rows * H + row * H + unit
        cells += client * (steps + 1) * rows * H + row * H + unit
        h = tl.zeros((R, H), tl.float32)
        c = tl.zeros((R, H), tl.float32)
        for step in range(steps):
            to = gates + step * rows * 4 * H
            o = tl.load(to, mask=real, other=0.0) + tl.dot(
                h,
                w_o,
                input_precision="ieee",
            )
            i = tl.load(to + H, mask=real, other=0.0) + tl.dot(
                h,
                w_i,
                input_precision="ieee",
            )
            f = tl.load(to + 2 * H, mask=real, other=0.0) + tl.dot(
                h,
                w_f,
                input_precision="ieee",
            )
            g = tl.load(to + 3 * H, mask=real, other=0.0) + tl.dot(
                h,
                w_g,
                input_precision="ieee",
            )
            o = tl.sigmoid(o)
            i = tl.sigmoid(i)
            f = tl.sigmoid(f)
            g = _tanh(g)
            c = f * c + i * g
            s = _tanh(c)
            h = o * s
            tl.store(to, o, mask=real)
            tl.store(to + H, i, mask=real)
            tl.store(to + 2 * H, f, mask=real)
            tl.store(to + 3 * H, g, mask=real)
            tl.store(squashed + step * rows * H, s, mask=real)
            tl.store(cells + (step + 1) * rows * H, c, mask=real)
            tl.store(states + (step + 1) * rows * H, h, mask=real)

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _backward(  # type: ignore[no-untyped-def]
        gates,
        to_states,
        cells,
        squashed,
        weights,
        steps,
        rows,
        H: tl.constexpr,
        R: tl.constexpr,
    ):
        client = tl.program_id(0).to(tl.int64)
        row = tl.arange(0, R)[:, None]
        unit = tl.arange(0, H)[None, :]
        real = row < rows
        turned = tl.arange(0, H)[:, None] + unit * (4 * H)  # W of a gate, transposed
        weights += client * 4 * H * H
        w_o = tl.load(weights + turned)
        w_i = tl.load(weights + turned + H)
        w_f = tl.load(weights + turned + 2 * H)
        w_g = tl.load(weights + turned + 3 * H)
        gates += client * steps * rows * 4 * H + row * 4 * H + unit
        squashed += client * steps * rows * H + row * H + unit
        to_states += client * steps * rows * H + row * H + unit
        cells += client * (steps + 1) * rows * H + row * H + unit
        to_h = tl.zeros((R, H), tl.float32)
        to_c = tl.zeros((R, H), tl.float32)
        for back in range(steps):
            step = steps - 1 - back
            to = gates + step * rows * 4 * H
            o = tl.load(to, mask=real, other=0.0)
            i = tl.load(to + H, mask=real, other=0.0)
            f = tl.load(to + 2 * H, mask=real, other=0.0)
            g = tl.load(to + 3 * H, mask=real, other=0.0)
            s = tl.load(squashed + step * rows * H, mask=real, other=0.0)
            before = tl.load(cells + step * rows * H, mask=real, other=0.0)
            to_h += tl.load(to_states + step * rows * H, mask=real, other=0.0)
            to_c += to_h * o * (1 - s * s)
            to_o = to_h * s * o * (1 - o)
            to_i = to_c * g * i * (1 - i)
            to_f = to_c * before * f * (1 - f)
            to_g = to_c * i * (1 - g * g)
            tl.store(to, to_o, mask=real)
            tl.store(to + H, to_i, mask=real)
            tl.store(to + 2 * H, to_f, mask=real)
            tl.store(to + 3 * H, to_g, mask=real)
            to_c *= f
            to_h = tl.dot(to_o, w_o, input_precision="ieee") + tl.dot(
                to_i,
                w_i,
                input_precision="ieee",
            )
            to_h += tl.dot(to_f, w_f, input_precision="ieee") + tl.dot(
                to_g,
                w_g,
                input_precision="ieee",
            )
