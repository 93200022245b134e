"""What a bed is started with; kept in its folder so that later commands know."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass, fields

from tests.bed.layout import Folder

NAMESPACE = "primus-bed"
"""Network namespace of the control plane; a node's is `primus-bed-<node>`."""
REAL_LABEL = "primus-flows.io/bed-node"


@dataclass(frozen=True)
class Node:
    """A real node: containerd, kubelet and kube-proxy in a network namespace of their own."""

    index: int
    network: str

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return f"node-{self.index}"

    @property
    def namespace(self) -> str:
        """Its network namespace."""
        return f"{NAMESPACE}-{self.name}"

    @property
    def port(self) -> str:
        """The control plane's end of its cable."""
        return f"pbed-n{self.index}"

    @property
    def address(self) -> str:
        """Where its kubelet listens."""
        return f"{self.network}.0.{10 + self.index}"

    @property
    def pods(self) -> str:
        """Addresses of its pods."""
        return f"{self.network}.{16 + self.index}.0/24"


@dataclass(frozen=True)
class Options:
    """How large the bed is, and how fast it notices a lost node."""

    nodes: int = 3
    """Real nodes."""
    kwok: int = 2
    """Nodes that KWOK plays: their pods run nowhere."""
    grace_s: int = 8
    """Silence after which a node is NotReady."""
    tolerate_s: int = 5
    """After which pods on such a node are deleted."""
    gpu: str = "nvidia.com/gpu"
    """Name of the extended resource on every node."""
    gpus: int = 8
    """How many each node counts."""
    nodes_per_rack: int = 2
    """Real nodes that share a rack."""
    network: str = "10.123"
    """First two octets of every address of the bed."""
    crds: str = "full"
    """`full`: Argo's own schemas; `minimal`: none, starts 10 s sooner and needs 650 MB less."""

    def real_nodes(self) -> list[Node]:
        """The real nodes, by index."""
        return [Node(index, self.network) for index in range(self.nodes)]

    def real_node(self, name: str) -> Node:
        """One by name; LookupError where there is none."""
        for node in self.real_nodes():
            if node.name == name:
                return node
        raise LookupError(f"{name} is no real node of this bed; there are {[node.name for node in self.real_nodes()]}")

    @property
    def host(self) -> str:
        """The machine's own address towards the bed."""
        return f"{self.network}.0.1"

    @property
    def plane(self) -> str:
        """Where the API server and the name server listen."""
        return f"{self.network}.0.2"

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.plane}:6443"

    @property
    def services(self) -> str:
        """Addresses of services."""
        return f"{self.network}.4.0/22"

    @property
    def kubernetes_service(self) -> str:
        """Address of the service `kubernetes`: always the first."""
        return str(next(ipaddress.ip_network(self.services).hosts()))

    @property
    def lease_s(self) -> int:
        """A node's lease; it is renewed every quarter of that."""
        return max(4, min(40, self.grace_s))


def save(folder: Folder, options: Options) -> None:
    """Write them down."""
    folder.record.write_text(json.dumps(asdict(options), indent=1) + "\n", encoding="utf-8")


def load(folder: Folder) -> Options | None:
    """What the bed in this folder was started with; None where there is none."""
    if not folder.record.exists():
        return None
    return Options(**json.loads(folder.record.read_text(encoding="utf-8")))


def kinds() -> dict[str, type[int] | type[str]]:
    """Type of each option by its name, for a command line."""
    return {field.name: type(getattr(Options(), field.name)) for field in fields(Options)}


def default() -> Options:
    """Defaults; `$PRIMUS_BED_NETWORK` names other addresses."""
    return Options(network=os.environ.get("PRIMUS_BED_NETWORK", "10.123"))
