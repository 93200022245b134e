"""Which addresses a member listens on: one for each fabric NIC that has one here, else the pod's own.

Standard library only, Python 3.9. Linux only; whatever cannot be read is no rail.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import Callable, List, Optional, Tuple

INFINIBAND = "/sys/class/infiniband"
ASK_ADDRESS = 0x8915
"""SIOCGIFADDR of Linux."""
LOOPBACK = "127.0.0.1"


def hosts(pod_address: str, folder: str = INFINIBAND) -> Tuple[str, ...]:
    """Addresses of the rails `[rails]`, in the order of the NICs' names; at least one."""
    found: List[str] = []
    for nic in _listed(folder):
        for interface in _listed(os.path.join(folder, nic, "device", "net")):
            address = address_of(interface)
            if address is not None and address not in found:
                found.append(address)
    return tuple(found) or (pod_address or LOOPBACK,)


def address_of(interface: str, ask: Callable[[int, int, bytes], bytes] = fcntl.ioctl) -> Optional[str]:
    """Its IPv4 address in this network namespace; None where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            told = ask(asking.fileno(), ASK_ADDRESS, struct.pack("256s", interface[:15].encode()))
        except OSError:
            return None
    return socket.inet_ntoa(told[20:24])


def _listed(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
