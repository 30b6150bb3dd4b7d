"""What a network that a stranger describes would need, and what its description claims: before any module is built.

Guarantee: a plan takes memory and time in proportion to the description. It names every tensor of the network with its
shape, so that a file can be compared before anything is made; a layer has at most `MOST_UNITS` units, a network
`MOST_LAYERS` layers from the first to the last and `MOST_BRANCHES` branches, and one row takes at most `MOST_NUMBERS`
numbers while it is drawn. `pieces` draws few enough rows at a time. A claim that `check_claim` passes asks for no more
than `_MOST_CLAIMED` layers in a row, for no more parts than the file has tensors, and for exactly the rows of the
schema; `expected` then costs no memory for weights, and says which tensors the file must hold.
Edges: a key too many or too few, a size that is no whole number, or anything above these limits → ConfigError.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from understudy.data.encoding.frame import Frame
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.ground.pack import Shapes
from understudy.models.network import MOST_COMPONENTS, each_whole

MOST_LAYERS = 16
MOST_UNITS = 1 << 14
MOST_BRANCHES = 64
MOST_NUMBERS = 1 << 26
MOST_NAME = 200  # letters of a party
_AT_ONCE = 1 << 24  # numbers: 64 MiB

_Tensors = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """A network on paper. It draws columns of these `sizes`, or `values` in [0, 1] of this shape."""

    tensors: _Tensors
    sizes: tuple[int, ...] | None
    values: tuple[int, ...] | None
    numbers: int  # held for one row, where they are most
    label: tuple[int, int | None] | None = None  # the column and the level that it always draws
    dtype: torch.dtype = torch.float32
    classes: int | None = None  # how many it draws, where it draws several

    @property
    def shapes(self) -> Shapes:
        return {name: (self.dtype, shape) for name, shape in self.tensors.items()}


def plan_of(description: Mapping[str, Any]) -> Plan:
    """The plan of a network that may be offered. ConfigError for anything else."""
    kind = description.get("kind") if isinstance(description, Mapping) else None
    if not isinstance(kind, str) or kind not in PLANS:
        raise ConfigError(f"no network of kind {kind!r:.60} is offered; known: {', '.join(PLANS)}.")
    keys, make = PLANS[kind]
    description = {key: value for key, value in UNSAID.items() if key in keys} | dict(description)
    _require_keys(description, ("kind", *keys), f"a {kind}")
    plan = make(*(description[key] for key in keys))
    if plan.numbers > MOST_NUMBERS:
        raise ConfigError(f"a row of this network takes {plan.numbers:,} numbers; at most {MOST_NUMBERS:,}.")
    return plan


def pieces(network: Any, n: int, *, most: int, numbers: int = _AT_ONCE) -> Iterator[int]:
    """`n` rows in pieces of at most `most`, and of as few as keep `numbers` numbers, or one row."""
    each = max(1, min(most, numbers // numbers_of(network)))
    for start in range(0, n, each):
        yield min(each, n - start)


def numbers_of(network: Any) -> int:
    """How many numbers a network holds for one row, about. What is no offer is judged by its widest layer."""
    if getattr(network, "kind", "") == "pool":
        return int(network.latent) + max(map(numbers_of, network.members))
    try:
        return plan_of(network.describe()).numbers
    except ConfigError:
        sides = (side for parameter in network.parameters() for side in parameter.shape[-2:])
        return 3 * max(map(int, (network.latent, *sides)))


def _mixture(components: Any, sizes: Any) -> Plan:
    whole(components=components)
    if components > MOST_COMPONENTS:
        raise ConfigError(f"a mixture has at most {MOST_COMPONENTS:,} components, not {components:,}.")
    found = _sizes(sizes)
    return Plan({"logits": (components, sum(found))}, found, None, sum(found))


def _class_decoder(latent: Any, hidden: Any, sizes: Any, label: Any) -> Plan:
    found, layers = _sizes(sizes), _layers(latent, hidden)
    if not isinstance(label, list | tuple) or [type(number) for number in label] != [int, int]:
        raise ConfigError("a class is the number of a column and of a level.")
    place, level = label
    if not (0 <= place < len(found) and 0 <= level < found[place] and len(found) > 1):
        raise ConfigError(f"{place}, {level} is no level of a column.")
    layers += (sum(found) - found[place],)
    return Plan(_linears("linears.{}", layers), found, None, _most(layers), (place, level))


def _class_image_decoder(latent: Any, channels: Any, shape: Any) -> Plan:
    from understudy.models.nets.beta_vae import decoder_shapes, sides_of

    _, *filters = _layers(latent, channels)
    height, width = _image(shape)
    if not filters:
        raise ConfigError("a decoder of images has a layer at least.")
    sides = sides_of((height, width), len(filters))
    shapes = decoder_shapes(latent, filters, sides)
    pixels = [math.prod(side) for side in reversed(sides)]  # coarse to fine
    steps = zip(pairwise((filters[0], *filters)), pairwise(pixels), strict=True)
    # A transposed convolution makes nine numbers for each pixel before it, twice, and adds them up to one for each
    # after it; these are shifted, ordered and bent.
    numbers = max((a + 18 * b) * small + 4 * b * large for (a, b), (small, large) in steps)
    tensors = {f"parts.{place}": (1, *shape) for place, (_, *shape) in enumerate(shapes)}
    return Plan(tensors, None, (height, width), max(numbers, latent + filters[0] * pixels[0]))


def _branched(latent: Any, common: Any, branches: Any) -> Plan:
    stack = _layers(latent, common)
    tensors = _linears("common.{}", stack, step=2)
    if not isinstance(branches, list) or not 1 <= len(branches) <= MOST_BRANCHES:
        raise ConfigError(f"a generator has 1 to {MOST_BRANCHES} branches.")
    sizes: list[int] = []
    values: list[tuple[int, ...]] = []
    numbers, names = _most(stack), set()
    for place, branch in enumerate(branches):
        made = _branch(f"branches.{place}.{{}}", stack, branch)
        tensors |= made.tensors
        sizes += made.sizes or ()
        values += [made.values] if made.values is not None else []
        numbers = max(numbers, made.numbers)
        names.add(branch["party"])
    if len(names) < len(branches) or (values and (sizes or len(values) > 1)):
        raise ConfigError("two branches have one name, or draw rows of two kinds.")
    if not values:
        return Plan(tensors, tuple(sizes), None, numbers + 2 * sum(sizes))
    return Plan(tensors, None, values[0], numbers)


def _branch(names: str, stack: tuple[int, ...], branch: Any) -> Plan:
    """What one branch adds, after the common layers `stack`."""
    image = isinstance(branch, Mapping) and "shape" in branch
    _require_keys(branch, ("party", "hidden", "shape", "image") if image else ("party", "hidden", "blocks"), "a branch")
    if not isinstance(branch["party"], str) or len(branch["party"]) > MOST_NAME:
        raise ConfigError(f"a party has a name of at most {MOST_NAME} letters.")
    if not image:
        found = _sizes(branch["blocks"])
        layers = (stack[-1], *_units(branch["hidden"], len(stack)), sum(found))
        return Plan(_linears(names, layers, step=2), found, None, _most(layers))
    filters = _units(branch["hidden"], len(stack))
    if branch["image"] is not True or len(filters) != 2:
        raise ConfigError("a branch of images has two layers of channels.")
    (height, width), (coarse, fine) = _image(branch["shape"]), filters
    pixels = -(-height // 4) * -(-width // 4)
    tensors = {
        "0.weight": (coarse * pixels, stack[-1]), "0.bias": (coarse * pixels,),
        "3.weight": (coarse, fine, 4, 4), "3.bias": (fine,), "5.weight": (fine, 1, 4, 4), "5.bias": (1,),
    }  # fmt: skip
    numbers = (3 * coarse + 32 * fine + 128) * pixels
    shaped = {names.format(name): shape for name, shape in tensors.items()}
    return Plan(shaped, None, (height, width), numbers)


def _moments(shape: Any, sides: Any, features: Any, classes: Any, scales: Any, noise: Any, upright: Any) -> Plan:
    from understudy.models.moments.fit import MOST_KEPT, MOST_TURNED
    from understudy.models.moments.offered import moment_shapes

    if not all(isinstance(some, list | tuple) for some in (shape, scales, noise)):
        raise ConfigError("moments have lists of sides, of scales and of noise.")
    if len(shape) != 2 and not (len(shape) == 3 and shape[2] == 3 and sides == 2):
        raise ConfigError("moments are of rows with two sides, and of images in colour.")
    each_whole(sides=(*shape, sides))
    frame = Frame(tuple(shape), sides, features, upright=upright)
    values = math.prod(frame.shape)
    tensors = moment_shapes(frame, classes, scales, noise)
    numbers = 3 * (values + features + (MOST_TURNED if upright else MOST_KEPT))
    return Plan(tensors, None, frame.shape, numbers, dtype=torch.int64, classes=classes)


def _gram(sizes: Any, target: Any, noise: Any) -> Plan:
    from understudy.models.tables.offered import gram_shapes

    tensors = gram_shapes(sizes, target, noise)
    label = (target, None)  # every level of it
    return Plan(tensors, tuple(sizes), None, 3 * sum(sizes), label, dtype=torch.int64)


PLANS: dict[str, tuple[tuple[str, ...], Callable[..., Plan]]] = {
    "class-decoder": (("latent", "hidden", "sizes", "label"), _class_decoder),
    "class-image-decoder": (("latent", "channels", "shape"), _class_image_decoder),
    "mixture": (("components", "sizes"), _mixture),
    "branched": (("latent", "common", "branches"), _branched),
    "gram": (("sizes", "target", "noise"), _gram),
    "moments": (("shape", "sides", "features", "classes", "scales", "noise", "upright"), _moments),
}
UNSAID = {"upright": False}  # what a description need not say


def _require_keys(table: Any, keys: Sequence[str], what: str) -> None:
    if not isinstance(table, Mapping) or table.keys() != set(keys):
        raise ConfigError(f"{what} is described by {', '.join(keys)}, and nothing else.")


def _layers(latent: Any, hidden: Any) -> tuple[int, ...]:
    return _units([latent], 0) + _units(hidden, 1)


def _units(sizes: Any, before: int) -> tuple[int, ...]:
    """The units of each layer, of which there are some `before`."""
    if not isinstance(sizes, list | tuple) or before + len(sizes) > MOST_LAYERS:
        raise ConfigError(f"a network is a list of at most {MOST_LAYERS} layers.")
    each_whole(units=sizes)
    if sizes and (most := max(sizes)) > MOST_UNITS:
        raise ConfigError(f"a layer has at most {MOST_UNITS:,} units, not {most:,}.")
    return tuple(sizes)


def _sizes(sizes: Any) -> tuple[int, ...]:
    """The levels of each column. How many there may be is the schema's to say."""
    if not isinstance(sizes, list | tuple) or not sizes:
        raise ConfigError("a network draws one column at least.")
    each_whole(sizes=sizes)
    return tuple(sizes)


