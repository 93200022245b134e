"""Asks ranks to save, by a signal or a file, and hears whether they did. What follows is decided in `lifecycle`.

Whether a checkpoint is still what was proven, looked at right before ranks begin again from it in their pods.

A new attempt re-checks the record by its `verify` step. In place the choice is made from what the prover said; whatever
touched the files since then is found here: sizes, times and inodes only, so terabytes cost a look at their names.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Sequence

from workflows.programs.launcher import lifecycle
from workflows.programs.launcher.lifecycle import SaveRequest, SaveSeen, SaveWay
from workflows.programs.launcher.options import Options, Place, Rendezvous
from workflows.programs.launcher.rendezvous import Note
from workflows.programs.runtime import processes

if TYPE_CHECKING:
    from workflows.wire import FileRecord


REMOVED_SECONDS = 2.0
"""So long ranks that start wait for the file of an earlier request to be gone: a storage may hang."""


class SaveAsker:
    """One pod's requests to save.

    Args:
        way: of the program.
        pids: of the ranks that live.
        seen: called once a save that was asked for is complete.
        tell: hears what is to be said in the log; called from other threads too.
    """

    def __init__(
        self,
        way: SaveWay,
        pids: Callable[[], List[int]],
        seen: Callable[[SaveSeen], None],
        tell: Callable[[Note], None],
    ) -> None:
        self.way = way
        self._pids, self._seen, self._news = pids, seen, tell
        self._asked: Optional[SaveRequest] = None
        self._file_lock = threading.Lock()

    def ask(self, step: Optional[int], why: str) -> None:
        """Ask for a save now.

        Args:
            step: the last one that this pod's ranks have reported; None: none.
            why: stands in the file.
        """
        if not self.way.ends_itself:
            self._asked = lifecycle.asked(time.time(), step)
        if self.way.file:
            self._on_file(lambda: make(self.way.file, why))
        if self.way.signal != lifecycle.TERM or not self.way.file:
            self._tell(signal.Signals[f"SIG{self.way.signal}"])

    def end(self, why: str) -> None:
        """Tell ranks that have saved, or had the time to, to end."""
        self._say(f"the ranks are told to end: {why}")
        self._tell(signal.SIGTERM)

    def hear(self, reports: Iterable[Any]) -> None:
        """What this pod's ranks or its prover report: one of it may say that the save is complete."""
        for report in reports if self._asked is not None else ():
            self._asked = lifecycle.hear(self._asked, report) if self._asked is not None else None
        if self._asked is not None and self._asked.seen:
            seen, self._asked = SaveSeen(self._asked.seen), None
            self._remove()
            self._seen(seen)

    def begin(self) -> None:
        """Ranks are about to start: what was asked of others before them does not concern them."""
        self._asked = None
        thread = self._remove()
        if thread is not None:
            thread.join(REMOVED_SECONDS)
            if thread.is_alive():
                self._say(
                    f"{self.way.file}: the storage did not answer in {REMOVED_SECONDS:g} s; it may still be there"
                )

    def _say(self, text: str) -> None:
        self._news(Note(text))

    def _tell(self, number: int) -> None:
        for pid in self._pids():
            processes.tell(pid, number)

    def _remove(self) -> Optional[threading.Thread]:
        return self._on_file(lambda: remove(self.way.file)) if self.way.file else None

    def _on_file(self, work: Callable[[], None]) -> threading.Thread:
        """Do something with the file, one after the other, in a thread: a storage may hang."""

        def run() -> None:
            try:
                with self._file_lock:
                    work()
            except OSError as error:
                self._say(f"{self.way.file}: {error.strerror or error}; programs that watch it hear of no request")

        thread = threading.Thread(target=run, name="save file", daemon=True)
        thread.start()
        return thread


def make(path: str, text: str) -> None:
    """Let the file be there, whole at once: its name appears when it is written.

    Raises:
        OSError: the storage refused.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    draft = os.path.join(folder, f".{os.path.basename(path)}.{os.uname().nodename}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def remove(path: str) -> None:
    """Let the file be gone.

    Raises:
        OSError: the storage refused.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


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
    from workflows.programs.checkpoints import proofs as checkpoints_proofs  # only who begins again pays for it

    try:
        proofs = checkpoints_proofs.read_all(run_dir)
    except OSError as error:
        return f"the proofs in {run_dir} cannot be read: {error.strerror}"
    about = [proof for proof in proofs if proof.path == resume_from]
    if not about:
        return ""
    proof = max(about, key=lambda one: one.at)
    folder = resume_from if os.path.isdir(resume_from) else os.path.dirname(resume_from)
    found = _first_changed(folder, checkpoints_proofs.records_of(proof, kept=False))
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
