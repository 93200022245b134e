"""Lists the files of a checkpoint folder; what cannot be looked into is left out, and said.

A link to a folder above itself is not followed, and a link to what is listed anyway is left out, so that everything is
listed once. Errors of the storage as such (it hangs, it is gone) are raised: then nothing is known.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Callable, Collection, Dict, List, Optional, Tuple

from workflows.programs.checkpoints.names import is_apart

DEPTH = 6
"""Deepest level of folders below (Orbax in a folder of a run: `run/checkpoints/100/items/ocdbt.process_0/d`)."""

MOUNT_LEVELS = 2
"""A run's folder is `<mount>/runs/<run>`."""

NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors about one name, which say nothing about the storage as such: `lost+found` of root's, a link to itself."""

Skip = Callable[[str, int, int], bool]


@dataclass(frozen=True)
class FileFacts:
    """One file of a listing."""

    path: str
    """Relative to the folder that was listed."""
    bytes: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Listing:
    """All files of a folder at one moment."""

    root: str
    files: Tuple[FileFacts, ...] = ()
    """Sorted by path."""
    folders: Tuple[str, ...] = ()
    """Every folder below, relative, sorted; so an empty one is seen too."""
    left_out: Tuple[Tuple[str, str], ...] = ()
    """Relative path and reason of what could not be looked into, sorted."""

    def below(self, folder: str) -> Tuple[FileFacts, ...]:
        """The files under `folder` ("": all), their paths relative to it."""
        if not folder:
            return self.files
        prefix = f"{folder}/"
        return tuple(
            FileFacts(one.path[len(prefix) :], one.bytes, one.mtime_ns, one.inode)
            for one in self.files
            if one.path.startswith(prefix)
        )

    def merge_earlier(self, earlier: "Listing", folders: Collection[str]) -> "Listing":
        """This listing with an earlier one's files below `folders`, which were skipped in this one."""
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
        left_out = {*self.left_out, *(one for one in earlier.left_out if inside(one[0]))}
        return Listing(
            self.root, tuple(sorted(files, key=lambda one: one.path)), tuple(sorted(below)), tuple(sorted(left_out))
        )


def list_files(root: str, skip: Optional[Skip] = None) -> Listing:
    """List `root`; a folder that does not exist is an empty listing.

    `skip` is asked with relative path, mtime in ns and inode of each folder; True leaves its content out.

    Raises:
        OSError: the storage cannot be read (a file or folder that vanishes while we look is none of that).
    """
    walk = _Walk(root, skip)
    walk.into("")
    return Listing(
        root,
        tuple(sorted(walk.files, key=lambda one: one.path)),
        tuple(sorted(walk.folders)),
        tuple(sorted(walk.left_out.items())),
    )


@dataclass
class _Walk:
    """A walk in progress."""

    root: str
    skip: Optional[Skip]
    files: List[FileFacts] = field(default_factory=lambda: [])
    folders: List[str] = field(default_factory=lambda: [])
    left_out: Dict[str, str] = field(default_factory=lambda: {})
    real_root: str = ""
    followed: Dict[Tuple[int, int], str] = field(default_factory=lambda: {})
    """The first link to each device and inode: what links lead to is listed once."""

    def __post_init__(self) -> None:
        self.real_root = os.path.realpath(self.root)

    def into(self, below: str) -> None:
        """List the folder `below`."""
        place = os.path.join(self.root, below) if below else self.root
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if not below or error.errno not in NOT_OURS:
                raise
            self.folders.remove(below)
            self.left_out[below] = error.strerror or str(error)
            return
        for entry in entries:
            self.take(entry, f"{below}/{entry.name}" if below else entry.name)

    def take(self, entry: "os.DirEntry[str]", path: str) -> None:
        """One entry: a file is noted, a folder listed, a link followed where it leads to what is not listed anyway."""
        try:
            found = entry.stat()
            is_folder = entry.is_dir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in NOT_OURS:
                raise
            self.left_out[path] = error.strerror or str(error)
            return
        if entry.is_symlink() and not self.leads_elsewhere(path, found):
            return
        if not is_folder:
            self.files.append(FileFacts(path, found.st_size, found.st_mtime_ns, found.st_ino))
        elif path.count("/") < DEPTH:
            self.folders.append(path)
            if self.skip is None or not self.skip(path, found.st_mtime_ns, found.st_ino):
                self.into(path)

    def leads_elsewhere(self, link: str, found: os.stat_result) -> bool:
        """Whether a link leads to another storage, or to a hidden place of this folder: to what only it shows."""
        target = os.path.realpath(os.path.join(self.root, link))
        if target == self.real_root or f"{self.real_root}/".startswith(f"{target.rstrip('/')}/"):
            return False
        if target.startswith(f"{self.real_root}/") and not is_apart(target[len(self.real_root) + 1 :]):
            return False
        identity = (found.st_dev, found.st_ino)
        return self.followed.setdefault(identity, link) == link


def storage_is_there(run_dir: str) -> bool:
    """Whether a run's storage is mounted: without it nothing is known, and writing would fill the container."""
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
