"""Judges whether a candidate is complete: pure decisions over what was read from the storage; a table of formats.

`complete`: every file is there and readable. `partial`: a save did not finish, or files are missing. `corrupt`: the
files are there but wrong. `stale`: complete, but not to be resumed from.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, FrozenSet, Iterator, Mapping, Optional, Sequence, Set, Tuple, cast

from workflows.programs.checkpoints import manifest
from workflows.programs.checkpoints.formats import METADATA, SHARD_SUFFIX, TRAINER_STATE, UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.integrity import PickleError, storage_needs
from workflows.programs.checkpoints.manifest import MANIFEST

COMPLETE, PARTIAL, CORRUPT, STALE = "complete", "partial", "corrupt", "stale"
OK, BAD, ABSENT = "ok", "bad", "absent"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
WEIGHT_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHT_FOLDERS = re.compile(r"^(global_step\d+|pytorch_model_fsdp_\d+|pytorch_model_\d+)/")
OPTIMIZER = re.compile(r"^(optimizer\.(pt|bin)|optimizer_\d+/.+|global_step\d+/.*optim_states.*|global_step\d+/.+)$")
SCHEDULER = re.compile(r"^(scheduler\.pt|global_step\d+/.+)$")
RANK_OF_MEGATRON = re.compile(r"^mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?/")


@dataclass(frozen=True)
class Evidence:
    """What was read from the storage for one candidate."""

    texts: Mapping[str, bytes] = field(default_factory=lambda: {})
    """Content of the small files that `texts_wanted` asked for; a file that could not be read is left out."""
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    """Fault of each file's header; "": none."""
    digests: Mapping[str, str] = field(default_factory=lambda: {})
    """SHA-256 of the files that were read now; "" where reading failed."""
    broken: Mapping[str, str] = field(default_factory=lambda: {})
    """Fault found by reading a file to its end, by path."""
    tracker: Optional[bytes] = None
    """Content of Megatron's tracker file."""
    usual_names: FrozenSet[str] = frozenset()
    """Files (numbers as `#`) that every other candidate of this format has."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a candidate."""

    word: str
    """`complete`, `partial`, `corrupt` or `stale`."""
    why: str
    digest: str = ABSENT
    """`ok`: every digest that exists was compared and agrees; `bad`: one does not; `absent`: none was compared."""


def texts_wanted(candidate: Candidate) -> Tuple[str, ...]:
    """Small files whose content the judgement needs."""
    small = {MANIFEST, METADATA, TRAINER_STATE, *WEIGHT_INDEXES}
    return tuple(one.path for one in candidate.files if one.path in small)


def shape_of(name: str) -> str:
    """A file's name with its numbers taken out, to compare it between checkpoints."""
    return re.sub(r"\d+", "#", name)


def usual_names(candidate: Candidate, others: Tuple[Candidate, ...]) -> FrozenSet[str]:
    """What every other candidate of the same format has, at least two of them."""
    shapes = [
        {shape_of(name) for name in other.names()}
        for other in others
        if other.format == candidate.format and other.path != candidate.path and not other.overwritten
    ]
    if len(shapes) < 2:
        return frozenset()
    common = shapes[0]
    for shape in shapes[1:]:
        common = common & shape
    return frozenset(common)


def judge(candidate: Candidate, evidence: Evidence) -> Judgement:
    """Whether the candidate is whole, by the rules of its format."""
    if not candidate.files:
        return Judgement(PARTIAL, "the folder is empty")
    verdict = RULES[candidate.format](candidate, evidence)
    if verdict.word == COMPLETE and evidence.broken:
        path, why = min(evidence.broken.items())
        return Judgement(CORRUPT, f"{path}: {why}", BAD)
    return verdict


def _judge_primus(candidate: Candidate, evidence: Evidence) -> Judgement:
    text = evidence.texts.get(MANIFEST)
    if text is None:
        return Judgement(PARTIAL, f"{MANIFEST} is missing: the save did not finish")
    try:
        own_manifest = manifest.parse(text)
    except manifest.ManifestError as error:
        return Judgement(CORRUPT, f"{MANIFEST}: {error}", BAD)
    if own_manifest.step != candidate.step:
        return Judgement(CORRUPT, f"{MANIFEST} says step {own_manifest.step}", BAD)
    return next(_against_manifest(own_manifest, candidate, evidence), None) or Judgement(
        COMPLETE,
        f"{len(own_manifest.files)} files of {own_manifest.world_size} ranks",
        OK if all(evidence.digests.get(entry.path) for entry in own_manifest.files) else ABSENT,
    )


