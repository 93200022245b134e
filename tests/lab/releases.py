"""What a site would have written down: files on a mirror, releases with digests, the cluster profile `made`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiles.bootstrap.inventory import Bootstrap, ComponentChoice
from profiles.bootstrap.release import NEEDED, ReleaseFile, ReleaseImage, ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.loading.load import dump, load_run
from profiles.run import RunProfile
from profiles.workspace import WorkspaceProfile
from tests.bed.layout import Cache
from tests.bed.prebuilt import digest_of
from tests.lab import images, network, programs
from tests.lab.images import BUSYBOX
from tests.lab.layout import FIRST, SERVER, VIRTUAL, Folder, Options
from tests.lab.programs import KUBERNETES, VERSION, place_file

CLUSTER = "made"
"""Name of the cluster profile."""
MIRROR_PORT = 8080
MIRROR = f"http://{SERVER}:{MIRROR_PORT}"
"""Files of the mirror, as hosts fetch them."""
REGISTRY_PORT = 5000
REGISTRY = f"{SERVER}:{REGISTRY_PORT}"
KUBELET: dict[str, object] = {
    "failCgroupV1": False,  # this machine has version 1 of control groups alone
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    "imageGCHighThresholdPercent": 100,  # images come from an archive: what is collected is not to be had again
    "serializeImagePulls": False,
}
KUBE_PROXY: dict[str, object] = {
    "mode": "nftables",
    # Limits of connection tracking are the machine's: no host may write them.
    "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
}
CONTAINERD: dict[str, bool | int | str] = {
    "restrict_oom_score_adj": True,  # the machine's root may not lower it (no CAP_SYS_RESOURCE)
    "disable_apparmor": True,
}
PROGRAMS_IMAGE = "primus-flows/programs:0.1"
LIMITS: dict[str, object] = {"etcd_fsync_ms": 500.0, "free_disk_gib": 2.0}
"""All hosts share one disk with whatever else this machine does."""
NOFILE = 16_384
"""Below the hard limit of this machine, which nobody may raise here."""


def stock(here: Cache, root: Path, lab: Folder, version: str = VERSION) -> ReleaseProfile:
    """Put a version's files and images on the mirror and write its release beside it; returns the release."""
    number = version.removeprefix("v")
    found: dict[str, ReleaseFile] = {}
    for name in NEEDED:
        source = programs.program(here, "kubeadm" if name == "kubeadm" else KUBERNETES, version)
        found[name] = _offer(lab, source, f"{number}/{name}")
    archives = tuple(
        _offer(lab, images.archive(here, root, one), f"{one.removeprefix('v')}/images.tar")
        for one in dict.fromkeys((VERSION, version))
    )
    listed = tuple(ReleaseImage(name=name) for name in images.names(here, version) if name != BUSYBOX)
    release = ReleaseProfile(
        name=release_path(lab, version).stem,
        description=f"Kubernetes {number}, compiled on this machine; images in one archive.",
        version=number,
        files=found,
        images=listed,
        image_archives=archives,
    )
    release_path(lab, version).write_text(dump(release), encoding="utf-8")
    return release


def _offer(lab: Folder, source: Path, path: str) -> ReleaseFile:
    """Put a file on the mirror."""
    place_file(source, lab.mirror / path)
    return ReleaseFile(path=path, sha256=digest_of(source))


def release_path(lab: Folder, version: str = VERSION) -> Path:
    """Where a version's release stands."""
    return lab.root / f"lab-{version.removeprefix('v')}.yaml"


def profile_path(lab: Folder) -> Path:
    """Where the cluster profile stands."""
    return lab.root / f"{CLUSTER}.yaml"


def whole_profile_path(lab: Folder) -> Path:
    """Where the profile of the same cluster with components stands."""
    return lab.root / f"{CLUSTER}-whole.yaml"


