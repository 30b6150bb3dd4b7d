"""All steps of every client's LSTM layer as one GPU kernel each way: `lstm.py` in Triton.

In tensor operations a pass over 24 steps is some 200 small kernels, and a GPU takes longer to begin them than to
compute them. Here one program walks the steps of one client, with its weights and its state in registers: ten epochs of
a client in a cohort of 50 take .14 ms of an H200, and .46 ms without (benchmarks/fed_stdg). Triton comes with PyTorch's
CUDA builds; where there is none, or what it compiles does not agree with `lstm.py` on a small example, tensor
operations go on.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:
    triton = None

_MOST_ROWS = 64  # of a client: its state has to fit the registers


def fits(room: Any) -> bool:
    """Whether the kernels serve these buffers: on a GPU, single precision, few rows, 16, 32 or 64 units."""
    gates, (rows, hidden) = room.gates, room.squashed.shape[2:]
    small = rows <= _MOST_ROWS and hidden in (16, 32, 64)
    return gates.is_cuda and gates.dtype == torch.float32 and small and _agrees(room.__class__, gates.device)


def forward(room: Any, recurrent: Tensor) -> None:
    """From projected inputs in `gates` to gates, cells, their tanh, and states."""
    clients, steps, rows, hidden = room.squashed.shape
    _forward[(clients,)](
        room.gates, room.states, room.cells, room.squashed, recurrent.contiguous(), steps, rows,
        H=hidden, R=max(16, triton.next_power_of_2(rows)),
    )  # fmt: skip


def backward(room: Any, to_states: Tensor, recurrent: Tensor) -> None:
    """From the gradient at the states to that at the projected inputs, which takes the place of the gates."""
    clients, steps, rows, hidden = room.squashed.shape
    _backward[(clients,)](
        room.gates, to_states.contiguous(), room.cells, room.squashed, recurrent.contiguous(), steps, rows,
        H=hidden, R=max(16, triton.next_power_of_2(rows)),
    )  # fmt: skip


@cache
def _agrees(kind: Any, device: torch.device) -> bool:
    """Compile both, and hold them against tensor operations."""
    if triton is None:
        return False
    draws = torch.Generator(device).manual_seed(0)

    def results(go: Callable[[Any, Tensor], Any], back: Callable[[Any, Tensor, Tensor], Any]) -> list[Tensor]:
        room = kind.room(3, 4, 5, 16, torch.empty(0, device=device))
        room.gates.copy_(inputs)
        go(room, weights)
        states = room.states[:, 1:].clone()
        back(room, slopes.clone(), weights)
        return [states, room.gates]

    try:
        inputs, slopes = (torch.randn(3, 4, 5, n, device=device, generator=draws) for n in (64, 16))
        weights = torch.randn(3, 16, 64, device=device, generator=draws) / 4
        ours = results(forward, backward)
        theirs = results(kind.forward_in_steps, kind.backward_in_steps)
    except Exception:  # no compiler, an old card: whatever it is, the slower way works
        return False
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _tanh(x):  # type: ignore[no-untyped-def]
        return 2 * tl.sigmoid(2 * x) - 1

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _forward(gates, states, cells, squashed, weights, steps, rows, H: tl.constexpr, R: tl.constexpr):  # type: ignore[no-untyped-def]
        client = tl.program_id(0).to(tl.int64)
        row, unit = tl.arange(0, R)[:, None], tl.arange(0, H)[None, :]
        real = row < rows
        square = tl.arange(0, H)[:, None] * (4 * H) + unit
        weights += client * 4 * H * H
        w_o, w_i = tl.load(weights + square), tl.load(weights + square + H)
        w_f, w_g = tl.load(weights + square + 2 * H), tl.load(weights + square + 3 * H)
        gates += client * steps * rows * 4 * H + row * 4 * H + unit
        squashed += client * steps * rows * H + row * H + unit
        states += client * (steps + 1) * rows * H + row * H + unit
        cells += client * (steps + 1) * rows * H + row * H + unit
        h, c = tl.zeros((R, H), tl.float32), tl.zeros((R, H), tl.float32)
        for step in range(steps):
            to = gates + step * rows * 4 * H
            o = tl.load(to, mask=real, other=0.0) + tl.dot(h, w_o, input_precision="ieee")
            i = tl.load(to + H, mask=real, other=0.0) + tl.dot(h, w_i, input_precision="ieee")
            f = tl.load(to + 2 * H, mask=real, other=0.0) + tl.dot(h, w_f, input_precision="ieee")
            g = tl.load(to + 3 * H, mask=real, other=0.0) + tl.dot(h, w_g, input_precision="ieee")
            o, i, f, g = tl.sigmoid(o), tl.sigmoid(i), tl.sigmoid(f), _tanh(g)
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
    def _backward(gates, to_states, cells, squashed, weights, steps, rows, H: tl.constexpr, R: tl.constexpr):  # type: ignore[no-untyped-def]
        client = tl.program_id(0).to(tl.int64)
        row, unit = tl.arange(0, R)[:, None], tl.arange(0, H)[None, :]
        real = row < rows
        turned = tl.arange(0, H)[:, None] + unit * (4 * H)  # W of a gate, transposed
        weights += client * 4 * H * H
        w_o, w_i = tl.load(weights + turned), tl.load(weights + turned + H)
        w_f, w_g = tl.load(weights + turned + 2 * H), tl.load(weights + turned + 3 * H)
        gates += client * steps * rows * 4 * H + row * 4 * H + unit
        squashed += client * steps * rows * H + row * H + unit
        to_states += client * steps * rows * H + row * H + unit
        cells += client * (steps + 1) * rows * H + row * H + unit
        to_h, to_c = tl.zeros((R, H), tl.float32), tl.zeros((R, H), tl.float32)
        for back in range(steps):
            step = steps - 1 - back
            to = gates + step * rows * 4 * H
            o, i = tl.load(to, mask=real, other=0.0), tl.load(to + H, mask=real, other=0.0)
            f, g = tl.load(to + 2 * H, mask=real, other=0.0), tl.load(to + 3 * H, mask=real, other=0.0)
            s = tl.load(squashed + step * rows * H, mask=real, other=0.0)
            before = tl.load(cells + step * rows * H, mask=real, other=0.0)
            to_h += tl.load(to_states + step * rows * H, mask=real, other=0.0)
            to_c += to_h * o * (1 - s * s)
            to_o, to_i = to_h * s * o * (1 - o), to_c * g * i * (1 - i)
            to_f, to_g = to_c * before * f * (1 - f), to_c * i * (1 - g * g)
            tl.store(to, to_o, mask=real)
            tl.store(to + H, to_i, mask=real)
            tl.store(to + 2 * H, to_f, mask=real)
            tl.store(to + 3 * H, to_g, mask=real)
            to_c *= f
            to_h = tl.dot(to_o, w_o, input_precision="ieee") + tl.dot(to_i, w_i, input_precision="ieee")
            to_h += tl.dot(to_f, w_f, input_precision="ieee") + tl.dot(to_g, w_g, input_precision="ieee")
