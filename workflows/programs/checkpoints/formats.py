"""Finds checkpoints in a listing: which folders and files are one, in which format, of which step. Pure.

A candidate *may* be a checkpoint; `judge` decides whether it is complete. A folder of several files is one unit, from
the topmost folder that is a checkpoint by its content or its name. Single files count from the top folder, and from
folders that are called checkpoints. The shallowest ones with steps count: deeper lie copies, trials and tools' own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

from workflows.programs.checkpoints import names
from workflows.programs.checkpoints.candidate import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.listing import FileFacts, Listing
from workflows.programs.checkpoints.manifest import MANIFEST
from workflows.programs.checkpoints.single_files import is_saved_file, pattern_files, single_files, tensorflow_files

METADATA = ".metadata"
TRAINER_STATE = "trainer_state.json"
SHARD_SUFFIX = ".distcp"
TRACKERS = {"megatron": "latest_checkpointed_iteration.txt", "deepspeed": "latest"}
"""File beside the checkpoints of a format that names the newest finished one."""
FORMATS = ("primus", "dcp", "megatron", "huggingface", "accelerate", "deepspeed", "orbax", "tensorflow", "folder",
           "pattern")  # fmt: skip
"""Every format there is, by its word in profiles."""


@dataclass(frozen=True)
class FolderFormat:
    """How folders of one format are recognised; patterns are on paths relative to the folder."""

    format: str
    name: str = r".*"
    """What the folder must be called. A name that says the format is enough where nothing foreign lies in it: what has
    just begun to be saved is a part of one."""
    marks: str = ""
    """A file that only this format has."""
    foreign: str = r"(?!)"
    """A file that this format never has."""
    step_in_name: bool = True
    """False: the number in its name counts saves."""

    def fits(self, name: str, paths: Iterable[str], by_name: bool = False) -> bool:
        """Whether a folder of this name with these files is of this format; `by_name`: though it has no mark."""
        if not re.fullmatch(self.name, name) or any(re.search(self.foreign, path) for path in paths):
            return False
        return by_name or any(re.search(self.marks, path) for path in paths)


_PART = (
    r"(?:models?|optim(?:izer)?s?|weights|params|state|items|default|ema|lora|rng|data(?:loader)?|scheduler|sampler"
    r"|consolidated|context|train_state|opt_state|pytorch_model_fsdp|pytorch_model|checkpoint_state|dist_ckpt)(?:_\d+)?"
)
_PARTS = re.compile(rf"^{_PART}$", re.IGNORECASE)
"""Folders that are a part of the checkpoint in which they lie, where it has several."""
_STATE = rf"{names.HOLDS_STATE.pattern}|(?:^|/)(?:model|weights|vectors|_METADATA)$"
"""Files that hold a training program's state; the words without a suffix are spaCy's and Orbax's."""
_STATE_FILE = re.compile(_STATE, re.IGNORECASE)
_DISTRIBUTED = r"^(?:__\d+)?\.metadata$|^[^/]*\.distcp$"
_OF_TRAINER = (
    r"^(?:config\.json|model.*\.safetensors.*|pytorch_model.*|adapter_.*|training_args\.bin|optimizer\.pt|scheduler\.pt"
    r"|rng_state.*\.pth|trainer_state\.json|tokenizer.*)$"
)
_OF_ACCELERATE = r"^(?:random_states_\d+|custom_checkpoint_\d+)\.pkl$|^(?:optimizer|scheduler|sampler)(?:_\d+)?\.bin$"
_OF_DEEPSPEED = r"^(?:mp_rank_\d+|(?:\w+_)?zero_pp_rank_\d+_mp_rank_\d+|layer_\d+-model_\d+)[^/]*_states\.pt$"
_OF_ORBAX = rf"^_CHECKPOINT_METADATA$|^commit_success\.txt$|^(?:{_PART}/)?(?:_METADATA|manifest\.ocdbt)$"
_OF_PRIMUS = rf"^{re.escape(MANIFEST)}$"
_OF_MEGATRON = rf"^mp_rank_\d+\w*/|{_DISTRIBUTED}"
LAYOUTS: Tuple[FolderFormat, ...] = (
    FolderFormat("primus", r"step-\d+", _OF_PRIMUS, rf"{_DISTRIBUTED}|^(?!shard-|ballast-)[^/]*(?:{_STATE})"),
    FolderFormat("megatron", r"iter_\d+", _OF_MEGATRON, rf"^(?!common\.pt|.*\.distcp)[^/]*(?:{_STATE})"),
    FolderFormat("deepspeed", marks=_OF_DEEPSPEED),
    FolderFormat("accelerate", r"checkpoint_\d+", _OF_ACCELERATE, r"^trainer_state\.json$", step_in_name=False),
    FolderFormat("accelerate", marks=_OF_ACCELERATE, foreign=r"^trainer_state\.json$"),
    FolderFormat("huggingface", r"checkpoint-\d+", _OF_TRAINER),
    FolderFormat("dcp", marks=_DISTRIBUTED),
    FolderFormat("orbax", marks=_OF_ORBAX),
)
"""The first row that fits tells a folder's format; `folder` is what fits none and has a checkpoint's name."""
_CALLED = re.compile(
    r"^(?:model[-_])?(?:last|latest|best|final|current|newest|checkpoint|ckpt|snapshot|resume|epochs?|ep)(?![A-Za-z])",
    re.IGNORECASE,
)
"""Names of folders that are checkpoints without a step, where state files lie in them."""
_NUMBERED = re.compile(r"^(?:checkpoint|ckpt)[-_]?\d+$", re.IGNORECASE)


