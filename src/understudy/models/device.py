"""Where tensors live."""

import torch

from understudy.errors import ConfigError


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
