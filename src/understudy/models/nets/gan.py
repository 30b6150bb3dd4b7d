"""The networks of the vertical GANs: a generator with one branch per party, and a critic.

Jiang, Zhang, Zhou, Grossklags, "Distributed GAN-based privacy-preserving publication of vertically-
partitioned data" (PoPETs 2023(2)), §5.2, §6.1.1, §7.2, Table 2.
Paper → code: G⁰ → `common`, Gⁱ → `branches`, Dⁱ → `Critic`, one-hot dimension → width.
Differs from the paper: the critic's output is linear, not between 0 and 1, as the Wasserstein loss wants.

Sizes: Table 2 gives numbers of parameters, not sizes. One hidden layer of half the width, or 0.35 of it above
a width of 1,000, gives the critics' twelve numbers exactly. No rule that we found gives the generators';
`paper_sizes` (latent: a third of the widest party; two common layers of 0.75, or 0.35, of it; a branch's
hidden layer as its critic's) meets them within 1.4 % (Twitter −1.39 %, Web +1.38 %, Dilbert +0.04 %).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.ground.check import in_range, one_of, whole
from understudy.ground.errors import ConfigError
from understudy.ground.padding import padded, pays
from understudy.models.device import shapes_only
from understudy.models.nets.image_gan import CHANNELS, image_branch

_WIDE = 1_000  # Table 2 halves the width up to 566 and takes 0.35 of it from 1,500 on
_MOST_PARAMETERS = 1 << 28  # 1 GiB: a description from elsewhere cannot ask for more


def critic_hidden(width: int) -> int:
    """The size of a critic's hidden layer (Table 2)."""
    return math.ceil(width / 2) if width <= _WIDE else math.ceil(width * 35 / 100)


def paper_sizes(widths: Sequence[int]) -> tuple[int, tuple[int, int]]:
    """The generator's latent size and common layers for parties of these widths (near Table 2)."""
    widest = max(widths)
    common = math.ceil(widest * (75 if widest <= _WIDE else 35) / 100)
    return math.ceil(widest / 3), (common, common)


@dataclass(frozen=True)
class Values:
    """What a branch ends in where a party holds no levels but numbers in [0, 1]: series, or an image's pixels."""

    shape: tuple[int, ...]
    image: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        for side in self.shape:
            whole(side=side)
        if not self.shape or (self.image and len(self.shape) != 2):
            raise ConfigError(f"an image has a height and a width, and anything a side, not {self.shape}.")

    @property
    def width(self) -> int:
        return math.prod(self.shape)


Output = Sequence[int] | Values  # one-hot blocks of these sizes, or values


