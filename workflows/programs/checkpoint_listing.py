"""What lies in a checkpoint folder: a frozen listing, taken once, over which everything else decides."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Collection, List, Optional, Tuple

DEPTH = 4
"""Deepest level of files below the folder (Megatron: `iter_*/mp_rank_*/file`)."""

MOUNT_LEVELS = 2
"""A run's folder is `<mount>/runs/<run>`."""


@dataclass(frozen=True)
class FileFacts:
    """One file, as a look found it."""

    path: str
    """Relative to the folder that was listed."""
    bytes: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Listing:
    """One look at a folder."""

    root: str
    files: Tuple[FileFacts, ...] = ()
    """Sorted by path."""
    folders: Tuple[str, ...] = ()
    """Every folder below, relative, sorted; so an empty one is seen too."""

    def below(self, folder: str) -> Tuple[FileFacts, ...]:
        """The files under `folder`, their paths relative to it."""
        prefix = f"{folder}/"
        return tuple(
            FileFacts(one.path[len(prefix) :], one.bytes, one.mtime_ns, one.inode)
            for one in self.files
            if one.path.startswith(prefix)
        )

    def with_remembered(self, earlier: "Listing", folders: Collection[str]) -> "Listing":
        """This listing, with what an earlier one knew below `folders` (which were left out of this one)."""
        if not folders:
            return self

        wanted = frozenset(folders)

        def inside(path: str) -> bool:
            while path:
                path = path.rpartition("/")[0]
                if path in wanted:
                    return True
            return False

        files = [*self.files, *(one for one in earlier.files if inside(one.path))]
        below = {*self.folders, *(path for path in earlier.folders if inside(path))}
        return Listing(self.root, tuple(sorted(files, key=lambda one: one.path)), tuple(sorted(below)))


def take(root: str, skip: Optional[Callable[[str, int, int], bool]] = None) -> Listing:
    """List `root`; a folder that does not exist is an empty listing.

    Args:
        root: the folder.
        skip: asked with relative path, mtime in ns and inode of each folder; True leaves its content out.

    Raises:
        OSError: the storage cannot be read (a file or folder that vanishes while we look is none of that).
    """
    files: List[FileFacts] = []
    folders: List[str] = []
    _walk(root, "", files, folders, skip)
    return Listing(root, tuple(sorted(files, key=lambda one: one.path)), tuple(sorted(folders)))


def storage_is_there(run_dir: str) -> bool:
    """False where a run's storage is not mounted: then nothing can be said, and writing would fill the container."""
    place = os.path.abspath(run_dir)
    for _ in range(MOUNT_LEVELS):
        place = os.path.dirname(place)
    return os.path.isdir(place)


def file_facts(root: str, path: str) -> Optional[FileFacts]:
    """One file's facts now, or None where it is gone.

    Raises:
        OSError: the storage cannot be read.
    """
    try:
        found = os.stat(os.path.join(root, path) if path else root)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileFacts(path, found.st_size, found.st_mtime_ns, found.st_ino)


def _walk(
    root: str,
    below: str,
    files: List[FileFacts],
    folders: List[str],
    skip: Optional[Callable[[str, int, int], bool]],
) -> None:
    try:
        entries = list(os.scandir(os.path.join(root, below) if below else root))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        try:
            found = entry.stat()
            is_folder = entry.is_dir()
        except FileNotFoundError:
            continue
        if not is_folder:
            files.append(FileFacts(path, found.st_size, found.st_mtime_ns, found.st_ino))
        elif path.count("/") < DEPTH:
            folders.append(path)
            if skip is None or not skip(path, found.st_mtime_ns, found.st_ino):
                _walk(root, path, files, folders, skip)
