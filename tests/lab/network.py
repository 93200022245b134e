"""One LAN: a bridge in a namespace of its own, one namespace a host, a leg of this machine, a name server and a mirror.

    machine 10.124.0.1 ── bridge 10.124.0.2 (names, mirror) ── n1 10.124.0.11
                                                           └── n2 10.124.0.12 …

Nothing has a way out of the machine: the default route that kubeadm and Ansible want leads to the machine's leg, and
nothing is forwarded there. A host's namespace lives from power-on to power-off, so that no address, rule or setting
outlives a reboot that would not on a machine of its own.
"""

from __future__ import annotations

from pathlib import Path

from tests.bed.commands import run
from tests.lab.layout import MACHINE, MARK, NAMESPACE, NETWORK, SERVER

BRIDGE = f"plab{MARK}"
BRIDGE_MAC = "02:7c:00:00:00:fe"
"""Without one of its own it takes a cable's, and another one after a power cut: nobody finds the mirror then."""
HOST_PORT = f"{BRIDGE}-h"
HOST_END = f"{BRIDGE}-host"
CARD = "eth0"
"""A host's network card."""


def namespaces() -> list[str]:
    """Network namespaces of this lab that are there, of whatever checkout."""
    return [name for name in any_lab() if name == NAMESPACE or name.startswith(f"{NAMESPACE}-")]


def any_lab() -> list[str]:
    """The same of all labs, on whatever network."""
    return sorted(path.name for path in Path("/run/netns").glob("primus-lab*"))


def strangers() -> list[str]:
    """Routes of this machine, other than ours, that lead to addresses of the lab."""
    return [
        line
        for line in run("ip", "-4", "route", "show", "root", f"{NETWORK}.0/24").splitlines()
        if HOST_END not in line
    ]


def namespace_of(host: str) -> str:
    """The network namespace of a host."""
    return f"{NAMESPACE}-{host}"


def number_of(host: str) -> int:
    """1 of n1."""
    return int(host.removeprefix("n"))


def address_of(host: str) -> str:
    """10.124.0.11 of n1."""
    return f"{NETWORK}.{10 + number_of(host)}"


def port_of(host: str) -> str:
    """The bridge's end of a host's cable."""
    return f"{BRIDGE}-{host}"


def batch(namespace: str, *lines: str) -> None:
    """Several commands of `ip` at once, in a namespace or ("") outside."""
    where = ["-n", namespace] if namespace else []
    run("ip", *where, "-batch", "-", stdin="\n".join(lines) + "\n")


def up() -> None:
    """Make the LAN, with no host in it."""
    run("ip", "netns", "add", NAMESPACE)
    run("ip", "link", "add", HOST_END, "type", "veth", "peer", "name", HOST_PORT, "netns", NAMESPACE)
    batch(
        NAMESPACE,
        "link set lo up",
        f"link add {BRIDGE} address {BRIDGE_MAC} type bridge",
        f"addr add {SERVER}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"link set {HOST_PORT} master {BRIDGE} up",
    )
    batch("", f"addr add {MACHINE}/24 dev {HOST_END}", f"link set {HOST_END} up")


def plug(host: str) -> list[str]:
    """Lines of a shell that plug a host in as it is switched on; its card has the same address each time."""
    own, card = namespace_of(host), f"02:7c:00:00:00:{number_of(host):02x}"
    return [
        f"ip netns add {own}",
        f"ip -n {NAMESPACE} link add {port_of(host)} type veth peer name {CARD} address {card} netns {own}",
        f"ip -n {NAMESPACE} link set {port_of(host)} master {BRIDGE} up",
    ]


def unplug(host: str) -> list[str]:
    """Lines of a shell that do the opposite; what is not there is no matter."""
    return [
        f"ip -n {NAMESPACE} link del {port_of(host)} 2>/dev/null",
        f"ip netns del {namespace_of(host)} 2>/dev/null",
    ]


def own_settings(host: str) -> str:
    """What a host sets itself as it boots, for `ip -batch`."""
    lines = (
        "link set lo up",
        f"link set {CARD} up",
        f"addr add {address_of(host)}/24 dev {CARD}",
        f"route add default via {MACHINE}",
    )
    return "\n".join(lines) + "\n"


def cut(host: str) -> None:
    """Pull the host's cable."""
    batch(NAMESPACE, f"link set {port_of(host)} down")


def mend(host: str) -> None:
    """Plug it in again."""
    batch(NAMESPACE, f"link set {port_of(host)} up")


def down() -> None:
    """Remove every namespace; cables go with them."""
    for name in namespaces():
        run("ip", "netns", "del", name)
    run("ip", "link", "del", HOST_END, check=False)


def leftovers() -> list[str]:
    """What is still there."""
    links = run("ip", "-o", "link", "show")
    return namespaces() + ([HOST_END] if HOST_END in links else [])