class BranchedGenerator(nn.Module):
    """Common layers, then a branch for each party that ends in one softmax per attribute, or in values.

    `branches` maps a party to its hidden sizes (an image's: channels) and to the sizes of its attributes' one-hot
    blocks, or to its `Values`.
    """

    def __init__(
        self,
        latent: int,
        common: Sequence[int],
        branches: Mapping[str, tuple[Sequence[int], Output]],
    ) -> None:
        super().__init__()
        self.latent, self.sizes = latent, tuple(common)
        self.parties = {
            name: (tuple(hidden), output if isinstance(output, Values) else tuple(output))
            for name, (hidden, output) in branches.items()
        }
        self._check()
        self.common = _stack(latent, *self.sizes)
        shared = (latent, *self.sizes)[-1]
        # A list, not a dict: a party may have any name, a submodule may not.
        self.branches = nn.ModuleList(
            _branch(shared, hidden, output) for hidden, output in self.parties.values()
        )

    @classmethod
    def for_parties(
        cls,
        outputs: Mapping[str, Output],
        *,
        latent: int | None = None,
        common: Sequence[int] | None = None,
    ) -> "BranchedGenerator":
        """A generator for parties with these blocks or values, in the paper's sizes where none are given."""
        widths = [width_of(output) for output in outputs.values()]
        if not widths or min(widths) < 1:
            raise ConfigError(f"every party needs a column; the parties' widths are {widths}.")
        usual = paper_sizes(widths)
        branches = {name: (_usual_hidden(output), output) for name, output in outputs.items()}
        return cls(usual[0] if latent is None else latent, usual[1] if common is None else common, branches)

    @property
    def widths(self) -> dict[str, int]:
        """Each party's width: of its one-hot blocks, or of its values."""
        return {name: width_of(output) for name, (_, output) in self.parties.items()}

    def forward(self, z: Tensor) -> dict[str, Tensor]:
        """Latent points (n, latent) → for each party, probabilities or values (n, width)."""
        shared = self.common(z)
        return {name: branch(shared) for name, branch in zip(self.parties, self.branches, strict=True)}

    def rows(self, z: Tensor) -> Tensor:
        """All parties' outputs side by side, in the order of the parties: (n, total width)."""
        return torch.cat(list(self(z).values()), 1)

    def branch(self, name: str, z: Tensor) -> Tensor:
        """One party's output (n, width), without the work of the others."""
        rows: Tensor = self.branches[self._place(name)](self.common(z))
        return rows

    def party_parameters(self, name: str) -> dict[str, nn.Parameter]:
        """The common layers and this party's branch, all that the party downloads (§7.2).

        The parameters themselves, under the names and in the order of the network that
        `from_description(describe(only=name))` builds.
        """
        branch = self.branches[self._place(name)]
        return {f"common.{key}": value for key, value in self.common.named_parameters()} | {
            f"branches.0.{key}": value for key, value in branch.named_parameters()
        }

    def describe(self, *, only: str | None = None) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network, or `only` one party's part."""
        names = list(self.parties) if only is None else [list(self.parties)[self._place(only)]]
        branches = [
            {"party": name, "hidden": list(hidden), **_described(output)}
            for name, (hidden, output) in ((name, self.parties[name]) for name in names)
        ]
        return {"kind": "branched", "latent": self.latent, "common": list(self.sizes), "branches": branches}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "BranchedGenerator":
        """The network that `describe` described, with fresh weights. ConfigError for anything else."""
        try:
            kind, latent, common, parts = (
                description[key] for key in ("kind", "latent", "common", "branches")
            )
            branches = {part["party"]: (tuple(part["hidden"]), _output(part)) for part in parts}
        except (KeyError, TypeError) as error:
            raise ConfigError(f"this describes no branched generator: {error!r}.") from None
        if kind != "branched" or len(branches) != len(parts) or not isinstance(common, list | tuple):
            raise ConfigError(f"this describes no branched generator: kind {kind!r}, {len(parts)} branches.")
        return cls(latent, common, branches)

    def _place(self, name: str) -> int:
        one_of(self.parties, party=name)
        return list(self.parties).index(name)

    def _check(self) -> None:
        """Every size is a whole number, and together they stay within reason."""
        whole(latent=self.latent, parties=len(self.parties))
        for size in self.sizes:
            whole(common=size)
        sizes = (self.latent, *self.sizes)
        parameters = sum(a * b for a, b in pairwise(sizes))
        for name, (hidden, output) in self.parties.items():
            blocks = () if isinstance(output, Values) else output
            whole(**{f"columns of {name}": width_of(output) and len(blocks or (1,))})
            for size in (*hidden, *blocks):
                whole(**{f"sizes of {name}": size})
            parameters += sum(a * b for a, b in pairwise((sizes[-1], *hidden, width_of(output))))
        if parameters > _MOST_PARAMETERS:
            raise ConfigError(f"a generator of {parameters:,} weights is larger than {_MOST_PARAMETERS:,}.")


def width_of(output: Output) -> int:
    """How many numbers a row has."""
    return output.width if isinstance(output, Values) else sum(output)


def _usual_hidden(output: Output) -> tuple[int, ...]:
    image = isinstance(output, Values) and output.image
    return CHANNELS if image else (critic_hidden(width_of(output)),)


def _branch(shared: int, hidden: Sequence[int], output: Output) -> nn.Sequential:
    if isinstance(output, Values) and output.image:
        return image_branch(shared, hidden, output.shape)
    end = nn.Sigmoid() if isinstance(output, Values) else BlockSoftmax(output)
    return nn.Sequential(*_stack(shared, *hidden), Linear((shared, *hidden)[-1], width_of(output)), end)


