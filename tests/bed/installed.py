"""The product on the bed as a site installs it: images, a folder of values, two Secrets, `kubectl apply -k`.

What the bed has to give beyond that is what any cluster gives: a volume for the database, and a registry, in place of
which the images are imported into the node that the site's values name.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
import shutil
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deployments.images.__main__ import Built, build
from profiles.loading.load import load_cluster
from tasks.ledger.ledger import Ledger
from tasks.prefect.services import code_stamp
from tests.bed import groups, nodes, postgres_image, tenancy
from tests.bed.api import Manifest
from tests.bed.commands import run, until
from tests.bed.ground import pod_groups
from tests.bed.layout import ROOT, Cache
from tests.bed.up import Bed
from tests.support.harness.runners import Asking
from tests.support.running.waiting import patience
from workflows.platform.pod_shapes import NAME, NAMESPACE

SHIPPED = ROOT / "deployments" / "kubernetes"
SERVER, DATABASE, RUNNERS, MONITORS = "primus-prefect", "primus-postgres", "primus-runner", "primus-monitor"
"""Parts of what is installed; also their Services, where they have one."""
SERVER_PORT, PAGE_PORT = 4200, 9464
DATABASE_SECRET, SERVER_SECRET = "primus-database", "primus-prefect"
CONTROL, POSTGRES = "bed.local/control:1", "bed.local/postgres:15"
NODE = "node-0"
"""Where all of it runs: one import of half a gigabyte in place of three."""
CLUSTER = "site"
"""Name of the site's cluster profile."""
STORAGE_CLASS = VOLUME = "primus-bed-database"
READY_S = patience(240)
GONE_S = patience(120.0)


@dataclass(frozen=True)
class Installed:
    """An installation that is ready, and a person who uses it."""

    bed: Bed
    home: Path
    """A folder that all nodes share, in which the runs' folders lie."""
    password: str
    site: Path

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """As the administrator."""
        return kubectl(self.bed, *words, stdin=stdin)

    def pod(self, part: str) -> Manifest:
        """The one living pod of a part."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={NAME}%3D{part}"
        living = [pod for pod in self.bed.api.get(path)["items"] if not pod["metadata"].get("deletionTimestamp")]
        [found] = living
        return found

    def address(self, part: str) -> str:
        """Of its pod: this machine has no route to services, pods have."""
        return str(self.pod(part)["status"]["podIP"])

    @property
    def api_url(self) -> str:
        """Of the Prefect server."""
        return f"http://{self.address(SERVER)}:{SERVER_PORT}/api"

    @property
    def page_url(self) -> str:
        """Of the runner's page of figures."""
        return f"http://{self.address(RUNNERS)}:{PAGE_PORT}"

    def asking(self) -> Asking:
        """Somebody with the server's password."""
        word = base64.b64encode(f"admin:{self.password}".encode()).decode()
        return Asking(self.api_url, f"train/{CLUSTER}", {"Authorization": f"Basic {word}"})

    def ledger(self) -> Ledger:
        """The ledger in the cluster's database."""
        return Ledger(f"postgresql://primus:{self.password}@{self.address(DATABASE)}:5432/ledger")

    def restart_runner(self) -> None:
        """An upgrade, as `kubectl` does it; returns when the new pod is ready and the old one let go."""
        self.kubectl("-n", NAMESPACE, "rollout", "restart", f"deployment/{RUNNERS}")
        self.ready(RUNNERS)

    def ready(self, part: str) -> None:
        """Wait for the rollout of a Deployment."""
        self.kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{part}", f"--timeout={READY_S}s")

    def kill_runner(self) -> None:
        """SIGKILL to the first process of its container: all of the others go with it."""
        pod = self.pod(RUNNERS)
        uid, before = pod["metadata"]["uid"], restarts(pod)
        found = {pid for group in pod_groups(NODE, uid) for pid in groups.members(group)}
        [first] = [pid for pid in found if _is_runner(pid) and _parent(pid) not in found]
        os.kill(first, signal.SIGKILL)
        until("the runner's container started again", lambda: restarts(self.pod(RUNNERS)) > before, GONE_S, 0.1)

    def delete(self) -> None:
        """Everything that was applied, the namespace too; returns when it is gone."""
        self.kubectl("delete", "--ignore-not-found", "--wait", f"--timeout={GONE_S:.0f}s", "-k", str(self.site))


def kubectl(bed: Bed, *words: str, stdin: str | None = None) -> str:
    """What it printed."""
    return run(bed.cache.binaries / "kubectl", "--kubeconfig", bed.folder.kubeconfig, *words, stdin=stdin)


def restarts(pod: Manifest) -> int:
    """How often its container was started again."""
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))


def _is_runner(pid: int) -> bool:
    try:
        return b"deployments.processes.runner" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def images_of(cache: Cache) -> Generator[Path]:
    """The folder of the images, for one who builds there."""
    folder = cache.root / "installation"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield folder


def control(folder: Path) -> Built:
    """The control image, built anew: whoever installs it afterwards finds it."""
    stamp = folder / "stamp"
    stamp.unlink(missing_ok=True)
    built = build("control", folder, [CONTROL])
    stamp.write_text(_sources())
    return built