def _against_manifest(own_manifest: manifest.Manifest, candidate: Candidate, evidence: Evidence) -> Iterator[Judgement]:
    sizes = {one.path: one.bytes for one in candidate.files}
    missing = [entry.path for entry in own_manifest.files if entry.path not in sizes]
    if missing:
        yield Judgement(PARTIAL, _some_missing(missing, len(own_manifest.files)))
    for entry in own_manifest.files:
        if sizes.get(entry.path) != entry.bytes:
            why = f"{entry.path} has {sizes.get(entry.path)} bytes, its manifest says {entry.bytes}"
            yield Judgement(CORRUPT, why, BAD)
    for entry in own_manifest.files:
        if evidence.digests.get(entry.path, entry.sha256) not in (entry.sha256, ""):
            yield Judgement(CORRUPT, f"the digest of {entry.path} differs from its manifest", BAD)


def _judge_dcp(candidate: Candidate, evidence: Evidence) -> Judgement:
    text = evidence.texts.get(METADATA)
    if text is None:
        return Judgement(PARTIAL, f"{METADATA} is missing: the save did not finish")
    try:
        needs = storage_needs(text)
    except PickleError as error:
        return Judgement(CORRUPT, f"{METADATA}: {error}")
    sizes = {one.path: one.bytes for one in candidate.files}
    missing = [path for path in needs if path not in sizes]
    if missing:
        return Judgement(PARTIAL, _some_missing(missing, len(needs)))
    for path, least in needs.items():
        if sizes[path] < max(1, least):
            return Judgement(CORRUPT, f"{path} has {sizes[path]} bytes, {METADATA} needs {least}: it was cut off")
    shards = [path for path in sizes if path.endswith(SHARD_SUFFIX)]
    empty = [path for path in shards if sizes[path] == 0]
    if not shards or empty:
        return Judgement(PARTIAL, f"{empty[0]} is empty" if empty else f"no {SHARD_SUFFIX} file")
    return _by_headers(evidence) or Judgement(COMPLETE, f"{len(shards)} shards")


def _judge_megatron(candidate: Candidate, evidence: Evidence) -> Judgement:
    if evidence.tracker is None:
        return Judgement(PARTIAL, "there is no tracker file: no save has finished")
    named = tracked_iteration(evidence.tracker)
    if named is not None and candidate.step > named:
        return Judgement(PARTIAL, f"the tracker file names {named}: this save did not finish, or was rolled back")
    names = candidate.names()
    content = _judge_dcp(candidate, evidence) if METADATA in names else _judge_model_parallel(candidate)
    if content.word != COMPLETE:
        return content
    if METADATA in names and not {"common.pt", "metadata.json"} <= names:
        lacking = sorted({"common.pt", "metadata.json"} - names)
        return Judgement(PARTIAL, f"{lacking[0]} is missing")
    return _by_headers(evidence) or content


def _judge_model_parallel(candidate: Candidate) -> Judgement:
    """`mp_rank_TT[_PPP[_EEE]]/…`: every combination of parallel ranks must be there, with the same files."""
    ranked = [(RANK_OF_MEGATRON.match(one.path), one) for one in candidate.files]
    folders: Dict[Tuple[int, ...], Set[str]] = {}
    for match, one in ranked:
        if match is not None:
            key = tuple(int(part) for part in match.groups() if part is not None)
            folders.setdefault(key, set()).add(one.path.split("/", 1)[1])
    if not folders:
        return Judgement(PARTIAL, f"neither {METADATA} nor mp_rank_* folders")
    empty = [one.path for match, one in ranked if match is not None and one.bytes == 0]
    if empty:
        return Judgement(CORRUPT, f"{empty[0]} is empty")
    return _complete_ranks(folders)


