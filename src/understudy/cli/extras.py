"""What is an extra of the package: it is imported when it is used, and missed in words."""

import importlib.util
import os

from understudy.ground.errors import ConfigError


def need(*modules: str) -> None:
    """The libraries of the exchange."""
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"this needs {', '.join(missing)}: pip install 'understudy[exchange]'.")


def with_grpc() -> None:
    """The library of the network."""
    # Its own log would come before our words; set it to see that.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if importlib.util.find_spec("grpc") is None:
        raise ConfigError(
            "The network needs grpcio: pip install 'understudy[network]'. Nothing was read or sent."
        )
