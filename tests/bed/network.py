"""Networks: one namespace for the control plane, one for each real node, joined by a bridge.

    machine 10.123.0.1 ── bridge 10.123.0.2 (control plane) ── node-0 10.123.0.10, its pods 10.123.16.0/24
                                                           └── node-1 10.123.0.11, its pods 10.123.17.0/24

Nothing has a route out of the machine. A node is cut off by taking the control plane's end of its cable down: neither
its kubelet nor its pods reach anybody then, and nobody is told.
"""

from __future__ import annotations

from pathlib import Path

from tests.bed.commands import run
from tests.bed.options import NAMESPACE, Node, Options

BRIDGE = "pbed"
HOST_PORT = "pbed-h"
HOST_END = "pbed-host"
ROUTER = "pbed-up"
"""A node's own end of its cable."""


def namespaces() -> list[str]:
    """Network namespaces of the bed that are there."""
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"{NAMESPACE}*")) if folder.exists() else []


def up(options: Options) -> None:
    """Make all that is not there."""
    if NAMESPACE not in namespaces():
        _plane(options)
    for node in options.real_nodes():
        if node.namespace not in namespaces():
            _node(options, node)


def _batch(namespace: str, lines: list[str]) -> None:
    """Several commands of `ip` at once, in a namespace or ("") outside."""
    where = ["-n", namespace] if namespace else []
    run("ip", *where, "-batch", "-", stdin="\n".join(lines) + "\n")


def _forward(namespace: str) -> None:
    settings = ("ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0", "conf.all.send_redirects=0")
    words = " ".join(f"net.ipv4.{setting}" for setting in settings)
    run("nsenter", f"--net=/run/netns/{namespace}", "--", "sh", "-c", f"sysctl -qw {words}")


def _plane(options: Options) -> None:
    run("ip", "netns", "add", NAMESPACE)
    _forward(NAMESPACE)
    run("ip", "link", "add", HOST_END, "type", "veth", "peer", "name", HOST_PORT, "netns", NAMESPACE)
    _batch(
        NAMESPACE,
        [
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"addr add {options.plane}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            f"link set {HOST_PORT} master {BRIDGE} up",
        ],
    )
    _batch(
        "",
        [
            f"addr add {options.host}/24 dev {HOST_END}",
            f"link set {HOST_END} up",
            f"route replace {options.network}.0.0/16 via {options.plane} dev {HOST_END}",
        ],
    )


def _node(options: Options, node: Node) -> None:
    run("ip", "netns", "add", node.namespace)
    _forward(node.namespace)
    run(
        "ip", "-n", NAMESPACE, "link", "add", node.port, "type", "veth", "peer", "name", ROUTER, "netns", node.namespace
    )
    _batch(
        node.namespace,
        [
            "link set lo up",
            f"addr add {node.address}/24 dev {ROUTER}",
            f"link set {ROUTER} up",
            f"route add {options.network}.0.0/16 via {options.plane}",
        ],
    )
    _batch(
        NAMESPACE,
        [f"link set {node.port} master {BRIDGE} up", f"route replace {node.pods} via {node.address}"],
    )


def cut(node: Node) -> None:
    """Pull the node's cable."""
    run("ip", "-n", NAMESPACE, "link", "set", node.port, "down")


def mend(node: Node) -> None:
    """Plug it in again; the route to its pods went with the cable only on its own side."""
    run("ip", "-n", NAMESPACE, "link", "set", node.port, "up")


def down() -> None:
    """Remove every namespace of the bed; the cables go with them."""
    for name in namespaces():
        run("ip", "netns", "del", name)
    run("ip", "link", "del", HOST_END, check=False)


def leftovers() -> list[str]:
    """What is still there."""
    links = run("ip", "-o", "link", "show")
    return namespaces() + ([HOST_END] if HOST_END in links else [])