def _described(output: Output) -> dict[str, Any]:
    if isinstance(output, Values):
        return {"shape": list(output.shape), "image": output.image}
    return {"blocks": list(output)}


def _output(part: Mapping[str, Any]) -> Output:
    return Values(tuple(part["shape"]), part["image"]) if "shape" in part else tuple(part["blocks"])


class Linear(nn.Linear):
    """`nn.Linear`, padded where that pays."""

    def forward(self, x: Tensor) -> Tensor:
        """Rows (…, in) → (…, out)."""
        if not pays(self.weight):
            return super().forward(x)
        bias = padded(self.bias[None], rows=False)[0]
        made = functional.linear(padded(x, rows=False), padded(self.weight), bias)
        return made[..., : self.out_features]


class BlockSoftmax(nn.Module):
    """One softmax per block of columns, in as many operations as there are different block sizes.

    Blocks of one size become one tensor (n, size, blocks), so that a CPU runs along the blocks and not along
    two or three levels (five times faster on 281 binary attributes). No loop over attributes, no sum in
    random order, nothing that depends on values: it can be captured in a CUDA graph.
    """

    order: Tensor
    back: Tensor

    def __init__(self, blocks: Sequence[int]) -> None:
        super().__init__()
        by_size: dict[int, list[int]] = {}
        for start, size in zip(accumulate(blocks, initial=0), blocks, strict=False):
            by_size.setdefault(size, []).append(start)
        self.groups = [(size, len(starts)) for size, starts in by_size.items()]
        order = back = torch.empty(sum(blocks), dtype=torch.int64)
        if not shapes_only():
            columns = [torch.arange(size)[:, None] + torch.tensor(starts) for size, starts in by_size.items()]
            order = torch.cat([group.flatten() for group in columns])
            back = order.argsort()
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("back", back, persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        rows = [part.softmax(1).flatten(1) for part in self._grouped(logits)]
        return torch.cat(rows, 1).index_select(1, self.back)

    def slope(self, odds: Tensor, slope: Tensor) -> Tensor:
        """The gradient in the logits of what has this one in the `odds` that they gave, all (n, width).

        Guarantee: that of `torch.autograd.grad`, bit for bit, without its graph.
        """
        pairs = zip(self._grouped(odds), self._grouped(slope), strict=True)
        rows = [torch._softmax_backward_data(own, part, 1, part.dtype).flatten(1) for part, own in pairs]
        return torch.cat(rows, 1).index_select(1, self.back)

    def _grouped(self, rows: Tensor) -> list[Tensor]:
        """(n, width) → the blocks of each size, (n, size, blocks)."""
        n, lengths = len(rows), [size * count for size, count in self.groups]
        parts = torch.split(rows.index_select(1, self.order), lengths, 1)
        return [part.reshape(n, *group) for part, group in zip(parts, self.groups, strict=True)]


class Critic(nn.Module):
    """Scores rows: linear layers with leaky ReLUs between them, and a linear output.

    Piecewise linear, so that `privacy/gradients/critic.py` has each person's gradient in closed form.
    """

    def __init__(self, width: int, hidden: Sequence[int] | None = None, *, slope: float = 0.2) -> None:
        super().__init__()
        whole(width=width)
        in_range(0, 1, slope=slope)
        sizes = (critic_hidden(width),) if hidden is None else tuple(hidden)
        for size in sizes:
            whole(hidden=size)
        self.width, self.hidden, self.slope = width, sizes, slope
        self.linears = nn.ModuleList(Linear(a, b) for a, b in pairwise((width, *sizes, 1)))

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights (out, in) and biases (out,) of each layer, first to last."""
        return [(linear.weight, linear.bias) for linear in self._linears()]

    def forward(self, x: Tensor) -> Tensor:
        """Rows (n, width) → scores (n,)."""
        *first, last = self._linears()
        for linear in first:
            x = functional.leaky_relu(linear(x), self.slope)
        scores: Tensor = last(x).squeeze(1)
        return scores

    def _linears(self) -> list[Linear]:
        return [linear for linear in self.linears if isinstance(linear, Linear)]


def _stack(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes, a ReLU after each."""
    return nn.Sequential(*(layer for a, b in pairwise(sizes) for layer in (Linear(a, b), nn.ReLU())))
