"""Judges whether a candidate is complete: pure decisions over what was read from the storage; a table of formats.

`complete`: every file is there and readable. `partial`: a save did not finish, or files are missing. `corrupt`: the
files are there but wrong. `stale`: complete, but not to be resumed from.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, cast

from workflows.programs.checkpoints import manifest
from workflows.programs.checkpoints.candidate import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.formats import METADATA, SHARD_SUFFIX, TRAINER_STATE
from workflows.programs.checkpoints.integrity import PickleError, storage_needs
from workflows.programs.checkpoints.manifest import MANIFEST
from workflows.programs.checkpoints.names import HOLDS_STATE, IS_NOTE, step_of

COMPLETE, PARTIAL, CORRUPT, STALE = "complete", "partial", "corrupt", "stale"
OK, BAD, ABSENT = "ok", "bad", "absent"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
WEIGHT_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHT_FOLDERS = re.compile(r"^(global_step\d+|pytorch_model_fsdp_\d+|pytorch_model_\d+)/")
OPTIMIZER = re.compile(r"^(optimizer\.(pt|bin)|optimizer_\d+/.+|global_step\d+/.*optim_states.*|global_step\d+/.+)$")
SCHEDULER = re.compile(r"^(scheduler\.pt|global_step\d+/.+)$")
RANK_OF_MEGATRON = re.compile(r"^mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?/")
METADATA_LATE_NS = 1_000_000_000
"""`.metadata` is written when all shards are; clocks of a storage's servers may differ by less than this."""
OWN_METADATA = re.compile(r"^__\d+\.metadata$")
"""Each rank's own, where ranks saved without speaking to each other."""
SHARD_OF = re.compile(r"^(.*?)(\d+)-of-(\d+)(.*)$")
ZERO_SHARD = re.compile(r"^(.*?)zero_pp_rank_(\d+)_(mp_rank_\d+.*)$")
MODEL_STATES = re.compile(r"^mp_rank_(\d+)_model_states\.pt$")
COMPARED = 8
"""Other checkpoints with which one is compared: they may be hundreds, of thousands of files each."""
_WITHOUT_END = frozenset({"pattern", "folder", "tensorflow", "megatron", "deepspeed"})
"""Formats in which no file is known to be written last."""
_TELLS_ITS_SIZE = re.compile(r"\.(?:pt|pth|ckpt|safetensors|npz|npy|zip|distcp|json)$")
"""Files whose own header says how long they are, so that a shorter one is not a cut one."""


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
    """Content of the format's tracker file beside it."""
    tracker_mtime_ns: int = 0
    """When that was written; 0: there is none."""
    usual_names: FrozenSet[str] = frozenset()
    """Files (numbers as `#`) that every other candidate of this format has."""
    usual_bytes: Mapping[str, int] = field(default_factory=lambda: {})
    """Size of a file where all other candidates have it in that one size, at least two."""


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
    return tuple(one.path for one in candidate.files if _is_small_text(one.path.rpartition("/")[2], one.path))


def _is_small_text(name: str, path: str) -> bool:
    return path in (MANIFEST, TRAINER_STATE) or name.endswith((METADATA, ".index.json"))


def shape_of(name: str) -> str:
    """A file's name with its numbers taken out, to compare it between checkpoints."""
    return re.sub(r"\d+", "#", name)


def usual(candidate: Candidate, others: Sequence[Candidate]) -> Evidence:
    """What the run's other checkpoints (newest first) let expect of this one."""
    alike = _alike(candidate, others)
    return Evidence(usual_names=_usual_names(candidate, alike), usual_bytes=_usual_bytes(candidate, alike))


def _usual_names(candidate: Candidate, alike: Sequence[Candidate]) -> FrozenSet[str]:
    """What every other candidate of the same format has that has a file like it.

    One other is enough where nothing else tells that a save has ended; else it takes two.
    """
    own = _shapes(candidate)
    shapes = [_shapes(other) for other in alike]
    shapes = [shape for shape in shapes if shape & own]
    if len(shapes) < (1 if candidate.format in _WITHOUT_END else 2):
        return frozenset()
    common = shapes[0]
    for shape in shapes[1:]:
        common = common & shape
    return frozenset(common)


