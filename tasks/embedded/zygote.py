"""A small process that the keeper forks at its start and that forks every supervisor.

It stays as small as it was born, so a supervisor costs one cheap fork whatever the keeper holds in memory. When the
keeper dies with something pending it starts the next one.
"""

from __future__ import annotations

import gc
import os
import signal
import time

from tasks.embedded import linux, supervisor
from tasks.embedded.container import detect_namespaces
from tasks.embedded.images import find_image
from tasks.embedded.launch import revive_keeper
from tasks.embedded.processes import ZYGOTE, start_time
from tasks.embedded.store import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Zygote:
    """The keeper's end of the line.

    Args:
        root: of the cluster.
        namespaces: the cluster's setting, `auto`, `user` or `never`.
    """

    def __init__(self, root: str, namespaces: str) -> None:
        ask_reading, self._ask = os.pipe2(os.O_CLOEXEC)
        self.answers, answer_writing = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ask)
            os.close(self.answers)
            _serve(root, namespaces, ask_reading, answer_writing)
        os.close(ask_reading)
        os.close(answer_writing)
        os.set_blocking(self.answers, False)
        self._rest = b""

    def start(self, name: str, uid: str) -> None:
        """Ask for a supervisor of this pod."""
        os.write(self._ask, f"{name} {uid}\n".encode())

    def started(self) -> list[tuple[str, int, int]] | None:
        """Uid of the pod, pid and start time of supervisors that were forked; None when the zygote is gone."""
        alive = True
        try:
            while piece := os.read(self.answers, 65536):
                self._rest += piece
            alive = False
        except BlockingIOError:
            pass
        lines = self._rest.split(b"\n")
        self._rest = lines.pop()
        found = [(uid.decode(), int(pid), int(start)) for uid, pid, start in (line.split() for line in lines)]
        return found if alive or found else None


def _serve(root: str, setting: str, asked: int, answers: int) -> NoReturn:
    linux.set_process_name(ZYGOTE)
    # Orphans of a supervisor that was killed come here, where they are found whatever they did to their environment.
    linux.become_subreaper()
    # The keeper alone is signalled; a supervisor that ended is reaped by the kernel.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    namespaces = detect_namespaces(setting)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Compiled patterns are remembered: done once here, not again in every supervisor.
    find_image((read_json(os.path.join(root, "cluster.json")) or {}).get("images", []), "")
    gc.collect()
    gc.freeze()
    rest = b""
    while piece := os.read(asked, 65536):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            name, uid = line.decode().split()
            pid = os.fork()
            if pid == 0:
                os.close(asked)
                os.close(answers)
                _supervise(root, name, uid, namespaces)
            os.write(answers, f"{uid} {pid} {start_time(pid) or 0}\n".encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while wait := revive_keeper(root):
        time.sleep(wait)
    os._exit(0)


def _supervise(root: str, name: str, uid: str, namespaces: str) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        supervisor.main(root, name, uid, namespaces)
    except BaseException:
        import traceback  # noqa: PLC0415 - large, and never needed

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(0)