def _complete_ranks(folders: Mapping[Tuple[int, ...], Set[str]]) -> Judgement:
    expected = 1
    for position in range(max(len(key) for key in folders)):
        expected *= 1 + max(key[position] for key in folders if len(key) > position)
    if len(folders) != expected:
        return Judgement(PARTIAL, f"{len(folders)} of {expected} mp_rank folders")
    everything: Set[str] = set()
    for names in folders.values():
        everything |= names
    for key, names in sorted(folders.items()):
        lacking = sorted(everything - names)
        if lacking:
            return Judgement(PARTIAL, f"{lacking[0]} of model-parallel rank {key} is missing")
    return Judgement(COMPLETE, f"{expected} model-parallel ranks")


def _judge_huggingface(candidate: Candidate, evidence: Evidence) -> Judgement:
    text = evidence.texts.get(TRAINER_STATE)
    if text is None:
        return Judgement(PARTIAL, f"{TRAINER_STATE} is missing: the save did not finish")
    step = _parse_object(text).get("global_step")
    if step != candidate.step:
        return Judgement(CORRUPT, f"{TRAINER_STATE} says step {step!r}")
    found = next(_of_huggingface(candidate, evidence), None) or _by_headers(evidence)
    return found or Judgement(COMPLETE, f"{len(candidate.files)} files")


def _of_huggingface(candidate: Candidate, evidence: Evidence) -> Iterator[Judgement]:
    names = candidate.names()
    lacking = _missing_weights(names, evidence.texts)
    if lacking:
        yield Judgement(PARTIAL, lacking)
    for what, rule in (("optimizer", OPTIMIZER), ("scheduler", SCHEDULER)):
        if not any(rule.match(name) for name in names):
            yield Judgement(PARTIAL, f"the {what}'s state is missing: a resume would silently start it afresh")
    for one in candidate.files:
        if one.bytes == 0 and one.path.endswith((".pt", ".bin", ".pth")):
            yield Judgement(CORRUPT, f"{one.path} is empty")
    for shape in sorted(evidence.usual_names - {shape_of(name) for name in names}):
        yield Judgement(PARTIAL, f"{shape} is missing, all others have it")


def _missing_weights(names: Set[str], texts: Mapping[str, bytes]) -> str:
    """What is missing of the weights, or ""."""
    for index in WEIGHT_INDEXES:
        if index in names:
            shards = _parse_object(texts.get(index, b"")).get("weight_map")
            if not isinstance(shards, dict) or not shards:
                return f"{index} names no shards"
            wanted = {str(name) for name in cast("Dict[str, Any]", shards).values()}
            lacking = sorted(wanted - names)
            return _some_missing(lacking, len(wanted)) if lacking else ""
    if any(name in names for name in WEIGHT_FILES) or any(WEIGHT_FOLDERS.match(name) for name in names):
        return ""
    return "the weights are missing"


def _judge_pattern(candidate: Candidate, evidence: Evidence) -> Judgement:
    empty = [one.path for one in candidate.files if one.bytes == 0]
    if empty:
        return Judgement(CORRUPT, f"{empty[0]} is empty")
    unusual = sorted(evidence.usual_names - {shape_of(name) for name in candidate.names()})
    if unusual and candidate.step != UNKNOWN_STEP:
        return Judgement(PARTIAL, f"{unusual[0]} is missing, all others have it")
    return _by_headers(evidence) or Judgement(COMPLETE, "its header is readable")


def _by_headers(evidence: Evidence) -> Optional[Judgement]:
    wrong = sorted((path, why) for path, why in evidence.headers.items() if why)
    return Judgement(CORRUPT, f"{wrong[0][0]} {wrong[0][1]}") if wrong else None


def _some_missing(missing: Sequence[str], total: int) -> str:
    return f"{missing[0]} is missing" + (f" ({len(missing)} of {total} files are)" if len(missing) > 1 else "")


def tracked_iteration(text: bytes) -> Optional[int]:
    """The iteration that Megatron's tracker names; None where it names none that can be read."""
    words = text.decode("ascii", "replace").split()
    return int(words[0]) if words and words[0].isdigit() and len(words[0]) < 19 else None


def _parse_object(text: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("Dict[str, Any]", found) if isinstance(found, dict) else {}


RULES: Dict[str, Callable[[Candidate, Evidence], Judgement]] = {
    "primus": _judge_primus,
    "dcp": _judge_dcp,
    "megatron": _judge_megatron,
    "huggingface": _judge_huggingface,
    "pattern": _judge_pattern,
}
"""By the format's word."""
