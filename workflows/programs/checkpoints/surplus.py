"""Which checkpoints nobody needs any more, and how one goes: renamed first, so that a kill at any line leaves no half.

The same decision holds for a run that lives (`prover`, where the profile allows it), for one that has ended
(`primus gc`) and for our own copies. What a run resumes from is never changed by it: the newest usable ones stay.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from typing import Any, Container, Dict, Iterable, List, Optional, Sequence, Set, Tuple, cast

from workflows.programs.checkpoints.candidate import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.examine import CheckpointFinding, folder_of, place_of, read_small
from workflows.programs.checkpoints.judge import BAD, COMPLETE, OK, STALE
from workflows.programs.runtime.files import write_atomically

ALWAYS_KEPT = 2
"""The newest two usable ones are never deleted, whatever a profile says."""

_LEAVING = ".removed-by-primus"
"""End of the hidden name under which something goes."""
_LISTED = ".removed-by-primus.json"
TRACKER_LIMIT_BYTES = 1 << 16
"""A larger file beside checkpoints is a log, not one that names the newest."""
_TRACKS = re.compile(
    r"(?<![a-z])(?:latest|last|newest|best|current|resume|tracker)(?![a-z])|^checkpoint$", re.IGNORECASE
)
"""Names of files in which a number alone is that of a checkpoint."""
_NEVER_TRACKS = re.compile(r"\.(?:log|out|err|csv|md|jsonl|html|png|py)$|tfevents", re.IGNORECASE)
_BEST = re.compile(rb'"best_model_checkpoint":\s*"(?P<path>[^"]*)"')
"""What the Trainer of transformers loads at its end: it stands in the state beside each checkpoint's weights."""
_NUMBER = re.compile(r"(?<![\w.])0*(\d+)(?![\w.])")


@dataclass(frozen=True)
class Stored:
    """One checkpoint as the decision sees it."""

    step: int
    usable: bool
    """It was read and found good: a resume may take it."""
    whole: bool = True
    """All there, as far as anybody knows; what is damaged or unknown is evidence, and stays."""
    needed: bool = False
    """Somebody resumes from it, or names it."""


def surplus(stored: Sequence[Stored], keep: int, keep_every_steps: int = 0) -> List[int]:
    """Indexes of those that may go: older than the newest `keep` usable ones, of which at least two stay.

    None where fewer are usable. Of each `keep_every_steps` steps (0: no such rule) the oldest stays for good.
    """
    usable = sorted({one.step for one in stored if one.usable and one.step >= 0}, reverse=True)
    kept = max(ALWAYS_KEPT, keep)
    if len(usable) < kept:
        return []
    for_good: Dict[int, int] = {}
    for one in stored if keep_every_steps > 0 else ():
        if one.whole and one.step >= 0:
            window = one.step // keep_every_steps
            for_good[window] = min(one.step, for_good.get(window, one.step))
    stays = {*for_good.values()}
    return [
        index
        for index, one in enumerate(stored)
        if one.whole and not one.needed and 0 <= one.step < usable[kept - 1] and one.step not in stays
    ]


def beyond(
    findings: Sequence[CheckpointFinding],
    keep: int,
    keep_every_steps: int = 0,
    needed: Container[int] = (),
    named: Container[str] = (),
    proven: bool = False,
) -> List[CheckpointFinding]:
    """Of an ended run those that may go, but those of `needed` steps and of `named` paths; what is damaged stays.

    `proven`: only those that were read when they were written, and have not changed since, count as usable.
    """
    stored = [
        Stored(
            one.step,
            one.usable and (not proven or one.judgement.digest == OK),
            one.judgement.word in (COMPLETE, STALE) and one.judgement.digest != BAD,
            one.step in needed or one.candidate.path in named or one.candidate.overwritten,
        )
        for one in findings
    ]
    return [findings[index] for index in surplus(stored, keep, keep_every_steps)]


def entries_of(root: str, candidate: Candidate) -> Tuple[str, List[str]]:
    """The folder that a candidate lies in, and the names there that make it up: of its files, or of its own folder."""
    folder = folder_of(root, candidate)
    if candidate.single:
        return folder, sorted(candidate.names())
    return os.path.dirname(folder), [os.path.basename(folder)]


def lies_within(root: str, candidate: Candidate, run_dir: str) -> bool:
    """Whether all of it lies in the run's own folder; what a link only shows there does not."""
    folder, entries = entries_of(root, candidate)
    top = os.path.realpath(run_dir)
    inside = os.path.realpath(folder)
    if not candidate.path or not f"{inside}/".startswith(f"{top}/"):
        return False
    return not any(os.path.islink(os.path.join(folder, name)) for name in entries)


def named(root: str, candidates: Sequence[Candidate], run_dir: str) -> Set[str]:
    """Paths of those that a link, a tracker file or the newest one's own state names, whatever wrote it.

    A file that only mentions one counts too: rather too many stay than one that a program will look for.

    Raises:
        OSError: the storage cannot be read.
    """
    links, texts = _beside(root, candidates, run_dir)
    found: Set[str] = set()
    for one in candidates:
        folder, entries = entries_of(root, one)
        places = [os.path.realpath(os.path.join(folder, name)) for name in entries]
        linked = any(link == place or link.startswith(f"{place}/") for link in links for place in places)
        if linked or any(_names(name, text, one) for name, text in texts):
            found.add(one.path)
    return found


