"""Asks ranks to save, by a signal or a file, and follows whether they did; `lifecycle` decides what comes next.

Also checks, right before ranks restart in place, that the checkpoint is still the one that was proven. A new attempt
does that in its `verify` step; here only sizes, times and inodes are compared, so terabytes cost no reading.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Sequence

from workflows.programs.launcher import lifecycle
from workflows.programs.launcher.lifecycle import LauncherFailed, SaveComplete, SaveRequest, SaveWay
from workflows.programs.launcher.options import Options, Place, Rendezvous
from workflows.programs.launcher.rendezvous import LogNote
from workflows.programs.runtime import files, processes

if TYPE_CHECKING:
    from workflows.wire import FileRecord


REMOVED_SECONDS = 2.0
"""How long ranks that start wait for the removal of an earlier request's file, since a storage may hang."""


class SaveRequester:
    """Requests to save of one pod.

    `pids` gives the living ranks'; `seen` is called once a requested save is complete; `tell` gets lines for the log,
    from other threads too.
    """

    def __init__(
        self,
        way: SaveWay,
        pids: Callable[[], List[int]],
        seen: Callable[[SaveComplete], None],
        tell: Callable[[LogNote], None],
    ) -> None:
        self.way = way
        self._pids, self._seen, self._news = pids, seen, tell
        self._asked: Optional[SaveRequest] = None
        self._file_lock = threading.Lock()

    def request(self, step: Optional[int], why: str) -> None:
        """Ask for a save now; `step` is the last one that this pod's ranks reported, `why` goes into the file."""
        if not self.way.ends_itself:
            self._asked = lifecycle.new_save_request(time.time(), step)
        if self.way.file:
            self._on_file(lambda: make_file(self.way.file, why))
        if self.way.signal != lifecycle.TERM or not self.way.file:
            self._tell(signal.Signals[f"SIG{self.way.signal}"])

    def end(self, why: str) -> None:
        """Send SIGTERM to ranks that have saved, or had the time for it."""
        self._say(f"the ranks are told to end: {why}")
        self._tell(signal.SIGTERM)

    def update(self, reports: Iterable[Any]) -> None:
        """Follow reports of this pod's ranks and its prover, which may show that the save is complete."""
        for report in reports if self._asked is not None else ():
            self._asked = lifecycle.update_save_request(self._asked, report) if self._asked is not None else None
        if self._asked is not None and self._asked.completion:
            seen, self._asked = SaveComplete(self._asked.completion), None
            self._remove()
            self._seen(seen)

    def begin(self) -> None:
        """Drop requests to earlier ranks before new ones start."""
        self._asked = None
        thread = self._remove()
        if thread is not None:
            thread.join(REMOVED_SECONDS)
            if thread.is_alive():
                self._say(
                    f"{self.way.file}: the storage did not answer in {REMOVED_SECONDS:g} s; it may still be there"
                )

    def _say(self, text: str) -> None:
        self._news(LogNote(text))

    def _tell(self, number: int) -> None:
        for pid in self._pids():
            processes.tell(pid, number)

    def _remove(self) -> Optional[threading.Thread]:
        return self._on_file(lambda: remove_file(self.way.file)) if self.way.file else None

    def _on_file(self, work: Callable[[], None]) -> threading.Thread:
        """Run `work` on the file in a thread, after earlier work, since a storage may hang."""

        def run() -> None:
            try:
                with self._file_lock:
                    work()
            except OSError as error:
                self._say(f"{self.way.file}: {error.strerror or error}; programs that watch it hear of no request")

        thread = threading.Thread(target=run, name="save file", daemon=True)
        thread.start()
        return thread


def make_file(path: str, text: str) -> None:
    """Make the file atomically; raises OSError where the storage refuses."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write_atomically(path, f"{text}\n".encode())


def remove_file(path: str) -> None:
    """Remove the file if it exists; raises OSError where the storage refuses."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def why_not_resumable(options: Options, place: Place, meeting: Rendezvous) -> Optional[LauncherFailed]:
    """Why ranks may not restart from the chosen checkpoint; None: they may.

    One pod checks for the whole gang, and only for restarts: the first incarnation was checked before its attempt.
    """
    looks = options.first_pod(place.pod_index) == place.pod_index
    if meeting.incarnation == 1 or not (looks and place.resume_from and place.run_dir):
        return None
    return why_changed(place.run_dir, place.resume_from)


def why_changed(run_dir: str, resume_from: str) -> Optional[LauncherFailed]:
    """Why a checkpoint is not the one that was proven; None: it is, or there is no proof.

    `run_dir` holds the proofs; `resume_from` is the value of the trainer's resume argument.
    """
    from workflows.programs.checkpoints import proofs as checkpoints_proofs  # imported only for a restart

    try:
        proofs = checkpoints_proofs.read_proofs(run_dir)
    except OSError as error:
        why = f"the proofs in {run_dir} cannot be read: {error.strerror}"
        return LauncherFailed(why, "storage", unstarted=True)
    about = [proof for proof in proofs if proof.path == resume_from]
    if not about:
        return None
    proof = max(about, key=lambda one: one.at)
    folder = resume_from if os.path.isdir(resume_from) else os.path.dirname(resume_from)
    found = _first_changed(folder, checkpoints_proofs.records_of(proof, kept=False))
    why = f"the checkpoint {resume_from} is not what was proven: {found}"
    return LauncherFailed(why, "checkpoint-changed", unstarted=True) if found else None


def _first_changed(folder: str, records: "Sequence[FileRecord]") -> str:
    for record in records:
        try:
            now = os.stat(os.path.join(folder, record.path))
        except OSError:
            return f"{record.path} is gone"
        if (now.st_size, now.st_mtime_ns, now.st_ino) != (record.bytes, record.mtime_ns, record.inode):
            return f"{record.path} has changed"
    return ""
