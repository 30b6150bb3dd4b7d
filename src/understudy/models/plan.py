"""Networks by kind, a pool of them, and what one that a stranger describes would need
and claims: before memory is taken.

Guarantee: a plan takes memory and time in proportion to the description: limits are
asked first, and then the network is built without memory for weights. It names every
tensor of the network with its shape, so that a file can be compared before anything is
made; a layer has at most `MOST_UNITS` units, a network `MOST_LAYERS` layers from the
first to the last and `MOST_BRANCHES` branches, and one row takes at most `MOST_NUMBERS`
numbers while it is drawn. `pieces` draws few enough rows at a time. A claim that
`check_claim` passes asks for no more than `_MOST_CLAIMED` layers in a row, for no more
parts than the file has tensors, and for exactly the rows of the schema.
Edges: a key too many or too few, a size that is no whole number, or anything above
these limits → ConfigError.

*A pool* draws each row from one of its generators: Lomurno et al., "SGDE" (AIPR 2022),
§III-A, Pull, and §IV-C: samples are picked uniformly from every generator, so that each
class has the share that it is given here, not the one that it had among the rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError
from understudy.ground.pack import Shapes
from understudy.models.network import Network, check_weights, each_whole

# Kind → where the class is, in `understudy.models`.
NETWORKS = {
    "branched": "nets.gan.BranchedGenerator",
    "mixture": "tables.mixture.MixtureOfProducts",
    "class-decoder": "nets.beta_vae.ClassDecoder",
    "class-image-decoder": "nets.beta_vae.ClassImageDecoder",
    "pool": "plan.Pool",
    "decoder-table": "nets.wae.TableDecoder",
    "decoder-image": "nets.wae.ImageDecoder",
    "decoder-series": "nets.autoencoder.SeriesDecoder",
    "bayes-net": "tables.inversion.BayesNet",
    "copula": "tables.inversion.GaussianCopula",
    "gaussians": "moments.gaussians.CellGaussians",
    "moments": "offered.OfferedMoments",
    "gram": "offered.OfferedGram",
    "chains": "visits.chains.MixtureOfChains",
    "chains-together": "visits.together.ChainsTogether",
    "tied": "tied.network.TiedGaussians",
}
# What describes a network that may be offered, by kind; `UNSAID` is what a description
# need not say.
OFFERED = {
    "class-decoder": ("latent", "hidden", "sizes", "label"),
    "class-image-decoder": ("latent", "channels", "shape"),
    "mixture": ("components", "sizes"),
    "branched": ("latent", "common", "branches"),
    "gram": ("sizes", "target", "noise"),
    "moments": ("shape", "sides", "features", "classes", "scales", "noise", "upright"),
}
UNSAID = {"upright": False}

MOST_LAYERS = 16
MOST_UNITS = 1 << 14
MOST_BRANCHES = 64
MOST_NUMBERS = 1 << 26
MOST_NAME = 200  # letters of a party
_AT_ONCE = 1 << 24  # numbers: 64 MiB


def network_class(kind: str) -> Any:
    """The class of networks of this kind. KeyError where there is none."""
    module, _, name = NETWORKS[kind].rpartition(".")
    return getattr(import_module(f"understudy.models.{module}"), name)


def on_paper(description: Mapping[str, Any]) -> Any:
    """The network that is described, built without memory for its weights. ConfigError
    where none could be.
    """
    try:
        with torch.device("meta"):
            return network_class(description["kind"]).from_description(description)
    except (OverflowError, RuntimeError) as error:
        raise ConfigError(f"no network is of this size: {error!r:.200}.") from None


def shapes_of(network: Any) -> Shapes:
    """Names, dtypes and shapes of the network's tensors."""
    return {
        name: (value.dtype, tuple(value.shape))
        for name, value in network.state_dict().items()
    }


@dataclass(frozen=True)
class NetworkPlan:
    """A network on paper. It draws columns of `levels`, or values in [0, 1]: `drawn`
    are their numbers, or sides.
    """

    shapes: Shapes
    drawn: tuple[int, ...]
    levels: bool
    # the column and the level that it always draws
    label: tuple[int, int | None] | None
    classes: int | None  # how many it draws, where it draws several


def plan_of(description: Mapping[str, Any]) -> NetworkPlan:
    """The plan of a network that may be offered. ConfigError for anything else."""
    kind = description.get("kind") if isinstance(description, Mapping) else None
    if not isinstance(kind, str) or kind not in OFFERED:
        raise ConfigError(
            f"no network of kind {kind!r:.60} is offered; known: {', '.join(OFFERED)}."
        )
    keys = OFFERED[kind]
    described = {key: value for key, value in UNSAID.items() if key in keys} | dict(
        description
    )
    _require_keys(described, ("kind", *keys), f"a {kind}")
    _require_limits(described)
    network = on_paper(described)
    if network.row_numbers > MOST_NUMBERS:
        raise ConfigError(
            f"a row of this network takes {network.row_numbers:,} numbers; at most "
            f"{MOST_NUMBERS:,}."
        )
    # A Gram matrix has every level of its target, and a class decoder one.
    label = (
        (network.target, None) if kind == "gram" else getattr(network, "label", None)
    )
    levels = "shape" not in described and not any(
        "shape" in branch for branch in described.get("branches", ())
    )
    return NetworkPlan(
        shapes_of(network),
        _outputs(described) or (),
        levels,
        label,
        described.get("classes"),
    )


