"""What a description of a network claims, held against its file and its schema before anything is built from it.

Guarantee: a description that passes asks for no more layers than `MOST_LAYERS` in a row, for no more parts than the
file has tensors, and for exactly the rows of the schema; `expected` then costs no memory for weights, and says which
tensors the file must hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from understudy.ground.errors import ConfigError
from understudy.ground.tensors_file import Shapes

MOST_LAYERS = 64  # in a row
_MOST_PARENTS = 64
_DEPTH = 4  # of a pool among pools: one is all that is made


def check_claim(description: Any, outputs: Sequence[int], tensors: int) -> None:
    """Hold a description against what a row has and how many tensors there are. ConfigError if it asks for more.

    `outputs` are the levels of each column of a table, and the sides of series and images, part after part; of people
    with events the levels of both, the bounds of each level of their number, and whether they have an order.
    """
    _check(description, tuple(outputs), tensors, _DEPTH)


def expected(build: Any, description: Mapping[str, Any]) -> Shapes:
    """Names, dtypes and shapes of the network's tensors, from one that is built without memory."""
    with torch.device("meta"):
        state = build(description).state_dict()
    return {name: (value.dtype, tuple(value.shape)) for name, value in state.items()}


def _check(description: Any, outputs: tuple[int, ...], tensors: int, depth: int) -> None:
    if not isinstance(description, Mapping) or depth < 0:
        raise ConfigError("this describes no network.")
    for key in ("hidden", "common", "channels"):
        if len(_listed(description.get(key))) > MOST_LAYERS:
            raise ConfigError(f'"{key}" has more than {MOST_LAYERS} layers.')
    for key in ("members", "branches", "parts"):
        parts = _listed(description.get(key))
        if len(parts) > tensors:
            raise ConfigError(f'there are {len(parts):,} "{key}" and only {tensors:,} tensors of weights.')
    for part in _listed(description.get("branches")):
        _check_layers(part)
    for nodes in (*_listed(description.get("parents")), *_listed(description.get("columns"))):
        if any(len(_listed(some)) > _MOST_PARENTS for some in (nodes, *_listed(nodes))):
            raise ConfigError(f"a node has more than {_MOST_PARENTS} parents or digits.")
    if description.get("kind") == "pool":
        for member in _listed(description.get("members")):
            _check(member, outputs, tensors, depth - 1)
    elif (claimed := _outputs(description)) is not None and claimed != outputs:
        raise ConfigError("the network draws other rows than the schema describes.")


def _check_layers(part: Any) -> None:
    if not isinstance(part, Mapping) or len(_listed(part.get("hidden"))) > MOST_LAYERS:
        raise ConfigError(f'a branch is no table of keys, or has more than {MOST_LAYERS} "hidden" layers.')


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
            found = [
                _outputs(member)
                for member in _listed(description.get("members"))
                if isinstance(member, Mapping)
            ]
            return tuple(size for own in found for size in own or ())
        case "bayes-net":
            return tuple(next(iter(_listed(column)), None) for column in _listed(description.get("columns")))
        case "branched":
            parts = _listed(description.get("branches"))
            return tuple(size for part in parts for size in _listed(part.get("shape", part.get("blocks"))))
        case "tied":
            parts = _listed(description.get("parts"))
            return tuple(size for part in parts for size in _listed(part.get("shape", part.get("sizes"))))
        case "class-image-decoder" | "gaussians" | "moments":
            return tuple(_listed(description.get("shape")))
        case "decoder-image":
            return description.get("height"), description.get("width")
        case "decoder-series":
            return description.get("length"), description.get("channels")
    return None


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
