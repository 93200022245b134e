"""What the plays of the engine `kubeadm` are given: plain data, of which nothing is a template or secret."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import workflows
from profiles.bootstrap.inventory import API_PORT, Bootstrap, Mirror
from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from tasks.settings import expanded
from workflows.bootstrap import (
    container_runtime,
    fallback,
    kubeadm_documents,
    leaving,
    pod_network,
    tuning,
    virtual_address,
)
from workflows.bootstrap.component_configuration import wanted_kube_proxy, wanted_kubelet
from workflows.bootstrap.host_file import PENDING, STATE
from workflows.bootstrap.host_state import Download, HostState, host_state, sections
from workflows.labels import STARTUP_TAINT

DOCUMENT = "/run/primus-flows-kubeadm.yaml"
"""What kubeadm reads; in memory, for root alone, for as long as it runs."""
SNAPSHOTS_KEPT = 5
NODE_SECONDS = 60
"""For a node that joined to make itself known and get its range."""
_ARCHIVES = f"{STATE}/archives"
_SECRETS = "kubectl --kubeconfig=/etc/kubernetes/admin.conf --namespace=kube-system"
_FORGET = f"""owner=$({_SECRETS} get secret kubeadm-certs --ignore-not-found \\
  --output='jsonpath={{.metadata.ownerReferences[*].name}}')
exec {_SECRETS} delete secret kubeadm-certs $owner --ignore-not-found
"""
"""Takes back the certificates, and the token by whose end kubeadm would have them removed after two hours."""
PROXY_PORT = 10256
"""At which kube-proxy tells how it is, where nobody says otherwise."""
EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is taken away, not bound to
SERVE_SECONDS = 60
"""For a kubelet or a kube-proxy that was begun anew to answer."""
PLANE_SECONDS = 240
"""For a control plane with other arguments to serve; kubeadm itself gives it four minutes."""
_KUBELET_SERVES = """"$0" "$@" && exit 0
journalctl --unit=kubelet --lines=3 --output=cat --no-pager >&2
exit 1
"""
"""Runs what waits for kubelet, and tells kubelet's own last words where it waits in vain."""
_PROGRAMS = Path(str(workflows.__file__)).parent / "programs" / "hosts"


def common_variables(cluster: ClusterProfile, release: ReleaseProfile, check: bool) -> dict[str, object]:
    """Of all hosts.

    Raises:
        ProfileError: the mirror is nowhere.
    """
    bootstrap, engine = sections(cluster)
    sources, places = _copies(bootstrap, release)
    conflist = {"path": pod_network.CONFLIST, "content": pod_network.conflist(bootstrap.networks).content}
    return {
        "primus_python": bootstrap.ssh.python,
        "primus_put": program("put"),
        "primus_plane": program("plane"),
        "primus_check": check,
        "primus_check_flags": ["--check"] if check else [],
        "primus_version": f"v{release.version}",
        "primus_mark": leaving.MARK,
        "primus_pending": PENDING,
        "primus_document": DOCUMENT,
        "primus_kubeadm": _kubeadm(f"v{release.version}"),
        "primus_forget": _FORGET,
        "primus_token_minutes": kubeadm_documents.TOKEN_MINUTES,
        "primus_startup_taint": STARTUP_TAINT,
        "primus_snapshots": SNAPSHOTS_KEPT,
        "primus_node_seconds": NODE_SECONDS,
        "primus_server": kubeadm_documents.server_of(bootstrap),
        "primus_api_service": kubeadm_documents.api_service(bootstrap),
        "primus_peers": {name: bootstrap.hosts[name].ip for name in bootstrap.control_planes},
        "primus_joins_control": False,
        "primus_ignored": list(engine.ignore_preflight),
        "primus_sweep": leaving.SWEEP,
        "primus_farewell": leaving.FAREWELL,
        "primus_routed": engine.network == "routed-bridge",
        "primus_conflist": conflist,
        "primus_routes": pod_network.ROUTES,
        "primus_archives": _ARCHIVES,
        **_rollout(cluster),
        "primus_sources": sources,
        "primus_places": places,
    }


def _rollout(cluster: ClusterProfile) -> dict[str, object]:
    """Of plays that give nodes other settings."""
    kubelet, proxy = wanted_kubelet(cluster), wanted_kube_proxy(cluster)
    health = str(proxy.get("healthzBindAddress") or f":{PROXY_PORT}").removeprefix(EVERYWHERE)
    return {
        "primus_serves": program("serves"),
        "primus_serve_seconds": SERVE_SECONDS,
        "primus_plane_seconds": PLANE_SECONDS,
        "primus_kubelet_serves": _KUBELET_SERVES,
        "primus_kubelet_health": f"http://{kubelet['healthzBindAddress']}:{kubelet['healthzPort']}/healthz",
        "primus_proxy_health": f"http://{'127.0.0.1' if health.startswith(':') else ''}{health}/healthz",
        "primus_address_unit": virtual_address.UNIT,
        "primus_keep": fallback.KEEP,
        "primus_put_back": fallback.PUT_BACK,
        "primus_before": fallback.BEFORE,
    }


def change_variables(cluster: ClusterProfile, version: str, name: str, parts: Collection[str]) -> dict[str, object]:
    """Of one node whose settings change.

    Args:
        cluster: with its section `bootstrap`.
        version: that the cluster is meant to have now, without a leading v.
        name: of the node.
        parts: what is to be changed on it.
    """
    arguments = kubeadm_documents.control_arguments(cluster)
    return {
        "primus_parts": sorted(parts),
        "primus_kept": fallback.kept_files(parts),
        "primus_phases": fallback.phases(parts),
        "primus_configuration": kubeadm_documents.configuration_documents(cluster, version, name),
        "primus_running": {
            program: {"arguments": given, "variables": dict(kubeadm_documents.CONTROL_VARIABLES.get(program, {}))}
            for program, given in arguments.items()
            if program in parts
        },
        "primus_own_server": own_server(sections(cluster)[0], name),
    }


