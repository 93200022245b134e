"""What is taken off a host that was a node, as scripts of a POSIX shell. Pure."""

from __future__ import annotations

from workflows.bootstrap import fallback, pod_network, virtual_address
from workflows.bootstrap.host_file import STATE
from workflows.bootstrap.host_state import KUBELET_UNIT, HostState

SNAPSHOTS = f"{STATE}/etcd-snapshots"
"""Where `plane.py` keeps etcd, and in it every Secret of the cluster."""
MARK = f"{STATE}/joined"
"""Says that kubeadm came to its end on the host, and with which version. It only decides how a step is taken up:
whether a step holds is never read from it."""
SWEEP = f"""
for link in {pod_network.BRIDGE} kube-ipvs0; do ip link delete "$link" 2>/dev/null && echo "$link"; done
ip route flush proto {pod_network.PROTOCOL} 2>/dev/null
for table in 'ip kube-proxy' 'ip6 kube-proxy' 'ip primus-pods'; do
  nft delete table $table 2>/dev/null && echo "table $table"
done
for family in iptables ip6tables; do
  if command -v $family-save >/dev/null && $family-save 2>/dev/null | grep -q -e KUBE- -e CNI-; then
    $family-save | grep -v -e KUBE- -e CNI- | $family-restore && echo "$family"
  fi
done
for folder in /var/lib/etcd /var/lib/kubelet /var/lib/cni /etc/kubernetes; do
  if [ -d $folder ] && [ -n "$(ls -A $folder)" ]; then
    find $folder -mindepth 1 -xdev -delete 2>/dev/null; echo $folder
  fi
done
rm -f {pod_network.CONFLIST} {pod_network.ROUTES} {MARK}
rm -rf {fallback.BEFORE}
"""
"""What `kubeadm reset` leaves; prints what there was."""
FAREWELL = f"""
for unit in kubelet.service {virtual_address.UNIT} {pod_network.TIMER} {pod_network.SERVICE}; do
  systemctl disable --now $unit 2>/dev/null
done
rm -rf {SNAPSHOTS}
"""
"""Of a host that leaves for good; one whose join is taken up again keeps its snapshots."""


def own_paths(state: HostState) -> list[str]:
    """Our files on a host, but those that tune it and its container runtime: they may serve others."""
    kept = ("/etc/containerd/", "/etc/sysctl.d/", "/etc/modules-load.d/", "/etc/systemd/system/containerd.service")
    found = [file.path for file in state.files if not file.path.startswith(kept)]
    return sorted({KUBELET_UNIT, *found, *(item.target for item in state.downloads if not item.unpack)})