def _shapes(candidate: Candidate) -> Set[str]:
    """Names of its files as they would be at any step; in a folder of any files notes for people are not counted."""
    counted = (name for name in candidate.names() if candidate.format != "folder" or not IS_NOTE.search(name))
    return {_without_step(name, candidate) for name in counted}


def _usual_bytes(candidate: Candidate, alike: Sequence[Candidate]) -> Dict[str, int]:
    """Size by path of what all other candidates of the same format have in one size, at least two of them."""
    sizes = [{_without_step(one.path, other): one.bytes for one in other.files} for other in alike]
    if len(sizes) < 2:
        return {}
    return {
        one.path: sizes[0][shape]
        for one in candidate.files
        for shape in (_without_step(one.path, candidate),)
        if len({found.get(shape) for found in sizes}) == 1 and shape in sizes[0]
    }


def _alike(candidate: Candidate, others: Sequence[Candidate]) -> List[Candidate]:
    """The newest `COMPARED` others of its format that are saved as it is."""
    found = (
        other
        for other in others
        if other.format == candidate.format
        and other.path != candidate.path
        and other.overwritten == candidate.overwritten
    )
    return list(islice(found, COMPARED))


def _without_step(path: str, candidate: Candidate) -> str:
    """A file's path as it would be at any step."""
    if candidate.step == UNKNOWN_STEP:
        return path if not candidate.single else shape_of(path)
    return re.sub(r"\d+", lambda found: "#" if int(found[0]) == candidate.step else found[0], path)


def judge(candidate: Candidate, evidence: Evidence) -> Judgement:
    """Whether the candidate is whole, by the rules of its format."""
    if not candidate.files:
        return Judgement(PARTIAL, "the folder is empty")
    if candidate.marker:
        return Judgement(PARTIAL, f"{candidate.marker} marks it as unfinished")
    verdict = RULES[candidate.format](candidate, evidence)
    if verdict.word == COMPLETE and candidate.format != "primus":
        verdict = next(_against_others(candidate, evidence), verdict)
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
    found = _distributed("", candidate, evidence)
    written = {one.path: one.mtime_ns for one in candidate.files}
    later = [path for path, at in written.items() if path.endswith(SHARD_SUFFIX) and "/" not in path
             and at > written.get(METADATA, at) + METADATA_LATE_NS]  # fmt: skip
    if found.word == COMPLETE and candidate.overwritten and later:
        return Judgement(PARTIAL, f"{min(later)} was written after {METADATA}: a save over it did not finish")
    return found if found.word != COMPLETE else _by_headers(evidence) or found


def _distributed(folder: str, candidate: Candidate, evidence: Evidence) -> Judgement:
    """The Distributed Checkpoint right in `folder` of the candidate ("" or ending with a slash)."""
    sizes = {one.path[len(folder) :]: one.bytes for one in candidate.files
             if one.path.startswith(folder) and "/" not in one.path[len(folder) :]}  # fmt: skip
    named = METADATA if METADATA in sizes else f"{folder}{METADATA}"
    own = [name for name in sizes if name == METADATA] or [name for name in sizes if OWN_METADATA.match(name)]
    if not own:
        return Judgement(PARTIAL, f"{named} is missing: the save did not finish")
    needs: Dict[str, int] = {}
    for name in own:
        try:
            needs.update(storage_needs(evidence.texts.get(f"{folder}{name}", b"")))
        except PickleError as error:
            return Judgement(CORRUPT, f"{folder}{name}: {error}")
    return _shards(folder, sizes, needs, own[0])


def _shards(folder: str, sizes: Mapping[str, int], needs: Mapping[str, int], metadata: str) -> Judgement:
    missing = [f"{folder}{path}" for path in needs if path not in sizes]
    if missing:
        return Judgement(PARTIAL, _some_missing(missing, len(needs)))
    for path, least in needs.items():
        if sizes[path] < max(1, least):
            why = f"{folder}{path} has {sizes[path]} bytes, {metadata} needs {least}: it was cut off"
            return Judgement(CORRUPT, why)
    shards = [path for path in sizes if path.endswith(SHARD_SUFFIX)]
    empty = [path for path in shards if sizes[path] == 0]
    if not shards or empty:
        return Judgement(PARTIAL, f"{folder}{empty[0]} is empty" if empty else f"no {SHARD_SUFFIX} file")
    return Judgement(COMPLETE, f"{len(shards)} shards")


