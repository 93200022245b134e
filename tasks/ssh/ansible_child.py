"""ansible-runner in a process that takes everything along when it ends: playbook, workers, connections.

    python -I -m tasks.ssh.ansible_child 4711 run FOLDER --playbook test.yaml --json

It ends with the process that started it (whose id comes first), also where that one is killed. Ansible's workers have
sessions of their own and connections wait for a next step: neither would end with ansible-runner.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

from workflows.programs.runtime import processes

PR_SET_PDEATHSIG = 1
"""`prctl(2)`: the signal that comes when the parent has died."""
RUNNER = "ansible_runner"
CANCEL_SECONDS = 5.0
"""For ansible-runner to cancel its playbook."""


def main(argv: list[str]) -> int:
    """Run it; its exit code."""
    signal.signal(signal.SIGTERM, _end_by_signal)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(argv[0]):  # it died before it could be told of
        return 128 + signal.SIGTERM
    processes.become_subreaper()
    process = subprocess.Popen([sys.executable, "-I", "-m", RUNNER, *argv[1:]], stdin=subprocess.DEVNULL)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if process.poll() is None:
            process.terminate()
            _wait(process)
        processes.kill_everything(frozenset())


def _end_by_signal(number: int, frame: object) -> None:
    del frame
    sys.exit(128 + number)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(CANCEL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
