"""Where tensors live."""

import torch

from understudy.errors import ConfigError


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