def find_candidates(listing: Listing, format: str = "auto", pattern: str = "") -> Tuple[Candidate, ...]:
    """All candidates of the wanted format in `listing`, highest step first.

    `format` is a word of `FORMATS`; `auto` recognises by content, `none` finds nothing. `pattern` (for `pattern` and
    `auto`) is a regular expression on the file's name with a group `step`.

    Raises:
        ValueError: the pattern is no regular expression or the format is not known.
    """
    if format == "none":
        return ()
    if format not in ("auto", *FORMATS):
        raise ValueError(f"format: {format!r} is not one of auto, none, {', '.join(FORMATS)}")
    singles = pattern_files(listing, pattern) if pattern else single_files(listing)
    if format == "pattern":
        found: List[Candidate] = singles
    else:
        found = _units(listing, format)
        if format in ("auto", "tensorflow"):
            found += tensorflow_files(listing)
        at_top = any(one.step != UNKNOWN_STEP and "/" not in one.path and _has_state(one) for one in found)
        found += singles if format == "auto" and (pattern or not at_top) else []
    return tuple(sorted(_shallowest(found), key=lambda one: (one.step, one.newest_mtime_ns(), one.path), reverse=True))


def _has_state(candidate: Candidate) -> bool:
    return any(_STATE_FILE.search(one.path) for one in candidate.files)


def _shallowest(found: Sequence[Candidate]) -> List[Candidate]:
    """Those that lie as deep as the first ones with a step: below are copies, trials, and what tools keep."""
    stepped = [one for one in found if one.step != UNKNOWN_STEP]
    depth = min((one.path.count("/") for one in stepped or found), default=0)
    return [one for one in found if one.path.count("/") <= depth]


@dataclass
class _Tree:
    """The files below each folder."""

    below: Dict[str, List[FileFacts]] = field(default_factory=lambda: {})
    """Paths relative to the folder; temporary ones are left out."""
    markers: Dict[str, Set[str]] = field(default_factory=lambda: {})
    """Names of the files right in a folder that say of something that it is unfinished."""


