"""The networks of the vertical GANs: a generator with one branch per party, and critics
of tables and of images.

Jiang, Zhang, Zhou, Grossklags, "Distributed GAN-based privacy-preserving publication of
vertically- partitioned data" (PoPETs 2023(2)), §5.2, §6.1.1, §7.2, Table 2;
convolutions for images are proposed in §7.1.
Paper → code: G⁰ → `common`, Gⁱ → `branches`, Dⁱ → `Critic`, one-hot dimension → width.
Differs from the paper: the critic's output is linear, not between 0 and 1, as the
Wasserstein loss wants. §7.1 gives no sizes: images have the two stride-2 layers of
Radford et al., "DCGAN" (2016), without batch normalisation, which would mix people.

Sizes: Table 2 gives numbers of parameters, not sizes. One hidden layer of half the
width, or 0.35 of it above a width of 1,000, gives the critics' twelve numbers exactly.
No rule that we found gives the generators'; `paper_sizes` (latent: a third of the
widest party; two common layers of 0.75, or 0.35, of it; a branch's hidden layer as its
critic's) meets them within 1.4 % (Twitter −1.39 %, Web +1.38 %, Dilbert +0.04 %).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.ground.check import in_range, one_of, whole
from understudy.ground.errors import ConfigError, MessageError
from understudy.ground.padding import padded, pays
from understudy.models.network import (
    BlockSoftmax,
    Network,
    check_weights,
    each_whole,
    widest,
)

_WIDE = 1_000  # Table 2 halves the width up to 566 and takes 0.35 of it from 1,500 on
# of the generator's branch, coarse to fine; the critic's are the same from fine to
# coarse
CHANNELS = (32, 16)
# kernel, stride and padding: each layer doubles, or halves, both sides
_SCALE = (4, 2, 1)


def image_branch(
    shared: int,
    channels: Sequence[int],
    shape: Sequence[int],
) -> nn.Sequential:
    """Common features (n, shared) → grey values in [0, 1], row by row: (n, height ·
    width).
    """
    coarse, fine = _checked(channels)
    height, width = (-(-side // 4) for side in shape)
    return nn.Sequential(
        nn.Linear(shared, coarse * height * width),
        nn.ReLU(),
        nn.Unflatten(1, (coarse, height, width)),
        nn.ConvTranspose2d(coarse, fine, *_SCALE),
        nn.ReLU(),
        nn.ConvTranspose2d(fine, 1, *_SCALE),
        Cut(shape),
        nn.Sigmoid(),
        nn.Flatten(),
    )


class Cut(nn.Module):
    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.height, self.width = shape

    def forward(self, x: Tensor) -> Tensor:
        return x[..., : self.height, : self.width]


class ImageCritic(nn.Module):
    """Scores grey images: two strided convolutions with leaky ReLUs, and a linear
    output.
    """

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int] = CHANNELS,
        *,
        slope: float = 0.2,
    ) -> None:
        super().__init__()
        coarse, fine = _checked(channels)
        self.shape = tuple(shape)
        self.slope = slope
        # zeros below and to the right, up to a multiple of 4
        self.spare = [-side % 4 for side in shape]
        self.first = nn.Conv2d(1, fine, *_SCALE)
        self.second = nn.Conv2d(fine, coarse, *_SCALE)
        self.last = nn.Linear(coarse * -(-shape[0] // 4) * -(-shape[1] // 4), 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.pad(
            x.view(-1, 1, *self.shape),
            (0, self.spare[1], 0, self.spare[0]),
        )
        for layer in (self.first, self.second):
            x = functional.leaky_relu(layer(x), self.slope)
        scores: Tensor = self.last(x.flatten(1)).squeeze(1)
        return scores


def _checked(channels: Sequence[int]) -> tuple[int, int]:
    if len(channels) != 2:
        raise ConfigError(
            f"an image's network has two layers of channels, not {list(channels)}."
        )
    each_whole(channels=channels)
    return channels[0], channels[1]


def critic_hidden(width: int) -> int:
    """The size of a critic's hidden layer (Table 2)."""
    return math.ceil(width / 2) if width <= _WIDE else math.ceil(width * 35 / 100)


def paper_sizes(widths: Sequence[int]) -> tuple[int, tuple[int, int]]:
    """The generator's latent size and common layers for parties of these widths (near
    Table 2).
    """
    widest = max(widths)
    common = math.ceil(widest * (75 if widest <= _WIDE else 35) / 100)
    return math.ceil(widest / 3), (common, common)


@dataclass(frozen=True)
class Values:
    """What a branch ends in where a party holds no levels but numbers in [0, 1]:
    series, or an image's pixels.
    """

    shape: tuple[int, ...]
    image: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        each_whole(side=self.shape)
        if not self.shape or (self.image and len(self.shape) != 2):
            raise ConfigError(
                "an image has a height and a width, and anything a side, not "
                f"{self.shape}."
            )

    @property
    def width(self) -> int:
        return math.prod(self.shape)