def _sources() -> str:
    return f"{code_stamp()} {(ROOT / 'constraints.txt').read_text()}"


def images(bed: Bed) -> None:
    """Both images on the node; the control image is built anew where any of our sources changed."""
    [node] = [one for one in bed.options.real_nodes() if one.name == NODE]
    client = ("ctr", "--address", nodes.socket(bed.folder, node), "-n", "k8s.io")
    with images_of(bed.cache) as folder:
        stamp, postgres = folder / "stamp", folder / "postgres.tar"
        if not stamp.exists() or stamp.read_text() != _sources():
            control(folder)
            postgres.unlink(missing_ok=True)
        if not postgres.exists():
            half = folder / "postgres.half"
            postgres_image.build(half, POSTGRES)
            half.rename(postgres)
        for archive in ("control.tar", "postgres.tar"):
            run(*client, "images", "import", "--snapshotter", "overlayfs", folder / archive)


def values() -> dict[str, Any]:
    """What a site writes down: its `kustomization.yaml`."""
    here = yaml.safe_dump({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": NODE}}}}})
    named = [("Deployment", name) for name in (SERVER, RUNNERS, MONITORS)] + [("StatefulSet", DATABASE)]
    pinned = [
        {
            "target": {"kind": kind, "name": name},
            "patch": f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{here}",
        }
        for kind, name in named
    ]
    add = {"op": "add", "path": "/spec/volumeClaimTemplates/0/spec/storageClassName", "value": STORAGE_CLASS}
    storage = {"target": {"kind": "StatefulSet", "name": DATABASE}, "patch": yaml.safe_dump([add])}
    profiles = ["cluster.yaml", "story.yaml"]
    return {
        "resources": ["../base"],
        "components": ["../components/postgres"],
        "images": [_image("primus-flows/control", CONTROL), _image("postgres", POSTGRES)],
        "configMapGenerator": [
            {"name": "primus-site", "namespace": NAMESPACE, "behavior": "merge", "files": profiles},
        ],
        "patches": [storage, *pinned],
    }


def _image(name: str, ours: str) -> dict[str, str]:
    new, _, tag = ours.partition(":")
    return {"name": name, "newName": new, "newTag": tag}


def site(home: Path) -> Path:
    """A folder as a team keeps it: the shipped parts, and its own values beside them."""
    for part in ("accounts", "base", "components"):
        shutil.copytree(SHIPPED / part, home / part)
    (home / "site").mkdir()
    bed = load_cluster("bed").model_dump(mode="json", exclude_defaults=True)
    shared = {"kind": "host_path", "source": f"{home}/shared", "mount_path": f"{home}/shared"}
    # It looks on: what the stories of this bed break is theirs to mend.
    profile = {**bed, "name": CLUSTER, "context": "", "storage": [shared], "monitor": {"mode": "observe"}}
    (home / "site" / "cluster.yaml").write_text(yaml.safe_dump(profile))
    shutil.copy(ROOT / "tests" / "support" / "profiles" / "story.yaml", home / "site")
    (home / "site" / "kustomization.yaml").write_text(yaml.safe_dump(values()))
    return home / "site"


def volume(path: Path) -> Manifest:
    """What a storage class gives elsewhere: room on the node for the database."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def secret(bed: Bed, name: str, **entries: str) -> None:
    """As docs/kubernetes.md makes it."""
    words = [f"--from-literal={key.replace('_', '-')}={value}" for key, value in entries.items()]
    kubectl(bed, "-n", NAMESPACE, "create", "secret", "generic", name, *words)


@contextmanager
def installed(bed: Bed, home: Path) -> Generator[Installed]:
    """The product, ready; afterwards the bed is as it was.

    Args:
        bed: with nothing of the product but its accounts.
        home: an empty folder with a short path.
    """
    for folder in ("database", "shared"):
        (home / folder).mkdir()
    home.chmod(0o755)
    (home / "shared").chmod(0o1777)
    images(bed)
    password = secrets.token_hex(16)
    made = Installed(bed, home, password, site(home))
    bed.api.ensure(volume(home / "database"))
    try:
        made.kubectl("apply", "--server-side", "-k", str(made.site))
        urls = {"prefect": "postgresql+asyncpg", "ledger": "postgresql"}
        where = f"primus:{password}@{DATABASE}:5432"
        given = {f"{name}_url": f"{scheme}://{where}/{name}" for name, scheme in urls.items()}
        secret(bed, DATABASE_SECRET, password=password, **given)
        secret(bed, SERVER_SECRET, auth_string=f"admin:{password}")
        for part in (SERVER, RUNNERS, MONITORS):
            made.ready(part)
        yield made
    finally:
        made.delete()
        bed.api.delete(volume(home / "database"))
        tenancy.settle(bed.api, bed.folder, bed.options)


def told(made: Installed) -> str:
    """What its pods say, for a failed assertion."""
    asked = ("-n", NAMESPACE, "logs", "--tail=40", "--all-containers", "--prefix", "-l", NAME)
    return made.kubectl("-n", NAMESPACE, "get", "pods", "-o", "wide") + made.kubectl(*asked)
