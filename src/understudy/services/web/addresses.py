"""Where a service listens, or is called."""

import ipaddress


def loopback(host: str) -> bool:
    """Whether this is the machine itself, where nobody listens on the way."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