def _judge_megatron(candidate: Candidate, evidence: Evidence) -> Judgement:
    names = candidate.names()
    named = tracked_iteration(evidence.tracker) if evidence.tracker is not None else None
    all_seen = METADATA in names or bool(evidence.usual_names)
    if evidence.tracker is None and not all_seen:
        return Judgement(PARTIAL, "there is no tracker file: no save has finished")
    if named is not None and candidate.step > named and not (all_seen and _is_newer(candidate, evidence)):
        return Judgement(PARTIAL, f"the tracker file names {named}: this save did not finish, or was rolled back")
    content = _distributed("", candidate, evidence) if METADATA in names else _judge_model_parallel(candidate)
    if content.word != COMPLETE:
        return content
    if METADATA in names and not {"common.pt", "metadata.json"} <= names:
        lacking = sorted({"common.pt", "metadata.json"} - names)
        return Judgement(PARTIAL, f"{lacking[0]} is missing")
    return _by_headers(evidence) or content


def _is_newer(candidate: Candidate, evidence: Evidence) -> bool:
    """Whether it was written after the tracker file: a killed save left that as it was, a roll-back wrote it anew."""
    return candidate.newest_mtime_ns() > evidence.tracker_mtime_ns


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


def _missing_weights(names: Set[str], texts: Mapping[str, bytes]) -> str:
    """What is missing of the weights, or ""."""
    for index in WEIGHT_INDEXES:
        if index in names:
            return _missing_shards(index, names, texts)
    if any(name in names for name in WEIGHT_FILES) or any(WEIGHT_FOLDERS.match(name) for name in names):
        return ""
    return "the weights are missing"


def _missing_shards(index: str, names: Set[str], texts: Mapping[str, bytes]) -> str:
    """What is missing of the files that an index names, or ""."""
    shards = _parse_object(texts.get(index, b"")).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        return f"{index} names no shards"
    folder = index[: len(index) - len(index.rpartition("/")[2])]
    wanted = {f"{folder}{name}" for name in cast("Dict[str, Any]", shards).values()}
    lacking = sorted(wanted - names)
    return _some_missing(lacking, len(wanted)) if lacking else ""


def _judge_folder(candidate: Candidate, evidence: Evidence) -> Judgement:
    """A folder of any files: each one whole, and all that belong together there."""
    found = next(_of_folder(candidate, evidence), None)
    return (
        found or _by_headers(evidence) or Judgement(COMPLETE, f"{len(candidate.files)} files, their headers readable")
    )


def _of_folder(candidate: Candidate, evidence: Evidence) -> Iterator[Judgement]:
    names = candidate.names()
    for one in candidate.files:
        if one.bytes == 0 and HOLDS_STATE.search(one.path):
            yield Judgement(CORRUPT, f"{one.path} is empty")
    for folder in sorted({name.rpartition("/")[0] for name in names if name.endswith((SHARD_SUFFIX, METADATA))}):
        found = _distributed(f"{folder}/" if folder else "", candidate, evidence)
        if found.word != COMPLETE:
            yield found
    for index in sorted(name for name in names if name.endswith(".index.json")):
        lacking = _missing_shards(index, names, evidence.texts)
        if lacking:
            yield Judgement(PARTIAL, lacking)
    lacking = _missing_numbered(names)
    if lacking:
        yield Judgement(PARTIAL, f"{lacking} is missing")


def _missing_numbered(names: Set[str]) -> str:
    """First file of `…<i>-of-<n>…` that is missing, counted from 0 or 1; "": none."""
    for match in filter(None, map(SHARD_OF.match, sorted(names))):
        head, digits, total, tail = match.groups()
        width, count = len(digits), int(total)
        first = 0 if f"{head}{0:0{width}}-of-{total}{tail}" in names else 1
        for number in range(first, min(first + count, int(digits) + count + 1)):
            name = f"{head}{number:0{width}}-of-{total}{tail}"
            if name not in names:
                return name
    return ""


def _judge_accelerate(candidate: Candidate, evidence: Evidence) -> Judgement:
    if "random_states_0.pkl" not in candidate.names():
        return Judgement(PARTIAL, "random_states_0.pkl, which is written last, is missing: the save did not finish")
    return _judge_folder(candidate, evidence)


