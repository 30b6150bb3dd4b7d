"""Where tensors live, and the public seed of a network's first weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from understudy.ground.errors import ConfigError


def shapes_only() -> bool:
    """Whether tensors are made without memory, for their shapes. Arithmetic on such loads a compiler: 2 s and 75 MB."""
    return torch.get_default_device().type == "meta"


def pick_device(name: str = "auto") -> torch.device:
    """`auto`: a GPU when there is one, else the CPU; otherwise the device of that name."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device must be auto, cpu or cuda, not {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, but this machine has no GPU that PyTorch can use.")
    return device


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor there; to a GPU from pinned memory, since a copy from other memory waits for all that is queued."""
    held = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return held.to(device, non_blocking=True)


@contextmanager
def first_weights(seed: int) -> Iterator[None]:
    """Inside, torch draws on the CPU from this public seed (`manual_seed` is slow); then as if nothing was drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
