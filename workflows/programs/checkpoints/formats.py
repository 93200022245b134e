"""Finds checkpoints in a folder: a listing of its files, and a table of formats from listing to candidates.

A candidate *may* be a checkpoint; `judge` decides whether it is complete.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Callable, Collection, Dict, List, Optional, Set, Tuple

from workflows.programs.checkpoints.manifest import MANIFEST

DEPTH = 4
"""Deepest level of files below the folder (Megatron: `iter_*/mp_rank_*/file`)."""

MOUNT_LEVELS = 2
"""A run's folder is `<mount>/runs/<run>`."""

UNKNOWN_STEP = -1
"""Step of a candidate whose name says none."""
TRACKER = "latest_checkpointed_iteration.txt"
METADATA = ".metadata"
TRAINER_STATE = "trainer_state.json"
SHARD_SUFFIX = ".distcp"
DEFAULT_PATTERN = r"^(?!\.)(?:.*?\D)??(?P<step>\d+)(?!.*\d)[^/]*\.(?:pt|pth|ckpt|safetensors|npz)$"
"""Single files with a step as the last number of their name."""
DEFAULT_OVERWRITTEN = r"^(?!\.)\D*\.(?:pt|pth|ckpt|safetensors|npz)$"
"""Single files without any number: one that is overwritten in place."""


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

    def below(self, folder: str) -> Tuple[FileFacts, ...]:
        """The files under `folder`, their paths relative to it."""
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
        return Listing(self.root, tuple(sorted(files, key=lambda one: one.path)), tuple(sorted(below)))


def list_files(root: str, skip: Optional[Callable[[str, int, int], bool]] = None) -> Listing:
    """List `root`; a folder that does not exist is an empty listing.

    `skip` is asked with relative path, mtime in ns and inode of each folder; True leaves its content out.

    Raises:
        OSError: the storage cannot be read (a file or folder that vanishes while we look is none of that).
    """
    files: List[FileFacts] = []
    folders: List[str] = []
    _walk(root, "", files, folders, skip)
    return Listing(root, tuple(sorted(files, key=lambda one: one.path)), tuple(sorted(folders)))


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


@dataclass(frozen=True)
class Candidate:
    """Files that may be a checkpoint."""

    format: str
    """`primus`, `dcp`, `megatron`, `huggingface`, `pattern`."""
    step: int
    """Step in its name; `UNKNOWN_STEP`: none."""
    path: str
    """Relative to the listing's root."""
    files: Tuple[FileFacts, ...]
    """Paths relative to the candidate's folder; for a single file its own name."""
    overwritten: bool = False
    """Whether the trainer overwrites it with each save."""
    single: bool = False
    """A file, not a folder."""

    def newest_mtime_ns(self) -> int:
        """Modification time of its newest file."""
        return max((one.mtime_ns for one in self.files), default=0)

    def total_bytes(self) -> int:
        """Size of all its files."""
        return sum(one.bytes for one in self.files)

    def names(self) -> Set[str]:
        """Paths of its files."""
        return {one.path for one in self.files}


def find_candidates(listing: Listing, format: str = "auto", pattern: str = "") -> Tuple[Candidate, ...]:
    """All candidates of the wanted format in `listing`, highest step first.

    `format` is a word of `Candidate.format`; `auto` recognises by content, `none` finds nothing. `pattern` (for
    `pattern` and `auto`) is a regular expression on the file's name with a group `step`.

    Raises:
        ValueError: the pattern is no regular expression or the format is not known.
    """
    if format == "none":
        return ()
    if format == "auto":
        found = _auto(listing, pattern)
    elif format in FORMATS:
        found = FORMATS[format](listing, pattern)
    else:
        raise ValueError(f"format: {format!r} is not one of auto, none, {', '.join(FORMATS)}")
    return tuple(sorted(found, key=lambda one: (one.step, one.newest_mtime_ns(), one.path), reverse=True))