def _image(shape: Any) -> tuple[int, int]:
    if not isinstance(shape, list | tuple) or len(shape) != 2:
        raise ConfigError("an image has a height and a width.")
    whole(height=shape[0], width=shape[1])
    return shape[0], shape[1]


def _linears(names: str, layers: Sequence[int], *, step: int = 1) -> _Tensors:
    """Weights (out, in) and biases (out,) of linear layers; `step` counts what stands between two of them."""
    tensors: _Tensors = {}
    for place, (a, b) in enumerate(pairwise(layers)):
        tensors[names.format(f"{step * place}.weight")] = (b, a)
        tensors[names.format(f"{step * place}.bias")] = (b,)
    return tensors


def _most(layers: Sequence[int]) -> int:
    """A layer, what follows it, and its copy behind the activation."""
    return max((a + 2 * b for a, b in pairwise(layers)), default=layers[0])


_MOST_CLAIMED = 64  # layers in a row
_MOST_PARENTS = 64
_DEPTH = 4  # of a pool among pools: one is all that is made
_LAYERS, _PARTS = ("hidden", "common", "channels"), ("members", "branches", "parts")


def check_claim(description: Any, outputs: Sequence[int], tensors: int, depth: int = _DEPTH) -> None:
    """Hold a description against what a row has and how many tensors there are. ConfigError if it asks for more.
    `outputs` are the levels of each column of a table, and the sides of series and images, part after part; of people
    with events the levels of both, the bounds of each level of their number, and whether they have an order.
    """
    if not isinstance(description, Mapping) or depth < 0:
        raise ConfigError("this describes no network.")
    listed = {key: _listed(description.get(key)) for key in (*_LAYERS, *_PARTS, "parents", "columns")}
    for key in _LAYERS:
        if len(listed[key]) > _MOST_CLAIMED:
            raise ConfigError(f'"{key}" has more than {_MOST_CLAIMED} layers.')
    for key in _PARTS:
        if len(listed[key]) > tensors:
            raise ConfigError(f'there are {len(listed[key]):,} "{key}" and only {tensors:,} tensors of weights.')
    for part in listed["branches"]:
        if not isinstance(part, Mapping) or len(_listed(part.get("hidden"))) > _MOST_CLAIMED:
            raise ConfigError(f'a branch is no table of keys, or has more than {_MOST_CLAIMED} "hidden" layers.')
    for nodes in (*listed["parents"], *listed["columns"]):
        if any(len(_listed(some)) > _MOST_PARENTS for some in (nodes, *_listed(nodes))):
            raise ConfigError(f"a node has more than {_MOST_PARENTS} parents or digits.")
    if description.get("kind") == "pool":
        for member in listed["members"]:
            check_claim(member, outputs, tensors, depth - 1)
    elif (claimed := _outputs(description)) is not None and claimed != tuple(outputs):
        raise ConfigError("the network draws other rows than the schema describes.")