def _tree(listing: Listing) -> _Tree:
    tree = _Tree({folder: [] for folder in ("", *listing.folders)})
    for one in listing.files:
        *folders, name = one.path.split("/")
        parent = "/".join(folders)
        if names.UNFINISHED.search(name):
            tree.markers.setdefault(parent, set()).add(name)
        if (names.is_temporary(name) and not name.endswith(METADATA)) or any(map(names.is_temporary, folders)):
            continue
        tree.below[""].append(one)
        for depth in range(1, len(folders) + 1):
            inside = FileFacts("/".join((*folders[depth:], name)), one.bytes, one.mtime_ns, one.inode)
            tree.below.setdefault("/".join(folders[:depth]), []).append(inside)
    return tree


def _units(listing: Listing, wanted: str) -> List[Candidate]:
    """Folders that are one checkpoint each, the topmost first; the listed folder itself where nothing else is one."""
    tree = _tree(listing)
    found: List[Candidate] = []
    taken: Set[str] = set()
    for folder in sorted(listing.folders, key=lambda path: (path.count("/"), path)):
        parent = folder.rpartition("/")[0]
        if parent in taken:
            taken.add(folder)
        elif not names.is_apart(folder):
            one = _unit(folder, tree, wanted)
            if one is not None:
                found.append(one)
                taken.add(folder)
    root = _unit("", tree, wanted) if not any("/" not in one.path for one in found) else None
    return [root] if root is not None else found


def _unit(folder: str, tree: _Tree, wanted: str) -> Optional[Candidate]:
    """The folder as one checkpoint; None: it is none."""
    files = tuple(tree.below[folder])
    name = folder.rpartition("/")[2]
    layout = _layout(name, [one.path for one in files], wanted)
    if layout is None or (layout.format != wanted and wanted not in ("auto", "folder")):
        return None
    parent = folder.rpartition("/")[0]
    if layout.marks and _PARTS.match(name) and _has_parts(one.path for one in tree.below[parent]):
        return None
    markers = {one for one in tree.markers.get(parent, ()) if folder and names.marks_unfinished(one, name)}
    markers |= {one for one in tree.markers.get(folder, ()) if names.says_unfinished(one)}
    step = names.step_of(name) if layout.step_in_name else None
    return Candidate(
        layout.format,
        UNKNOWN_STEP if step is None else step,
        folder,
        files,
        overwritten=names.is_written_again(name),
        marker=min(markers, default=""),
    )


def _has_parts(paths: Iterable[str]) -> bool:
    """Whether a folder has two or more folders of parts: then it is the checkpoint, not each of them."""
    children = {path.partition("/")[0] for path in paths if "/" in path}
    return len([child for child in children if _PARTS.match(child)]) >= 2


def _layout(name: str, paths: Sequence[str], wanted: str) -> Optional[FolderFormat]:
    """The row that a folder fits; None: it is no checkpoint."""
    rows = [row for row in LAYOUTS if wanted in ("auto", row.format)]
    found = next((row for row in rows if row.fits(name, paths)), None)
    if found is not None and (name or found.format in ("dcp", "accelerate", "deepspeed", "orbax")):
        return found
    state = [path for path in paths if _STATE_FILE.search(path)]
    named = next((row for row in rows if name and row.name != ".*" and row.fits(name, paths, by_name=True)), None)
    if named is not None and (wanted != "auto" or not state or named.format in ("primus", "megatron")):
        return named
    if wanted not in ("auto", "folder") or not state or _holds_others(name, paths, state):
        return None
    is_called_so = bool(name) and (names.step_of(name) is not None or bool(_CALLED.match(name)))
    return FolderFormat("folder") if is_called_so or _has_parts(paths) else None


def _holds_others(name: str, paths: Sequence[str], state: Sequence[str]) -> bool:
    """Whether it only holds checkpoints with steps of their own: `run-0/checkpoint-5`, `1/checkpoints/step=5.ckpt`."""
    if names.announced_step(name) is not None or _NUMBERED.match(name) or any("/" not in path for path in state):
        return False
    if any(is_saved_file(path) for path in state):
        return True
    folders = {part for path in paths for part in path.split("/")[:-1]}
    return any(part.isdigit() or names.announced_step(part) is not None or _NUMBERED.match(part) for part in folders)
