"""What whoever started the cluster had set for himself is nothing that a container gets."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

from tasks.embedded.runtime.inherited import LIMITS
from tests.support.harness.embedded_stage import cluster, ended

ROOT = Path(__file__).parents[3]
SHOWN = """
import json, os, resource
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "ignored": int(status["SigIgn"], 16) & ~(1 << 12 | 1 << 24), "blocked": int(status["SigBlk"], 16),
    "nice": os.nice(0), "umask": status["Umask"], "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0], "policy": os.sched_getscheduler(0),
    "processors": len(os.sched_getaffinity(0)), "oom": open("/proc/self/oom_score_adj").read().strip(),
}))
"""
"""Python itself ignores SIGPIPE and SIGXFSZ."""


def odd_shell() -> None:
    """As `nohup`, `trap ''`, `ulimit`, `umask`, `nice`, `taskset` and a blocked signal leave it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2, signal.SIGRTMIN + 3})
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000_000, resource.RLIM_INFINITY))
    os.umask(0o077)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if os.geteuid() == 0:  # nobody else may take these back
        os.nice(7)
        Path("/proc/self/oom_score_adj").write_text("500")


def test_a_container_has_what_is_documented_whoever_started_the_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as one:
        # A client in an odd shell writes the first pod, so the keeper is its grandchild.
        program = (
            "import sys; from pathlib import Path; from tests.support.harness.embedded_stage import pod, spec; "
            "from tasks.embedded.api import EmbeddedCluster; "
            "EmbeddedCluster(Path(sys.argv[1]), spec()).apply(pod('shows', 'python3', '-c', sys.argv[2]))"
        )
        subprocess.run(
            [sys.executable, "-c", program, str(one.root), SHOWN], preexec_fn=odd_shell, check=True, cwd=ROOT
        )
        assert ended(one, "shows")["status"]["phase"] == "Succeeded", one.logs("shows")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        wanted = min(LIMITS["NOFILE"][0], hard)  # above the hard limit only some may go
        assert json.loads(one.logs("shows")) == {
            "ignored": 0,
            "blocked": 0,
            "nice": os.nice(0) if os.geteuid() else 0,
            "umask": "0022",
            "open files": wanted,
            "core": 0,
            "policy": os.SCHED_OTHER,
            "processors": os.cpu_count(),
            "oom": "0",
        }
