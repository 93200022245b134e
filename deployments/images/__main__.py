"""The two images: what lies where, who runs it and how it is started.

Writes one with the list of what is in it, without a Docker daemon and without a registry:

python -m deployments.images build programs --out build/images --tag primus-flows/programs:0.1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

from deployments.images import contents, oci, sbom
from deployments.images.contents import PROGRAM, Component, of_distribution
from deployments.images.oci import Layer
from profiles.errors import PrimusError
from tasks.programs_archive import programs_archive
from workflows.attempt.commands import PROGRAMS

USER = 65532
"""Nobody's number on hosts; the one that distroless images use."""
USERS = (
    b"root:x:0:0:root:/:/sbin/nologin\n"
    b"primus:x:65532:65532:primus:/var/lib/primus:/sbin/nologin\n"
    b"nobody:x:65534:65534:nobody:/:/sbin/nologin\n"
)
GROUPS = b"root:x:0:\nprimus:x:65532:\nnogroup:x:65534:\n"
HOME = "/var/lib/primus"
ARCHIVE = "/opt/primus/programs.pyz"


@dataclass(frozen=True)
class Recipe:
    """An image before it is written."""

    layers: tuple[Layer, ...]
    """The lowest first."""
    components: tuple[Component, ...]
    settings: dict[str, Any]
    """The image's `config`."""


def programs(scratch: Path) -> Recipe:
    """The programs for pods: `primus-programs`, with a Python and nothing else; no shell.

    The program archive may be built in `scratch`.
    """
    python, components = _python()
    settings = _settings(PROGRAMS, "brings the programs into pods, runs gates and coordinators")
    own = of_distribution(distribution("primus-flows"))
    return Recipe((python, programs_layer(scratch)), (own, *components), settings)


def programs_layer(scratch: Path) -> Layer:
    """The program archive as of now, and the program that starts it."""
    own = of_distribution(distribution("primus-flows")).reference
    layer = Layer()
    layer.file(ARCHIVE, programs_archive(scratch), own)
    # The archive is told by its path: `copy` brings that very file into pods.
    lines = ["import sys", f"sys.argv[0] = {ARCHIVE!r}", f"sys.path.insert(0, {ARCHIVE!r})"]
    lines += ["from workflows.programs.main import main", "sys.exit(main(sys.argv[1:]))"]
    layer.data(f"/usr/bin/{PROGRAMS}", _program("-IS", lines), 0o755, own)
    return layer


def control(scratch: Path) -> Recipe:
    """The whole product: `primus`, with the pinned versions of all it needs; no shell.

    Raises:
        Refused: this environment is not the pinned one.
    """
    del scratch
    found = contents.chosen()
    needs, own = Layer(), Layer()
    theirs = [one for one in found if one.metadata["Name"] != contents.OWN]
    ours = [one for one in found if one.metadata["Name"] == contents.OWN]
    components = [*contents.add_distributions(needs, theirs), *contents.add_distributions(own, ours)]
    lines = ["import sys", "from deployments.cli.main import main", "sys.argv[0] = 'primus'", "sys.exit(main())"]
    own.data("/usr/bin/primus", _program("-I", lines), 0o755, of_distribution(ours[0]).reference)
    own.folder(HOME, owner=USER)
    python, base = _python()
    settings = _settings("primus", "drives, watches and diagnoses training runs")
    settings["Env"] += [f"PRIMUS_HOME={HOME}", f"HOME={HOME}"]
    settings["Volumes"] = {HOME: {}}
    return Recipe((python, needs, own), (*base, *components), settings)


RECIPES: dict[str, Callable[[Path], Recipe]] = {"programs": programs, "control": control}


def _python() -> tuple[Layer, list[Component]]:
    """The layer that both share."""
    layer = Layer()
    layer.folder("/tmp", 0o1777)  # noqa: S108 - the image's own
    layer.data("/etc/passwd", USERS)
    layer.data("/etc/group", GROUPS)
    layer.data("/etc/nsswitch.conf", b"hosts: files dns\n")
    return layer, contents.add_interpreter(layer)


def _program(flags: str, lines: list[str]) -> bytes:
    return "\n".join([f"#!{PROGRAM} {flags}", *lines, ""]).encode()


def _settings(entry: str, does: str) -> dict[str, Any]:
    return {
        "User": f"{USER}:{USER}",
        "Entrypoint": [entry],
        "Env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"],
        "WorkingDir": "/",
        "Labels": {
            "org.opencontainers.image.title": entry,
            "org.opencontainers.image.description": does,
            "org.opencontainers.image.version": version("primus-flows"),
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }


@dataclass(frozen=True)
class Built:
    """An image on disk."""

    archive: Path
    components: Path
    digest: str
    """Of its manifest, `sha256:…`: what a registry calls it by."""


def build(image: str, out: Path, names: Sequence[str] = ()) -> Built:
    """Write `<image>.tar` and `<image>.cdx.json` into a folder.

    `names` is what the image is called; empty: as shipped profiles call it.

    Raises:
        PrimusError: this environment does not have what the image needs.
        OSError: a file cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        recipe = RECIPES[image](Path(scratch))
        archive = out / f"{image}.tar"
        digest = oci.write(archive, recipe.settings, recipe.layers, names or (f"primus-flows/{image}:0.1",))
    places = [layer.components for layer in recipe.layers]
    listed = out / f"{image}.cdx.json"
    listed.write_bytes(sbom.document(image, version("primus-flows"), digest, recipe.components, places))
    return Built(archive, listed, digest)


def main(argv: Sequence[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deployments.images", description="Writes an image and its components."
    )
    asked = parser.add_subparsers(dest="command", required=True).add_parser("build", help="write an image")
    asked.add_argument("image", choices=sorted(RECIPES))
    asked.add_argument("--out", type=Path, default=Path("build/images"), help="folder for what is written")
    asked.add_argument("--tag", action="append", default=[], help="name:tag of the image; may be given again")
    options = parser.parse_args(argv)
    try:
        built = build(options.image, options.out, options.tag)
    except (PrimusError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    megabytes = built.archive.stat().st_size / 1e6
    sys.stdout.write(f"{built.archive} ({megabytes:.0f} MB) {built.digest}\n{built.components}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
