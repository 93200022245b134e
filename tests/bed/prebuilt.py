"""Programs and rendered manifests that were made elsewhere, taken where they are just what would be made here.

A folder (`PRIMUS_BED_PREBUILT`, by default `../shared/bed-cache` beside the checkout) holds archives called
`FAMILY-KEY.tar.xz`. An archive is used where its key is that of our own sources, where this machine is of the platform
that it was compiled for, and where every file in it has the SHA-256 that is committed in `modules/PREBUILT.sha256`.
Whatever is not used is compiled, and the reason is told.

`python -m tests.bed.prebuilt` says what would have to be made here, and ends with 1 where that is anything. Only the
standard library is imported: `.ci/bed` asks before there is an environment.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import platform
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.bed import layout
from tests.bed.layout import Cache, stamp_name

PLATFORM = "linux/amd64"
"""What the archives were compiled for."""
DIGESTS = "PREBUILT.sha256"
"""Beside the folders of modules: `sha256sum`'s format, the names as in the archives."""


class UnfitError(Exception):
    """An archive that is not used; the message says why."""


@dataclass(frozen=True)
class Archive:
    """One family: what it is made from and what is in it."""

    name: str
    folders: tuple[str, ...]
    """Folders of modules whose content is its key."""
    files: tuple[str, ...]
    """A program by its name, a rendered manifest as `manifests/NAME`."""
    added: str = ""
    """As of a component: the folder with a key of its own."""
    optional: bool = False
    """Only single tests ask for it."""

    @property
    def file_name(self) -> str:
        """As it is called for our own sources."""
        return f"{self.name}-{key(self.folders)}.tar.xz"

    @property
    def stamps(self) -> list[str]:
        """The files that say that all of it is there: one for each program, one for all manifests."""
        programs = [file for file in self.files if "/" not in file]
        return [stamp_name(name, self.added) for name in programs or [self.name]]

    def done(self, cache: Cache) -> bool:
        """Whether all of it is in the cache."""
        stamped = all((cache.stamps / stamp).exists() for stamp in self.stamps)
        return stamped and all(place(cache, file).exists() for file in self.files)


ARCHIVES = (
    Archive("kubernetes", ("kubernetes",), ("bed",)),
    Archive("controllers", ("controllers",), ("jobset", "kueue", "kwok")),
    Archive("argo", ("argo",), ("workflow-controller", "argoexec")),
    Archive("validate", ("argo", "validate"), ("validate",), added="validate"),
    Archive("dns", ("dns",), ("dns",)),
    Archive("pause", ("pause",), ("pause",)),
    Archive("trainer", ("trainer",), ("trainer",), added="trainer", optional=True),
    Archive(
        "manifests",
        ("argo", "controllers", "dns", "kubernetes", "pause", "trainer", "validate"),
        tuple(
            f"manifests/{name}"
            for name in (
                *("argo-crds-full.json", "argo-crds-minimal.json", "argo.json"),
                *("jobset.json", "kueue.json", "kwok-stages.yaml"),
            )
        ),
    ),
    Archive(
        "manifests-trainer", ("kubernetes", "trainer"), ("manifests/trainer.json",), added="trainer", optional=True
    ),
)
"""Those that take longest to unpack come first."""


def named(name: str) -> Archive:
    """The archive of a family; LookupError where there is none."""
    for archive in ARCHIVES:
        if archive.name == name:
            return archive
    raise LookupError(f"no family '{name}': {', '.join(archive.name for archive in ARCHIVES)}")


def holding(program: str) -> Archive:
    """The archive that a program is in."""
    return next(archive for archive in ARCHIVES if program in archive.files)


def place(cache: Cache, file: str) -> Path:
    """Where a file of an archive lies in the cache."""
    return cache.root / file if "/" in file else cache.binaries / file


def missing(cache: Cache, everything: bool = False) -> list[Archive]:
    """Families of which something is not in the cache; `everything`: also those that only single tests ask for."""
    return [one for one in ARCHIVES if (everything or not one.optional) and not one.done(cache)]