def _names(tracker: str, text: str, candidate: Candidate) -> bool:
    own = candidate.path.rpartition("/")[2]
    for name in {own, own.rpartition(".")[0], *candidate.names()} - {""} if candidate.single else {own}:
        if not name.isdigit() and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text):
            return True
    step = candidate.step
    if step == UNKNOWN_STEP:
        return False
    alone = text.strip().isdigit()
    return (alone or bool(_TRACKS.search(tracker))) and any(int(said) == step for said in _NUMBER.findall(text))


def _beside(root: str, candidates: Sequence[Candidate], run_dir: str) -> Tuple[Set[str], List[Tuple[str, str]]]:
    """Where links lead that lie beside checkpoints or above them, and name and text of small files there."""
    links: Set[str] = set()
    texts: List[Tuple[str, str]] = []
    for folder in _folders(root, candidates, run_dir):
        try:
            entries = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        own = {name for one in candidates if entries_of(root, one)[0] == folder for name in entries_of(root, one)[1]}
        for name in entries:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                links.add(os.path.realpath(path))
            elif name not in own and not _NEVER_TRACKS.search(name) and _is_small_file(path):
                texts.append((name, (read_small(path) or b"").decode("utf-8", "replace")))
    newest = max(candidates, key=lambda one: (one.step, one.newest_mtime_ns()), default=None)
    if newest is not None and not newest.single:
        state = read_small(os.path.join(place_of(root, newest), "trainer_state.json")) or b""
        texts += [("trainer_state.json", best["path"].decode("utf-8", "replace")) for best in _BEST.finditer(state)]
    return links, texts


def _folders(root: str, candidates: Sequence[Candidate], run_dir: str) -> List[str]:
    """The folders of checkpoints and those above them up to the run's, and those of links that we made ourselves."""
    top = os.path.abspath(run_dir)
    found: Set[str] = {top}
    for one in candidates:
        folder = os.path.abspath(entries_of(root, one)[0])
        while folder.startswith(f"{top}/"):
            found.add(folder)
            folder = os.path.dirname(folder)
    copies = os.path.join(top, "kept")
    found |= {os.path.join(copies, name) for name in (os.listdir(copies) if os.path.isdir(copies) else ())}
    return sorted(found)


def _is_small_file(path: str) -> bool:
    try:
        return os.path.isfile(path) and os.path.getsize(path) <= TRACKER_LIMIT_BYTES
    except OSError:
        return False


def remove(folder: str, entries: Sequence[str]) -> None:
    """Remove what one checkpoint is made of; safe to repeat, and `finish_removals` ends what a kill cut off.

    One entry is renamed, which nobody sees half of. Several go into a hidden folder that first lists them, with what
    tells each from a later one of its name.

    Raises:
        OSError: the storage refused.
    """
    first = min(entries, default="")
    if not first:
        return
    if first.startswith(".") and first.endswith(_LEAVING):
        _finish(folder, os.path.join(folder, first))
        return
    leaving = left_over(os.path.join(folder, first))
    if os.path.lexists(leaving):
        _finish(folder, leaving)
    if len(entries) == 1:
        os.rename(os.path.join(folder, first), leaving)
    else:
        os.mkdir(leaving)
        listed = {name: _identity(os.path.join(folder, name)) for name in entries}
        write_atomically(os.path.join(leaving, _LISTED), json.dumps(listed).encode())
    _finish(folder, leaving)


def finish_removals(folders: Iterable[str]) -> List[str]:
    """Remove what earlier removals left in these folders; the paths.

    Raises:
        OSError: the storage refused.
    """
    found: List[str] = []
    for folder in folders:
        for path in left_overs(folder):
            _finish(folder, path)
            found.append(path)
    return found


def left_over(path: str) -> str:
    """Where what is called so lies while it is removed."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{_LEAVING}")


def left_overs(folder: str) -> List[str]:
    """What a removal that was cut off has left in a folder."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, one) for one in entries if one.startswith(".") and one.endswith(_LEAVING)]


def _finish(folder: str, leaving: str) -> None:
    if os.path.islink(leaving) or not os.path.isdir(leaving):
        os.unlink(leaving)
        return
    text = read_small(os.path.join(leaving, _LISTED))
    listed = _parse(text) if text is not None else {}
    for name, identity in listed.items():
        path = os.path.join(folder, name)
        if os.path.lexists(path) and _identity(path) == identity:
            os.rename(path, os.path.join(leaving, os.path.basename(name)))
    _last(leaving)
    shutil.rmtree(leaving)


def _last(leaving: str) -> None:
    """Let all else go before the list, without which a second try would not know what is missing."""
    for name in os.listdir(leaving):
        path = os.path.join(leaving, name)
        if name == _LISTED:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _parse(text: bytes) -> Dict[str, List[int]]:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return {}
    return cast("Dict[str, List[int]]", found) if isinstance(found, dict) else {}


def _identity(path: str) -> Optional[List[int]]:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return [found.st_ino, found.st_mtime_ns, found.st_size]