def pieces(
    network: Any,
    n: int,
    *,
    most: int,
    numbers: int = _AT_ONCE,
) -> Iterator[int]:
    """`n` rows in pieces of at most `most`, and of as few as keep `numbers` numbers, or
    one row.
    """
    each = max(1, min(most, numbers // network.row_numbers))
    for start in range(0, n, each):
        yield min(each, n - start)


def _require_limits(said: Mapping[str, Any]) -> None:
    """ConfigError where something is so large, or so strange, that not even its shapes
    are to be made.
    """
    stack = _units([said["latent"]], 0) if "latent" in said else 0
    for key in _LAYERS:
        stack += _units(said[key], stack) if key in said else 0
    if "branches" in said:
        _require_branches(said["branches"], stack)
    if "scales" in said:
        shape = said["shape"]
        sides = said["sides"]
        if not all(
            isinstance(some, list | tuple)
            for some in (shape, said["scales"], said["noise"])
        ):
            raise ConfigError("moments have lists of sides, of scales and of noise.")
        if len(shape) != 2 and not (len(shape) == 3 and shape[2] == 3 and sides == 2):
            raise ConfigError(
                "moments are of rows with two sides, and of images in colour."
            )
        each_whole(sides=(*shape, sides))


def _require_branches(branches: Any, before: int) -> None:
    if not isinstance(branches, list) or not 1 <= len(branches) <= MOST_BRANCHES:
        raise ConfigError(f"a generator has 1 to {MOST_BRANCHES} branches.")
    for branch in branches:
        image = isinstance(branch, Mapping) and "shape" in branch
        keys = (
            ("party", "hidden", "shape", "image")
            if image
            else ("party", "hidden", "blocks")
        )
        _require_keys(branch, keys, "a branch")
        if not isinstance(branch["party"], str) or len(branch["party"]) > MOST_NAME:
            raise ConfigError(f"a party has a name of at most {MOST_NAME} letters.")
        layers = _units(branch["hidden"], before)
        if image and (layers != 2 or branch["image"] is not True):
            raise ConfigError("a branch of images has two layers of channels.")
    images = any("shape" in branch for branch in branches)
    if len({branch["party"] for branch in branches}) < len(branches) or (
        images and len(branches) > 1
    ):
        raise ConfigError("two branches have one name, or draw rows of two kinds.")


def _require_keys(table: Any, keys: Sequence[str], what: str) -> None:
    if not isinstance(table, Mapping) or table.keys() != set(keys):
        raise ConfigError(
            f"{what} is described by {', '.join(keys)}, and nothing else."
        )


def _units(sizes: Any, before: int) -> int:
    """How many layers these are, of so many units each; there are some `before`."""
    if not isinstance(sizes, list | tuple) or before + len(sizes) > MOST_LAYERS:
        raise ConfigError(f"a network is a list of at most {MOST_LAYERS} layers.")
    each_whole(units=sizes)
    if sizes and (most := max(sizes)) > MOST_UNITS:
        raise ConfigError(f"a layer has at most {MOST_UNITS:,} units, not {most:,}.")
    return len(sizes)


_MOST_CLAIMED = 64  # layers in a row
_MOST_PARENTS = 64
_DEPTH = 4  # of a pool among pools: one is all that is made
_LAYERS = ("hidden", "common", "channels")
_PARTS = ("members", "branches", "parts")


def check_claim(
    description: Any,
    outputs: Sequence[int],
    tensors: int,
    depth: int = _DEPTH,
) -> None:
    """Hold a description against what a row has and how many tensors there are.
    ConfigError if it asks for more. `outputs` are the levels of each column of a table,
    and the sides of series and images, part after part; of people with events the
    levels of both, the bounds of each level of their number, and whether they have an
    order.
    """
    if not isinstance(description, Mapping) or depth < 0:
        raise ConfigError("this describes no network.")
    listed = {
        key: _listed(description.get(key))
        for key in (*_LAYERS, *_PARTS, "parents", "columns")
    }
    for key in _LAYERS:
        if len(listed[key]) > _MOST_CLAIMED:
            raise ConfigError(f'"{key}" has more than {_MOST_CLAIMED} layers.')
    for key in _PARTS:
        if len(listed[key]) > tensors:
            raise ConfigError(
                f'there are {len(listed[key]):,} "{key}" and only {tensors:,} tensors '
                "of weights."
            )
    for part in listed["branches"]:
        if (
            not isinstance(part, Mapping)
            or len(_listed(part.get("hidden"))) > _MOST_CLAIMED
        ):
            raise ConfigError(
                f"a branch is no table of keys, or has more than {_MOST_CLAIMED} "
                '"hidden" layers.'
            )
    for nodes in (*listed["parents"], *listed["columns"]):
        if any(len(_listed(some)) > _MOST_PARENTS for some in (nodes, *_listed(nodes))):
            raise ConfigError(
                f"a node has more than {_MOST_PARENTS} parents or digits."
            )
    if description.get("kind") == "pool":
        for member in listed["members"]:
            check_claim(member, outputs, tensors, depth - 1)
    elif (claimed := _outputs(description)) is not None and claimed != tuple(outputs):
        raise ConfigError("the network draws other rows than the schema describes.")


def _outputs(description: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What a row of it has, as far as the description says so by itself."""
    match description.get("kind"):
        case "mixture" | "class-decoder" | "decoder-table" | "copula" | "gram":
            return tuple(_listed(description.get("sizes")))
        case "chains":  # of whom, of what, how many, and whether in an order
            numbers = (_listed(pair) for pair in _listed(description.get("numbers")))
            sizes = (
                *_listed(description.get("people")),
                *_listed(description.get("events")),
            )
            return (
                *sizes,
                *(bound for pair in numbers for bound in pair),
                description.get("ordered"),
            )
        case "chains-together":
            members = [
                one
                for one in _listed(description.get("members"))
                if isinstance(one, Mapping)
            ]
            return tuple(
                size for outputs in map(_outputs, members) for size in outputs or ()
            )
        case "bayes-net":
            return tuple(
                next(iter(_listed(column)), None)
                for column in _listed(description.get("columns"))
            )
        case "branched" | "tied" as kind:
            key, levels = (
                ("branches", "blocks") if kind == "branched" else ("parts", "sizes")
            )
            parts = _listed(description.get(key))
            return tuple(
                size
                for part in parts
                for size in _listed(part.get("shape", part.get(levels)))
            )
        case "class-image-decoder" | "gaussians" | "moments":
            return tuple(_listed(description.get("shape")))
        case "decoder-image":
            return description.get("height"), description.get("width")
        case "decoder-series":
            return description.get("length"), description.get("channels")
    return None


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


MEMBERS = ("class-decoder", "class-image-decoder", "mixture", "branched", "gaussians")
_MOST_MEMBERS = 1 << 14


class Pool(Network):
    """`members` of these relative `shares`. The first latent number picks a member, the
    others are its latent point.
    """

    kind = "pool"
    ends: Tensor

    def __init__(self, members: Sequence[Network], shares: Sequence[float]) -> None:
        super().__init__()
        whole(members=len(members))
        if len(shares) != len(members) or len(members) > _MOST_MEMBERS:
            raise ConfigError(
                f"{len(members):,} members of a pool have {len(shares):,} shares."
            )
        for share in shares:
            positive(shares=share)
        self.members = nn.ModuleList(members)
        self.shares = tuple(map(float, shares))
        self.latent = 1 + max(int(member.latent) for member in members)
        ends = list(accumulate(self.shares))
        self.register_buffer(
            "ends",
            torch.tensor([e / ends[-1] for e in ends], dtype=torch.float64),
            persistent=False,
        )
        self.requires_grad_(False)

    @property
    def row_numbers(self) -> int:
        return self.latent + max(member.row_numbers for member in self.networks)

    def pick(self, z: Tensor) -> Tensor:
        """Which member each latent point (n, latent) is for: int64 (n,)."""
        uniform = torch.special.ndtr(z[:, 0].double())
        return torch.searchsorted(self.ends, uniform, right=True).clamp_(
            max=len(self.members) - 1
        )

    def rows(self, z: Tensor) -> Tensor:
        member, order = self.pick(z).sort(stable=True)
        parts = torch.split(
            z[order],
            torch.bincount(member, minlength=len(self.members)).tolist(),
        )
        some = [
            (network, part)
            for network, part in zip(self.networks, parts, strict=True)
            if len(part)
        ]
        drawn = [
            network.rows(part[:, 1 : 1 + network.latent]) for network, part in some
        ]
        return (
            torch.cat(drawn)[order.argsort()]
            if drawn
            else self.networks[0].rows(z[:, 1:])
        )

    @property
    def networks(self) -> list[Network]:
        return cast(list[Network], list(self.members))

    def describe(self) -> dict[str, Any]:
        members = [member.describe() for member in self.networks]
        return {"kind": self.kind, "members": members, "shares": list(self.shares)}

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        members = description["members"]
        weights = 0
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
