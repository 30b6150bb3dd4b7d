"""Where tensors live, and how the work of several parties shares a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

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


class SideBySide:
    """A CUDA stream for each name, so that what several parties ask of one GPU runs at the same time.

    A party's round is hundreds of small kernels, none of which fills a GPU.
    Guarantee: the values of one after another: a stream begins where the caller's stands, and after `join` the caller's
    goes on where the last of them ended.
    Edges: without a GPU in use, nothing happens.
    """

    def __init__(self) -> None:
        self._streams: dict[str, torch.cuda.Stream] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Work on this name's stream."""
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            yield
            return
        if name not in self._streams:
            self._streams[name] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream = self._streams[name]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    def join(self) -> None:
        """Let the caller's stream wait for all of them; the host does not."""
        for stream in self._streams.values():
            torch.cuda.current_stream().wait_stream(stream)
