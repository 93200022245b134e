"""What a node falls back to where other settings do not come up: kept before, put back where they failed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from workflows.bootstrap.host_file import STATE

BEFORE = f"{STATE}/before"
"""Files as they were before a change that is not proven yet, by their path below it; for root alone."""
BEGUN = f"{BEFORE}/begun"
"""There from before a change until it is proven on its node, or put back: whoever was killed between is told of it."""
_MANIFESTS = "/etc/kubernetes/manifests"
_CERTIFICATE = "/etc/kubernetes/pki/apiserver"
FILES: Mapping[str, tuple[str, ...]] = {
    "kubelet-config": ("/var/lib/kubelet/config.yaml",),
    "kube-apiserver": (f"{_MANIFESTS}/kube-apiserver.yaml",),
    "kube-controller-manager": (f"{_MANIFESTS}/kube-controller-manager.yaml",),
    "kube-scheduler": (f"{_MANIFESTS}/kube-scheduler.yaml",),
    "etcd": (f"{_MANIFESTS}/etcd.yaml",),
    "certificate": (f"{_CERTIFICATE}.crt", f"{_CERTIFICATE}.key"),
}
"""What is changed on a host -> its files."""
PHASES: Mapping[str, tuple[str, ...]] = {
    "certificate": ("certs", "apiserver"),
    "etcd": ("etcd", "local"),
    "kube-apiserver": ("control-plane", "apiserver"),
    "kube-controller-manager": ("control-plane", "controller-manager"),
    "kube-scheduler": ("control-plane", "scheduler"),
}
"""What is changed on a control plane -> the phase of `kubeadm init` that makes it anew, in this order."""
KEEP = f"""set -eu
umask 077
mkdir -p {BEFORE}
[ -e {BEGUN} ] || date >{BEGUN}
for file; do
  kept="{BEFORE}$file"
  if [ -e "$file" ] && [ ! -e "$kept" ]; then
    mkdir -p "$(dirname "$kept")"
    cp -p "$file" "$kept.half"
    mv "$kept.half" "$kept"
  fi
done
"""
"""Keeps the files that it is given. What is there already was kept by a try that was killed, and is older."""
PUT_BACK = f"""set -eu
[ -d {BEFORE} ] || exit 0
cd {BEFORE}
find . -mindepth 2 -type f ! -name '*.half' | while read -r file; do
  half="/$(dirname "$file")/.primus-half"  # hidden: kubelet runs whatever else lies among manifests
  cp -p "$file" "$half" && mv "$half" "/$file" && echo "$file"
done
rm -rf {BEFORE}
"""
"""Puts them back; prints which."""


def kept_files(parts: Collection[str]) -> list[str]:
    """Files that a change of these parts writes."""
    return [file for part, files in FILES.items() if part in parts for file in files]


def phases(parts: Collection[str]) -> list[list[str]]:
    """Phases of `kubeadm init` that make these parts anew."""
    return [list(words) for part, words in PHASES.items() if part in parts]