def key(folders: Iterable[str]) -> str:
    """What is compiled from these folders of modules, to the byte: the same digest as the archives are named after."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(path for path in (layout.MODULES / folder).rglob("*") if path.is_file()):
            name = path.relative_to(layout.MODULES).as_posix()
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def folder() -> Path:
    """`$PRIMUS_BED_PREBUILT`, or `../shared/bed-cache` beside the checkout."""
    return Path(os.environ.get("PRIMUS_BED_PREBUILT") or layout.ROOT.parent / "shared" / "bed-cache").absolute()


def digests() -> dict[str, str]:
    """The committed SHA-256 of every file, by its name; none where nothing is committed."""
    path = layout.MODULES / DIGESTS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {name: digest for digest, name in pairs}


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def this_platform() -> str:
    """As Go calls it: `linux/amd64`."""
    machine = platform.machine().lower()
    return f"{sys.platform}/{'amd64' if machine == 'x86_64' else machine}"


def refusal(archive: Archive, here: str, offered: Collection[str], known: Mapping[str, str]) -> str:
    """Why an archive is not used, before anybody has looked into it; "" where nothing speaks against it.

    Args:
        archive: the one that is wanted.
        here: this machine's platform.
        offered: names of the files in the folder of archives.
        known: digests that are committed, by the names of files.
    """
    if here != PLATFORM:
        return f"made for {PLATFORM}, this is {here}"
    if archive.file_name not in offered:
        others = sorted(name for name in offered if name.rpartition("-")[0] == archive.name)
        return f"no {archive.file_name}" + (f", only {', '.join(others)}" if others else "")
    unknown = [file for file in archive.files if file not in known]
    return f"no digest in {DIGESTS} of {', '.join(unknown)}" if unknown else ""


def refusals(wanted: Sequence[Archive]) -> dict[str, str]:
    """`refusal` of each, by the name of the family, for the folder as it is."""
    where = folder()
    if not where.is_dir():
        return {archive.name: f"there is no folder {where}" for archive in wanted}
    offered, known = {path.name for path in where.iterdir()}, digests()
    return {archive.name: refusal(archive, this_platform(), offered, known) for archive in wanted}


def take(cache: Cache, wanted: Sequence[Archive], say: Callable[[str], None]) -> None:
    """Unpack into the cache what fits, two archives at a time, and say what was taken and why the rest was not."""
    why = refusals(wanted)
    fitting = [archive for archive in wanted if not why[archive.name]]
    began = time.monotonic()
    with ThreadPoolExecutor(max_workers=2) as lanes:
        for archive, words in zip(fitting, lanes.map(lambda one: _take_one(cache, one), fitting), strict=True):
            why[archive.name] = words
    taken = [name for name, words in why.items() if not words]
    if taken:
        say(f"prebuilt, unpacked from {folder()} in {time.monotonic() - began:.1f} s: {', '.join(taken)}")
    if len(taken) < len(wanted):
        say(f"not prebuilt: {_told(why)}")


def _told(why: Mapping[str, str]) -> str:
    """Families by the reason why they are not used."""
    reasons = dict.fromkeys(words for words in why.values() if words)
    return "; ".join(f"{', '.join(name for name in why if why[name] == words)} ({words})" for words in reasons)


def _take_one(cache: Cache, archive: Archive) -> str:
    """Why it could not be taken; "" where it was."""
    began = time.monotonic()
    try:
        unpack(folder() / archive.file_name, archive, digests(), cache)
    except UnfitError as error:
        return str(error)
    if "bed" in archive.files:
        cache.link_components()
    for stamp in archive.stamps:
        cache.stamp(stamp, archive.added, time.monotonic() - began)
    return ""


def unpack(path: Path, archive: Archive, known: Mapping[str, str], cache: Cache) -> None:
    """Put the files of an archive into the cache, all of them or none; what an earlier try left is thrown away.

    Raises:
        UnfitError: it cannot be read, lacks a file, or holds one of another digest.
    """
    half = cache.root / f".{archive.name}.half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    try:
        with tarfile.open(path, "r:xz") as packed:
            found = {member.name: _copy(packed, member, half) for member in packed if wanted(archive, member)}
        for file in archive.files:
            if file not in found:
                raise UnfitError(f"{path.name} has no {file}")
            if found[file] != known[file]:
                raise UnfitError(f"{file} in {path.name} has another digest than {DIGESTS} says")
        for file in archive.files:
            (half / flat(file)).replace(place(cache, file))
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise UnfitError(f"{path.name} cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(half, ignore_errors=True)


def wanted(archive: Archive, member: tarfile.TarInfo) -> bool:
    """A plain file of the name that we know: no link, no folder, nothing else that an archive may hold."""
    return member.isfile() and member.name in archive.files


def flat(file: str) -> str:
    """Its name while it is unpacked, in one folder."""
    return file.replace("/", "_")


def _copy(packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> str:
    """Copy the content alone, so no name, owner or mode of the archive counts for anything; its SHA-256."""
    target, digest = folder / flat(member.name), hashlib.sha256()
    with packed.extractfile(member) or io.BytesIO() as content, target.open("wb") as file:
        while part := content.read(1 << 20):
            digest.update(part)
            file.write(part)
    target.chmod(0o644 if "/" in member.name else 0o755)
    return digest.hexdigest()


def main() -> int:
    """What has to be made here; 1 where that is anything."""
    why = refusals(missing(layout.cache(), everything=True))
    print(_told(why) or "nothing has to be compiled")
    return 1 if any(why.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
