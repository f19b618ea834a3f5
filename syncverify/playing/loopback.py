"""The network interface of this machine alone: hostnames of laptops often do not resolve."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping


def use_loopback(environment: MutableMapping[str, str] | None = None) -> None:
    """Keep gloo on the loopback interface, unless the environment names another one.

    Args:
        environment: Where gloo looks; None for the environment of this process.
    """
    chosen = os.environ if environment is None else environment
    names = [name for _, name in socket.if_nameindex()]
    loopback = next((name for name in names if name.startswith("lo")), None)
    if loopback is not None:
        chosen.setdefault("GLOO_SOCKET_IFNAME", loopback)
