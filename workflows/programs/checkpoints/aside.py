"""Puts checkpoints out of the way of a program that looks for its newest one by itself, before its ranks start.

Such a program is not asked which one it opens: one that is cut off, or that the run was rolled back behind, it would
open in every attempt. What it must not open goes to `.put-aside` in the run's folder (where that is another storage, in
the checkpoints' own); nothing is deleted. Links and tracker files that call it the newest name the chosen one first, so
that the same again, after a kill at any line, ends in the same state.
"""

from __future__ import annotations

import errno
import os
import re
from typing import List, Optional, Sequence

from workflows.programs.checkpoints.candidate import Candidate
from workflows.programs.checkpoints.examine import CheckpointFinding, has_changed, read_small
from workflows.programs.checkpoints.formats import TRACKERS
from workflows.programs.checkpoints.judge import COMPLETE
from workflows.programs.checkpoints.surplus import entries_of
from workflows.programs.runtime.files import write_atomically

FOLDER = ".put-aside"
"""Hidden, so that no search for names of checkpoints comes across what lies in it."""
MOST_TOLD = 5
TRACKER_LIMIT_BYTES = 1 << 16
_NAMED_BY_TENSORFLOW = re.compile(rb'(?:all_)?model_checkpoint_paths?: "(?P<path>[^"]*)"')


def in_the_way(findings: Sequence[CheckpointFinding], chosen: Optional[CheckpointFinding]) -> List[CheckpointFinding]:
    """What a program might take for its newest and must not open, in the order of `findings`.

    `chosen` is None where training begins anew. Else one that is overwritten in place stays where it is: without it
    such a program would begin anew, and our copy is put back over it.
    """
    return [
        one
        for one in findings
        if one.judgement.word != COMPLETE
        and not (one.usable or one.kept)
        and one.candidate.path
        and (chosen is None or (not one.candidate.overwritten and _may_seem_newer(one, chosen)))
    ]


def _may_seem_newer(one: CheckpointFinding, than: CheckpointFinding) -> bool:
    """By its true step, by its name, or by when it was written: programs go by the one or the other."""
    return (
        one.step > than.step
        or one.candidate.step > than.candidate.step
        or one.candidate.newest_mtime_ns() > than.candidate.newest_mtime_ns()
    )


def put_aside(findings: Sequence[CheckpointFinding], run_dir: str, chosen: Optional[CheckpointFinding]) -> List[str]:
    """Move each of `findings` aside; a sentence about each for people.

    One that somebody is still writing stays where it is, and so does one that the storage does not let us move.
    """
    said: List[str] = []
    for one in findings:
        try:
            if has_changed(one.root, one.candidate):
                continue
            if chosen is not None and not chosen.kept:
                _name_instead(one, chosen)
            said.append(f"{one.candidate.path} ({one.judgement.why}) lies in {_move(one, run_dir)} now")
        except OSError as error:
            said.append(f"{one.candidate.path} ({one.judgement.why}) could not be put aside: {error.strerror or error}")
    more = [f"and {len(said) - MOST_TOLD} more"] if len(said) > MOST_TOLD else []
    return said[:MOST_TOLD] + more


def _move(one: CheckpointFinding, run_dir: str) -> str:
    """Rename its folder or its files; the folder that holds them now."""
    source, names = entries_of(one.root, one.candidate)
    for top in (run_dir, one.root):
        target = _free(os.path.join(top, FOLDER, os.path.dirname(one.candidate.path)).rstrip("/"), names)
        os.makedirs(target, exist_ok=True)
        try:
            for name in names:
                os.rename(os.path.join(source, name), os.path.join(target, name))
            break
        except OSError as error:
            if error.errno != errno.EXDEV or top == one.root:
                raise
    return target


def _free(folder: str, names: Sequence[str]) -> str:
    """`folder`, or one with a number that holds nothing of these names yet."""
    number, found = 1, folder
    while any(os.path.lexists(os.path.join(found, name)) for name in names):
        number += 1
        found = f"{folder}-{number}"
    return found


def _name_instead(one: CheckpointFinding, chosen: CheckpointFinding) -> None:
    """Let the links and tracker files beside it that name it name the chosen one."""
    folder, names = entries_of(one.root, one.candidate)
    mine = {os.path.realpath(os.path.join(folder, name)) for name in names}
    for entry in sorted(set(os.listdir(folder)) - set(names)):
        path = os.path.join(folder, entry)
        if os.path.islink(path):
            if os.path.realpath(path) in mine:
                _link(path, os.path.relpath(os.path.realpath(chosen.path), os.path.realpath(folder)))
        elif os.path.isfile(path) and os.path.getsize(path) <= TRACKER_LIMIT_BYTES:
            instead = tracker_instead(entry, read_small(path) or b"", one.candidate, chosen.candidate)
            if instead is not None:
                write_atomically(path, instead)


def _link(path: str, target: str) -> None:
    unfinished = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.unfinished")
    if os.path.lexists(unfinished):
        os.unlink(unfinished)
    os.symlink(target, unfinished)
    os.replace(unfinished, path)


def tracker_instead(name: str, text: bytes, old: Candidate, new: Candidate) -> Optional[bytes]:
    """What a file of this name and text should say that names `old` as the newest; None: it does not.

    Known are Megatron's, which holds the iteration, TensorFlow's `checkpoint`, and any whose only word is the name or
    a path that ends with it, as DeepSpeed's `latest` and many programs' own.
    """
    gone, taken = (one.path.rpartition("/")[2].encode() for one in (old, new))
    if old.format == "megatron" and name == TRACKERS["megatron"]:
        return b"%d" % new.step if text.strip() == b"%d" % old.step else None
    if old.format == "tensorflow":
        return _tensorflow_instead(text, gone, taken)
    said = text.strip()
    if not gone or said.rpartition(b"/")[2] != gone:
        return None
    return text.replace(said, said[: len(said) - len(gone)] + taken)


def _tensorflow_instead(text: bytes, gone: bytes, taken: bytes) -> Optional[bytes]:
    """The newest is the chosen one, and what is put aside is none of all."""
    lines: List[bytes] = []
    for line in text.splitlines(keepends=True):
        found = _NAMED_BY_TENSORFLOW.match(line)
        if found is None or found["path"].rpartition(b"/")[2] != gone:
            lines.append(line)
        elif not line.startswith(b"all_"):
            lines.append(line.replace(gone + b'"', taken + b'"'))
    changed = b"".join(lines)
    return changed if changed != text else None
