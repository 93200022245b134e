"""Writes an image and the list of what is in it, without a Docker daemon and without a registry.

python -m deployments.images build programs --out build/images --tag primus-flows/programs:0.1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from deployments.images import oci, sbom
from deployments.images.recipes import RECIPES
from profiles.errors import PrimusError


@dataclass(frozen=True)
class Built:
    """An image on disk."""

    archive: Path
    components: Path
    digest: str
    """Of its manifest, `sha256:…`: what a registry calls it by."""


def build(image: str, out: Path, names: Sequence[str] = ()) -> Built:
    """Write `<image>.tar` and `<image>.cdx.json` into a folder.

    Args:
        image: `programs` or `control`.
        out: the folder; it is made where it does not exist.
        names: what the image is called; empty: as shipped profiles call it.

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
