"""The section `bootstrap` of a cluster profile: the hosts, and what is to be made of them.

Everything that can be known to be wrong without asking a host is refused here, by its field. What only hosts can tell
(routes, clocks, disks) is a pre-check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from profiles.admission import Port
from profiles.bootstrap.engines import Adopt, Engine, Kubeadm
from profiles.values import (
    DOMAIN_PATTERN,
    JUMP_PATTERN,
    LABEL_CHARACTERS,
    LABEL_PATTERN,
    LOGIN_PATTERN,
    NETWORK_PATTERN,
    OR_EMPTY,
    PATTERNS,
    PROGRAM_PATTERN,
    REGISTRY_PATTERN,
    SERVER_PATTERN,
    SYSCTL_PATTERN,
    Count,
    HostAddress,
    ObjectName,
    PositiveCount,
    PositiveSeconds,
    Seconds,
    Share,
    TaintText,
    Value,
    refuse_own_taints,
    wrong,
)

Role = Literal["control-plane", "worker", "both"]
"""`both`: a control plane on which work may run too."""
NodeName = Annotated[str, Field(pattern=DOMAIN_PATTERN, max_length=63)]
"""A host name, with or without its domain; kubelet makes a label of it."""
Jump = Annotated[str, Field(pattern=JUMP_PATTERN + OR_EMPTY)]
Network = Annotated[str, Field(pattern=NETWORK_PATTERN)]
"""An IPv4 network such as 10.244.0.0/16."""
GOVERNOR_PATTERN = r"[a-z_]*"
"""As the kernel spells its governors (`scaling_available_governors`); a script of root holds the word."""
CLUSTER_SUBJECT = "cluster"
"""In plans and records this word stands for the whole cluster: no host may be called so."""
OWN_REGISTRY = "registry"
"""The component that keeps images inside the cluster."""
API_PORT = 6443
"""On which API servers of control planes listen."""
MOST_ETCD_MEMBERS = 7
"""etcd's own recommendation (its FAQ, "What is maximum cluster size?"): more members make every write slower."""
SERVICES_WIDEST, SERVICES_NARROWEST = 12, 28
"""kube-apiserver refuses a service network with more than 20 bits of addresses (validateClusterIPFlags), kubeadm one
with fewer than 10 addresses (MinimumAddressesInServiceSubnet)."""
MOST_NODE_BITS = 16
"""kube-controller-manager hands out no more parts of the network of pods than so many bits count
(clusterSubnetMaxDiff)."""


def network_of(field: str, text: str) -> IPv4Network:
    """The network that is written there.

    Raises:
        PydanticCustomError: it is none, or has bits behind its prefix.
    """
    try:
        found = ip_network(text)
    except ValueError as error:
        raise wrong(field, f"must be an IPv4 network such as 10.244.0.0/16, got {text!r} ({error})") from error
    if not isinstance(found, IPv4Network):
        raise wrong(field, f"must be an IPv4 network, got {text!r}")
    return found


def address_of(field: str, text: str) -> IPv4Address:
    """The address that is written there.

    Raises:
        PydanticCustomError: it is none.
    """
    try:
        found = ip_address(text)
    except ValueError as error:
        hint = "an IPv4 address with four numbers, such as 192.0.2.11"
        raise wrong(field, f"must be {hint}, got {text!r}; where SSH uses a name, say node_ip too") from error
    if not isinstance(found, IPv4Address):
        raise wrong(field, f"must be an IPv4 address, got {text!r}")
    return found


def _refuse_strange_paths(**paths: str) -> None:
    """Refuse paths that an SSH client cannot be told: it takes them in quotation marks, and knows none inside."""
    for field, path in paths.items():
        if '"' in path or not path.isprintable():
            raise wrong(field, f"must be a path in one line without quotation marks, got {path!r}")


class Ssh(Value):
    """How hosts are reached. A host's own entry stands before it."""

    user: Annotated[str, Field(pattern=LOGIN_PATTERN)] = "root"
    """Who logs in; where that is not root, sudo must work without a password."""
    port: Port = 22
    """Of the SSH server."""
    private_key_file: str = ""
    """Path of the private key; empty: the agent's or the user's own."""
    known_hosts_file: str = ""
    """Path of the file with the hosts' keys; empty: the user's own. A host whose key is not known is not touched."""
    jump: Jump = ""
    """Host through which all others are reached, as `user@host:port`; empty: none."""
    python: Annotated[str, Field(pattern=PROGRAM_PATTERN)] = "python3"
    """Interpreter on the hosts, 3.9 or later."""
    at_once: PositiveCount = 50
    """Hosts that log in at the same time; in a look all stay connected until it was tried who reaches whom."""
    connect_seconds: PositiveSeconds = 10.0
    """A host that does not answer within is unknown."""

    @model_validator(mode="after")
    def _paths_are_plain(self) -> Ssh:
        _refuse_strange_paths(private_key_file=self.private_key_file, known_hosts_file=self.known_hosts_file)
        return self


