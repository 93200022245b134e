"""Real nodes: containerd, kubelet and kube-proxy each, with labels and GPUs that only count."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bed import groups, images
from tests.bed.api import MERGE, Api
from tests.bed.commands import run, succeeds, until
from tests.bed.layout import Cache, Folder
from tests.bed.options import REAL_LABEL, Node, Options
from tests.bed.plane import write
from tests.bed.processes import Processes, Program
from workflows import labels

NOT_THERE = ("snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.devmapper", "snapshotter.v1.aufs")
NO_DEVICES = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}'
"""What a kubelet itself writes down that has no device plug-in; the sum is a hash of Go's view of the data."""
PRODUCTS = {
    "nvidia.com/gpu": ("nvidia.com/gpu.product", "NVIDIA-H200"),
    "amd.com/gpu": ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM"),
}
"""The label by which a device plug-in's own labeller tells what GPUs a node has."""


def components(node: Node) -> tuple[str, str, str]:
    """Names of a node's three programs, in the order in which they start."""
    return f"containerd-{node.name}", f"kubelet-{node.name}", f"kube-proxy-{node.name}"


def socket(folder: Folder, node: Node) -> Path:
    """Where the node's containerd listens."""
    return folder.node(node.name) / "containerd.sock"


def start_runtime(cache: Cache, folder: Folder, node: Node, processes: Processes) -> None:
    """The node's containerd with all images."""
    home = folder.node(node.name)
    (home / "cni").mkdir(parents=True, exist_ok=True)
    (home / "cni" / "10-bed.conflist").write_text(json.dumps(_pod_network(home, node)), encoding="utf-8")
    (home / "containerd.toml").write_text(_runtime_settings(home), encoding="utf-8")
    name = components(node)[0]
    command = ["containerd", f"--config={home}/containerd.toml"]
    processes.start(Program(name, command, node.namespace, f"{node.name}/own"))
    client = ("ctr", "--address", socket(folder, node), "-n", "k8s.io")
    until(f"{name} answers, see {processes.log(name)}", lambda: succeeds(*client, "version"), limit_s=30)
    run(*client, "images", "import", "--snapshotter", "overlayfs", cache.images / images.ARCHIVE)


def _pod_network(home: Path, node: Node) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{home}/cni-data",
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False, "hairpinMode": True}
    return {"cniVersion": "0.4.0", "name": node.name, "plugins": [{**bridge, "ipam": addresses}]}


def _runtime_settings(home: Path) -> str:
    off = [f"io.containerd.{name}" for name in (*NOT_THERE, "internal.v1.opt", "tracing.processor.v1.otlp")]
    return f"""version = 2
root = "{home}/containerd/root"
state = "{home}/containerd/state"
disabled_plugins = {json.dumps(off)}
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.REGISTRY}/pause:{images.TAG}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{home}/cni"
"""


def start_kubelet(cache: Cache, folder: Folder, options: Options, node: Node, processes: Processes) -> None:
    """The node's kubelet and kube-proxy."""
    home = folder.node(node.name)
    root = groups.make_kubelet_root(node.name)
    _keep_counts(home / "kubelet" / "device-plugins")
    settings = write(home / "kubelet.yaml", _kubelet_settings(folder, options, node, root))
    _, kubelet, proxy = components(node)
    marks = ",".join(f"{key}={value}" for key, value in node_labels(options, node).items() if not _reserved(key))
    command = [
        f"{cache.binaries}/kubelet",
        f"--config={settings}",
        f"--kubeconfig={folder.kubeconfigs}/{node.name}",
        f"--root-dir={home}/kubelet",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--node-labels={marks}",
        "--v=2",
    ]
    processes.start(Program(kubelet, command, node.namespace, f"{node.name}/own"))
    command = [
        f"{cache.binaries}/kube-proxy",
        f"--kubeconfig={folder.kubeconfigs}/proxy",
        f"--hostname-override={node.name}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={options.network}.0.0/16",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
        f"--healthz-bind-address={node.address}:10256",
        "--metrics-bind-address=127.0.0.1:10249",
    ]
    processes.start(Program(proxy, command, node.namespace, f"{node.name}/own"))


def _keep_counts(folder: Path) -> None:
    """A kubelet that finds no checkpoint takes its node for a new one and sets the GPUs to 0 whenever it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kubelet_internal_checkpoint").write_text(NO_DEVICES, encoding="utf-8")


def _reserved(label: str) -> bool:
    """A kubelet may not set these itself."""
    return "kubernetes.io/" in label


def _kubelet_settings(folder: Folder, options: Options, node: Node, root: str) -> dict[str, object]:
    signed = folder.certificates
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": f"{signed}/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": f"{signed}/{node.name}.crt",
        "tlsPrivateKeyFile": f"{signed}/{node.name}.key",
        "containerRuntimeEndpoint": f"unix://{socket(folder, node)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": root,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": EVICTION,
        "clusterDomain": "cluster.local",
        "clusterDNS": [options.plane],
        "resolvConf": "",
        "maxPods": 200,
        "serializeImagePulls": False,
        "nodeLeaseDurationSeconds": options.lease_s,
        "nodeStatusUpdateFrequency": "4s",
        "registryPullQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        "healthzPort": 0,
        "containerLogMaxSize": "10Mi",
        "podLogsDir": f"{folder.node(node.name)}/pod-logs",
        "shutdownGracePeriod": "0s",
    }


EVICTION = {"memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}
"""A full disk of the machine would otherwise taint every node."""


def node_labels(options: Options, node: Node) -> dict[str, str]:
    """Where it stands and what it has."""
    rack = node.index // options.nodes_per_rack
    return {REAL_LABEL: "real", **place_labels(f"rack-{rack}", "block-0", options)}


def place_labels(rack: str, block: str, options: Options) -> dict[str, str]:
    """Labels of rack, block and kind of GPU."""
    product = PRODUCTS.get(options.gpu)
    return {labels.RACK: rack, labels.BLOCK: block, **({product[0]: product[1]} if product else {})}


def settle(api: Api, options: Options, node: Node, limit_s: float = 60.0) -> None:
    """Wait until a node is Ready and counts its GPUs."""
    until(f"{node.name} Ready", lambda: node.name in api.ready_nodes(), limit_s, every_s=0.2)
    give_gpus(api, options, node)


def give_gpus(api: Api, options: Options, node: Node) -> None:
    """GPUs that only count: the kubelet keeps what others write into its node's capacity."""
    path = f"/api/v1/nodes/{node.name}/status"
    count = {options.gpu: str(options.gpus)}
    api.request("PATCH", path, {"status": {"capacity": count, "allocatable": count}}, MERGE)
