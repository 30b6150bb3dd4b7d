"""A pool of generators as one: each row comes from one of them.

Lomurno et al., "SGDE" (AIPR 2022), §III-A, Pull, and §IV-C: samples are picked uniformly from every generator, so
that each class has the share that it is given here, not the one that it had among the rows.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError
from understudy.models.network import Network, check_weights
from understudy.models.plan import network_class

MEMBERS = ("class-decoder", "class-image-decoder", "mixture", "branched", "gaussians")
_MOST_MEMBERS = 1 << 14


class Pool(Network):
    """`members` of these relative `shares`. The first latent number picks a member, the others are its latent point."""

    kind = "pool"
    ends: Tensor

    def __init__(self, members: Sequence[Network], shares: Sequence[float]) -> None:
        super().__init__()
        whole(members=len(members))
        if len(shares) != len(members) or len(members) > _MOST_MEMBERS:
            raise ConfigError(f"{len(members):,} members of a pool have {len(shares):,} shares.")
        for share in shares:
            positive(shares=share)
        self.members, self.shares = nn.ModuleList(members), tuple(map(float, shares))
        self.latent = 1 + max(int(member.latent) for member in members)
        ends = list(accumulate(self.shares))
        self.register_buffer("ends", torch.tensor([e / ends[-1] for e in ends], dtype=torch.float64), persistent=False)
        self.requires_grad_(False)

    @property
    def row_numbers(self) -> int:
        return self.latent + max(member.row_numbers for member in self.each)

    def pick(self, z: Tensor) -> Tensor:
        """Which member each latent point (n, latent) is for: int64 (n,)."""
        uniform = torch.special.ndtr(z[:, 0].double())
        return torch.searchsorted(self.ends, uniform, right=True).clamp_(max=len(self.members) - 1)

    def rows(self, z: Tensor) -> Tensor:
        member, order = self.pick(z).sort(stable=True)
        parts = torch.split(z[order], torch.bincount(member, minlength=len(self.members)).tolist())
        drawn = [
            network.rows(part[:, 1 : 1 + network.latent])
            for network, part in zip(self.each, parts, strict=True)
            if len(part)
        ]
        return torch.cat(drawn)[order.argsort()] if drawn else self.each[0].rows(z[:, 1:])

    @property
    def each(self) -> list[Network]:
        return cast(list[Network], list(self.members))

    def describe(self) -> dict[str, Any]:
        members = [member.describe() for member in self.each]
        return {"kind": self.kind, "members": members, "shares": list(self.shares)}

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        members, weights = description["members"], 0
        if not isinstance(members, list) or len(members) > _MOST_MEMBERS:
            raise TypeError("no list of members, or too long a one")
        built: list[Network] = []
        for member in members:
            if member["kind"] not in MEMBERS:
                raise LookupError(member["kind"])
            built.append(network_class(member["kind"]).from_description(member))
            weights += sum(parameter.numel() for parameter in built[-1].parameters())
            check_weights("a pool", weights)
        return {"members": built, "shares": description["shares"]}
