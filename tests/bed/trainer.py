"""Kubeflow's Trainer on the bed, for who asks for it: compiled and started then, and taken away again."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager

from tests.bed import building, certificates, controllers, manifests, prebuilt, starting
from tests.bed.api import Manifest
from tests.bed.commands import until
from tests.bed.layout import Cache
from tests.bed.options import NAMESPACE
from tests.bed.plane import healthy, write
from tests.bed.processes import Program
from tests.bed.up import Bed

NAME = "trainer"
SPACE = "kubeflow-system"
ACCOUNT = "kubeflow-trainer-controller-manager"
PORT, HEALTH_PORT = 9445, 8083


def shipped(cache: Cache) -> list[Manifest]:
    """Definitions, rights and webhooks as the module ships them, in a namespace of their own."""
    found = [one for one in manifests.read(cache, NAME) if one["kind"] not in ("Role", "RoleBinding")]
    for one in found:
        if one["kind"] == "ServiceAccount":
            one["metadata"]["namespace"] = SPACE
        for subject in one.get("subjects", []):
            subject["namespace"] = SPACE
    return found


@contextmanager
def standing(bed: Bed) -> Generator[None]:
    """The Trainer, ready; afterwards nothing of it is left."""
    with starting.alone(bed.cache):
        building.have(bed.cache, NAME)
        prebuilt.take(bed.cache, prebuilt.missing(bed.cache, everything=True), print)
        manifests.have(bed.cache, everything=True, say=print)
    made = manifests.outside(shipped(bed.cache), PORT, certificates.encoded(bed.folder.certificates / "ca.crt"))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    try:
        bed.api.ensure(space)
        bed.api.ensure_all(one for one in made if not manifests.is_webhook(one))
        _start(bed)
        until("trainer ready", lambda: healthy(f"http://{bed.options.plane}:{HEALTH_PORT}/readyz"), 60, 0.2)
        bed.api.ensure_all(one for one in made if manifests.is_webhook(one))
        yield
    finally:
        for one in reversed(made):
            bed.api.delete(one)
        bed.processes.stop(NAME)
        bed.processes.forget(NAME)
        bed.api.delete(space)


def _start(bed: Bed) -> None:
    home = bed.folder.settings / NAME
    served = home / "k8s-webhook-server" / "serving-certs"  # where it looks below its folder for temporary files
    served.mkdir(parents=True, exist_ok=True)
    for ending in ("crt", "key"):
        shutil.copy(bed.folder.certificates / f"webhook.{ending}", served / f"tls.{ending}")
    settings = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "certManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": PORT},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"0.0.0.0:{HEALTH_PORT}"},
    }
    config = write(home / "trainer.yaml", settings)
    place = controllers.Place(bed.cache, bed.folder, bed.options, bed.processes, bed.api, print)
    kubeconfig = controllers.account(place, NAME, ACCOUNT, SPACE)
    environment = {"KUBECONFIG": kubeconfig, "TMPDIR": str(home)}
    command = [f"{bed.cache.binaries}/{NAME}", f"--config={config}"]
    bed.processes.start(Program(NAME, command, NAMESPACE, f"plane/{NAME}", environment))
