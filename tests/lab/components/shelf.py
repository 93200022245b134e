"""What a site's mirror would have for the components that have a test of their own: charts as files, images, helm.

Charts are those of the projects' modules under the versions that their profiles name. An image holds one program that
was compiled here, users and an empty /tmp, and is called as its profile calls it.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from deployments.images.oci import Layer
from profiles.bootstrap.components import ChartSource
from profiles.loading.load import load_component
from tests.bed.commands import BedError
from tests.bed.prebuilt import digest_of
from tests.lab.components import programs
from tests.lab.components.programs import HELM
from tests.lab.images import with_users
from tests.lab.layout import Folder
from tests.lab.registry import store
from workflows.model.mirror import SUMS

NAMES = ("metrics-server", "registry", "cert-manager", "victoria-metrics")
"""Components that are stocked."""
REGISTRY_SETTINGS = """version: 0.1
storage: {filesystem: {rootdirectory: /var/lib/registry}}
http: {addr: ":5000"}
"""
ROOT, SOMEBODY = "0", "1000"


@dataclass(frozen=True)
class Image:
    """What is run in one image."""

    program: str
    command: tuple[str, ...]
    """Its entry; the first word is where the program lies, or a link to it."""
    user: str = SOMEBODY
    """As upstream's image says it: nobody's in particular, but root's where it must be."""


IMAGES = {
    "metrics-server": Image("metrics-server", ("/metrics-server",)),
    "registry": Image("registry", ("/bin/registry", "serve", "/etc/distribution/config.yml"), ROOT),
    "victoria-metrics": Image("victoria-metrics", ("/victoria-metrics-prod",), ROOT),
    "cert-manager-controller": Image("cert-manager", ("/controller",)),
    "cert-manager-webhook": Image("cert-manager", ("/webhook",)),
    "cert-manager-cainjector": Image("cert-manager", ("/cainjector",)),
    "cert-manager-startupapicheck": Image("cert-manager", ("/startupapicheck",)),
    "cert-manager-acmesolver": Image("cert-manager", ("/acmesolver",)),
    HELM: Image(HELM, ("/usr/bin/helm",), ROOT),
}
"""By the last part of the image's name. `acmesolver` is there to be asked for; it says that it is no part, and ends."""


def stock(lab: Folder) -> None:
    """Compile what is missing, and put all of it beside what the LAN's mirror and registry have already."""
    lines = (lab.mirror / SUMS).read_text(encoding="utf-8").splitlines(keepends=True)
    images: dict[str, str] = {}
    for name in NAMES:
        component = load_component(name)
        pinned = programs.version(name)
        if component.version.removeprefix("v") != pinned.removeprefix("v"):
            raise BedError(f"component {name} is {component.version}, and {pinned} is compiled here")
        images |= {_short(one.name): one.name for one in component.images}
        if isinstance(component.source, ChartSource):
            path = component.source.path
            _pack(name, lab.mirror / path, path.rpartition("-")[2].removesuffix(".tgz"))
            lines = [line for line in lines if not line.endswith(f"  {path}\n")]
            lines.append(f"{digest_of(lab.mirror / path)}  {path}\n")
            images[HELM] = component.source.helm_image
    (lab.mirror / SUMS).write_text("".join(lines), encoding="utf-8")
    with TemporaryDirectory(dir=lab.root) as scratch:
        for short, name in images.items():
            _store(lab, name, IMAGES[short], Path(scratch) / short)


def _short(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[0]


def _pack(name: str, target: Path, version: str) -> None:
    """The chart of a module as an archive; where its project writes the version down at a release, so is it here."""
    folder = programs.chart_folder(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            if path == folder / "Chart.yaml":
                content = _released(content, version)
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(folder)}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    target.write_bytes(gzip.compress(plain.getvalue(), mtime=0))


def _released(content: bytes, version: str) -> bytes:
    """What the chart says of itself; of one that calls itself v0.0.0, the version of its release.

    Raises:
        BedError: it is another one than its profile names.
    """
    said = yaml.safe_load(content)
    if said["version"] == "v0.0.0":
        return yaml.safe_dump({**said, "version": version, "appVersion": version}, sort_keys=False).encode()
    if said["version"] != version:
        raise BedError(f"the chart {said['name']} calls itself {said['version']}, and its profile says {version}")
    return content


def _store(lab: Folder, name: str, image: Image, scratch: Path) -> None:
    """The image under its own name, without the server: its program in a layer that others may share, then the rest."""
    program, own, where = Layer(), with_users(), image.command[0]
    place = where if where.endswith(f"/{image.program}") else f"/{image.program}"
    program.file(place, programs.have(image.program))
    if place != where:
        own.link(where, place)
    if image.program == "registry":
        own.data(image.command[-1], REGISTRY_SETTINGS.encode())
        own.folder("/var/lib/registry")
    paths = [scratch.with_suffix(f".{part}") for part in ("program", "own")]
    for path, layer in zip(paths, (program, own), strict=True):
        with path.open("wb") as file:
            layer.write(file)
    settings = {
        "Env": ["PATH=/usr/bin:/bin:/sbin"],
        "WorkingDir": "/",
        "User": image.user,
        "Entrypoint": list(image.command),
        "Labels": {"image": name},
    }
    server, _, path = name.partition("/")
    store(lab.registry, path if "." in server else name, settings, paths)