def host_variables(cluster: ClusterProfile, release: ReleaseProfile, name: str) -> dict[str, object]:
    """Of one host.

    Raises:
        ProfileError: the mirror is nowhere, or the release lacks a digest.
    """
    bootstrap, _ = sections(cluster)
    host, authority = bootstrap.hosts[name], authority_of(bootstrap.mirror)
    state = host_state(cluster, release, name, authority)
    links = {} if "cni-plugins" in release.files else {container_runtime.PLUGINS: container_runtime.PLUGIN_FOLDERS}
    fetched = {"authority": authority}
    return {
        "primus_settings": {
            "modules": state.modules,
            "files": [{"path": file.path, "content": file.content, "mode": file.mode} for file in state.files],
            "sysctls": state.sysctls,
            "links": links,
            "pending": PENDING,
        },
        "primus_programs": {"downloads": _items(bootstrap.mirror, state.downloads), "pending": PENDING, **fetched},
        "primus_images": {"images": state.images, "archives": _items(bootstrap.mirror, state.archives), **fetched},
        "primus_units": _units(state),
        "primus_controls": host.controls,
        "primus_init": kubeadm_documents.init_documents(cluster, release.version, name),
        "primus_join": kubeadm_documents.join_document(cluster, name),
        "primus_certificates": kubeadm_documents.certificates_documents(cluster, release.version, name),
        "primus_labels": [f"{key}={value}" for key, value in kubeadm_documents.node_labels(cluster, name).items()],
        "primus_taints": list(kubeadm_documents.taints(cluster, name)),
        "primus_own": leaving.own_paths(state),
    }


def _kubeadm(version: str) -> str:
    """A script that runs kubeadm and writes down that it came through: whoever started it may be dead by then."""
    done = f"mkdir -p {STATE} && echo {version} > {leaving.MARK}"
    return f'"$0" "$@"; code=$?; rm -f {DOCUMENT}; [ $code -ne 0 ] || {{ {done}; }}; exit $code'


def own_server(bootstrap: Bootstrap, name: str) -> str:
    """Where a control plane's own API server listens, `address:port`."""
    return f"{bootstrap.hosts[name].ip}:{API_PORT}"


def authority_of(mirror: Mirror) -> str:
    """Certificates that vouch for the mirror, PEM; "": none.

    Raises:
        ProfileError: the file cannot be read.
    """
    if not mirror.ca_file:
        return ""
    path = expanded(mirror.ca_file, "bootstrap.mirror.ca_file")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ProfileError("bootstrap.mirror.ca_file", f"cannot be read: {error}") from error


def program(name: str) -> str:
    """Source of a program that is sent to hosts as it is."""
    return (_PROGRAMS / f"{name}.py").read_text(encoding="utf-8")


def _items(mirror: Mirror, downloads: Sequence[Download]) -> list[dict[str, object]]:
    return [
        {
            "name": item.name,
            "url": f"{mirror.files_url.rstrip('/')}/{item.path}" if mirror.files_url else "",
            "sha256": item.sha256,
            "target": item.target,
            "unpack": item.unpack,
            "at": _at(item),
            "stamp": item.stamp,
        }
        for item in downloads
    ]


def _at(item: Download) -> str:
    return f"{_ARCHIVES}/{item.name}" if item.unpack else item.target


def _copies(bootstrap: Bootstrap, release: ReleaseProfile) -> tuple[dict[str, str], dict[str, str]]:
    """Where files lie here and where they go on hosts, by name; none where hosts fetch them themselves."""
    mirror = bootstrap.mirror
    if mirror.files_url:
        return {}, {}
    if not mirror.files_folder:
        raise ProfileError("bootstrap.mirror", "says neither files_url nor files_folder: where is the release?")
    folder = Path(expanded(mirror.files_folder, "bootstrap.mirror.files_folder"))
    names = {name: file.path for name, file in release.files.items()}
    names |= {Path(file.path).name: file.path for file in release.image_archives}
    missing = [path for path in names.values() if not (folder / path).is_file()]
    if missing:
        raise ProfileError("bootstrap.mirror.files_folder", f"{folder} has no {', '.join(missing)}")
    return {name: str(folder / path) for name, path in names.items()}, _places(release)


def _places(release: ReleaseProfile) -> dict[str, str]:
    return {
        name: f"{_ARCHIVES}/{name}" if file.unpack else f"/usr/local/bin/{name}" for name, file in release.files.items()
    }


def _units(state: HostState) -> list[dict[str, object]]:
    """Units of a host, each with what it is begun anew for."""
    causes = {
        "containerd.service": (
            container_runtime.CONFIG,
            "/etc/systemd/system/containerd.service",
            "/usr/local (containerd)",
        ),
        virtual_address.UNIT: (
            virtual_address.CONFIG,
            virtual_address.START,
            f"/etc/systemd/system/{virtual_address.UNIT}",
        ),
        tuning.UNIT: (tuning.SCRIPT, f"/etc/systemd/system/{tuning.UNIT}"),
    }
    known = [file.path for file in state.files]
    known += [f"{item.target} ({item.name})" for item in state.downloads if item.unpack]
    return [
        {"name": unit, "of": [path for path in known if path.startswith(causes.get(unit, ()))]} for unit in state.units
    ]
