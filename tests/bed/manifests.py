"""Manifests that ship in the modules: rendered once when the bed is built, fitted to this bed when it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.bed import building, debian, prebuilt, versions
from tests.bed.api import Manifest
from tests.bed.commands import run
from tests.bed.layout import Cache

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SECONDS_ANNOTATION = "bed/seconds"
"""How long a pod on a KWOK node runs, as in `5s`; without it one second."""
LEFT_OUT = {"Deployment", "Service", "Secret", "APIService", "ServiceMonitor"}
"""The controllers run beside the cluster, not in it."""
CUSTOM_RESOURCE = "CustomResourceDefinition"

SOURCES = {
    "jobset": (versions.JOBSET, "config/default"),
    "kueue": (versions.KUEUE, "config/default"),
    "argo-crds-full": (versions.ARGO, "manifests/base/crds/full"),
    "argo-crds-minimal": (versions.ARGO, "manifests/base/crds/minimal"),
    "argo": (versions.ARGO, "manifests/cluster-install-no-crds"),
}
TRAINER_PARTS = ("crds", "rbac", "webhook")
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")


def have(cache: Cache, everything: bool, say: Callable[[str], None]) -> None:
    """Render what is not there; `everything`: also what only single tests ask for."""
    for name, make in (("manifests", render), ("manifests-trainer", render_trainer)):
        archive = prebuilt.named(name)
        if archive.done(cache) or (archive.optional and not everything):
            continue
        debian.need_go()
        began = time.monotonic()
        make(cache)
        for stamp in archive.stamps:
            cache.stamp(stamp, archive.added, time.monotonic() - began)
        say(f"{name}: rendered in {time.monotonic() - began:.0f} s")


def render(cache: Cache) -> None:
    """Write all of them as JSON: Argo's 12 MB of YAML take 4 s to read, as JSON a tenth of a second."""
    building.copy_sources(cache)
    folders = {name: building.module_folder(cache, name) for name in {source[0] for source in SOURCES.values()}}
    for name, (module, where) in SOURCES.items():
        _write(cache.manifests / f"{name}.json", list(_kustomized(cache, folders[module] / where)))
    kwok = building.module_folder(cache, versions.KWOK) / "kustomize" / "stage"
    stages = [stage for where in STAGES for stage in _kustomized(cache, kwok / where)]
    for stage in stages:
        if stage["metadata"]["name"] == "pod-complete":
            _complete_all(stage)
    (cache.manifests / "kwok-stages.yaml").write_text(yaml.safe_dump_all(stages), encoding="utf-8")


def render_trainer(cache: Cache) -> None:
    """What the Trainer ships, for the one test that asks for it."""
    building.copy_sources(cache)
    base = building.module_folder(cache, versions.TRAINER) / "manifests" / "base"
    _write(cache.manifests / "trainer.json", [one for part in TRAINER_PARTS for one in _kustomized(cache, base / part)])


def _kustomized(cache: Cache, folder: Path) -> Iterator[Manifest]:
    text = run(cache.binaries / "kubectl", "kustomize", folder)
    return (manifest for manifest in yaml.load_all(text, Loader=LOADER) if manifest)


def _write(path: Path, manifests: list[Manifest]) -> None:
    path.write_text(json.dumps(manifests, separators=(",", ":"), default=str), encoding="utf-8")


def _complete_all(stage: Manifest) -> None:
    """The shipped stage ends pods of Jobs only; Argo's are owned by a Workflow. A pod says how long it runs."""
    for wanted in stage["spec"]["selector"]["matchExpressions"]:
        if "ownerReferences" in wanted["key"]:
            wanted["values"] = ["Job", "Workflow"]
    told = {"expressionFrom": f'.metadata.annotations["{SECONDS_ANNOTATION}"]'}
    stage["spec"]["delay"] = {"durationMilliseconds": 1000, "durationFrom": told}


def load(cache: Cache, name: str) -> list[Manifest]:
    """A rendered set without what is meant to run in the cluster."""
    return [manifest for manifest in read(cache, name) if manifest["kind"] not in LEFT_OUT]


def read(cache: Cache, name: str) -> list[Manifest]:
    """A rendered set, all of it."""
    return json.loads((cache.manifests / f"{name}.json").read_text(encoding="utf-8"))


def outside(manifests: Iterable[Manifest], port: int, authority: str) -> list[Manifest]:
    """Webhooks and conversions call a controller on the API server's own loopback address instead of a service.

    Args:
        manifests: changed in place.
        port: where that controller listens.
        authority: base64 of the bed's certificate authority.
    """
    changed = list(manifests)
    for manifest in changed:
        for webhook in manifest.get("webhooks", []):
            _redirect(webhook["clientConfig"], port, authority)
        if manifest["kind"] == CUSTOM_RESOURCE:
            _conversion(manifest["spec"], port, authority)
    return changed


def _conversion(spec: dict[str, Any], port: int, authority: str) -> None:
    if len(spec["versions"]) == 1:
        spec.pop("conversion", None)  # JobSet names a webhook for it although there is nothing to convert
    elif spec.get("conversion", {}).get("strategy") == "Webhook":
        _redirect(spec["conversion"]["webhook"]["clientConfig"], port, authority)


def _redirect(client: dict[str, Any], port: int, authority: str) -> None:
    service = client.pop("service", None)
    if service:
        client["url"] = f"https://127.0.0.1:{port}{service.get('path', '/')}"
        client["caBundle"] = authority


def is_definition(manifest: Manifest) -> bool:
    """A CustomResourceDefinition."""
    return manifest["kind"] == CUSTOM_RESOURCE


def is_webhook(manifest: Manifest) -> bool:
    """Registers a webhook."""
    return manifest["kind"].endswith("WebhookConfiguration")
