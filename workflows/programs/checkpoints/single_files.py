"""Single files that are checkpoints by their names: one each, those of a step together, TensorFlow's by a prefix."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

from workflows.programs.checkpoints import names
from workflows.programs.checkpoints.candidate import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.listing import FileFacts, Listing

_ALWAYS = re.compile(r"\.(?:pt|pth|ckpt|safetensors|npz|pt\.tar|pth\.tar|ckpt\.tar|keras)$", re.IGNORECASE)
"""Suffixes that checkpoints have."""
_PERHAPS = re.compile(
    r"\.(?:bin|pkl|pickle|joblib|msgpack|h5|hdf5|ubj|json|model|txt|zip|tar|eqx)$|(?<=\d)$", re.IGNORECASE
)
"""Suffixes (or none) that many files have: these count with a number and a word of checkpoints."""
_WORDS = names.words_in("checkpoint ckpt chkpt model models snapshot booster xgb xgboost lgb lightgbm weights params")
_TEXT = re.compile(r"\.(?:txt|json|model)$", re.IGNORECASE)
_PART_WORDS = names.words_in(
    "optim optimizer opt scheduler sched lr sampler scaler rng random loader dataloader ema meta state trainer"
)
"""A file of one of these is a part of the checkpoint beside which it lies, not one of its own."""
_NEVER = names.words_in(
    "tokenizer vocab vocabulary config configuration args arguments metric metrics dataset preprocessor "
    "history log logs result results summary index embeddings hparams"
)
_OTHERS = names.words_in("best last latest final")
"""A file of one of these is a checkpoint of its own beside the others."""
_SAVE_FOLDER = re.compile(r"^(?:checkpoints?|ckpts?|snapshots?)$", re.IGNORECASE)
"""Folders in which single files count too, as Lightning's `lightning_logs/version_0/checkpoints`."""
_NOT_COUNTED = re.compile(
    r"(?:rank|shard|part|node|proc|process|gpu|r|mp|tp|pp)[-_]?\d+|\d+[-_]of[-_]\d+", re.IGNORECASE
)
_VERSION = re.compile(r"-v(\d+)(?=\.|$)")
_TENSORFLOW = re.compile(r"^(?P<prefix>.+)\.(?:index|meta|data-\d{5}-of-\d{5})$")


def single_files(listing: Listing) -> List[Candidate]:
    """Files whose names say that they are checkpoints, in the top folder and in folders that are called so."""
    found: Dict[Tuple[str, str], List[FileFacts]] = {}
    for one in listing.files:
        folder, _, name = one.path.rpartition("/")
        if not _counts(folder, one.path) or not _is_named_so(name):
            continue
        if folder and names.step_of(name) is None:
            continue
        found.setdefault((folder, _key(name)), []).append(one)
    groups = _join_parts(found)
    return [_candidate(files, names.step_of(files[0].path.rpartition("/")[2])) for files in groups]


def pattern_files(listing: Listing, pattern: str) -> List[Candidate]:
    """Files by a pattern on their names; those of one step in one folder belong together.

    Raises:
        ValueError: the pattern is no regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern: not a regular expression: {error}") from error
    found: Dict[Tuple[str, int], List[FileFacts]] = {}
    for one in listing.files:
        folder, _, name = one.path.rpartition("/")
        match = compiled.search(name)
        if match is None or names.is_temporary(name) or (folder and names.is_apart(folder)):
            continue
        step = _group_step(match)
        key = (one.path, UNKNOWN_STEP) if step is None else (folder, step)
        found.setdefault(key, []).append(one)
    return [_candidate(files, None if step == UNKNOWN_STEP else step, step == UNKNOWN_STEP)
            for (_, step), files in found.items()]  # fmt: skip


def tensorflow_files(listing: Listing) -> List[Candidate]:
    """TensorFlow's checkpoints: a prefix, to which an index and one or more files of data belong."""
    found: Dict[str, List[FileFacts]] = {}
    for one in listing.files:
        folder, _, name = one.path.rpartition("/")
        match = _TENSORFLOW.match(name)
        if match is not None and _counts(folder, one.path):
            found.setdefault(f"{folder}/{match['prefix']}" if folder else match["prefix"], []).append(one)
    candidates: List[Candidate] = []
    for prefix, files in found.items():
        if not any(".data-" in one.path for one in files):
            continue
        step = names.step_of(prefix.rpartition("/")[2])
        candidates.append(
            Candidate(
                "tensorflow",
                UNKNOWN_STEP if step is None else step,
                prefix,
                tuple(_named(one) for one in files),
                overwritten=names.is_written_again(prefix.rpartition("/")[2]),
                single=True,
            )
        )
    return candidates


def is_saved_file(path: str) -> bool:
    """Whether a file lies in a folder of checkpoints and its name tells its step."""
    folder, _, name = path.rpartition("/")
    return bool(folder) and _counts(folder, path) and names.step_of(name) is not None


def _counts(folder: str, path: str) -> bool:
    if names.is_apart(path):
        return False
    return not folder or bool(_SAVE_FOLDER.match(folder.rpartition("/")[2]))


def _is_named_so(name: str) -> bool:
    words = names.words_of(name)
    if words & _NEVER or name.endswith(".index.json"):
        return False
    if _ALWAYS.search(name):
        return True
    is_numbered = names.has_number(name) and bool(words & _WORDS or name.endswith(".model"))
    return bool(_PERHAPS.search(name)) and is_numbered and not (_TEXT.search(name) and words & _PART_WORDS)


def _key(name: str) -> str:
    """What the names of files have in common that are one checkpoint: the step, or all numbers, or the name."""
    step, version = names.step_of(name), _VERSION.search(name)
    if step is not None:
        return f"step {step} {version.group(1) if version else ''}"
    bare = _NOT_COUNTED.sub("", name)
    numbers = re.findall(r"\d+", bare)
    if numbers:
        return "numbers " + " ".join(numbers)
    words = names.words_of(name)
    return "parts" if words & _PART_WORDS and not words & (_OTHERS | _WORDS) else f"name {bare}"


def _join_parts(found: "Dict[Tuple[str, str], List[FileFacts]]") -> List[List[FileFacts]]:
    """The groups, each with the file first that is no part; files of parts without numbers go to those beside them."""
    groups: List[List[FileFacts]] = []
    for (folder, key), files in found.items():
        if key == "parts":
            continue
        beside = found.get((folder, "parts"), []) if key.startswith("name ") else []
        own = sorted(files, key=lambda one: (bool(names.words_of(one.path) & _PART_WORDS), one.path))
        groups.append([*own, *beside])
    return groups


def _candidate(files: List[FileFacts], step: Optional[int], overwritten: Optional[bool] = None) -> Candidate:
    """One checkpoint of single files, the first of which a trainer is told."""
    first = files[0]
    again = names.is_written_again(first.path.rpartition("/")[2]) if overwritten is None else overwritten
    return Candidate(
        "pattern",
        UNKNOWN_STEP if step is None else step,
        first.path,
        tuple(_named(one) for one in files),
        overwritten=again,
        single=True,
    )


def _named(one: FileFacts) -> FileFacts:
    return FileFacts(one.path.rpartition("/")[2], one.bytes, one.mtime_ns, one.inode)


def _group_step(match: "re.Match[str]") -> Optional[int]:
    """Steps that a file holds by its group `step`, or by `index`: the number of its last step, counted from 0."""
    for group, more in (("step", 0), ("index", 1)):
        digits = match.group(group) if group in match.re.groupindex else None
        if digits and digits.isascii() and digits.isdigit() and len(digits) <= names.MOST_DIGITS:
            return int(digits) + more
    return None