def _judge_deepspeed(candidate: Candidate, evidence: Evidence) -> Judgement:
    tag = (evidence.tracker or b"").decode("utf-8", "replace").strip()
    named = step_of(tag) if tag else None
    all_seen = bool(evidence.usual_names) and _is_newer(candidate, evidence)
    if named is not None and candidate.step > named and not all_seen:
        return Judgement(PARTIAL, f"`latest` names {tag}: this save did not finish, or was rolled back")
    names = candidate.names()
    if not any(name.endswith("model_states.pt") for name in names):
        return Judgement(PARTIAL, "the model's states are missing")
    lacking = _missing_zero_shard(names)
    if lacking:
        return Judgement(PARTIAL, f"{lacking} is missing")
    return _judge_folder(candidate, evidence)


def _missing_zero_shard(names: Set[str]) -> str:
    """First rank's shard that is missing between others, for every model-parallel rank and kind of states."""
    models = {match.group(1) for match in map(MODEL_STATES.match, names) if match is not None}
    kinds: Dict[str, Set[Tuple[int, str, str]]] = {}
    for name in names:
        match = ZERO_SHARD.match(name)
        if match is not None:
            tail = re.sub(r"^mp_rank_\d+", "mp_rank_{}", match.group(3))
            model = re.match(r"mp_rank_(\d+)", match.group(3))
            models.add(model.group(1) if model else "00")
            kinds.setdefault(f"{match.group(1)}zero_pp_rank_{{}}_{tail}", set()).add((int(match.group(2)), name, tail))
    for kind, found in sorted(kinds.items()):
        for rank in range(1 + max(rank for rank, _, _ in found)):
            for model in sorted(models):
                if kind.format(rank, model) not in names:
                    return kind.format(rank, model)
    counts = {kind: len(found) for kind, found in kinds.items()}
    least, most = min(counts.items(), key=lambda one: one[1], default=("", 0)), max(counts.values(), default=0)
    return least[0].format(most - 1, "00") if least[1] < most else ""


def _judge_orbax(candidate: Candidate, evidence: Evidence) -> Judgement:
    """Orbax renames a folder when all is written; arrays of `d` need the manifest beside it."""
    names = candidate.names()
    for data in sorted(name for name in names if name.startswith("d/") or "/d/" in name):
        folder = data[: data.rindex("d/")]
        if f"{folder}manifest.ocdbt" not in names:
            return Judgement(PARTIAL, f"{folder}manifest.ocdbt is missing")
    if not any(name.rpartition("/")[2] not in ("_CHECKPOINT_METADATA", "commit_success.txt") for name in names):
        return Judgement(PARTIAL, "it holds no item: the save did not finish")
    return _judge_folder(candidate, evidence)


def _judge_tensorflow(candidate: Candidate, evidence: Evidence) -> Judgement:
    names = candidate.names()
    if not any(name.endswith(".index") for name in names):
        return Judgement(PARTIAL, "its index is missing: the save did not finish")
    return _judge_folder(candidate, evidence)


def _judge_pattern(candidate: Candidate, evidence: Evidence) -> Judgement:
    empty = [one.path for one in candidate.files if one.bytes == 0]
    if empty:
        return Judgement(CORRUPT, f"{empty[0]} is empty")
    lacking = _missing_numbered(candidate.names())
    if lacking:
        return Judgement(PARTIAL, f"{lacking} is missing")
    return _by_headers(evidence) or Judgement(COMPLETE, "its header is readable")


def _against_others(candidate: Candidate, evidence: Evidence) -> Iterator[Judgement]:
    """What differs from the run's other checkpoints, which must be at least two and agree."""
    if not (candidate.overwritten and candidate.single):
        for shape in sorted(evidence.usual_names - _shapes(candidate)):
            yield Judgement(PARTIAL, f"{shape} is missing, all others have it")
    for one in candidate.files:
        usual = evidence.usual_bytes.get(one.path, 0)
        if one.bytes < usual and HOLDS_STATE.search(one.path) and not _TELLS_ITS_SIZE.search(one.path):
            yield Judgement(PARTIAL, f"{one.path} has {one.bytes} bytes, in all others {usual}: it was cut off")


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
    "accelerate": _judge_accelerate,
    "deepspeed": _judge_deepspeed,
    "orbax": _judge_orbax,
    "tensorflow": _judge_tensorflow,
    "folder": _judge_folder,
    "pattern": _judge_pattern,
}
"""By the format's word."""