def _auto(listing: Listing, pattern: str) -> List[Candidate]:
    """Folders, the most specific format first; single files only where there is no folder or a pattern is given."""
    found: List[Candidate] = []
    claimed: Set[str] = set()
    for name in ("megatron", "huggingface", "dcp", "primus"):
        for candidate in FORMATS[name](listing, pattern):
            if candidate.path not in claimed:
                claimed.add(candidate.path)
                found.append(candidate)
    if pattern or not found:
        found += _pattern(listing, pattern)
    return found


def _primus(listing: Listing, _pattern_text: str) -> List[Candidate]:
    """`step-<n>`; the folder is ours unless it holds shards of a Distributed Checkpoint."""
    return [
        candidate
        for candidate in _folders(listing, "primus", r"^step-(?P<step>\d+)$")
        if not _is_distributed(candidate.names()) or MANIFEST in candidate.names()
    ]


def _dcp(listing: Listing, _pattern_text: str) -> List[Candidate]:
    """Any folder with a number in its name that holds `.metadata` or `*.distcp`."""
    return [
        candidate
        for candidate in _folders(listing, "dcp", r"^\D*(?P<step>\d+)\D*$")
        if _is_distributed(candidate.names()) and MANIFEST not in candidate.names()
    ]


def _megatron(listing: Listing, _pattern_text: str) -> List[Candidate]:
    """`iter_<n>`, seven digits wide in practice."""
    return _folders(listing, "megatron", r"^iter_(?P<step>\d+)$")


def _huggingface(listing: Listing, _pattern_text: str) -> List[Candidate]:
    """`checkpoint-<n>`."""
    return _folders(listing, "huggingface", r"^checkpoint-(?P<step>\d+)$")


def _pattern(listing: Listing, pattern: str) -> List[Candidate]:
    """Single files by the pattern on their name; those of one step in one folder belong together."""
    patterns = [pattern] if pattern else [DEFAULT_PATTERN, DEFAULT_OVERWRITTEN]
    found: Dict[Tuple[str, int], List[FileFacts]] = {}
    for text in patterns:
        compiled = _compile(text)
        for one in listing.files:
            folder, _, name = one.path.rpartition("/")
            match = compiled.search(name)
            if match is not None and not name.startswith("."):
                step = _group_step(match)
                key = (folder if step is not None else one.path, UNKNOWN_STEP if step is None else step)
                found.setdefault(key, []).append(one)
    return [_single(step, files) for (_, step), files in found.items()]


def _single(step: int, files: List[FileFacts]) -> Candidate:
    first = files[0]
    folder = first.path.rpartition("/")[0]
    named = tuple(FileFacts(one.path.rpartition("/")[2], one.bytes, one.mtime_ns, one.inode) for one in files)
    path = first.path
    return Candidate("pattern", step, path, named, overwritten=step == UNKNOWN_STEP, single=bool(folder) or bool(path))


def _group_step(match: "re.Match[str]") -> Optional[int]:
    if "step" not in match.re.groupindex:
        return None
    digits = match.group("step")
    return int(digits) if digits and digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _folders(listing: Listing, format: str, name_pattern: str) -> List[Candidate]:
    compiled = re.compile(name_pattern, re.ASCII)
    found: List[Candidate] = []
    for folder in listing.folders:
        match = compiled.match(folder)
        step = _group_step(match) if match is not None else None
        if step is not None:
            found.append(Candidate(format, step, folder, listing.below(folder)))
    return found


def _is_distributed(names: Set[str]) -> bool:
    return METADATA in names or any(name.endswith(SHARD_SUFFIX) for name in names)


def _compile(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"pattern: not a regular expression: {error}") from error


FORMATS: Dict[str, Callable[[Listing, str], List[Candidate]]] = {
    "primus": _primus,
    "dcp": _dcp,
    "megatron": _megatron,
    "huggingface": _huggingface,
    "pattern": _pattern,
}
"""Every format there is, by its word in profiles."""