def bootstrap(lab: Folder, options: Options) -> Bootstrap:
    """The hosts, and what they need because they are no machines of their own.

    Three control planes on which work may run, the others workers; of fewer than three hosts one carries it all. Each
    host stands in a rack of its own.
    """
    planes = 3 if options.hosts >= 3 else 1
    hosts = {
        name: {
            "address": network.address_of(name),
            "role": "both" if place < planes else "worker",
            "rack": f"rack-{place + 1}",
        }
        for place, name in enumerate(options.names())
    }
    engine = {
        "kind": "kubeadm",
        "release": str(release_path(lab)),
        "ignore_preflight": ["SystemVerification"],  # version 1 of control groups
        "kubelet": KUBELET,
        "kube_proxy": KUBE_PROXY,
        "containerd": CONTAINERD,
    }
    made: dict[str, Any] = {
        "hosts": hosts,
        "ssh": {"private_key_file": str(lab.private_key), "known_hosts_file": str(lab.known_hosts)},
        "engine": engine,
        "endpoint": {"address": VIRTUAL, "interface": network.CARD},
        "networks": {"pods": f"{FIRST}.128.0/17", "services": f"{FIRST}.64.0/20"},
        "mirror": {"files_url": MIRROR},
        "tuning": {"nofile": NOFILE},
        "limits": LIMITS,
        "install_components": False,  # their images are none of the lab's
    }
    return Bootstrap.model_validate(made)


def cluster(lab: Folder, options: Options) -> ClusterProfile:
    """The cluster profile `made`: hosts, and nothing on them but Kubernetes."""
    shared = str(lab.shared)
    made: dict[str, Any] = {
        "name": CLUSTER,
        "engine": "kubernetes",
        "description": "Hosts of the lab on this machine; `make lab-up` starts them.",
        "kubeconfig": "{home}/clusters/made/kubeconfig",
        "namespace": "training",
        "queue": "training",
        "programs_image": PROGRAMS_IMAGE,
        "run_as_user": 0,  # the shared folder is root's
        "admission": {"suite": "any-machine"},  # the kernel and its log are the machine's, and no host's own
        "pools": [{"name": "cpu", "hardware": "cpu", "nodes": options.hosts, "cpus_per_node": 2}],
        "storage": [{"kind": "host_path", "source": shared, "mount_path": shared}],
        "bootstrap": bootstrap(lab, options),
    }
    return ClusterProfile.model_validate(made)


def write_profile(lab: Folder, options: Options) -> Path:
    """The cluster profile `made`, as a file that commands take by its path."""
    profile_path(lab).write_text(dump(cluster(lab, options)), encoding="utf-8")
    return profile_path(lab)


def write_whole_profile(lab: Folder, options: Options, more: Sequence[ComponentChoice] = ()) -> Path:
    """The same cluster with Argo Workflows, JobSet, Kueue, a workspace and `more`, proven by a training run."""
    bare, workspace, run = cluster(lab, options), lab.root / "workspace.yaml", lab.root / "proof.yaml"
    workspace.write_text(dump(_workspace()), encoding="utf-8")
    run.write_text(dump(_run()), encoding="utf-8")
    section = bootstrap(lab, options)
    values: dict[str, object] = {"profile": str(workspace)}
    changes: dict[str, Any] = {
        "install_components": True,
        "proof_run": str(run),
        "mirror": section.mirror.model_copy(update={"registry": REGISTRY, "registry_insecure": True}),
        "components": (ComponentChoice(name="primus-workspace", values=values), *more),
    }
    whole = bare.model_copy(update={"bootstrap": section.model_copy(update=changes)})
    whole_profile_path(lab).write_text(dump(whole), encoding="utf-8")
    return whole_profile_path(lab)


def _run() -> RunProfile:
    """The demo, for nodes whose few processors carry a control plane too."""
    demo = load_run("demo")
    small = {"cpu": "100m", "memory": "256Mi"}
    roles = tuple(role.model_copy(update={"resources": role.resources.model_copy(update=small)}) for role in demo.roles)
    return demo.model_copy(update={"name": "proof", "roles": roles})


def _workspace() -> WorkspaceProfile:
    quotas = {"cpu": {"nominal": "6"}, "memory": {"nominal": "12Gi"}}
    made: dict[str, Any] = {
        "name": "training",
        "description": "Where runs of the lab train.",
        "queue": "training",
        "flavors": [{"name": "cpu", "quotas": quotas}],
        "pod_security": "privileged",  # storage is a folder of the hosts
    }
    return WorkspaceProfile.model_validate(made)
