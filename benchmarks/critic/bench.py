"""What a private critic step costs, beside a plain one and beside per-person gradients.

    plain     one WGAN-GP critic step by autograd, double backward, nothing private
    private   ours: `private_critic_gradient`, with its noise from `SecureRng`
    vmap      each person's gradient by torch.func, clipped and summed, without noise

The three take turns on the same batch in one process, and the medians are printed: of
the time on the wall, or, where other work shares the machine, of the time on the CPU
(`--clock cpu`, with one thread, since threads that wait for each other count too). Peak
memory is what two steps add to the resident set of a fresh process (Linux alone tells).
`QUICK=1` takes a small batch, leaves memory out and writes nothing unless told to.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import torch
from torch.func import functional_call, grad, vmap

from common.options import options, quick
from common.rows import write
from understudy.models.nets.gan import Critic
from understudy.privacy.gradients.critic import private_critic_gradient
from understudy.privacy.noise.rng import SecureRng

QUICK = quick()
WIDTHS = (137, 562, 1500)
# 1500 → 525: the gradients of 1,000 people are 3.2 GB
WIDEST_VMAP = 137 if QUICK else 562
BATCH, ROUNDS, VMAP_ROUNDS = (100, 5, 2) if QUICK else (1000, 31, 3)
PENALTY = 10.0
CLIP_NORM = 1.0
NOISE = 1.0
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
NAMES = ("plain", "private", "vmap")
FIELDS = (
    "width",
    "hidden",
    "batch",
    "threads",
    "clock",
    *(f"{name}_{unit}" for unit in ("ms", "mb") for name in NAMES),
)

Step = Callable[[], object]


def steps(width: int) -> dict[str, Step]:
    """The three steps on one batch: rows of binary attributes, one-hot, against
    synthetic probabilities.
    """
    torch.manual_seed(0)
    critic = Critic(width)
    rng = SecureRng()
    real = torch.zeros(BATCH, width)
    real[:, 0::2] = torch.randint(2, real[:, 0::2].shape).float()
    real[:, 1::2] = 1 - real[:, 0 : width - 1 : 2]
    fake = torch.rand(BATCH, width)
    mix = torch.rand(BATCH)

    def plain() -> object:
        point = (mix[:, None] * real + (1 - mix[:, None]) * fake).requires_grad_()
        (steep,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
        loss = critic(fake) - critic(real) + PENALTY * (steep.norm(dim=1) - 1) ** 2
        return torch.autograd.grad(
            loss.mean(), list(critic.parameters()), allow_unused=True
        )

    def private() -> object:
        return private_critic_gradient(
            critic.layers,
            real,
            fake,
            mix,
            clip_norm=CLIP_NORM,
            noise_multiplier=NOISE,
            expected_batch=BATCH,
            penalty=PENALTY,
            rng=rng,
        )

    parameters = {name: value.detach() for name, value in critic.named_parameters()}

    def score(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(critic, weights, (x[None],)).squeeze()

    def loss(
        weights: dict[str, torch.Tensor],
        x: torch.Tensor,
        f: torch.Tensor,
        m: torch.Tensor,
    ) -> torch.Tensor:
        steep = grad(score, argnums=1)(weights, m * x + (1 - m) * f)
        return score(weights, f) - score(weights, x) + PENALTY * (steep.norm() - 1) ** 2

    def per_person() -> object:
        each = vmap(grad(loss), in_dims=(None, 0, 0, 0))(parameters, real, fake, mix)
        square = sum(part.flatten(1).square().sum(1) for part in each.values())
        weight = (CLIP_NORM * torch.rsqrt(square)).clamp(max=1)
        return {
            name: torch.tensordot(weight, part, 1) / BATCH
            for name, part in each.items()
        }

    return {"plain": plain, "private": private, "vmap": per_person}


def milliseconds(width: int, clock: Callable[[], float]) -> dict[str, float]:
    """The median time of each step; they take turns, so that a busy machine is busy for
    all.
    """
    todo = steps(width)
    times: dict[str, list[float]] = {name: [] for name in todo}
    for turn in range(ROUNDS + 1):
        for name, step in todo.items():
            if name == "vmap" and (width > WIDEST_VMAP or turn > VMAP_ROUNDS):
                continue
            start = clock()
            step()
            if turn:  # the first turn warms up
                times[name].append(1000 * (clock() - start))
    return {name: statistics.median(taken) for name, taken in times.items() if taken}


def megabytes(width: int, name: str) -> float:
    """The peak of a fresh process above what it held before its first step."""
    command = [sys.executable, __file__, "--peak-of", name, "--width", str(width)]
    return float(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )


def print_peak(width: int, name: str) -> None:
    """Run in a process of its own. `ru_maxrss` would not do: a child inherits its
    parent's.
    """
    step = steps(width)[name]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before = peak()
    step()
    step()
    print(peak() - before)


def peak() -> float:
    """The largest resident set of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return (
        next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    )


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "ours.csv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--peak-of", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    if args.peak_of:
        print_peak(args.width, args.peak_of)
        return
    rows = []
    for width in WIDTHS:
        took = milliseconds(width, CLOCKS[args.clock])
        held = {
            name: megabytes(width, name)
            for name in took
            if sys.platform == "linux" and not QUICK
        }
        row: dict[str, object] = {
            "width": width,
            "hidden": Critic(width).hidden[0],
            "batch": BATCH,
        }
        row |= {"threads": args.threads, "clock": args.clock}
        row |= {f"{name}_ms": round(value, 2) for name, value in took.items()}
        row |= {f"{name}_mb": round(value, 1) for name, value in held.items()}
        rows.append(row)
        vmapped = (
            f", vmap / private {took['vmap'] / took['private']:.1f}"
            if "vmap" in took
            else ""
        )
        print(
            row,
            f"\n    private / plain {took['private'] / took['plain']:.2f}{vmapped}",
            flush=True,
        )
    write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
