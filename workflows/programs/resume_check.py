"""Whether a checkpoint is still what was proven, looked at right before ranks begin again from it in their pods.

A new attempt re-checks the record by its `verify` step. In place the choice is made from what the prover said; whatever
touched the files since then is found here: sizes, times and inodes only, so terabytes cost a look at their names.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Sequence

from workflows.programs.launch_options import Options, Place, Rendezvous

if TYPE_CHECKING:
    from workflows.reports import FileRecord


def unlike_the_proof(options: Options, place: Place, meeting: Rendezvous) -> str:
    """Why ranks may not begin again from the checkpoint that was chosen; "": they may. One pod of a gang looks for all.

    Args:
        options: of the launcher.
        place: with what is resumed now.
        meeting: of the incarnation that begins; the first one was checked before its attempt.
    """
    looks = options.first_pod(place.pod_index) == place.pod_index
    if meeting.incarnation == 1 or not (looks and place.resume_from and place.run_dir):
        return ""
    return changed(place.run_dir, place.resume_from)


def changed(run_dir: str, resume_from: str) -> str:
    """Why the checkpoint that ranks are to go on from is not what was proven; "" where it is, or no record is kept.

    Args:
        run_dir: the run's folder, which holds the proofs.
        resume_from: the checkpoint as the trainer is told.
    """
    from workflows.programs import checkpoint_proofs  # only who begins again pays for it

    try:
        proofs = checkpoint_proofs.read_all(run_dir)
    except OSError as error:
        return f"the proofs in {run_dir} cannot be read: {error.strerror}"
    about = [proof for proof in proofs if proof.path == resume_from]
    if not about:
        return ""
    proof = max(about, key=lambda one: one.at)
    folder = resume_from if os.path.isdir(resume_from) else os.path.dirname(resume_from)
    found = _first_changed(folder, checkpoint_proofs.records_of(proof, kept=False))
    return found and f"the checkpoint {resume_from} is not what was proven: {found}"


def _first_changed(folder: str, records: "Sequence[FileRecord]") -> str:
    for record in records:
        try:
            now = os.stat(os.path.join(folder, record.path))
        except OSError:
            return f"{record.path} is gone"
        if (now.st_size, now.st_mtime_ns, now.st_ino) != (record.bytes, record.mtime_ns, record.inode):
            return f"{record.path} has changed"
    return ""
