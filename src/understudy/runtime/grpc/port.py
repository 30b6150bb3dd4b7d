"""The server's port: how it is opened, and why it cannot be."""

import errno
import socket
from typing import Any

from understudy.runtime.grpc.frames import OPTIONS

SERVER_OPTIONS: list[tuple[str, Any]] = [
    *OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_concurrent_streams", 2),  # of one connection: a party has one stream, and one that replaces it
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),  # a second server on this port is an error, not a lottery
]


def why_not(address: str) -> str:
    """Why an address cannot be listened on, and what to do."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(found[0][0]) as probe:
            probe.bind(found[0][4])
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                return "the port is taken. Is another `understudy serve` running? Otherwise choose another address"
            case errno.EADDRNOTAVAIL:
                return "this machine does not have that address. Behind a router, listen on 0.0.0.0:PORT"
            case errno.EACCES:
                return "ports below 1024 are for the system. Choose a higher one"
        return error.strerror or type(error).__name__
    except (ValueError, OverflowError):
        return "it is not HOST:PORT"
    return "the port is taken, or was a moment ago"