def expected(build: Any, description: Mapping[str, Any]) -> Shapes:
    """Names, dtypes and shapes of the network's tensors, from one that is built without memory."""
    with torch.device("meta"):
        state = build(description).state_dict()
    return {name: (value.dtype, tuple(value.shape)) for name, value in state.items()}


def _outputs(description: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What a row of it has, as far as the description says so by itself."""
    match description.get("kind"):
        case "mixture" | "class-decoder" | "decoder-table" | "copula" | "gram":
            return tuple(_listed(description.get("sizes")))
        case "chains":  # of whom, of what, how many, and whether in an order
            numbers = (_listed(pair) for pair in _listed(description.get("numbers")))
            sizes = (*_listed(description.get("people")), *_listed(description.get("events")))
            return (*sizes, *(bound for pair in numbers for bound in pair), description.get("ordered"))
        case "chains-together":
            members = [one for one in _listed(description.get("members")) if isinstance(one, Mapping)]
            return tuple(size for own in map(_outputs, members) for size in own or ())
        case "bayes-net":
            return tuple(next(iter(_listed(column)), None) for column in _listed(description.get("columns")))
        case "branched" | "tied" as kind:
            key, levels = ("branches", "blocks") if kind == "branched" else ("parts", "sizes")
            parts = _listed(description.get(key))
            return tuple(size for part in parts for size in _listed(part.get("shape", part.get(levels))))
        case "class-image-decoder" | "gaussians" | "moments":
            return tuple(_listed(description.get("shape")))
        case "decoder-image":
            return description.get("height"), description.get("width")
        case "decoder-series":
            return description.get("length"), description.get("channels")
    return None


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