class ClusterHost(Value):
    """One host that is, or becomes, a node; its name in the inventory is the node's."""

    address: HostAddress
    """Where SSH finds it: a name or an address."""
    node_ip: str = ""
    """Its address inside the cluster; empty: `address`, which must then be one."""
    role: Role = "worker"
    """What it carries."""
    pool: str = ""
    """Pool of the cluster profile whose hardware it must have; empty: the first one. Of no meaning for a control plane
    without work."""
    rack: str = ""
    """One failure domain: upgrades and removals never take two racks at once; empty: a rack of its own."""
    block: str = ""
    """Racks under one switch domain; becomes a label."""
    port: Port | None = None
    """In place of the one in `ssh`."""
    user: Annotated[str, Field(pattern=LOGIN_PATTERN + OR_EMPTY)] = ""
    """In place of the one in `ssh`."""
    private_key_file: str = ""
    """In place of the one in `ssh`."""
    jump: Jump = ""
    """In place of the one in `ssh`."""
    labels: dict[str, str] = {}
    """Labels of its node, over those of the pool."""
    taints: tuple[TaintText, ...] = ()
    """Taints of its node, beside those of the pool."""

    @model_validator(mode="after")
    def _path_is_plain(self) -> ClusterHost:
        _refuse_strange_paths(private_key_file=self.private_key_file)
        return self

    @model_validator(mode="after")
    def _labels_and_taints_are_taken(self) -> ClusterHost:
        for field, value in (("rack", self.rack), ("block", self.block)):
            if value and not re.fullmatch(LABEL_PATTERN, value):
                raise wrong(field, f"becomes a label: must be {PATTERNS[LABEL_PATTERN]}, got {value!r}")
            if len(value) > LABEL_CHARACTERS:
                most = f"Kubernetes takes {LABEL_CHARACTERS} characters at most"
                raise wrong(field, f"becomes a label: {most}, got {len(value)}")
        for key, value in self.labels.items():
            name = key.rpartition("/")[2]
            if not re.fullmatch(LABEL_PATTERN, name) or (value and not re.fullmatch(LABEL_PATTERN, value)):
                raise wrong("labels", f"{key}={value}: must be {PATTERNS[LABEL_PATTERN]}, behind an optional domain/")
            if max(len(name), len(value)) > LABEL_CHARACTERS:
                raise wrong("labels", f"{key}={value}: Kubernetes takes {LABEL_CHARACTERS} characters at most")
        refuse_own_taints("taints", self.taints)
        keys = [(text.partition(":")[0].partition("=")[0], text.rpartition(":")[2]) for text in self.taints]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise wrong("taints", f"says {twice[0][0]} with {twice[0][1]} twice: Kubernetes keeps one of each")
        return self

    @property
    def controls(self) -> bool:
        """Whether it carries a control plane and a member of etcd."""
        return self.role != "worker"

    @property
    def works(self) -> bool:
        """Whether pods of runs may come to it."""
        return self.role != "control-plane"

    @property
    def ip(self) -> str:
        """Its address inside the cluster."""
        return self.node_ip or self.address


class ApiEndpoint(Value):
    """Where the API of the cluster is found by everybody, whichever control plane lives."""

    address: HostAddress
    """The virtual address, or name or address of the balancer."""
    port: Port = API_PORT
    """Of the API there; a virtual address is carried as it is, with the port on which API servers listen, 6443."""
    kind: Literal["virtual", "external"] = "virtual"
    """`virtual`: an address that keepalived carries to a living control plane. `external`: a balancer of the site,
    which must already forward to all of them."""
    interface: str = ""
    """Network interface that carries the virtual address; empty: the one of the node's own address."""
    router_id: int = Field(default=51, ge=1, le=255)
    """VRRP's number of it, unique on the network."""

    @model_validator(mode="after")
    def _is_carried(self) -> ApiEndpoint:
        if self.kind == "virtual" and self.port != API_PORT:
            carried = (
                f"must be {API_PORT}, on which API servers listen: keepalived carries an address and turns no port"
            )
            raise wrong("port", f"{carried}, got {self.port}; a balancer that does is `kind: external`")
        return self


