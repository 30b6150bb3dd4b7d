"""A pool of generators as one: each row comes from one of them.

Lomurno et al., "SGDE" (AIPR 2022), §III-A, Pull, and §IV-C: samples are picked uniformly from every generator, so
that each class has the share that it is given here, not the one that it had among the rows.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.nets.beta_vae import ClassDecoder, ClassImageDecoder
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.tables.mixture import MixtureOfProducts

MEMBERS: dict[str, Any] = {
    "class-decoder": ClassDecoder,
    "class-image-decoder": ClassImageDecoder,
    "mixture": MixtureOfProducts,
    "branched": BranchedGenerator,
    "gaussians": CellGaussians,
}
_MOST_MEMBERS = 1 << 14
_MOST_PARAMETERS = 1 << 28  # 1 GiB: a description from elsewhere cannot ask for more


class Pool(nn.Module):
    """`members` of these relative `shares`.

    The first latent number picks a member: the normal distribution function turns it into a uniform number. The others
    are the member's latent point.
    """

    ends: Tensor

    def __init__(self, members: Sequence[nn.Module], shares: Sequence[float]) -> None:
        super().__init__()
        whole(members=len(members))
        if len(shares) != len(members) or len(members) > _MOST_MEMBERS:
            raise ConfigError(f"{len(members):,} members of a pool have {len(shares):,} shares.")
        for share in shares:
            positive(shares=share)
        self.members, self.shares = nn.ModuleList(members), tuple(map(float, shares))
        self.latent = 1 + max(int(member.latent) for member in members)  # type: ignore[arg-type]
        ends = list(accumulate(self.shares))
        self.register_buffer(
            "ends", torch.tensor([end / ends[-1] for end in ends], dtype=torch.float64), persistent=False
        )
        self.requires_grad_(False)

    def pick(self, z: Tensor) -> Tensor:
        """Which member each latent point (n, latent) is for: int64 (n,)."""
        uniform = torch.special.ndtr(z[:, 0].double())
        return torch.searchsorted(self.ends, uniform, right=True).clamp_(max=len(self.members) - 1)

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → rows, each from its member."""
        member, order = self.pick(z).sort(stable=True)
        parts = torch.split(z[order], torch.bincount(member, minlength=len(self.members)).tolist())
        drawn = [
            network.rows(part[:, 1 : 1 + network.latent])  # type: ignore[operator]
            for network, part in zip(self.members, parts, strict=True)
            if len(part)
        ]
        return torch.cat(drawn)[order.argsort()] if drawn else self.members[0].rows(z[:, 1:])  # type: ignore[operator]

    def forward(self, z: Tensor) -> Tensor:
        """As `rows`."""
        return self.rows(z)

    def describe(self) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network."""
        members = [member.describe() for member in self.members]  # type: ignore[operator]
        return {"kind": "pool", "members": members, "shares": list(self.shares)}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Pool":
        """The network that `describe` described, with fresh weights. ConfigError for anything else."""
        try:
            kind, members, shares = (description[key] for key in ("kind", "members", "shares"))
            if kind != "pool" or not isinstance(members, list) or len(members) > _MOST_MEMBERS:
                raise TypeError(f"kind {kind!r}")
            built: list[nn.Module] = []
            left = _MOST_PARAMETERS
            for member in members:
                built.append(MEMBERS[member["kind"]].from_description(member))
                left -= sum(parameter.numel() for parameter in built[-1].parameters())
                if left < 0:
                    raise ConfigError(f"a pool of more than {_MOST_PARAMETERS:,} weights is too large.")
        except (KeyError, TypeError) as error:
            raise ConfigError(f"this describes no pool: {error!r}.") from None
        return cls(built, shares)
