"""Archives of what was compiled here, and whether what others compiled is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.bed import building, debian, layout, manifests, prebuilt
from tests.bed.layout import Cache
from tests.bed.prebuilt import Archive


def pack(cache: Cache, target: Path) -> list[str]:
    """Write archives of families in the cache that have none in `target`, and all digests; names of the new ones."""
    target.mkdir(parents=True, exist_ok=True)
    found = prebuilt.digests()
    written: list[str] = []
    for archive in prebuilt.ARCHIVES:
        if not archive.done(cache):
            continue
        found |= {file: prebuilt.digest_of(prebuilt.place(cache, file)) for file in archive.files}
        if not (target / archive.file_name).exists():
            pack_one(cache, archive, target / archive.file_name)
            written.append(archive.file_name)
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))
    header = f"# {prebuilt.PLATFORM}, compiled with {go_version()}; `python -m tests.bed pack` writes it\n"
    (layout.MODULES / prebuilt.DIGESTS).write_text(header + lines, encoding="utf-8")
    return written


def pack_one(cache: Cache, archive: Archive, target: Path) -> None:
    """One archive, the same to the byte from the same files."""
    half = target.with_name(f".{target.name}.half")
    with tarfile.open(half, "w:xz") as packed:
        for file in archive.files:
            path = prebuilt.place(cache, file)
            entry = tarfile.TarInfo(file)
            entry.size, entry.mode = path.stat().st_size, 0o644 if "/" in file else 0o755
            with path.open("rb") as content:
                packed.addfile(entry, content)
    half.rename(target)


def go_version() -> str:
    """As Go tells it; "no Go" where there is none."""
    if shutil.which("go") is None:
        return "no Go"
    told = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    return told.strip()


def verify(cache: Cache, name: str) -> list[str]:
    """Make one family anew, with nothing that was compiled before; what differs from the committed digests, in words.

    What was made stays, for whoever wants to look, only where something differs.
    """
    archive, known = prebuilt.named(name), prebuilt.digests()
    debian.need_go()
    fresh = Cache(Path(tempfile.mkdtemp(prefix=f"verify-{name}-", dir=cache.root)))
    fresh.make()
    os.environ["GOCACHE"] = str(fresh.root / "go-cache")
    make(fresh, cache, archive)
    wrong = [
        f"{file}: {made} here, {known.get(file, 'nothing')} in {prebuilt.DIGESTS} ({prebuilt.place(fresh, file)})"
        for file in archive.files
        if (made := prebuilt.digest_of(prebuilt.place(fresh, file))) != known.get(file)
    ]
    if not wrong:
        shutil.rmtree(fresh.root)
    return wrong


def make(fresh: Cache, cache: Cache, archive: Archive) -> None:
    """Compile or render one family into `fresh`; manifests are rendered with the kubectl of `cache`."""
    progress = building.Progress()
    every = [one for family in [*building.components(), building.optional()] for one in family]
    wanted = [one for one in every if one.name in archive.files]
    if wanted:
        building.build(fresh, [wanted], progress)
        return
    (fresh.binaries / "kubectl").symlink_to(building.have(cache, "bed").resolve())
    render = manifests.render_trainer if archive.optional else manifests.render
    render(fresh)