class Networks(Value):
    """Networks inside the cluster; none of them may meet another one, or any network that a host already reaches."""

    pods: Network = "10.244.0.0/16"
    """Of all pods."""
    pods_of_node: int = Field(default=24, ge=16, le=28)
    """Length of the prefix of one node's part."""
    services: Network = "10.96.0.0/16"
    """Of services."""
    domain: Annotated[str, Field(pattern=DOMAIN_PATTERN)] = "cluster.local"
    """DNS domain of the cluster."""
    mtu: Count = 0
    """What every path between two hosts must carry; 0: the interfaces' own."""

    @model_validator(mode="after")
    def _are_networks(self) -> Networks:
        pods, services = network_of("pods", self.pods), network_of("services", self.services)
        if pods.overlaps(services):
            raise wrong("services", f"{services} and the network of pods, {pods}, overlap: choose another one")
        for name, network in (("pods", pods), ("services", services)):
            if network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified:
                raise wrong(name, f"{network} is set apart by the Internet protocol: take a private one")
        if self.pods_of_node < pods.prefixlen:
            raise wrong("pods_of_node", f"/{self.pods_of_node} is more than all of pods, {pods}: a longer prefix")
        if self.pods_of_node > pods.prefixlen + MOST_NODE_BITS:
            most = f"Kubernetes divides {pods} down to /{pods.prefixlen + MOST_NODE_BITS} and no further"
            raise wrong("pods_of_node", f"/{self.pods_of_node}: {most}")
        if not SERVICES_WIDEST <= services.prefixlen <= SERVICES_NARROWEST:
            fit = f"Kubernetes takes /{SERVICES_WIDEST} to /{SERVICES_NARROWEST}"
            raise wrong("services", f"{services} has too many or too few addresses: {fit}")
        return self

    @property
    def most_nodes(self) -> int:
        """How many nodes find room in the network of pods."""
        return 1 << (self.pods_of_node - network_of("pods", self.pods).prefixlen)


def _names_a_host(url: str) -> bool:
    try:
        found = urlsplit(url)
        return bool(found.hostname) and found.port != 0
    except ValueError:  # an address in brackets that is none, or a port that is none
        return False


class Mirror(Value):
    """Where everything comes from that is put on hosts. Hosts fetch it themselves, each by its digest."""

    files_url: str = ""
    """Base URL of files (`http://…`, `https://…`); empty: the folder `files_folder` of this machine is copied."""
    files_folder: str = ""
    """Folder on this machine with the files of the release."""
    registry: Annotated[str, Field(pattern=REGISTRY_PATTERN + OR_EMPTY)] = ""
    """Registry with the images, as `host:port` or `host:port/path`; empty: the images' own registries."""
    registry_insecure: bool = False
    """It speaks HTTP without TLS."""
    ca_file: str = ""
    """File with the certificate authority of both, on this machine."""

    @model_validator(mode="after")
    def _is_one_place(self) -> Mirror:
        _refuse_strange_paths(files_folder=self.files_folder, ca_file=self.ca_file)
        if self.files_url and self.files_folder:
            raise wrong("files_folder", "must be empty where files_url is set: files come from one place")
        if self.files_url and not self.files_url.startswith(("http://", "https://")):
            raise wrong("files_url", f"must begin with http:// or https://, got {self.files_url!r}")
        if self.files_url and not _names_a_host(self.files_url):
            raise wrong("files_url", f"must be a URL that names a host, got {self.files_url!r}")
        speaks_tls = self.files_url.startswith("https://") or (self.registry and not self.registry_insecure)
        if self.ca_file and not speaks_tls:
            raise wrong("ca_file", "nothing here speaks TLS: set files_url (https://…) or registry, or leave it out")
        if self.registry_insecure and not self.registry:
            raise wrong("registry_insecure", "says how `registry` speaks, which is empty")
        return self


