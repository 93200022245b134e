"""containerd on a host: its configuration, its limits, and where it finds images."""

from __future__ import annotations

import json

from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.inventory import Bootstrap, Mirror
from profiles.bootstrap.release import ReleaseProfile
from workflows.bootstrap.host_file import SETTINGS, UNITS, HostFile

SOCKET = "unix:///run/containerd/containerd.sock"
CONFIG = "/etc/containerd/config.toml"
REGISTRIES = "/etc/containerd/certs.d"
AUTHORITY = f"{SETTINGS}/mirror-ca.crt"
PLUGINS = "/opt/cni/bin"
PLUGIN_FOLDERS = ("/usr/lib/cni", "/usr/libexec/cni")
"""Where distributions put CNI plug-ins; one of them stands for `PLUGINS` where the release brings none."""
CRI = "io.containerd.grpc.v1.cri"
"""Name of the plug-in in configurations of version 2, which containerd 1.6 and all later ones read."""
_LIMITS = """[Service]
LimitNOFILE={nofile}
LimitMEMLOCK=infinity
TasksMax=infinity
"""
"""Pods have these limits from containerd; RDMA pins the memory that it works on."""
_UNIT = f"""[Unit]
Description=containerd: the container runtime
After=network.target local-fs.target

[Service]
ExecStart=/usr/local/bin/containerd --config {CONFIG}
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""


def files(engine: Kubeadm, bootstrap: Bootstrap, release: ReleaseProfile, authority: str) -> list[HostFile]:
    """Its files; `authority`: certificates of the mirror, PEM, or ""."""
    made = [HostFile(CONFIG, config(engine, release))]
    if bootstrap.tuning.nofile:
        limits = _LIMITS.format(nofile=bootstrap.tuning.nofile)
        made.append(HostFile(f"{UNITS}/containerd.service.d/50-primus-flows.conf", limits))
    if "containerd" in release.files:
        made.append(HostFile(f"{UNITS}/containerd.service", _UNIT))
    if "crictl" in release.files:
        made.append(HostFile("/etc/crictl.yaml", f"runtime-endpoint: {SOCKET}\nimage-endpoint: {SOCKET}\n"))
    if authority:
        made.append(HostFile(AUTHORITY, authority))
    server = bootstrap.mirror.registry.partition("/")[0]
    if server:
        made.append(HostFile(f"{REGISTRIES}/_default/hosts.toml", hosts_file(bootstrap.mirror, authority)))
        made.append(HostFile(f"{REGISTRIES}/{server}/hosts.toml", own_hosts_file(bootstrap.mirror, authority)))
    if bootstrap.own_registry not in ("", server):  # of one and the same, the mirror's file says how it is spoken to
        path = f"{REGISTRIES}/{bootstrap.own_registry}/hosts.toml"
        made.append(HostFile(path, cluster_hosts_file(bootstrap.own_registry)))
    return made


def config(engine: Kubeadm, release: ReleaseProfile) -> str:
    """config.toml."""
    pause = next((image.name for image in release.images if "/pause:" in image.name), "")
    own: dict[str, bool | int | str] = {"sandbox_image": pause} if pause else {}
    lines = ["version = 2", f'[plugins."{CRI}"]', *_fields({**own, **engine.containerd})]
    lines += [f'[plugins."{CRI}".registry]', *_fields({"config_path": REGISTRIES})]
    lines += [f'[plugins."{CRI}".containerd.runtimes.runc]', *_fields({"runtime_type": "io.containerd.runc.v2"})]
    lines += [f'[plugins."{CRI}".containerd.runtimes.runc.options]', *_fields({"SystemdCgroup": True})]
    return "\n".join(lines) + "\n"


def hosts_file(mirror: Mirror, authority: str) -> str:
    """Where images of all registries are looked for first."""
    server, _, folder = mirror.registry.partition("/")
    where = f"{_scheme(mirror)}://{server}" + (f"/v2/{folder}" if folder else "")
    own: dict[str, bool | int | str] = {"override_path": True} if folder else {}
    lines = [f'[host."{where}"]', '  capabilities = ["pull", "resolve"]']
    return "\n".join([*lines, *(f"  {line}" for line in _fields({**own, **_trust(authority)}))]) + "\n"


def own_hosts_file(mirror: Mirror, authority: str) -> str:
    """How the mirror is spoken to where an image names it."""
    server = f"{_scheme(mirror)}://{mirror.registry.partition('/')[0]}"
    lines = [f'server = "{server}"', f'[host."{server}"]', '  capabilities = ["pull", "resolve", "push"]']
    return "\n".join([*lines, *(f"  {line}" for line in _fields(_trust(authority)))]) + "\n"


def cluster_hosts_file(server: str) -> str:
    """How the cluster's own registry is spoken to, `host:port`: by HTTP without TLS, and to pull alone."""
    url = f"http://{server}"
    return "\n".join([f'server = "{url}"', f'[host."{url}"]', '  capabilities = ["pull", "resolve"]']) + "\n"


def _scheme(mirror: Mirror) -> str:
    return "http" if mirror.registry_insecure else "https"


def _trust(authority: str) -> dict[str, bool | int | str]:
    return {"ca": AUTHORITY} if authority else {}


def _fields(values: dict[str, bool | int | str]) -> list[str]:
    """Lines of TOML; its basic strings escape as JSON's do."""
    return [f"  {name} = {json.dumps(value)}" for name, value in values.items()]
