"""The network of pods on hosts of one network: a bridge on each node, and a route to each other node's pods.

The control plane gives each node its range. The range and the routes lie in two files of the host; a timer lays the
routes anew where somebody (a restarted network service, a person) took them away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from profiles.bootstrap.inventory import Networks
from workflows.bootstrap.host_file import HELPERS, SETTINGS, UNITS, HostFile
from workflows.model.manifest import Json, items, part

CONFLIST = "/etc/cni/net.d/10-primus-flows.conflist"
ROUTES = f"{SETTINGS}/pod-routes"
SCRIPT = f"{HELPERS}/pod-routes"
SERVICE = "primus-pod-routes.service"
TIMER = "primus-pod-routes.timer"
BRIDGE = "cni0"
PROTOCOL = 193
"""By it our routes are told from others' (`ip route … proto`): only ours are ever taken away."""
RANGE = "@RANGE@"
"""Stands in the template for the node's own range."""
_SCRIPT = """#!/bin/sh
# Lays the routes of the file, takes away those of ours that it no longer names, and hides pods behind their host
# where they speak to the world.
set -eu
sysctl -q -w net.ipv4.ip_forward=1
while read -r range gateway; do ip route replace "$range" via "$gateway" proto {protocol}; done < {routes}
ip route show proto {protocol} | while read -r range rest; do
  grep -q "^$range " {routes} || ip route del "$range" proto {protocol}
done
if command -v nft >/dev/null; then
  nft -f - <<RULES
table ip primus-pods
delete table ip primus-pods
table ip primus-pods {{
  chain out {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {pods} ip daddr != {pods} oifname != "{bridge}" masquerade
  }}
}}
RULES
else
  rule="POSTROUTING -s {pods} ! -d {pods} ! -o {bridge} -j MASQUERADE"
  iptables -w -t nat -C $rule 2>/dev/null || iptables -w -t nat -A $rule
fi
"""
_SERVICE = f"""[Unit]
Description=Routes to the pods of other nodes
ConditionPathExists={ROUTES}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={SCRIPT}
"""
_TIMER = f"""[Unit]
Description=Routes to the pods of other nodes, laid anew where they are gone

[Timer]
OnActiveSec=0
OnUnitInactiveSec=30
AccuracySec=1
Unit={SERVICE}

[Install]
WantedBy=timers.target
"""


@dataclass(frozen=True, order=True)
class NodeRange:
    """Which pods a node has."""

    node: str
    address: str
    """Of the node."""
    range: str
    """Network of its pods, e.g. 10.244.2.0/24; "": the control plane has given it none yet."""


def node_ranges(nodes: Iterable[Json]) -> list[NodeRange]:
    """Which pods each node has, from the objects of nodes."""
    return [
        NodeRange(
            str(part(node, "metadata").get("name", "")),
            next(
                (
                    str(one.get("address"))
                    for one in items(node, "status", "addresses")
                    if one.get("type") == "InternalIP"
                ),
                "",
            ),
            str(part(node, "spec").get("podCIDR", "")),
        )
        for node in nodes
    ]


def host_files(networks: Networks) -> list[HostFile]:
    """Files that are the same on every host."""
    script = _SCRIPT.format(protocol=PROTOCOL, routes=ROUTES, pods=networks.pods, bridge=BRIDGE)
    return [
        HostFile(SCRIPT, script, 0o755),
        HostFile(f"{UNITS}/{SERVICE}", _SERVICE),
        HostFile(f"{UNITS}/{TIMER}", _TIMER),
    ]


def conflist(networks: Networks, own: str = RANGE) -> HostFile:
    """The CNI configuration of a node with this range."""
    mtu = {"mtu": networks.mtu} if networks.mtu else {}
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        **mtu,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": own}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    told = {"cniVersion": "1.0.0", "name": "primus-flows", "plugins": [bridge, portmap]}
    return HostFile(CONFLIST, json.dumps(told, indent=1) + "\n")


def routes(ranges: Iterable[NodeRange], node: str) -> HostFile:
    """The routes of a node to all others that have a range, `RANGE ADDRESS` a line."""
    lines = sorted(f"{item.range} {item.address}\n" for item in ranges if item.node != node and item.range)
    return HostFile(ROUTES, "".join(lines))


def node_files(networks: Networks, ranges: Iterable[NodeRange], node: str) -> list[HostFile]:
    """Both files of a node; none while it has no range."""
    known = sorted(ranges)
    own = next((item.range for item in known if item.node == node), "")
    return [conflist(networks, own), routes(known, node)] if own else []