class NodeTuning(Value):
    """What hosts are set to, kept over reboots and put back by each `primus bootstrap` where it was changed."""

    sysctls: dict[
        Annotated[str, Field(pattern=SYSCTL_PATTERN)], Annotated[str, Field(pattern=r"^[!-~]+( [!-~]+)*$")]
    ] = {
        "fs.inotify.max_user_instances": "8192",
        "fs.inotify.max_user_watches": "524288",
        "vm.max_map_count": "262144",
    }
    """Kernel parameters by name, beside those that Kubernetes itself needs."""
    nofile: Count = 1_048_576
    """Most open files of one process of a pod; 0: the host's own."""
    transparent_hugepages: Literal["", "always", "madvise", "never"] = ""
    """Empty: the host's own."""
    numa_balancing: Literal["", "on", "off"] = ""
    """Empty: the host's own; off is what GPU vendors advise."""
    cpu_governor: str = ""
    """Empty: the host's own; `performance` is what GPU vendors advise."""

    @model_validator(mode="after")
    def _names_a_governor(self) -> NodeTuning:
        if not re.fullmatch(GOVERNOR_PATTERN, self.cpu_governor):
            must = "must be the name of one, such as performance: lower-case letters and `_`"
            raise wrong("cpu_governor", f"{must}, got {self.cpu_governor!r}")
        return self


class PrecheckLimits(Value):
    """Beyond these a host is not touched."""

    clock_offset_seconds: PositiveSeconds = 0.5
    """Between any two hosts; certificates and etcd's leases go by clocks."""
    etcd_fsync_ms: PositiveSeconds = 10.0
    """99th percentile of one fsync where etcd will live (etcd's own FAQ on slow disks)."""
    free_disk_gib: Seconds = 20.0
    """Free under /var/lib."""
    memory_gib: Seconds = 1.7
    """Of a control plane (kubeadm's own limit is 1,700 MB); workers: the pool's."""
    entropy_bits: Count = 128
    """Of the kernel's pool."""
    certificate_days: Count = 30
    """Days that certificates of a running cluster must still hold."""
    kernels_may_differ: bool = False
    """Hosts of one pool may run different kernels."""


class ComponentChoice(Value):
    """A component of the shelf that this cluster gets."""

    name: ObjectName
    """Its name in `profiles/components`."""
    values: dict[str, object] = {}
    """Over the component's own; an unknown one is refused."""

    @model_validator(mode="after")
    def _registry_is_found(self) -> ComponentChoice:
        asked = self.values.get("pulled_as", "") if self.name == OWN_REGISTRY else ""
        if asked != "" and not (isinstance(asked, str) and re.fullmatch(SERVER_PATTERN, asked)):
            raise wrong("values.pulled_as", f"must be {PATTERNS[SERVER_PATTERN]}, got {asked!r}")
        return self


