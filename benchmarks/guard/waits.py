"""Where a computation waits for its device, counted on a machine that has none.

A pretended device: tensors on it say `device.type == "lazy"`, and compute on the CPU. A
program that is told to use it (`device="lazy"`) cannot do one thing unseen, which is
what makes a host wait for a GPU: read a number (`float(x)`, `bool(x.any())`), copy a
tensor back (`.cpu()`), take a result whose size follows from values (`nonzero`, a mask
as an index), or copy one there from memory that has to stay as it is (`.to(device)`
without `non_blocking`).

    with Waits() as waits:
        verti_gan.train(Config(device="lazy", …), …)
    waits.seen  # [("_local_scalar_dense", "limits.py:78 sound_weights"), …]
"""

import sys
import traceback
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from understudy.privacy.noise.rng import FastRng

DEVICE = torch.device("lazy")
SIZED_BY_VALUES = {
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
}
READS = {"_local_scalar_dense", "equal"} | SIZED_BY_VALUES


class Pretended(Tensor):
    """A tensor of that device: `held` is what it computes with."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Pretended":
        made: Pretended = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a pretended tensor outside of Waits")


class _Seen(TorchFunctionMode):
    """`torch.tensor(values, device=…)` and `tolist` go below all that is looked at:
    here they are a copy, and more.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            return func(*args, **kwargs | {"device": "cpu"}).to(kwargs["device"])
        if func is Tensor.tolist:
            return args[0].cpu().tolist()
        return func(*args, **kwargs)


class Waits(TorchDispatchMode):
    """Carries out what is asked of the pretended device, and writes down in `seen`
    where a GPU's host would wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []
        # PyTorch has no generator for that device; the draws are those of a CPU's.
        own = FastRng._generator
        self._draws = mock.patch.object(
            FastRng, "_generator", lambda rng, device: own(rng, "cpu")
        )
        self._below = _Seen()

    def __enter__(self) -> "Waits":
        self._draws.start()
        self._below.__enter__()
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._below.__exit__(*error)
        self._draws.stop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        given = [*args, *kwargs.values()]
        there = any(_any(one) for one in given)
        wanted = kwargs.get("device")
        to = there if wanted is None else torch.device(wanted) == DEVICE
        if (there or to) and _waits(
            name := schema.name.removeprefix("aten::"), args, kwargs, there, to
        ):
            self.seen.append((name, _where()))
        found = func(
            *map(_held, args), **{key: _held(one) for key, one in kwargs.items()}
        )
        if schema.is_mutable:  # what was written to is what was given
            return None if found is None else kwargs.get("out", args[0])
        return _pretended(found) if to else found


def _any(one: Any) -> bool:
    return (
        any(map(_any, one))
        if isinstance(one, list | tuple)
        else isinstance(one, Pretended)
    )


def _held(one: Any) -> Any:
    if isinstance(one, list | tuple):
        return type(one)(map(_held, one))
    if isinstance(one, Pretended):
        return one.held
    return (
        torch.device("cpu") if isinstance(one, torch.device) and one == DEVICE else one
    )


def _pretended(found: Any) -> Any:
    if isinstance(found, list | tuple):
        return type(found)(map(_pretended, found))
    return Pretended(found) if isinstance(found, Tensor) else found


def _waits(name: str, args: Any, kwargs: Any, there: bool, to: bool) -> bool:
    if name == "_foreach_copy_":
        return any(
            _waits("copy_", pair, kwargs, there, to)
            for pair in zip(args[0], args[1], strict=True)
        )
    if name in ("_to_copy", "copy_"):
        ends = (
            (args[:1], to)
            if name == "_to_copy"
            else (args[1:2], isinstance(args[0], Pretended))
        )
        back = isinstance(ends[0][0], Pretended)
        quietly = kwargs.get("non_blocking", len(args) > 2 and args[2])
        return back != ends[1] and (back or not quietly)
    if name in ("index", "index_put_", "index_put", "_index_put_impl_"):
        return there and any(
            place.dtype == torch.bool or not isinstance(place, Pretended)
            for place in args[1]
            if place is not None
        )
    return there and name in READS


def _where() -> str:
    """The innermost line of ours."""
    frames = [
        one
        for one in traceback.extract_stack(sys._getframe(2))
        if "/understudy/" in one.filename
    ]
    return (
        (
            f"{frames[-1].filename.split('/understudy/')[-1]}:{frames[-1].lineno} "
            f"{frames[-1].name}"
        )
        if frames
        else "?"
    )