Output = Sequence[int] | Values  # one-hot blocks of these sizes, or values


class BranchedGenerator(Network):
    """Common layers, then a branch for each party: hidden sizes (an image's: channels),
    its blocks or `Values`.
    """

    kind = "branched"

    def __init__(
        self,
        latent: int,
        common: Sequence[int],
        branches: Mapping[str, tuple[Sequence[int], Output]],
    ) -> None:
        super().__init__()
        self.latent = latent
        self.sizes = tuple(common)
        self.parties = {
            name: (
                tuple(hidden),
                output if isinstance(output, Values) else tuple(output),
            )
            for name, (hidden, output) in branches.items()
        }
        self._check()
        self.common = _stack(latent, *self.sizes)
        shared = (latent, *self.sizes)[-1]
        # A list, not a dict: a party may have any name, a submodule may not.
        self.branches = nn.ModuleList(
            _branch(shared, *party) for party in self.parties.values()
        )

    @classmethod
    def for_parties(
        cls,
        outputs: Mapping[str, Output],
        *,
        latent: int | None = None,
        common: Sequence[int] | None = None,
    ) -> "BranchedGenerator":
        """A generator for parties with these blocks or values, in the paper's sizes
        where none are given.
        """
        widths = [width_of(output) for output in outputs.values()]
        if not widths or min(widths) < 1:
            raise ConfigError(
                f"every party needs a column; the parties' widths are {widths}."
            )
        usual = paper_sizes(widths)
        branches = {
            name: (
                CHANNELS
                if getattr(output, "image", False)
                else (critic_hidden(width_of(output)),),
                output,
            )
            for name, output in outputs.items()
        }
        return cls(
            usual[0] if latent is None else latent,
            usual[1] if common is None else common,
            branches,
        )

    @property
    def widths(self) -> dict[str, int]:
        return {name: width_of(output) for name, (_, output) in self.parties.items()}

    @property
    def row_numbers(self) -> int:
        stack = (self.latent, *self.sizes)
        numbers = widest(stack)
        width = 0
        for hidden, output in self.parties.values():
            if not isinstance(output, Values):
                numbers = max(numbers, widest((stack[-1], *hidden, sum(output))))
                width = width + sum(output)
            elif output.image:
                pixels = math.prod(-(-side // 4) for side in output.shape)
                numbers = max(numbers, (3 * hidden[0] + 32 * hidden[1] + 128) * pixels)
            else:
                return super().row_numbers
        return numbers + 2 * width

    def forward(self, z: Tensor) -> dict[str, Tensor]:
        """Latent points (n, latent) → for each party, probabilities or values (n,
        width).
        """
        shared = self.common(z)
        return {
            name: branch(shared)
            for name, branch in zip(self.parties, self.branches, strict=True)
        }

    def rows(self, z: Tensor) -> Tensor:
        """All parties' outputs side by side, in the order of the parties: (n, total
        width).
        """
        return torch.cat(list(self(z).values()), 1)

    def branch(self, name: str, z: Tensor) -> Tensor:
        """One party's output (n, width), without the work of the others."""
        rows: Tensor = self.branches[self._branch_index(name)](self.common(z))
        return rows

    def party_parameters(self, name: str) -> dict[str, nn.Parameter]:
        """All that a party downloads (§7.2): the parameters of the network that
        `describe(only=name)` describes.
        """
        branch = self.branches[self._branch_index(name)]
        modules = {"common": self.common, "branches.0": branch}
        return {
            f"{prefix}.{key}": value
            for prefix, module in modules.items()
            for key, value in module.named_parameters()
        }

    def describe(self, *, only: str | None = None) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network, or `only`
        one party's part.
        """
        names = (
            list(self.parties)
            if only is None
            else [list(self.parties)[self._branch_index(only)]]
        )
        chosen = {name: self.parties[name] for name in names}.items()
        branches = [
            {
                "party": name,
                "hidden": list(hidden),
                **_described(output),
            }
            for name, (hidden, output) in chosen
        ]
        return {
            "kind": "branched",
            "latent": self.latent,
            "common": list(self.sizes),
            "branches": branches,
        }

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        latent, common, parts = (
            description[key] for key in ("latent", "common", "branches")
        )
        branches = {
            part["party"]: (tuple(part["hidden"]), _output(part)) for part in parts
        }
        if len(branches) != len(parts) or not isinstance(common, list | tuple):
            raise TypeError(f"{len(parts)} branches of {len(branches)} parties")
        return {
            "latent": latent,
            "common": common,
            "branches": branches,
        }

    def _branch_index(self, name: str) -> int:
        one_of(self.parties, party=name)
        return list(self.parties).index(name)

    def _check(self) -> None:
        """Every size is a whole number, and together they stay within reason."""
        whole(latent=self.latent, parties=len(self.parties))
        each_whole(common=self.sizes)
        sizes = (self.latent, *self.sizes)
        parameters = sum(a * b for a, b in pairwise(sizes))
        for name, (hidden, output) in self.parties.items():
            blocks = () if isinstance(output, Values) else output
            whole(**{f"columns of {name}": width_of(output) and len(blocks or (1,))})
            each_whole(**{f"sizes of {name}": (*hidden, *blocks)})
            parameters += sum(
                a * b for a, b in pairwise((sizes[-1], *hidden, width_of(output)))
            )
        check_weights("a generator", parameters)


def width_of(output: Output) -> int:
    return output.width if isinstance(output, Values) else sum(output)


def _branch(
    shared: int,
    hidden: Sequence[int],
    output: Output,
) -> nn.Sequential:
    if isinstance(output, Values) and output.image:
        return image_branch(shared, hidden, output.shape)
    end = nn.Sigmoid() if isinstance(output, Values) else BlockSoftmax(output)
    return nn.Sequential(
        *_stack(shared, *hidden),
        Linear((shared, *hidden)[-1], width_of(output)),
        end,
    )


def _described(output: Output) -> dict[str, Any]:
    if isinstance(output, Values):
        return {"shape": list(output.shape), "image": output.image}
    return {"blocks": list(output)}


def _output(part: Mapping[str, Any]) -> Output:
    return (
        Values(tuple(part["shape"]), part["image"])
        if "shape" in part
        else tuple(part["blocks"])
    )


class Linear(nn.Linear):
    """`nn.Linear`, padded where that pays."""

    def forward(self, x: Tensor) -> Tensor:
        if not pays(self.weight):
            return super().forward(x)
        bias = padded(self.bias[None], rows=False)[0]
        output = functional.linear(padded(x, rows=False), padded(self.weight), bias)
        return output[..., : self.out_features]


class Critic(nn.Module):
    """Scores rows: linear layers with leaky ReLUs (gradients in closed form:
    `privacy/gradients/critic.py`).
    """

    def __init__(
        self,
        width: int,
        hidden: Sequence[int] | None = None,
        *,
        slope: float = 0.2,
    ) -> None:
        super().__init__()
        whole(width=width)
        in_range(0, 1, slope=slope)
        sizes = (critic_hidden(width),) if hidden is None else tuple(hidden)
        each_whole(hidden=sizes)
        self.width = width
        self.hidden = sizes
        self.slope = slope
        self.linears = nn.ModuleList(
            Linear(a, b) for a, b in pairwise((width, *sizes, 1))
        )

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        return [(linear.weight, linear.bias) for linear in self._linears()]

    def forward(self, x: Tensor) -> Tensor:
        *first, last = self._linears()
        for linear in first:
            x = functional.leaky_relu(linear(x), self.slope)
        scores: Tensor = last(x).squeeze(1)
        return scores

    def _linears(self) -> list[Linear]:
        return [linear for linear in self.linears if isinstance(linear, Linear)]


def _stack(*sizes: int) -> nn.Sequential:
    return nn.Sequential(
        *(layer for a, b in pairwise(sizes) for layer in (Linear(a, b), nn.ReLU()))
    )


def sparsify(vector: Tensor, share: float) -> dict[str, Any]:
    """The largest entries of a vector, and where, a bit for each entry of it; all of
    them for a share of 1 (§7.2).
    """
    if share == 1:
        return {"values": vector}
    indices = (
        vector.abs().topk(max(1, round(share * vector.numel()))).indices.sort().values
    )
    bits = torch.zeros(
        -(-vector.numel() // 8) * 8,
        dtype=torch.uint8,
        device=vector.device,
    )
    bits[indices] = 1
    return {
        "values": vector[indices],
        "places": (bits.view(-1, 8) << _shifts(vector)).sum(1, dtype=torch.uint8),
    }


def densify(sparse: Mapping[str, Any], size: int) -> Tensor:
    """The inverse of `sparsify`. What does not fit → MessageError; on a GPU, from no
    wire, it is not looked at.
    """
    values: Tensor = sparse["values"]
    if "places" not in sparse:
        if values.numel() != size:
            raise MessageError(
                f"{values.numel():,} values came for a vector of {size:,}."
            )
        return values.reshape(size)
    packed: Tensor = sparse["places"]
    if packed.dtype != torch.uint8 or packed.numel() != -(-size // 8):
        raise MessageError(
            f"the places of values are not those of a vector of {size:,}."
        )
    bits = ((packed.reshape(-1, 1) >> _shifts(packed)) & 1).bool().flatten()
    on_host = packed.device.type == "cpu"
    if on_host and (bool(bits[size:].any()) or int(bits.sum()) != values.numel()):
        raise MessageError(
            f"{values.numel():,} values did not come with as many places of {size:,}."
        )
    return values.new_zeros(size).masked_scatter_(bits[:size], values.flatten())


def _shifts(like: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=like.device)