class Bootstrap(Value):
    """From hosts with nothing but sshd to a cluster that has proven that it trains."""

    hosts: dict[NodeName, ClusterHost] = {}
    """By name of the node. An adopted cluster names those that are looked at over SSH, all, some or none: its other
    nodes are known from its API."""
    ssh: Ssh = Ssh()
    """How they are reached."""
    engine: Engine = Kubeadm()
    """What makes Kubernetes of them."""
    endpoint: ApiEndpoint | None = None
    """Where the API is found; none where there is one control plane, the cluster is adopted (its context knows), or the
    engine is Kubespray: each node then has a balancer of its own, and from outside the first control plane is asked."""
    networks: Networks = Networks()
    """Inside the cluster."""
    mirror: Mirror = Mirror()
    """Where files and images come from."""
    tuning: NodeTuning = NodeTuning()
    """What hosts are set to."""
    limits: PrecheckLimits = PrecheckLimits()
    """Beyond these no host is touched."""
    components: tuple[ComponentChoice, ...] = ()
    """What is installed beside Argo Workflows, JobSet and Kueue, which come always."""
    install_components: bool = True
    """Whether Argo Workflows, JobSet, Kueue and these components are installed and a training run proves the cluster;
    off where somebody else installs what runs there: the cluster then counts as proven once its nodes reach each
    other's pods."""
    proof_run: str | None = None
    """Run profile that is trained at the end; the cluster counts as proven where it succeeds. Left out: `demo`, or
    `demo-gpus` where every pool has GPUs. Empty: none is trained."""
    join_seconds: PositiveSeconds = 300.0
    """A host that is no Ready node by then is given its reason."""
    batch_share: Share = 0.2
    """At most this share of the workers is upgraded or removed at once (at least one always may be), never more than
    one rack."""

    @property
    def own_registry(self) -> str:
        """`host:port` by which nodes pull from the cluster's own registry; "": there is none, or nobody says."""
        asked = (one.values.get("pulled_as", "") for one in self.components if one.name == OWN_REGISTRY)
        return str(next(asked, ""))

    @property
    def control_planes(self) -> tuple[str, ...]:
        """Names of hosts that carry the control plane, in the order of the inventory; the first one begins."""
        return tuple(name for name, host in self.hosts.items() if host.controls)

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of hosts that only work, in the order of the inventory."""
        return tuple(name for name, host in self.hosts.items() if not host.controls)

    @model_validator(mode="after")
    def _has_a_quorum(self) -> Bootstrap:
        if isinstance(self.engine, Adopt):
            return self
        planes = self.control_planes
        if not self.hosts:
            raise wrong("hosts", f"is missing: engine {self.engine.kind} makes a cluster of hosts (adopt needs none)")
        if not planes:
            raise wrong("hosts", "no host has the role control-plane or both: name one, or three for a living quorum")
        if len(planes) % 2 == 0:
            less = f"{len(planes)} members of etcd bear the loss of no more than {len(planes) - 1} do"
            raise wrong("hosts", f"{less}: make it an odd number of control planes ({', '.join(planes[:8])})")
        if len(planes) > MOST_ETCD_MEMBERS:
            raise wrong("hosts", f"{len(planes)} control planes: etcd takes {MOST_ETCD_MEMBERS} members at most")
        if not any(host.works for host in self.hosts.values()):
            raise wrong("hosts", "all are control planes without work: give one the role worker or both, to train on")
        if self.endpoint is None and len(planes) > 1 and isinstance(self.engine, Kubeadm):
            raise wrong("endpoint", f"is missing: {len(planes)} control planes need one address that outlives each")
        return self

    @model_validator(mode="after")
    def _hosts_are_told_apart(self) -> Bootstrap:
        blocks: dict[str, str] = {}
        doors: dict[tuple[str, int, str], str] = {}
        for name, host in self.hosts.items():
            if name == CLUSTER_SUBJECT:
                raise wrong(f"hosts.{name}", f'"{name}" means the whole cluster in plans: call the host otherwise')
            door = (host.address, host.port or self.ssh.port, host.jump or self.ssh.jump)
            if other := doors.get(door):
                raise wrong(f"hosts.{name}.address", f"{door[0]} port {door[1]} is where SSH finds {other} too")
            doors[door] = name
            if host.rack and blocks.setdefault(host.rack, host.block) != host.block:
                both = f'"{blocks[host.rack]}" and "{host.block}"'
                raise wrong(f"hosts.{name}.block", f"rack {host.rack} lies in one block, and hosts of it say {both}")
        return self

    @model_validator(mode="after")
    def _addresses_fit(self) -> Bootstrap:
        if isinstance(self.engine, Adopt):
            return self
        taken: dict[str, str] = {}
        ours = {name: network_of(name, getattr(self.networks, name)) for name in ("pods", "services")}
        for name, host in self.hosts.items():
            field = f"hosts.{name}." + ("node_ip" if host.node_ip else "address")
            own = address_of(field, host.ip)
            if other := taken.get(str(own)):
                raise wrong(field, f"{own} is the address of {other} too")
            taken[str(own)] = name
            _refuse_inside(ours, field, own)
        if self.endpoint is not None:
            self._endpoint_fits(self.endpoint, taken, ours)
        if len(self.hosts) > self.networks.most_nodes:
            room = f"{self.networks.most_nodes} nodes of /{self.networks.pods_of_node}"
            raise wrong("networks.pods", f"{self.networks.pods} has room for {room}, there are {len(self.hosts)} hosts")
        return self

    def _endpoint_fits(self, endpoint: ApiEndpoint, taken: Mapping[str, str], ours: Mapping[str, IPv4Network]) -> None:
        field, host = "endpoint.address", taken.get(endpoint.address, "")
        if endpoint.kind == "virtual":
            if host:
                raise wrong(field, f"{endpoint.address} is the address of host {host}: a virtual one is nobody's own")
            _refuse_inside(ours, field, address_of(field, endpoint.address))
        elif endpoint.address.replace(".", "").isdigit():
            _refuse_inside(ours, field, address_of(field, endpoint.address))
            if host in self.control_planes and endpoint.port == API_PORT and len(self.control_planes) > 1:
                alone = f"{endpoint.address}:{API_PORT} is the API server of {host} itself and ends with it"
                raise wrong(field, f"{alone}: name a balancer in front of all control planes, or a virtual address")


def _refuse_inside(networks: Mapping[str, IPv4Network], field: str, address: IPv4Address) -> None:
    """Refuse what lies in a network of the cluster's own, or is no address of a machine."""
    if address.is_loopback or address.is_multicast or address.is_unspecified:
        raise wrong(field, f"{address} is no address under which other hosts find this one")
    for name, network in networks.items():
        if address in network:
            raise wrong(field, f"{address} lies inside networks.{name}, {network}: move that network elsewhere")
