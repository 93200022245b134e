"""What a site's mirror would have for components: their lists of objects as files, their images in the LAN's registry.

The programs are the bed's: Argo, JobSet and Kueue as compiled from their modules, our own as the product ships them.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deployments.images.__main__ import build as build_image
from deployments.images.oci import Layer
from profiles.bootstrap.components import ManifestsSource
from profiles.loading.load import load_component
from tests.bed import layout, manifests, starting
from tests.bed.layout import Cache
from tests.bed.prebuilt import digest_of
from tests.lab.layout import Folder
from tests.lab.registry import store
from workflows.model.mirror import SUMS

LISTS = {"argo-workflows": ("argo-crds-minimal", "argo"), "jobset": ("jobset",), "kueue": ("kueue",)}
"""Of a component, the lists of the bed that make its own."""
LEFT_OUT = {("Deployment", "argo-server"), ("Service", "argo-server")}
"""Argo's web pages: their program does not compile from its module, and nothing here looks at them."""
CONTROLLERS = {
    "workflow-controller": ("/bin/workflow-controller", 8737),
    "jobset": ("/manager", 65532),
    "kueue": ("/manager", 65532),
}
"""Program -> its place in the image, and the user that upstream's image runs it as."""
DEMO = "primus-flows/demo:0.1"


def stock(lab: Folder) -> None:
    """Compile what is missing, and put all of it where the LAN's mirror and registry serve it from."""
    here = layout.cache()
    starting.build(here)
    said = {path: digest_of(_listed(here, lab, name, path)) for name, path in _paths().items()}
    lines = [f"{digest}  {path}\n" for path, digest in sorted(said.items())]
    (lab.mirror / SUMS).write_text("".join(lines), encoding="utf-8")
    with TemporaryDirectory(dir=lab.root) as scratch:
        for name in CONTROLLERS:
            _store_controller(here, lab, name, Path(scratch))
        executor = [_layer(here, name) for name in ("base", "argoexec")]
        store(lab.registry, _own_name("argo-workflows", "argoexec"), _settings(CONTROLLERS["jobset"][1]), executor)
        store(lab.registry, DEMO, _settings(0), [_layer(here, name) for name in ("base", "python", "numpy")])
        _store_built(lab, build_image("programs", Path(scratch)).archive)


def _paths() -> Mapping[str, str]:
    """Of each component its path on the mirror, as its profile says it."""
    found: dict[str, str] = {}
    for name in LISTS:
        source = load_component(name).source
        assert isinstance(source, ManifestsSource)
        found[name] = source.path
    return found


def _listed(here: Cache, lab: Folder, name: str, path: str) -> Path:
    objects = [one for part in LISTS[name] for one in manifests.read(here, part)]
    kept = [one for one in objects if (one["kind"], one["metadata"]["name"]) not in LEFT_OUT]
    target = lab.mirror / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(kept, separators=(",", ":")), encoding="utf-8")
    return target


def _store_controller(here: Cache, lab: Folder, name: str, scratch: Path) -> None:
    where, user = CONTROLLERS[name]
    layer, path = Layer(), scratch / f"{name}.layer"
    layer.file(where, here.binaries / name)
    with path.open("wb") as file:
        layer.write(file)
    component = "argo-workflows" if name == "workflow-controller" else name
    store(lab.registry, _own_name(component, name), _settings(user), [_layer(here, "base"), path])


def _own_name(component: str, image: str) -> str:
    """As the component's profile calls the image, without the server."""
    names = [one.name for one in load_component(component).images]
    [found] = [name.partition("/")[2] for name in names if name.rpartition("/")[2].startswith(f"{image}:")]
    return found


def _layer(here: Cache, name: str) -> Path:
    return here.images / f"{name}.layer"


def _settings(user: int) -> dict[str, Any]:
    return {"Env": ["PATH=/usr/bin:/bin:/sbin"], "WorkingDir": "/", "User": str(user)}


def _store_built(lab: Folder, archive: Path) -> None:
    """An image that is written already: its blobs are taken over as they are."""
    with tarfile.open(archive) as packed, TemporaryDirectory(dir=lab.root) as scratch:
        packed.extractall(scratch, filter="data")
        [image] = json.loads((Path(scratch) / "manifest.json").read_text())
        config = json.loads((Path(scratch) / image["Config"]).read_text())
        layers = [Path(scratch) / layer for layer in image["Layers"]]
        for name in image["RepoTags"]:
            store(lab.registry, name, config["config"], layers)
